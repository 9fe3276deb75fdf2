//! Changing nodes in place, and taking their entries apart.

use super::OverlayError;
use crate::base::BlockNr;
use crate::format::Block;
use crate::format::node::{self, HEADER_SIZE, Node, NodeHeader, max_entries};
use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::U32;

/// A view of a node for reading.
///
/// # Errors
/// Where the block is no node of a tree with such values.
pub(super) fn view(block: &Block, location: BlockNr, value_size: usize) -> Result<Node<'_>, OverlayError> {
    let node = Node::trusting_checksum(block, value_size).map_err(|fault| OverlayError::Node(location, fault))?;
    if node.max_entries() != max_entries(node.value_size()) {
        return Err(OverlayError::Tree(location));
    }
    Ok(node)
}

fn header(block: &mut Block) -> &mut NodeHeader {
    match NodeHeader::mut_from_prefix(block) {
        Ok((header, _)) => header,
        Err(_) => unreachable!("a block is larger than a header and any alignment will do"),
    }
}

/// Where the values begin, how long one is, and how many there are. The node was viewed before.
fn shape(block: &mut Block) -> (usize, usize, usize) {
    let header = header(block);
    let (max, size) = (header.max_entries.get() as usize, header.value_size.get() as usize);
    (HEADER_SIZE + 8 * max, size, header.nr_entries.get() as usize)
}

/// Overwrites a value; `index` is below the node's length.
pub(super) fn set_value(block: &mut Block, index: usize, value: &[u8]) {
    let (values, size, _) = shape(block);
    block[values + size * index..values + size * (index + 1)].copy_from_slice(value);
}

/// Overwrites a key; the order stays right.
pub(super) fn set_key(block: &mut Block, index: usize, key: u64) {
    block[HEADER_SIZE + 8 * index..HEADER_SIZE + 8 * (index + 1)].copy_from_slice(&key.to_le_bytes());
}

/// Puts an entry before `index`; there is room for it.
pub(super) fn insert_at(block: &mut Block, index: usize, key: u64, value: &[u8]) {
    let (values, size, len) = shape(block);
    block.copy_within(HEADER_SIZE + 8 * index..HEADER_SIZE + 8 * len, HEADER_SIZE + 8 * (index + 1));
    block.copy_within(values + size * index..values + size * len, values + size * (index + 1));
    header(block).nr_entries = U32::new(len as u32 + 1);
    set_key(block, index, key);
    set_value(block, index, value);
}

/// Takes an entry out.
pub(super) fn remove_at(block: &mut Block, index: usize) {
    let (values, size, len) = shape(block);
    block.copy_within(HEADER_SIZE + 8 * (index + 1)..HEADER_SIZE + 8 * len, HEADER_SIZE + 8 * index);
    block.copy_within(values + size * (index + 1)..values + size * len, values + size * index);
    header(block).nr_entries = U32::new(len as u32 - 1);
}

/// The entries of some neighbouring nodes of one height.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    flags: u32,
    size: usize,
    keys: Vec<u64>,
    values: Vec<u8>,
}

impl Entries {
    /// All entries of a node.
    pub(super) fn of(node: &Node<'_>) -> Entries {
        let keys = node.keys().iter().map(|key| key.get()).collect();
        let flags = node.header().flags.get();
        Entries { flags, size: node.value_size(), keys, values: node.value_bytes().to_vec() }
    }

    /// Appends those of the next node.
    pub(super) fn append(&mut self, next: Entries) {
        self.keys.extend(next.keys);
        self.values.extend(next.values);
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The key of an entry that there is.
    pub(super) fn key(&self, index: usize) -> u64 {
        self.keys[index]
    }

    /// Fills a node with the entries `begin..end`. The checksum waits until the end.
    pub(super) fn fill(&self, begin: usize, end: usize, location: BlockNr, block: &mut Block) {
        let values = &self.values[begin * self.size..end * self.size];
        node::write(block, location, self.flags, &self.keys[begin..end], self.size, values);
    }

    /// Fills an inner node.
    pub(super) fn fill_internal(children: &[(u64, BlockNr)], location: BlockNr, block: &mut Block) {
        let keys: Vec<u64> = children.iter().map(|(key, _)| *key).collect();
        let values: Vec<u8> = children.iter().flat_map(|(_, child)| child.0.to_le_bytes()).collect();
        node::write(block, location, node::FLAG_INTERNAL, &keys, 8, &values);
    }
}
