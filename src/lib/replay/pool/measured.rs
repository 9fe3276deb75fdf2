//! What is measured while a pool runs.

use super::outcome::Stall;
use crate::replay::engine::{Histogram, Ns};
use serde::Serialize;
use std::collections::BTreeMap;

/// Width of a bar of the throughput series.
pub const SERIES: Ns = 100_000_000;
/// A series has no more bars than this: more than a day.
const BARS_MAX: usize = 1 << 20;
/// So many stalls are kept, beside deletes and by themselves.
const STALLS: usize = 10;

/// How far the background has come.
#[derive(Clone, Debug, Default)]
pub struct Background {
    /// When the first delete began.
    pub begin: Option<Ns>,
    /// When the last one ended.
    pub end: Option<Ns>,
    /// Deletes under way.
    pub active: u64,
    /// Deletes that are done.
    pub done: u64,
    /// References taken away.
    pub entries: u64,
    /// Nodes released.
    pub nodes: u64,
    /// Leaves among them of which it is known.
    pub leaves: u64,
    /// Times at which others could go first.
    pub boundaries: u64,
    /// How far it was, now and then.
    pub progress: Vec<Progress>,
}

/// How far deletes were at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The time.
    pub time: Ns,
    /// References taken away by then.
    pub entries: u64,
    /// Nodes released by then.
    pub nodes: u64,
    /// How many waited for the pool's lock.
    pub waiting: usize,
}

impl Background {
    /// So many references and nodes more were released, while so many waited.
    pub fn released(&mut self, entries: u64, nodes: u64, waiting: usize, now: Ns) {
        self.entries += entries;
        self.nodes += nodes;
        let last = self.progress.last().map_or(0, |last| last.time);
        if self.progress.is_empty() || now >= last + SERIES / 10 {
            self.note(waiting, now);
        }
    }

    /// Keeps how far it is.
    pub fn note(&mut self, waiting: usize, now: Ns) {
        let (entries, nodes) = (self.entries, self.nodes);
        self.progress.push(Progress { time: now, entries, nodes, waiting });
    }
}

/// What a run measures.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Latency by verb.
    pub latency: BTreeMap<&'static str, Histogram>,
    /// The same during the background work, of the foreground.
    pub window_latency: Histogram,
    /// Bytes of the foreground by time.
    pub series: Vec<u64>,
    /// Bytes of the foreground during the background work.
    pub window_bytes: u64,
    /// Bytes of the foreground.
    pub bytes: u64,
    /// Every completion of the foreground, and what it moved, where they are kept for a timeline.
    pub completions: Option<Vec<(Ns, u64)>>,
    /// How many requests of the foreground are under way from a time on, where that is kept.
    pub depths: Option<Vec<(Ns, u64)>>,
    /// The longest stalls, longest first.
    pub stalls: Vec<Stall>,
    /// Commits.
    pub commits: u64,
    /// When each commit ended.
    pub commit_times: Vec<Ns>,
    /// Metadata blocks that commits wrote.
    pub committed_blocks: u64,
    /// Bitmaps of the data space map among them.
    pub committed_bitmaps: u64,
    /// Phase borders: when, which, and the foreground's bytes by then.
    pub marks: Vec<(Ns, String, u64)>,
    /// Latency by verb of the foreground's closed streams, which send nothing while they wait.
    pub closed: BTreeMap<&'static str, Histogram>,
    /// Data blocks in the order in which they were taken: device, virtual block, data block.
    pub allocated: Vec<(u64, u64, u64)>,
    /// Recorded latencies, only for comparison.
    pub expected: Histogram,
    /// Requests that failed because the pool was full, or there was no such device.
    pub failed: u64,
}

impl Measured {
    /// Nothing measured yet.
    pub fn new(timeline: bool) -> Measured {
        let kept = || timeline.then(Vec::new);
        Measured { completions: kept(), depths: kept(), ..Measured::default() }
    }

    /// So many requests of the foreground are under way.
    pub fn note_depth(&mut self, outstanding: u64, now: Ns) {
        if let Some(depths) = &mut self.depths {
            depths.push((now, outstanding));
        }
    }

    /// The foreground moved so many bytes.
    pub fn note_bytes(&mut self, bytes: u64, now: Ns) {
        self.bytes += bytes;
        if let Some(completions) = &mut self.completions {
            completions.push((now, bytes));
        }
        let slot = usize::try_from(now / SERIES).unwrap_or(usize::MAX);
        if slot < BARS_MAX {
            if self.series.len() <= slot {
                self.series.resize(slot + 1, 0);
            }
            self.series[slot] += bytes;
        }
    }

    /// Whether a stall of that length is among the longest of its kind: beside deletes, or by themselves.
    pub fn is_worth(&self, length: Ns, in_background: bool) -> bool {
        let mut kind = self.stalls.iter().filter(|stall| stall.in_background == in_background);
        length > 0 && kind.nth(STALLS - 1).is_none_or(|last| length > last.length)
    }

    /// Keeps a stall where it is among the longest of its kind.
    pub fn keep(&mut self, stall: Stall) {
        let at = self.stalls.partition_point(|other| other.length >= stall.length);
        let in_background = stall.in_background;
        self.stalls.insert(at, stall);
        let mut count = 0;
        self.stalls.retain(|stall| {
            count += usize::from(stall.in_background == in_background);
            stall.in_background != in_background || count <= STALLS
        });
    }
}
