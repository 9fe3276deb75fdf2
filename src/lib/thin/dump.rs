//! Dumping a pool: first every block that is needed is verified, then the text is written.
//!
//! So nothing at all is written where something is damaged. Leaves are turned into text on all threads and written
//! in order; the bytes do not depend on the number of threads.

use super::document::{Document, DocumentDevice, Leaves};
use super::emit::{Emitter, emit};
use super::judge::{Bounds, judge_mapped_blocks};
use super::load::{self, Devices, Roots, Snapshot, SnapshotError};
use super::model::{Device, Lowered, Pool, lowered};
use super::salvage::{Account, Salvage, SalvageError, SalvageOptions, salvage_put_back};
use super::text::{Format, Writer};
use crate::base::{Area, BlockNr, Code, Finding, Findings, Progress, Severity, ThinId};
use crate::block::{BlockSource, ReadError};
use crate::format::details::DeviceDetails;
use crate::format::superblock::ThinSuperblock;
use crate::pdata::ledger::Ledger;
use crate::pdata::walk::Walker;
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::RangeInclusive;

/// What to dump, and how.
#[derive(Clone, Debug, Default)]
pub struct DumpOptions {
    /// The form.
    pub format: Format,
    /// Dump what this metadata snapshot holds.
    pub metadata_snapshot: Option<Snapshot>,
    /// Only these devices; ids may be absent. Implies `flat`.
    pub devices: Option<Vec<RangeInclusive<u64>>>,
    /// Devices without their mappings.
    pub skip_mappings: bool,
    /// Repeat shared mappings in every device instead of naming them once.
    pub flat: bool,
    /// Write this transaction id.
    pub transaction_id: Option<u64>,
    /// Write this data block size, in sectors.
    pub data_block_size: Option<u32>,
    /// Write this number of data blocks.
    pub nr_data_blocks: Option<u64>,
}

/// What a dump has to say beside its text.
#[derive(Clone, Debug, Default)]
pub struct DumpOutcome {
    /// What was found that did not keep it from dumping.
    pub findings: Findings,
    /// Ids and ranges asked for in which there is no device.
    pub missing: Vec<RangeInclusive<u64>>,
    /// What was written lower than the pool has it.
    pub lowered: Vec<Lowered>,
}

/// Why there is no dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The metadata is damaged. Nothing was written.
    #[error("the metadata is damaged")]
    Damaged(Findings),
    /// There is no such metadata snapshot.
    #[error(transparent)]
    NoSnapshot(#[from] SnapshotError),
    /// Nothing could be salvaged. Nothing was written.
    #[error(transparent)]
    NotSalvaged(#[from] SalvageError),
    /// A block that was good before could not be read again. What was written is incomplete.
    #[error("block {0} could be read at first, and then not: {1}")]
    Vanished(BlockNr, ReadError),
    /// The text could not be written.
    #[error("cannot write the dump: {0}")]
    Write(#[from] std::io::Error),
}

/// Dumps the metadata in `source` to `out`.
///
/// # Errors
/// Damage is found before anything is written; only an output that fails, or a source that fails between the two
/// passes, leaves a part of the text.
pub fn dump(
    source: &dyn BlockSource,
    options: &DumpOptions,
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<DumpOutcome, DumpError> {
    let mut findings = Findings::new();
    let prepared = Prepared::new(source, options, progress, &mut findings)?;
    if keeps_from_dumping(&findings, options.devices.as_deref()) {
        return Err(DumpError::Damaged(findings));
    }
    write(source, &prepared.document, options.format, out, progress)?;
    Ok(DumpOutcome { findings, missing: prepared.missing, lowered: prepared.lowered })
}

/// Dumps what can be salvaged of damaged metadata.
///
/// `options` may not ask for a metadata snapshot; its overrides count, and its choice of devices.
///
/// # Errors
/// Where there is nothing to begin with, before anything is written; or where the output fails.
pub fn dump_salvaged(
    source: &dyn BlockSource,
    options: &DumpOptions,
    roots: Option<(BlockNr, BlockNr)>,
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<SalvagedDump, DumpError> {
    let salvage_options = SalvageOptions {
        roots,
        transaction_id: options.transaction_id,
        data_block_size: options.data_block_size,
        nr_data_blocks: options.nr_data_blocks,
    };
    let (Salvage { mut document, account, findings }, source) = salvage_put_back(source, &salvage_options, progress)?;
    let source = &source;
    let mut missing = Vec::new();
    if let Some(wanted) = &options.devices {
        let found =
            |range: &RangeInclusive<u64>| document.devices.iter().any(|device| range.contains(&device.device.id.0));
        missing.extend(wanted.iter().filter(|range| !range.is_empty() && !found(range)).cloned());
        document.devices.retain(|device| wanted.iter().any(|range| range.contains(&device.device.id.0)));
    }
    if options.skip_mappings {
        document.devices.iter_mut().for_each(|device| device.leaves = Leaves::Skipped);
    }
    if !options.flat && !options.skip_mappings && options.devices.is_none() && document.devices.len() > 1 {
        document.find_sharing(source);
    }
    write(source, &document, options.format, out, progress)?;
    Ok(SalvagedDump { account, findings, missing })
}

/// What a dump of salvaged metadata has to say beside its text.
#[derive(Clone, Debug)]
pub struct SalvagedDump {
    /// What was found and lost.
    pub account: Account,
    /// The damage.
    pub findings: Findings,
    /// Ids and ranges asked for in which there is no device.
    pub missing: Vec<RangeInclusive<u64>>,
}

/// Writes a document whose blocks have all been verified.
pub(super) fn write(
    source: &dyn BlockSource,
    document: &Document,
    format: Format,
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<(), DumpError> {
    let faults = source.nr_faults();
    let forest = &document.forest;
    let leaves = forest.reached().filter(|block| forest.info(*block).is_some_and(|info| info.is_leaf()));
    progress.section("writing", leaves.count() as u64);
    emit(&mut Emitter::new(source, Writer(format), out, progress), document)?;
    if source.nr_faults() != faults {
        return Err(DumpError::Vanished(BlockNr(0), ReadError::Io("the file or device failed meanwhile".into())));
    }
    Ok(())
}

/// Everything that is known before the first byte is written.
struct Prepared {
    document: Document,
    missing: Vec<RangeInclusive<u64>>,
    lowered: Vec<Lowered>,
}

impl Prepared {
    fn new(
        source: &dyn BlockSource,
        options: &DumpOptions,
        progress: &dyn Progress,
        findings: &mut Findings,
    ) -> Result<Self, DumpError> {
        let Chosen { superblock, roots, bounds } = choose(source, options, findings)?;
        let mut ledger = Ledger::new(load::usable_blocks(source));
        let mut walker = Walker { source, ledger: &mut ledger, findings, progress };
        progress.section("devices", 0);
        let mut all = load::devices(&mut walker, &[roots]).pop().unwrap_or_default();
        let missing = select(&mut all, options.devices.as_deref());
        bounds.judge_devices(&roots, &all, walker.findings);
        let none = Devices::default();
        let walked = if options.skip_mappings { &none } else { &all };
        progress.section("mappings", superblock.metadata_space_map.nr_allocated.get());
        let forest = load::mappings(&mut walker, &[(roots, walked)], &bounds);
        for (id, device) in &walked.by_id {
            let whole = device.root.and_then(|root| forest.info(root)).filter(|info| info.is_whole());
            if let Some(info) = whole {
                judge_mapped_blocks(&roots, *id, device, info.entries_below, findings);
            }
        }
        let leaves = |root| if options.skip_mappings { Leaves::Skipped } else { Leaves::Tree(root) };
        let devices =
            paired(&all).into_iter().map(|(device, root)| DocumentDevice { device, leaves: leaves(root) }).collect();
        let mut document = Document { pool: pool(&superblock, options), devices, forest, limits: None, sharing: None };
        let whole = !keeps_from_dumping(findings, options.devices.as_deref());
        if whole && !options.flat && options.devices.is_none() && document.devices.len() > 1 {
            document.find_sharing(source);
        }
        let lowered = lowered(&Pool::of(&superblock), &document.pool);
        Ok(Prepared { document, missing, lowered })
    }
}

/// Where a dump begins.
struct Chosen {
    /// The live superblock, or the metadata snapshot's.
    superblock: ThinSuperblock,
    roots: Roots,
    bounds: Bounds,
}

fn choose(source: &dyn BlockSource, options: &DumpOptions, findings: &mut Findings) -> Result<Chosen, DumpError> {
    let damaged = |findings: &mut Findings| DumpError::Damaged(std::mem::take(findings));
    let Some(live) = load::superblock(source, findings) else { return Err(damaged(findings)) };
    let bounds = Bounds::of(&live);
    let Some(wanted) = options.metadata_snapshot else {
        let roots = Roots::of(&live, false);
        return Ok(Chosen { superblock: live, roots, bounds });
    };
    let location = load::find_snapshot(&live, wanted)?;
    let Some(snapshot) = load::snapshot_superblock(source, location, &live, findings) else {
        return Err(damaged(findings));
    };
    let roots = Roots::of(&snapshot, true);
    Ok(Chosen { superblock: snapshot, roots, bounds })
}

/// Whether what was found keeps the devices asked for from being dumped.
fn keeps_from_dumping(findings: &Findings, wanted: Option<&[RangeInclusive<u64>]>) -> bool {
    let mut fatal = findings.counts().iter().filter(|(code, _)| code.problem().severity == Severity::Fatal);
    fatal.any(|(code, count)| {
        // A device that is too short keeps nobody from what is on it: blocks that are not there tell themselves.
        let judged = |finding: &&Finding| finding.code == *code && !lies_elsewhere(finding, wanted);
        let all_known = findings.iter().filter(|finding| finding.code == *code).count() as u64 == *count;
        *code != Code::DeviceTooShort && (!all_known || findings.iter().any(|finding| judged(&finding)))
    })
}

/// Whether a finding is about a part of an upper tree that no device asked for is in.
fn lies_elsewhere(finding: &Finding, wanted: Option<&[RangeInclusive<u64>]>) -> bool {
    let upper = [Area::Details, Area::TopLevel, Area::SnapshotDetails, Area::SnapshotTopLevel];
    let (Some(wanted), Some(keys)) = (wanted, finding.place.keys) else { return false };
    let before = |range: &RangeInclusive<u64>| keys.end.is_some_and(|end| end <= *range.start());
    upper.contains(&finding.place.area) && wanted.iter().all(|range| before(range) || keys.begin > *range.end())
}

/// Keeps the devices asked for; returns what was asked for in vain.
fn select(devices: &mut Devices, wanted: Option<&[RangeInclusive<u64>]>) -> Vec<RangeInclusive<u64>> {
    let Some(wanted) = wanted else { return Vec::new() };
    let mut kept = BTreeSet::new();
    let mut missing = Vec::new();
    for range in wanted.iter().filter(|range| !range.is_empty()) {
        let mut found =
            devices.by_id.range(ThinId(*range.start())..=ThinId(*range.end())).map(|(id, _)| *id).peekable();
        if found.peek().is_none() {
            missing.push(range.clone());
        }
        kept.extend(found);
    }
    devices.by_id.retain(|id, _| kept.contains(id));
    missing
}

/// The devices that both trees know, and their roots.
pub(super) fn paired(devices: &Devices) -> Vec<(Device, BlockNr)> {
    let known = devices.by_id.iter().filter_map(|(id, device)| Some((id, device.details?, device.root?)));
    let device = |(id, details, root): (&ThinId, DeviceDetails, BlockNr)| {
        let device = Device {
            id: *id,
            mapped_blocks: details.mapped_blocks.get(),
            transaction: details.transaction_id.get(),
            creation_time: details.creation_time.get(),
            snapshotted_time: details.snapshotted_time.get(),
        };
        (device, root)
    };
    known.map(device).collect()
}

/// What holds for the whole pool.
pub(super) fn pool(superblock: &ThinSuperblock, options: &DumpOptions) -> Pool {
    let own = Pool::of(superblock);
    Pool {
        transaction: options.transaction_id.unwrap_or(own.transaction),
        data_block_size: options.data_block_size.unwrap_or(own.data_block_size),
        nr_data_blocks: options.nr_data_blocks.unwrap_or(own.nr_data_blocks),
        ..own
    }
}
