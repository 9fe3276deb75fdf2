//! The pool's one worker: lookups that missed, provisioning, discards, commits.

use super::RunOptions;
use super::locking::{Locking, Section};
use super::numbers::Numbers;
use super::world::{Bio, BioKind, PoolWorld, Transfer};
use crate::base::{DataBlock, ThinBlock};
use crate::replay::costs::Costs;
use crate::replay::engine::{Env, LockId, Mode, Ns, Program, Step};
use crate::replay::machine::{Act, Unit};
use crate::replay::policy::Discards;

/// A pass of the worker that takes longer keeps submitters from leaving it more: the kernel's rule.
const THROTTLE_AFTER: Ns = 1_000_000_000;

/// What the worker does.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Takes all work that there is.
    Pass,
    /// Between two pieces of work: does this pass take too long?
    Watch,
    /// The throttle is held.
    Throttled,
    /// Looks a part up.
    Look(Bio),
    /// Asks for free blocks.
    Count,
    /// Goes for a data block, in place of a shared one where `copy` is set.
    Seek(Bio, bool),
    /// Takes a data block.
    Allocate(Bio, bool, Section),
    /// A data block is there: fills it.
    Fill(Bio, bool, u64),
    /// Inserts a mapping.
    Insert(Bio, u64),
    /// A mapping is there.
    Inserted(Bio),
    /// There is no room for a new block, or its device has gone meanwhile.
    GiveUp(Bio),
    /// There is no such device.
    Refuse(Bio),
    /// Finds what a discard covers.
    Find(Bio),
    /// Removes mappings.
    Remove(Bio),
    /// Commits.
    Commit,
    /// A commit is done.
    Committed,
    /// A part needs no metadata any more.
    Mapped(Bio),
    /// A part can go to the data device.
    Send(Bio),
    /// A part is complete without it.
    Complete(Bio),
}

/// The worker.
pub struct Worker {
    costs: Costs,
    locking: Locking,
    throttle: LockId,
    work: usize,
    discards: Discards,
    zero: bool,
    /// When the pass began, and whether the throttle is held since.
    pass_since: Ns,
    throttles: bool,
}

impl Worker {
    /// The worker of a pool.
    pub fn new(pool: usize, numbers: Numbers, options: &RunOptions) -> Worker {
        Worker {
            costs: options.costs.clone(),
            locking: Locking::new(numbers, pool, options),
            throttle: numbers.throttle(pool),
            work: numbers.work(pool),
            discards: options.policy.discards,
            zero: options.zero,
            pass_since: 0,
            throttles: false,
        }
    }

    fn pass(&mut self, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        if std::mem::take(&mut self.throttles) {
            then.push(Act::Step(Step::Unlock(self.throttle)));
        }
        world.memory.read_hints(self.locking.pool, env.now);
        let (before, work) = (then.len(), &mut world.work[self.locking.pool]);
        self.pass_since = env.now;
        for (bio, data) in work.prepared.drain(..) {
            self.locking.enter(Section::Change, "worker: insert", Task::Insert(bio, data), then);
            then.push(Act::Do(Task::Watch));
        }
        for bio in work.deferred.drain(..) {
            match bio.kind {
                BioKind::Discard => self.locking.enter(Section::Look, "worker: find discard", Task::Find(bio), then),
                _ => self.locking.enter(Section::Look, "worker: lookup", Task::Look(bio), then),
            }
            then.push(Act::Do(Task::Watch));
        }
        let wanted = !work.flushes.is_empty() || !work.wait_commit.is_empty();
        if wanted || (work.commit_due && work.changed) {
            self.locking.enter(Section::Commit, "worker: commit", Task::Commit, then);
        }
        if then.len() == before {
            work.commit_due = false;
            then.push(Act::Label("worker: idle"));
            then.push(Act::Step(Step::Wait(self.work)));
        }
    }

    fn look(&self, bio: Bio, world: &mut PoolWorld<'_>, env: &Env<'_>, then: &mut Vec<Act<Task>>) {
        if !world.pool.has_device(bio.dev) {
            self.locking.leave(Section::Look, self.costs.lookup, world, env.now, then);
            then.push(Act::Do(Task::Refuse(bio)));
            return;
        }
        let found = world.pool.lookup(bio.dev, bio.block);
        let Some(found) = world.check(found) else { return };
        self.locking.leave(Section::Look, self.costs.lookup, world, env.now, then);
        let write = bio.kind != BioKind::Read;
        match found {
            Some(mapped) if !write || !mapped.shared => then.push(Act::Do(Task::Mapped(bio))),
            // There is nothing to read: the buffer is filled with zeros.
            None if !write => then.push(Act::Do(Task::Complete(bio))),
            _ => match world.cells.get_mut(&(bio.dev, bio.block)) {
                Some(cell) => cell.push(bio),
                None => {
                    world.cells.insert((bio.dev, bio.block), Vec::new());
                    self.locking.enter(Section::Look, "worker: count", Task::Count, then);
                    then.push(Act::Do(Task::Seek(bio, found.is_some())));
                }
            },
        }
    }

    fn seek(&self, bio: Bio, copy: bool, world: &mut PoolWorld<'_>, then: &mut Vec<Act<Task>>) {
        let section = Section::Allocate(world.next_bitmap(bio.dev));
        self.locking.enter(section, "worker: allocate", Task::Allocate(bio, copy, section), then);
    }

    fn allocate(
        &self,
        (bio, copy, section): (Bio, bool, Section),
        world: &mut PoolWorld<'_>,
        env: &Env<'_>,
        then: &mut Vec<Act<Task>>,
    ) {
        let data = world.allocate(bio.dev, bio.block);
        world.work[self.locking.pool].changed = true;
        self.locking.leave(section, self.costs.alloc, world, env.now, then);
        match data {
            Some(data) => then.push(Act::Do(Task::Fill(bio, copy, data))),
            None => then.push(Act::Do(Task::GiveUp(bio))),
        }
    }

    /// A write of a whole block goes to the new one at once; else what is shared is copied, or zeros are written first.
    fn fill(&self, bio: Bio, copy: bool, data: u64, world: &mut PoolWorld<'_>, env: &mut Env<'_>) {
        let block = world.block_sectors * 512;
        let prepares = Some(data);
        if bio.bytes == block {
            world.transfer(Transfer { bio: Bio { written: true, ..bio }, bytes: block, prepares }, env);
        } else if copy || self.zero {
            world.transfer(Transfer { bio, bytes: if copy { 2 * block } else { block }, prepares }, env);
        } else {
            world.work[self.locking.pool].prepared.push_back((bio, data));
        }
    }

    fn insert(&self, bio: Bio, data: u64, world: &mut PoolWorld<'_>, env: &Env<'_>, then: &mut Vec<Act<Task>>) {
        world.uninserted.remove(&data);
        let is_there = world.pool.has_device(bio.dev);
        if is_there {
            let inserted = world.pool.insert(bio.dev, bio.block, DataBlock(data));
            world.check(inserted);
        } else {
            world.pool.overlay.release_data(data);
        }
        self.locking.leave(Section::Change, self.costs.insert, world, env.now, then);
        then.push(Act::Do(if is_there { Task::Inserted(bio) } else { Task::GiveUp(bio) }));
    }

    fn inserted(&self, bio: Bio, world: &mut PoolWorld<'_>, env: &mut Env<'_>) {
        let waiting = world.cells.remove(&(bio.dev, bio.block)).unwrap_or_default();
        let work = &mut world.work[self.locking.pool];
        work.deferred.extend(waiting);
        if bio.kind == (BioKind::Write { fua: true }) {
            work.wait_commit.push(bio);
        } else if bio.written {
            world.complete(bio.request, env);
        } else {
            world.send(bio, env);
        }
    }

    /// Mappings in the range of a discard: looking costs one lookup for each where they are passed down; else the whole
    /// range is removed without looking.
    fn find(&self, bio: Bio, world: &mut PoolWorld<'_>, env: &Env<'_>, then: &mut Vec<Act<Task>>) {
        let last = if world.pool.has_device(bio.dev) { world.pool.last_mapped(bio.dev) } else { Ok(None) };
        // What lies behind the last mapping costs nothing: the device may end there.
        let end = world.check(last).flatten().map_or(0, |last| last.0.saturating_add(1));
        let looked = match self.discards {
            Discards::PassedDown => bio.blocks.min(end.saturating_sub(bio.block.0)),
            _ => 1,
        };
        let cost = self.costs.lookup.saturating_mul(looked);
        self.locking.leave(Section::Look, cost, world, env.now, then);
        if world.pool.has_device(bio.dev) {
            self.locking.enter(Section::Change, "worker: remove range", Task::Remove(bio), then);
        } else {
            then.push(Act::Do(Task::Refuse(bio)));
        }
    }

    /// The whole range under one hold: the mappings, then the counts of their data blocks. A delete may have come first.
    fn remove(&self, bio: Bio, world: &mut PoolWorld<'_>, env: &Env<'_>, then: &mut Vec<Act<Task>>) {
        if !world.pool.has_device(bio.dev) {
            self.locking.leave(Section::Change, self.costs.lookup, world, env.now, then);
            return then.push(Act::Do(Task::Refuse(bio)));
        }
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
        world.work[self.locking.pool].changed |= removed > 0;
        let cost = (self.costs.remove + self.costs.dec) * removed;
        self.locking.leave(Section::Change, cost, world, env.now, then);
        then.push(Act::Do(match self.discards {
            Discards::PassedDown => Task::Send(bio),
            _ => Task::Complete(bio),
        }));
    }

    /// Those who waited for a commit go on.
    fn committed(&self, world: &mut PoolWorld<'_>, env: &mut Env<'_>) {
        let work = &mut world.work[self.locking.pool];
        let (flushes, bios) = (std::mem::take(&mut work.flushes), std::mem::take(&mut work.wait_commit));
        for request in flushes {
            world.complete(request, env);
        }
        for bio in bios {
            if bio.written { world.complete(bio.request, env) } else { world.send(bio, env) }
        }
    }
}

impl<'a> Unit<PoolWorld<'a>> for Worker {
    type Task = Task;

    fn run(&mut self, task: Task, world: &mut PoolWorld<'a>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        match task {
            Task::Pass => self.pass(world, env, then),
            Task::Watch if !self.throttles && env.now - self.pass_since > THROTTLE_AFTER => {
                then.extend([Act::Step(Step::Lock(self.throttle, Mode::Exclusive)), Act::Do(Task::Throttled)]);
            }
            Task::Watch => {}
            Task::Throttled => self.throttles = true,
            Task::Look(bio) => self.look(bio, world, env, then),
            Task::Count => self.locking.leave(Section::Look, self.costs.count, world, env.now, then),
            Task::Seek(bio, copy) => self.seek(bio, copy, world, then),
            Task::Allocate(bio, copy, section) => self.allocate((bio, copy, section), world, env, then),
            Task::Fill(bio, copy, data) => self.fill(bio, copy, data, world, env),
            Task::Insert(bio, data) => self.insert(bio, data, world, env, then),
            Task::Inserted(bio) => self.inserted(bio, world, env),
            Task::GiveUp(bio) => {
                // Those who waited for the block are looked at anew, and refused in their turn.
                let waiting = world.cells.remove(&(bio.dev, bio.block)).unwrap_or_default();
                world.work[self.locking.pool].deferred.extend(waiting);
                world.refuse(bio.request, env);
            }
            Task::Refuse(bio) => world.refuse(bio.request, env),
            Task::Find(bio) => self.find(bio, world, env, then),
            Task::Remove(bio) => self.remove(bio, world, env, then),
            Task::Commit => {
                let blocks = world.commit(self.locking.pool, env);
                let cost = self.costs.commit + blocks * self.costs.write;
                self.locking.leave(Section::Commit, cost, world, env.now, then);
                then.push(Act::Do(Task::Committed));
            }
            Task::Committed => self.committed(world, env),
            Task::Mapped(bio) => world.mapped(bio, env, 0),
            Task::Send(bio) => world.send(bio, env),
            Task::Complete(bio) => world.complete(bio.request, env),
        }
    }

    fn next(&mut self) -> Option<Task> {
        Some(Task::Pass)
    }
}

/// Tells the workers when a commit is due.
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
            for pool in 0..world.numbers.pools() {
                world.work[pool].commit_due = true;
                env.notify(world.numbers.work(pool), 0);
            }
        }
        self.fired = true;
        Step::Sleep(self.period.max(1_000_000))
    }
}
