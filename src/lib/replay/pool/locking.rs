//! Which locks are taken for what.

use super::numbers::Numbers;
use super::world::PoolWorld;
use super::{Allocation, RunOptions};
use crate::replay::engine::{LockId, Mode, Ns, Step};
use crate::replay::machine::Act;
use crate::replay::policy::Kind;

/// What is done under which locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Looking something up.
    Look,
    /// Taking a data block, most likely in this bitmap.
    Allocate(u64),
    /// Changing a tree.
    Change,
    /// Committing.
    Commit,
}

/// The locks of a pool under the run's policy.
#[derive(Clone, Copy, Debug)]
pub struct Locking {
    numbers: Numbers,
    /// The pool.
    pub pool: usize,
    /// No pool lock.
    rolling: bool,
    /// A lock for each bitmap of the data space map.
    bitmaps: bool,
}

impl Locking {
    /// The locks of a pool.
    pub fn new(numbers: Numbers, pool: usize, options: &RunOptions) -> Locking {
        let bitmaps = options.allocation == Allocation::Shared;
        Locking { numbers, pool, rolling: options.policy.kind == Kind::Rolling, bitmaps }
    }

    /// The pool's lock.
    pub fn root(self) -> LockId {
        self.numbers.root(self.pool)
    }

    /// The locks of a section, in the order in which they are taken.
    pub fn locks(self, section: Section) -> impl DoubleEndedIterator<Item = (LockId, Mode)> {
        let (root, transaction) = (self.root(), self.numbers.transaction(self.pool));
        let space_map = match section {
            Section::Allocate(bitmap) if self.bitmaps => Some(self.numbers.bitmap(bitmap)),
            Section::Allocate(_) if self.rolling => Some(self.numbers.space_map(self.pool)),
            _ => None,
        };
        let first = match (self.rolling, section) {
            (false, Section::Look) => (root, Mode::Shared),
            // With locks for bitmaps the trees stay as they are while a block is taken.
            (false, Section::Allocate(_)) if self.bitmaps => (root, Mode::Shared),
            (false, _) => (root, Mode::Exclusive),
            (true, Section::Commit) => (transaction, Mode::Exclusive),
            (true, _) => (transaction, Mode::Shared),
        };
        [Some(first), space_map.map(|lock| (lock, Mode::Exclusive))].into_iter().flatten()
    }

    /// Takes the locks of a section and does a task, which has to end with [`Locking::leave`].
    pub fn enter<T>(self, section: Section, label: &'static str, task: T, then: &mut Vec<Act<T>>) {
        then.push(Act::Label(label));
        then.extend(self.locks(section).map(|(lock, mode)| Act::Step(Step::Lock(lock, mode))));
        then.push(Act::Do(task));
    }

    /// Pays, and gives the locks back.
    pub fn leave<T>(self, section: Section, cost: Ns, world: &mut PoolWorld<'_>, now: Ns, then: &mut Vec<Act<T>>) {
        world.pay(self.pool, cost, now, then);
        self.unlock(section, then);
    }

    /// Gives the locks of a section back.
    pub fn unlock<T>(self, section: Section, then: &mut Vec<Act<T>>) {
        then.extend(self.locks(section).rev().map(|(lock, _)| Act::Step(Step::Unlock(lock))));
    }
}
