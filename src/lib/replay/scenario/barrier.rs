//! A resync against normal requests at a two-sided barrier, under different throttles.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings};
use crate::replay::engine::{Cond, Engine, Env, Ns, Program, Step, World};
use crate::replay::policy::Turn;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::collections::{BTreeMap, VecDeque};

/// Requests of the mkfs.
const REQUESTS: u64 = 20_000;
/// The most resync requests that may have raised the barrier.
const RAISED_MAX: u64 = 32;
/// Normal requests may pass a raised barrier within this time.
const WINDOW: Ns = 50_000_000;
/// The pause of the old speed control.
const OLD_PAUSE: Ns = 500_000_000;
/// From being woken to running.
const WAKE: Ns = 5_000;
/// The same for the resync by its own request.
const OWN_WAKE: Ns = 2_000;

/// Sending one request. With a wake of 5 us two requests pass before the resync runs again, as was reported.
const SUBMIT: Ns = 4_000;

const SUBMITTER: Cond = 0;
const RESYNC: Cond = 1;
const ARRAY: Cond = 2;

/// What is varied.
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    /// When the resync takes its turn.
    pub turn: Turn,
    /// Normal requests may pass for a while.
    pub window: bool,
    /// The old speed control: a pause in place of waiting for its own requests.
    pub old_speed: bool,
    /// A normal request, in nanoseconds.
    pub request: Ns,
    /// A turn of the resync with seeks there and back, in normal requests.
    pub kappa: f64,
    /// Normal requests under way at once.
    pub depth: u64,
    /// Whether there is a resync.
    pub resync: bool,
    /// After so many requests the submitter waits until all are done; 0 is never.
    pub sync: u64,
}

impl Default for Barrier {
    fn default() -> Self {
        let (turn, window, old_speed) = (Turn::AtOnce, false, false);
        Barrier { turn, window, old_speed, request: 100_000, kappa: 28.0, depth: 32, resync: true, sync: 0 }
    }
}

impl Barrier {
    /// A resync request and a seek. They are in the ratio in which they give the reported figures.
    fn prices(&self) -> (Ns, Ns) {
        let turn = self.kappa * self.request as f64;
        ((turn * 0.4) as Ns, (turn * 0.3) as Ns)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Normal,
    Resync,
}

struct State {
    rules: Barrier,
    barrier: u64,
    pending: u64,
    waiting: u64,
    active: u64,
    in_flight: u64,
    queue: VecDeque<Sort>,
    last_raise: Ns,
    done: u64,
    turns: u64,
    /// Normal requests since the last turn of the resync, and how often there were so many in a turn.
    passed: u64,
    per_turn: BTreeMap<u64, u64>,
    longest_wait: Ns,
}

impl World for State {
    fn is_over(&self) -> bool {
        self.done >= REQUESTS
    }
}

/// The mkfs.
struct Submitter {
    sent: u64,
    /// Since when it waits at the barrier.
    waits: Option<Ns>,
    /// It waits until all that it has sent is done.
    syncs: bool,
}

impl Program<State> for Submitter {
    fn step(&mut self, state: &mut State, env: &mut Env<'_>) -> Step {
        if self.sent < REQUESTS {
            self.syncs &= state.in_flight > 0;
            if self.syncs || state.in_flight >= state.rules.depth {
                return Step::Wait(SUBMITTER);
            }
            let passes = state.rules.window && state.pending > 0 && env.now - state.last_raise < WINDOW;
            if state.barrier > 0 && !passes {
                if self.waits.is_none() {
                    self.waits = Some(env.now);
                    state.waiting += 1;
                }
                return Step::Wait(SUBMITTER);
            }
            if let Some(since) = self.waits.take() {
                state.longest_wait = state.longest_wait.max(env.now - since);
                state.waiting -= 1;
                env.notify(RESYNC, WAKE);
            }
            self.sent += 1;
            self.syncs = state.rules.sync > 0 && self.sent.is_multiple_of(state.rules.sync);
            state.passed += 1;
            state.pending += 1;
            state.in_flight += 1;
            state.queue.push_back(Sort::Normal);
            env.notify(ARRAY, 0);
            return Step::Cpu(SUBMIT);
        }
        Step::End
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Turn,
    Raise,
    Drain,
    Speed,
}

/// The resync thread.
struct Resync {
    stage: Stage,
}

impl Program<State> for Resync {
    fn step(&mut self, state: &mut State, env: &mut Env<'_>) -> Step {
        loop {
            match self.stage {
                Stage::Turn => {
                    self.stage = Stage::Raise;
                    let pause = state.rules.turn.pause(state.waiting as usize, env.now);
                    if pause > 0 {
                        return Step::Sleep(pause);
                    }
                }
                Stage::Raise if state.waiting > 0 => return Step::Wait(RESYNC),
                Stage::Raise => {
                    state.barrier += 1;
                    self.stage = Stage::Drain;
                }
                Stage::Drain if state.pending > 0 || state.barrier > RAISED_MAX => return Step::Wait(RESYNC),
                Stage::Drain => {
                    state.last_raise = env.now;
                    state.turns += 1;
                    *state.per_turn.entry(std::mem::take(&mut state.passed)).or_default() += 1;
                    state.active += 1;
                    state.queue.push_back(Sort::Resync);
                    env.notify(ARRAY, 0);
                    self.stage = Stage::Speed;
                    if state.rules.old_speed {
                        self.stage = Stage::Turn;
                        return Step::Sleep(OLD_PAUSE);
                    }
                }
                Stage::Speed if state.active > 0 => return Step::Wait(RESYNC),
                Stage::Speed => self.stage = Stage::Turn,
            }
        }
    }
}

/// The disks, as one server.
struct Array {
    current: Option<Sort>,
    last: Sort,
}

impl Program<State> for Array {
    fn step(&mut self, state: &mut State, env: &mut Env<'_>) -> Step {
        match self.current.take() {
            Some(Sort::Normal) => {
                state.pending -= 1;
                state.in_flight -= 1;
                state.done += 1;
                env.notify(SUBMITTER, WAKE);
                env.notify(RESYNC, WAKE);
            }
            Some(Sort::Resync) => {
                // The resync learns of its own request before the barrier falls.
                state.active -= 1;
                env.notify(RESYNC, OWN_WAKE);
                state.barrier -= 1;
                env.notify(SUBMITTER, WAKE);
            }
            None => {}
        }
        let Some(next) = state.queue.pop_front() else { return Step::Wait(ARRAY) };
        let (resync, seek) = state.rules.prices();
        let service = if next == Sort::Normal { state.rules.request } else { resync };
        let switch = if next == self.last { 0 } else { seek };
        self.last = next;
        self.current = Some(next);
        Step::Cpu(service + switch)
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// How long the requests took, in nanoseconds.
    pub time: Ns,
    /// Turns of the resync.
    pub turns: u64,
    /// How often so many requests passed between two turns.
    pub per_turn: BTreeMap<u64, u64>,
    /// The longest wait at the barrier, in nanoseconds.
    pub longest_wait: Ns,
}

/// Runs the mkfs beside the resync.
pub fn simulate(rules: Barrier) -> Shown {
    let state = State {
        rules,
        barrier: 0,
        pending: 0,
        waiting: 0,
        active: 0,
        in_flight: 0,
        queue: VecDeque::new(),
        last_raise: 0,
        done: 0,
        turns: 0,
        passed: 0,
        per_turn: BTreeMap::new(),
        longest_wait: 0,
    };
    let mut engine = Engine::new(state, &[], 3, WAKE);
    engine.add(Box::new(Submitter { sent: 0, waits: None, syncs: false }), 0);
    if rules.resync {
        engine.add(Box::new(Resync { stage: Stage::Turn }), 0);
    }
    engine.add(Box::new(Array { current: None, last: Sort::Normal }), 0);
    let time = engine.run(Ns::MAX / 2);
    let State { turns, per_turn, longest_wait, .. } = engine.world;
    Shown { time, turns, per_turn, longest_wait }
}

/// Time with a resync over time without.
fn slower(rules: Barrier) -> f64 {
    let calm = simulate(Barrier { resync: false, ..rules });
    simulate(rules).time as f64 / calm.time as f64
}

const MS: Ns = 1_000_000;

/// Policies: name and rules.
fn policies(base: Barrier) -> Vec<(&'static str, Barrier)> {
    let turn = |turn| Barrier { turn, ..base };
    vec![
        ("none", base),
        ("tick, HZ 100", turn(Turn::Tick(10 * MS))),
        ("tick, HZ 250", turn(Turn::Tick(4 * MS))),
        ("tick, HZ 300", turn(Turn::Tick(10 * MS / 3))),
        ("tick, HZ 1000", turn(Turn::Tick(MS))),
        ("sleep(100ms)", turn(Turn::SleepIfWaiting(100 * MS))),
        ("sleep(1s)", turn(Turn::SleepIfWaiting(1000 * MS))),
        ("window(HZ/20)", Barrier { window: true, ..base }),
        ("old-speed", Barrier { old_speed: true, ..base }),
    ]
}

/// How many requests pass between two turns: the commonest number, with its share.
fn per_turn(turns: &BTreeMap<u64, u64>) -> String {
    let all: u64 = turns.values().sum();
    match turns.iter().max_by_key(|(passed, count)| (**count, **passed)) {
        Some((passed, count)) if all > 0 => format!("{passed} in {:.0} %", *count as f64 * 100.0 / all as f64),
        _ => "-".into(),
    }
}

/// What hangs on the parameters that nobody reported: the time of a request, how many are under way, and the timer.
fn cells(base: Barrier) -> Vec<String> {
    let mut all = Vec::new();
    for request in [50_000, 100_000, 200_000, 400_000] {
        for depth in [2, 8, 32, 128] {
            all.extend([100, 250, 1000].map(|hz| (Barrier { request, depth, ..base }, hz)));
        }
    }
    let run = |(rules, hz): &(Barrier, u64)| {
        let tick = slower(Barrier { turn: Turn::Tick(1_000_000_000 / hz), ..*rules });
        let others = (*hz == 250).then(|| {
            let window = slower(Barrier { window: true, ..*rules });
            let sleep = slower(Barrier { turn: Turn::SleepIfWaiting(100 * MS), ..*rules });
            (slower(*rules), window.max(sleep))
        });
        (rules.depth, *hz, tick, others)
    };
    let shown: Vec<_> = all.par_iter().map(run).collect();
    let range = |ticks: Vec<f64>| {
        let (least, most) = ticks.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), tick| (l.min(*tick), m.max(*tick)));
        format!("{} to {} in {} cells", number(least), number(most), ticks.len())
    };
    let ticks = |of: &dyn Fn(u64, u64) -> bool| {
        range(shown.iter().filter(|(depth, hz, ..)| of(*depth, *hz)).map(|(_, _, tick, _)| *tick).collect())
    };
    let orders: Vec<bool> = shown
        .iter()
        .filter_map(|(_, _, tick, others)| others.map(|(none, calm)| none >= *tick && *tick > calm))
        .collect();
    vec![
        "sensitivity: requests of 0.05 to 0.4 ms, 2 to 128 under way, HZ 100, 250 and 1000".into(),
        format!(
            "tick / calm: {}; with 32 under way, HZ 250 or 1000: {}",
            ticks(&|_, _| true),
            ticks(&|depth, hz| depth == 32 && hz > 100)
        ),
        format!(
            "none >= tick > sleep(100ms) and window holds in {} of {} cells at HZ 250",
            orders.iter().filter(|holds| **holds).count(),
            orders.len()
        ),
    ]
}

/// The whole scenario.
///
/// # Errors
/// Never.
pub fn run(settings: &Settings) -> Result<Report, ScenarioError> {
    let base = Barrier { kappa: settings.kappa, ..Barrier::default() };
    let reported = ["1200", "-", "136", "136", "136", "as 1 s", "80", "80", "as before"];
    let head = ["policy", "mkfs s", "ratio", "resync MB/s", "passed a turn", "longest wait ms", "reported s"];
    let mut table = vec![head.map(String::from).to_vec()];
    let mut ratios = Vec::new();
    let calm = simulate(Barrier { resync: false, ..base }).time;
    for ((name, rules), reported) in policies(base).into_iter().zip(reported) {
        let shown = simulate(rules);
        let ratio = shown.time as f64 / calm as f64;
        let resync = shown.turns as f64 * 65_536.0 / 1e6 / (shown.time as f64 / 1e9);
        ratios.push(ratio);
        table.push(vec![
            name.into(),
            number(ratio * 80.0),
            number(ratio),
            number(resync),
            per_turn(&shown.per_turn),
            number(shown.longest_wait as f64 / 1e6),
            reported.into(),
        ]);
    }
    let [none, _, tick250, _, tick1000, sleep, long_sleep, windowed, old] = ratios[..] else { return Ok(empty(table)) };
    let fast = slower(Barrier { kappa: 3.0, ..base });
    let window = |depth, sync| slower(Barrier { depth, sync, window: true, ..base });
    let (single, synchronous) = (window(1, 0), window(32, 8));
    let check = |id: &str, what: &str, reported: &str, kind, values: &[f64], band| {
        Check::ratios(id, what, reported, kind, values, band)
    };
    let calm_ones = [sleep, long_sleep, old];
    let others = calm_ones.into_iter().chain([windowed]).fold(0.0, f64::max);
    let order = none / tick250 > 4.0 && tick250 > others && tick1000 > others;
    let checks = vec![
        check("B1", "none / calm", "15.0", Kind::Fitted, &[none], (8.0, 25.0)),
        check("B2", "tick / calm, HZ 250 and 1000, depth 32", "1.70", Kind::Ratio, &[tick250, tick1000], (1.3, 2.1)),
        check("B3", "sleep(100ms), sleep(1s), old-speed / calm", "1.0", Kind::Ratio, &calm_ones, (0.98, 1.10)),
        check("B4", "window / calm", "1.0", Kind::Ratio, &[windowed], (0.98, 1.12)),
        Check::holds(
            "B5",
            "none >> tick > window, sleep, old-speed",
            "holds",
            format!("none/tick {}", number(none / tick250)),
            "none/tick > 4",
            order,
        ),
        check("B6", "kappa 3: none / calm", "not so significant", Kind::Ratio, &[fast], (1.5, 4.0)),
    ];
    let notes = vec![
        format!("kappa {} is fitted to the first row; the depth of 32 is assumed and has weight", settings.kappa),
        format!("assumed: {} us to send a request, {} us to wake", SUBMIT / 1000, WAKE / 1000),
        format!("prediction: with one request in flight the window cannot help: {} times slower", number(single)),
        format!("prediction: with a synchronous point every 8 requests it helps little: {}", number(synchronous)),
    ];
    let mut notes = notes;
    notes.extend(cells(base));
    Ok(Report { name: "barrier", table, notes, checks })
}

fn empty(table: Vec<Vec<String>>) -> Report {
    Report { name: "barrier", table, notes: Vec::new(), checks: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two requests pass a turn of the resync, which takes as long as kappa requests.
    #[test]
    fn without_a_throttle_the_closed_form_holds() {
        for kappa in [3.0, 10.0, 28.0] {
            let base = Barrier { kappa, ..Barrier::default() };
            let (got, expected) = (slower(base), (2.0 + kappa) / 2.0);
            assert!((got / expected - 1.0).abs() < 0.03, "{kappa}: {got} {expected}");
        }
        let shown = simulate(Barrier::default());
        assert!(shown.per_turn[&2] * 100 > 95 * shown.turns, "{:?}", shown.per_turn);
        // A turn of 2.8 ms, and nobody waits for two of them.
        assert!((1_900_000..4_000_000).contains(&shown.longest_wait), "{}", shown.longest_wait);
    }

    /// The resync wakes on a tick, lets what is under way drain, takes its turn, and sleeps to the next tick. That
    /// holds where the turn ends well inside a tick; else the resync may find nobody waiting and go on.
    #[test]
    fn with_a_tick_the_closed_form_holds() {
        for (hz, depth, request) in [(250, 32, 100_000), (100, 32, 100_000), (100, 16, 100_000), (100, 32, 50_000)] {
            let base = Barrier { depth, request, ..Barrier::default() };
            let tick = 1_000_000_000 / hz;
            let (resync, seek) = base.prices();
            let turn = resync + 2 * seek;
            let period = tick * (depth * request + turn).div_ceil(tick);
            let expected = period as f64 / (period - turn) as f64;
            let got = slower(Barrier { turn: Turn::Tick(tick), ..base });
            assert!((got / expected - 1.0).abs() < 0.06, "HZ {hz}, {depth} of {request}: {got} {expected}");
        }
    }

    #[test]
    fn a_window_wants_others_under_way() {
        let window = |depth, sync| slower(Barrier { window: true, depth, sync, ..Barrier::default() });
        assert!(window(1, 0) > 10.0 && window(32, 0) < 1.1 && window(32, 8) > 1.5);
    }
}
