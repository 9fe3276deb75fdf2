//! A resync against normal requests at a two-sided barrier, under different throttles.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings};
use crate::replay::engine::{Cond, Engine, Env, Ns, Program, Step, World};
use crate::replay::policy::Turn;
use std::collections::VecDeque;

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
}

impl Default for Barrier {
    fn default() -> Self {
        let (turn, window, old_speed) = (Turn::AtOnce, false, false);
        Barrier { turn, window, old_speed, request: 100_000, kappa: 28.0, depth: 32, resync: true }
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
}

impl World for State {
    fn is_over(&self) -> bool {
        self.done >= REQUESTS
    }
}

/// The mkfs.
struct Submitter {
    sent: u64,
    waits: bool,
}

impl Program<State> for Submitter {
    fn step(&mut self, state: &mut State, env: &mut Env<'_>) -> Step {
        if self.sent < REQUESTS {
            if state.in_flight >= state.rules.depth {
                return Step::Wait(SUBMITTER);
            }
            let passes = state.rules.window && state.pending > 0 && env.now - state.last_raise < WINDOW;
            if state.barrier > 0 && !passes {
                if !std::mem::replace(&mut self.waits, true) {
                    state.waiting += 1;
                }
                return Step::Wait(SUBMITTER);
            }
            if std::mem::take(&mut self.waits) {
                state.waiting -= 1;
                env.notify(RESYNC, WAKE);
            }
            self.sent += 1;
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

/// How long the requests take, in nanoseconds, and how many turns the resync had.
pub fn simulate(rules: Barrier) -> (Ns, u64) {
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
    };
    let mut engine = Engine::new(state, &[], 3, WAKE);
    engine.add(Box::new(Submitter { sent: 0, waits: false }), 0);
    if rules.resync {
        engine.add(Box::new(Resync { stage: Stage::Turn }), 0);
    }
    engine.add(Box::new(Array { current: None, last: Sort::Normal }), 0);
    let end = engine.run(Ns::MAX / 2);
    (end, engine.world.turns)
}

/// Time with a resync over time without.
fn slower(rules: Barrier) -> f64 {
    let (calm, _) = simulate(Barrier { resync: false, ..rules });
    simulate(rules).0 as f64 / calm as f64
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

/// The whole scenario.
///
/// # Errors
/// Never.
pub fn run(settings: &Settings) -> Result<Report, ScenarioError> {
    let base = Barrier { kappa: settings.kappa, ..Barrier::default() };
    let reported = ["1200", "-", "136", "136", "136", "as 1 s", "80", "80", "as before"];
    let mut table = vec![["policy", "mkfs s", "ratio", "resync MB/s", "reported s"].map(String::from).to_vec()];
    let mut ratios = Vec::new();
    let (calm, _) = simulate(Barrier { resync: false, ..base });
    for ((name, rules), reported) in policies(base).into_iter().zip(reported) {
        let (time, turns) = simulate(rules);
        let ratio = time as f64 / calm as f64;
        let resync = turns as f64 * 65_536.0 / 1e6 / (time as f64 / 1e9);
        ratios.push(ratio);
        table.push(vec![name.into(), number(ratio * 80.0), number(ratio), number(resync), reported.into()]);
    }
    let [none, _, tick250, _, tick1000, sleep, long_sleep, window, old] = ratios[..] else { return Ok(empty(table)) };
    let fast = slower(Barrier { kappa: 3.0, ..base });
    let single = slower(Barrier { depth: 1, window: true, ..base });
    let check = |id: &str, what: &str, reported: &str, kind, values: &[f64], band| {
        Check::ratios(id, what, reported, kind, values, band)
    };
    let calm_ones = [sleep, long_sleep, old];
    let others = calm_ones.into_iter().chain([window]).fold(0.0, f64::max);
    let order = none / tick250 > 4.0 && tick250 > others && tick1000 > others;
    let checks = vec![
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
    ];
    let notes = vec![
        format!("kappa {} is fitted to the first row; the depth of 32 is assumed and has weight", settings.kappa),
        format!("assumed: {} us to send a request, {} us to wake", SUBMIT / 1000, WAKE / 1000),
        format!("prediction: with one request in flight the window cannot help: {} times slower", number(single)),
    ];
    Ok(Report { name: "barrier", table, notes, checks })
}

fn empty(table: Vec<Vec<String>>) -> Report {
    Report { name: "barrier", table, notes: Vec::new(), checks: Vec::new() }
}
