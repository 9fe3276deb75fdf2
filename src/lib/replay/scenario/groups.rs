//! Many writers and the locks of allocation groups.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings};
use crate::replay::engine::{Engine, Env, Flavour, Mode, Ns, Program, Step, World};

const STEP_KIB: u64 = 64;
const FILE_MB: u64 = 256;
const GROUP_MB: u64 = 256;
const BACKLOG_MB: f64 = 64.0;
const STEPS: u64 = FILE_MB * 1024 / STEP_KIB;
/// Steps that fill a group.
const GROUP_STEPS: u64 = GROUP_MB * 1024 / STEP_KIB;
/// Steps of a MB.
const PER_MB: u64 = 1024 / STEP_KIB;

/// How a group is chosen and locked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Keep the group until it is full.
    Stock,
    /// Move to an unused group where somebody else uses this one.
    Intra,
    /// The lock is shared locally; of the work under it this share is done alone.
    Shared(f64),
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
}

/// Per MB, fitted to one writer and to the cap of the stock rule: under the lock, and outside; and the store's rate.
const HOLD: Ns = 1_425_000;
const OUTSIDE: Ns = 417_000;
const WAKE: Ns = 10_000;
const STORE_MB_S: f64 = 810.0;

struct State {
    users: Vec<u64>,
    filled: Vec<u64>,
    backlog: f64,
    backlog_at: Ns,
    bytes: u64,
    finished: Vec<Ns>,
    bytes_at_first: u64,
    writers: usize,
    moves: u64,
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
    group: usize,
    steps: u64,
    stage: Stage,
}

impl Writer {
    fn choose(&mut self, state: &mut State) {
        let other = match self.rules.choice {
            _ if state.filled[self.group] >= GROUP_STEPS => (1..=self.rules.groups)
                .map(|next| (self.group + next) % self.rules.groups)
                .find(|group| state.filled[*group] < GROUP_STEPS),
            Choice::Intra if state.users[self.group] > 1 => {
                (0..self.rules.groups).find(|group| state.users[*group] == 0 && state.filled[*group] < GROUP_STEPS)
            }
            _ => None,
        };
        if let Some(other) = other {
            state.users[self.group] -= 1;
            state.users[other] += 1;
            state.moves += 1;
            self.group = other;
        }
        state.filled[self.group] += 1;
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
                Step::Lock(self.group, Mode::Exclusive)
            }
            Stage::Work => {
                self.stage = Stage::Release;
                let share = if let Choice::Shared(share) = self.rules.choice { share } else { 1.0 };
                Step::Cpu(((HOLD / PER_MB) as f64 * share) as Ns)
            }
            Stage::Release => {
                self.stage = Stage::Store;
                Step::Unlock(self.group)
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

/// The joint rate until the first writer ends, in MB/s, and the time of the first over that of the last.
pub fn simulate(rules: Groups) -> (f64, f64) {
    let mut users = vec![0; rules.groups];
    users[0] = rules.writers as u64;
    let state = State {
        users,
        filled: vec![0; rules.groups],
        backlog: 0.0,
        backlog_at: 0,
        bytes: 0,
        finished: Vec::new(),
        bytes_at_first: 0,
        writers: rules.writers,
        moves: 0,
    };
    let mut engine = Engine::new(state, &vec![rules.flavour; rules.groups], 1, rules.wake);
    for _ in 0..rules.writers {
        engine.add(Box::new(Writer { rules, group: 0, steps: 0, stage: Stage::Outside }), 0);
    }
    engine.run(Ns::MAX / 2);
    let finished = &engine.world.finished;
    let (first, last) = (finished.first().copied().unwrap_or(1), finished.last().copied().unwrap_or(1));
    (engine.world.bytes_at_first as f64 / (1 << 20) as f64 / (first as f64 / 1e9), first as f64 / last as f64)
}

const WRITERS: [usize; 9] = [1, 2, 4, 6, 8, 10, 12, 14, 16];

/// The whole scenario.
///
/// # Errors
/// Never.
pub fn run(_: &Settings) -> Result<Report, ScenarioError> {
    let fair = |choice, groups| Groups { writers: 1, choice, flavour: Flavour::Fifo, wake: WAKE, groups };
    let unfair = Groups { flavour: Flavour::Barge, wake: 40_000, ..fair(Choice::Stock, 64) };
    let rules = [
        ("stock, fair queue", fair(Choice::Stock, 64)),
        ("intra (patched)", fair(Choice::Intra, 64)),
        ("intra, 18 groups", fair(Choice::Intra, 18)),
        ("shared-EX, 50 % alone", fair(Choice::Shared(0.5), 64)),
        ("shared-EX, 100 % alone", fair(Choice::Shared(1.0), 64)),
        ("stock, unfair queue", unfair),
    ];
    let mut head = vec!["policy".to_string()];
    head.extend(WRITERS.map(|writers| writers.to_string()));
    head.push("parallelism at 4 / 8 / 16".into());
    let mut table = vec![head];
    let mut all = Vec::new();
    for (name, rules) in rules {
        let results = WRITERS.map(|writers| simulate(Groups { writers, ..rules }));
        let mut row = vec![name.to_string()];
        row.extend(results.iter().map(|(rate, _)| number(*rate)));
        row.push([2, 4, 8].map(|index: usize| number(results[index].1)).join(" / "));
        table.push(row);
        all.push(results);
    }
    let rate = |rule: usize, index: usize| all[rule][index].0;
    let over =
        |range: std::ops::RangeInclusive<usize>, ratio: &dyn Fn(usize) -> f64| range.map(ratio).collect::<Vec<f64>>();
    let check = |id: &str, what: &str, reported: &str, kind, values: &[f64], band| {
        Check::ratios(id, what, reported, kind, values, band)
    };
    let patched: Vec<f64> = (2..9).map(|index| all[1][index].1).collect();
    let unfair: Vec<f64> = (2..8).map(|index| all[5][index].1).collect();
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
        Check::excluded("G8", "stock parallelism, N >= 4", "0.21-0.40", number(all[0][4].1)),
        Check::excluded("G9", "fragments patched / stock", "0.98", "not modelled".into()),
    ];
    let notes = vec![
        "MB/s until the first writer is done; parallelism is the time of the first over that of the last".into(),
        "fitted: hold, outside and hand-off times and the store's rate".into(),
    ];
    Ok(Report { name: "groups", table, notes, checks })
}
