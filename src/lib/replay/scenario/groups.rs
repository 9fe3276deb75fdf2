//! Many writers and the locks of allocation groups.

mod report;
#[cfg(test)]
mod tests;

pub use report::run;

use crate::replay::engine::{Engine, Env, Flavour, LockStats, Mode, Ns, Program, Step, World};

/// KiB that are written under one hold.
const STEP_KIB: u64 = 64;
const FILE_MB: u64 = 256;
const BACKLOG_MB: f64 = 64.0;
/// Steps of a MB.
const PER_MB: u64 = 1024 / STEP_KIB;
/// Steps of a file.
const STEPS: u64 = FILE_MB * PER_MB;

/// Per MB, fitted to one writer and to the cap of the stock rule: under the lock, and outside; and the store's rate.
const HOLD: Ns = 1_425_000;
const OUTSIDE: Ns = 417_000;
const WAKE: Ns = 10_000;
const STORE_MB_S: f64 = 810.0;

/// How a group is chosen and locked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Keep the group until it is full.
    Stock,
    /// Move to an unused group where somebody else uses this one.
    Intra,
    /// Take whichever group is free, or wait for the own one.
    TryLock,
    /// The lock is shared locally; of the work under it this share is done alone.
    Shared(f64),
    /// A lock for each of so many bitmaps of a group; a free one is taken.
    Bitmaps(usize),
    /// The lock is held to reserve so many steps, which nobody else may use; they are written without it.
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
    /// What a group has room for, in MB.
    pub group_mb: u64,
}

impl Default for Groups {
    fn default() -> Self {
        let (choice, flavour) = (Choice::Stock, Flavour::Fifo);
        Groups { writers: 1, choice, flavour, wake: WAKE, groups: 64, group_mb: 256 }
    }
}

impl Groups {
    /// Locks of a group.
    fn areas(&self) -> usize {
        if let Choice::Bitmaps(bitmaps) = self.choice { bitmaps.max(1) } else { 1 }
    }

    /// Steps that fill what a lock is for.
    fn room(&self) -> u64 {
        (self.group_mb * PER_MB).div_ceil(self.areas() as u64)
    }
}

/// Why a writer uses the group that it does, each with how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// It goes on where it was.
    pub kept: u64,
    /// It moved because there was no room.
    pub full: u64,
    /// It moved because somebody else was there.
    pub busy: u64,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The joint rate while all write, in MB/s.
    pub children: f64,
    /// The time of the first that ends over that of the last.
    pub parallelism: f64,
    /// Steps by why their group was chosen.
    pub chosen: Chosen,
    /// Runs of consecutive places of all files.
    pub fragments: u64,
    /// How many held the lock or waited for it, on average when it was asked for.
    pub queue: f64,
    /// Holds and waits of all locks.
    pub locks: LockStats,
}

impl Run {
    /// The rate over the time of the last, as the benchmark has it.
    pub fn parent(&self) -> f64 {
        self.children * self.parallelism
    }
}

struct State {
    /// Writers that use a group.
    users: Vec<u64>,
    /// Steps taken of each lock's place.
    filled: Vec<u64>,
    /// Those who hold a lock or wait for it.
    wanted: Vec<u64>,
    asked: u64,
    before: u64,
    backlog: f64,
    backlog_at: Ns,
    bytes: u64,
    bytes_at_first: u64,
    finished: Vec<Ns>,
    writers: usize,
    chosen: Chosen,
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
    /// What it locks: an area of a group.
    area: usize,
    /// Where its next step would go on.
    next: Option<(usize, u64)>,
    /// Steps that it has reserved.
    reserved: u64,
    steps: u64,
    stage: Stage,
}

impl Writer {
    fn group_of(&self, area: usize) -> usize {
        area / self.rules.areas()
    }

    /// All areas from the own one on, each once.
    fn areas(&self) -> impl Iterator<Item = usize> {
        let (from, all) = (self.area, self.rules.groups * self.rules.areas());
        (0..all).map(move |index| (from + index) % all)
    }

    fn has_room(&self, state: &State, area: usize) -> bool {
        state.filled[area] < self.rules.room()
    }

    /// Where to go, if somebody else is in the way.
    fn elsewhere(&self, state: &State) -> Option<usize> {
        let free = |area: &usize| state.wanted[*area] == 0 && self.has_room(state, *area);
        let group = self.group_of(self.area);
        match self.rules.choice {
            Choice::Intra if state.users[group] > 1 => {
                (0..self.rules.groups).find(|group| state.users[*group] == 0 && self.has_room(state, *group))
            }
            Choice::TryLock if state.wanted[self.area] > 0 => self.areas().find(free),
            Choice::Bitmaps(_) if state.wanted[self.area] > 0 => {
                // Within the group: a free one, or the one that the fewest wait for.
                let own = self.areas().filter(|area| self.group_of(*area) == group);
                let least = own.filter(|area| self.has_room(state, *area)).min_by_key(|area| state.wanted[*area]);
                least.filter(|area| state.wanted[*area] < state.wanted[self.area])
            }
            _ => None,
        }
    }

    /// Chooses where the next steps go, and takes the places.
    fn choose(&mut self, state: &mut State) {
        let other = if self.has_room(state, self.area) {
            let other = self.elsewhere(state);
            if other.is_some() {
                state.chosen.busy += 1
            } else {
                state.chosen.kept += 1
            }
            other
        } else {
            state.chosen.full += 1;
            self.areas().find(|area| self.has_room(state, *area))
        };
        if let Some(other) = other {
            state.users[self.group_of(self.area)] -= 1;
            state.users[self.group_of(other)] += 1;
            self.area = other;
        }
        let wanted = if let Choice::Reservations(steps) = self.rules.choice { steps.max(1) } else { 1 };
        let left = self.rules.room().saturating_sub(state.filled[self.area]).max(1);
        self.reserved = wanted.min(left).min(STEPS - self.steps);
        let place = (self.area, state.filled[self.area]);
        state.fragments += u64::from(self.next != Some(place));
        state.filled[self.area] += self.reserved;
        self.next = Some((self.area, state.filled[self.area]));
        state.asked += 1;
        state.before += state.wanted[self.area];
        state.wanted[self.area] += 1;
    }

    /// One step is written; whether that was the last.
    fn write(&mut self, state: &mut State, now: Ns) -> bool {
        self.steps += 1;
        self.reserved -= 1;
        state.backlog = state.drain(now) + 1.0 / PER_MB as f64;
        state.bytes += STEP_KIB << 10;
        if self.steps < STEPS {
            return false;
        }
        if state.finished.is_empty() {
            state.bytes_at_first = state.bytes;
        }
        state.finished.push(now);
        state.users[self.group_of(self.area)] -= 1;
        true
    }
}

impl Program<State> for Writer {
    fn step(&mut self, state: &mut State, env: &mut Env<'_>) -> Step {
        const OF_STEP: f64 = (HOLD / PER_MB) as f64;
        match self.stage {
            Stage::Outside => {
                // What is reserved is written without the lock.
                let reserved = self.reserved > 0;
                self.stage = if reserved { Stage::Store } else { Stage::Choose };
                let unlocked = match self.rules.choice {
                    Choice::Shared(share) => OF_STEP * (1.0 - share),
                    _ if reserved => OF_STEP,
                    _ => 0.0,
                };
                Step::Cpu(OUTSIDE / PER_MB + unlocked as Ns)
            }
            Stage::Choose => {
                self.choose(state);
                self.stage = Stage::Work;
                Step::Lock(self.area, Mode::Exclusive)
            }
            Stage::Work => {
                self.stage = Stage::Release;
                let share = if let Choice::Shared(share) = self.rules.choice { share } else { 1.0 };
                Step::Cpu((OF_STEP * share) as Ns)
            }
            Stage::Release => {
                self.stage = Stage::Store;
                state.wanted[self.area] -= 1;
                Step::Unlock(self.area)
            }
            Stage::Store => {
                if self.write(state, env.now) {
                    return Step::End;
                }
                self.stage = Stage::Outside;
                let over = (state.backlog - BACKLOG_MB).max(0.0);
                Step::Cpu((over / STORE_MB_S * 1e9) as Ns)
            }
        }
    }
}

/// Lets every writer write its file, all from the first group on.
pub fn simulate(rules: Groups) -> Run {
    let areas = rules.groups * rules.areas();
    let mut users = vec![0; rules.groups];
    users[0] = rules.writers as u64;
    let state = State {
        users,
        filled: vec![0; areas],
        wanted: vec![0; areas],
        asked: 0,
        before: 0,
        backlog: 0.0,
        backlog_at: 0,
        bytes: 0,
        bytes_at_first: 0,
        finished: Vec::new(),
        writers: rules.writers,
        chosen: Chosen::default(),
        fragments: 0,
    };
    let mut engine = Engine::new(state, &vec![rules.flavour; areas], 1, rules.wake);
    for _ in 0..rules.writers {
        let writer = Writer { rules, area: 0, next: None, reserved: 0, steps: 0, stage: Stage::Outside };
        engine.add(Box::new(writer), 0);
    }
    engine.run(Ns::MAX / 2);
    let (state, stats) = engine.into_parts();
    let mut locks = LockStats::default();
    stats.iter().for_each(|stats| locks.add(stats));
    let (first, last) = match (state.finished.first(), state.finished.last()) {
        (Some(first), Some(last)) => (*first as f64, *last as f64),
        _ => (1.0, 1.0),
    };
    Run {
        children: state.bytes_at_first as f64 / (1 << 20) as f64 / (first / 1e9),
        parallelism: first / last,
        chosen: state.chosen,
        fragments: state.fragments,
        queue: state.before as f64 / state.asked.max(1) as f64,
        locks,
    }
}
