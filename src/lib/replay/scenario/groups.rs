//! Many writers and the locks of allocation groups.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings};
use crate::replay::engine::{Engine, Env, Flavour, Mode, Ns, Program, Step, World};

const STEP_KIB: u64 = 64;
const FILE_MB: u64 = 256;
const BACKLOG_MB: f64 = 64.0;
const STEPS: u64 = FILE_MB * 1024 / STEP_KIB;
/// Steps of a MB.
const PER_MB: u64 = 1024 / STEP_KIB;

/// How a group is chosen and locked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Keep the group until it is full.
    Stock,
    /// Move to an unused group where somebody else uses this one.
    Intra,
    /// Take whichever group is free at the moment, where this one is not.
    TryLock,
    /// The lock is shared locally; of the work under it this share is done alone.
    Shared(f64),
    /// A lock for each of so many bitmaps of a group, and each writer keeps to one of them.
    PerBitmap(usize),
    /// Writers reserve so many steps at a time, alone; what is reserved is written with the lock shared.
    Reservations(u64),
}

/// What is varied.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// Writers.
    pub writers: usize,
    /// How a group is chosen.
    pub choice: Choice,
    /// The flavour of the groups' locks.
    pub flavour: Flavour,
    /// From being woken to running.
    pub wake: Ns,
    /// Groups.
    pub groups: usize,
    /// MB of a group.
    pub group_mb: u64,
}

/// Per MB, fitted to one writer and to the cap of the stock rule: under the lock, and outside; and the store's rate.
const HOLD: Ns = 1_425_000;
const OUTSIDE: Ns = 417_000;
const WAKE: Ns = 10_000;
const STORE_MB_S: f64 = 810.0;

struct State {
    users: Vec<u64>,
    /// Writers that are at work in a group.
    busy: Vec<u64>,
    filled: Vec<u64>,
    backlog: f64,
    backlog_at: Ns,
    bytes: u64,
    finished: Vec<Ns>,
    bytes_at_first: u64,
    writers: usize,
    moves: u64,
    fragments: u64,
}

impl State {
    /// What the store has not written yet, in MB.
    fn drain(&mut self, now: Ns) -> f64 {
        let served = (now - self.backlog_at) as f64 / 1e9 * STORE_MB_S;
        (self.backlog, self.backlog_at) = ((self.backlog - served).max(0.0), now);
        self.backlog
    }
}

impl World for State {
    fn is_over(&self) -> bool {
        self.finished.len() == self.writers
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Outside,
    Choose,
    Work,
    Release,
    Store,
}

struct Writer {
    rules: Groups,
    number: usize,
    group: usize,
    /// Where its last step went: the group, and the step of the group.
    last: Option<(usize, u64)>,
    /// Steps of its reservation that are left.
    reserved: u64,
    steps: u64,
    stage: Stage,
}

impl Writer {
    fn is_full(&self, state: &State, group: usize) -> bool {
        state.filled[group] >= self.rules.group_mb * PER_MB
    }

    fn choose(&mut self, state: &mut State) {
        let unused = |of: &[u64]| (0..self.rules.groups).find(|group| of[*group] == 0 && !self.is_full(state, *group));
        let other = match self.rules.choice {
            _ if self.is_full(state, self.group) => (1..=self.rules.groups)
                .map(|next| (self.group + next) % self.rules.groups)
                .find(|group| !self.is_full(state, *group)),
            Choice::Intra if state.users[self.group] > 1 => unused(&state.users),
            Choice::TryLock if state.busy[self.group] > 0 => unused(&state.busy),
            _ => None,
        };
        if let Some(other) = other {
            state.users[self.group] -= 1;
            state.users[other] += 1;
            state.moves += 1;
            self.group = other;
            self.reserved = 0;
        }
        let place = (self.group, state.filled[self.group]);
        state.filled[self.group] += 1;
        // A step next to the last one belongs to the same fragment; a reservation is one, whatever others do meanwhile.
        let next = self.last.is_some_and(|(group, step)| (group, step + 1) == place) || self.reserved > 0;
        state.fragments += u64::from(!next);
        self.last = Some(place);
        state.busy[self.group] += 1;
    }

    /// The lock of a step and how it is taken.
    fn lock(&mut self) -> Step {
        match self.rules.choice {
            Choice::PerBitmap(bitmaps) => Step::Lock(self.group * bitmaps + self.number % bitmaps, Mode::Exclusive),
            Choice::Reservations(_) if self.reserved > 0 => {
                self.reserved -= 1;
                Step::Lock(self.group, Mode::Shared)
            }
            Choice::Reservations(steps) => {
                self.reserved = steps.saturating_sub(1);
                Step::Lock(self.group, Mode::Exclusive)
            }
            _ => Step::Lock(self.group, Mode::Exclusive),
        }
    }
}

impl Program<State> for Writer {
    fn step(&mut self, state: &mut State, env: &mut Env<'_>) -> Step {
        match self.stage {
            Stage::Outside => {
                self.stage = Stage::Choose;
                let alone = match self.rules.choice {
                    Choice::Shared(share) => ((1.0 - share) * (HOLD / PER_MB) as f64) as Ns,
                    _ => 0,
                };
                Step::Cpu(OUTSIDE / PER_MB + alone)
            }
            Stage::Choose => {
                self.choose(state);
                self.stage = Stage::Work;
                self.lock()
            }
            Stage::Work => {
                self.stage = Stage::Release;
                let share = if let Choice::Shared(share) = self.rules.choice { share } else { 1.0 };
                Step::Cpu(((HOLD / PER_MB) as f64 * share) as Ns)
            }
            Stage::Release => {
                self.stage = Stage::Store;
                state.busy[self.group] -= 1;
                match self.rules.choice {
                    Choice::PerBitmap(bitmaps) => Step::Unlock(self.group * bitmaps + self.number % bitmaps),
                    _ => Step::Unlock(self.group),
                }
            }
            Stage::Store => {
                self.steps += 1;
                let backlog = state.drain(env.now) + 1.0 / PER_MB as f64;
                state.backlog = backlog;
                state.bytes += STEP_KIB << 10;
                if self.steps >= STEPS {
                    if state.finished.is_empty() {
                        state.bytes_at_first = state.bytes;
                    }
                    state.finished.push(env.now);
                    state.users[self.group] -= 1;
                    return Step::End;
                }
                self.stage = Stage::Outside;
                let over = (backlog - BACKLOG_MB).max(0.0);
                Step::Cpu((over / STORE_MB_S * 1e9) as Ns)
            }
        }
    }
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// The joint rate until the first writer ends, in MB/s: the sum of the children's.
    pub children: f64,
    /// The rate until the last one ends, as the parent sees it.
    pub parent: f64,
    /// Times at which a writer went to another group.
    pub moves: u64,
    /// Fragments of a file, on average.
    pub fragments: f64,
}

impl Shown {
    /// The time of the first to end over that of the last: 1 where all were treated alike.
    pub fn parallelism(&self) -> f64 {
        self.parent / self.children
    }
}

/// Runs the writers until all have written their files.
pub fn simulate(rules: Groups) -> Shown {
    let mut users = vec![0; rules.groups];
    users[0] = rules.writers as u64;
    let state = State {
        users,
        busy: vec![0; rules.groups],
        filled: vec![0; rules.groups],
        backlog: 0.0,
        backlog_at: 0,
        bytes: 0,
        finished: Vec::new(),
        bytes_at_first: 0,
        writers: rules.writers,
        moves: 0,
        fragments: 0,
    };
    let locks = if let Choice::PerBitmap(bitmaps) = rules.choice { rules.groups * bitmaps } else { rules.groups };
    let mut engine = Engine::new(state, &vec![rules.flavour; locks], 1, rules.wake);
    for number in 0..rules.writers {
        let (group, last, reserved, steps, stage) = (0, None, 0, 0, Stage::Outside);
        engine.add(Box::new(Writer { rules, number, group, last, reserved, steps, stage }), 0);
    }
    engine.run(Ns::MAX / 2);
    let world = &engine.world;
    let (first, last) = (world.finished.first().copied().unwrap_or(1), world.finished.last().copied().unwrap_or(1));
    let children = world.bytes_at_first as f64 / (1 << 20) as f64 / (first as f64 / 1e9);
    Shown {
        children,
        parent: children * first as f64 / last as f64,
        moves: world.moves,
        fragments: world.fragments as f64 / rules.writers as f64,
    }
}

/// The row of the unfair queue.
const UNFAIR: usize = 9;
const WRITERS: [usize; 9] = [1, 2, 4, 6, 8, 10, 12, 14, 16];

/// As reported: the children's rate, and the parallelism, stock and patched.
const REPORTED: [(&str, [f64; 9], [f64; 9]); 2] = [
    (
        "reported, stock",
        [543.1, 631.3, 618.6, 672.9, 620.5, 637.7, 625.2, 627.2, 346.9],
        [1.00, 0.98, 0.40, 0.29, 0.25, 0.24, 0.21, 0.23, 0.24],
    ),
    (
        "reported, patched",
        [539.5, 630.3, 821.0, 773.3, 764.6, 837.8, 752.4, 781.9, 816.5],
        [1.00, 0.99, 0.98, 0.99, 1.00, 0.99, 0.99, 0.99, 0.98],
    ),
];

/// The table, and what came out of its rules.
fn rows() -> (Vec<Vec<String>>, Vec<[Shown; 9]>) {
    let fair = |choice| {
        let (flavour, wake, groups, group_mb) = (Flavour::Fifo, WAKE, 64, 256);
        Groups { writers: 1, choice, flavour, wake, groups, group_mb }
    };
    let unfair = Groups { flavour: Flavour::Barge, wake: 40_000, ..fair(Choice::Stock) };
    let rules = [
        ("stock, fair queue", fair(Choice::Stock)),
        ("intra (patched)", fair(Choice::Intra)),
        // All files together fit in them.
        ("intra, only 8 groups", Groups { groups: 8, group_mb: 512, ..fair(Choice::Intra) }),
        ("try-lock", fair(Choice::TryLock)),
        ("shared-EX, 50 % alone", fair(Choice::Shared(0.5))),
        ("shared-EX, 100 % alone", fair(Choice::Shared(1.0))),
        ("per-bitmap, 5 of a group", fair(Choice::PerBitmap(5))),
        ("per-bitmap, 13 of a group", fair(Choice::PerBitmap(13))),
        ("reservations of 2 MiB", fair(Choice::Reservations(32))),
        ("stock, unfair queue", unfair),
        ("stock, unfair, small groups", Groups { wake: 60_000, groups: 256, group_mb: FILE_MB / 8, ..unfair }),
    ];
    let mut head = vec!["policy".to_string()];
    head.extend(WRITERS.map(|writers| writers.to_string()));
    head.extend(["parallelism at 4 / 8 / 16", "moves at 8", "fragments at 8"].map(String::from));
    let mut table = vec![head];
    let parallelism = |of: &dyn Fn(usize) -> f64| [2, 4, 8].map(|index| number(of(index))).join(" / ");
    for (name, rates, parallel) in REPORTED {
        let mut row = vec![name.to_string()];
        row.extend(rates.map(number));
        row.extend([parallelism(&|index| parallel[index]), "-".into(), "-".into()]);
        table.push(row);
    }
    let mut all = Vec::new();
    for (name, rules) in rules {
        let results = WRITERS.map(|writers| simulate(Groups { writers, ..rules }));
        let mut row = vec![name.to_string()];
        row.extend(results.iter().map(|shown| number(shown.children)));
        row.push(parallelism(&|index| results[index].parallelism()));
        row.extend([results[4].moves.to_string(), number(results[4].fragments)]);
        table.push(row);
        all.push(results);
    }
    (table, all)
}

/// The whole scenario.
///
/// # Errors
/// Never.
pub fn run(_: &Settings) -> Result<Report, ScenarioError> {
    let (table, all) = rows();
    let rate = |rule: usize, index: usize| all[rule][index].children;
    let over =
        |range: std::ops::RangeInclusive<usize>, ratio: &dyn Fn(usize) -> f64| range.map(ratio).collect::<Vec<f64>>();
    let check = |id: &str, what: &str, reported: &str, kind, values: &[f64], band| {
        Check::ratios(id, what, reported, kind, values, band)
    };
    let patched: Vec<f64> = (2..9).map(|index| all[1][index].parallelism()).collect();
    let unfair: Vec<f64> = (2..8).map(|index| all[UNFAIR][index].parallelism()).collect();
    let parallel =
        patched.iter().all(|value| *value > 0.9) && patched.iter().zip(&unfair).all(|(own, other)| own > other);
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let checks = vec![
        check(
            "G1",
            "stock N / stock 1, N = 4..14",
            "1.14-1.24",
            Kind::Fitted,
            &over(2..=7, &|index| rate(0, index) / rate(0, 0)),
            (1.05, 1.35),
        ),
        check(
            "G2",
            "patched N / patched 1, N = 4..16",
            "1.39-1.55",
            Kind::Ratio,
            &over(2..=8, &|index| rate(1, index) / rate(1, 0)),
            (1.3, 1.7),
        ),
        check(
            "G3",
            "patched / stock, N = 4..14",
            "1.15-1.33",
            Kind::Ratio,
            &over(2..=7, &|index| rate(1, index) / rate(0, index)),
            (1.10, 1.50),
        ),
        check("G4", "patched / stock, N = 1", "0.99", Kind::Ratio, &[rate(1, 0) / rate(0, 0)], (0.95, 1.05)),
        Check::holds(
            "G5",
            "parallelism patched, N >= 4; above stock under an unfair lock",
            "0.98-1.00",
            format!("{}; stock unfair {}", number(least(&patched)), number(least(&unfair))),
            "> 0.9",
            parallel,
        ),
        Check::excluded("G6", "patched / stock, N = 2", "1.00", number(rate(1, 1) / rate(0, 1))),
        Check::excluded("G7", "stock, N = 16 / 1", "0.64", number(rate(0, 8) / rate(0, 0))),
        Check::excluded("G8", "stock parallelism, N >= 4", "0.21-0.40", number(all[0][4].parallelism())),
        Check::excluded(
            "G9",
            "fragments patched / stock, N = 16",
            "0.98",
            number(all[1][8].fragments / all[0][8].fragments.max(1.0)),
        ),
    ];
    let notes = vec![
        "columns: MB/s of so many writers until the first is done (children); times parallelism: until the last is (parent)"
            .into(),
        "parallelism is the time of the first over that of the last; fragments are of a file of 256 MB".into(),
        "fitted: hold, outside and hand-off times and the store's rate".into(),
    ];
    Ok(Report { name: "groups", table, notes, checks })
}
