//! Trees that are changed as the kernel changes them, on copies of blocks that are thrown away or saved in the end.
//!
//! An [`Overlay`] lies over any [`BlockSource`] and never writes to it. Nodes are copied when they are first changed in
//! a transaction (a *shadow*), a shared node's children gain a reference then, and what a transaction frees is not used
//! again before the next commit (docs/format.md 2.8, 8.1). Knows trees and counts; does not know what a device is.

mod delete;
mod edit;
mod insert;
mod lookup;
mod refs;
mod remove;
#[cfg(test)]
mod tests;

pub use delete::{Beyond, DeleteWalk, Released};
pub use refs::RefCounts;

use crate::base::BlockNr;
use crate::block::{BlockSource, ReadError, Visit};
use crate::format::block::{self, BLOCK_SIZE, Block, BlockKind};
use crate::format::node::{DEPTH_LIMIT, Node, NodeFault};
use std::ops::ControlFlow;

const ABSENT: u32 = u32::MAX;

/// Why an operation on an overlay was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    /// A block can't be read.
    #[error("block {0}: {1}")]
    Read(BlockNr, ReadError),
    /// A block is no node of its tree.
    #[error("block {0} is no node of its tree: {1}")]
    Node(BlockNr, NodeFault),
    /// A tree is not in order.
    #[error("the tree is damaged at block {0}")]
    Tree(BlockNr),
    /// All metadata blocks are in use.
    #[error("out of metadata space")]
    NoMetadata,
    /// All data blocks are in use.
    #[error("out of data space")]
    NoData,
}

/// What becomes of a full node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitRule {
    /// It is cut in half, so that ascending inserts leave leaves of 126 entries: kernels up to 5.13.
    #[default]
    Half,
    /// A neighbour with room takes some of its entries first, so that ascending inserts leave nearly full leaves:
    /// kernels from 5.14 on.
    ShareFirst,
}

/// What the values of a tree refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Nothing; a value has so many bytes.
    Plain(usize),
    /// Data blocks, as a device's mapping tree has them.
    Data,
    /// Roots of other trees.
    Roots,
}

impl Values {
    /// Bytes of a value.
    pub fn size(self) -> usize {
        match self {
            Values::Plain(size) => size,
            Values::Data | Values::Roots => 8,
        }
    }
}

/// How a metadata block was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Looked at.
    Read,
    /// Changed where it is.
    Write,
    /// Made, or copied to a new place.
    New,
    /// No longer used.
    Free,
    /// Going to be looked at soon: only said where a log is kept.
    Ahead,
}

/// Which kind of block was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Used {
    /// A node of a tree.
    Node(BlockNr),
    /// A bitmap of the data space map.
    DataBitmap(u64),
    /// A bitmap of the metadata space map.
    MetadataBitmap(u64),
}

/// How often blocks were used, and in which order where that is asked for.
#[derive(Clone, Debug, Default)]
pub struct Touches {
    /// Nodes and bitmaps looked at.
    pub reads: u64,
    /// Changed in place.
    pub writes: u64,
    /// Made or copied.
    pub news: u64,
    /// Freed.
    pub frees: u64,
    /// Everything in order, where a log is kept.
    pub log: Option<Vec<(Used, How)>>,
}

impl Touches {
    fn note(&mut self, used: Used, how: How) {
        match how {
            How::Read => self.reads += 1,
            How::Write => self.writes += 1,
            How::New => self.news += 1,
            How::Free => self.frees += 1,
            How::Ahead => {}
        }
        if let Some(log) = &mut self.log {
            log.push((used, how));
        }
    }
}

/// What a commit wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Nodes that are new since the last commit and still in use.
    pub nodes: u64,
    /// Bitmaps of the data space map.
    pub data_bitmaps: u64,
    /// Bitmaps of the metadata space map.
    pub metadata_bitmaps: u64,
}

/// Changed blocks over a source of unchanged ones. Takes 4 KiB per block changed, and 4 bytes per block.
#[derive(Clone)]
pub struct Overlay<'a> {
    source: &'a dyn BlockSource,
    slots: Vec<u32>,
    copies: Vec<Box<Block>>,
    /// Counts of metadata blocks.
    pub metadata: RefCounts,
    /// Counts of data blocks.
    pub data: RefCounts,
    /// Blocks that were made since the last commit.
    fresh: Vec<bool>,
    fresh_list: Vec<u32>,
    cursor: u64,
    /// What becomes of full nodes.
    pub split: SplitRule,
    /// How often blocks were used.
    pub touches: Touches,
}

impl std::fmt::Debug for Overlay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Overlay of {} blocks, {} of them changed", self.slots.len(), self.copies.len())
    }
}

impl<'a> Overlay<'a> {
    /// Nothing changed yet. The counts are those of what `source` holds.
    pub fn new(source: &'a dyn BlockSource, metadata: RefCounts, data: RefCounts, split: SplitRule) -> Self {
        let nr_blocks = metadata.nr_blocks().min(source.nr_blocks()) as usize;
        Overlay {
            source,
            slots: vec![ABSENT; nr_blocks],
            copies: Vec::new(),
            metadata,
            data,
            fresh: vec![false; nr_blocks],
            fresh_list: Vec::new(),
            cursor: 0,
            split,
            touches: Touches::default(),
        }
    }

    /// Blocks that were copied or made.
    pub fn nr_copies(&self) -> usize {
        self.copies.len()
    }

    fn copy(&self, block: BlockNr) -> Option<&Block> {
        let slot = usize::try_from(block.0).ok().and_then(|index| self.slots.get(index)).copied()?;
        self.copies.get(slot as usize).map(Box::as_ref)
    }

    /// Lends a block as it is now.
    fn with<R>(&self, location: BlockNr, look: impl FnOnce(&Block) -> R) -> Result<R, OverlayError> {
        if let Some(block) = self.copy(location) {
            return Ok(look(block));
        }
        let (mut look, mut result) = (Some(look), None);
        self.source.read_many(&[location], &mut |_, block| {
            if let Some(look) = look.take() {
                result = Some(block.map(look));
            }
            ControlFlow::Break(())
        });
        match result {
            Some(found) => found.map_err(|error| OverlayError::Read(location, error)),
            None => Err(OverlayError::Tree(location)),
        }
    }

    /// Lends a node for reading.
    fn with_node<R>(
        &mut self,
        location: BlockNr,
        values: Values,
        look: impl FnOnce(&Node<'_>) -> R,
    ) -> Result<R, OverlayError> {
        self.touches.note(Used::Node(location), How::Read);
        self.with(location, |block| edit::view(block, location, values.size()).map(|node| look(&node)))?
    }

    /// A block that was made or copied in this transaction, for changing.
    fn edit(&mut self, location: BlockNr) -> Result<&mut Block, OverlayError> {
        let slot = usize::try_from(location.0).ok().and_then(|index| self.slots.get(index)).copied();
        let copy = slot.and_then(|slot| self.copies.get_mut(slot as usize));
        copy.map(Box::as_mut).ok_or(OverlayError::Tree(location))
    }

    /// Takes a free metadata block. Its content is whatever was there.
    fn allocate(&mut self) -> Result<BlockNr, OverlayError> {
        let found = self
            .metadata
            .find_free(self.cursor)
            .or_else(|| self.metadata.find_free(1))
            .filter(|block| *block < self.slots.len() as u64);
        let block = found.ok_or(OverlayError::NoMetadata)?;
        self.cursor = block + 1;
        self.count_metadata(BlockNr(block), true);
        let index = block as usize;
        if self.slots[index] == ABSENT {
            self.slots[index] = self.copies.len() as u32;
            self.copies.push(Box::new([0; BLOCK_SIZE]));
        }
        if !std::mem::replace(&mut self.fresh[index], true) {
            self.fresh_list.push(block as u32);
        }
        self.touches.note(Used::Node(BlockNr(block)), How::New);
        Ok(BlockNr(block))
    }

    /// Counts a reference to a metadata block more or less; the bitmap is copied at its first change.
    fn count_metadata(&mut self, block: BlockNr, up: bool) -> u32 {
        let how = if self.metadata.is_dirty(block.0) { How::Write } else { How::New };
        let bitmap = block.0 / crate::format::space_map::ENTRIES_PER_BITMAP;
        self.touches.note(Used::MetadataBitmap(bitmap), how);
        if up { self.metadata.inc(block.0) } else { self.metadata.dec(block.0) }
    }

    /// Counts a reference to a data block more or less.
    fn count_data(&mut self, block: u64, up: bool) -> u32 {
        let how = if self.data.is_dirty(block) { How::Write } else { How::New };
        self.touches.note(Used::DataBitmap(block / crate::format::space_map::ENTRIES_PER_BITMAP), how);
        if up { self.data.inc(block) } else { self.data.dec(block) }
    }

    /// Takes the first free data block from `from` on.
    pub fn take_data(&mut self, from: u64) -> Option<u64> {
        let block = self.data.find_free(from)?;
        self.count_data(block, true);
        Some(block)
    }

    /// One reference to a data block less; says how many are left.
    pub fn release_data(&mut self, block: u64) -> u32 {
        self.count_data(block, false)
    }

    /// One reference to a node more, as a snapshot takes it.
    pub fn share(&mut self, block: BlockNr) -> u32 {
        self.count_metadata(block, true)
    }

    /// One reference to a node less. What it refers to is the caller's business.
    pub fn release(&mut self, block: BlockNr) -> u32 {
        let left = self.count_metadata(block, false);
        if left == 0 {
            self.touches.note(Used::Node(block), How::Free);
            if usize::try_from(block.0).ok().and_then(|index| self.fresh.get(index)) == Some(&true) {
                self.metadata.forget_freed(block.0);
            }
        }
        left
    }

    /// Makes a block that may be changed of `block`, whose reference it takes over.
    fn shadow(&mut self, block: BlockNr, values: Values) -> Result<BlockNr, OverlayError> {
        let count = self.metadata.get(block.0);
        let fresh = usize::try_from(block.0).ok().and_then(|index| self.fresh.get(index)).copied().unwrap_or(false);
        if fresh && count <= 1 {
            self.touches.note(Used::Node(block), How::Write);
            return Ok(block);
        }
        let content = self.with(block, |content| Box::new(*content))?;
        edit::view(&content, block, values.size())?;
        let new = self.allocate()?;
        *self.edit(new)? = *content;
        if self.release(block) > 0 {
            self.share_children(&content, values)?;
        }
        Ok(new)
    }

    /// What a shared node refers to gains a reference by its copy.
    fn share_children(&mut self, content: &Block, values: Values) -> Result<(), OverlayError> {
        let node = edit::view(content, BlockNr(0), values.size())?;
        for value in node.values_u64().iter().map(|value| value.get()) {
            match (node.is_leaf(), values) {
                (false, _) | (true, Values::Roots) => self.count_metadata(BlockNr(value), true),
                (true, Values::Data) => self.count_data(value >> 24, true),
                (true, Values::Plain(_)) => 0,
            };
        }
        Ok(())
    }

    /// Makes a tree without entries and gives its root.
    ///
    /// # Errors
    /// Where no block is free.
    pub fn empty_tree(&mut self, values: Values) -> Result<BlockNr, OverlayError> {
        let root = self.allocate()?;
        crate::format::node::write(self.edit(root)?, root, crate::format::node::FLAG_LEAF, &[], values.size(), &[]);
        Ok(root)
    }

    /// Makes the state the committed one: what was freed may be used again.
    pub fn commit(&mut self) -> Committed {
        let used = |block: &&u32| self.metadata.get(u64::from(**block)) > 0;
        let nodes = self.fresh_list.iter().filter(used).count() as u64;
        for block in self.fresh_list.drain(..) {
            self.fresh[block as usize] = false;
        }
        self.cursor = 0;
        let (data_bitmaps, metadata_bitmaps) = (self.data.commit(), self.metadata.commit());
        Committed { nodes, data_bitmaps, metadata_bitmaps }
    }

    /// Takes a block for something that is no node; it is written with [`Overlay::put`].
    ///
    /// # Errors
    /// Where no block is free.
    pub fn take_block(&mut self) -> Result<BlockNr, OverlayError> {
        self.allocate()
    }

    /// Takes away the reference to a whole tree of any kind, and those of what hangs below it alone.
    ///
    /// # Errors
    /// Where a tree can't be read.
    pub fn release_tree(&mut self, root: BlockNr, values: Values) -> Result<(), OverlayError> {
        let mut stack = vec![(root, values, 0)];
        while let Some((block, values, depth)) = stack.pop() {
            if self.release(block) > 0 {
                continue;
            }
            if depth > 2 * DEPTH_LIMIT {
                return Err(OverlayError::Tree(block));
            }
            let (leaf, below) = self.with_node(block, values, |node| {
                (node.is_leaf(), node.values_u64().iter().map(|value| value.get()).collect::<Vec<u64>>())
            })?;
            for value in below {
                match (leaf, values) {
                    (false, _) => stack.push((BlockNr(value), values, depth + 1)),
                    (true, Values::Roots) => stack.push((BlockNr(value), Values::Data, depth + 1)),
                    (true, Values::Data) => _ = self.release_data(value >> 24),
                    (true, Values::Plain(_)) => {}
                }
            }
        }
        Ok(())
    }

    /// Gives all changed nodes their own numbers and checksums, so that the overlay can be read like any source.
    /// The blocks in `except` are no nodes.
    pub fn seal(&mut self, except: &[BlockNr]) {
        for (location, slot) in self.slots.iter().enumerate().skip(1) {
            if except.contains(&BlockNr(location as u64)) {
                continue;
            }
            if let Some(copy) = self.copies.get_mut(*slot as usize) {
                block::seal(copy, BlockKind::Node, BlockNr(location as u64));
            }
        }
    }

    /// Puts a whole block over the source's, as it is.
    pub fn put(&mut self, location: BlockNr, content: &Block) {
        if let Some(slot) = usize::try_from(location.0).ok().and_then(|index| self.slots.get_mut(index)) {
            if *slot == ABSENT {
                *slot = self.copies.len() as u32;
                self.copies.push(Box::new(*content));
            } else if let Some(copy) = self.copies.get_mut(*slot as usize) {
                **copy = *content;
            }
        }
    }
}

/// What the overlay holds, after [`Overlay::seal`].
impl BlockSource for Overlay<'_> {
    fn nr_blocks(&self) -> u64 {
        self.source.nr_blocks()
    }

    fn read_many(&self, blocks: &[BlockNr], visit: &mut Visit<'_>) {
        for location in blocks {
            let mut stop = false;
            match self.copy(*location) {
                Some(copy) => stop = visit(*location, Ok(copy)).is_break(),
                None => self.source.read_many(&[*location], &mut |location, block| {
                    let flow = visit(location, block);
                    stop = flow.is_break();
                    flow
                }),
            }
            if stop {
                return;
            }
        }
    }
}
