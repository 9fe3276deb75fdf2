//! The only writer: finds blocks, writes both space maps, and puts the superblock in place last (docs/format.md 8).
//!
//! The steps are always the same: reserve, stage, seal, write, flush, superblock, flush. [`ImageWriter`] fills a
//! whole device that nobody uses; [`Transaction`] changes metadata in place.
//!
//! Knows space maps and the order of writes; the superblock's content is its caller's.

mod drops;
mod image;
mod old_maps;
mod transaction;
mod undo;
mod whole;

pub use image::{ImageWriter, Preview, SealedImage};
pub use transaction::{SealedTransaction, Transaction, replace_superblock};
pub use undo::{Undo, UndoError};
pub use whole::write_whole;

use super::space_map::ExpectedCounts;
use crate::base::BlockNr;
use crate::block::WriteError;
use crate::format::space_map::SpaceMapRoot;

/// Why something could not be committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Every block that may be taken has been taken.
    #[error("out of metadata space: there are {nr_blocks} blocks")]
    NoSpace {
        /// Blocks of the metadata.
        nr_blocks: u64,
    },
    /// The output has too few blocks. Nothing was written.
    #[error("{needed} metadata blocks are needed, there are {present}")]
    TooSmall {
        /// Blocks that are needed.
        needed: u64,
        /// Blocks that there are.
        present: u64,
    },
    /// No metadata device could hold it.
    #[error(
        "more than the {} metadata blocks that a pool can have are needed",
        crate::format::space_map::MAX_METADATA_BLOCKS
    )]
    TooLarge,
    /// The committed state leaves too few blocks for a change. Nothing was written.
    #[error("the change needs {needed} free metadata blocks, there are {free}")]
    NoFreeBlocks {
        /// Blocks that it needs.
        needed: u64,
        /// Blocks that are free.
        free: u64,
    },
    /// What the change is made from is damaged. Nothing was written.
    #[error("block {block} can't be used: {detail}")]
    Unsound {
        /// The block.
        block: BlockNr,
        /// What is wrong with it.
        detail: String,
    },
    /// A data block loses more references than it has. Nothing was written.
    #[error("data block {data_block} is counted lower than it is used: run thin_check --repair-space-maps first")]
    CountedLow {
        /// The block.
        data_block: u64,
    },
    /// The output failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Reference counts of the data device's blocks.
#[derive(Clone, Copy)]
pub struct DataCounts<'a> {
    /// Blocks of the data device.
    pub nr_blocks: u64,
    /// Their counts.
    pub counts: &'a dyn ExpectedCounts,
}

/// The roots of the space maps, for the superblock.
#[derive(Clone, Debug)]
pub struct SpaceMapRoots {
    /// The data space map's, where there is one.
    pub data: Option<SpaceMapRoot>,
    /// The metadata space map's.
    pub metadata: SpaceMapRoot,
}

#[cfg(test)]
mod tests;
