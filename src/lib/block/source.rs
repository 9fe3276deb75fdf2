//! The one way to read blocks.

use crate::base::BlockNr;
use crate::format::{BLOCK_SIZE, Block};
use std::ops::ControlFlow;

/// Why a block could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The block is past the end.
    #[error("past the end of the metadata, which has {nr_blocks} blocks")]
    OutOfRange {
        /// Blocks that there are.
        nr_blocks: u64,
    },
    /// The device or file gave an error instead.
    #[error("{0}")]
    Io(String),
}

/// What is done with each block that [`BlockSource::read_many`] lends; it may stop the reading.
pub type Visit<'a> = dyn FnMut(BlockNr, Result<&Block, ReadError>) -> ControlFlow<()> + 'a;

/// Blocks that can be read in any order, by several threads at once.
pub trait BlockSource: Send + Sync {
    /// Whole blocks that there are.
    fn nr_blocks(&self) -> u64;

    /// Lends the given blocks to `visit` one after the other, in the order given.
    ///
    /// Ascending runs are fetched in one go. A block that cannot be read is
    /// passed as an error; the others are still read.
    fn read_many(&self, blocks: &[BlockNr], visit: &mut Visit<'_>);

    /// A copy of one block.
    ///
    /// # Errors
    /// Where the block is past the end or cannot be read.
    fn read(&self, block: BlockNr) -> Result<Box<Block>, ReadError> {
        let mut copy = Err(ReadError::OutOfRange { nr_blocks: self.nr_blocks() });
        self.read_many(&[block], &mut |_, result| {
            copy = result.map(|lent| {
                let mut owned = Box::new([0; BLOCK_SIZE]);
                owned.copy_from_slice(lent);
                owned
            });
            ControlFlow::Continue(())
        });
        copy
    }

    /// The first block from here on that may hold anything: those before it are holes of a sparse file, which read as
    /// zeros but take time and memory to read. The number of blocks where no more come.
    fn skip_holes(&self, from: BlockNr) -> BlockNr {
        from
    }

    /// Blocks that failed after they had been lent, because a file shrank or a device broke under a mapping.
    ///
    /// They read as zeros from then on. A tool whose output rests on blocks verified before compares this
    /// number at the end with the one at the beginning.
    fn nr_faults(&self) -> u64 {
        0
    }
}
