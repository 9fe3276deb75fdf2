//! Deleting a device, by any policy.

use super::locking::{Locking, Section};
use super::stream::Task;
use super::world::PoolWorld;
use crate::base::{BlockNr, ThinBlock, ThinId};
use crate::format::space_map::ENTRIES_PER_BITMAP;
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
    locking: Locking,
    costs: Costs,
    walk: Option<DeleteWalk>,
    queued: Vec<BlockNr>,
    since: u64,
    held_since: Ns,
    /// The bitmap of the data space map that the walk is at.
    bitmap: u64,
    region_done: bool,
}

impl Job {
    /// Nothing done yet.
    pub fn new(dev: ThinId, policy: Policy, locking: Locking, costs: Costs) -> Job {
        let (walk, queued) = (None, Vec::new());
        Job { dev, policy, locking, costs, walk, queued, since: 0, held_since: 0, bitmap: 0, region_done: false }
    }

    fn lock(&self, then: &mut Vec<Act<Task>>, mode: Mode, part: Part) {
        let label = match part {
            Part::Unlink => "delete: unlink",
            Part::Free => "delete: free nodes",
            Part::Region => "delete: remove region",
            _ => "delete: walk",
        };
        then.extend([Act::Label(label), Act::Step(Step::Lock(self.locking.root(), mode)), Act::Do(Task::Delete(part))]);
    }

    fn unlock(&self, then: &mut Vec<Act<Task>>) {
        then.push(Act::Step(Step::Unlock(self.locking.root())));
    }

    /// What a rolling walk holds while it takes counts down.
    fn counting(&self) -> Section {
        Section::Allocate(self.bitmap)
    }

    fn is_walk(&self) -> bool {
        matches!(self.policy.kind, Kind::Walk(_))
    }

    /// Does a part.
    pub fn run(&mut self, part: Part, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        match part {
            Part::Start => {
                world.begin_background(env);
                match self.policy.kind {
                    Kind::Background(_) => self.lock(then, Mode::Exclusive, Part::Region),
                    Kind::Rolling => self.rolling(Part::Unlink, then),
                    _ => self.lock(then, Mode::Exclusive, Part::Unlink),
                }
            }
            Part::Unlink => self.unlink(world, env, then),
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
                world.background.released(0, nodes, env.waiting(self.locking.root()), env.now);
                world.pay(self.locking.pool, self.costs.free_node * nodes, env.now, then);
            }
            Part::Region => self.region(world, env, then),
            Part::Finish => {
                world.work[self.locking.pool].changed = true;
                world.end_background(env);
                world.deleting.remove(&self.dev);
                self.locking.enter(Section::Commit, "delete: commit", Task::Delete(Part::Commit), then);
            }
            Part::Commit => {
                let blocks = world.commit(self.locking.pool, env);
                let cost = self.costs.commit + blocks * self.costs.write;
                self.locking.leave(Section::Commit, cost, world, env.now, then);
                then.push(Act::Do(Task::EndDelete));
            }
        }
    }

    fn rolling(&self, part: Part, then: &mut Vec<Act<Task>>) {
        self.locking.enter(self.counting(), "delete: walk", Task::Delete(part), then);
    }

    fn unlink(&mut self, world: &mut PoolWorld<'_>, env: &Env<'_>, then: &mut Vec<Act<Task>>) {
        let root = world.pool.unlink(self.dev);
        let Some(root) = world.check(root) else { return };
        world.work[self.locking.pool].changed = true;
        self.walk = Some(DeleteWalk::new(root));
        world.pay(self.locking.pool, 2 * self.costs.remove, env.now, then);
        match self.policy.kind {
            Kind::Walk(_) => {
                self.unlock(then);
                self.lock(then, Mode::Shared, Part::Opened);
            }
            _ => then.extend([Act::Label("delete: walk"), Act::Do(Task::Delete(Part::Walk))]),
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
        // The lock that a rolling walk holds is that of the bitmap where it was.
        let (most, section) = (self.most(), self.counting());
        let Some(walk) = &mut self.walk else { return };
        let step = walk.step(&mut world.pool.overlay, most).map_err(Into::into);
        let Some(step) = world.check(step) else { return };
        let beyond = self.walk.as_ref().map(DeleteWalk::beyond).unwrap_or_default();
        let cost = match step {
            Released::Entries { entries, runs, last } => {
                self.since += entries;
                self.bitmap = last / ENTRIES_PER_BITMAP;
                world.background.released(entries, 0, env.waiting(self.locking.root()), env.now);
                // A kernel that takes counts down one by one pays for all of that in each.
                let dearer = if self.policy.coalesce { self.costs.beyond(beyond) } else { 0 };
                self.costs.release(entries, runs, self.policy.coalesce) + dearer
            }
            Released::Node { block, leaf, .. } => {
                world.background.leaves += u64::from(leaf);
                let visit = if self.policy.coalesce { self.costs.visit } else { 0 };
                if self.is_walk() {
                    self.queued.push(block);
                    visit
                } else {
                    world.pool.overlay.release(block);
                    world.background.released(0, 1, env.waiting(self.locking.root()), env.now);
                    visit + self.costs.free_node
                }
            }
            Released::End => return self.end_of_walk(section, then),
        };
        world.pay(self.locking.pool, cost, env.now, then);
        if self.policy.kind == Kind::Rolling {
            world.background.boundaries += 1;
            self.locking.unlock(section, then);
            return self.rolling(Part::Walk, then);
        }
        then.push(Act::Do(Task::Delete(Part::After)));
    }

    fn end_of_walk(&mut self, section: Section, then: &mut Vec<Act<Task>>) {
        match self.policy.kind {
            Kind::Rolling => self.locking.unlock(section, then),
            Kind::Walk(_) => {
                self.unlock(then);
                self.lock(then, Mode::Exclusive, Part::Free);
                self.unlock(then);
            }
            _ => self.unlock(then),
        }
        then.push(Act::Do(Task::Delete(Part::Finish)));
    }

    fn after(&mut self, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        let reached = match self.policy.kind {
            Kind::Walk(Boundary::Nodes(nodes)) => self.queued.len() as u64 >= nodes,
            Kind::Walk(Boundary::Entries(entries)) => self.since >= entries,
            Kind::Walk(Boundary::Held(time)) => env.now - self.held_since >= time,
            _ => false,
        };
        let waiting = env.waiting(self.locking.root());
        if !reached || (self.policy.turn.skips() && waiting == 0) {
            then.push(Act::Do(Task::Delete(Part::Walk)));
            return;
        }
        self.since = 0;
        world.background.boundaries += 1;
        let pause = self.policy.turn.pause(waiting, env.now);
        let again = if matches!(self.policy.turn, Turn::Sleep(_)) { pause } else { 0 };
        self.unlock(then);
        then.extend((pause > 0).then_some(Act::Step(Step::Sleep(pause))));
        self.lock(then, Mode::Exclusive, Part::Free);
        self.unlock(then);
        then.extend((again > 0).then_some(Act::Step(Step::Sleep(again))));
        self.lock(then, Mode::Shared, Part::Opened);
    }

    /// Removes the next mappings as one change; an empty device is unlinked at the end.
    fn region(&mut self, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        if self.region_done {
            return self.unlink(world, env, then);
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
        world.work[self.locking.pool].changed = true;
        world.background.boundaries += 1;
        let waiting = env.waiting(self.locking.root());
        world.background.released(removed, 0, waiting, env.now);
        self.region_done = removed < most;
        let leaves = removed.div_ceil(LEAF).max(1);
        let cost = self.costs.remove * leaves + self.costs.dec * removed;
        world.pay(self.locking.pool, cost, env.now, then);
        self.unlock(then);
        let pause = self.policy.turn.pause(waiting, env.now);
        then.extend((pause > 0).then_some(Act::Step(Step::Sleep(pause))));
        self.lock(then, Mode::Exclusive, Part::Region);
    }
}
