//! Blocks in memory: what a packed image unfolds to, and what tests make.

use super::output::{BlockOutput, WriteError};
use super::source::{BlockSource, ReadError, Visit};
use crate::base::BlockNr;
use crate::format::{BLOCK_SIZE, Block};
use std::collections::BTreeMap;
use std::fmt;

/// Blocks below this have a slot of four bytes each, up to the last that was put in. It is twice what metadata can
/// have; a stray block beyond is looked up in a tree.
const NEAR: u64 = 1 << 23;
const ZERO: Block = [0; BLOCK_SIZE];
const ABSENT: u32 = u32::MAX;

/// An image of which only the blocks that were put in take memory; all others read as zeros.
#[derive(Clone)]
pub struct MemorySource {
    nr_blocks: u64,
    /// Block number to place in `blocks`; shorter than the image where its end holds nothing.
    slots: Vec<u32>,
    far: BTreeMap<u64, u32>,
    blocks: Vec<Block>,
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySource of {} blocks, {} of them present", self.nr_blocks, self.blocks.len())
    }
}

impl MemorySource {
    /// An image of `nr_blocks` zero blocks.
    pub fn new(nr_blocks: u64) -> Self {
        MemorySource { nr_blocks, slots: Vec::new(), far: BTreeMap::new(), blocks: Vec::new() }
    }

    /// Gives the image another number of blocks. What is past the end cannot be read.
    pub fn resize(&mut self, nr_blocks: u64) {
        self.nr_blocks = nr_blocks;
    }

    /// Puts a block in its place, also over one that is there.
    ///
    /// # Errors
    /// Where the block is past the end.
    pub fn put(&mut self, location: BlockNr, block: &Block) -> Result<(), ReadError> {
        if location.0 >= self.nr_blocks {
            return Err(ReadError::OutOfRange { nr_blocks: self.nr_blocks });
        }
        let new = self.blocks.len() as u32;
        let slot = self.slot_mut(location.0);
        if *slot == ABSENT {
            *slot = new;
            self.blocks.push(*block);
        } else {
            let place = *slot as usize;
            self.blocks[place] = *block;
        }
        Ok(())
    }

    fn slot_mut(&mut self, location: u64) -> &mut u32 {
        if location >= NEAR {
            return self.far.entry(location).or_insert(ABSENT);
        }
        let index = location as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, ABSENT);
        }
        &mut self.slots[index]
    }

    fn slot(&self, location: u64) -> Option<u32> {
        match usize::try_from(location) {
            Ok(index) if location < NEAR => self.slots.get(index).copied(),
            _ => self.far.get(&location).copied(),
        }
    }

    /// The block at `location`; zeros where none was put.
    pub fn get(&self, location: BlockNr) -> Option<&Block> {
        if location.0 >= self.nr_blocks {
            return None;
        }
        match self.slot(location.0) {
            None | Some(ABSENT) => Some(&ZERO),
            Some(slot) => self.blocks.get(slot as usize),
        }
    }

    /// Blocks that take memory.
    pub fn nr_present(&self) -> usize {
        self.blocks.len()
    }
}

impl BlockSource for MemorySource {
    fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    fn read_many(&self, blocks: &[BlockNr], visit: &mut Visit<'_>) {
        for location in blocks {
            let result = self.get(*location).ok_or(ReadError::OutOfRange { nr_blocks: self.nr_blocks });
            if visit(*location, result).is_break() {
                return;
            }
        }
    }
}

/// Memory is as durable as it gets.
impl BlockOutput for MemorySource {
    fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    fn write(&mut self, location: BlockNr, block: &Block) -> Result<(), WriteError> {
        let nr_blocks = self.nr_blocks;
        self.put(location, block).map_err(|_| WriteError::OutOfRange { block: location, nr_blocks })
    }

    fn read_back(&mut self, location: BlockNr) -> Result<Box<Block>, WriteError> {
        let out_of_range = WriteError::OutOfRange { block: location, nr_blocks: self.nr_blocks };
        self.get(location).map(|block| Box::new(*block)).ok_or(out_of_range)
    }

    fn written(&mut self) -> Result<Box<dyn BlockSource + '_>, WriteError> {
        Ok(Box::new(self.clone()))
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        Ok(())
    }
}
