//! Which strategy should cost less, from what the details say. docs/thin_delete.md has the model and its measurements.

use super::{Strategy, Target};
use crate::base::ThinId;
use crate::format::node::max_entries;
use crate::format::space_map::{self, ENTRIES_PER_BITMAP};
use std::collections::BTreeSet;

/// Nanoseconds for a node of a mapping tree that is read, and whose mappings are counted.
const NODE: u64 = 4000;
/// Nanoseconds for a bitmap that is read, changed and written.
const BITMAP: u64 = 7000;
/// Mappings of a leaf, at most and where nothing better is known.
const LEAF: u64 = max_entries(8) as u64;

/// What a deletion should cost by each strategy, in nanoseconds of one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// By [`Strategy::Drop`].
    pub drop: u64,
    /// By [`Strategy::Recount`].
    pub recount: u64,
}

impl Estimate {
    /// From the numbers of mappings in the details, and the number of blocks in use. Nothing more is read.
    pub fn of(target: &Target<'_>, victims: &BTreeSet<ThinId>) -> Estimate {
        let superblock = &target.superblock;
        let bitmaps = space_map::nr_bitmaps(superblock.data_space_map.nr_blocks.get());
        let nodes = superblock.metadata_space_map.nr_allocated.get().saturating_sub(bitmaps).max(1);
        let mapped = |id: &ThinId| {
            let device = target.devices.by_id.get(id).and_then(|device| device.details);
            device.map_or(0, |details| details.mapped_blocks.get()).min(nodes.saturating_mul(LEAF))
        };
        let all: Vec<(bool, u64)> = target.ids().map(|id| (victims.contains(&id), mapped(&id))).collect();
        let sum: u64 = all.iter().map(|(_, mapped)| *mapped).fold(0, u64::saturating_add);
        let per_leaf = (sum / nodes).clamp(LEAF / 3, LEAF);
        let leaves = |mapped: u64| mapped / per_leaf + 1;
        let shape = Shape {
            nodes,
            leaves: all.iter().map(|(_, mapped)| leaves(*mapped)).fold(0, u64::saturating_add),
            largest: all.iter().map(|(_, mapped)| leaves(*mapped)).max().unwrap_or(0),
            // The metadata snapshot may have all of them once more.
            copies: if superblock.held_root().is_some() { 2 } else { 1 },
        };
        let some = |chosen| {
            let chosen = all.iter().filter(|(victim, _)| *victim == chosen);
            chosen.map(|(_, mapped)| leaves(*mapped)).fold(0, u64::saturating_add)
        };
        let (go, stay) = shape.split(some(true), some(false));
        let touched = bitmaps.min(go.saturating_mul(LEAF));
        Estimate {
            drop: go.saturating_mul(NODE).saturating_add(touched * BITMAP),
            recount: stay.saturating_mul(NODE).saturating_add(bitmaps * BITMAP),
        }
    }

    /// The strategy that should cost less.
    pub fn best(&self) -> Strategy {
        if self.drop <= self.recount { Strategy::Drop } else { Strategy::Recount }
    }
}

/// The nodes that there are, and those that there would be if no device shared anything.
struct Shape {
    nodes: u64,
    leaves: u64,
    largest: u64,
    copies: u64,
}

impl Shape {
    /// How many nodes go and stay with devices of so many leaves.
    ///
    /// What there is more than in the largest device is taken to be shared out evenly, as among snapshots of one origin.
    fn split(&self, victims: u64, survivors: u64) -> (u64, u64) {
        if survivors == 0 && self.copies == 1 {
            return (self.nodes, 0);
        }
        let wanted = self.leaves.saturating_mul(self.copies);
        let most = survivors.saturating_mul(self.copies).min(self.nodes);
        let go = if wanted <= self.nodes {
            victims
        } else {
            let (own, others) = (self.nodes.saturating_sub(self.largest), wanted - self.largest.min(wanted - 1));
            let shared_out =
                (u128::from(victims) * u128::from(own) / u128::from(others)).min(u128::from(self.nodes)) as u64;
            // What stays is no more than the survivors can have, whatever was shared: the rest goes.
            shared_out.max(self.nodes - most)
        };
        (go, most.min(self.nodes.saturating_sub(go)))
    }
}

const _: () = assert!(ENTRIES_PER_BITMAP > LEAF);

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn what_goes_and_what_stays() {
        // A large device beside a small one.
        let apart = Shape { nodes: 83_600, leaves: 83_225, largest: 83_221, copies: 1 };
        assert_eq!(apart.split(83_221, 4), (83_221, 4));
        assert_eq!(apart.split(4, 83_221), (4, 83_221));
        // The same, where leaves were estimated to be one more than there are nodes.
        let close = Shape { nodes: 83_224, ..apart };
        assert_eq!(close.split(83_221, 4), (83_220, 4));
        // 500 snapshots of one origin, each with some leaves of its own.
        let star = Shape { nodes: 125_000, leaves: 501 * 15_874, largest: 15_874, copies: 1 };
        let (go, stay) = star.split(400 * 15_874, 101 * 15_874);
        assert_eq!((go, stay), (87_300, 37_700));
        let (go, stay) = star.split(15_874, 500 * 15_874);
        assert_eq!((go, stay), (218, 124_782));
        assert_eq!(star.split(501 * 15_874, 0), (125_000, 0));
    }
}
