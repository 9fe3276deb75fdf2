//! What a run has shown.

use super::RunOptions;
use super::measured::{Background, Measured};
use super::world::PoolWorld;
use crate::pdata::overlay::Touches;
use crate::replay::cache::CacheStats;
use crate::replay::engine::{LockStats, Longest, Ns};
use crate::thin::live::LivePool;
use serde::Serialize;

/// A time in which no foreground request was completed although one was under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// When it began, in nanoseconds.
    pub begin: Ns,
    /// How long it was.
    pub length: Ns,
    /// Who held a lock of the pool longest meanwhile.
    pub holder: String,
    /// What that one was doing.
    pub step: String,
    /// For how long.
    pub held: Ns,
    /// What the one did who waited longest for a lock of the pool meanwhile.
    pub waiter: String,
    /// For how long.
    pub waited: Ns,
    /// References to data blocks that deletes took away meanwhile.
    pub entries: u64,
    /// Tree nodes that deletes released meanwhile.
    pub nodes: u64,
    /// Whether a delete was under way.
    pub in_background: bool,
}

impl Stall {
    /// Who held and who waited. A label says who it is and, behind a colon, what it does.
    pub(super) fn of(longest: Longest) -> Stall {
        let nobody = |found: Option<(&'static str, Ns)>| found.filter(|(label, _)| !label.is_empty());
        let (label, held) = nobody(longest.hold).unwrap_or(("nobody", 0));
        let (holder, step) = label.split_once(": ").unwrap_or((label, ""));
        let (waiter, waited) = nobody(longest.wait).unwrap_or(("nobody", 0));
        let (holder, step, waiter) = (holder.into(), step.into(), waiter.into());
        Stall { holder, step, held, waiter, waited, ..Stall::default() }
    }
}

/// Everything that a run has shown.
pub struct Outcome<'a> {
    /// The policy.
    pub policy: String,
    /// What a crash in the middle of a delete leaves.
    pub crash: &'static str,
    /// When the run ended.
    pub end: Ns,
    /// Sectors of a block.
    pub block_sectors: u64,
    /// What was measured.
    pub measured: Measured,
    /// How far the deletes came.
    pub background: Background,
    /// Names and statistics of the locks.
    pub locks: Vec<(String, LockStats)>,
    /// How often metadata blocks were used.
    pub touches: Touches,
    /// What the cache of metadata blocks did, where there was one.
    pub cache: Option<CacheStats>,
    /// Streams that had more to do at the end of the run.
    pub unfinished: usize,
    /// The pool as it is now.
    pub pool: LivePool<'a>,
}

impl<'a> Outcome<'a> {
    pub(super) fn new(mut world: PoolWorld<'a>, end: Ns, locks: Vec<LockStats>, options: &RunOptions) -> Outcome<'a> {
        if let Some(log) = world.measured.stalls.iter_mut().find(|stall| stall.begin + stall.length > end) {
            log.length = end - log.begin.min(end);
        }
        Outcome {
            policy: options.policy.name.clone(),
            crash: options.policy.crash(),
            end,
            block_sectors: world.block_sectors,
            measured: world.measured,
            background: world.background,
            locks: world.numbers.gather(locks),
            cache: world.memory.stats(),
            unfinished: world.streams.iter().filter(|stream| !stream.over).count(),
            touches: std::mem::take(&mut world.pool.overlay.touches),
            pool: world.pool,
        }
    }

    /// From the beginning of the first delete to the end of the last; the whole run where there is none.
    pub fn window(&self) -> (Ns, Ns) {
        match (self.background.begin, self.background.end) {
            (Some(begin), end) => (begin, end.unwrap_or(self.end)),
            (None, _) => (0, self.end),
        }
    }

    /// How long the deletes took.
    pub fn delete_time(&self) -> Option<Ns> {
        self.background.begin.and_then(|begin| self.background.end.map(|end| end - begin))
    }

    /// What the foreground moved in the window, in bytes a second.
    pub fn rate(&self) -> f64 {
        let (begin, end) = self.window();
        let bytes = if self.background.begin.is_some() { self.measured.window_bytes } else { self.measured.bytes };
        if end > begin { bytes as f64 * 1e9 / (end - begin) as f64 } else { 0.0 }
    }

    /// The longest time without any completion, while a delete was under way if there was one.
    pub fn longest_stall(&self) -> Option<&Stall> {
        let deleted = self.background.begin.is_some();
        self.measured.stalls.iter().find(|stall| stall.in_background || !deleted)
    }

    /// A lock by its name.
    pub fn lock(&self, name: &str) -> Option<&LockStats> {
        self.locks.iter().find(|(own, _)| own == name).map(|(_, stats)| stats)
    }
}
