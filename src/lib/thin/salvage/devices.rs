//! Devices of which one half is lost: details without a root, or a root without details.

use super::candidates;
use super::scan::{Kind, Scan};
use super::{Origin, Salvaged};
use crate::base::{BlockNr, ThinId};
use crate::block::BlockSource;
use crate::format::details::DeviceDetails;
use crate::pdata::ledger::Ledger;
use crate::pdata::stored::StoredCounts;
use crate::thin::load::Devices;
use crate::thin::model::{Device, Pool};
use std::collections::{BTreeMap, BTreeSet};

/// Roots for devices that have details and no root, where only one can be meant.
///
/// A root is believed where its tree is whole and has exactly as many mappings as the details say, and where the
/// space map counts it more often than it was reached. A leaf of the upper tree that is out of use decides between
/// several.
pub(super) fn missing_roots(
    source: &dyn BlockSource,
    scan: &Scan,
    devices: &Devices,
    ledger: &Ledger,
    stored: Option<&StoredCounts>,
) -> BTreeMap<ThinId, BlockNr> {
    let rootless: BTreeMap<ThinId, u64> = devices
        .by_id
        .iter()
        .filter(|(_, device)| device.root.is_none())
        .filter_map(|(id, device)| Some((*id, device.details?.mapped_blocks.get())))
        .collect();
    let missing = |block: BlockNr| match stored.and_then(|stored| stored.get(block)) {
        Some(count) => count.saturating_sub(ledger.count(block)),
        None => u32::from(ledger.count(block) == 0),
    };
    let mut hints: BTreeMap<ThinId, BTreeSet<BlockNr>> = BTreeMap::new();
    for (id, root) in candidates::top_level_leaves(source, scan).into_values().flatten() {
        if rootless.contains_key(&id) && missing(root) > 0 {
            hints.entry(id).or_default().insert(root);
        }
    }
    let nodes = scan.all(Kind::Leaf(8)).chain(scan.all(Kind::Internal));
    let loose: BTreeSet<BlockNr> = nodes.map(|(block, _)| block).filter(|block| missing(*block) > 0).collect();
    let probe = candidates::probe(source, loose.clone());
    let mut by_count: BTreeMap<u64, Vec<BlockNr>> = BTreeMap::new();
    for block in &loose {
        if let Some(info) = probe.info(*block).filter(|info| info.is_whole()) {
            by_count.entry(info.entries_below).or_default().push(*block);
        }
    }
    let candidates =
        Candidates { hints, by_count, missing: loose.into_iter().map(|block| (block, missing(block))).collect() };
    candidates.match_all(rootless)
}

/// Roots that devices may have had.
struct Candidates {
    /// Roots that a leaf of the upper tree, now out of use, gave a device.
    hints: BTreeMap<ThinId, BTreeSet<BlockNr>>,
    /// Roots of whole trees, by the number of their mappings.
    by_count: BTreeMap<u64, Vec<BlockNr>>,
    /// References to a root that nobody holds so far.
    missing: BTreeMap<BlockNr, u32>,
}

impl Candidates {
    /// Gives every device of `rootless` its root where only one is left that it could be, until nothing more follows.
    fn match_all(mut self, mut rootless: BTreeMap<ThinId, u64>) -> BTreeMap<ThinId, BlockNr> {
        let mut found = BTreeMap::new();
        loop {
            let mut wanted: BTreeMap<u64, u32> = BTreeMap::new();
            rootless.values().for_each(|mapped| *wanted.entry(*mapped).or_default() += 1);
            let only = |(id, mapped): (&ThinId, &u64)| {
                let rivals = wanted.get(mapped).copied().unwrap_or(0);
                self.only(*id, *mapped, rivals).map(|root| (*id, root))
            };
            let Some((id, root)) = rootless.iter().find_map(only) else { return found };
            rootless.remove(&id);
            if let Some(missing) = self.missing.get_mut(&root) {
                *missing = missing.saturating_sub(1);
            }
            found.insert(id, root);
        }
    }

    /// The one root that a device with `mapped` mappings can have had, where `rivals` devices have as many.
    fn only(&self, id: ThinId, mapped: u64, rivals: u32) -> Option<BlockNr> {
        let missing = |block: &BlockNr| self.missing.get(block).copied().unwrap_or(0);
        let fitting = self.by_count.get(&mapped).into_iter().flatten().filter(|block| missing(block) > 0);
        let fitting: Vec<BlockNr> = fitting.copied().collect();
        let hints = self.hints.get(&id);
        let hinted: Vec<BlockNr> =
            fitting.iter().copied().filter(|block| hints.is_some_and(|hints| hints.contains(block))).collect();
        match (hinted.as_slice(), fitting.as_slice()) {
            ([only], _) => Some(*only),
            // Without a hint, every device that it could be must hold a reference to it.
            ([], [only]) if rivals <= missing(only) => Some(*only),
            _ => None,
        }
    }
}

/// The details of every device: live, from a leaf that is out of use, or made up.
pub(super) fn details<'s>(
    source: &dyn BlockSource,
    devices: &Devices,
    salvaged: &[Salvaged],
    pool: &Pool,
    scan: &dyn Fn() -> &'s Scan,
) -> BTreeMap<ThinId, (Device, Origin)> {
    let mut all = BTreeMap::new();
    let mut without = Vec::new();
    for device in salvaged {
        match devices.by_id.get(&device.id).and_then(|roots| roots.details) {
            Some(details) => {
                all.insert(device.id, (model(device.id, &details), Origin::Live));
            }
            None => without.push(device),
        }
    }
    if without.is_empty() {
        return all;
    }
    let mut old: BTreeMap<ThinId, Vec<DeviceDetails>> = BTreeMap::new();
    for (block, _) in scan().all(Kind::Leaf(24)) {
        for (id, details) in candidates::details_of(source, block) {
            old.entry(id).or_default().push(details);
        }
    }
    for device in without {
        let fits = |details: &&DeviceDetails| {
            details.mapped_blocks.get() == device.found && details.snapshotted_time.get() <= pool.time
        };
        let newest = old.get(&device.id).into_iter().flatten().filter(fits);
        let newest = newest.max_by_key(|details| (details.snapshotted_time.get(), details.transaction_id.get()));
        let made = match newest {
            Some(details) => (model(device.id, details), Origin::Recovered),
            None => (Device { mapped_blocks: device.found, ..Device::unknown(device.id, pool) }, Origin::Made),
        };
        all.insert(device.id, made);
    }
    all
}

fn model(id: ThinId, details: &DeviceDetails) -> Device {
    Device {
        id,
        mapped_blocks: details.mapped_blocks.get(),
        transaction: details.transaction_id.get(),
        creation_time: details.creation_time.get(),
        snapshotted_time: details.snapshotted_time.get(),
    }
}
