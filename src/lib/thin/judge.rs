//! What holds for every device and every mapping, whoever reads them: a check or a dump.

use super::load::{DeviceRoots, Devices, Roots};
use crate::base::{Code, DataBlock, Finding, Findings, KeyRange, Place, ThinId};
use crate::format::details::DeviceDetails;
use crate::format::mapping;
use crate::format::node::Node;
use crate::format::superblock::{DEVICE_ID_LIMIT, ThinSuperblock};
use crate::pdata::walk::LeafVisitor;

/// What no device and no mapping of a pool may exceed.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Blocks of the data device.
    pub nr_data_blocks: u64,
    /// The pool's time.
    pub time: u32,
    /// The pool's transaction id.
    pub transaction_id: u64,
}

impl Bounds {
    /// Those that the live superblock gives. A metadata snapshot's has no number of data blocks, and is older.
    pub fn of(live: &ThinSuperblock) -> Bounds {
        Bounds {
            nr_data_blocks: live.data_space_map.nr_blocks.get(),
            time: live.time.get(),
            transaction_id: live.transaction_id.get(),
        }
    }

    /// Holds the details tree against the upper mapping tree, and the details against the superblock.
    pub fn judge_devices(&self, pair: &Roots, devices: &Devices, findings: &mut Findings) {
        for (id, device) in &devices.by_id {
            let mut push = |area, code, detail: String| {
                findings.push(Finding::with(code, Place::device(area, *id), detail));
            };
            if id.0 >= DEVICE_ID_LIMIT {
                push(pair.details_area(), Code::DeviceId, String::new());
            }
            // A device missing from a damaged tree is not a contradiction, the damage has been told already.
            match device.details {
                Some(details) => {
                    if device.root.is_none() && devices.top_level_whole {
                        let detail = format!("{} mapped blocks expected", details.mapped_blocks.get());
                        push(pair.top_level_area(), Code::DeviceWithoutMappings, detail);
                    }
                    self.judge_details(&details, &mut |code, detail| push(pair.details_area(), code, detail));
                }
                None if devices.details_whole => push(pair.details_area(), Code::DeviceWithoutDetails, String::new()),
                None => {}
            }
        }
    }

    fn judge_details(&self, details: &DeviceDetails, push: &mut dyn FnMut(Code, String)) {
        let (created, snapped) = (details.creation_time.get(), details.snapshotted_time.get());
        if created > self.time || snapped > self.time || created > snapped {
            let detail = format!("created {created}, snapshotted {snapped}, the pool's time is {}", self.time);
            push(Code::DeviceTime, detail);
        }
        let transaction = details.transaction_id.get();
        if transaction > self.transaction_id {
            push(Code::DeviceTransaction, format!("{transaction} above {}", self.transaction_id));
        }
    }

    /// Looks at every mapping of a leaf.
    #[inline]
    pub fn judge_leaf(&self, leaf: &Node<'_>, place: Place, findings: &mut Findings) {
        let (mut highest, mut latest) = (0, 0);
        for value in leaf.values_u64() {
            highest = highest.max(value.get());
            latest = latest.max(value.get() & 0xff_ffff);
        }
        if (highest >> 24 >= self.nr_data_blocks && !leaf.is_empty()) || latest > u64::from(self.time) {
            self.tell_of_leaf(leaf, place, findings);
        }
    }

    #[cold]
    fn tell_of_leaf(&self, leaf: &Node<'_>, place: Place, findings: &mut Findings) {
        let entries = || leaf.keys().iter().zip(leaf.values_u64()).map(|(key, value)| (key.get(), value.get()));
        let mut report = |code, bad: &dyn Fn(DataBlock, u32) -> bool| {
            let keys: Vec<u64> = entries()
                .filter(|(_, value)| {
                    let (block, time) = mapping::unpack(*value);
                    bad(block, time)
                })
                .map(|(key, _)| key)
                .collect();
            if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
                let keys_range = Some(KeyRange { begin: *first, end: last.checked_add(1) });
                let place = Place { keys: keys_range, ..place };
                findings.push(Finding::with(code, place, format!("{} mappings", keys.len())));
            }
        };
        report(Code::MappingBeyondData, &|block, _| block.0 >= self.nr_data_blocks);
        report(Code::MappingTime, &|_, time| time > self.time);
    }
}

/// Judges leaves without counting anything.
impl LeafVisitor for Bounds {
    type Local = ();

    fn local(&self) {}

    fn visit(&self, (): &mut (), leaf: &Node<'_>, place: Place, findings: &mut Findings) {
        self.judge_leaf(leaf, place, findings);
    }

    fn finish(&self, (): ()) {}
}

/// Holds the number of mappings that a whole tree has against the one that the device's details promise.
pub fn judge_mapped_blocks(pair: &Roots, id: ThinId, device: &DeviceRoots, found: u64, findings: &mut Findings) {
    let Some(expected) = device.details.map(|details| details.mapped_blocks.get()) else { return };
    if expected != found {
        let detail = format!("the details say {expected}, the tree has {found}");
        findings.push(Finding::with(Code::DeviceMappedBlocks, Place::device(pair.details_area(), id), detail));
    }
}
