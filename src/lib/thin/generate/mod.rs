//! Makes pools from a seed, for tests and measurements, and formats new ones.
//!
//! What is made is sound: damage is another module's business.

mod device;
mod pool;

#[cfg(test)]
mod tests;

use crate::base::BlockNr;
use crate::block::BlockOutput;
use crate::format::superblock::{FLAG_NEEDS_CHECK, ThinSuperblock, data_block_size_is_valid};
use crate::format::{BlockFault, BlockKind, block};
use crate::pdata::commit::{self, CommitError};
use std::ops::RangeInclusive;
use zerocopy::byteorder::little_endian::U32;

/// What a pool should be like.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// The same seed and options make the same pool.
    pub seed: u64,
    /// Sectors of a data block.
    pub data_block_size: u32,
    /// Blocks of the data device; `None` for as many as are needed.
    pub nr_data_blocks: Option<u64>,
    /// Devices that are no snapshots.
    pub devices: u64,
    /// Snapshots of each of these, one after the other.
    pub snapshots: u64,
    /// Mappings of each device.
    pub mappings: u64,
    /// How many mappings continue each other, on average.
    pub run_length: u64,
    /// How full the leaves are, in percent.
    pub leaf_fill: RangeInclusive<u64>,
    /// How many in a hundred leaves are overwritten, in part, after each snapshot.
    pub change: u64,
    /// Hold a metadata snapshot, after which each device is changed once more.
    pub metadata_snapshot: bool,
    /// Set the flag needs_check.
    pub needs_check: bool,
    /// The transaction id.
    pub transaction: u64,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            seed: 0,
            data_block_size: 128,
            nr_data_blocks: None,
            devices: 1,
            snapshots: 0,
            mappings: 0,
            run_length: 8,
            leaf_fill: 100..=100,
            change: 5,
            metadata_snapshot: false,
            needs_check: false,
            transaction: 0,
        }
    }
}

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generated {
    /// Devices, snapshots included.
    pub devices: u64,
    /// Mappings of all devices.
    pub mappings: u64,
    /// Data blocks in use.
    pub data_blocks: u64,
    /// Metadata blocks in use.
    pub metadata_blocks: u64,
}

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// Options that don't fit a pool.
    #[error("{0}")]
    Options(String),
    /// Too few data blocks were given.
    #[error("{needed} data blocks are needed, {given} were given")]
    DataBlocks {
        /// What is needed.
        needed: u64,
        /// What was given.
        given: u64,
    },
    /// There is no superblock whose flag could be set.
    #[error("the superblock is not valid: {0}")]
    Superblock(#[from] BlockFault),
    /// Reading or writing failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Writes a new pool without devices.
///
/// # Errors
/// Where the data block size is not valid, or writing failed.
pub fn format(output: &mut dyn BlockOutput, data_block_size: u32, nr_data_blocks: u64) -> Result<(), GenerateError> {
    let nr_data_blocks = Some(nr_data_blocks);
    let options = GenerateOptions { devices: 0, data_block_size, nr_data_blocks, ..GenerateOptions::default() };
    generate(output, &options).map(|_| ())
}

/// Writes a pool.
///
/// # Errors
/// Where options don't fit or there is not enough room, before anything is written; or writing failed, and the output
/// has no valid superblock.
pub fn generate(output: &mut dyn BlockOutput, options: &GenerateOptions) -> Result<Generated, GenerateError> {
    if !data_block_size_is_valid(options.data_block_size) {
        return Err(GenerateError::Options(format!("invalid data block size {}", options.data_block_size)));
    }
    let (least, most) = (*options.leaf_fill.start(), *options.leaf_fill.end());
    if !(34..=100).contains(&least) || !(least..=100).contains(&most) {
        return Err(GenerateError::Options("leaves are filled to between 34 and 100 percent".into()));
    }
    if options.run_length == 0 || options.change > 100 {
        return Err(GenerateError::Options("runs have at least one mapping, and at most all leaves change".into()));
    }
    pool::write(output, options)
}

/// Sets or clears the flag needs_check.
///
/// # Errors
/// Where there is no valid superblock, or writing failed.
pub fn set_needs_check(output: &mut dyn BlockOutput, needs_check: bool) -> Result<(), GenerateError> {
    let old = output.read_back(BlockNr(0)).map_err(CommitError::from)?;
    block::verify(&old, BlockKind::ThinSuperblock, BlockNr(0))?;
    let mut superblock = ThinSuperblock::view(&old).clone();
    let flags = superblock.flags.get() & !FLAG_NEEDS_CHECK;
    superblock.flags = U32::new(if needs_check { flags | FLAG_NEEDS_CHECK } else { flags });
    Ok(commit::replace_superblock(output, &superblock.to_block(BlockNr(0)))?)
}
