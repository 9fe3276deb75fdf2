//! Blocks in memory: what a packed image unfolds to, and what tests make.

use super::output::{BlockOutput, WriteError};
use super::source::{BlockSource, ReadError, Visit};
use crate::base::BlockNr;
use crate::format::{BLOCK_SIZE, Block};

const ZERO: Block = [0; BLOCK_SIZE];
const ABSENT: u32 = u32::MAX;

/// An image of which only the blocks that were put in take memory; all others read as zeros.
#[derive(Debug, Clone)]
pub struct MemorySource {
    nr_blocks: u64,
    /// Block number to place in `blocks`; shorter than the image where its end holds nothing.
    slots: Vec<u32>,
    blocks: Vec<Block>,
}

impl MemorySource {
    /// An image of `nr_blocks` zero blocks.
    pub fn new(nr_blocks: u64) -> Self {
        MemorySource { nr_blocks, slots: Vec::new(), blocks: Vec::new() }
    }

    /// Puts a block in its place, also over one that is there.
    ///
    /// # Errors
    /// Where the block is past the end.
    pub fn put(&mut self, location: BlockNr, block: &Block) -> Result<(), ReadError> {
        let out_of_range = ReadError::OutOfRange { nr_blocks: self.nr_blocks };
        if location.0 >= self.nr_blocks {
            return Err(out_of_range);
        }
        let index = usize::try_from(location.0).map_err(|_| out_of_range)?;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, ABSENT);
        }
        match self.slots[index] {
            ABSENT => {
                self.slots[index] = self.blocks.len() as u32;
                self.blocks.push(*block);
            }
            slot => self.blocks[slot as usize] = *block,
        }
        Ok(())
    }

    /// The block at `location`; zeros where none was put.
    pub fn get(&self, location: BlockNr) -> Option<&Block> {
        if location.0 >= self.nr_blocks {
            return None;
        }
        let slot = usize::try_from(location.0).ok().and_then(|index| self.slots.get(index)).copied();
        match slot {
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

    fn flush(&mut self) -> Result<(), WriteError> {
        Ok(())
    }
}
