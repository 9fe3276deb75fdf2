//! The scenario: rates for up to 16 writers, what else came of each policy, and the published figures beside.

use super::super::check::{Check, Kind, number};
use super::super::{Report, ScenarioError, Settings, columns};
use super::{Choice, FILE_MB, Groups, Run, STEP_KIB, simulate};
use crate::replay::engine::Flavour;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// Writers.
const WRITERS: [usize; 9] = [1, 2, 4, 6, 8, 10, 12, 14, 16];

/// Reported, in MB/s of 1000 kB: children stock and patched, parent stock and patched, for each number of writers.
const REPORTED: [[f64; 4]; 9] = [
    [543.1, 539.5, 543.1, 539.5],
    [631.3, 630.3, 621.5, 625.6],
    [618.6, 821.0, 244.2, 803.1],
    [672.9, 773.3, 196.0, 765.4],
    [620.5, 764.6, 158.0, 760.9],
    [637.7, 837.8, 155.7, 829.6],
    [625.2, 752.4, 133.2, 744.6],
    [627.2, 781.9, 146.4, 776.2],
    [346.9, 816.5, 84.7, 796.1],
];

/// All runs of a policy.
type Runs = [Run; 9];

/// Groups of 256 MB, or eight with the same room together.
fn policies() -> Vec<(&'static str, Groups)> {
    let with = |choice| Groups { choice, ..Groups::default() };
    let eight = |choice| Groups { groups: 8, group_mb: 2048, ..with(choice) };
    let unfair = Groups { flavour: Flavour::Barge, wake: 40_000, ..Groups::default() };
    vec![
        ("stock, fair queue", with(Choice::Stock)),
        ("intra (patched)", with(Choice::Intra)),
        ("intra, 8 groups", eight(Choice::Intra)),
        ("try-lock", with(Choice::TryLock)),
        ("try-lock, 8 groups", eight(Choice::TryLock)),
        ("shared-EX, 25 % alone", with(Choice::Shared(0.25))),
        ("shared-EX, 50 % alone", with(Choice::Shared(0.5))),
        ("shared-EX, 75 % alone", with(Choice::Shared(0.75))),
        ("shared-EX, 100 % alone", with(Choice::Shared(1.0))),
        ("per-bitmap, 5 a group", with(Choice::Bitmaps(5))),
        ("per-bitmap, 13 a group, 8 groups", eight(Choice::Bitmaps(13))),
        ("reservations of 1 MB", with(Choice::Reservations(16))),
        ("stock, 8 groups", eight(Choice::Stock)),
        ("stock, unfair queue, 40 us", unfair),
        ("stock, unfair, 60 us, group 1/8 file", Groups { wake: 60_000, groups: 512, group_mb: 32, ..unfair }),
    ]
}

/// A policy's place in [`policies`].
const STOCK: usize = 0;
const PATCHED: usize = 1;
const UNFAIR: usize = 13;

fn rates(all: &[(&'static str, Runs)]) -> Vec<Vec<String>> {
    let mut head = vec!["children, MB/s".to_string()];
    head.extend(WRITERS.map(|writers| writers.to_string()));
    head.push("first / last at 4 / 8 / 16".into());
    let mut table = vec![head];
    for (name, runs) in all {
        let mut row = vec![name.to_string()];
        row.extend(runs.iter().map(|run| number(run.children)));
        row.push([2, 4, 8].map(|index: usize| number(runs[index].parallelism)).join(" / "));
        table.push(row);
    }
    table
}

/// What else came of the runs with 16 writers.
fn details(all: &[(&'static str, Runs)]) -> Vec<Vec<String>> {
    let head = [
        "16 writers",
        "parent MB/s",
        "moved: full",
        "busy",
        "fragments a file",
        "queue",
        "hold p50 us",
        "p99",
        "wait p50 us",
        "p99",
        "longest ms",
    ];
    let mut table = vec![head.map(String::from).to_vec()];
    for (name, runs) in all {
        let run = &runs[8];
        let us = |ns: u64| number(ns as f64 / 1e3);
        let (hold, wait) = (&run.locks.hold_exclusive, &run.locks.wait_exclusive);
        table.push(vec![
            name.to_string(),
            number(run.parent()),
            run.chosen.full.to_string(),
            run.chosen.busy.to_string(),
            number(run.fragments as f64 / 16.0),
            number(run.queue),
            us(hold.quantile(5000)),
            us(hold.quantile(9900)),
            us(wait.quantile(5000)),
            us(wait.quantile(9900)),
            number(wait.max() as f64 / 1e6),
        ]);
    }
    table
}

/// Beside what was reported: every second column is the report.
fn beside(stock: &Runs, patched: &Runs) -> Vec<Vec<String>> {
    let head = [
        "writers",
        "children, stock",
        "rep.",
        "patched",
        "rep.",
        "parent, stock",
        "rep.",
        "patched",
        "rep.",
        "patched / stock",
        "rep.",
        "parallelism, stock",
        "rep.",
        "patched",
        "rep.",
    ];
    let mut table = vec![head.map(String::from).to_vec()];
    for (index, [children, of_patched, parent, parent_patched]) in REPORTED.into_iter().enumerate() {
        let (one, other) = (&stock[index], &patched[index]);
        let pairs = [
            (one.children, children),
            (other.children, of_patched),
            (one.parent(), parent),
            (other.parent(), parent_patched),
            (other.children / one.children, of_patched / children),
            (one.parallelism, parent / children),
            (other.parallelism, parent_patched / of_patched),
        ];
        let mut row = vec![WRITERS[index].to_string()];
        row.extend(pairs.into_iter().flat_map(|(got, reported)| [number(got), number(reported)]));
        table.push(row);
    }
    table
}

fn checks(stock: &Runs, patched: &Runs, unfair: &Runs) -> Vec<Check> {
    let over =
        |range: std::ops::RangeInclusive<usize>, ratio: &dyn Fn(usize) -> f64| range.map(ratio).collect::<Vec<f64>>();
    let check = |id: &str, what: &str, reported: &str, kind, values: &[f64], band| {
        Check::ratios(id, what, reported, kind, values, band)
    };
    let parallel = over(2..=8, &|index| patched[index].parallelism);
    let of_unfair = over(2..=7, &|index| unfair[index].parallelism);
    let holds =
        parallel.iter().all(|value| *value > 0.9) && parallel.iter().zip(&of_unfair).all(|(own, other)| own > other);
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let stock_more = over(2..=7, &|index| stock[index].children / stock[0].children);
    let patched_more = over(2..=8, &|index| patched[index].children / patched[0].children);
    let ratio = |index: usize| patched[index].children / stock[index].children;
    vec![
        check("G1", "stock N / stock 1, N = 4..14", "1.14-1.24", Kind::Fitted, &stock_more, (1.05, 1.35)),
        check("G2", "patched N / patched 1, N = 4..16", "1.39-1.55", Kind::Ratio, &patched_more, (1.3, 1.7)),
        check("G3", "patched / stock, N = 4..14", "1.15-1.33", Kind::Ratio, &over(2..=7, &ratio), (1.10, 1.50)),
        check("G4", "patched / stock, N = 1", "0.99", Kind::Ratio, &[ratio(0)], (0.95, 1.05)),
        Check::holds(
            "G5",
            "parallelism patched, N >= 4; above stock under an unfair lock",
            "0.98-1.00",
            format!("{}; stock unfair {}", number(least(&parallel)), number(least(&of_unfair))),
            "> 0.9",
            holds,
        ),
        Check::excluded("G6", "patched / stock, N = 2", "1.00", number(ratio(1))),
        Check::excluded("G7", "stock, N = 16 / 1", "0.64", number(stock[8].children / stock[0].children)),
        Check::excluded("G8", "stock parallelism, N >= 4", "0.21-0.40", number(stock[4].parallelism)),
        Check::excluded(
            "G9",
            "fragments patched / stock, N = 16",
            "0.98",
            format!("{}, without what joins writes", number(patched[8].fragments as f64 / stock[8].fragments as f64)),
        ),
    ]
}

/// The whole scenario.
///
/// # Errors
/// Never.
pub fn run(_: &Settings) -> Result<Report, ScenarioError> {
    let all: Vec<(&'static str, Runs)> = policies()
        .into_par_iter()
        .map(|(name, rules)| (name, WRITERS.map(|writers| simulate(Groups { writers, ..rules }))))
        .collect();
    let (stock, patched, unfair) = (&all[STOCK].1, &all[PATCHED].1, &all[UNFAIR].1);
    let mut notes: Vec<String> = vec![
        "children: MB/s until the first writer is done; first / last: when the first is done over when the last is"
            .into(),
        "fitted: hold, outside and hand-off times and the store's rate".into(),
        format!(
            "files of {FILE_MB} MB in steps of {STEP_KIB} KiB; 8 groups have 2 GiB each, the room of all others together"
        ),
        String::new(),
    ];
    notes.extend(columns(&details(&all)).lines().map(String::from));
    notes.push(format!(
        "fragments: runs of steps of {STEP_KIB} KiB; reported, of another kind: 8464-8669 stock, 8309-9203 patched"
    ));
    notes.push("queue: who held the lock or waited for it when it was asked for".into());
    notes.push(String::new());
    notes.extend(columns(&beside(stock, patched)).lines().map(String::from));
    let checks = checks(stock, patched, unfair);
    Ok(Report { name: "groups", table: rates(&all), notes, checks })
}
