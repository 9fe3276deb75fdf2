//! Where new data blocks are taken from.

use super::Allocation;
use crate::base::ThinId;
use crate::format::space_map::ENTRIES_PER_BITMAP;
use crate::pdata::overlay::Overlay;
use std::collections::{BTreeMap, BTreeSet};

/// So many runs are looked at for an aligned one.
const RUNS_MAX: usize = 1000;

/// How far each device and the whole pool have come.
#[derive(Clone, Debug)]
pub struct Cursors {
    allocation: Allocation,
    by_device: BTreeMap<ThinId, u64>,
    all: u64,
}

impl Cursors {
    /// Nothing taken yet.
    pub fn new(allocation: Allocation) -> Cursors {
        Cursors { allocation, by_device: BTreeMap::new(), all: 0 }
    }

    /// Where a free block is looked for first.
    fn goal(&self, overlay: &Overlay<'_>, dev: ThinId) -> u64 {
        let own = self.by_device.get(&dev).copied();
        match self.allocation {
            Allocation::Cursor => self.all,
            Allocation::Goal | Allocation::Shared => {
                own.unwrap_or(dev.0.wrapping_mul(ENTRIES_PER_BITMAP) % overlay.data.nr_blocks().max(1))
            }
            Allocation::Apart => match own {
                Some(at) if !at.is_multiple_of(ENTRIES_PER_BITMAP) => at,
                _ => self.unused_bitmap(overlay, dev).unwrap_or(self.all),
            },
            Allocation::Aligned(run) => match own {
                Some(at) if !at.is_multiple_of(run) => at,
                _ => self.free_run(overlay, run),
            },
        }
    }

    /// The bitmap in which the next block of a device is looked for.
    pub fn next_bitmap(&self, overlay: &Overlay<'_>, dev: ThinId) -> u64 {
        let goal = self.goal(overlay, dev);
        overlay.data.find_free(goal).unwrap_or(goal) / ENTRIES_PER_BITMAP
    }

    /// Takes a data block. `None` where the pool is full.
    pub fn take(&mut self, overlay: &mut Overlay<'_>, dev: ThinId) -> Option<u64> {
        let goal = self.goal(overlay, dev);
        let found = overlay.take_data(goal).or_else(|| overlay.take_data(0))?;
        self.by_device.insert(dev, found + 1);
        self.all = self.all.max(found + 1);
        Some(found)
    }

    /// A bitmap with free blocks that no other device is using.
    fn unused_bitmap(&self, overlay: &Overlay<'_>, dev: ThinId) -> Option<u64> {
        let others = self.by_device.iter().filter(|(other, _)| **other != dev);
        let others: BTreeSet<u64> = others.map(|(_, at)| at.saturating_sub(1) / ENTRIES_PER_BITMAP).collect();
        let mut from = 0;
        while let Some(found) = overlay.data.find_free(from) {
            if !others.contains(&(found / ENTRIES_PER_BITMAP)) {
                return Some(found);
            }
            from = (found / ENTRIES_PER_BITMAP + 1) * ENTRIES_PER_BITMAP;
        }
        None
    }

    /// The first aligned run of blocks that are all free.
    fn free_run(&self, overlay: &Overlay<'_>, run: u64) -> u64 {
        let is_free = |block: u64| overlay.data.find_free(block) == Some(block);
        let mut at = self.all.next_multiple_of(run);
        for _ in 0..RUNS_MAX {
            let Some(found) = overlay.data.find_free(at) else { break };
            if found == at && (at + 1..at + run).all(is_free) {
                return at;
            }
            at = if found == at { at + run } else { found.next_multiple_of(run) };
        }
        self.all
    }
}
