//! What is known of a lock after a run: who held it, who waited, for how long.

use super::hist::Histogram;
use super::lock::{Mode, Ns};

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
    /// The longest hold.
    pub longest_hold: Option<Hold>,
    /// All holds, where they are kept.
    pub log: Option<Vec<Hold>>,
    /// Holds that have begun: what for, and when.
    current: Vec<(&'static str, Ns)>,
    recent: Option<(&'static str, Ns)>,
    since: Ns,
}

impl LockStats {
    pub(in crate::replay) fn begin(&mut self, label: &'static str, now: Ns) {
        self.current.push((label, now));
    }

    pub(in crate::replay) fn waited(&mut self, mode: Mode, time: Ns) {
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
        if self.longest_hold.is_none_or(|longest| time > longest.end - longest.begin) {
            self.longest_hold = Some(hold);
        }
        if let Some(index) = self.current.iter().position(|(_, begin)| *begin == hold.begin) {
            self.current.swap_remove(index);
        }
        let visible = hold.end - hold.begin.max(self.since).min(hold.end);
        if self.recent.is_none_or(|(_, longest)| visible > longest) {
            self.recent = Some((hold.label, visible));
        }
        if let Some(log) = &mut self.log {
            log.push(hold);
        }
    }

    /// The longest hold since the last [`LockStats::forget`], those that last included.
    pub(in crate::replay) fn longest(&self, now: Ns) -> Option<(&'static str, Ns)> {
        let current = self.current.iter().map(|(label, begin)| (*label, now - (*begin).max(self.since).min(now)));
        current.chain(self.recent).max_by_key(|(_, time)| *time)
    }

    pub(in crate::replay) fn forget(&mut self, now: Ns) {
        (self.recent, self.since) = (None, now);
    }
}
