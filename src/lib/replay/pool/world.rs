//! Everything that the programs of a run share: the pool, requests under way, and what is measured.

use super::outcome::{Outcome, Stall};
use super::verb::Feed;
use super::{Allocation, CREDIT, MARKS, ROOT, RunOptions};
use crate::base::{ThinBlock, ThinId};
use crate::format::space_map::ENTRIES_PER_BITMAP;
use crate::replay::engine::{Env, Histogram, LockStats, Ns, World};
use crate::thin::live::{Base, LiveError, LivePool};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Width of a bar of the throughput series.
pub const SERIES: Ns = 100_000_000;

/// A stream before the run.
pub struct StreamStart<'a> {
    /// Its name.
    pub name: String,
    /// Requests that may be under way at once; `None` where they come at their own times.
    pub depth: Option<u64>,
    /// Where its events come from.
    pub feed: Box<dyn Feed + 'a>,
    /// Whether its requests count as foreground.
    pub foreground: bool,
}

/// A stream during the run.
#[derive(Clone, Debug, Default)]
pub struct StreamState {
    /// Its name.
    pub name: String,
    /// Requests that may be under way at once.
    pub depth: Option<u64>,
    /// Requests under way.
    pub outstanding: u64,
    /// Whether its requests count as foreground.
    pub foreground: bool,
    /// Whether it has no more events.
    pub over: bool,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its stream.
    pub stream: usize,
    /// Its word.
    pub word: &'static str,
    /// When it came.
    pub since: Ns,
    /// What it moves.
    pub bytes: u64,
    /// Parts that are not done.
    pub parts: u64,
}

/// A part of a request, within one block of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bio {
    /// Number of its request.
    pub request: usize,
    /// The device.
    pub dev: ThinId,
    /// The block, or the first.
    pub block: ThinBlock,
    /// Blocks; more than one only for a discard.
    pub blocks: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it is.
    pub kind: BioKind,
}

/// What a part of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BioKind {
    /// A read.
    Read,
    /// A write; `fua` where it waits for a commit.
    Write {
        /// Whether it waits for a commit.
        fua: bool,
    },
    /// A discard of whole blocks.
    Discard,
}

/// How far the background has come.
#[derive(Clone, Debug, Default)]
pub struct Background {
    /// When the first delete began.
    pub begin: Option<Ns>,
    /// When the last one ended.
    pub end: Option<Ns>,
    /// Deletes under way.
    pub active: u64,
    /// Deletes that are done.
    pub done: u64,
    /// References taken away.
    pub entries: u64,
    /// Nodes released.
    pub nodes: u64,
    /// Times at which others could go first.
    pub boundaries: u64,
    /// Time and references taken away by then, now and then.
    pub progress: Vec<(Ns, u64)>,
}

/// What a run measures.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Latency by verb.
    pub latency: BTreeMap<&'static str, Histogram>,
    /// The same during the background work, of the foreground.
    pub window_latency: Histogram,
    /// Bytes of the foreground by time.
    pub series: Vec<u64>,
    /// Bytes of the foreground during the background work.
    pub window_bytes: u64,
    /// Bytes of the foreground.
    pub bytes: u64,
    /// Requests under way by time: the most.
    pub depth: Vec<u64>,
    /// The longest stalls, longest first.
    pub stalls: Vec<Stall>,
    /// Commits.
    pub commits: u64,
    /// When each commit ended.
    pub commit_times: Vec<Ns>,
    /// Metadata blocks that commits wrote.
    pub committed_blocks: u64,
    /// Bitmaps of the data space map among them.
    pub committed_bitmaps: u64,
    /// Phase borders.
    pub marks: Vec<(Ns, String)>,
    /// Data blocks in the order in which they were taken: device, virtual block, data block.
    pub allocated: Vec<(u64, u64, u64)>,
    /// Recorded latencies, only for comparison.
    pub expected: Histogram,
    /// Requests that failed because the pool was full, or there was no such device.
    pub failed: u64,
}

/// The world of a pool's programs.
pub struct PoolWorld<'a> {
    /// The pool.
    pub pool: LivePool<'a>,
    /// Sectors of a block.
    pub block_sectors: u64,
    /// The streams.
    pub streams: Vec<StreamState>,
    /// Requests, by number.
    pub requests: Vec<Request>,
    free_requests: Vec<usize>,
    /// For the worker: parts to be looked at.
    pub deferred: VecDeque<Bio>,
    /// For the worker: provisioned, to be inserted.
    pub prepared: VecDeque<(Bio, u64)>,
    /// Data blocks that were taken and are in no tree yet.
    pub uninserted: BTreeSet<u64>,
    /// Parts that wait for the same block.
    pub cells: BTreeMap<(ThinId, ThinBlock), Vec<Bio>>,
    /// Parts that wait for a commit.
    pub wait_commit: Vec<Bio>,
    /// Requests that wait for a commit, and nothing else.
    pub flushes: Vec<usize>,
    /// A commit is due by time.
    pub commit_due: bool,
    /// Metadata has changed since the last commit.
    pub changed: bool,
    /// For the data device.
    pub disk: VecDeque<Bio>,
    /// Marks that were passed.
    pub passed: BTreeSet<String>,
    /// How far the background is.
    pub background: Background,
    /// What is measured.
    pub measured: Measured,
    /// Why the run had to end.
    pub failure: Option<LiveError>,
    allocation: Allocation,
    cursors: BTreeMap<ThinId, u64>,
    cursor: u64,
    until_deletes: u64,
    crash_after: u64,
    /// Price of moving 512 KiB.
    data_price: Ns,
    /// Foreground requests under way, and since when something was or the last one was done.
    outstanding: u64,
    quiet_since: Ns,
    /// Requests that streams still may make.
    open_streams: usize,
}

impl World for PoolWorld<'_> {
    fn is_over(&self) -> bool {
        let idle = self.open_streams == 0 && self.free_requests.len() == self.requests.len();
        self.failure.is_some()
            || (self.crash_after > 0 && self.measured.commits >= self.crash_after)
            || (self.until_deletes > 0 && self.background.done >= self.until_deletes && self.background.active == 0)
            || (idle && self.background.active == 0)
    }
}

impl<'a> PoolWorld<'a> {
    /// The pool as it is in the image, and streams that have not begun.
    pub fn new(base: &Base<'a>, starts: &[StreamStart<'_>], options: &RunOptions) -> PoolWorld<'a> {
        let streams = starts.iter().map(|start| StreamState {
            name: start.name.clone(),
            depth: start.depth,
            foreground: start.foreground,
            ..StreamState::default()
        });
        let mut pool = base.pool(options.split);
        pool.overlay.touches.log = options.log_touches.then(Vec::new);
        PoolWorld {
            pool,
            block_sectors: base.block_sectors().max(1),
            streams: streams.collect(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            deferred: VecDeque::new(),
            prepared: VecDeque::new(),
            uninserted: BTreeSet::new(),
            cells: BTreeMap::new(),
            wait_commit: Vec::new(),
            flushes: Vec::new(),
            commit_due: false,
            changed: false,
            disk: VecDeque::new(),
            passed: BTreeSet::new(),
            background: Background::default(),
            measured: Measured::default(),
            failure: None,
            allocation: options.allocation,
            cursors: BTreeMap::new(),
            cursor: 0,
            until_deletes: options.until_deletes,
            crash_after: options.crash_after,
            data_price: options.costs.data,
            outstanding: 0,
            quiet_since: 0,
            open_streams: starts.len(),
        }
    }

    /// Takes note of an error that ends the run; gives the value otherwise.
    pub fn check<T>(&mut self, result: Result<T, LiveError>) -> Option<T> {
        result.map_err(|error| self.failure = Some(error)).ok()
    }

    /// A new request of so many parts.
    pub fn request(&mut self, request: Request, env: &Env<'_>) -> usize {
        let stream = &mut self.streams[request.stream];
        stream.outstanding += 1;
        if stream.foreground {
            if self.outstanding == 0 {
                self.quiet_since = env.now;
            }
            self.outstanding += 1;
            let (slot, outstanding) = ((env.now / SERIES) as usize, self.outstanding);
            if slot < 1 << 20 {
                if self.measured.depth.len() <= slot {
                    self.measured.depth.resize(slot + 1, 0);
                }
                self.measured.depth[slot] = self.measured.depth[slot].max(outstanding);
            }
        }
        match self.free_requests.pop() {
            Some(slot) => {
                self.requests[slot] = request;
                slot
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        }
    }

    /// A part is done.
    pub fn complete(&mut self, number: usize, env: &mut Env<'_>) {
        let request = &mut self.requests[number];
        request.parts = request.parts.saturating_sub(1);
        if request.parts > 0 {
            return;
        }
        let request = *request;
        self.free_requests.push(number);
        let stream = &mut self.streams[request.stream];
        stream.outstanding -= 1;
        let foreground = stream.foreground;
        let latency = env.now - request.since.min(env.now);
        self.measured.latency.entry(request.word).or_default().add(latency);
        if foreground {
            self.note_foreground(&request, latency, env);
        }
        env.notify(CREDIT + request.stream, 0);
        if self.streams[request.stream].outstanding == 0 {
            env.notify(MARKS, 0);
        }
    }

    fn note_foreground(&mut self, request: &Request, latency: Ns, env: &mut Env<'_>) {
        let measured = &mut self.measured;
        measured.bytes += request.bytes;
        if self.background.active > 0 {
            measured.window_bytes += request.bytes;
            measured.window_latency.add(latency);
        }
        let slot = (env.now / SERIES) as usize;
        if slot < 1 << 20 {
            if measured.series.len() <= slot {
                measured.series.resize(slot + 1, 0);
            }
            measured.series[slot] += request.bytes;
        }
        self.end_stall(env);
        self.outstanding -= 1;
        self.quiet_since = env.now;
        env.forget_longest(ROOT);
    }

    /// A time without any completion is over.
    pub fn end_stall(&mut self, env: &mut Env<'_>) {
        let length = env.now - self.quiet_since.min(env.now);
        let shortest = self.measured.stalls.last().map_or(0, |stall| stall.length);
        if self.outstanding > 0 && length > 0 && (self.measured.stalls.len() < 10 || length > shortest) {
            let holder = env.longest(ROOT);
            let stall = Stall {
                begin: self.quiet_since,
                length,
                holder: holder.map_or("nobody", |(label, _)| if label.is_empty() { "nobody" } else { label }).into(),
                held: holder.map_or(0, |(_, time)| time),
                in_background: self.background.active > 0,
            };
            let at = self.measured.stalls.partition_point(|other| other.length >= length);
            self.measured.stalls.insert(at, stall);
            self.measured.stalls.truncate(10);
        }
    }

    /// How long the data device takes for a part.
    pub fn disk_time(&self, bio: &Bio) -> Ns {
        (u128::from(self.data_price) * u128::from(bio.bytes) / (512 << 10)) as Ns
    }

    /// A stream has no more events.
    pub fn end_stream(&mut self, stream: usize, env: &mut Env<'_>) {
        if !std::mem::replace(&mut self.streams[stream].over, true) {
            self.open_streams -= 1;
            env.notify(MARKS, 0);
        }
    }

    /// A delete begins.
    pub fn begin_background(&mut self, env: &Env<'_>) {
        self.background.begin.get_or_insert(env.now);
        self.background.active += 1;
    }

    /// A delete is done.
    pub fn end_background(&mut self, env: &mut Env<'_>) {
        self.end_stall(env);
        self.background.active = self.background.active.saturating_sub(1);
        self.background.done += 1;
        self.background.end = Some(env.now);
        self.background.progress.push((env.now, self.background.entries));
    }

    /// So many references and nodes more were released.
    pub fn note_released(&mut self, entries: u64, nodes: u64, now: Ns) {
        let background = &mut self.background;
        background.entries += entries;
        background.nodes += nodes;
        let last = background.progress.last().map_or(0, |(time, _)| *time);
        if background.progress.is_empty() || now >= last + SERIES / 10 {
            background.progress.push((now, background.entries));
        }
    }

    /// Takes a data block for a device, by the run's rule. `None` where the pool is full.
    pub fn allocate(&mut self, dev: ThinId, block: ThinBlock) -> Option<u64> {
        let nr_blocks = self.pool.overlay.data.nr_blocks().max(1);
        let apart = dev.0.wrapping_mul(ENTRIES_PER_BITMAP) % nr_blocks;
        let own = self.cursors.get(&dev).copied();
        let goal = match self.allocation {
            Allocation::Cursor => self.cursor,
            Allocation::Goal => own.unwrap_or(apart),
            Allocation::Apart => match own {
                Some(at) if !at.is_multiple_of(ENTRIES_PER_BITMAP) => at,
                _ => self.unused_bitmap(dev).unwrap_or(self.cursor),
            },
            Allocation::Aligned(run) => match own {
                Some(at) if !at.is_multiple_of(run) => at,
                _ => self.free_run(run),
            },
        };
        let found = self.pool.overlay.take_data(goal).or_else(|| self.pool.overlay.take_data(0))?;
        self.cursors.insert(dev, found + 1);
        self.cursor = self.cursor.max(found + 1);
        self.measured.allocated.push((dev.0, block.0, found));
        self.uninserted.insert(found);
        Some(found)
    }

    /// A bitmap with free blocks that no other device is using.
    fn unused_bitmap(&self, dev: ThinId) -> Option<u64> {
        let others: BTreeSet<u64> = self
            .cursors
            .iter()
            .filter(|(other, _)| **other != dev)
            .map(|(_, at)| at.saturating_sub(1) / ENTRIES_PER_BITMAP)
            .collect();
        let mut from = 0;
        while let Some(found) = self.pool.overlay.data.find_free(from) {
            if !others.contains(&(found / ENTRIES_PER_BITMAP)) {
                return Some(found);
            }
            from = (found / ENTRIES_PER_BITMAP + 1) * ENTRIES_PER_BITMAP;
        }
        None
    }

    /// The first aligned run of free blocks that nobody has begun.
    fn free_run(&self, run: u64) -> u64 {
        let mut at = self.cursor.next_multiple_of(run);
        for _ in 0..1000 {
            let first = self.pool.overlay.data.find_free(at);
            match first {
                Some(found) if found == at => return at,
                Some(found) => at = found.next_multiple_of(run),
                None => break,
            }
        }
        self.cursor
    }

    /// Commits, and tells what it wrote.
    pub fn commit(&mut self, env: &Env<'_>) -> u64 {
        let result = self.pool.commit();
        let Some(committed) = self.check(result) else { return 0 };
        self.changed = false;
        self.commit_due = false;
        let bitmaps = committed.data_bitmaps + committed.metadata_bitmaps;
        self.measured.commits += 1;
        self.measured.commit_times.push(env.now);
        self.measured.committed_blocks += committed.nodes + bitmaps;
        self.measured.committed_bitmaps += committed.data_bitmaps;
        committed.nodes + bitmaps
    }

    /// What came of the run.
    ///
    /// # Errors
    /// Where the pool failed.
    pub fn finish(mut self, end: Ns, locks: Vec<LockStats>, options: &RunOptions) -> Result<Outcome<'a>, LiveError> {
        // As a crash would, the end gives back what was taken for a mapping that is not there yet.
        for block in std::mem::take(&mut self.uninserted) {
            self.pool.overlay.release_data(block);
        }
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(Outcome::new(self, end, locks, options)),
        }
    }
}
