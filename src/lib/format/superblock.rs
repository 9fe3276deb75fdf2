//! The superblock of a thin pool (docs/format.md 4.1).

use super::block::{self, Block, BlockFault, BlockKind};
use super::space_map::SpaceMapRoot;
use crate::base::BlockNr;
use std::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `magic` of a thin superblock.
pub const THIN_MAGIC: u64 = 27_022_010;
/// `magic` of a cache superblock.
pub const CACHE_MAGIC: u64 = 0o6_142_003;
/// `magic` of an era superblock.
pub const ERA_MAGIC: u64 = 2_126_579_579;
/// Bit of `flags`: the kernel gave up on a transaction and wants the metadata checked.
pub const FLAG_NEEDS_CHECK: u32 = 1;
/// The version that is written; no difference to version 1 is known.
pub const VERSION: u32 = 2;
/// The data block size is a multiple of this many sectors (64 KiB).
pub const DATA_BLOCK_SECTORS_MIN: u32 = 128;
/// The largest data block size, in sectors (1 GiB).
pub const DATA_BLOCK_SECTORS_MAX: u32 = 2_097_152;
/// Times in mappings have 24 bits (docs/format.md 4.2).
pub const TIME_LIMIT: u32 = 1 << 24;
/// Device ids in kernel messages have 24 bits.
pub const DEVICE_ID_LIMIT: u64 = 1 << 24;

/// The superblock as it lies on disk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ThinSuperblock {
    /// Checksum.
    pub csum: U32,
    /// [`FLAG_NEEDS_CHECK`]; other bits are 0.
    pub flags: U32,
    /// 0, or the own location of the copy that a metadata snapshot keeps.
    pub blocknr: U64,
    /// Zeros, where a kernel made the pool.
    pub uuid: [u8; 16],
    /// [`THIN_MAGIC`].
    pub magic: U64,
    /// 1 or 2.
    pub version: U32,
    /// The snapshot clock: one more with every snapshot.
    pub time: U32,
    /// A counter that belongs to userspace.
    pub transaction_id: U64,
    /// The block of the metadata snapshot's superblock, 0 where there is none.
    pub held_root: U64,
    /// Root of the data space map.
    pub data_space_map: SpaceMapRoot,
    /// Root of the metadata space map.
    pub metadata_space_map: SpaceMapRoot,
    /// Root of the two-level mapping tree.
    pub mapping_root: U64,
    /// Root of the details tree.
    pub details_root: U64,
    /// Sectors of a data block.
    pub data_block_size: U32,
    /// Sectors of a metadata block: 8.
    pub metadata_block_size: U32,
    /// Blocks of the metadata device when it was formatted; not kept up to date by the kernel.
    pub metadata_nr_blocks: U64,
    /// Feature flags, 0.
    pub compat_flags: U32,
    /// Feature flags, 0.
    pub compat_ro_flags: U32,
    /// Feature flags, 0.
    pub incompat_flags: U32,
}

const _: () = {
    assert!(size_of::<ThinSuperblock>() == 364);
    assert!(offset_of!(ThinSuperblock, magic) == 32);
    assert!(offset_of!(ThinSuperblock, held_root) == 56);
    assert!(offset_of!(ThinSuperblock, data_space_map) == 64);
    assert!(offset_of!(ThinSuperblock, metadata_space_map) == 192);
    assert!(offset_of!(ThinSuperblock, mapping_root) == 320);
    assert!(offset_of!(ThinSuperblock, data_block_size) == 336);
    assert!(offset_of!(ThinSuperblock, incompat_flags) == 360);
};

/// Whether this version is one that there is.
pub fn version_is_known(version: u32) -> bool {
    (1..=VERSION).contains(&version)
}

/// Whether a pool can have this data block size, in sectors.
pub fn data_block_size_is_valid(sectors: u32) -> bool {
    (DATA_BLOCK_SECTORS_MIN..=DATA_BLOCK_SECTORS_MAX).contains(&sectors)
        && sectors.is_multiple_of(DATA_BLOCK_SECTORS_MIN)
}

impl ThinSuperblock {
    /// The fields of `block`, whatever they are worth.
    pub fn view(block: &Block) -> &ThinSuperblock {
        match ThinSuperblock::ref_from_prefix(block) {
            Ok((superblock, _)) => superblock,
            Err(_) => unreachable!("a block is larger than a superblock and any alignment will do"),
        }
    }

    /// The fields of `block`, which must be a good thin superblock of block `location` by its checksum and number.
    ///
    /// # Errors
    /// What is wrong with the block. The fields are not looked at.
    pub fn verify(block: &Block, location: BlockNr) -> Result<&ThinSuperblock, BlockFault> {
        block::verify(block, BlockKind::ThinSuperblock, location)?;
        Ok(Self::view(block))
    }

    /// Whether the kernel asks for a check.
    pub fn needs_check(&self) -> bool {
        self.flags.get() & FLAG_NEEDS_CHECK != 0
    }

    /// The block of the metadata snapshot's superblock.
    pub fn held_root(&self) -> Option<BlockNr> {
        match self.held_root.get() {
            0 => None,
            block => Some(BlockNr(block)),
        }
    }

    /// Puts the superblock into a block of zeros, ready to be written to `location`.
    pub fn to_block(&self, location: BlockNr) -> Box<Block> {
        let mut block = Box::new([0; block::BLOCK_SIZE]);
        block[..size_of::<Self>()].copy_from_slice(self.as_bytes());
        block::seal(&mut block, BlockKind::ThinSuperblock, location);
        block
    }
}
