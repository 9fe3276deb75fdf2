//! What runs have shown, as a table, as JSON and as a picture.

mod lanes;
mod picture;
mod ratios;
mod table;

pub use lanes::Lanes;
pub use picture::svg;
pub use ratios::Ratios;
pub use table::table;

use super::cache::CacheStats;
use super::engine::hist::Summary;
use super::engine::{Histogram, Hold, LockStats, Ns, Operation};
use super::pool::measured::Progress;
use super::pool::{Allocation, Outcome, RunOptions, Stall};
use super::scenario::cache::MissCurve;
use super::scenario::delete::Soundness;
use super::scenario::stripe::{Layout, Requests, fragments, of_allocation};
use serde::Serialize;
use std::collections::BTreeMap;

/// A lock in a report.
#[derive(Clone, Debug, Serialize)]
pub struct LockReport {
    /// Its name.
    pub name: String,
    /// Times at which it was taken.
    pub acquisitions: u64,
    /// Times at which somebody had to wait for it.
    pub contended: u64,
    /// How long it was held, shared and alone, and waited for.
    pub hold_shared: Summary,
    /// Alone.
    pub hold_exclusive: Summary,
    /// Waited for, to share it.
    pub wait_shared: Summary,
    /// Waited for, to have it alone.
    pub wait_exclusive: Summary,
    /// Who held it longest, and for how long.
    pub longest_holder: Option<(&'static str, Ns)>,
    /// What was done with it, by what the holder or waiter did.
    pub operations: BTreeMap<&'static str, OperationReport>,
}

/// What one kind of work did with a lock.
#[derive(Clone, Debug, Serialize)]
pub struct OperationReport {
    /// How long it held the lock.
    pub hold: Summary,
    /// How long it waited for it.
    pub wait: Summary,
}

impl OperationReport {
    fn of(operation: &Operation) -> OperationReport {
        OperationReport { hold: operation.hold.summary(), wait: operation.wait.summary() }
    }
}

impl LockReport {
    fn of(name: &str, stats: &LockStats) -> LockReport {
        let acquisitions = stats.wait_shared.count() + stats.wait_exclusive.count();
        LockReport {
            name: name.to_string(),
            acquisitions,
            contended: acquisitions - stats.uncontended.min(acquisitions),
            hold_shared: stats.hold_shared.summary(),
            hold_exclusive: stats.hold_exclusive.summary(),
            wait_shared: stats.wait_shared.summary(),
            wait_exclusive: stats.wait_exclusive.summary(),
            operations: stats.operations.iter().map(|(label, own)| (*label, OperationReport::of(own))).collect(),
            longest_holder: stats.longest_hold.map(|Hold { begin, end, label, .. }| (label, end - begin)),
        }
    }
}

/// Deletes in a report.
#[derive(Clone, Debug, Serialize)]
pub struct BackgroundReport {
    /// From here, in nanoseconds.
    pub begin: Option<Ns>,
    /// To here.
    pub end: Option<Ns>,
    /// Deletes that were done.
    pub deletes: u64,
    /// References to data blocks taken away.
    pub entries: u64,
    /// Nodes released.
    pub nodes: u64,
    /// Times at which others could go first.
    pub boundaries: u64,
    /// Bytes of the data blocks that the references were to.
    pub bytes: u64,
    /// How far they were, now and then.
    pub progress: Vec<Progress>,
}

/// What the foreground did between two borders of the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// The mark at its begin; empty before the first.
    pub name: String,
    /// When it began, in nanoseconds.
    pub begin: Ns,
    /// When it ended.
    pub end: Ns,
    /// Bytes of the foreground in it.
    pub bytes: u64,
    /// Bytes a second.
    pub rate: f64,
}

fn phases(marks: &[(Ns, String, u64)], end: Ns, bytes: u64) -> Vec<Phase> {
    let first = (0, String::new(), 0);
    let borders: Vec<&(Ns, String, u64)> = [&first].into_iter().chain(marks).collect();
    let last = (end, String::new(), bytes);
    let ends = marks.iter().chain([&last]);
    let phases = borders.into_iter().zip(ends).map(|((begin, name, before), (end, _, after))| {
        let (time, bytes) = (end.saturating_sub(*begin), after - before);
        let rate = if time > 0 { bytes as f64 * 1e9 / time as f64 } else { 0.0 };
        Phase { name: name.clone(), begin: *begin, end: *end, bytes, rate }
    });
    phases.filter(|phase| phase.end > phase.begin).collect()
}

/// The use of metadata blocks in a report.
#[derive(Clone, Debug, Serialize)]
pub struct TouchReport {
    /// Looked at.
    pub reads: u64,
    /// Changed in place.
    pub writes: u64,
    /// Made or copied.
    pub news: u64,
    /// Freed.
    pub frees: u64,
    /// Distinct blocks, and misses by cache size in blocks; only where all uses were kept.
    pub distinct: Option<u64>,
    /// Size and misses.
    pub misses: Vec<(u64, u64)>,
}

/// Allocation in a report.
#[derive(Clone, Debug, Serialize)]
pub struct AllocReport {
    /// Data blocks taken.
    pub blocks: u64,
    /// By device: in how many fragments.
    pub fragments: BTreeMap<u64, u64>,
    /// How new blocks fall on the stripes of a RAID6, where one is given.
    pub stripes: Option<Requests>,
    /// Bitmaps of the data space map written per commit.
    pub bitmaps_per_commit: f64,
    /// Metadata blocks written per commit.
    pub blocks_per_commit: f64,
}

fn corrected(closed: &Histogram) -> Summary {
    closed.corrected(closed.quantile(5000)).summary()
}

/// One policy's run.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// The policy.
    pub policy: String,
    /// The flavour of the locks.
    pub lock: &'static str,
    /// What a crash in the middle of a delete leaves.
    pub crash: &'static str,
    /// When the run ended, in nanoseconds.
    pub end: Ns,
    /// Bytes a second of the foreground in the window of the deletes, or the whole run.
    pub rate: f64,
    /// Bytes a second of the foreground in the whole run.
    pub rate_all: f64,
    /// Bytes by 100 ms.
    pub series: Vec<u64>,
    /// By verb.
    pub latency: BTreeMap<&'static str, Summary>,
    /// The same of the foreground's closed streams, with what they would have sent while they waited: a request that
    /// took longer than half of its kind kept others from coming.
    pub latency_corrected: BTreeMap<&'static str, Summary>,
    /// The foreground's, while a delete was under way.
    pub window_latency: Summary,
    /// Recorded latencies, only for comparison.
    pub expected: Summary,
    /// The longest, longest first.
    pub stalls: Vec<Stall>,
    /// What the run can be compared by; none without a delete's walk.
    pub ratios: Option<Ratios>,
    /// How long the deletes took, in nanoseconds.
    pub delete_time: Option<Ns>,
    /// Locks.
    pub locks: Vec<LockReport>,
    /// Deletes.
    pub background: BackgroundReport,
    /// Metadata blocks.
    pub touch: TouchReport,
    /// What the cache of metadata blocks did, where there was one.
    pub cache: Option<CacheStats>,
    /// Data blocks.
    pub alloc: AllocReport,
    /// Commits.
    pub commits: u64,
    /// Requests that the pool refused.
    pub failed: u64,
    /// Streams that had more to do when the time of the run was over.
    pub unfinished: usize,
    /// Between the trace's marks.
    pub phases: Vec<Phase>,
    /// Blocks that the overlay holds.
    pub overlay_blocks: usize,
    /// Whether all trees and counts were sound at the end; after a crash: whether nothing is worse than leaked.
    pub sound: bool,
    /// What reading everything has shown.
    pub state: Soundness,
    #[serde(skip)]
    lanes: Lanes,
}

impl PolicyReport {
    /// Takes a run's results out of it.
    pub fn of(
        outcome: &mut Outcome<'_>,
        options: &RunOptions,
        state: Soundness,
        layout: Option<Layout>,
    ) -> PolicyReport {
        let lanes = Lanes::of(outcome, options.zoom);
        let curve = outcome.touches.log.take().map(|log| MissCurve::of(&log));
        let sizes = [8, 16, 32, 64, 128, 256, 512, 1024, 2048];
        let misses = curve.iter().flat_map(|curve| sizes.map(|size| (size, curve.misses(size)))).collect();
        let (measured, background) = (&outcome.measured, &outcome.background);
        let commits = measured.commits.max(1) as f64;
        let gather = matches!(options.allocation, Allocation::Aligned(_));
        let size = outcome.block_sectors / 2;
        let stripes = layout.map(|layout| of_allocation(layout, size, &measured.allocated, gather));
        PolicyReport {
            policy: outcome.policy.clone(),
            lock: options.flavour.name(),
            crash: outcome.crash,
            end: outcome.end,
            rate: outcome.rate(),
            rate_all: measured.bytes as f64 * 1e9 / outcome.end.max(1) as f64,
            series: measured.series.clone(),
            latency: measured.latency.iter().map(|(word, histogram)| (*word, histogram.summary())).collect(),
            latency_corrected: measured.closed.iter().map(|(word, closed)| (*word, corrected(closed))).collect(),
            window_latency: measured.window_latency.summary(),
            expected: measured.expected.summary(),
            stalls: measured.stalls.clone(),
            ratios: Ratios::of(outcome, options),
            delete_time: outcome.delete_time(),
            locks: outcome.locks.iter().map(|(name, stats)| LockReport::of(name, stats)).collect(),
            background: BackgroundReport {
                begin: background.begin,
                end: background.end,
                deletes: background.done,
                entries: background.entries,
                nodes: background.nodes,
                boundaries: background.boundaries,
                bytes: background.entries * outcome.block_sectors * 512,
                progress: background.progress.clone(),
            },
            touch: TouchReport {
                reads: outcome.touches.reads,
                writes: outcome.touches.writes,
                news: outcome.touches.news,
                frees: outcome.touches.frees,
                distinct: curve.map(|curve| curve.distinct),
                misses,
            },
            cache: outcome.cache,
            alloc: AllocReport {
                blocks: measured.allocated.len() as u64,
                fragments: fragments(&measured.allocated),
                stripes,
                bitmaps_per_commit: measured.committed_bitmaps as f64 / commits,
                blocks_per_commit: measured.committed_blocks as f64 / commits,
            },
            commits: measured.commits,
            failed: measured.failed,
            unfinished: if options.crash_after == 0 { outcome.unfinished } else { 0 },
            phases: phases(&measured.marks, outcome.end, measured.bytes),
            overlay_blocks: outcome.pool.overlay.nr_copies(),
            sound: state.is_sound() || (options.crash_after > 0 && state.whole && state.low == 0),
            state,
            lanes,
        }
    }

    /// The longest stall while a delete was under way, or at all where there is none.
    pub fn longest_stall(&self) -> Option<&Stall> {
        self.stalls.iter().find(|stall| stall.in_background).or(self.stalls.first())
    }
}

#[cfg(test)]
mod tests;
