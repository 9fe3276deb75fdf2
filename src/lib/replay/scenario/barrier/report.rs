//! The scenario: the policies beside the reported times, over other depths and prices, and to the letter of the rules.

use super::super::check::{Check, Kind, number};
use super::super::{Report, ScenarioError, Settings, columns};
use super::{Barrier, Run, WAKE, simulate, slower};
use crate::replay::engine::Ns;
use crate::replay::policy::Turn;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

const MS: Ns = 1_000_000;
/// A tick at 100, 250 and 1000 Hz.
const TICKS: [Ns; 3] = [10 * MS, 4 * MS, MS];
/// Requests under way and their price over which the order of the policies is tried.
const DEPTHS: [u64; 4] = [2, 8, 32, 128];
const PRICES: [Ns; 4] = [50_000, 100_000, 200_000, 400_000];

/// Policies: name, rules and the reported time of the mkfs.
fn policies(base: Barrier) -> Vec<(&'static str, Barrier, &'static str)> {
    let turn = |turn| Barrier { turn, ..base };
    vec![
        ("none", base, "1200"),
        ("tick, HZ 100", turn(Turn::Tick(10 * MS)), "-"),
        ("tick, HZ 250", turn(Turn::Tick(4 * MS)), "136"),
        ("tick, HZ 300", turn(Turn::Tick(10 * MS / 3)), "136"),
        ("tick, HZ 1000", turn(Turn::Tick(MS)), "136"),
        ("sleep(100ms)", turn(Turn::SleepIfWaiting(100 * MS)), "as 1 s"),
        ("sleep(1s)", turn(Turn::SleepIfWaiting(1000 * MS)), "80"),
        ("window(HZ/20)", Barrier { window: true, ..base }, "80"),
        ("old-speed", Barrier { old_speed: true, ..base }, "as before"),
    ]
}

/// The most frequent numbers of requests that passed between two turns, with how often that was.
fn passed(run: &Run) -> String {
    let mut all: Vec<(u64, u64)> = run.passed.iter().map(|(requests, turns)| (*requests, *turns)).collect();
    all.sort_by_key(|(requests, turns)| (std::cmp::Reverse(*turns), *requests));
    let shown: Vec<String> = all.iter().take(3).map(|(requests, turns)| format!("{requests} x{turns}")).collect();
    let rest = if all.len() > 3 { ", ..." } else { "" };
    format!("{}{rest}", shown.join(", "))
}

fn row(name: &str, run: &Run, calm: Ns, reported: &str) -> Vec<String> {
    let seconds = run.time as f64 / 1e9;
    let ratio = run.time as f64 / calm as f64;
    let away = (run.left.1 + run.paused.1) as f64 / 1e9;
    vec![
        name.into(),
        number(ratio * 80.0),
        number(ratio),
        number(run.turns as f64 * 64.0 / 1024.0 / seconds),
        number(run.longest_wait as f64 / 1e6),
        number(away / seconds),
        reported.into(),
        passed(run),
    ]
}

/// What a depth and a price of requests give: none, tick at each frequency, sleep(100ms), window.
struct Cell {
    depth: u64,
    request: Ns,
    none: f64,
    ticks: [f64; 3],
    sleep: f64,
    window: f64,
}

impl Cell {
    fn new(base: Barrier, depth: u64, request: Ns) -> Cell {
        let base = Barrier { depth, request, ..base };
        let calm = simulate(Barrier { resync: false, ..base }).time as f64;
        let ratio = |rules| simulate(rules).time as f64 / calm;
        Cell {
            depth,
            request,
            none: ratio(base),
            ticks: TICKS.map(|tick| ratio(Barrier { turn: Turn::Tick(tick), ..base })),
            sleep: ratio(Barrier { turn: Turn::SleepIfWaiting(100 * MS), ..base }),
            window: ratio(Barrier { window: true, ..base }),
        }
    }

    fn row(&self) -> Vec<String> {
        let ratios = [self.none].into_iter().chain(self.ticks).chain([self.sleep, self.window]);
        let head = [self.depth.to_string(), number(self.request as f64 / 1e6)];
        head.into_iter().chain(ratios.map(number)).collect()
    }

    /// Whether none > tick > window and sleep, with this of the frequencies.
    fn in_order(&self, tick: usize) -> bool {
        self.none > self.ticks[tick] && self.ticks[tick] > self.window.max(self.sleep)
    }
}

pub(super) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(value), most.max(value)))
}

/// All cells, and how they stand to what was said of them.
fn sensitivity(base: Barrier) -> Vec<String> {
    let cells: Vec<(u64, Ns)> = DEPTHS.into_iter().flat_map(|depth| PRICES.map(|price| (depth, price))).collect();
    let cells: Vec<Cell> = cells.into_par_iter().map(|(depth, price)| Cell::new(base, depth, price)).collect();
    let head = ["depth", "request ms", "none", "tick, HZ 100", "HZ 250", "HZ 1000", "sleep(100ms)", "window(HZ/20)"];
    let mut table = vec![head.map(String::from).to_vec()];
    table.extend(cells.iter().map(Cell::row));
    let mut lines: Vec<String> = vec![String::new(), "with other depths and prices, time over the calm one:".into()];
    lines.extend(columns(&table).lines().map(String::from));
    let tell = |what: &str, said: &str, (least, most): (f64, f64)| {
        format!("{what}: {}-{}; said: {said}", number(least), number(most))
    };
    let deep = |depth| cells.iter().filter(move |cell| cell.depth == depth);
    lines.push(tell("tick, 48 cells", "1.16-15", range(cells.iter().flat_map(|cell| cell.ticks))));
    let fast = deep(32).flat_map(|cell| [cell.ticks[1], cell.ticks[2]]);
    lines.push(tell("tick, depth 32, HZ 250 and 1000, 8 cells", "1.54-1.88", range(fast)));
    lines.push(tell("tick, depth 128", "1.2-1.3", range(deep(128).flat_map(|cell| cell.ticks))));
    let shallow = cells.iter().filter(|cell| cell.depth <= 8).flat_map(|cell| cell.ticks);
    lines.push(tell("tick, depth 2 and 8", "mostly 1.5-4.6", range(shallow)));
    lines.push(tell("sleep(100ms)", "1.01-1.10", range(cells.iter().map(|cell| cell.sleep))));
    lines.push(tell("window(HZ/20)", "1.02-1.27", range(cells.iter().map(|cell| cell.window))));
    let ordered = |tick| cells.iter().filter(move |cell| cell.in_order(tick)).count();
    let all: usize = (0..TICKS.len()).map(ordered).sum();
    lines.push(format!(
        "none > tick > window, sleep(100ms): {} of {} cells at HZ 250 (said: all 16), {all} of {} in all",
        ordered(1),
        cells.len(),
        cells.len() * TICKS.len()
    ));
    lines
}

/// How many pass between two turns hangs on what the rules do not say.
fn letter(base: Barrier) -> Vec<String> {
    let head = ["resync is told", "sending us", "none", "passed per turn", "one in flight", "passed per turn"];
    let mut table = vec![head.map(String::from).to_vec()];
    for (told, submit) in [(false, 0), (false, 4000), (true, 0), (true, 1000), (true, 2500), (true, 4900), (true, 5000)]
    {
        let rules = Barrier { told, submit, ..base };
        let single = Barrier { depth: 1, ..rules };
        let when = if told { "when nobody waits" } else { "when a request is done" };
        table.push(vec![
            when.into(),
            number(submit as f64 / 1e3),
            number(slower(rules)),
            passed(&simulate(rules)),
            number(slower(single)),
            passed(&simulate(single)),
        ]);
    }
    let mut lines = vec![
        String::new(),
        "when the resync learns that nobody waits, and what sending costs, decides how many pass:".to_string(),
    ];
    lines.extend(columns(&table).lines().map(String::from));
    lines
}

fn extras(base: Barrier) -> Vec<String> {
    let window = |depth, sync_every| number(slower(Barrier { depth, sync_every, window: true, ..base }));
    vec![
        format!(
            "with one request in flight the window cannot help: {} times slower, none {} (said: 12, the same)",
            window(1, 0),
            number(slower(Barrier { depth: 1, ..base }))
        ),
        format!("with a synchronous point every 8 requests the window gives {} (said: 2.4)", window(base.depth, 8)),
    ]
}

/// The whole scenario.
///
/// # Errors
/// Never.
pub fn run(settings: &Settings) -> Result<Report, ScenarioError> {
    let base = Barrier { kappa: settings.kappa, ..Barrier::default() };
    let head = [
        "policy",
        "mkfs s",
        "ratio",
        "resync MiB/s",
        "longest wait ms",
        "resync away",
        "reported s",
        "passed per turn",
    ];
    let mut table = vec![head.map(String::from).to_vec()];
    let calm = simulate(Barrier { resync: false, ..base }).time;
    let mut ratios = Vec::new();
    for (name, rules, reported) in policies(base) {
        let run = simulate(rules);
        ratios.push(run.time as f64 / calm as f64);
        table.push(row(name, &run, calm, reported));
    }
    let mut notes = vec![
        format!("kappa {} is fitted to the first row; the depth of 32 is assumed and has weight", settings.kappa),
        format!("assumed: {} us to send a request, {} us to wake", base.submit / 1000, WAKE / 1000),
        "resync away: its share of the time in pauses, by a turn rule or for its speed".into(),
    ];
    notes.extend(extras(base));
    notes.extend(letter(base));
    notes.extend(sensitivity(base));
    Ok(Report { name: "barrier", table, notes, checks: checks(base, &ratios) })
}

fn checks(base: Barrier, ratios: &[f64]) -> Vec<Check> {
    let [none, _, tick250, _, tick1000, sleep, long_sleep, window, old] = ratios[..] else { return Vec::new() };
    let fast = slower(Barrier { kappa: 3.0, ..base });
    let check = |id: &str, what: &str, reported: &str, kind, values: &[f64], band| {
        Check::ratios(id, what, reported, kind, values, band)
    };
    let calm_ones = [sleep, long_sleep, old];
    let others = calm_ones.into_iter().chain([window]).fold(0.0, f64::max);
    let order = none / tick250 > 4.0 && tick250 > others && tick1000 > others;
    vec![
        check("B1", "none / calm", "15.0", Kind::Fitted, &[none], (8.0, 25.0)),
        check("B2", "tick / calm, HZ 250 and 1000, depth 32", "1.70", Kind::Ratio, &[tick250, tick1000], (1.3, 2.1)),
        check("B3", "sleep(100ms), sleep(1s), old-speed / calm", "1.0", Kind::Ratio, &calm_ones, (0.98, 1.10)),
        check("B4", "window / calm", "1.0", Kind::Ratio, &[window], (0.98, 1.12)),
        Check::holds(
            "B5",
            "none >> tick > window, sleep, old-speed",
            "holds",
            format!("none/tick {}", number(none / tick250)),
            "none/tick > 4",
            order,
        ),
        check("B6", "kappa 3: none / calm", "not so significant", Kind::Ratio, &[fast], (1.5, 4.0)),
    ]
}
