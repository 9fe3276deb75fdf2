//! Damages metadata on purpose, from a seed, for tests.
//!
//! Everything is put together before anything is written, so that what is damaged is known. It is written straight
//! to its place: after that the metadata is broken, which is the point.

mod block;
mod leaks;

#[cfg(test)]
mod tests;

pub use block::{Kind, Target};
pub use leaks::{Leaks, create_leaks};

use crate::base::{BlockNr, NoProgress, Random};
use crate::block::{BlockOutput, BlockSource, ReadError, WriteError};
use crate::format::superblock::ThinSuperblock;
use crate::format::{Block, BlockFault, BlockKind};
use crate::pdata::ledger::Ledger;
use crate::thin::check::{CheckOptions, check_and_count};
use zerocopy::byteorder::little_endian::U64;

/// Damage to some blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockDamage {
    /// What happens to them.
    pub kind: Kind,
    /// Which blocks it may happen to.
    pub target: Target,
    /// How many blocks.
    pub count: u64,
    /// Make their checksums and own numbers good again.
    pub reseal: bool,
    /// Picks the blocks, and what happens in them.
    pub seed: u64,
}

/// Roots to write into the superblock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Override {
    /// Root of the upper mapping tree.
    pub mapping_root: Option<u64>,
    /// Root of the details tree.
    pub details_root: Option<u64>,
    /// Block of the metadata snapshot.
    pub metadata_snapshot: Option<u64>,
}

/// A block that will be written, and what is wrong with it then.
#[derive(Clone, Debug)]
pub struct Damage {
    /// The block.
    pub location: BlockNr,
    /// What will be in it.
    pub content: Box<Block>,
    /// What happened to it.
    pub what: String,
}

/// Why there is no damage.
#[derive(Debug, thiserror::Error)]
pub enum DamageError {
    /// The metadata has to be sound to tell its parts apart.
    #[error("the metadata cannot be read, so its parts are not known: a block can be named instead")]
    Unsound,
    /// There is no valid superblock.
    #[error("the superblock is not valid: {0}")]
    Superblock(#[from] BlockFault),
    /// Fewer blocks than asked for.
    #[error("there are {found} such blocks, {wanted} were asked for")]
    TooFew {
        /// Blocks that there are.
        found: u64,
        /// Blocks that were asked for.
        wanted: u64,
    },
    /// Blocks that have the count, but whose new one can't be stored where it belongs.
    #[error(
        "counts can be changed for {found} blocks only, {wanted} were asked for: the leaves of the tree of counts are full"
    )]
    NoRoom {
        /// Blocks whose count can be changed.
        found: u64,
        /// Blocks that were asked for.
        wanted: u64,
    },
    /// A block could not be read.
    #[error("a block cannot be read: {0}")]
    Read(#[from] ReadError),
}

/// Damages blocks of the kind asked for.
///
/// # Errors
/// Where there are not enough of them, or they can't be told from others.
pub fn damage_blocks(source: &dyn BlockSource, wanted: &BlockDamage) -> Result<Vec<Damage>, DamageError> {
    let mut random = Random::new(wanted.seed);
    let mut candidates = block::candidates(source, wanted)?;
    random.shuffle(&mut candidates);
    let mut done = Vec::new();
    let mut taken = Vec::new();
    while (done.len() as u64) < wanted.count {
        let Some((location, kind)) = candidates.pop() else {
            return Err(DamageError::TooFew { found: done.len() as u64, wanted: wanted.count });
        };
        if taken.contains(&location) {
            continue;
        }
        let others = &candidates;
        let blocks = block::damage(source, wanted, (location, kind), others, &mut random)?;
        taken.extend(blocks.iter().map(|damage| damage.location));
        if !blocks.is_empty() {
            done.push(blocks);
        }
    }
    Ok(done.into_iter().flatten().collect())
}

/// Writes other roots into the superblock.
///
/// # Errors
/// Where there is no valid superblock.
pub fn override_roots(source: &dyn BlockSource, roots: &Override) -> Result<Vec<Damage>, DamageError> {
    let mut superblock = superblock(source)?;
    let mut what = Vec::new();
    let mut set = |field: &mut U64, name: &str, value: Option<u64>| {
        if let Some(value) = value {
            what.push(format!("{name} {} instead of {}", value, field.get()));
            *field = U64::new(value);
        }
    };
    set(&mut superblock.mapping_root, "mapping root", roots.mapping_root);
    set(&mut superblock.details_root, "details root", roots.details_root);
    set(&mut superblock.held_root, "metadata snapshot", roots.metadata_snapshot);
    let content = superblock.to_block(BlockNr(0));
    Ok(vec![Damage { location: BlockNr(0), content, what: what.join(", ") }])
}

/// Writes the damage.
///
/// # Errors
/// Where writing failed; some of it may have been written.
pub fn write(output: &mut dyn BlockOutput, damage: &[Damage]) -> Result<(), WriteError> {
    damage.iter().try_for_each(|damage| output.write(damage.location, &damage.content))?;
    output.flush()
}

fn superblock(source: &dyn BlockSource) -> Result<ThinSuperblock, DamageError> {
    let block = source.read(BlockNr(0))?;
    crate::format::block::verify(&block, BlockKind::ThinSuperblock, BlockNr(0))?;
    Ok(ThinSuperblock::view(&block).clone())
}

/// What each block is used for.
fn ledger(source: &dyn BlockSource) -> Result<Ledger, DamageError> {
    let checked = check_and_count(source, &CheckOptions::default(), &NoProgress, &mut |_| ());
    match checked {
        Ok((_, Some(counted))) => Ok(counted.metadata),
        _ => Err(DamageError::Unsound),
    }
}
