//! Checking a pool: everything that is there is read, counted and compared. Writes nothing, by its types.

use super::judge::{Bounds, judge_mapped_blocks};
use super::load::{self, DeviceRoots, Roots, Snapshot, SnapshotError};
use super::report::{DeviceReport, Report};
use crate::base::{Area, BlockNr, Code, Finding, Findings, KeyRange, Place, Progress, Severity, ThinId};
use crate::block::BlockSource;
use crate::format::node::Node;
use crate::format::space_map::ENTRIES_PER_BITMAP;
use crate::format::superblock::ThinSuperblock;
use crate::pdata::counts::{Counts, Tally};
use crate::pdata::forest::{Forest, NodeInfo, Step};
use crate::pdata::ledger::{BlockUse, Ledger, Referred};
use crate::pdata::space_map::SpaceMap;
use crate::pdata::walk::{LeafVisitor, Walker};
use std::ops::ControlFlow;
use zerocopy::byteorder::little_endian::U64;

/// Key ranges that a report lists for one device; what is lost beyond is only counted.
const RANGES_PER_DEVICE: usize = 100;

/// What to check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Check the trees of this metadata snapshot alone, without space maps.
    pub metadata_snapshot: Option<Snapshot>,
    /// Look at the superblock only.
    pub superblock_only: bool,
    /// Look at the details tree and the upper mapping tree only.
    pub skip_mappings: bool,
    /// Take the mapping root from here instead of the superblock.
    pub mapping_root: Option<BlockNr>,
    /// Take the details root from here instead of the superblock.
    pub details_root: Option<BlockNr>,
}

/// Checks the metadata in `source`.
///
/// `on_superblock` is called as soon as the superblock has been read, before the trees are.
///
/// # Errors
/// Where a metadata snapshot is to be checked that there isn't. Damage is no error: it is in the report.
pub fn check(
    source: &dyn BlockSource,
    options: &CheckOptions,
    progress: &dyn Progress,
    on_superblock: &mut dyn FnMut(&ThinSuperblock),
) -> Result<Report, SnapshotError> {
    check_and_count(source, options, progress, on_superblock).map(|(report, _)| report)
}

/// The references that a whole check has counted.
#[derive(Debug)]
pub struct Counted {
    /// To data blocks.
    pub data: Counts,
    /// To metadata blocks.
    pub metadata: Ledger,
}

/// As [`check`]; also gives what was counted, where everything was looked at.
///
/// # Errors
/// As [`check`].
pub fn check_and_count(
    source: &dyn BlockSource,
    options: &CheckOptions,
    progress: &dyn Progress,
    on_superblock: &mut dyn FnMut(&ThinSuperblock),
) -> Result<(Report, Option<Counted>), SnapshotError> {
    let mut findings = Findings::new();
    let Some(superblock) = load::superblock(source, &mut findings) else {
        return Ok((Report::without_superblock(findings), None));
    };
    on_superblock(&superblock);
    if let Some(wanted) = options.metadata_snapshot {
        load::find_snapshot(&superblock, wanted)?;
    }
    let mut report = Report::new(&superblock);
    report.overridden = options.mapping_root.is_some() || options.details_root.is_some();
    let mut counted = None;
    if !options.superblock_only {
        let mut ledger = Ledger::new(load::usable_blocks(source));
        let mut check = Check {
            superblock: &superblock,
            options,
            walker: Walker { source, ledger: &mut ledger, findings: &mut findings, progress },
        };
        let data = check.run(&mut report);
        counted = data.map(|data| Counted { data, metadata: ledger });
    }
    report.finish(findings);
    Ok((report, counted))
}

struct Check<'a> {
    superblock: &'a ThinSuperblock,
    options: &'a CheckOptions,
    walker: Walker<'a>,
}

impl Check<'_> {
    /// Returns the counts of data blocks, where everything was looked at.
    fn run(&mut self, report: &mut Report) -> Option<Counts> {
        let bounds = Bounds::of(self.superblock);
        let pairs = self.pairs();
        self.walker.progress.section("devices", 0);
        let devices = load::devices(&mut self.walker, &pairs);
        for (pair, devices) in pairs.iter().zip(&devices) {
            bounds.judge_devices(pair, devices, self.walker.findings);
        }
        let mut trees_whole = devices.iter().all(|devices| devices.details_whole && devices.top_level_whole);
        if self.options.skip_mappings {
            for (pair, devices) in pairs.iter().zip(&devices) {
                report.devices.extend(devices.by_id.iter().map(|(id, device)| unread_device(pair, *id, device)));
            }
            report.top_level_whole = trees_whole;
            return None;
        }
        // No more can be counted than bitmaps could describe, whatever the superblock says.
        let countable = bounds.nr_data_blocks.min(self.walker.ledger.nr_blocks().saturating_mul(ENTRIES_PER_BITMAP));
        let visitor =
            MappingVisitor { counts: Counts::new(countable), bounds: Bounds { nr_data_blocks: countable, ..bounds } };
        self.walker.progress.section("mappings", self.superblock.metadata_space_map.nr_allocated.get());
        let with_devices: Vec<_> = pairs.iter().copied().zip(&devices).collect();
        let forest = load::mappings(&mut self.walker, &with_devices, &visitor);
        trees_whole &= forest.is_whole();
        report.top_level_whole = devices.iter().all(|devices| devices.top_level_whole);
        for (pair, devices) in &with_devices {
            for (id, device) in &devices.by_id {
                report.devices.push(self.judge_mappings(pair, *id, device, &forest));
            }
        }
        if self.options.metadata_snapshot.is_some() {
            return None;
        }
        self.space_maps(report, &visitor.counts, trees_whole);
        Some(visitor.counts)
    }

    /// The pairs of trees to look at: the live ones and the snapshot's, or one of them.
    fn pairs(&mut self) -> Vec<Roots> {
        let mut pairs = Vec::new();
        if self.options.metadata_snapshot.is_none() {
            let mut live = Roots::of(self.superblock, false);
            live.mapping = self.options.mapping_root.unwrap_or(live.mapping);
            live.details = self.options.details_root.unwrap_or(live.details);
            pairs.push(live);
        }
        if let Some(location) = self.superblock.held_root() {
            let place = Place::block(Area::SnapshotSuperblock, location);
            let refused = match self.walker.ledger.refer(location, BlockUse::Superblock) {
                Referred::First => None,
                Referred::OutOfRange => Some("past the end of the metadata"),
                _ => Some("the block is in use for something else"),
            };
            match refused {
                Some(detail) => self.walker.findings.push(Finding::with(Code::HeldRootInvalid, place, detail)),
                None => {
                    let found =
                        load::snapshot_superblock(self.walker.source, location, self.superblock, self.walker.findings);
                    pairs.extend(found.map(|superblock| Roots::of(&superblock, true)));
                }
            }
        }
        pairs
    }

    /// What was found of a device, and what is missing.
    fn judge_mappings(&mut self, pair: &Roots, id: ThinId, device: &DeviceRoots, forest: &Forest) -> DeviceReport {
        let mut report = unread_device(pair, id, device);
        report.found = Some(0);
        let Some(root) = device.root else { return report };
        let info = forest.info(root);
        report.found = Some(info.map_or(0, |info| if info.is_good() { info.entries_below } else { 0 }));
        report.whole = info.is_some_and(NodeInfo::is_whole);
        if !report.whole {
            self.lost_ranges(&mut report, root, forest);
        } else if let Some(found) = report.found {
            judge_mapped_blocks(pair, id, device, found, self.walker.findings);
        }
        report
    }

    fn lost_ranges(&self, report: &mut DeviceReport, root: BlockNr, forest: &Forest) {
        forest.traverse_damage(self.walker.source, root, &mut |step| {
            let Step::Lost(keys, _) = step else { return ControlFlow::Continue(()) };
            let room = report.lost_ranges.len() < RANGES_PER_DEVICE;
            match report.lost_ranges.last_mut() {
                Some(last) if last.end == Some(keys.begin) => last.end = keys.end,
                _ if room => report.lost_ranges.push(keys),
                _ => {
                    report.more_ranges = true;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
    }

    fn space_maps(&mut self, report: &mut Report, data: &Counts, trees_whole: bool) {
        self.walker.progress.section("space maps", 0);
        let data_map = SpaceMap::load_data(&mut self.walker, &self.superblock.data_space_map);
        let metadata_map = SpaceMap::load_metadata(&mut self.walker, &self.superblock.metadata_space_map);
        let held_root_lost = self.walker.findings.count(Code::HeldRootInvalid) > 0;
        // References that could not be followed are missing from the counts.
        let judge_leaks = trees_whole && !held_root_lost && !report.overridden;
        let (source, findings) = (self.walker.source, &mut *self.walker.findings);
        report.data = Some(data_map.compare(source, data, judge_leaks, findings));
        let maps_whole = data_map.is_whole() && metadata_map.is_whole();
        let ledger = &*self.walker.ledger;
        report.metadata = Some(metadata_map.compare(source, ledger, judge_leaks && maps_whole, findings));
        let described = self.superblock.metadata_space_map.nr_blocks.get();
        let beyond: Vec<u64> =
            (described..ledger.nr_blocks()).filter(|block| ledger.count(BlockNr(*block)) > 0).collect();
        if let (Some(first), Some(last)) = (beyond.first(), beyond.last()) {
            let keys = Some(KeyRange { begin: *first, end: Some(last + 1) });
            let detail = format!("{} blocks past the end of the space map are in use", beyond.len());
            let place = Place { keys, ..Place::area(Area::MetadataSpaceMap) };
            findings.push(Finding::with(Code::MetadataCountLow, place, detail));
        }
    }
}

fn unread_device(pair: &Roots, id: ThinId, device: &DeviceRoots) -> DeviceReport {
    DeviceReport {
        id,
        snapshot: pair.snapshot,
        expected: device.details.map(|details| details.mapped_blocks.get()),
        found: None,
        whole: device.root.is_some(),
        lost_ranges: Vec::new(),
        more_ranges: false,
    }
}

/// Judges mappings, and counts the data blocks that they lead to.
pub(super) struct MappingVisitor {
    pub(super) counts: Counts,
    pub(super) bounds: Bounds,
}

impl LeafVisitor for MappingVisitor {
    type Local = Tally;

    fn local(&self) -> Tally {
        Tally::default()
    }

    fn visit(&self, tally: &mut Tally, leaf: &Node<'_>, place: Place, findings: &mut Findings) {
        let values = leaf.values_u64();
        self.bounds.judge_leaf(leaf, place, findings);
        let block = |value: &U64| value.get() >> 24;
        let breaks = values.windows(2).map(|pair| u32::from(block(&pair[1]) != block(&pair[0]) + 1)).sum::<u32>();
        if breaks as usize * 4 > values.len() {
            // Scattered: looking for runs would cost more than it saves.
            self.counts.add(tally, values.iter().map(block));
            return;
        }
        for run in values.chunk_by(|left, right| block(right) == block(left) + 1) {
            self.counts.add_run(tally, block(&run[0]), run.len() as u64);
        }
    }

    fn finish(&self, mut tally: Tally) {
        self.counts.settle(&mut tally);
    }
}

/// Whether a report of this severity makes a check fail.
pub fn fails(worst: Option<Severity>, ignore_non_fatal: bool) -> bool {
    match worst {
        Some(Severity::Fatal) => true,
        Some(Severity::NonFatal) => !ignore_non_fatal,
        Some(Severity::Note) | None => false,
    }
}
