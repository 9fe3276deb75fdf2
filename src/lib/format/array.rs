//! Blocks of arrays and bitsets (docs/format.md 5).

use super::block::{self, BLOCK_SIZE, Block, BlockFault, BlockKind};
use crate::base::BlockNr;
use std::mem::size_of;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header of an array block.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ArrayHeader {
    /// Checksum.
    pub csum: U32,
    /// Values there is room for.
    pub max_entries: U32,
    /// Values in use.
    pub nr_entries: U32,
    /// Bytes of a value.
    pub value_size: U32,
    /// The block's own number.
    pub blocknr: U64,
}

/// Bytes of an array block's header.
pub const HEADER_SIZE: usize = size_of::<ArrayHeader>();

/// The capacity of an array block for values of this many bytes, which is not 0.
pub const fn max_entries(value_size: usize) -> usize {
    (BLOCK_SIZE - HEADER_SIZE) / value_size
}

const _: () = {
    assert!(HEADER_SIZE == 24);
    assert!(max_entries(4) == 1018);
    assert!(max_entries(8) == 509);
};

/// Why a block cannot be used as an array block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayFault {
    /// It is not a good array block by checksum and number.
    #[error("{0}")]
    Block(#[from] BlockFault),
    /// Values of another size than the array has.
    #[error("values have {found} bytes, should have {wanted}")]
    ValueSize {
        /// The value size that the block claims.
        found: u32,
        /// The value size of the array.
        wanted: u32,
    },
    /// The values would not fit in the block.
    #[error("{max_entries} entries do not fit")]
    Capacity {
        /// The capacity that the block claims.
        max_entries: u32,
    },
    /// More values than capacity.
    #[error("{nr_entries} entries where there is room for {max_entries}")]
    Entries {
        /// The number of values that the block claims.
        nr_entries: u32,
        /// The capacity that the block claims.
        max_entries: u32,
    },
}

/// The values in use of an array block, as bytes: `value_size` for each.
///
/// # Errors
/// The first thing that is wrong with the block.
pub fn verify(block: &Block, location: BlockNr, value_size: usize) -> Result<&[u8], ArrayFault> {
    block::verify(block, BlockKind::Array, location)?;
    let header = match ArrayHeader::ref_from_prefix(block) {
        Ok((header, _)) => header,
        Err(_) => unreachable!("a block is larger than a header and any alignment will do"),
    };
    let (found, max, entries) = (header.value_size.get(), header.max_entries.get(), header.nr_entries.get());
    if found as usize != value_size {
        return Err(ArrayFault::ValueSize { found, wanted: value_size as u32 });
    }
    if max as usize > max_entries(value_size) {
        return Err(ArrayFault::Capacity { max_entries: max });
    }
    if entries > max {
        return Err(ArrayFault::Entries { nr_entries: entries, max_entries: max });
    }
    Ok(&block[HEADER_SIZE..HEADER_SIZE + entries as usize * value_size])
}

/// Whether bit `index` of a bitset's words is set; `false` past the end.
pub fn bit(words: &[U64], index: u64) -> bool {
    usize::try_from(index / 64)
        .ok()
        .and_then(|word| words.get(word))
        .is_some_and(|word| word.get() >> (index % 64) & 1 == 1)
}
