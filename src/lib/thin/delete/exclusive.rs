//! What only the victims use, found by reading everything. Needs no free blocks, and doesn't believe the stored counts.
//!
//! Takes 37 bytes of memory per metadata block, twice, and two bits per data block, twice.

use super::recount::count;
use super::target::damaged;
use super::{DeleteError, Target};
use crate::base::{BlockNr, Findings, Progress, Severity, ThinId};
use crate::format::space_map::{ENTRIES_PER_BITMAP, nr_bitmaps};
use crate::pdata::counts::Counts;
use crate::pdata::forest::Forest;
use crate::pdata::ledger::Ledger;
use crate::pdata::walk::Walker;
use crate::thin::check::MappingVisitor;
use crate::thin::judge::Bounds;
use crate::thin::load::{self, Devices};
use std::collections::BTreeSet;
use std::ops::Range;

/// What goes when the victims go.
pub(super) struct Exclusive {
    /// The nodes of the victims' mapping trees.
    pub(super) forest: Forest,
    /// Ascending ranges of data blocks that nobody else uses.
    pub(super) freed: Vec<Range<u64>>,
    /// References of those that stay.
    stays: Ledger,
}

impl Exclusive {
    /// Reads all devices, and the metadata snapshot.
    ///
    /// # Errors
    /// Where a survivor or a victim is damaged.
    pub(super) fn of(
        target: &Target<'_>,
        victims: &BTreeSet<ThinId>,
        progress: &dyn Progress,
    ) -> Result<Exclusive, DeleteError> {
        let staying = count(target, victims, progress)?;
        let mut ledger = Ledger::new(load::usable_blocks(target.source));
        let mut findings = Findings::new();
        let bounds = Bounds::of(&target.superblock);
        let visitor = MappingVisitor { counts: Counts::new(bounds.nr_data_blocks), bounds };
        let by_id = target.devices.by_id.iter().filter(|(id, _)| victims.contains(id));
        let going = Devices { by_id: by_id.map(|(id, device)| (*id, *device)).collect(), ..target.devices };
        let mut walker = Walker { source: target.source, ledger: &mut ledger, findings: &mut findings, progress };
        let forest = load::mappings(&mut walker, &[(target.roots, &going)], &visitor);
        if findings.worst() == Some(Severity::Fatal) {
            return Err(damaged(findings));
        }
        Ok(Exclusive { forest, freed: only_in(&visitor.counts, &staying.data), stays: staying.metadata })
    }

    /// Whether nobody but the victims leads to the block of a node.
    pub(super) fn goes(&self, block: BlockNr) -> bool {
        self.stays.count(block) == 0
    }

    /// Metadata blocks of mappings that go.
    pub(super) fn nr_nodes(&self) -> u64 {
        self.forest.reached().filter(|block| self.goes(*block)).count() as u64
    }

    /// Data blocks that go.
    pub(super) fn nr_data(&self) -> u64 {
        self.freed.iter().map(|range| range.end - range.start).sum()
    }
}

/// Blocks that are counted in `one` and not in `other`.
fn only_in(one: &Counts, other: &Counts) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for index in 0..nr_bitmaps(one.nr_blocks()) {
        one.with_bitmap(index, |counts| {
            counts.each(&mut |entry, _| {
                let block = index * ENTRIES_PER_BITMAP + entry as u64;
                if other.get(block) > 0 {
                    return;
                }
                match ranges.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    _ => ranges.push(block..block + 1),
                }
            });
        });
    }
    ranges
}
