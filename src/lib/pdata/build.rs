//! Builds btrees from entries in key order, bottom up (docs/format.md 2.5).
//!
//! Nodes are filled one after the other; the last two of a level share what is left evenly, so that every node but
//! the root is at least half full. Ready leaves can be shared between trees: see [`TreeBuilder::share`].
//! Nothing here knows where nodes go or how blocks are found: that is the [`NodeSink`]'s business.

use crate::base::BlockNr;
use crate::format::block::{self, BLOCK_SIZE, Block, BlockKind};
use crate::format::node::{FLAG_INTERNAL, FLAG_LEAF, HEADER_SIZE, NodeHeader, max_entries};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

/// Takes the nodes of trees and finds blocks for them.
pub trait NodeSink {
    /// Why a node could not be taken.
    type Error;

    /// Takes a node and says where it is. The block becomes used once.
    ///
    /// # Errors
    /// Where there is no free block, or it can't be written.
    fn node<const V: usize>(&mut self, node: &mut NodeBuf<V>) -> Result<BlockNr, Self::Error>;

    /// Notes one more reference to a block that is in use.
    fn share(&mut self, block: BlockNr);
}

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

    /// The key of the first entry; 0 where there is none.
    pub fn first_key(&self) -> u64 {
        self.first_key
    }

    #[inline]
    fn push(&mut self, key: u64, value: &[u8; V]) {
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
    fn entry(&self, index: usize) -> (u64, [u8; V]) {
        assert!(index < self.len);
        let mut value = [0; V];
        let at = Self::VALUES + V * index;
        value.copy_from_slice(&self.block[at..at + V]);
        (block::le64(&self.block, HEADER_SIZE + 8 * index), value)
    }

    fn clear(&mut self) {
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
struct Level<const V: usize> {
    /// Full wherever `back` has entries.
    front: NodeBuf<V>,
    back: NodeBuf<V>,
}

impl<const V: usize> Level<V> {
    fn new(flags: u32) -> Self {
        Level { front: NodeBuf::new(flags), back: NodeBuf::new(flags) }
    }

    fn len(&self) -> usize {
        self.front.len + self.back.len
    }

    fn clear(&mut self) {
        self.front.clear();
        self.back.clear();
    }

    /// Whether a node has to be taken by [`Level::take_full`] before more goes in.
    #[inline]
    fn is_full(&self) -> bool {
        self.back.is_full()
    }

    #[inline]
    fn push(&mut self, key: u64, value: &[u8; V]) {
        if self.front.is_full() {
            self.back.push(key, value);
        } else {
            self.front.push(key, value);
        }
    }

    /// Writes the first of two full nodes and makes room for another.
    fn take_full<S: NodeSink>(&mut self, sink: &mut S) -> Result<Child, S::Error> {
        let child = write_node(&mut self.front, sink)?;
        std::mem::swap(&mut self.front, &mut self.back);
        Ok(child)
    }

    /// Writes all that is left as no, one or two nodes.
    fn take_rest<S: NodeSink>(&mut self, sink: &mut S) -> Result<[Option<Child>; 2], S::Error> {
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

/// The nodes of one height that have no parent yet.
#[derive(Debug)]
struct Rung {
    pending: Level<8>,
    /// All nodes of this height so far.
    count: u64,
}

/// All levels above the leaves.
#[derive(Debug, Default)]
struct Upper {
    rungs: Vec<Rung>,
    /// Rungs of the tree at hand; those behind are kept for their memory.
    height: usize,
}

impl Upper {
    fn push<S: NodeSink>(&mut self, child: Child, sink: &mut S) -> Result<(), S::Error> {
        let mut next = Some(child);
        let mut level = 0;
        while let Some(child) = next {
            next = self.push_at(level, child, sink)?;
            level += 1;
        }
        Ok(())
    }

    /// Adds a node of the given height; returns the parent that is full by now.
    fn push_at<S: NodeSink>(&mut self, level: usize, child: Child, sink: &mut S) -> Result<Option<Child>, S::Error> {
        if level == self.rungs.len() {
            self.rungs.push(Rung { pending: Level::new(FLAG_INTERNAL), count: 0 });
        }
        let rung = &mut self.rungs[level];
        if level == self.height {
            self.height += 1;
            rung.count = 0;
            rung.pending.clear();
        }
        let full = if rung.pending.is_full() { Some(rung.pending.take_full(sink)?) } else { None };
        rung.pending.push(child.first_key, &child.block.0.to_le_bytes());
        rung.count += 1;
        Ok(full)
    }

    /// Finishes every level and gives the root. At least one node was pushed.
    fn finish<S: NodeSink>(&mut self, sink: &mut S) -> Result<BlockNr, S::Error> {
        let mut level = 0;
        loop {
            let rung = &mut self.rungs[level];
            if rung.count == 1 {
                let (_, value) = rung.pending.front.entry(0);
                self.height = 0;
                return Ok(BlockNr(u64::from_le_bytes(value)));
            }
            for node in rung.pending.take_rest(sink)?.into_iter().flatten() {
                let mut next = Some(node);
                let mut above = level + 1;
                while let Some(child) = next {
                    next = self.push_at(above, child, sink)?;
                    above += 1;
                }
            }
            level += 1;
        }
    }
}

/// Builds one tree after the other.
///
/// Keys must ascend strictly within a tree; whoever feeds the builder checks that.
/// Takes some 8 KiB per level of the highest tree built.
#[derive(Debug)]
pub struct TreeBuilder<const V: usize> {
    leaves: Level<V>,
    upper: Upper,
    /// The last shared leaf: no parent has it yet, as it may have to be copied.
    held: Option<Child>,
    has_leaves: bool,
}

/// What is done with each entry that [`LeafEntries::entries`] hands out.
pub type EachEntry<'a, const V: usize, E> = dyn FnMut(u64, &[u8; V]) -> Result<(), E> + 'a;

/// Hands out the entries of a shared leaf again.
pub trait LeafEntries<const V: usize, E> {
    /// Calls `each` with every entry of `leaf`, in order.
    ///
    /// # Errors
    /// Where they can't be read, and what `each` gives.
    fn entries(&mut self, leaf: &Child, each: &mut EachEntry<'_, V, E>) -> Result<(), E>;
}

/// For trees that share nothing.
#[derive(Clone, Copy, Debug)]
pub struct NothingShared;

impl<const V: usize, E> LeafEntries<V, E> for NothingShared {
    fn entries(&mut self, _: &Child, _: &mut EachEntry<'_, V, E>) -> Result<(), E> {
        unreachable!("only leaves that were shared are asked for")
    }
}

impl<const V: usize> Default for TreeBuilder<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const V: usize> TreeBuilder<V> {
    /// The fewest entries that a shared leaf or a leaf between shared ones has: what the kernel keeps to
    /// (docs/format.md 2.5). With half of the capacity many a leaf of the kernel could not be shared again.
    pub const SHARED_MIN: usize = max_entries(V) / 3;

    /// A builder for trees with values of `V` bytes.
    pub fn new() -> Self {
        TreeBuilder { leaves: Level::new(FLAG_LEAF), upper: Upper::default(), held: None, has_leaves: false }
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// What the sink gives.
    #[inline]
    pub fn push<S: NodeSink>(&mut self, key: u64, value: &[u8; V], sink: &mut S) -> Result<(), S::Error> {
        if self.leaves.is_full() {
            self.write_full(sink)?;
        }
        self.leaves.push(key, value);
        Ok(())
    }

    #[cold]
    fn write_full<S: NodeSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.release_held(sink)?;
        let child = self.leaves.take_full(sink)?;
        self.has_leaves = true;
        self.upper.push(child, sink)
    }

    /// Gives the held leaf to its parent, as a reference.
    fn release_held<S: NodeSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if let Some(held) = self.held.take() {
            sink.share(held.block);
            self.has_leaves = true;
            self.upper.push(held, sink)?;
        }
        Ok(())
    }

    /// Writes all pending entries as leaves.
    fn write_rest<S: NodeSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.release_held(sink)?;
        for child in self.leaves.take_rest(sink)?.into_iter().flatten() {
            self.has_leaves = true;
            self.upper.push(child, sink)?;
        }
        Ok(())
    }

    /// Appends a leaf that is there already: by reference, unless that would leave a leaf with less than
    /// [`TreeBuilder::SHARED_MIN`] entries in it or beside it; then its entries are copied.
    ///
    /// All keys of `leaf` are above those appended so far.
    ///
    /// # Errors
    /// What the sink and `entries` give.
    pub fn share<S: NodeSink>(
        &mut self,
        leaf: Child,
        entries: &mut dyn LeafEntries<V, S::Error>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let pending = self.leaves.len();
        let small = (leaf.len as usize) < Self::SHARED_MIN;
        if small || (1..Self::SHARED_MIN).contains(&pending) {
            return entries.entries(&leaf, &mut |key, value| self.push(key, value, sink));
        }
        self.write_rest(sink)?;
        self.held = Some(leaf);
        Ok(())
    }

    /// Finishes the tree and gives its root, which has one reference. The builder is ready for the next tree.
    ///
    /// # Errors
    /// What the sink and `entries` give.
    pub fn finish<S: NodeSink>(
        &mut self,
        entries: &mut dyn LeafEntries<V, S::Error>,
        sink: &mut S,
    ) -> Result<BlockNr, S::Error> {
        if (1..Self::SHARED_MIN).contains(&self.leaves.len()) {
            self.copy_held(entries, sink)?;
        }
        self.write_rest(sink)?;
        if !std::mem::take(&mut self.has_leaves) {
            return sink.node(&mut self.leaves.front);
        }
        self.upper.finish(sink)
    }

    /// Puts the entries of the held leaf before the pending ones, so that these don't end up in a leaf too small.
    fn copy_held<S: NodeSink>(
        &mut self,
        entries: &mut dyn LeafEntries<V, S::Error>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let Some(held) = self.held.take() else { return Ok(()) };
        let front = &self.leaves.front;
        let pending: Vec<_> = (0..front.len()).map(|index| front.entry(index)).collect();
        self.leaves.clear();
        entries.entries(&held, &mut |key, value| self.push(key, value, sink))?;
        pending.iter().try_for_each(|(key, value)| self.push(*key, value, sink))
    }
}

#[cfg(test)]
mod tests;
