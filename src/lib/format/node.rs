//! Nodes of btrees (docs/format.md 2).

use super::block::{self, BLOCK_SIZE, Block, BlockFault, BlockKind};
use crate::base::BlockNr;
use std::mem::size_of;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `flags` of an internal node.
pub const FLAG_INTERNAL: u32 = 1;
/// `flags` of a leaf.
pub const FLAG_LEAF: u32 = 2;
/// Bytes of a node's header.
pub const HEADER_SIZE: usize = size_of::<NodeHeader>();
/// The deepest tree that is believed: 84^9 is more than 2^57 (docs/format.md 2.4).
pub const DEPTH_LIMIT: usize = 16;

/// The header as it lies on disk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeHeader {
    /// Checksum.
    pub csum: U32,
    /// [`FLAG_INTERNAL`] or [`FLAG_LEAF`].
    pub flags: U32,
    /// The node's own block.
    pub blocknr: U64,
    /// Entries in use.
    pub nr_entries: U32,
    /// Entries there is room for.
    pub max_entries: U32,
    /// Bytes of a value.
    pub value_size: U32,
    /// 0.
    pub padding: U32,
}

const _: () = assert!(size_of::<NodeHeader>() == 32);

/// The capacity of a node for values of this many bytes (docs/format.md 2.2).
pub const fn max_entries(value_size: usize) -> usize {
    (BLOCK_SIZE - HEADER_SIZE) / (8 + value_size) / 3 * 3
}

const _: () = {
    assert!(max_entries(4) == 336);
    assert!(max_entries(8) == 252);
    assert!(max_entries(12) == 201);
    assert!(max_entries(16) == 168);
    assert!(max_entries(24) == 126);
};

/// Why a block cannot be used as a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeFault {
    /// It is not a good node by checksum and number.
    #[error("{0}")]
    Block(#[from] BlockFault),
    /// Neither internal nor leaf, or both.
    #[error("flags are {0:#x}")]
    Flags(u32),
    /// Keys and values would not fit in the block.
    #[error("{max_entries} entries with values of {value_size} bytes do not fit")]
    Capacity {
        /// The capacity that the node claims.
        max_entries: u32,
        /// The value size that the node claims.
        value_size: u32,
    },
    /// More entries than capacity.
    #[error("{nr_entries} entries where there is room for {max_entries}")]
    Entries {
        /// The number of entries that the node claims.
        nr_entries: u32,
        /// The capacity that the node claims.
        max_entries: u32,
    },
    /// Values of another size than the tree has.
    #[error("values have {found} bytes, should have {wanted}")]
    ValueSize {
        /// The value size that the node claims.
        found: u32,
        /// The value size of the tree, or 8 for an internal node.
        wanted: u32,
    },
}

/// A node whose header has been verified: every accessor stays inside the block.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    block: &'a Block,
    header: &'a NodeHeader,
}

/// Checks checksum, number and header of a node of a tree with values of `value_size` bytes.
///
/// # Errors
/// The first thing that is wrong. Order and range of the keys are not looked at.
pub fn verify(block: &Block, location: BlockNr, value_size: usize) -> Result<Node<'_>, NodeFault> {
    block::verify(block, BlockKind::Node, location)?;
    Node::trusting_checksum(block, value_size)
}

impl<'a> Node<'a> {
    /// A view of a block that was verified before: checks the header only, so that no accessor can go astray.
    ///
    /// # Errors
    /// The first thing that is wrong with the header.
    pub fn trusting_checksum(block: &'a Block, value_size: usize) -> Result<Node<'a>, NodeFault> {
        let header = match NodeHeader::ref_from_prefix(block) {
            Ok((header, _)) => header,
            Err(_) => unreachable!("a block is larger than a header and any alignment will do"),
        };
        let (flags, max) = (header.flags.get(), header.max_entries.get());
        let wanted = match flags {
            FLAG_INTERNAL => 8,
            FLAG_LEAF => value_size as u32,
            _ => return Err(NodeFault::Flags(flags)),
        };
        let found = header.value_size.get();
        if (8 + u64::from(found)).saturating_mul(max.into()) > (BLOCK_SIZE - HEADER_SIZE) as u64 {
            return Err(NodeFault::Capacity { max_entries: max, value_size: found });
        }
        if header.nr_entries.get() > max {
            return Err(NodeFault::Entries { nr_entries: header.nr_entries.get(), max_entries: max });
        }
        if found != wanted {
            return Err(NodeFault::ValueSize { found, wanted });
        }
        Ok(Node { block, header })
    }

    /// The header.
    pub fn header(&self) -> &'a NodeHeader {
        self.header
    }

    /// Whether it is a leaf.
    pub fn is_leaf(&self) -> bool {
        self.header.flags.get() == FLAG_LEAF
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.header.nr_entries.get() as usize
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries there is room for, as the node itself says.
    pub fn max_entries(&self) -> usize {
        self.header.max_entries.get() as usize
    }

    /// Bytes of a value.
    pub fn value_size(&self) -> usize {
        self.header.value_size.get() as usize
    }

    /// The keys in use.
    pub fn keys(&self) -> &'a [U64] {
        let bytes = &self.block[HEADER_SIZE..HEADER_SIZE + 8 * self.len()];
        match <[U64]>::ref_from_bytes(bytes) {
            Ok(keys) => keys,
            Err(_) => unreachable!("a multiple of 8 bytes of any alignment"),
        }
    }

    /// The key of entry `index`, which must be below [`Node::len`].
    pub fn key(&self, index: usize) -> u64 {
        self.keys()[index].get()
    }

    /// The bytes of the values in use.
    pub fn value_bytes(&self) -> &'a [u8] {
        let begin = HEADER_SIZE + 8 * self.max_entries();
        &self.block[begin..begin + self.value_size() * self.len()]
    }

    /// The values in use as integers of 64 bits; empty where values have another size.
    pub fn values_u64(&self) -> &'a [U64] {
        if self.value_size() != 8 {
            return &[];
        }
        match <[U64]>::ref_from_bytes(self.value_bytes()) {
            Ok(values) => values,
            Err(_) => unreachable!("a multiple of 8 bytes of any alignment"),
        }
    }

    /// The child of entry `index` of an internal node.
    pub fn child(&self, index: usize) -> BlockNr {
        BlockNr(self.values_u64()[index].get())
    }

    /// The index of the first key that is not above its predecessor, if any.
    pub fn first_out_of_order(&self) -> Option<usize> {
        let keys = self.keys();
        // Branchless over the whole node: leaves in order are the rule.
        let bad = keys.windows(2).fold(false, |bad, pair| bad | (pair[0].get() >= pair[1].get()));
        if !bad {
            return None;
        }
        keys.windows(2).position(|pair| pair[0].get() >= pair[1].get()).map(|index| index + 1)
    }

    /// The entry of an internal node below which `key` lies: the last one whose key is not above it.
    pub fn child_index(&self, key: u64) -> Option<usize> {
        self.keys().partition_point(|k| k.get() <= key).checked_sub(1)
    }

    /// The entry of a leaf that has `key`.
    pub fn find(&self, key: u64) -> Option<usize> {
        self.keys().binary_search_by_key(&key, |k| k.get()).ok()
    }
}

/// Fills `block` with a node and seals it. Unused room is zeroed.
///
/// `values` holds one value of `value_size` bytes per key; keys are in order and not more than
/// [`max_entries`].
pub fn write(block: &mut Block, location: BlockNr, flags: u32, keys: &[u64], value_size: usize, values: &[u8]) {
    let max = max_entries(value_size);
    assert!(keys.len() <= max && values.len() == keys.len() * value_size);
    block.fill(0);
    let header = NodeHeader {
        csum: U32::ZERO,
        flags: U32::new(flags),
        blocknr: U64::new(location.0),
        nr_entries: U32::new(keys.len() as u32),
        max_entries: U32::new(max as u32),
        value_size: U32::new(value_size as u32),
        padding: U32::ZERO,
    };
    block[..HEADER_SIZE].copy_from_slice(header.as_bytes());
    for (slot, key) in block[HEADER_SIZE..].chunks_exact_mut(8).zip(keys) {
        slot.copy_from_slice(&key.to_le_bytes());
    }
    let begin = HEADER_SIZE + 8 * max;
    block[begin..begin + values.len()].copy_from_slice(values);
    block::seal(block, BlockKind::Node, location);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Block {
        let mut block = [0; BLOCK_SIZE];
        let values: Vec<u8> = [70u64, 80, 90].iter().flat_map(|v| v.to_le_bytes()).collect();
        write(&mut block, BlockNr(5), FLAG_LEAF, &[7, 8, 9], 8, &values);
        block
    }

    #[test]
    fn written_nodes_read_back() {
        let block = sample();
        let node = verify(&block, BlockNr(5), 8).unwrap();
        assert!(node.is_leaf());
        assert_eq!(node.keys().iter().map(|k| k.get()).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(node.values_u64().iter().map(|v| v.get()).collect::<Vec<_>>(), [70, 80, 90]);
        assert_eq!(node.find(8), Some(1));
        assert_eq!(node.find(10), None);
        assert_eq!((node.child_index(6), node.child_index(7), node.child_index(100)), (None, Some(0), Some(2)));
        assert_eq!(node.first_out_of_order(), None);
    }

    #[test]
    fn every_header_field_is_verified() {
        let fault = |at: usize, value: u32| {
            let mut block = sample();
            block[at..at + 4].copy_from_slice(&value.to_le_bytes());
            block::seal(&mut block, BlockKind::Node, BlockNr(5));
            verify(&block, BlockNr(5), 8).err()
        };
        assert_eq!(fault(4, 3), Some(NodeFault::Flags(3)));
        assert_eq!(fault(4, 0), Some(NodeFault::Flags(0)));
        assert_eq!(fault(16, 253), Some(NodeFault::Entries { nr_entries: 253, max_entries: 252 }));
        assert_eq!(fault(20, 255), Some(NodeFault::Capacity { max_entries: 255, value_size: 8 }));
        assert_eq!(fault(20, u32::MAX), Some(NodeFault::Capacity { max_entries: u32::MAX, value_size: 8 }));
        assert_eq!(fault(24, 4), Some(NodeFault::ValueSize { found: 4, wanted: 8 }));
        assert_eq!(fault(20, 200), None);
        let block = sample();
        assert_eq!(verify(&block, BlockNr(5), 24).err(), Some(NodeFault::ValueSize { found: 8, wanted: 24 }));
        assert_eq!(verify(&block, BlockNr(6), 8).err(), Some(NodeFault::Block(BlockFault::Moved(5))));
    }

    #[test]
    fn order_is_strict() {
        let mut block = [0; BLOCK_SIZE];
        write(&mut block, BlockNr(5), FLAG_LEAF, &[7, 8, 8, 9], 0, &[]);
        assert_eq!(verify(&block, BlockNr(5), 0).unwrap().first_out_of_order(), Some(2));
    }
}
