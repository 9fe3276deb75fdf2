//! Programs that run on a virtual clock: locks, conditions, prices, and nothing of the host.
//!
//! A [`Program`] is resumed step by step; what it does to the world happens at the virtual time at which its step is
//! due. Events are in order of time and, at the same time, of their making, so that the same programs give the same
//! result everywhere. [`super::threads`] runs the same programs on threads.

pub mod hist;
pub mod lock;
pub mod stats;

pub use hist::Histogram;
pub use lock::{Flavour, Lock, Mode, Ns, ProcId};
pub use stats::{Hold, LockStats, Operation};

use lock::Wakes;
use stats::longer;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A lock of the run, by its number.
pub type LockId = usize;
/// Something to wait for, by its number.
pub type Cond = usize;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Takes a lock, and may wait for it.
    Lock(LockId, Mode),
    /// Gives a lock back.
    Unlock(LockId),
    /// Computes for so long.
    Cpu(Ns),
    /// Waits for so long.
    Sleep(Ns),
    /// Waits until somebody notifies; then it is resumed and looks again.
    Wait(Cond),
    /// Is over.
    End,
}

/// What a program may ask and tell while it is resumed.
pub struct Env<'e> {
    /// The time.
    pub now: Ns,
    /// What the program is doing, for the statistics.
    pub label: &'static str,
    waiting: &'e dyn Fn(LockId) -> usize,
    longest: &'e dyn Fn(LockId) -> Longest,
    pub(super) notes: Vec<(Cond, Ns)>,
    pub(super) forget: Range<LockId>,
}

/// Who held a lock longest since [`Env::forget_longest`] and who waited for it longest: what they did, and how long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    /// The longest hold.
    pub hold: Option<(&'static str, Ns)>,
    /// The longest wait.
    pub wait: Option<(&'static str, Ns)>,
}

impl<'e> Env<'e> {
    pub(super) fn new(
        now: Ns,
        label: &'static str,
        waiting: &'e dyn Fn(LockId) -> usize,
        longest: &'e dyn Fn(LockId) -> Longest,
    ) -> Env<'e> {
        Env { now, label, waiting, longest, notes: Vec::new(), forget: 0..0 }
    }

    /// Resumes all that wait for a condition, after `delay`.
    pub fn notify(&mut self, cond: Cond, delay: Ns) {
        self.notes.push((cond, delay));
    }

    /// How many wait for a lock.
    pub fn waiting(&self, lock: LockId) -> usize {
        (self.waiting)(lock)
    }

    /// Who held a lock longest since [`Env::forget_longest`], and who waited.
    pub fn longest(&self, lock: LockId) -> Longest {
        (self.longest)(lock)
    }

    /// Begins anew with [`Env::longest`] of these locks.
    pub fn forget_longest(&mut self, locks: Range<LockId>) {
        self.forget = locks;
    }
}

impl Longest {
    /// The longer ones of two.
    pub fn or_longer(self, other: Longest) -> Longest {
        Longest { hold: longer(self.hold, other.hold), wait: longer(self.wait, other.wait) }
    }
}

/// Something that runs. `W` is the world that all programs of a run change.
pub trait Program<W>: Send {
    /// Does what is due now, and says what comes next.
    fn step(&mut self, world: &mut W, env: &mut Env<'_>) -> Step;
}

/// A world that can end the run.
pub trait World: Send {
    /// Whether there is nothing more to learn.
    fn is_over(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Resume(ProcId),
    WakeHead(LockId),
}

struct Running<'p, W> {
    program: Box<dyn Program<W> + 'p>,
    label: &'static str,
    /// Locks it holds: lock, mode, since.
    holds: Vec<(LockId, Mode, Ns)>,
    /// The lock it waits for.
    wants: Option<(LockId, Mode)>,
    over: bool,
}

/// Runs programs on a virtual clock.
pub struct Engine<'p, W> {
    /// What the programs change.
    pub world: W,
    now: Ns,
    wake: Ns,
    running: Vec<Running<'p, W>>,
    locks: Vec<Lock>,
    stats: Vec<LockStats>,
    conds: Vec<Vec<ProcId>>,
    queue: BinaryHeap<Reverse<(Ns, u64, Event)>>,
    sequence: u64,
}

impl<'p, W: World> Engine<'p, W> {
    /// Locks of these flavours and so many conditions. Whoever is woken runs `wake` later.
    pub fn new(world: W, locks: &[Flavour], conds: usize, wake: Ns) -> Self {
        Engine {
            world,
            now: 0,
            wake,
            running: Vec::new(),
            locks: locks.iter().map(|flavour| Lock::new(*flavour)).collect(),
            stats: locks.iter().map(|_| LockStats::default()).collect(),
            conds: vec![Vec::new(); conds],
            queue: BinaryHeap::new(),
            sequence: 0,
        }
    }

    /// Keeps every hold of all locks and every wait for them, for a timeline.
    pub fn keep_holds(&mut self) {
        self.stats.fill_with(|| LockStats::new(true));
    }

    /// Adds a program, which starts at `when`.
    pub fn add(&mut self, program: Box<dyn Program<W> + 'p>, when: Ns) {
        let running = Running { program, label: "", holds: Vec::new(), wants: None, over: false };
        self.running.push(running);
        self.post(when, Event::Resume(self.running.len() - 1));
    }

    fn post(&mut self, when: Ns, event: Event) {
        self.queue.push(Reverse((when, self.sequence, event)));
        self.sequence += 1;
    }

    /// Runs until the world is over, nothing is left to do, or `limit` is reached. Gives the time of the end.
    pub fn run(&mut self, limit: Ns) -> Ns {
        while let Some(Reverse((when, _, event))) = self.queue.pop() {
            if when > limit {
                self.now = limit;
                break;
            }
            self.now = when;
            match event {
                Event::Resume(who) => self.resume(who),
                Event::WakeHead(lock) => {
                    for who in self.locks[lock].try_head(self.now) {
                        self.granted(who);
                        self.resume(who);
                    }
                }
            }
            if self.world.is_over() {
                break;
            }
        }
        self.close();
        self.now
    }

    /// Statistics of a lock.
    pub fn stats(&self, lock: LockId) -> &LockStats {
        &self.stats[lock]
    }

    /// The statistics of all locks.
    pub fn into_parts(self) -> (W, Vec<LockStats>) {
        (self.world, self.stats)
    }

    /// What is held and waited for at the end counts up to now.
    fn close(&mut self) {
        let now = self.now;
        for (who, running) in self.running.iter_mut().enumerate() {
            if let Some((lock, mode)) = running.wants.take() {
                self.stats[lock].waited(who, mode, now);
            }
            for (lock, mode, since) in running.holds.drain(..) {
                self.stats[lock].held(Hold { begin: since.min(now), end: now, mode, label: running.label });
            }
        }
    }

    /// A waiting program holds its lock from now on.
    fn granted(&mut self, who: ProcId) {
        let Some((lock, mode)) = self.running[who].wants.take() else { return };
        self.stats[lock].waited(who, mode, self.now);
        self.running[who].holds.push((lock, mode, self.now));
        self.stats[lock].begin(self.running[who].label, self.now);
    }

    fn wake(&mut self, lock: LockId, wakes: Wakes) {
        for who in wakes.granted {
            self.granted(who);
            self.post(self.now.saturating_add(self.wake), Event::Resume(who));
        }
        if wakes.head {
            self.post(self.now.saturating_add(self.wake), Event::WakeHead(lock));
        }
    }

    /// Runs a program until it has to wait for something.
    fn resume(&mut self, who: ProcId) {
        while !self.running[who].over && !self.world.is_over() {
            match self.step(who) {
                Step::Cpu(0) => {}
                Step::Cpu(span) | Step::Sleep(span) => {
                    self.post(self.now.saturating_add(span), Event::Resume(who));
                    return;
                }
                Step::Lock(lock, mode) => {
                    let (held, wakes) = self.locks[lock].acquire(who, mode, self.now);
                    self.running[who].wants = Some((lock, mode));
                    self.stats[lock].wants(who, self.running[who].label, self.now);
                    if held {
                        self.stats[lock].uncontended += 1;
                        self.granted(who);
                    }
                    self.wake(lock, wakes);
                    if !held {
                        return;
                    }
                }
                Step::Unlock(lock) => self.unlock(who, lock),
                Step::Wait(cond) => {
                    self.conds[cond].push(who);
                    return;
                }
                Step::End => self.running[who].over = true,
            }
        }
    }

    fn step(&mut self, who: ProcId) -> Step {
        let (locks, stats, now) = (&self.locks, &self.stats, self.now);
        let waiting = |lock: LockId| locks[lock].waiting();
        let longest = |lock: LockId| Longest { hold: stats[lock].longest(now), wait: stats[lock].longest_wait(now) };
        let running = &mut self.running[who];
        let mut env = Env::new(now, running.label, &waiting, &longest);
        let step = running.program.step(&mut self.world, &mut env);
        running.label = env.label;
        let (notes, forget) = (env.notes, env.forget);
        for lock in forget {
            self.stats[lock].forget(self.now);
        }
        for (cond, delay) in notes {
            for who in std::mem::take(&mut self.conds[cond]) {
                self.post(self.now.saturating_add(delay), Event::Resume(who));
            }
        }
        step
    }

    fn unlock(&mut self, who: ProcId, lock: LockId) {
        let running = &mut self.running[who];
        let Some(index) = running.holds.iter().position(|(held, _, _)| *held == lock) else { return };
        let (_, mode, begin) = running.holds.swap_remove(index);
        self.stats[lock].held(Hold { begin, end: self.now, mode, label: running.label });
        let wakes = self.locks[lock].release(mode);
        self.wake(lock, wakes);
    }
}

#[cfg(test)]
mod tests;
