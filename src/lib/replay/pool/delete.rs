//! Deleting a device, by any policy.

use super::stream::Task;
use super::worker::{Locking, Section};
use super::world::PoolWorld;
use super::{ROOT, SPACE_MAP, TRANSACTION};
use crate::base::{BlockNr, ThinBlock, ThinId};
use crate::pdata::overlay::{DeleteWalk, Released};
use crate::replay::costs::Costs;
use crate::replay::engine::{Env, Mode, Ns, Step};
use crate::replay::machine::Act;
use crate::replay::policy::{Boundary, Kind, Policy, Turn};

/// Entries of a leaf, where a leaf's price is wanted without a leaf.
const LEAF: u64 = 126;
/// With a time to keep to, so many entries at once.
const SLICE: u64 = 16;

/// What is left to do of a delete.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Begins.
    Start,
    /// Takes the device out of its trees.
    Unlink,
    /// The lock is held for a stretch of the walk.
    Opened,
    /// The next entries or node.
    Walk,
    /// Entries or a node are done: is this a boundary?
    After,
    /// Releases the nodes that wait.
    Free,
    /// Removes a region.
    Region,
    /// All is released.
    Finish,
    /// Commits.
    Commit,
}

/// A delete under way.
pub struct Job {
    dev: ThinId,
    policy: Policy,
    costs: Costs,
    walk: Option<DeleteWalk>,
    queued: Vec<BlockNr>,
    since: u64,
    held_since: Ns,
    region_done: bool,
}

impl Job {
    /// Nothing done yet.
    pub fn new(dev: ThinId, policy: Policy, costs: Costs) -> Job {
        let (walk, queued) = (None, Vec::new());
        Job { dev, policy, costs, walk, queued, since: 0, held_since: 0, region_done: false }
    }

    fn lock(&self, then: &mut Vec<Act<Task>>, mode: Mode, part: Part) {
        then.extend([Act::Step(Step::Lock(ROOT, mode)), Act::Do(Task::Delete(part))]);
    }

    fn is_walk(&self) -> bool {
        matches!(self.policy.kind, Kind::Walk(_))
    }

    /// Does a part.
    pub fn run(&mut self, part: Part, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        match part {
            Part::Start => {
                then.push(Act::Label("delete"));
                world.begin_background(env);
                match self.policy.kind {
                    Kind::Background(_) => self.lock(then, Mode::Exclusive, Part::Region),
                    Kind::Rolling => self.rolling(Part::Unlink, then),
                    _ => self.lock(then, Mode::Exclusive, Part::Unlink),
                }
            }
            Part::Unlink => self.unlink(world, then),
            Part::Opened => {
                self.held_since = env.now;
                then.push(Act::Do(Task::Delete(Part::Walk)));
            }
            Part::Walk => self.walk(world, env, then),
            Part::After => self.after(world, env, then),
            Part::Free => {
                let nodes = self.queued.len() as u64;
                for block in self.queued.drain(..) {
                    world.pool.overlay.release(block);
                }
                world.note_released(0, nodes, env.now);
                then.push(Act::Step(Step::Cpu(self.costs.free_node * nodes)));
            }
            Part::Region => self.region(world, env, then),
            Part::Finish => {
                world.changed = true;
                world.end_background(env);
                let rolling = self.policy.kind == Kind::Rolling;
                Locking { rolling }.enter(Section::Commit, "commit after delete", Task::Delete(Part::Commit), then);
            }
            Part::Commit => {
                let blocks = world.commit(env);
                let rolling = self.policy.kind == Kind::Rolling;
                let cost = self.costs.commit + blocks * self.costs.write;
                Locking { rolling }.leave(Section::Commit, cost, then);
                then.push(Act::Do(Task::EndDelete));
            }
        }
    }

    fn rolling(&self, part: Part, then: &mut Vec<Act<Task>>) {
        then.extend([
            Act::Step(Step::Lock(TRANSACTION, Mode::Shared)),
            Act::Step(Step::Lock(SPACE_MAP, Mode::Exclusive)),
            Act::Do(Task::Delete(part)),
        ]);
    }

    fn unlink(&mut self, world: &mut PoolWorld<'_>, then: &mut Vec<Act<Task>>) {
        let root = world.pool.unlink(self.dev);
        let Some(root) = world.check(root) else { return };
        world.changed = true;
        self.walk = Some(DeleteWalk::new(root));
        then.push(Act::Step(Step::Cpu(2 * self.costs.remove)));
        match self.policy.kind {
            Kind::Walk(_) => {
                then.push(Act::Step(Step::Unlock(ROOT)));
                self.lock(then, Mode::Shared, Part::Opened);
            }
            _ => then.push(Act::Do(Task::Delete(Part::Walk))),
        }
    }

    /// How many entries may be released before the next look at the boundary.
    fn most(&self) -> usize {
        let most = match self.policy.kind {
            Kind::Walk(Boundary::Entries(entries)) => entries.saturating_sub(self.since).max(1),
            Kind::Walk(Boundary::Held(_)) => SLICE,
            _ => u64::MAX,
        };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    fn walk(&mut self, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        let most = self.most();
        let Some(walk) = &mut self.walk else { return };
        let step = walk.step(&mut world.pool.overlay, most).map_err(Into::into);
        let Some(step) = world.check(step) else { return };
        match step {
            Released::Entries { entries, runs } => {
                self.since += entries;
                world.note_released(entries, 0, env.now);
                let cost = self.costs.release(entries, runs, self.policy.coalesce);
                then.push(Act::Step(Step::Cpu(cost)));
            }
            Released::Node { block, .. } => {
                let visit = if self.policy.coalesce { self.costs.visit } else { 0 };
                if self.is_walk() {
                    self.queued.push(block);
                    then.push(Act::Step(Step::Cpu(visit)));
                } else {
                    world.pool.overlay.release(block);
                    world.note_released(0, 1, env.now);
                    then.push(Act::Step(Step::Cpu(visit + self.costs.free_node)));
                }
            }
            Released::End => return self.end_of_walk(then),
        }
        then.push(Act::Do(Task::Delete(Part::After)));
    }

    fn end_of_walk(&mut self, then: &mut Vec<Act<Task>>) {
        match self.policy.kind {
            Kind::Rolling => {
                then.extend([SPACE_MAP, TRANSACTION].map(|lock| Act::Step(Step::Unlock(lock))));
            }
            Kind::Walk(_) => {
                then.push(Act::Step(Step::Unlock(ROOT)));
                self.lock(then, Mode::Exclusive, Part::Free);
                then.push(Act::Step(Step::Unlock(ROOT)));
            }
            _ => then.push(Act::Step(Step::Unlock(ROOT))),
        }
        then.push(Act::Do(Task::Delete(Part::Finish)));
    }

    fn after(&mut self, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        if self.policy.kind == Kind::Rolling {
            world.background.boundaries += 1;
            then.extend([SPACE_MAP, TRANSACTION].map(|lock| Act::Step(Step::Unlock(lock))));
            return self.rolling(Part::Walk, then);
        }
        let reached = match self.policy.kind {
            Kind::Walk(Boundary::Nodes(nodes)) => self.queued.len() as u64 >= nodes,
            Kind::Walk(Boundary::Entries(entries)) => self.since >= entries,
            Kind::Walk(Boundary::Held(time)) => env.now - self.held_since >= time,
            _ => false,
        };
        let waiting = env.waiting(ROOT);
        if !reached || (self.policy.turn.skips() && waiting == 0) {
            then.push(Act::Do(Task::Delete(Part::Walk)));
            return;
        }
        self.since = 0;
        world.background.boundaries += 1;
        let pause = self.policy.turn.pause(waiting, env.now);
        let again = if matches!(self.policy.turn, Turn::Sleep(_)) { pause } else { 0 };
        then.push(Act::Step(Step::Unlock(ROOT)));
        then.extend((pause > 0).then_some(Act::Step(Step::Sleep(pause))));
        self.lock(then, Mode::Exclusive, Part::Free);
        then.push(Act::Step(Step::Unlock(ROOT)));
        then.extend((again > 0).then_some(Act::Step(Step::Sleep(again))));
        self.lock(then, Mode::Shared, Part::Opened);
    }

    /// Removes the next mappings as one change; an empty device is unlinked at the end.
    fn region(&mut self, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        if self.region_done {
            return self.unlink(world, then);
        }
        let Kind::Background(most) = self.policy.kind else { return };
        let (mut removed, mut from) = (0, 0);
        while removed < most {
            let next = world.pool.next_mapped(self.dev, ThinBlock(from));
            let Some(Some(block)) = world.check(next) else { break };
            let result = world.pool.remove(self.dev, block);
            if world.check(result).is_none() {
                return;
            }
            (removed, from) = (removed + 1, block.0);
        }
        world.changed = true;
        world.background.boundaries += 1;
        world.note_released(removed, 0, env.now);
        self.region_done = removed < most;
        let leaves = removed.div_ceil(LEAF).max(1);
        let cost = self.costs.remove * leaves + self.costs.dec * removed;
        then.extend([Act::Step(Step::Cpu(cost)), Act::Step(Step::Unlock(ROOT))]);
        let pause = self.policy.turn.pause(env.waiting(ROOT), env.now);
        then.extend((pause > 0).then_some(Act::Step(Step::Sleep(pause))));
        self.lock(then, Mode::Exclusive, Part::Region);
    }
}
