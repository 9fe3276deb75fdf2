//! Numbers of a run's locks and conditions, and what the locks are called in reports.

use super::{Allocation, RunOptions};
use crate::base::ThinId;
use crate::format::space_map::ENTRIES_PER_BITMAP;
use crate::pdata::overlay::Used;
use crate::replay::engine::{Cond, Flavour, LockId, LockStats};
use std::ops::Range;

/// The data device waits for requests.
pub const DISK: Cond = 0;
/// Streams wait for marks and for others to be idle.
pub const MARKS: Cond = 1;

/// Locks that each pool has.
const OF_POOL: [&str; 4] = ["root", "space-map", "transaction", "throttle"];
/// More pools than this make no sense to anybody.
pub const POOLS_MAX: u64 = 64;
/// More parts of the buffer cache than this neither.
pub const SHARDS_MAX: u64 = 1024;

/// How many pools, bitmaps with locks, and parts of the buffer cache there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pools: usize,
    bitmaps: usize,
    shards: usize,
}

impl Numbers {
    /// Those of a run on a pool with so many data blocks.
    pub fn of(options: &RunOptions, nr_data_blocks: u64) -> Numbers {
        let bitmaps = match options.allocation {
            Allocation::Shared => nr_data_blocks.div_ceil(ENTRIES_PER_BITMAP).max(1),
            _ => 0,
        };
        Numbers {
            pools: options.policy.pools.clamp(1, POOLS_MAX) as usize,
            bitmaps: usize::try_from(bitmaps).unwrap_or(usize::MAX).min(1 << 20),
            shards: options.shards.min(SHARDS_MAX) as usize,
        }
    }

    /// The locks that pools have, not those of bitmaps and buffers.
    pub fn of_pools(&self) -> Range<LockId> {
        0..self.pools * OF_POOL.len()
    }

    /// How many pools the devices are spread over.
    pub fn pools(&self) -> usize {
        self.pools
    }

    /// Whether the buffer cache has locks.
    pub fn has_buffer_locks(&self) -> bool {
        self.shards > 0
    }

    /// The pool that a device is in.
    pub fn pool_of(&self, dev: ThinId) -> usize {
        (dev.0 % self.pools as u64) as usize
    }

    /// A pool's lock.
    pub fn root(&self, pool: usize) -> LockId {
        pool * OF_POOL.len()
    }

    /// The data space map's own lock, for policies that give it one.
    pub fn space_map(&self, pool: usize) -> LockId {
        pool * OF_POOL.len() + 1
    }

    /// Held shared by all changes and alone by a commit, for policies without the pool's lock.
    pub fn transaction(&self, pool: usize) -> LockId {
        pool * OF_POOL.len() + 2
    }

    /// Held alone by a worker whose pass takes too long, and shared by those who leave it work.
    pub fn throttle(&self, pool: usize) -> LockId {
        pool * OF_POOL.len() + 3
    }

    /// The lock of one bitmap of the data space map.
    pub fn bitmap(&self, bitmap: u64) -> LockId {
        self.of_pools().end + (bitmap % self.bitmaps.max(1) as u64) as usize
    }

    /// The lock of the part of the buffer cache that a block is in.
    pub fn buffer(&self, used: Used) -> LockId {
        let number = match used {
            Used::Node(block) => block.0,
            Used::DataBitmap(bitmap) | Used::MetadataBitmap(bitmap) => bitmap,
        };
        self.of_pools().end + self.bitmaps + (number % self.shards.max(1) as u64) as usize
    }

    /// The flavours of the locks. The locks of space maps are strictly in turn, or a delete would let nobody else in;
    /// so is the buffer cache's, which is a mutex.
    pub fn flavours(&self, options: &RunOptions) -> Vec<Flavour> {
        let space_map = if options.policy.steal { options.flavour } else { Flavour::Fifo };
        let of_pool = [options.flavour, space_map, options.flavour, options.flavour];
        let mut flavours = of_pool.repeat(self.pools);
        flavours.extend(vec![space_map; self.bitmaps]);
        flavours.extend(vec![Flavour::Fifo; self.shards]);
        flavours
    }

    /// Names and statistics: those of all bitmaps together, and those of all parts of the buffer cache.
    pub fn gather(&self, stats: Vec<LockStats>) -> Vec<(String, LockStats)> {
        let of_pools = self.of_pools().end;
        let mut all: Vec<(String, LockStats)> = Vec::new();
        for (number, stats) in stats.into_iter().enumerate() {
            let name = if number < of_pools {
                let (pool, name) = (number / OF_POOL.len(), OF_POOL[number % OF_POOL.len()]);
                if pool == 0 { name.to_string() } else { format!("{name}/{pool}") }
            } else if number < of_pools + self.bitmaps {
                "bitmap".into()
            } else {
                "buffers".into()
            };
            match all.last_mut().filter(|(last, _)| *last == name) {
                Some((_, sum)) => sum.add(&stats),
                None => all.push((name, stats)),
            }
        }
        all
    }

    /// A pool's worker waits for work.
    pub fn work(&self, pool: usize) -> Cond {
        2 + pool
    }

    /// A stream waits for one of its requests to be done.
    pub fn credit(&self, stream: usize) -> Cond {
        2 + self.pools + stream
    }

    /// Conditions of a run with so many streams.
    pub fn conds(&self, streams: usize) -> usize {
        2 + self.pools + streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BlockNr;
    use crate::replay::costs::Costs;
    use crate::replay::policy::Policy;

    #[test]
    fn no_two_locks_or_conditions_are_the_same() {
        let policy = Policy::parse("coarse+split-pools(3)").unwrap();
        let options =
            RunOptions { allocation: Allocation::Shared, shards: 4, ..RunOptions::new(policy, Costs::standard()) };
        let numbers = Numbers::of(&options, 3 * ENTRIES_PER_BITMAP + 1);
        let mut locks: Vec<LockId> = (0..3)
            .flat_map(|pool| {
                [numbers.root(pool), numbers.space_map(pool), numbers.transaction(pool), numbers.throttle(pool)]
            })
            .collect();
        locks.extend((0..4).map(|bitmap| numbers.bitmap(bitmap)));
        locks.extend((0..4).map(|block| numbers.buffer(Used::Node(BlockNr(block)))));
        assert_eq!(locks, (0..numbers.flavours(&options).len()).collect::<Vec<_>>());
        let names = numbers.gather(vec![LockStats::default(); locks.len()]);
        let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names.len(), &names[..5]), (14, &["root", "space-map", "transaction", "throttle", "root/1"][..]));
        assert_eq!(names[12..], ["bitmap", "buffers"]);
        let conds: Vec<Cond> = [DISK, MARKS]
            .into_iter()
            .chain((0..3).map(|pool| numbers.work(pool)))
            .chain((0..2).map(|stream| numbers.credit(stream)))
            .collect();
        assert_eq!(conds, (0..numbers.conds(2)).collect::<Vec<_>>());
    }
}
