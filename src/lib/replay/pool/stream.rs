//! A submitter: takes events from its feed, splits them at blocks, and sends messages to the pool.

use super::RunOptions;
use super::delete::{Job, Part};
use super::locking::{Locking, Section};
use super::numbers::{MARKS, Numbers};
use super::verb::{Event, Feed, Verb, When};
use super::world::{Bio, BioKind, PoolWorld, Request};
use crate::base::{ThinBlock, ThinId};
use crate::replay::engine::{Env, Mode, Ns, Step};
use crate::replay::machine::{Act, Unit};
use crate::replay::policy::{Discards, Kind, Policy};
use crate::thin::live::LiveError;

/// A request of more parts than this is refused: no device sends such.
const PARTS_MAX: u64 = 1 << 16;

/// What a stream does.
#[derive(Clone, Debug)]
pub enum Task {
    /// Takes the next event.
    Next,
    /// Its time has come: begins when there is credit.
    Due(Verb, Option<Ns>),
    /// Looks a part up.
    Map(Bio),
    /// Leaves a part to the worker.
    Defer(Bio),
    /// A part needs no metadata any more.
    Mapped(Bio),
    /// A part can't be done.
    Refused(Bio),
    /// Does what a message says, with the lock held.
    Message(Verb, Section),
    /// A part of a delete.
    Delete(Part),
    /// All requests of the stream are done: then the delete begins.
    WhenIdle,
    /// The delete is over.
    EndDelete,
}

/// A stream.
pub struct Stream<'a> {
    index: usize,
    feed: Box<dyn Feed + 'a>,
    options: RunOptions,
    numbers: Numbers,
    job: Option<Job>,
    over: bool,
}

impl<'a> Stream<'a> {
    /// The stream of that number.
    pub fn new(index: usize, feed: Box<dyn Feed + 'a>, numbers: Numbers, options: &RunOptions) -> Stream<'a> {
        Stream { index, feed, options: options.clone(), numbers, job: None, over: false }
    }

    /// The locks of the pool that a device is in.
    fn locking(&self, dev: ThinId) -> Locking {
        Locking::new(self.numbers, self.numbers.pool_of(dev), &self.options)
    }

    fn next_event(&mut self, world: &mut PoolWorld<'_>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        let Some(Event { when, verb }) = self.feed.next() else {
            self.over = true;
            return world.end_stream(self.index, env);
        };
        let (pause, arrival) = match when {
            When::Asap => (0, None),
            When::After(time) => (time, None),
            When::At(time) => (time.saturating_sub(env.now), Some(time)),
        };
        then.extend((pause > 0).then_some(Act::Step(Step::Sleep(pause))));
        then.push(Act::Do(Task::Due(verb, arrival)));
    }

    /// An open stream's request counts from the time at which it was due, whenever it is sent.
    fn due(
        &mut self,
        verb: Verb,
        arrival: Option<Ns>,
        world: &mut PoolWorld<'_>,
        env: &mut Env<'_>,
        then: &mut Vec<Act<Task>>,
    ) {
        let stream = &world.streams[self.index];
        let is_request = verb.extent().is_some() || matches!(verb, Verb::Flush { .. });
        if is_request && stream.depth.is_some_and(|depth| stream.outstanding >= depth.max(1)) {
            then.extend([Act::Step(Step::Wait(self.numbers.credit(self.index))), Act::Do(Task::Due(verb, arrival))]);
            return;
        }
        let since = if world.streams[self.index].depth.is_none() { arrival.unwrap_or(env.now) } else { env.now };
        match &verb {
            Verb::Read { .. } | Verb::Write { .. } | Verb::Discard { .. } => {
                self.submit(&verb, since, world, env, then)
            }
            Verb::Flush { dev } => self.flush(*dev, since, world, env),
            Verb::Sleep(time) => then.push(Act::Step(Step::Sleep(*time))),
            Verb::Mark(name) => {
                let bytes = world.measured.bytes;
                world.measured.marks.push((env.now, name.clone(), bytes));
                world.passed.insert(name.clone());
                env.notify(MARKS, 0);
            }
            Verb::Wait(name) => {
                let is_idle = |name: &str| {
                    let of_name = world.streams.iter().filter(|stream| stream.name == name);
                    of_name.clone().count() > 0
                        && of_name.clone().all(|s| s.outstanding == 0 && (s.over || s.depth.is_some()))
                };
                if !world.passed.contains(name) && !is_idle(name) {
                    then.extend([Act::Step(Step::Wait(MARKS)), Act::Do(Task::Due(verb, arrival))]);
                }
            }
            Verb::Expect(time) => world.measured.expected.add(*time),
            Verb::Delete { dev, policy } => {
                let policy = policy.clone().unwrap_or_else(|| self.options.policy.clone());
                self.delete(*dev, policy, world, env, then);
            }
            Verb::Lookup { .. } => self.message(verb, Section::Look, then),
            Verb::TrimPool => self.message(verb, Section::Look, then),
            Verb::Commit => self.message(verb, Section::Commit, then),
            _ => self.message(verb, Section::Change, then),
        }
    }

    /// What concerns no device goes to the first pool.
    fn message(&self, verb: Verb, section: Section, then: &mut Vec<Act<Task>>) {
        let label = verb.label();
        let locking = self.locking(verb.dev().unwrap_or_default());
        locking.enter(section, label, Task::Message(verb, section), then);
    }

    fn submit(
        &mut self,
        verb: &Verb,
        since: Ns,
        world: &mut PoolWorld<'_>,
        env: &mut Env<'_>,
        then: &mut Vec<Act<Task>>,
    ) {
        let Some((dev, off, len)) = verb.extent() else { return };
        let size = world.block_sectors;
        let (first, end) = match verb {
            // Only whole blocks can be given back.
            Verb::Discard { .. } => (off.div_ceil(size), off.saturating_add(len) / size),
            _ => (off / size, off.saturating_add(len).div_ceil(size)),
        };
        let step = if matches!(verb, Verb::Discard { .. }) { self.options.discard_max.max(1) } else { 1 };
        let bytes = len.saturating_mul(512);
        let parts = end.saturating_sub(first).div_ceil(step);
        if parts > PARTS_MAX {
            world.measured.failed += 1;
            return;
        }
        let request =
            Request { stream: self.index, word: verb.word(), since, bytes, parts: parts.max(1), refused: false };
        let request = world.request(request, env);
        let ignored = matches!(verb, Verb::Discard { .. }) && self.options.policy.discards == Discards::Ignored;
        if parts == 0 || ignored {
            world.requests[request].parts = 1;
            return world.complete(request, env);
        }
        let write = !matches!(verb, Verb::Read { .. });
        let discard = matches!(verb, Verb::Discard { .. });
        let cost = if discard { self.options.costs.submit_min } else { self.options.costs.submit(bytes, write) };
        then.extend([Act::Label("submitter: map"), Act::Step(Step::Cpu(cost))]);
        for block in (first..end).step_by(step as usize) {
            let blocks = (end - block).min(step);
            let begin = off.max(block * size);
            let bytes = (off.saturating_add(len).min((block + blocks) * size) - begin) * 512;
            let kind = match verb {
                Verb::Discard { .. } => BioKind::Discard,
                Verb::Write { fua, .. } => BioKind::Write { fua: *fua },
                _ => BioKind::Read,
            };
            let bio = Bio { request, dev, block: ThinBlock(block), blocks, bytes, kind, written: false };
            match kind {
                BioKind::Discard => self.defer(bio, then),
                _ => self.locking(dev).enter(Section::Look, "submitter: map", Task::Map(bio), then),
            }
        }
    }

    /// A part is left to the worker, who may be keeping submitters off.
    fn defer(&self, bio: Bio, then: &mut Vec<Act<Task>>) {
        let throttle = self.numbers.throttle(self.numbers.pool_of(bio.dev));
        then.extend([
            Act::Label("submitter: defer"),
            Act::Step(Step::Lock(throttle, Mode::Shared)),
            Act::Do(Task::Defer(bio)),
            Act::Step(Step::Unlock(throttle)),
        ]);
    }

    fn flush(&mut self, dev: ThinId, since: Ns, world: &mut PoolWorld<'_>, env: &mut Env<'_>) {
        let request = Request { stream: self.index, word: "flush", since, bytes: 0, parts: 1, refused: false };
        let request = world.request(request, env);
        let work = world.work_of(dev);
        if work.is_open() {
            work.flushes.push(request);
            env.notify(self.numbers.work(self.numbers.pool_of(dev)), self.options.costs.wake);
        } else {
            world.complete(request, env);
        }
    }

    fn map(&self, bio: Bio, world: &mut PoolWorld<'_>, env: &Env<'_>, then: &mut Vec<Act<Task>>) {
        let locking = self.locking(bio.dev);
        if !world.pool.has_device(bio.dev) {
            locking.leave(Section::Look, self.options.costs.lookup, world, env.now, then);
            then.push(Act::Do(Task::Refused(bio)));
            return;
        }
        let found = world.pool.lookup(bio.dev, bio.block);
        let Some(found) = world.check(found) else { return };
        let waits = world.would_wait(locking.pool, env.now);
        locking.leave(Section::Look, self.options.costs.lookup, world, env.now, then);
        let direct = found.is_some_and(|mapped| bio.kind == BioKind::Read || !mapped.shared);
        if direct && !waits { then.push(Act::Do(Task::Mapped(bio))) } else { self.defer(bio, then) }
    }

    fn apply(
        &mut self,
        (verb, section): (&Verb, Section),
        world: &mut PoolWorld<'_>,
        env: &mut Env<'_>,
        then: &mut Vec<Act<Task>>,
    ) {
        let (costs, locking) = (&self.options.costs, self.locking(verb.dev().unwrap_or_default()));
        let mut changed = true;
        let (result, cost): (Result<(), LiveError>, Ns) = match verb {
            Verb::Create { dev } => (world.pool.create(*dev), costs.insert),
            Verb::Snap { dev, origin } => (world.pool.snapshot(*dev, *origin), 2 * costs.insert),
            Verb::Hold => (world.pool.hold(), costs.commit),
            Verb::ReleaseHeld => (world.pool.release_held(), costs.remove),
            Verb::Lookup { dev, off } => {
                changed = false;
                let block = ThinBlock(off / world.block_sectors);
                (world.pool.lookup(*dev, block).map(|_| ()), costs.lookup)
            }
            Verb::TrimPool => {
                changed = false;
                let bitmaps = world.pool.overlay.data.nr_blocks() / crate::format::space_map::ENTRIES_PER_BITMAP + 1;
                (Ok(()), costs.visit * bitmaps)
            }
            _ => {
                let blocks = world.commit(locking.pool, env);
                changed = false;
                (Ok(()), costs.commit + blocks * costs.write)
            }
        };
        match result {
            Ok(()) => world.work[locking.pool].changed |= changed,
            // A message that the pool refuses changes nothing.
            Err(LiveError::Overlay(error)) => world.failure = Some(error.into()),
            Err(_) => world.measured.failed += 1,
        }
        locking.leave(section, cost, world, env.now, then);
    }

    fn delete(
        &mut self,
        dev: ThinId,
        mut policy: Policy,
        world: &mut PoolWorld<'_>,
        env: &mut Env<'_>,
        then: &mut Vec<Act<Task>>,
    ) {
        if !world.pool.has_device(dev) || !world.deleting.insert(dev) {
            world.measured.failed += 1;
            return;
        }
        let discard = policy.kind == Kind::DiscardFirst;
        policy.coalesce |= policy.kind == Kind::Offline;
        let locking = self.locking(dev);
        self.job = Some(Job::new(dev, policy, locking, self.options.costs.clone()));
        if !discard {
            then.push(Act::Do(Task::Delete(Part::Start)));
            return;
        }
        let last = world.pool.last_mapped(dev);
        let blocks = world.check(last).flatten().map_or(0, |last| last.0 + 1);
        world.begin_background(env);
        let verb = Verb::Discard { dev, off: 0, len: blocks * world.block_sectors };
        self.submit(&verb, env.now, world, env, then);
        then.push(Act::Do(Task::WhenIdle));
    }
}

impl<'a, 'b> Unit<PoolWorld<'a>> for Stream<'b> {
    type Task = Task;

    fn run(&mut self, task: Task, world: &mut PoolWorld<'a>, env: &mut Env<'_>, then: &mut Vec<Act<Task>>) {
        match task {
            Task::Next => self.next_event(world, env, then),
            Task::Due(verb, arrival) => self.due(verb, arrival, world, env, then),
            Task::Map(bio) => self.map(bio, world, env, then),
            Task::Defer(bio) => world.defer(bio, env, self.options.costs.wake),
            Task::Mapped(bio) => world.mapped(bio, env, self.options.costs.wake),
            Task::Refused(bio) => world.refuse(bio.request, env),
            Task::Message(verb, section) => self.apply((&verb, section), world, env, then),
            Task::Delete(part) => {
                if let Some(job) = &mut self.job {
                    job.run(part, world, env, then);
                }
            }
            Task::WhenIdle if world.streams[self.index].outstanding > 0 => {
                then.extend([Act::Step(Step::Wait(self.numbers.credit(self.index))), Act::Do(Task::WhenIdle)]);
            }
            Task::WhenIdle => {
                // The empty device goes as one piece; the time counts from the first discard on.
                world.background.active -= 1;
                then.push(Act::Do(Task::Delete(Part::Start)));
            }
            Task::EndDelete => self.job = None,
        }
    }

    fn next(&mut self) -> Option<Task> {
        (!self.over).then_some(Task::Next)
    }
}
