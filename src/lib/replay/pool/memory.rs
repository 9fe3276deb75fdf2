//! What using metadata costs beyond the work itself: blocks that are not in memory, and the locks of buffers.

use super::RunOptions;
use super::numbers::Numbers;
use crate::pdata::overlay::{How, Touches, Used};
use crate::replay::cache::{Cache, CacheStats};
use crate::replay::engine::{LockId, Mode, Ns, Step};
use crate::replay::machine::Act;
use std::collections::{BTreeMap, BTreeSet};

/// Buffers are locked one by one up to so many in one piece of work; more are gathered to so many.
const GETS_MAX: usize = 1024;

/// The metadata in memory, and the device that it is read from.
#[derive(Debug)]
pub struct Memory {
    cache: Option<Cache>,
    /// Prices: a miss, one of many reads, a write, and getting a buffer.
    miss: Ns,
    read: Ns,
    write: Ns,
    get: Ns,
    /// Whether getting a buffer takes a lock.
    buffers: bool,
    /// Whether walks read ahead.
    prefetch: bool,
    /// Whether the log is wanted by somebody else as well.
    keeps: bool,
    /// What of the log was dealt with.
    seen: usize,
    /// When the device has done what it was asked for.
    device_free: Ns,
    /// Blocks that are on their way, and when they are there.
    arrivals: BTreeMap<Key, Ns>,
    /// Blocks that the map path missed, which the worker is to read.
    hints: BTreeSet<Key>,
    /// What was used and not paid for: the time waited, and the locks of buffers.
    owed: Ns,
    locks: Vec<LockId>,
}

/// A block of a pool, in an order.
type Key = (usize, u8, u64);

fn key(pool: usize, used: Used) -> Key {
    match used {
        Used::Node(block) => (pool, 0, block.0),
        Used::DataBitmap(bitmap) => (pool, 1, bitmap),
        Used::MetadataBitmap(bitmap) => (pool, 2, bitmap),
    }
}

fn used_of((pool, kind, number): Key) -> (usize, Used) {
    let used = match kind {
        0 => Used::Node(crate::base::BlockNr(number)),
        1 => Used::DataBitmap(number),
        _ => Used::MetadataBitmap(number),
    };
    (pool, used)
}

impl Memory {
    /// Nothing used yet. Without rules for a cache everything is in memory.
    pub fn new(options: &RunOptions) -> Memory {
        let (costs, policy) = (&options.costs, &options.policy);
        Memory {
            cache: options.cache.clone().map(|rules| Cache::new(rules, policy.pools as usize)),
            miss: costs.miss,
            read: costs.read,
            write: costs.write,
            get: costs.get,
            buffers: options.shards > 0,
            prefetch: policy.prefetch,
            keeps: options.log_touches,
            seen: 0,
            device_free: 0,
            arrivals: BTreeMap::new(),
            hints: BTreeSet::new(),
            owed: 0,
            locks: Vec::new(),
        }
    }

    /// Whether the log of used blocks is needed.
    pub fn looks(&self) -> bool {
        self.buffers || self.cache.is_some()
    }

    /// What the cache has done, where there is one.
    pub fn stats(&self) -> Option<CacheStats> {
        self.cache.as_ref().map(Cache::stats)
    }

    /// Whether something that was used just now is not in memory, so that the map path, which may not wait, has to
    /// leave it to the worker. Then what was used does not count, as the map path used nothing.
    pub fn would_wait(&mut self, touches: &mut Touches, pool: usize, now: Ns) -> bool {
        let (Some(cache), Some(log)) = (&self.cache, &mut touches.log) else { return false };
        let missing = |used: &Used| match self.arrivals.get(&key(pool, *used)) {
            Some(arrival) => *arrival > now,
            None => !cache.contains(pool, *used),
        };
        let missed: Vec<Key> = log[self.seen.min(log.len())..]
            .iter()
            .filter(|(used, how)| *how != How::Ahead && missing(used))
            .map(|(used, _)| key(pool, *used))
            .collect();
        if missed.is_empty() {
            return false;
        }
        if cache.rules().prefetch_hint {
            self.hints.extend(missed);
        }
        log.truncate(self.seen);
        true
    }

    /// The worker asks for everything that the map path has missed.
    pub fn read_hints(&mut self, pool: usize, now: Ns) {
        for key in std::mem::take(&mut self.hints) {
            if key.0 == pool {
                self.ahead(key, now);
            } else {
                self.hints.insert(key);
            }
        }
    }

    fn ahead(&mut self, key: Key, now: Ns) {
        let (pool, used) = used_of(key);
        if let Some(cache) = &mut self.cache
            && cache.prefetch(pool, used, now)
        {
            self.device_free = self.device_free.max(now) + self.read;
            self.arrivals.insert(key, self.device_free.max(now + self.miss));
        }
    }

    /// Deals with what was used since the last time.
    fn settle(&mut self, touches: &mut Touches, pool: usize, now: Ns, numbers: &Numbers) {
        let Some(log) = &mut touches.log else { return };
        let mut time = now + self.owed;
        for (used, how) in log.iter().skip(self.seen).copied() {
            if how == How::Ahead {
                if self.prefetch {
                    self.ahead(key(pool, used), time);
                }
                continue;
            }
            if self.buffers {
                self.locks.push(numbers.buffer(used));
            }
            let Some(cache) = &mut self.cache else { continue };
            let touch = cache.touch(pool, used, how, time);
            if touch.miss {
                self.device_free = self.device_free.max(time) + self.read;
                time = self.device_free.max(time + self.miss);
            } else if let Some(arrival) = self.arrivals.remove(&key(pool, used)) {
                time = time.max(arrival);
            }
            time += touch.written * self.write;
        }
        self.owed = time - now;
        if !self.keeps {
            log.clear();
        }
        self.seen = log.len();
    }

    /// A pool commits: how many blocks that writes, where there is a cache that knows it.
    pub fn commit(&mut self, touches: &mut Touches, pool: usize, now: Ns, numbers: &Numbers) -> Option<u64> {
        self.settle(touches, pool, now, numbers);
        self.cache.as_mut().map(|cache| cache.commit(pool, now))
    }

    /// Pays for a piece of work of a pool, whose uses are at the end of the log.
    pub fn pay<T>(
        &mut self,
        touches: &mut Touches,
        (pool, cost): (usize, Ns),
        now: Ns,
        numbers: &Numbers,
        then: &mut Vec<Act<T>>,
    ) {
        self.settle(touches, pool, now, numbers);
        let wait = std::mem::take(&mut self.owed);
        then.extend((wait > 0).then_some(Act::Step(Step::Sleep(wait))));
        spread(&self.locks, self.get, cost, then);
        self.locks.clear();
    }
}

/// The work with the lock of a buffer taken again and again in it.
fn spread<T>(locks: &[LockId], get: Ns, cost: Ns, then: &mut Vec<Act<T>>) {
    if locks.is_empty() {
        return then.push(Act::Step(Step::Cpu(cost)));
    }
    let rest = cost.saturating_sub(get.saturating_mul(locks.len() as u64));
    let pieces = locks.chunks(locks.len().div_ceil(GETS_MAX));
    let count = pieces.len() as u64;
    for (index, piece) in (0..).zip(pieces) {
        let part = rest / count + u64::from(index < rest % count);
        then.extend([
            Act::Step(Step::Lock(piece[0], Mode::Exclusive)),
            Act::Step(Step::Cpu(get * piece.len() as u64)),
            Act::Step(Step::Unlock(piece[0])),
            Act::Step(Step::Cpu(part)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BlockNr;
    use crate::replay::cache::CacheRules;
    use crate::replay::costs::Costs;
    use crate::replay::policy::Policy;

    #[test]
    fn the_whole_price_is_paid() {
        for (locks, get, cost) in [(0, 5, 100), (1, 5, 100), (7, 5, 100), (3000, 2, 100_000), (3000, 2, 10)] {
            let mut then: Vec<Act<()>> = Vec::new();
            spread(&vec![0; locks], get, cost, &mut then);
            let paid: Ns = then.iter().map(|act| if let Act::Step(Step::Cpu(time)) = act { *time } else { 0 }).sum();
            assert_eq!(paid, cost.max(get * locks as u64), "{locks} {get} {cost}");
            assert!(then.len() <= 4 * GETS_MAX);
        }
    }

    /// Uses blocks at a time; gives how long that waits.
    fn wait(memory: &mut Memory, uses: &[(u64, How)], now: Ns) -> Ns {
        let log = uses.iter().map(|(block, how)| (Used::Node(BlockNr(*block)), *how)).collect();
        let mut touches = Touches { log: Some(log), ..Touches::default() };
        let options = RunOptions::new(Policy::coarse(), Costs::standard());
        let mut then: Vec<Act<()>> = Vec::new();
        memory.seen = 0;
        memory.pay(&mut touches, (0, 0), now, &Numbers::of(&options, 1), &mut then);
        then.iter().map(|act| if let Act::Step(Step::Sleep(time)) = act { *time } else { 0 }).sum()
    }

    fn memory(policy: &str, rules: &str) -> Memory {
        let costs = Costs::standard().with("miss", 1000).and_then(|costs| costs.with("read", 10)).unwrap();
        let cache = Some(CacheRules::parse(rules).unwrap());
        Memory::new(&RunOptions { cache, ..RunOptions::new(Policy::parse(policy).unwrap(), costs) })
    }

    #[test]
    fn a_miss_waits_and_what_is_read_ahead_waits_together() {
        let children: Vec<(u64, How)> = (2..12).map(|block| (block, How::Ahead)).collect();
        let reads: Vec<(u64, How)> = (2..12).map(|block| (block, How::Read)).collect();
        let walk: Vec<(u64, How)> = [(1, How::Read)].into_iter().chain(children).chain(reads.clone()).collect();
        let mut one_by_one = memory("coarse", "unbounded");
        assert_eq!((wait(&mut one_by_one, &walk, 0), wait(&mut one_by_one, &reads, 50_000)), (11_000, 0));
        // The root, then all children at once: the last is behind nine others and the first one's way.
        let mut ahead = memory("coarse+prefetch", "unbounded");
        assert_eq!(wait(&mut ahead, &walk, 0), 2000);
        let mut busy = memory("coarse+prefetch", "unbounded");
        busy.read = 500;
        assert_eq!(wait(&mut busy, &walk, 0), 1000 + 10 * 500);
    }

    #[test]
    fn the_map_path_leaves_misses_to_the_worker() {
        let mut memory = memory("coarse", "unbounded+prefetch-hint");
        let used = Used::Node(BlockNr(7));
        let touches = || Touches { log: Some(vec![(used, How::Read)]), ..Touches::default() };
        assert!(memory.would_wait(&mut touches(), 0, 0));
        assert_eq!(memory.stats().unwrap().misses, 0);
        memory.read_hints(0, 100);
        assert!(memory.would_wait(&mut touches(), 0, 1000), "it is on its way");
        assert!(!memory.would_wait(&mut touches(), 0, 1100));
        assert_eq!(wait(&mut memory, &[(7, How::Read)], 600), 500);
    }
}
