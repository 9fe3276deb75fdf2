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
/// space map counts it more often than it was reached. Devices with the same number of mappings are told apart by
/// an upper leaf that is out of use, see [`Candidates::by_old_leaf`].
pub(super) fn missing_roots(
    source: &dyn BlockSource,
    scan: &Scan,
    devices: &Devices,
    ledger: &Ledger,
    stored: Option<&StoredCounts>,
) -> BTreeMap<ThinId, BlockNr> {
    let missing = |block: BlockNr| match stored.and_then(|stored| stored.get(block)) {
        Some(count) => count.saturating_sub(ledger.count(block)),
        None => u32::from(ledger.count(block) == 0),
    };
    let nodes = scan.all(Kind::Leaf(8)).chain(scan.all(Kind::Internal));
    let loose: BTreeMap<BlockNr, u32> =
        nodes.map(|(block, _)| (block, missing(block))).filter(|(_, missing)| *missing > 0).collect();
    let probe = candidates::probe(source, loose.keys().copied().collect());
    let mut groups: BTreeMap<u64, Candidates> = BTreeMap::new();
    for (id, device) in &devices.by_id {
        if let (None, Some(details)) = (device.root, device.details) {
            groups.entry(details.mapped_blocks.get()).or_default().devices.insert(*id);
        }
    }
    for (block, missing) in &loose {
        if let Some(info) = probe.info(*block).filter(|info| info.is_whole())
            && let Some(group) = groups.get_mut(&info.entries_below)
        {
            group.roots.insert(*block, *missing);
        }
    }
    let old_leaves = candidates::top_level_leaves(source, scan);
    groups.into_values().flat_map(|group| group.matched(old_leaves.values())).collect()
}

/// Devices with the same number of mappings, and the roots that they may have had.
#[derive(Default)]
struct Candidates {
    devices: BTreeSet<ThinId>,
    /// Roots of whole trees with so many mappings, and the references to them that nobody holds.
    roots: BTreeMap<BlockNr, u32>,
}

impl Candidates {
    fn matched<'a>(
        &self,
        old_leaves: impl Iterator<Item = &'a BTreeMap<ThinId, BlockNr>>,
    ) -> BTreeMap<ThinId, BlockNr> {
        // All of them share one root, or there is only one of them.
        if let (Some((root, missing)), 1) = (self.roots.first_key_value(), self.roots.len())
            && self.devices.len() as u64 <= u64::from(*missing)
        {
            return self.devices.iter().map(|id| (*id, *root)).collect();
        }
        let mut answers: Vec<BTreeMap<ThinId, BlockNr>> =
            old_leaves.filter_map(|leaf| self.by_old_leaf(leaf)).collect();
        answers.sort_unstable();
        answers.dedup();
        match answers.pop() {
            Some(only) if answers.is_empty() => only,
            _ => BTreeMap::new(),
        }
    }

    /// The roots that an old leaf gives, if it gives one to every device, and they are all still in use just as often.
    ///
    /// A device comes by a root of its own, or by one of another device when it is made as its snapshot. So where an
    /// old leaf knows all the devices that a root may belong to, nobody can have come by it since.
    fn by_old_leaf(&self, leaf: &BTreeMap<ThinId, BlockNr>) -> Option<BTreeMap<ThinId, BlockNr>> {
        let given: BTreeMap<ThinId, BlockNr> =
            self.devices.iter().map(|id| Some((*id, *leaf.get(id)?))).collect::<Option<_>>()?;
        let mut uses: BTreeMap<BlockNr, u32> = BTreeMap::new();
        given.values().for_each(|root| *uses.entry(*root).or_default() += 1);
        uses.iter().all(|(root, uses)| self.roots.get(root) == Some(uses)).then_some(given)
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
            // A snapshot may have been taken since: only the latest time there is keeps shared blocks safe.
            Some(details) => {
                let model = model(device.id, details);
                (Device { snapshotted_time: pool.time, ..model }, Origin::Recovered)
            }
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
