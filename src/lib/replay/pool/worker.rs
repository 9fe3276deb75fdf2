//! The pool's one worker: lookups that missed, provisioning, discards, commits.

use super::disk;
use super::world::{Bio, BioKind, PoolWorld};
use super::{ROOT, RunOptions, SPACE_MAP, TRANSACTION, WORK};
use crate::base::{DataBlock, ThinBlock};
use crate::replay::costs::Costs;
use crate::replay::engine::{Env, Mode, Ns, Program, Step};
use crate::replay::machine::{Act, Unit};
use crate::replay::policy::{Discards, Kind};

/// What is done under which locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Looking something up.
    Look,
    /// Taking a data block.
    Allocate,
    /// Changing a tree.
    Change,
    /// Committing.
    Commit,
}

/// Which locks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locking {
    /// No pool lock.
    pub rolling: bool,
}

impl Locking {
    fn locks(self, section: Section) -> &'static [(usize, Mode)] {
        match (self.rolling, section) {
            (false, Section::Look) => &[(ROOT, Mode::Shared)],
            (false, _) => &[(ROOT, Mode::Exclusive)],
            (true, Section::Look | Section::Change) => &[(TRANSACTION, Mode::Shared)],
            (true, Section::Allocate) => &[(TRANSACTION, Mode::Shared), (SPACE_MAP, Mode::Exclusive)],
            (true, Section::Commit) => &[(TRANSACTION, Mode::Exclusive)],
        }
    }

    /// Takes the locks of a section and does a task, which has to end with [`Locking::leave`].
    pub fn enter<T>(self, section: Section, label: &'static str, task: T, then: &mut Vec<Act<T>>) {
        then.push(Act::Label(label));
        then.extend(self.locks(section).iter().map(|(lock, mode)| Act::Step(Step::Lock(*lock, *mode))));
        then.push(Act::Do(task));
    }

    /// Computes for so long, and gives the locks back.
    pub fn leave<T>(self, section: Section, cost: Ns, then: &mut Vec<Act<T>>) {
        then.push(Act::Step(Step::Cpu(cost)));
        then.extend(self.locks(section).iter().rev().map(|(lock, _)| Act::Step(Step::Unlock(*lock))));
    }
}

/// What the worker does.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Takes all work that there is.
    Pass,
    /// Looks a part up.
    Look(Bio),
    /// Asks for free blocks.
    Count,
    /// Takes a data block.
    Allocate(Bio),
    /// A data block is there.
    Prepared(Bio, u64),
    /// Inserts a mapping.
    Insert(Bio, u64),
    /// A mapping is there.
    Inserted(Bio),
    /// Finds what a discard covers.
    Find(Bio),
    /// Removes mappings.
    Remove(Bio),
    /// Commits.
    Commit,
    /// A commit is done.
    Committed,
    /// A part is done.
    Done(Bio),
}

/// The worker.
pub struct Worker {
    costs: Costs,
    locking: Locking,
    discards: Discards,
}

impl Worker {
    /// The worker of a pool.
    pub fn new(options: &RunOptions) -> Worker {
        let locking = Locking { rolling: options.policy.kind == Kind::Rolling };
        Worker { costs: options.costs.clone(), locking, discards: options.policy.discards }
    }

    fn pass(&self, world: &mut PoolWorld<'_>, then: &mut Vec<Act<Task>>) {
        for (bio, data) in world.prepared.drain(..) {
            self.locking.enter(Section::Change, "insert", Task::Insert(bio, data), then);
        }
        for bio in world.deferred.drain(..) {
            match bio.kind {
                BioKind::Discard => self.locking.enter(Section::Look, "find discard", Task::Find(bio), then),
                _ => self.locking.enter(Section::Look, "lookup", Task::Look(bio), then),
            }
        }
        let wanted = !world.flushes.is_empty() || !world.wait_commit.is_empty();
        if wanted || (world.commit_due && world.changed) {
            self.locking.enter(Section::Commit, "commit", Task::Commit, then);
        }
        if then.is_empty() {
            world.commit_due = false;
            then.push(Act::Label("idle"));
            then.push(Act::Step(Step::Wait(WORK)));
        }
    }

    fn look(&self, bio: Bio, world: &mut PoolWorld<'_>, then: &mut Vec<Act<Task>>) {
        self.locking.leave(Section::Look, self.costs.lookup, then);
        if !world.pool.has_device(bio.dev) {
            world.measured.failed += 1;
            then.push(Act::Do(Task::Done(bio)));
            return;
        }
        let found = world.pool.lookup(bio.dev, bio.block);
        let Some(found) = world.check(found) else { return };
        let write = bio.kind != BioKind::Read;
        if found.is_some_and(|mapped| !write || !mapped.shared) || (found.is_none() && !write) {
            then.push(Act::Do(Task::Done(bio)));
            return;
        }
        if let Some(cell) = world.cells.get_mut(&(bio.dev, bio.block)) {
            cell.push(bio);
            return;
        }
        world.cells.insert((bio.dev, bio.block), Vec::new());
        self.locking.enter(Section::Look, "count", Task::Count, then);
        self.locking.enter(Section::Allocate, "allocate", Task::Allocate(bio), then);
    }

    fn allocate(&self, bio: Bio, world: &mut PoolWorld<'_>, then: &mut Vec<Act<Task>>) {
        let data = world.allocate(bio.dev, bio.block);
        world.changed = true;
        self.locking.leave(Section::Allocate, self.costs.alloc, then);
        match data {
            Some(data) => then.push(Act::Do(Task::Prepared(bio, data))),
            None => {
                world.measured.failed += 1;
                then.push(Act::Do(Task::Inserted(bio)));
            }
        }
    }

    fn insert(&self, bio: Bio, data: u64, world: &mut PoolWorld<'_>, then: &mut Vec<Act<Task>>) {
        world.uninserted.remove(&data);
        if world.pool.has_device(bio.dev) {
            let inserted = world.pool.insert(bio.dev, bio.block, DataBlock(data));
            world.check(inserted);
        } else {
            world.pool.overlay.release_data(data);
        }
        self.locking.leave(Section::Change, self.costs.insert, then);
        then.push(Act::Do(Task::Inserted(bio)));
    }

    /// Mappings in the range of a discard: looking costs one lookup for each.
    fn find(&self, bio: Bio, world: &mut PoolWorld<'_>, then: &mut Vec<Act<Task>>) {
        let last = if world.pool.has_device(bio.dev) { world.pool.last_mapped(bio.dev) } else { Ok(None) };
        // What lies behind the last mapping costs nothing: the device may end there.
        let end = world.check(last).flatten().map_or(0, |last| last.0.saturating_add(1));
        let cost = self.costs.lookup.saturating_mul(bio.blocks.min(end.saturating_sub(bio.block.0)));
        self.locking.leave(Section::Look, cost, then);
        if world.pool.has_device(bio.dev) {
            self.locking.enter(Section::Change, "remove range", Task::Remove(bio), then);
        } else {
            then.push(Act::Do(Task::Done(bio)));
        }
    }

    /// The whole range under one hold: the mappings, then the counts of their data blocks.
    fn remove(&self, bio: Bio, world: &mut PoolWorld<'_>, then: &mut Vec<Act<Task>>) {
        let (mut at, end, mut removed) = (bio.block.0, bio.block.0.saturating_add(bio.blocks), 0);
        while at < end {
            let next = world.pool.next_mapped(bio.dev, ThinBlock(at));
            let Some(Some(block)) = world.check(next).filter(|next| next.is_some_and(|block| block.0 < end)) else {
                break;
            };
            let result = world.pool.remove(bio.dev, block);
            removed += u64::from(world.check(result).unwrap_or(false));
            at = block.0 + 1;
        }
        world.changed |= removed > 0;
        self.locking.leave(Section::Change, (self.costs.remove + self.costs.dec) * removed, then);
        then.push(Act::Do(Task::Done(bio)));
    }
}

impl<'a> Unit<PoolWorld<'a>> for Worker {
    type Task = Task;

    fn run(&mut self, task: Task, world: &mut PoolWorld<'a>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        match task {
            Task::Pass => self.pass(world, then),
            Task::Look(bio) => self.look(bio, world, then),
            Task::Count => self.locking.leave(Section::Look, self.costs.count, then),
            Task::Allocate(bio) => self.allocate(bio, world, then),
            Task::Prepared(bio, data) => world.prepared.push_back((bio, data)),
            Task::Insert(bio, data) => self.insert(bio, data, world, then),
            Task::Inserted(bio) => {
                let waiting = world.cells.remove(&(bio.dev, bio.block)).unwrap_or_default();
                world.deferred.extend(waiting);
                if bio.kind == (BioKind::Write { fua: true }) {
                    world.wait_commit.push(bio);
                } else {
                    disk::submit(bio, &self.costs, world, env);
                }
            }
            Task::Find(bio) => self.find(bio, world, then),
            Task::Remove(bio) => self.remove(bio, world, then),
            Task::Commit => {
                let blocks = world.commit(env);
                self.locking.leave(Section::Commit, self.costs.commit + blocks * self.costs.write, then);
                then.push(Act::Do(Task::Committed));
            }
            Task::Committed => {
                for request in std::mem::take(&mut world.flushes) {
                    world.complete(request, env);
                }
                for bio in std::mem::take(&mut world.wait_commit) {
                    disk::submit(bio, &self.costs, world, env);
                }
            }
            Task::Done(bio) if bio.kind == BioKind::Discard && self.discards != Discards::PassedDown => {
                world.complete(bio.request, env);
            }
            Task::Done(bio) => disk::submit(bio, &self.costs, world, env),
        }
    }

    fn next(&mut self) -> Option<Task> {
        Some(Task::Pass)
    }
}

/// Tells the worker when a commit is due.
#[derive(Debug)]
pub struct Timer {
    /// Time between commits.
    pub period: Ns,
    /// Whether it has slept.
    pub fired: bool,
}

impl<'a> Program<PoolWorld<'a>> for Timer {
    fn step(&mut self, world: &mut PoolWorld<'a>, env: &mut Env<'_>) -> Step {
        if self.fired {
            world.commit_due = true;
            env.notify(WORK, 0);
        }
        self.fired = true;
        Step::Sleep(self.period.max(1_000_000))
    }
}
