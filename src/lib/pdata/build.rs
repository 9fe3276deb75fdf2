//! Builds btrees from entries in key order, bottom up (docs/format.md 2.5).
//!
//! Nodes are filled one after the other; the last two of a level share what is left evenly, so that every node but
//! the root is at least half full. Ready leaves can be shared between trees: see [`TreeBuilder::share`].
//! Nothing here knows where nodes go or how blocks are found: that is the [`NodeSink`]'s business.

mod level;

pub use level::{Child, NodeBuf};

use crate::base::BlockNr;
use crate::format::node::{FLAG_INTERNAL, FLAG_LEAF, max_entries};
use level::Level;

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

/// Builds leaves in a row, without a tree above them.
#[derive(Debug)]
pub struct LeafRow<const V: usize> {
    leaves: Level<V>,
}

impl<const V: usize> Default for LeafRow<V> {
    fn default() -> Self {
        LeafRow { leaves: Level::new(FLAG_LEAF) }
    }
}

impl<const V: usize> LeafRow<V> {
    /// Appends an entry; the leaf that is complete by now, if any, goes to `done`.
    ///
    /// # Errors
    /// What the sink gives.
    #[inline]
    pub fn push<S: NodeSink>(
        &mut self,
        key: u64,
        value: &[u8; V],
        sink: &mut S,
        done: &mut dyn FnMut(Child),
    ) -> Result<(), S::Error> {
        if self.leaves.is_full() {
            done(self.leaves.take_full(sink)?);
        }
        self.leaves.push(key, value);
        Ok(())
    }

    /// Completes the row. It is ready for the next one.
    ///
    /// # Errors
    /// What the sink gives.
    pub fn finish<S: NodeSink>(&mut self, sink: &mut S, done: &mut dyn FnMut(Child)) -> Result<(), S::Error> {
        self.leaves.take_rest(sink)?.into_iter().flatten().for_each(done);
        Ok(())
    }
}

/// The nodes of one height that have no parent yet.
#[derive(Debug)]
struct Rung {
    pending: Level<8>,
    /// All nodes of this height so far.
    count: u64,
}

/// All levels of a tree above nodes that are there, all of one height.
#[derive(Debug, Default)]
pub struct Spine {
    rungs: Vec<Rung>,
    /// Rungs of the tree at hand; those behind are kept for their memory.
    height: usize,
}

impl Spine {
    /// Appends a node; its keys are above those before. The reference that it got when it was made is used up.
    ///
    /// # Errors
    /// What the sink gives.
    pub fn push<S: NodeSink>(&mut self, child: Child, sink: &mut S) -> Result<(), S::Error> {
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

    /// Finishes every level and gives the root, which is the only node where one alone was pushed. At least one was.
    ///
    /// # Errors
    /// What the sink gives.
    pub fn finish<S: NodeSink>(&mut self, sink: &mut S) -> Result<BlockNr, S::Error> {
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
    upper: Spine,
    /// The last shared leaf: no parent has it yet, as it may have to be copied.
    held: Option<SharedLeaf>,
    has_leaves: bool,
}

/// A leaf that is there already and can be part of several trees.
#[derive(Clone, Copy, Debug)]
pub struct SharedLeaf {
    /// The leaf.
    pub child: Child,
    /// What [`LeafEntries`] knows it by.
    pub handle: u32,
}

/// What is done with each entry that [`LeafEntries::entries`] hands out.
pub type EachEntry<'a, const V: usize, E> = dyn FnMut(u64, &[u8; V]) -> Result<(), E> + 'a;

/// Hands out the entries of a shared leaf again.
pub trait LeafEntries<const V: usize, E> {
    /// Calls `each` with every entry of `leaf`, in order.
    ///
    /// # Errors
    /// Where they can't be read, and what `each` gives.
    fn entries(&mut self, leaf: &SharedLeaf, each: &mut EachEntry<'_, V, E>) -> Result<(), E>;
}

/// For trees that share nothing.
#[derive(Clone, Copy, Debug)]
pub struct NothingShared;

impl<const V: usize, E> LeafEntries<V, E> for NothingShared {
    fn entries(&mut self, _: &SharedLeaf, _: &mut EachEntry<'_, V, E>) -> Result<(), E> {
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
        TreeBuilder { leaves: Level::new(FLAG_LEAF), upper: Spine::default(), held: None, has_leaves: false }
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
    #[inline]
    fn release_held<S: NodeSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if let Some(held) = self.held.take() {
            sink.share(held.child.block);
            self.has_leaves = true;
            self.upper.push(held.child, sink)?;
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
    #[inline]
    pub fn share<S: NodeSink>(
        &mut self,
        leaf: SharedLeaf,
        entries: &mut dyn LeafEntries<V, S::Error>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let pending = self.leaves.len();
        let small = (leaf.child.len as usize) < Self::SHARED_MIN;
        if small || (1..Self::SHARED_MIN).contains(&pending) {
            return self.copy(leaf, entries, sink);
        }
        if pending > 0 {
            self.write_rest(sink)?;
        } else {
            self.release_held(sink)?;
        }
        self.held = Some(leaf);
        Ok(())
    }

    #[cold]
    fn copy<S: NodeSink>(
        &mut self,
        leaf: SharedLeaf,
        entries: &mut dyn LeafEntries<V, S::Error>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        entries.entries(&leaf, &mut |key, value| self.push(key, value, sink))
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
