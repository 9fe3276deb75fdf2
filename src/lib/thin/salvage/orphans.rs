//! Leaves that nothing leads to any more, and the damaged nodes that they must have hung below.
//!
//! A leaf is given back only where everything allows one answer: its keys lie in a range that was lost, the space
//! map counts it more often than it is reached, and the leaves of a range do not overlap.

use super::limits::Limits;
use super::scan::{Kind, Scan};
use crate::base::{BlockNr, KeyRange, ThinId};
use crate::block::BlockSource;
use crate::format::mapping;
use crate::format::node::Node;
use crate::pdata::ledger::{BlockUse, Ledger};
use crate::pdata::stored::StoredCounts;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Keys that were lost together, with the block that should have led to them.
#[derive(Clone, Debug)]
pub(super) struct LostRange {
    pub(super) keys: KeyRange,
    pub(super) block: BlockNr,
    pub(super) devices: Vec<ThinId>,
}

/// A leaf that may belong below a damaged node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub(super) block: BlockNr,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) entries: u16,
    /// References that the space map counts and nobody was seen to hold.
    missing: u32,
}

/// Leaves of mappings that are counted more often than they were reached.
pub(super) fn find(
    source: &dyn BlockSource,
    scan: &Scan,
    ledger: &Ledger,
    stored: &StoredCounts,
    limits: Limits,
) -> Vec<Orphan> {
    let missing = |block| match stored.get(block) {
        Some(count) => count.saturating_sub(ledger.count(block)),
        None => u32::from(ledger.count(block) == 0),
    };
    let free = |block| matches!(ledger.block_use(block), BlockUse::None | BlockUse::Mappings);
    let candidates: Vec<Orphan> = scan
        .all(Kind::Leaf(8))
        .filter(|(block, found)| found.entries > 0 && free(*block) && missing(*block) > 0)
        .map(|(block, found)| Orphan {
            block,
            first: found.first,
            last: found.last,
            entries: found.entries,
            missing: missing(block),
        })
        .collect();
    let blocks: Vec<BlockNr> = candidates.iter().map(|orphan| orphan.block).collect();
    let mut plausible = Vec::new();
    let mut at = candidates.iter();
    source.read_many(&blocks, &mut |_, content| {
        let orphan = at.next();
        if let (Some(orphan), Ok(content)) = (orphan, content)
            && let Ok(node) = Node::trusting_checksum(content, 8)
            && holds_mappings(&node, limits)
        {
            plausible.push(*orphan);
        }
        ControlFlow::Continue(())
    });
    plausible
}

fn holds_mappings(node: &Node<'_>, limits: Limits) -> bool {
    node.values_u64().iter().all(|value| {
        let (data, time) = mapping::unpack(value.get());
        data.0 < limits.nr_data_blocks && time <= limits.time
    })
}

/// Which orphans belong in which lost range, by the range's block; in key order.
pub(super) fn assign(lost: &[LostRange], mut orphans: Vec<Orphan>) -> BTreeMap<BlockNr, Vec<Orphan>> {
    orphans.sort_unstable_by_key(|orphan| (orphan.first, orphan.block));
    let fits = |range: &LostRange, orphan: &Orphan| {
        orphan.first >= range.keys.begin && range.keys.end.is_none_or(|end| orphan.last < end)
    };
    let mut homes: BTreeMap<BlockNr, u32> = BTreeMap::new();
    let mut by_range: BTreeMap<BlockNr, Vec<Orphan>> = BTreeMap::new();
    for range in lost {
        let from = orphans.partition_point(|orphan| orphan.first < range.keys.begin);
        let to = orphans.partition_point(|orphan| range.keys.end.is_none_or(|end| orphan.first < end));
        for orphan in orphans[from..to].iter().filter(|orphan| fits(range, orphan)) {
            by_range.entry(range.block).or_default().push(*orphan);
            *homes.entry(orphan.block).or_default() += 1;
        }
    }
    for found in by_range.values_mut() {
        // Several damaged nodes may have led to the same leaf; then each of them held a reference.
        found.retain(|orphan| homes.get(&orphan.block).is_some_and(|homes| *homes <= orphan.missing));
        drop_overlapping(found);
    }
    by_range.retain(|_, found| !found.is_empty());
    by_range
}

/// Drops all that overlap: nothing tells which of them is right.
fn drop_overlapping(found: &mut Vec<Orphan>) {
    let mut doubtful = vec![false; found.len()];
    let mut reach: Option<(u64, usize)> = None;
    for (at, orphan) in found.iter().enumerate() {
        if let Some((last, holder)) = reach
            && orphan.first <= last
        {
            doubtful[at] = true;
            doubtful[holder] = true;
        }
        if reach.is_none_or(|(last, _)| orphan.last > last) {
            reach = Some((orphan.last, at));
        }
    }
    let mut at = doubtful.iter();
    found.retain(|_| !at.next().copied().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphan(block: u64, first: u64, last: u64, missing: u32) -> Orphan {
        Orphan { block: BlockNr(block), first, last, entries: 1, missing }
    }

    fn range(block: u64, begin: u64, end: Option<u64>) -> LostRange {
        LostRange { keys: KeyRange { begin, end }, block: BlockNr(block), devices: vec![ThinId(0)] }
    }

    fn assigned(lost: &[LostRange], orphans: Vec<Orphan>) -> Vec<(u64, Vec<u64>)> {
        let by_range = assign(lost, orphans);
        by_range.into_iter().map(|(block, found)| (block.0, found.iter().map(|o| o.block.0).collect())).collect()
    }

    #[test]
    fn only_what_fits_alone_is_given_back() {
        let lost = [range(1, 100, Some(200))];
        let orphans = vec![orphan(12, 150, 160, 1), orphan(11, 100, 149, 1), orphan(13, 190, 200, 1)];
        assert_eq!(assigned(&lost, orphans), [(1, vec![11, 12])]);
        let overlapping = vec![orphan(11, 100, 120, 1), orphan(12, 120, 130, 1), orphan(13, 131, 140, 1)];
        assert_eq!(assigned(&lost, overlapping), [(1, vec![13])]);
        let inside = vec![orphan(11, 100, 199, 1), orphan(12, 110, 111, 1), orphan(13, 150, 151, 1)];
        assert_eq!(assigned(&lost, inside), []);
    }

    #[test]
    fn a_leaf_has_as_many_homes_as_references() {
        let lost = [range(1, 0, None), range(2, 50, None)];
        assert_eq!(assigned(&lost, vec![orphan(11, 60, 70, 1)]), []);
        assert_eq!(assigned(&lost, vec![orphan(11, 60, 70, 2)]), [(1, vec![11]), (2, vec![11])]);
        assert_eq!(assigned(&lost, vec![orphan(11, 10, 70, 1)]), [(1, vec![11])]);
    }
}
