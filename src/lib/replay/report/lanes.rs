//! What the picture needs of a run, gathered to columns: less than one would not be seen.

use crate::replay::engine::{Hold, LockStats, Mode, Ns};
use crate::replay::pool::Outcome;

/// Columns of a lock's lane.
pub const COLUMNS: usize = 1000;
/// Columns of throughput and of requests under way.
pub const BARS: usize = 250;

/// A lock's lane.
#[derive(Clone, Debug, Default)]
pub struct LockLane {
    /// The lock.
    pub name: String,
    /// By column: the share of time that it was held, shared and alone, and how many waited on average.
    pub columns: Vec<[f64; 3]>,
}

/// The lanes of a run.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// What is shown, in nanoseconds.
    pub shown: (Ns, Ns),
    /// When the run ended.
    pub end: Ns,
    /// Bytes a second, by bar.
    pub rate: Vec<f64>,
    /// The most requests under way, by bar.
    pub depth: Vec<u64>,
    /// Locks that were held for any time or waited for.
    pub locks: Vec<LockLane>,
    /// Time and references that deletes had taken away.
    pub progress: Vec<(Ns, u64)>,
    /// When commits ended.
    pub commits: Vec<Ns>,
}

impl Lanes {
    /// Those of a run that was kept for a timeline; `zoom` is what is shown of it.
    pub fn of(outcome: &Outcome<'_>, zoom: Option<(Ns, Ns)>) -> Lanes {
        let measured = &outcome.measured;
        let shown = zoom.unwrap_or((0, outcome.end.max(1_000_000)));
        let lasts = |log: &Vec<Hold>| log.iter().any(|hold| hold.end > hold.begin);
        let used = |(_, stats): &&(String, LockStats)| {
            stats.log.as_ref().is_some_and(lasts) || stats.wait_log.as_ref().is_some_and(|log| !log.is_empty())
        };
        let locks = outcome.locks.iter().filter(used).map(|(name, stats)| LockLane {
            name: name.clone(),
            columns: held(
                stats.log.as_deref().unwrap_or_default(),
                stats.wait_log.as_deref().unwrap_or_default(),
                shown,
            ),
        });
        Lanes {
            shown,
            end: outcome.end,
            rate: rate(measured.completions.as_deref().unwrap_or_default(), shown),
            depth: depth(measured.depths.as_deref().unwrap_or_default(), shown, outcome.end),
            locks: locks.collect(),
            progress: outcome.background.progress.iter().map(|at| (at.time, at.entries)).collect(),
            commits: measured.commit_times.clone(),
        }
    }
}

/// Spreads a stretch of time over columns: how much of each it covers, in columns.
fn spread(columns: usize, (from, to): (Ns, Ns), (begin, end): (Ns, Ns), mut add: impl FnMut(usize, f64)) {
    let width = (to - from).max(1) as f64 / columns as f64;
    let place = |time: Ns| time.saturating_sub(from) as f64 / width;
    let (begin, end) = (place(begin.max(from)), place(end.min(to)));
    for at in (begin as usize)..(end.ceil() as usize).min(columns) {
        add(at, (end.min(at as f64 + 1.0) - begin.max(at as f64)).max(0.0));
    }
}

fn held(holds: &[Hold], waits: &[(Ns, Ns)], shown: (Ns, Ns)) -> Vec<[f64; 3]> {
    let mut columns = vec![[0.0; 3]; COLUMNS];
    for hold in holds {
        let kind = usize::from(hold.mode == Mode::Exclusive);
        spread(COLUMNS, shown, (hold.begin, hold.end), |at, share| columns[at][kind] += share);
    }
    for wait in waits {
        spread(COLUMNS, shown, *wait, |at, share| columns[at][2] += share);
    }
    columns
}

fn bar(shown: (Ns, Ns), time: Ns) -> Option<usize> {
    let span = u128::from((shown.1 - shown.0).max(1));
    let inside = (shown.0..shown.1).contains(&time);
    inside.then(|| (u128::from(time - shown.0) * BARS as u128 / span) as usize)
}

fn rate(completions: &[(Ns, u64)], shown: (Ns, Ns)) -> Vec<f64> {
    let mut bars = vec![0.0; BARS];
    let seconds = (shown.1 - shown.0).max(1) as f64 / 1e9 / BARS as f64;
    for (time, bytes) in completions {
        if let Some(bar) = bar(shown, *time) {
            bars[bar] += *bytes as f64 / seconds;
        }
    }
    bars
}

/// The number under way lasts until the next change of it.
fn depth(changes: &[(Ns, u64)], shown: (Ns, Ns), end: Ns) -> Vec<u64> {
    let mut bars = vec![0; BARS];
    let ends = changes.iter().skip(1).map(|(time, _)| *time).chain([end]);
    for ((begin, count), end) in changes.iter().zip(ends) {
        if *count > 0 {
            let (begin, end) = ((*begin).max(shown.0), end.min(shown.1));
            let last = bar(shown, end.saturating_sub(1).max(begin));
            if let (Some(first), Some(last), true) = (bar(shown, begin), last, begin < end) {
                bars[first..=last].iter_mut().for_each(|bar: &mut u64| *bar = (*bar).max(*count));
            }
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_shown_while_it_lasts() {
        let shown = (1000, 1000 + BARS as Ns * 10);
        // Eight under way for all of a stall in which nothing changes.
        let bars = depth(&[(0, 1), (1020, 8), (1100, 0), (1200, 2)], shown, 1215);
        assert_eq!(bars[..10], [1, 1, 8, 8, 8, 8, 8, 8, 8, 8]);
        assert_eq!(bars[10..23], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0]);
        assert_eq!(depth(&[(0, 3)], shown, u64::MAX), vec![3; BARS]);
        let bars = rate(&[(999, 5), (1000, 100), (1009, 100), (1010, 50), (9999, 7)], shown);
        assert_eq!((bars[0].round(), bars[1].round(), bars[2]), (200.0 / 10e-9, 50.0 / 10e-9, 0.0));
    }

    #[test]
    fn holds_and_waits_fall_on_their_columns() {
        let shown = (0, COLUMNS as Ns * 10);
        let hold = |begin, end, mode| Hold { begin, end, mode, label: "" };
        let holds = [hold(5, 20, Mode::Exclusive), hold(20, 25, Mode::Shared), hold(9995, 20_000, Mode::Exclusive)];
        let columns = held(&holds, &[(0, 10), (5, 20)], shown);
        assert_eq!((columns[0], columns[1]), ([0.0, 0.5, 1.5], [0.0, 1.0, 1.0]));
        assert_eq!((columns[2], columns[3]), ([0.5, 0.0, 0.0], [0.0; 3]));
        assert_eq!(columns[COLUMNS - 1], [0.0, 0.5, 0.0]);
    }
}
