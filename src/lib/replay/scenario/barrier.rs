//! A resync against normal requests at a two-sided barrier, under different throttles.

mod report;
#[cfg(test)]
mod tests;

pub use report::run;

use crate::replay::engine::{Cond, Engine, Env, Ns, Program, Step, World};
use crate::replay::policy::Turn;
use std::collections::{BTreeMap, VecDeque};

/// Requests of the mkfs.
const REQUESTS: u64 = 20_000;
/// With so many resync requests that have raised the barrier, none is sent.
const RAISED_MAX: u64 = 32;
/// Normal requests may pass a raised barrier within this time.
const WINDOW: Ns = 50_000_000;
/// The pause of the old speed control.
const OLD_PAUSE: Ns = 500_000_000;
/// From being woken to running.
const WAKE: Ns = 5_000;
/// The same for the resync by its own request.
const OWN_WAKE: Ns = 2_000;

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
    /// After so many requests all have to be done before there are more; 0 is never.
    pub sync_every: u64,
    /// Sending a request. From more than half of a wake up to a whole one, two requests pass before the resync runs.
    pub submit: Ns,
    /// The resync is told when nobody waits any more, not only when a request is done.
    pub told: bool,
    /// Whether there is a resync.
    pub resync: bool,
}

impl Default for Barrier {
    fn default() -> Self {
        Barrier {
            turn: Turn::AtOnce,
            window: false,
            old_speed: false,
            request: 100_000,
            kappa: 28.0,
            depth: 32,
            sync_every: 0,
            submit: 4_000,
            told: true,
            resync: true,
        }
    }
}

impl Barrier {
    /// A resync request and a seek. They are in the ratio in which they give the reported figures.
    fn prices(&self) -> (Ns, Ns) {
        let turn = self.kappa * self.request as f64;
        ((turn * 0.4) as Ns, (turn * 0.3) as Ns)
    }
}

/// What happens, for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The mkfs has to wait at the barrier.
    Waits,
    /// One of its requests goes to the disks.
    Passes,
    /// One of its requests is done.
    Done,
    /// The resync raises the barrier.
    Raises,
    /// Its request goes to the disks.
    Turn,
    /// Its request is done, and the barrier falls.
    Falls,
    /// The resync stays away for so long because somebody waits.
    Leaves(Ns),
    /// The resync pauses for its speed.
    Pauses(Ns),
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// How long the requests take.
    pub time: Ns,
    /// Turns of the resync.
    pub turns: u64,
    /// How many normal requests passed between two turns, and how often.
    pub passed: BTreeMap<u64, u64>,
    /// The longest that the mkfs waited at the barrier.
    pub longest_wait: Ns,
    /// How often the resync stayed away because somebody waited, and for how long in all.
    pub left: (u64, Ns),
    /// How often it paused for its speed, and for how long in all.
    pub paused: (u64, Ns),
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
    /// Normal requests since the last turn.
    passed: u64,
    run: Run,
    /// What happened, as far as there is room.
    record: Vec<(Ns, What)>,
    record_max: usize,
}

impl State {
    fn note(&mut self, now: Ns, what: What) {
        if self.record.len() < self.record_max {
            self.record.push((now, what));
        }
    }
}

impl World for State {
    fn is_over(&self) -> bool {
        self.done >= REQUESTS
    }
}

/// The mkfs.
struct Submitter {
    sent: u64,
    /// Since when it has been waiting at the barrier.
    waits: Option<Ns>,
}

impl Program<State> for Submitter {
    fn step(&mut self, state: &mut State, env: &mut Env<'_>) -> Step {
        if self.sent >= REQUESTS {
            return Step::End;
        }
        let rules = state.rules;
        let synchronous = rules.sync_every > 0 && self.sent.is_multiple_of(rules.sync_every);
        if state.in_flight >= rules.depth || (synchronous && state.in_flight > 0) {
            return Step::Wait(SUBMITTER);
        }
        let passes = rules.window && state.pending > 0 && env.now - state.last_raise < WINDOW;
        if state.barrier > 0 && !passes {
            if self.waits.is_none() {
                self.waits = Some(env.now);
                state.waiting += 1;
                state.note(env.now, What::Waits);
            }
            return Step::Wait(SUBMITTER);
        }
        if let Some(since) = self.waits.take() {
            state.waiting -= 1;
            state.run.longest_wait = state.run.longest_wait.max(env.now - since);
            if rules.told {
                env.notify(RESYNC, WAKE);
            }
        }
        self.sent += 1;
        state.pending += 1;
        state.in_flight += 1;
        state.passed += 1;
        state.queue.push_back(Sort::Normal);
        state.note(env.now, What::Passes);
        env.notify(ARRAY, 0);
        Step::Cpu(rules.submit)
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
                        state.run.left = (state.run.left.0 + 1, state.run.left.1 + pause);
                        state.note(env.now, What::Leaves(pause));
                        return Step::Sleep(pause);
                    }
                }
                Stage::Raise if state.waiting > 0 => return Step::Wait(RESYNC),
                Stage::Raise => {
                    state.barrier += 1;
                    state.note(env.now, What::Raises);
                    self.stage = Stage::Drain;
                }
                Stage::Drain if state.pending > 0 || state.barrier >= RAISED_MAX => return Step::Wait(RESYNC),
                Stage::Drain => {
                    state.last_raise = env.now;
                    state.run.turns += 1;
                    *state.run.passed.entry(std::mem::take(&mut state.passed)).or_default() += 1;
                    state.note(env.now, What::Turn);
                    state.active += 1;
                    state.queue.push_back(Sort::Resync);
                    env.notify(ARRAY, 0);
                    self.stage = Stage::Speed;
                    if state.rules.old_speed {
                        self.stage = Stage::Turn;
                        state.run.paused = (state.run.paused.0 + 1, state.run.paused.1 + OLD_PAUSE);
                        state.note(env.now, What::Pauses(OLD_PAUSE));
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
                state.note(env.now, What::Done);
                env.notify(SUBMITTER, WAKE);
                env.notify(RESYNC, WAKE);
            }
            Some(Sort::Resync) => {
                // The resync learns of its own request before the barrier falls.
                state.active -= 1;
                env.notify(RESYNC, OWN_WAKE);
                state.barrier -= 1;
                state.note(env.now, What::Falls);
                env.notify(SUBMITTER, WAKE);
                env.notify(RESYNC, WAKE);
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

/// Runs the mkfs to its end.
pub fn simulate(rules: Barrier) -> Run {
    recorded(rules, 0).0
}

/// The same, with the first things that happened.
pub fn recorded(rules: Barrier, record_max: usize) -> (Run, Vec<(Ns, What)>) {
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
        passed: 0,
        run: Run::default(),
        record: Vec::new(),
        record_max,
    };
    let mut engine = Engine::new(state, &[], 3, WAKE);
    engine.add(Box::new(Submitter { sent: 0, waits: None }), 0);
    if rules.resync {
        engine.add(Box::new(Resync { stage: Stage::Turn }), 0);
    }
    engine.add(Box::new(Array { current: None, last: Sort::Normal }), 0);
    let time = engine.run(Ns::MAX / 2);
    let State { run, record, .. } = engine.world;
    (Run { time, ..run }, record)
}

/// Time with a resync over time without.
pub fn slower(rules: Barrier) -> f64 {
    let calm = simulate(Barrier { resync: false, ..rules });
    simulate(rules).time as f64 / calm.time as f64
}
