//! What is known of a lock after a run: who held it, who waited, for how long.

use super::hist::Histogram;
use super::lock::{Mode, Ns, ProcId};
use std::collections::BTreeMap;

/// One hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// When it began.
    pub begin: Ns,
    /// When it ended.
    pub end: Ns,
    /// How it was held.
    pub mode: Mode,
    /// What the holder did.
    pub label: &'static str,
}

/// What one kind of work did with a lock.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// How long it held the lock, however it held it.
    pub hold: Histogram,
    /// How long it waited for it.
    pub wait: Histogram,
}

/// Statistics of a lock.
#[derive(Clone, Debug, Default)]
pub struct LockStats {
    /// Times at which nobody had to wait.
    pub uncontended: u64,
    /// How long it was held, shared.
    pub hold_shared: Histogram,
    /// How long it was held, alone.
    pub hold_exclusive: Histogram,
    /// How long it was waited for, to share it.
    pub wait_shared: Histogram,
    /// How long it was waited for, to have it alone.
    pub wait_exclusive: Histogram,
    /// The same by what was done.
    pub operations: BTreeMap<&'static str, Operation>,
    /// The longest hold.
    pub longest_hold: Option<Hold>,
    /// All holds, where they are kept.
    pub log: Option<Vec<Hold>>,
    /// When every wait began and ended, where they are kept.
    pub wait_log: Option<Vec<(Ns, Ns)>>,
    /// Holds that have begun: what for, and when.
    current: Vec<(&'static str, Ns)>,
    /// Those who wait: who, what for, and since when.
    waiting: Vec<(ProcId, &'static str, Ns)>,
    recent: Option<(&'static str, Ns)>,
    recent_wait: Option<(&'static str, Ns)>,
    since: Ns,
}

/// What was done, and for how long.
type Done = (&'static str, Ns);

/// The longer of two; the first, where they are the same.
pub(super) fn longer(one: Option<Done>, other: Option<Done>) -> Option<Done> {
    one.into_iter().chain(other).reduce(|left, right| if right.1 > left.1 { right } else { left })
}

impl LockStats {
    /// Nothing known yet; with a timeline, every hold and wait is kept.
    pub fn new(timeline: bool) -> LockStats {
        LockStats { log: timeline.then(Vec::new), wait_log: timeline.then(Vec::new), ..LockStats::default() }
    }

    pub(in crate::replay) fn begin(&mut self, label: &'static str, now: Ns) {
        self.current.push((label, now));
    }

    pub(in crate::replay) fn wants(&mut self, who: ProcId, label: &'static str, now: Ns) {
        self.waiting.push((who, label, now));
    }

    pub(in crate::replay) fn waited(&mut self, who: ProcId, mode: Mode, now: Ns) {
        let Some(index) = self.waiting.iter().position(|(waiter, _, _)| *waiter == who) else { return };
        let (_, label, begin) = self.waiting.swap_remove(index);
        let time = now - begin.min(now);
        self.operations.entry(label).or_default().wait.add(time);
        if let Some(log) = self.wait_log.as_mut().filter(|_| time > 0) {
            log.push((begin, now));
        }
        self.recent_wait = longer(self.recent_wait, Some((label, now - begin.max(self.since).min(now))));
        match mode {
            Mode::Shared => self.wait_shared.add(time),
            Mode::Exclusive => self.wait_exclusive.add(time),
        }
    }

    pub(in crate::replay) fn held(&mut self, hold: Hold) {
        let time = hold.end - hold.begin;
        match hold.mode {
            Mode::Shared => self.hold_shared.add(time),
            Mode::Exclusive => self.hold_exclusive.add(time),
        }
        self.operations.entry(hold.label).or_default().hold.add(time);
        if self.longest_hold.is_none_or(|longest| time > longest.end - longest.begin) {
            self.longest_hold = Some(hold);
        }
        if let Some(index) = self.current.iter().position(|(_, begin)| *begin == hold.begin) {
            self.current.swap_remove(index);
        }
        let visible = hold.end - hold.begin.max(self.since).min(hold.end);
        self.recent = longer(self.recent, Some((hold.label, visible)));
        if let Some(log) = &mut self.log {
            log.push(hold);
        }
    }

    /// The longest hold since the last [`LockStats::forget`], those that last included.
    pub(in crate::replay) fn longest(&self, now: Ns) -> Option<(&'static str, Ns)> {
        let current = self.current.iter().map(|(label, begin)| (*label, now - (*begin).max(self.since).min(now)));
        current.chain(self.recent).max_by_key(|(_, time)| *time)
    }

    /// The longest wait since the last [`LockStats::forget`], those that last included.
    pub(in crate::replay) fn longest_wait(&self, now: Ns) -> Option<(&'static str, Ns)> {
        let waiting = self.waiting.iter().map(|(_, label, begin)| (*label, now - (*begin).max(self.since).min(now)));
        waiting.chain(self.recent_wait).max_by_key(|(_, time)| *time)
    }

    pub(in crate::replay) fn forget(&mut self, now: Ns) {
        (self.recent, self.recent_wait, self.since) = (None, None, now);
    }

    /// Adds what is known of another lock.
    pub fn add(&mut self, other: &LockStats) {
        self.uncontended += other.uncontended;
        self.hold_shared.merge(&other.hold_shared);
        self.hold_exclusive.merge(&other.hold_exclusive);
        self.wait_shared.merge(&other.wait_shared);
        self.wait_exclusive.merge(&other.wait_exclusive);
        for (label, operation) in &other.operations {
            let own = self.operations.entry(label).or_default();
            own.hold.merge(&operation.hold);
            own.wait.merge(&operation.wait);
        }
        let time = |hold: &Hold| hold.end - hold.begin;
        if let Some(hold) =
            other.longest_hold.filter(|hold| self.longest_hold.is_none_or(|own| time(hold) > time(&own)))
        {
            self.longest_hold = Some(hold);
        }
        if let (Some(log), Some(more)) = (&mut self.log, &other.log) {
            log.extend(more);
        }
        if let (Some(log), Some(more)) = (&mut self.wait_log, &other.wait_log) {
            log.extend(more);
        }
    }
}
