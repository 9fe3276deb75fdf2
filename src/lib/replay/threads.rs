//! The same programs on real threads, with the flavours as real locks.
//!
//! One mutex guards the locks' state and the world, as the kernel's lock has a short inner one; tree work runs under
//! it, so lookups that could run side by side do not. What a step costs is spun for where that is asked for; else only
//! the work itself is done.

use super::engine::stats::Hold;
use super::engine::{Cond, Env, Flavour, Lock, LockId, LockStats, Longest, Mode, Ns, ProcId, Program, Step, World};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Fewer processors than this and what comes out says more of the scheduler than of the locks.
pub const PROCESSORS_MIN: usize = 3;

/// What a sleeping thread is told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    granted: bool,
    head: bool,
    notified: bool,
}

struct State<W> {
    world: W,
    locks: Vec<Lock>,
    stats: Vec<LockStats>,
    conds: Vec<Vec<ProcId>>,
    told: Vec<Told>,
    labels: Vec<&'static str>,
    holds: Vec<Vec<(LockId, Mode, Ns)>>,
    /// The lock that a thread waits for.
    wants: Vec<Option<(LockId, Mode)>>,
}

struct Shared<W> {
    state: Mutex<State<W>>,
    sleepers: Vec<Condvar>,
    over: AtomicBool,
    start: Instant,
    pad: bool,
}

/// Runs programs on a thread each until the world is over or `limit` has passed. Gives the world, the locks'
/// statistics, and how long it took.
pub fn run<'p, W: World>(
    world: W,
    programs: Vec<Box<dyn Program<W> + 'p>>,
    flavours: &[Flavour],
    conds: usize,
    (pad, timeline): (bool, bool),
    limit: Duration,
) -> (W, Vec<LockStats>, Ns) {
    let count = programs.len();
    let state = State {
        world,
        locks: flavours.iter().map(|flavour| Lock::new(*flavour)).collect(),
        stats: flavours.iter().map(|_| LockStats::new(timeline)).collect(),
        conds: vec![Vec::new(); conds],
        told: vec![Told::default(); count],
        labels: vec![""; count],
        holds: vec![Vec::new(); count],
        wants: vec![None; count],
    };
    let shared = Shared {
        state: Mutex::new(state),
        sleepers: (0..count).map(|_| Condvar::new()).collect(),
        over: AtomicBool::new(false),
        start: Instant::now(),
        pad,
    };
    std::thread::scope(|scope| {
        for (who, program) in programs.into_iter().enumerate() {
            let shared = &shared;
            scope.spawn(move || shared.drive(who, program, limit));
        }
    });
    let end = shared.now();
    let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    (state.world, state.stats, end)
}

impl<W: World> Shared<W> {
    fn now(&self) -> Ns {
        Ns::try_from(self.start.elapsed().as_nanos()).unwrap_or(Ns::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.sleepers.iter().for_each(Condvar::notify_all);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn drive(&self, who: ProcId, mut program: Box<dyn Program<W> + '_>, limit: Duration) {
        let mut state = self.state();
        while !self.is_over() {
            if state.world.is_over() || self.start.elapsed() > limit {
                self.finish();
                break;
            }
            // The work itself counts as a part of what it costs.
            let begin = self.start.elapsed();
            let step = self.step(who, program.as_mut(), &mut state);
            state = match step {
                Step::Cpu(time) => {
                    drop(state);
                    self.spin(begin + Duration::from_nanos(time));
                    self.state()
                }
                Step::Sleep(time) => self.sleep(who, Duration::from_nanos(time), limit, state),
                Step::Lock(lock, mode) => self.lock(who, lock, mode, limit, state),
                Step::Unlock(lock) => {
                    self.unlock(who, lock, &mut state);
                    state
                }
                Step::Wait(cond) => {
                    state.conds[cond].push(who);
                    self.wait(who, limit, state, |told| std::mem::take(&mut told.notified))
                }
                Step::End => break,
            };
        }
    }

    fn step(&self, who: ProcId, program: &mut (dyn Program<W> + '_), state: &mut State<W>) -> Step {
        let now = self.now();
        let State { world, locks, stats, labels, .. } = &mut *state;
        let waiting = |lock: LockId| locks[lock].waiting();
        let longest = |lock: LockId| Longest { hold: stats[lock].longest(now), wait: stats[lock].longest_wait(now) };
        let mut env = Env::new(now, labels[who], &waiting, &longest);
        let step = program.step(world, &mut env);
        let (label, notes, forget) = (env.label, std::mem::take(&mut env.notes), env.forget);
        labels[who] = label;
        for lock in forget {
            stats[lock].forget(now);
        }
        for (cond, _) in notes {
            self.notify(cond, state);
        }
        step
    }

    /// Threads wake as fast as the machine wakes them; the price of a wake is not added.
    fn notify(&self, cond: Cond, state: &mut State<W>) {
        for who in std::mem::take(&mut state.conds[cond]) {
            state.told[who].notified = true;
            self.sleepers[who].notify_one();
        }
    }

    fn spin(&self, end: Duration) {
        if self.pad {
            while self.start.elapsed() < end && !self.is_over() {
                std::hint::spin_loop();
            }
        }
    }

    fn sleep<'s>(
        &'s self,
        who: ProcId,
        time: Duration,
        limit: Duration,
        mut state: MutexGuard<'s, State<W>>,
    ) -> MutexGuard<'s, State<W>> {
        let end = (self.start.elapsed() + time).min(limit + Duration::from_millis(1));
        while !self.is_over() {
            let left = end.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = self.sleepers[who].wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    fn wait<'s>(
        &'s self,
        who: ProcId,
        limit: Duration,
        mut state: MutexGuard<'s, State<W>>,
        mut done: impl FnMut(&mut Told) -> bool,
    ) -> MutexGuard<'s, State<W>> {
        while !self.is_over() && !done(&mut state.told[who]) {
            if self.start.elapsed() > limit {
                self.finish();
                break;
            }
            let waited = self.sleepers[who].wait_timeout(state, Duration::from_millis(100));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if std::mem::take(&mut state.told[who].head)
                && let Some((lock, _)) = state.wants[who]
            {
                let now = self.now();
                for granted in state.locks[lock].try_head(now) {
                    self.grant(granted, now, &mut state);
                }
            }
        }
        state
    }

    fn grant(&self, who: ProcId, now: Ns, state: &mut State<W>) {
        let Some((lock, mode)) = state.wants[who].take() else { return };
        let label = state.labels[who];
        state.stats[lock].waited(who, mode, now);
        state.stats[lock].begin(label, now);
        state.holds[who].push((lock, mode, now));
        state.told[who].granted = true;
        self.sleepers[who].notify_one();
    }

    fn lock<'s>(
        &'s self,
        who: ProcId,
        lock: LockId,
        mode: Mode,
        limit: Duration,
        mut state: MutexGuard<'s, State<W>>,
    ) -> MutexGuard<'s, State<W>> {
        let now = self.now();
        let (held, wakes) = state.locks[lock].acquire(who, mode, now);
        state.wants[who] = Some((lock, mode));
        let label = state.labels[who];
        state.stats[lock].wants(who, label, now);
        if held {
            state.stats[lock].uncontended += 1;
            self.grant(who, now, &mut state);
        }
        self.wake(lock, wakes, now, &mut state);
        self.wait(who, limit, state, |told| std::mem::take(&mut told.granted))
    }

    fn wake(&self, lock: LockId, wakes: super::engine::lock::Wakes, now: Ns, state: &mut State<W>) {
        for who in wakes.granted {
            self.grant(who, now, state);
        }
        if wakes.head
            && let Some(head) = state.locks[lock].head()
        {
            state.told[head].head = true;
            self.sleepers[head].notify_one();
        }
    }

    fn unlock(&self, who: ProcId, lock: LockId, state: &mut State<W>) {
        let Some(at) = state.holds[who].iter().position(|(held, _, _)| *held == lock) else { return };
        let (_, mode, begin) = state.holds[who].swap_remove(at);
        let now = self.now();
        let label = state.labels[who];
        state.stats[lock].held(Hold { begin, end: now, mode, label });
        let wakes = state.locks[lock].release(mode);
        self.wake(lock, wakes, now, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter {
        inside: u64,
        worst: u64,
        done: u64,
    }

    impl World for Counter {
        fn is_over(&self) -> bool {
            self.done == 4 * 200
        }
    }

    struct Taker(u64, usize);

    impl Program<Counter> for Taker {
        fn step(&mut self, world: &mut Counter, env: &mut Env<'_>) -> Step {
            self.1 += 1;
            match self.1 {
                1 => Step::Lock(0, Mode::Exclusive),
                2 => {
                    world.inside += 1;
                    world.worst = world.worst.max(world.inside);
                    Step::Cpu(2_000)
                }
                3 => {
                    world.inside -= 1;
                    Step::Unlock(0)
                }
                _ => {
                    self.1 = 0;
                    self.0 += 1;
                    world.done += 1;
                    env.notify(0, 0);
                    if self.0 == 200 { Step::End } else { Step::Cpu(1_000) }
                }
            }
        }
    }

    #[test]
    fn a_lock_of_any_flavour_lets_one_in_and_everybody_gets_through() {
        for flavour in Flavour::ALL {
            let programs: Vec<Box<dyn Program<Counter>>> =
                (0..4).map(|_| Box::new(Taker(0, 0)) as Box<dyn Program<Counter>>).collect();
            let counter = Counter { inside: 0, worst: 0, done: 0 };
            let (counter, stats, _) = run(counter, programs, &[flavour], 1, (true, false), Duration::from_secs(60));
            assert_eq!((counter.done, counter.worst, counter.inside), (800, 1, 0), "{flavour:?}");
            assert_eq!(stats[0].hold_exclusive.count(), 800);
        }
    }
}
