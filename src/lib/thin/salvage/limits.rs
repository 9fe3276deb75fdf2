//! What mappings must keep to, and the leaves that don't.

use crate::base::{BlockNr, Findings, Place};
use crate::format::mapping;
use crate::format::node::Node;
use crate::pdata::walk::LeafVisitor;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What a mapping must keep to, so that a leaf is believed to hold mappings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) nr_data_blocks: u64,
    pub(super) time: u32,
}

/// Looks for mappings that cannot be kept, and for the highest data block and time.
#[derive(Debug)]
pub(super) struct LimitVisitor {
    limits: Limits,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    beyond: BTreeMap<BlockNr, u64>,
    last_data: Option<u64>,
    last_time: u32,
}

impl LimitVisitor {
    pub(super) fn new(limits: Limits) -> Self {
        LimitVisitor { limits, seen: Mutex::default() }
    }

    /// Mappings of each leaf that lead past the data device.
    pub(super) fn beyond_by_block(&self) -> BTreeMap<BlockNr, u64> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).beyond.clone()
    }

    /// The highest data block and the latest time.
    pub(super) fn highest(&self) -> (Option<u64>, u32) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.last_data, seen.last_time)
    }
}

impl LeafVisitor for LimitVisitor {
    type Local = Seen;

    fn local(&self) -> Seen {
        Seen::default()
    }

    fn visit(&self, seen: &mut Seen, leaf: &Node<'_>, place: Place, _: &mut Findings) {
        let mut beyond = 0;
        for value in leaf.values_u64() {
            let (data, time) = mapping::unpack(value.get());
            beyond += u64::from(data.0 >= self.limits.nr_data_blocks);
            seen.last_data = seen.last_data.max(Some(data.0));
            seen.last_time = seen.last_time.max(time);
        }
        if beyond > 0
            && let Some(block) = place.block
        {
            seen.beyond.insert(block, beyond);
        }
    }

    fn finish(&self, local: Seen) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.beyond.extend(local.beyond);
        seen.last_data = seen.last_data.max(local.last_data);
        seen.last_time = seen.last_time.max(local.last_time);
    }
}
