//! Ratios that say whether two runs can be compared, whatever their size.

use super::{Outcome, RunOptions};
use serde::Serialize;

/// With fewer boundaries the throughput beside a delete is noise.
const BOUNDARIES_MIN: u64 = 20;

/// Runs with the same ratios compare the same at any scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ratios {
    /// What a delete does between two boundaries, in times of provisioning a block.
    pub hold: f64,
    /// A wake in times of releasing a leaf: above 0.1 the flavour of the lock decides.
    pub wake: f64,
    /// Boundaries at which others could go first.
    pub boundaries: u64,
    /// The share of its time in which a delete held a lock of the pool.
    pub duty: f64,
    /// Mappings of a leaf of what was deleted, on average.
    pub leaf_fill: f64,
}

impl Ratios {
    /// Those of a run; none without a walk of a delete.
    pub fn of(outcome: &Outcome<'_>, options: &RunOptions) -> Option<Ratios> {
        let (background, costs) = (&outcome.background, &options.costs);
        let time = outcome.delete_time().filter(|time| *time > 0 && background.leaves > 0)?;
        let of_delete = |label: &str| label.starts_with("delete: ") && label != "delete: commit";
        let held = outcome.locks.iter().map(|(_, stats)| {
            let own = stats.operations.iter().filter(|(label, _)| of_delete(label));
            own.map(|(_, operation)| operation.hold.sum()).sum::<u128>()
        });
        let held = held.max().unwrap_or(0);
        let leaf_fill = background.entries as f64 / background.leaves as f64;
        let leaf = costs.release(leaf_fill as u64, 1, options.policy.coalesce) + costs.free_node;
        let provision = costs.submit(outcome.block_sectors * 512, true) + costs.lookup;
        Some(Ratios {
            hold: held as f64 / (background.boundaries + 1) as f64 / provision.max(1) as f64,
            wake: costs.wake as f64 / leaf.max(1) as f64,
            boundaries: background.boundaries,
            duty: held as f64 / time as f64,
            leaf_fill,
        })
    }

    /// Whether there are so few boundaries that the throughput beside the delete says nothing. A delete without any
    /// says all by how long it is.
    pub fn is_noise(&self) -> bool {
        (1..BOUNDARIES_MIN).contains(&self.boundaries)
    }
}
