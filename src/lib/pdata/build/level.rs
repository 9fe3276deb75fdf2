//! Nodes in the making, and the entries of a level that wait for their node.

use super::NodeSink;
use crate::base::BlockNr;
use crate::format::block::{self, BLOCK_SIZE, Block, BlockKind};
use crate::format::node::{FLAG_LEAF, HEADER_SIZE, NodeHeader, max_entries};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

/// A node in the making, with values of `V` bytes.
#[derive(Debug)]
pub struct NodeBuf<const V: usize> {
    block: Box<Block>,
    len: usize,
    flags: u32,
    first_key: u64,
}

impl<const V: usize> NodeBuf<V> {
    /// Entries there is room for.
    pub const CAPACITY: usize = max_entries(V);
    const VALUES: usize = HEADER_SIZE + 8 * Self::CAPACITY;

    /// A leaf without entries.
    pub fn new_leaf() -> Self {
        NodeBuf::new(FLAG_LEAF)
    }

    fn new(flags: u32) -> Self {
        NodeBuf { block: Box::new([0; BLOCK_SIZE]), len: 0, flags, first_key: 0 }
    }

    /// Entries in the node.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the node has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether nothing more goes in.
    pub fn is_full(&self) -> bool {
        self.len == Self::CAPACITY
    }

    /// Whether it is a leaf.
    pub fn is_leaf(&self) -> bool {
        self.flags == FLAG_LEAF
    }

    /// The bytes of the values.
    pub fn value_bytes(&self) -> &[u8] {
        &self.block[Self::VALUES..Self::VALUES + V * self.len]
    }

    /// The key of the first entry; 0 where there is none.
    pub fn first_key(&self) -> u64 {
        self.first_key
    }

    /// Appends an entry; there is room for it, and its key is above those before.
    #[inline]
    pub fn push(&mut self, key: u64, value: &[u8; V]) {
        if self.len == 0 {
            self.first_key = key;
        }
        let at = HEADER_SIZE + 8 * self.len;
        self.block[at..at + 8].copy_from_slice(&key.to_le_bytes());
        let at = Self::VALUES + V * self.len;
        self.block[at..at + V].copy_from_slice(value);
        self.len += 1;
    }

    /// An entry; `index` is below [`NodeBuf::len`].
    pub fn entry(&self, index: usize) -> (u64, [u8; V]) {
        assert!(index < self.len);
        let mut value = [0; V];
        let at = Self::VALUES + V * index;
        value.copy_from_slice(&self.block[at..at + V]);
        (block::le64(&self.block, HEADER_SIZE + 8 * index), value)
    }

    /// Takes all entries out.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Moves all from entry `from` on to the front of `next`, which is not empty and has room for them.
    fn shift_into(&mut self, from: usize, next: &mut NodeBuf<V>) {
        let moved = self.len - from;
        let (old, new) = (next.len, next.len + moved);
        next.block.copy_within(HEADER_SIZE..HEADER_SIZE + 8 * old, HEADER_SIZE + 8 * moved);
        next.block.copy_within(Self::VALUES..Self::VALUES + V * old, Self::VALUES + V * moved);
        let keys = HEADER_SIZE..HEADER_SIZE + 8 * moved;
        next.block[keys].copy_from_slice(&self.block[HEADER_SIZE + 8 * from..HEADER_SIZE + 8 * self.len]);
        let values = Self::VALUES..Self::VALUES + V * moved;
        next.block[values].copy_from_slice(&self.block[Self::VALUES + V * from..Self::VALUES + V * self.len]);
        next.len = new;
        next.first_key = block::le64(&next.block, HEADER_SIZE);
        self.len = from;
    }

    /// Makes the node whole for its place: unused room zeroed, header, own number, checksum.
    pub fn seal(&mut self, location: BlockNr) -> &Block {
        let header = NodeHeader {
            csum: U32::ZERO,
            flags: U32::new(self.flags),
            blocknr: U64::ZERO,
            nr_entries: U32::new(self.len as u32),
            max_entries: U32::new(Self::CAPACITY as u32),
            value_size: U32::new(V as u32),
            padding: U32::ZERO,
        };
        self.block[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        self.block[HEADER_SIZE + 8 * self.len..Self::VALUES].fill(0);
        self.block[Self::VALUES + V * self.len..].fill(0);
        block::seal(&mut self.block, BlockKind::Node, location);
        &self.block
    }
}

/// The entries of one level that have not gone into finished nodes yet: less than two nodes full.
#[derive(Debug)]
pub(super) struct Level<const V: usize> {
    /// Full wherever `back` has entries.
    pub(super) front: NodeBuf<V>,
    back: NodeBuf<V>,
}

impl<const V: usize> Level<V> {
    pub(super) fn new(flags: u32) -> Self {
        Level { front: NodeBuf::new(flags), back: NodeBuf::new(flags) }
    }

    pub(super) fn len(&self) -> usize {
        self.front.len + self.back.len
    }

    pub(super) fn clear(&mut self) {
        self.front.clear();
        self.back.clear();
    }

    /// Whether a node has to be taken by [`Level::take_full`] before more goes in.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.back.is_full()
    }

    #[inline]
    pub(super) fn push(&mut self, key: u64, value: &[u8; V]) {
        if self.front.is_full() {
            self.back.push(key, value);
        } else {
            self.front.push(key, value);
        }
    }

    /// Writes the first of two full nodes and makes room for another.
    pub(super) fn take_full<S: NodeSink>(&mut self, sink: &mut S) -> Result<Child, S::Error> {
        let child = write_node(&mut self.front, sink)?;
        std::mem::swap(&mut self.front, &mut self.back);
        Ok(child)
    }

    /// Writes all that is left as no, one or two nodes.
    pub(super) fn take_rest<S: NodeSink>(&mut self, sink: &mut S) -> Result<[Option<Child>; 2], S::Error> {
        if self.front.is_empty() {
            return Ok([None, None]);
        }
        if self.back.is_empty() {
            return Ok([Some(write_node(&mut self.front, sink)?), None]);
        }
        let half = self.len() / 2;
        if half < self.front.len {
            self.front.shift_into(half, &mut self.back);
        }
        Ok([Some(write_node(&mut self.front, sink)?), Some(write_node(&mut self.back, sink)?)])
    }
}

fn write_node<const V: usize, S: NodeSink>(node: &mut NodeBuf<V>, sink: &mut S) -> Result<Child, S::Error> {
    let child = Child { first_key: node.first_key(), block: sink.node(node)?, len: node.len() as u32 };
    node.clear();
    Ok(child)
}

/// A finished node, as its parent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its first key; 0 for an empty leaf.
    pub first_key: u64,
    /// Where it is.
    pub block: BlockNr,
    /// How many entries it has.
    pub len: u32,
}
