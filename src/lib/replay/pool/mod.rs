//! A pool at work: submitters, the worker, deletes, and what they do to each other.

pub mod allocate;
pub mod delete;
pub mod disk;
pub mod locking;
pub mod measured;
pub mod memory;
pub mod numbers;
pub mod outcome;
pub mod stream;
pub mod verb;
pub mod worker;
pub mod world;

pub use numbers::{POOLS_MAX, SHARDS_MAX};
pub use outcome::{Outcome, Stall};
pub use verb::{Event, Feed, Verb, When};
pub use world::{PoolWorld, StreamStart};

use super::cache::CacheRules;
use super::costs::Costs;
use super::engine::{Engine, Flavour, Ns, Program};
use super::machine::Machine;
use super::policy::Policy;
use super::threads;
use crate::pdata::overlay::SplitRule;
use crate::thin::live::{Base, LiveError};
use numbers::Numbers;
use std::time::Duration;

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
    /// As `Goal`, with a lock of its own for each bitmap in place of the pool's lock held alone.
    Shared,
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
    /// New blocks are zeroed first where a write does not fill them, as pools do that are not told otherwise.
    pub zero: bool,
    /// So many locks that buffers of metadata are got under; 0 is none.
    pub shards: u64,
    /// What is in memory of the metadata; without rules all of it is, from the beginning.
    pub cache: Option<CacheRules>,
    /// Keep every hold, wait and completion, for a timeline.
    pub timeline: bool,
    /// What of the run a timeline shows; all of it where nothing is said.
    pub zoom: Option<(Ns, Ns)>,
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
            zero: true,
            shards: 0,
            cache: None,
            timeline: false,
            zoom: None,
            log_touches: false,
        }
    }
}

/// The programs of a run: every stream, the pools' workers, their timer and the data device.
pub fn programs<'a>(
    starts: Vec<StreamStart<'a>>,
    numbers: Numbers,
    options: &RunOptions,
) -> Vec<Box<dyn Program<PoolWorld<'a>> + 'a>> {
    let mut programs: Vec<Box<dyn Program<PoolWorld<'a>> + 'a>> = Vec::new();
    for (index, start) in starts.into_iter().enumerate() {
        programs.push(Box::new(Machine::new(stream::Stream::new(index, start.feed, numbers, options))));
    }
    for pool in 0..numbers.pools() {
        programs.push(Box::new(Machine::new(worker::Worker::new(pool, numbers, options))));
    }
    programs.push(Box::new(worker::Timer { period: options.costs.period, fired: false }));
    programs.push(Box::new(disk::Disk::default()));
    programs
}

/// Runs streams on a pool, on the virtual clock.
///
/// # Errors
/// Where the pool runs out of space or its trees can't be read.
pub fn run<'a>(base: &Base<'a>, starts: Vec<StreamStart<'a>>, options: &RunOptions) -> Result<Outcome<'a>, LiveError> {
    let world = PoolWorld::new(base, &starts, options);
    let numbers = world.numbers;
    let conds = numbers.conds(starts.len());
    let mut engine = Engine::new(world, &numbers.flavours(options), conds, options.costs.wake);
    if options.timeline {
        engine.keep_holds();
    }
    for program in programs(starts, numbers, options) {
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
    let numbers = world.numbers;
    let conds = numbers.conds(starts.len());
    let programs = programs(starts, numbers, options);
    let (world, locks, end) =
        threads::run(world, programs, &numbers.flavours(options), conds, (pad, options.timeline), limit);
    world.finish(end, locks, options)
}

#[cfg(test)]
mod tests;
