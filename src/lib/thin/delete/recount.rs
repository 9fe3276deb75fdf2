//! Counting anew what the survivors refer to.
//!
//! Takes time and memory for what stays, whatever is deleted; and nothing below the victims has to be readable.

use super::target::damaged;
use super::trees::{self, NewTrees};
use super::{DeleteError, DeleteOptions, Target};
use crate::base::{Area, BlockNr, Code, Finding, Findings, Place, Progress, Severity, ThinId};
use crate::format::space_map::ENTRIES_PER_BITMAP;
use crate::pdata::build::NodeSink;
use crate::pdata::commit::{DataCounts, SealedTransaction, SpaceMapRoots, Transaction};
use crate::pdata::counts::Counts;
use crate::pdata::forest::Forest;
use crate::pdata::ledger::{BlockUse, Ledger, Referred};
use crate::pdata::walk::Walker;
use crate::thin::check::MappingVisitor;
use crate::thin::judge::{Bounds, judge_mapped_blocks};
use crate::thin::load::{self, Devices, Roots};
use std::collections::BTreeSet;

/// What stays, and what it refers to.
pub(super) struct Counted {
    pub(super) survivors: Devices,
    /// The nodes of mapping trees that stay.
    pub(super) forest: Forest,
    pub(super) data: Counts,
    /// References below the devices' roots, and all of the metadata snapshot.
    pub(super) metadata: Ledger,
    /// Leaves of the upper mapping tree that the metadata snapshot has, too.
    held_leaves: BTreeSet<BlockNr>,
}

pub(super) fn plan(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    options: DeleteOptions,
    progress: &dyn Progress,
) -> Result<(NewTrees, SealedTransaction), DeleteError> {
    let counted = count(target, victims, progress)?;
    let superblock = &target.superblock;
    let committed = SpaceMapRoots {
        data: Some(superblock.data_space_map.clone()),
        metadata: superblock.metadata_space_map.clone(),
    };
    let mut transaction = Transaction::begin_with_survivors(target.source, committed, &counted.metadata);
    if options.note_freed {
        transaction.note_freed();
    }
    let survivors = || counted.survivors.by_id.values().filter_map(|device| Some((device.leaf?, device.root?)));
    // The walk counted these; the new trees count them again.
    for (leaf, root) in survivors() {
        if !counted.held_leaves.contains(&leaf) {
            transaction.unrefer(root);
        }
    }
    let trees = trees::without(target, victims, &mut transaction)?;
    let kept: BTreeSet<BlockNr> = trees.kept_leaves.iter().copied().collect();
    for (leaf, root) in survivors() {
        if kept.contains(&leaf) && !counted.held_leaves.contains(&leaf) {
            transaction.share(root);
        }
    }
    progress.section("space maps", 0);
    let data = DataCounts { nr_blocks: counted.data.nr_blocks(), counts: &counted.data };
    Ok((trees, transaction.seal(Some(data))?))
}

/// Reads all that stays, and refuses where that is damaged.
pub(super) fn count(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    progress: &dyn Progress,
) -> Result<Counted, DeleteError> {
    let (source, superblock) = (target.source, &target.superblock);
    let mut findings = Findings::new();
    let mut ledger = Ledger::new(load::usable_blocks(source));
    let bounds = Bounds::of(superblock);
    let countable = ledger.nr_blocks().saturating_mul(ENTRIES_PER_BITMAP);
    if bounds.nr_data_blocks > countable {
        findings.push(Finding::new(Code::SpaceMapSize, Place::area(Area::DataSpaceMap)));
        return Err(damaged(findings));
    }
    let mut walker = Walker { source, ledger: &mut ledger, findings: &mut findings, progress };
    progress.section("devices", 0);
    let held = held_roots(target, &mut walker);
    let held_devices = match &held {
        Some(roots) => load::devices(&mut walker, &[*roots]).pop().unwrap_or_default(),
        None => Devices::default(),
    };
    let survivors = target.survivors(victims);
    bounds.judge_devices(&target.roots, &survivors, walker.findings);
    let visitor = MappingVisitor { counts: Counts::new(bounds.nr_data_blocks), bounds };
    progress.section("mappings", superblock.metadata_space_map.nr_allocated.get());
    let mut pairs: Vec<(Roots, &Devices)> = held.iter().map(|roots| (*roots, &held_devices)).collect();
    pairs.push((target.roots, &survivors));
    let forest = load::mappings(&mut walker, &pairs, &visitor);
    judge_survivors(&target.roots, &survivors, &forest, walker.findings);
    if findings.worst() == Some(Severity::Fatal) {
        return Err(damaged(findings));
    }
    let held_leaves = held_devices.by_id.values().filter_map(|device| device.leaf).collect();
    Ok(Counted { survivors, forest, data: visitor.counts, metadata: ledger, held_leaves })
}

/// The trees of the metadata snapshot, where there is one.
fn held_roots(target: &Target<'_>, walker: &mut Walker<'_>) -> Option<Roots> {
    let location = target.superblock.held_root()?;
    if walker.ledger.refer(location, BlockUse::Superblock) != Referred::First {
        walker.findings.push(Finding::new(Code::HeldRootInvalid, Place::block(Area::SnapshotSuperblock, location)));
        return None;
    }
    let held = load::snapshot_superblock(walker.source, location, &target.superblock, walker.findings)?;
    Some(Roots::of(&held, true))
}

/// Holds what was found of each survivor against its details.
fn judge_survivors(live: &Roots, survivors: &Devices, forest: &Forest, findings: &mut Findings) {
    for (id, device) in &survivors.by_id {
        let whole = device.root.and_then(|root| forest.info(root)).filter(|info| info.is_whole());
        if let Some(info) = whole {
            judge_mapped_blocks(live, *id, device, info.entries_below, findings);
        }
    }
}
