//! An image that can be changed: what was changed lies over the image that it was.

use dmeta::base::BlockNr;
use dmeta::block::memory::MemorySource;
use dmeta::block::{BlockSource, ReadError, Visit};
use dmeta::format::block::{self, BLOCK_SIZE, Block, BlockKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Blocks as they were, and those that were changed.
#[derive(Clone)]
pub struct Image {
    base: Arc<MemorySource>,
    changes: BTreeMap<u64, Box<Block>>,
    nr_blocks: u64,
    unreadable: BTreeSet<u64>,
}

impl Image {
    pub fn new(base: MemorySource) -> Image {
        let nr_blocks = base.nr_blocks();
        Image { base: Arc::new(base), changes: BTreeMap::new(), nr_blocks, unreadable: BTreeSet::new() }
    }

    /// A copy of a block; zeros past the end.
    pub fn block(&self, location: u64) -> Block {
        self.lend(location).copied().unwrap_or([0; BLOCK_SIZE])
    }

    fn lend(&self, location: u64) -> Option<&Block> {
        if location >= self.nr_blocks {
            return None;
        }
        self.changes.get(&location).map(|block| &**block).or_else(|| self.base.get(BlockNr(location)))
    }

    /// Puts a block in its place, as it is.
    pub fn put(&mut self, location: u64, block: Block) {
        self.changes.insert(location, Box::new(block));
    }

    /// Changes a block and leaves its checksum as it was.
    pub fn spoil(&mut self, location: u64, change: impl FnOnce(&mut Block)) {
        let mut block = self.block(location);
        change(&mut block);
        self.put(location, block);
    }

    /// Changes a block and makes it whole again, as one of `kind`.
    pub fn edit(&mut self, location: u64, kind: BlockKind, change: impl FnOnce(&mut Block)) {
        self.spoil(location, |block| {
            change(block);
            block::seal(block, kind, BlockNr(location));
        });
    }

    /// From now on reading this block fails.
    pub fn make_unreadable(&mut self, location: u64) {
        self.unreadable.insert(location);
    }

    /// Cuts the image off, or lets it grow by zeros.
    pub fn set_nr_blocks(&mut self, nr_blocks: u64) {
        self.nr_blocks = nr_blocks;
    }

    /// The image as bytes; `None` where some can't be read.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        self.unreadable.is_empty().then(|| (0..self.nr_blocks).flat_map(|location| self.block(location)).collect())
    }

    /// Whether nothing differs from the image that it was.
    pub fn is_unchanged(&self) -> bool {
        let mut changes = self.changes.iter();
        let same = changes.all(|(location, block)| self.base.get(BlockNr(*location)) == Some(block));
        same && self.nr_blocks == self.base.nr_blocks() && self.unreadable.is_empty()
    }
}

impl BlockSource for Image {
    fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    fn read_many(&self, blocks: &[BlockNr], visit: &mut Visit<'_>) {
        for location in blocks {
            let result = if self.unreadable.contains(&location.0) {
                Err(ReadError::Io("made to fail".into()))
            } else {
                self.lend(location.0).ok_or(ReadError::OutOfRange { nr_blocks: self.nr_blocks })
            };
            if visit(*location, result).is_break() {
                return;
            }
        }
    }
}

/// The 32-bit field at `offset`.
pub fn set32(block: &mut Block, offset: usize, value: u32) {
    block[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// The 64-bit field at `offset`.
pub fn set64(block: &mut Block, offset: usize, value: u64) {
    block[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}
