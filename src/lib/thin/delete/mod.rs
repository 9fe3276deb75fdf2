//! Deleting devices from a pool that is not active: look, plan, write.
//!
//! [`Target`] reads what there is, [`plan`] finds out what is left without the victims, and [`Deletion::commit`]
//! writes it: new blocks into free ones, then the superblock. What the victims have mapped needn't be read for that:
//! see [`Strategy`].

mod account;
mod cost;
mod drop;
mod exclusive;
mod image;
mod parts;
mod precheck;
mod ranges;
mod recount;
mod target;
mod told;
mod trees;

pub use account::{Account, DeviceAccount, Leaked, predict};
pub use cost::Estimate;
pub use image::{ImageError, write_image};
pub use parts::plan_part;
pub use precheck::{Leaks, Precheck, precheck};
pub use ranges::{ranges_json, ranges_text};
pub use target::{Target, Wanted};
pub use told::no_room_text;

use crate::base::{BlockNr, Findings, Progress, ThinId};
use crate::block::BlockOutput;
use crate::format::Block;
use crate::format::superblock::ThinSuperblock;
use crate::pdata::commit::{CommitError, SealedTransaction};
use crate::pdata::forest::Forest;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use zerocopy::byteorder::little_endian::U64;

/// How the new reference counts are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The one that should cost less.
    #[default]
    Auto,
    /// Take away what the victims refer to, from the stored counts, which have to be right. Goes down only where no
    /// survivor leads to.
    Drop,
    /// Count anew what the survivors refer to. Nothing below the victims is read.
    Recount,
}

/// How to delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteOptions {
    /// How the new reference counts are found.
    pub strategy: Strategy,
    /// Write this transaction id.
    pub transaction_id: Option<u64>,
    /// Find out which data blocks become free, not only how many.
    pub note_freed: bool,
}

/// Why nothing is deleted. Nothing was written, unless [`DeleteError::Commit`] says that writing failed.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The kernel has set needs_check.
    #[error("the kernel asks for a check (needs_check is set): run thin_check --clear-needs-check-flag first")]
    NeedsCheck,
    /// The metadata is damaged.
    #[error("the metadata is damaged, nothing was changed: {advice}")]
    Damaged {
        /// The damage.
        findings: Findings,
        /// What helps.
        advice: &'static str,
    },
    /// There are no such devices.
    #[error("there is no device {}; nothing was changed", list(.0))]
    Unknown(Vec<RangeInclusive<u64>>),
    /// Not enough room, or writing failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

fn list(ranges: &[RangeInclusive<u64>]) -> String {
    let item = |range: &RangeInclusive<u64>| match range.start() == range.end() {
        true => range.start().to_string(),
        false => format!("in {}-{}", range.start(), range.end()),
    };
    ranges.iter().map(item).collect::<Vec<_>>().join(", ")
}

/// Blocks in use, before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Devices that go.
    pub devices: u64,
    /// Data blocks in use before.
    pub data_before: u64,
    /// Data blocks in use afterwards.
    pub data_after: u64,
    /// Metadata blocks in use before.
    pub metadata_before: u64,
    /// Metadata blocks in use afterwards.
    pub metadata_after: u64,
}

impl Figures {
    /// Data blocks that become free.
    pub fn data_freed(&self) -> u64 {
        self.data_before.saturating_sub(self.data_after)
    }

    /// What this deletion and the `next` one do together.
    pub fn with(self, next: Figures) -> Figures {
        let Figures { data_before, metadata_before, .. } = self;
        Figures { devices: self.devices + next.devices, data_before, metadata_before, ..next }
    }

    /// Metadata blocks that become free, less those that the change takes.
    pub fn metadata_freed(&self) -> u64 {
        self.metadata_before.saturating_sub(self.metadata_after)
    }
}

/// A deletion that lacks nothing but to be written.
#[derive(Debug)]
pub struct Deletion {
    sealed: SealedTransaction,
    superblock: Box<Block>,
    figures: Figures,
}

/// Finds out what the metadata looks like without `victims`, which the target has.
///
/// # Errors
/// Where survivors are damaged, or there is no room for the change. Nothing is written here.
pub fn plan(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    options: DeleteOptions,
    progress: &dyn Progress,
) -> Result<Deletion, DeleteError> {
    plan_with_forest(target, victims, options, progress).map(|(deletion, _)| deletion)
}

/// As [`plan`]; also gives the nodes of mapping trees that go, where they were looked at.
fn plan_with_forest(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    options: DeleteOptions,
    progress: &dyn Progress,
) -> Result<(Deletion, Option<Forest>), DeleteError> {
    let strategy = match options.strategy {
        Strategy::Auto => Estimate::of(target, victims).best(),
        given => given,
    };
    let (trees, sealed, forest) = match strategy {
        Strategy::Drop => {
            let dropped = drop::plan(target, victims, options, progress)?;
            (dropped.trees, dropped.sealed, Some(dropped.forest))
        }
        Strategy::Auto | Strategy::Recount => {
            let (trees, sealed) = recount::plan(target, victims, options, progress)?;
            (trees, sealed, None)
        }
    };
    let before = &target.superblock;
    let roots = sealed.roots();
    let after = ThinSuperblock {
        mapping_root: U64::new(trees.mapping.0),
        details_root: U64::new(trees.details.0),
        data_space_map: roots.data.clone().unwrap_or_else(|| before.data_space_map.clone()),
        metadata_space_map: roots.metadata.clone(),
        transaction_id: options.transaction_id.map_or(before.transaction_id, U64::new),
        ..before.clone()
    };
    let figures = Figures {
        devices: victims.len() as u64,
        data_before: before.data_space_map.nr_allocated.get(),
        data_after: after.data_space_map.nr_allocated.get(),
        metadata_before: before.metadata_space_map.nr_allocated.get(),
        metadata_after: after.metadata_space_map.nr_allocated.get(),
    };
    Ok((Deletion { sealed, superblock: after.to_block(BlockNr(0)), figures }, forest))
}

impl Deletion {
    /// The blocks that will be written beside the superblock.
    pub fn locations(&self) -> Vec<BlockNr> {
        self.sealed.locations().collect()
    }

    /// The superblock that will be written.
    pub fn superblock(&self) -> &Block {
        &self.superblock
    }

    /// What it gives back.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Ascending ranges of data blocks that become free, where [`DeleteOptions::note_freed`] asked for them.
    pub fn freed(&self) -> &[Range<u64>] {
        self.sealed.freed()
    }

    /// Writes it. After this the devices are gone; after an error all is as it was, or they are gone.
    ///
    /// # Errors
    /// Where writing fails.
    pub fn commit(self, output: &mut dyn BlockOutput) -> Result<(), CommitError> {
        self.sealed.commit(output, &self.superblock)
    }
}

#[cfg(test)]
mod tests;
