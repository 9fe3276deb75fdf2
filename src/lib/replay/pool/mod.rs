//! A pool at work: submitters, the worker, deletes, and what they do to each other.

pub mod delete;
pub mod disk;
pub mod outcome;
pub mod stream;
pub mod verb;
pub mod worker;
pub mod world;

pub use outcome::{Outcome, Stall};
pub use verb::{Event, Feed, Verb, When};
pub use world::{PoolWorld, StreamStart};

use super::costs::Costs;
use super::engine::{Engine, Flavour, Ns, Program};
use super::machine::Machine;
use super::policy::Policy;
use super::threads;
use crate::pdata::overlay::SplitRule;
use crate::thin::live::{Base, LiveError};
use std::time::Duration;

/// The pool's lock.
pub const ROOT: usize = 0;
/// The data space map's own lock, for policies that give it one.
pub const SPACE_MAP: usize = 1;
/// Held shared by all changes and alone by a commit, for policies without the pool's lock.
pub const TRANSACTION: usize = 2;
/// Their names in reports.
pub const LOCK_NAMES: [&str; 3] = ["root", "space-map", "transaction"];

/// The worker waits for work.
pub const WORK: usize = 0;
/// The data device waits for requests.
pub const DISK: usize = 1;
/// Streams wait for marks and for others to be idle.
pub const MARKS: usize = 2;
/// The first of the conditions that streams wait for credit with.
pub const CREDIT: usize = 3;

/// Where new data blocks are taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// One cursor for the pool, as the kernel has it.
    #[default]
    Cursor,
    /// A cursor for each device, which begins in a bitmap of its own.
    Goal,
    /// Each device keeps to bitmaps that no other is using.
    Apart,
    /// Runs of so many blocks, so that a device fills whole stripes.
    Aligned(u64),
}

/// How a run goes.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// How deletes go about it.
    pub policy: Policy,
    /// The flavour of all locks.
    pub flavour: Flavour,
    /// What steps cost.
    pub costs: Costs,
    /// What becomes of full nodes.
    pub split: SplitRule,
    /// Where data blocks come from.
    pub allocation: Allocation,
    /// The longest discard that is dealt with at once, in pool blocks.
    pub discard_max: u64,
    /// The run ends here at the latest.
    pub limit: Ns,
    /// The run ends when so many deletes are done; 0 is never.
    pub until_deletes: u64,
    /// The machine stops right after so many commits; 0 is never.
    pub crash_after: u64,
    /// Keep every hold, for a timeline.
    pub timeline: bool,
    /// Keep every use of a metadata block, for the cache model.
    pub log_touches: bool,
}

impl RunOptions {
    /// A delete that holds the pool's lock, and nothing out of the ordinary.
    pub fn new(policy: Policy, costs: Costs) -> RunOptions {
        RunOptions {
            policy,
            flavour: Flavour::default(),
            costs,
            split: SplitRule::default(),
            allocation: Allocation::default(),
            discard_max: 32_768,
            limit: 24 * 3600 * 1_000_000_000,
            until_deletes: 0,
            crash_after: 0,
            timeline: false,
            log_touches: false,
        }
    }
}

/// The programs of a run: every stream, the worker, its timer and the data device.
pub fn programs<'a>(starts: Vec<StreamStart<'a>>, options: &RunOptions) -> Vec<Box<dyn Program<PoolWorld<'a>> + 'a>> {
    let mut programs: Vec<Box<dyn Program<PoolWorld<'a>> + 'a>> = Vec::new();
    for (index, start) in starts.into_iter().enumerate() {
        programs.push(Box::new(Machine::new(stream::Stream::new(index, start.feed, options))));
    }
    programs.push(Box::new(Machine::new(worker::Worker::new(options))));
    programs.push(Box::new(worker::Timer { period: options.costs.period, fired: false }));
    programs.push(Box::new(disk::Disk::default()));
    programs
}

/// The flavours of the locks. The space map's own is strictly in turn, or the delete would let nobody else in.
pub fn flavours(options: &RunOptions) -> [Flavour; 3] {
    let space_map = if options.policy.steal { options.flavour } else { Flavour::Fifo };
    [options.flavour, space_map, options.flavour]
}

/// Runs streams on a pool, on the virtual clock.
///
/// # Errors
/// Where the pool runs out of space or its trees can't be read.
pub fn run<'a>(base: &Base<'a>, starts: Vec<StreamStart<'a>>, options: &RunOptions) -> Result<Outcome<'a>, LiveError> {
    let world = PoolWorld::new(base, &starts, options);
    let conds = CREDIT + starts.len();
    let mut engine = Engine::new(world, &flavours(options), conds, options.costs.wake);
    if options.timeline {
        engine.keep_holds();
    }
    for program in programs(starts, options) {
        engine.add(program, 0);
    }
    let end = engine.run(options.limit);
    let (world, locks) = engine.into_parts();
    world.finish(end, locks, options)
}

/// The same on real threads. `pad` spins for what steps cost; else only the work itself is done.
///
/// # Errors
/// Where the pool runs out of space or its trees can't be read.
pub fn run_on_threads<'a>(
    base: &Base<'a>,
    starts: Vec<StreamStart<'a>>,
    options: &RunOptions,
    pad: bool,
    limit: Duration,
) -> Result<Outcome<'a>, LiveError> {
    let world = PoolWorld::new(base, &starts, options);
    let conds = CREDIT + starts.len();
    let programs = programs(starts, options);
    let (world, locks, end) = threads::run(world, programs, &flavours(options), conds, pad, limit);
    world.finish(end, locks, options)
}

#[cfg(test)]
mod tests;
