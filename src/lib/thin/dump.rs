//! Dumping a pool: first every block that is needed is verified, then the text is written.
//!
//! So nothing at all is written where something is damaged. Leaves are turned into text on all threads and written
//! in order; the bytes do not depend on the number of threads.

use super::document::{Document, DocumentDevice, Leaves};
use super::emit::{Emitter, emit};
use super::load::{self, DeviceRoots, Devices, Roots, Snapshot, SnapshotError};
use super::model::{Device, Pool};
use super::salvage::{Account, Salvage, SalvageError, SalvageOptions, salvage};
use super::text::{Format, Writer};
use crate::base::{self, BlockNr, Code, Finding, Findings, Progress, Severity, ThinId};
use crate::block::{BlockSource, ReadError};
use crate::format::superblock::ThinSuperblock;
use crate::pdata::ledger::Ledger;
use crate::pdata::walk::{NoVisitor, Walker};
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
    if findings.worst() == Some(Severity::Fatal) {
        return Err(DumpError::Damaged(findings));
    }
    write(source, &prepared.document, options.format, out, progress)?;
    Ok(DumpOutcome { findings, missing: prepared.missing })
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
    let Salvage { mut document, account, findings } = salvage(source, &salvage_options, progress)?;
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
    if options.flat || options.skip_mappings || options.devices.is_some() {
        document.sharing = None;
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
}

impl Prepared {
    fn new(
        source: &dyn BlockSource,
        options: &DumpOptions,
        progress: &dyn Progress,
        findings: &mut Findings,
    ) -> Result<Self, DumpError> {
        let (superblock, roots) = choose(source, options, findings)?;
        let mut ledger = Ledger::new(load::usable_blocks(source));
        let mut walker = Walker { source, ledger: &mut ledger, findings, progress };
        progress.section("devices", 0);
        let mut all = load::devices(&mut walker, &[roots]).pop().unwrap_or_default();
        let missing = select(&mut all, options.devices.as_deref());
        let paired = pair(&all, &roots, walker.findings);
        let walked = if options.skip_mappings { Devices::default() } else { all };
        progress.section("mappings", superblock.metadata_space_map.nr_allocated.get());
        let forest = load::mappings(&mut walker, &[(roots, &walked)], &NoVisitor);
        let leaves = |root| if options.skip_mappings { Leaves::Skipped } else { Leaves::Tree(root) };
        let devices =
            paired.into_iter().map(|(device, root)| DocumentDevice { device, leaves: leaves(root) }).collect();
        let mut document = Document { pool: pool(&superblock, options), devices, forest, limits: None, sharing: None };
        let whole = findings.worst() < Some(Severity::Fatal);
        if whole && !options.flat && options.devices.is_none() && document.devices.len() > 1 {
            document.find_sharing(source);
        }
        Ok(Prepared { document, missing })
    }
}

fn choose(
    source: &dyn BlockSource,
    options: &DumpOptions,
    findings: &mut Findings,
) -> Result<(ThinSuperblock, Roots), DumpError> {
    let damaged = |findings: &mut Findings| DumpError::Damaged(std::mem::take(findings));
    let Some(live) = load::superblock(source, findings) else { return Err(damaged(findings)) };
    let Some(wanted) = options.metadata_snapshot else {
        let roots = Roots::of(&live, false);
        return Ok((live, roots));
    };
    let location = load::find_snapshot(&live, wanted)?;
    let Some(snapshot) = load::snapshot_superblock(source, location, findings) else { return Err(damaged(findings)) };
    let roots = Roots::of(&snapshot, true);
    Ok((snapshot, roots))
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

/// The devices that both trees know; it is damage where one of them does not.
fn pair(devices: &Devices, roots: &Roots, findings: &mut Findings) -> Vec<(Device, BlockNr)> {
    let mut paired = Vec::new();
    for (id, DeviceRoots { details, root }) in &devices.by_id {
        match (details, root) {
            (Some(details), Some(root)) => {
                let device = Device {
                    id: *id,
                    mapped_blocks: details.mapped_blocks.get(),
                    transaction: details.transaction_id.get(),
                    creation_time: details.creation_time.get(),
                    snapshotted_time: details.snapshotted_time.get(),
                };
                paired.push((device, *root));
            }
            (None, _) => {
                let place = base::Place::device(roots.details_area(), *id);
                findings.push(Finding::new(Code::DeviceWithoutDetails, place));
            }
            (Some(_), None) => {
                let place = base::Place::device(roots.top_level_area(), *id);
                findings.push(Finding::new(Code::DeviceWithoutMappings, place));
            }
        }
    }
    paired
}

fn pool(superblock: &ThinSuperblock, options: &DumpOptions) -> Pool {
    Pool {
        uuid: String::new(),
        time: superblock.time.get(),
        transaction: options.transaction_id.unwrap_or(superblock.transaction_id.get()),
        flags: superblock.flags.get(),
        version: superblock.version.get(),
        data_block_size: options.data_block_size.unwrap_or(superblock.data_block_size.get()),
        nr_data_blocks: options.nr_data_blocks.unwrap_or(superblock.data_space_map.nr_blocks.get()),
    }
}
