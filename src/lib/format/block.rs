//! Blocks, their checksums and their own numbers (docs/format.md 1).

use crate::base::BlockNr;

/// Bytes of a metadata block.
pub const BLOCK_SIZE: usize = 4096;
/// Sectors of a metadata block.
pub const BLOCK_SECTORS: u64 = 8;

/// One metadata block.
pub type Block = [u8; BLOCK_SIZE];

/// The kinds of blocks that a checksum tells apart (docs/format.md 1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// The superblock of a thin pool, also the copy that a metadata snapshot keeps.
    ThinSuperblock,
    /// The superblock of a cache.
    CacheSuperblock,
    /// The superblock of an era device.
    EraSuperblock,
    /// A node of any btree.
    Node,
    /// The index block of a metadata space map.
    Index,
    /// A bitmap of a space map.
    Bitmap,
    /// A block of an array.
    Array,
}

impl BlockKind {
    /// All kinds.
    pub const ALL: [BlockKind; 7] = [
        BlockKind::ThinSuperblock,
        BlockKind::CacheSuperblock,
        BlockKind::EraSuperblock,
        BlockKind::Node,
        BlockKind::Index,
        BlockKind::Bitmap,
        BlockKind::Array,
    ];

    /// The constant that is mixed into the checksum of this kind.
    pub const fn salt(self) -> u32 {
        match self {
            BlockKind::ThinSuperblock => 160_774,
            BlockKind::CacheSuperblock => 9_031_977,
            BlockKind::EraSuperblock => 146_538_381,
            BlockKind::Node => 121_107,
            BlockKind::Index => 160_478,
            BlockKind::Bitmap => 240_779,
            BlockKind::Array => 595_846_735,
        }
    }

    /// Where a block of this kind keeps its own number, in bytes.
    pub const fn number_offset(self) -> usize {
        match self {
            BlockKind::Array => 16,
            _ => 8,
        }
    }

    /// The name in messages.
    pub const fn word(self) -> &'static str {
        match self {
            BlockKind::ThinSuperblock => "thin superblock",
            BlockKind::CacheSuperblock => "cache superblock",
            BlockKind::EraSuperblock => "era superblock",
            BlockKind::Node => "btree node",
            BlockKind::Index => "space map index",
            BlockKind::Bitmap => "space map bitmap",
            BlockKind::Array => "array block",
        }
    }
}

/// Why a block is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockFault {
    /// Every byte is zero.
    #[error("all zeros")]
    Zeroed,
    /// The checksum is that of no kind of block.
    #[error("checksum is {stored:#010x}, should be {wanted:#010x}")]
    Checksum {
        /// What the block says.
        stored: u32,
        /// What its bytes give.
        wanted: u32,
    },
    /// The checksum is good, for another kind of block.
    #[error("it is a {}", .0.word())]
    OtherKind(BlockKind),
    /// The block's own number is another one.
    #[error("it says it is block {0}")]
    Moved(u64),
}

/// The 32-bit little-endian integer at `offset`, which must leave room for it.
pub fn le32(block: &Block, offset: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[offset..offset + 4]);
    u32::from_le_bytes(bytes)
}

/// The 64-bit little-endian integer at `offset`, which must leave room for it.
pub fn le64(block: &Block, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[offset..offset + 8]);
    u64::from_le_bytes(bytes)
}

/// The standard CRC-32C.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C over bytes 4..4096 without the final inversion (docs/format.md 1.2).
pub fn raw_checksum(block: &Block) -> u32 {
    !crc32c::crc32c(&block[4..])
}

/// The kind whose checksum the block carries, if any.
pub fn identify(block: &Block) -> Option<BlockKind> {
    let salt = raw_checksum(block) ^ le32(block, 0);
    BlockKind::ALL.into_iter().find(|kind| kind.salt() == salt)
}

/// The block's own number, read as one of `kind`.
pub fn stored_number(block: &Block, kind: BlockKind) -> u64 {
    le64(block, kind.number_offset())
}

/// Checks checksum, kind and own number.
///
/// # Errors
/// The first of these that does not hold, the checksum before the number.
pub fn verify(block: &Block, kind: BlockKind, location: BlockNr) -> Result<(), BlockFault> {
    let raw = raw_checksum(block);
    if raw ^ le32(block, 0) != kind.salt() {
        return Err(checksum_fault(block, kind, raw));
    }
    let number = stored_number(block, kind);
    if number != location.0 {
        return Err(BlockFault::Moved(number));
    }
    Ok(())
}

#[cold]
fn checksum_fault(block: &Block, kind: BlockKind, raw: u32) -> BlockFault {
    let stored = le32(block, 0);
    let salt = raw ^ stored;
    if let Some(other) = BlockKind::ALL.into_iter().find(|other| other.salt() == salt) {
        BlockFault::OtherKind(other)
    } else if is_zero(block) {
        BlockFault::Zeroed
    } else {
        BlockFault::Checksum { stored, wanted: raw ^ kind.salt() }
    }
}

/// Whether every byte is zero.
pub fn is_zero(block: &Block) -> bool {
    block.iter().fold(0, |all, byte| all | byte) == 0
}

/// Makes a filled block of `kind` whole: its own number first, then the checksum.
pub fn seal(block: &mut Block, kind: BlockKind, location: BlockNr) {
    let at = kind.number_offset();
    block[at..at + 8].copy_from_slice(&location.0.to_le_bytes());
    let checksum = raw_checksum(block) ^ kind.salt();
    block[..4].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_vectors() {
        assert_eq!(!crc32c::crc32c(b"123456789"), 0x1CF9_6D7C);
        assert_eq!(raw_checksum(&[0; BLOCK_SIZE]), 0x58CD_A791);
    }

    #[test]
    fn sealed_blocks_verify_and_nothing_else_does() {
        for kind in BlockKind::ALL {
            let mut block = [7; BLOCK_SIZE];
            seal(&mut block, kind, BlockNr(42));
            assert_eq!(verify(&block, kind, BlockNr(42)), Ok(()));
            assert_eq!(identify(&block), Some(kind));
            assert_eq!(verify(&block, kind, BlockNr(43)), Err(BlockFault::Moved(42)));
            for other in BlockKind::ALL.into_iter().filter(|other| *other != kind) {
                assert_eq!(verify(&block, other, BlockNr(42)), Err(BlockFault::OtherKind(kind)));
            }
            block[4095] ^= 1;
            assert!(matches!(verify(&block, kind, BlockNr(42)), Err(BlockFault::Checksum { .. })));
        }
        assert_eq!(identify(&[0; BLOCK_SIZE]), None);
        assert_eq!(verify(&[0; BLOCK_SIZE], BlockKind::Node, BlockNr(0)), Err(BlockFault::Zeroed));
    }
}
