//! Everything that the programs of a run share: the pool, requests under way, and what is measured.

use super::RunOptions;
use super::allocate::Cursors;
use super::measured::{Background, Measured};
use super::memory::Memory;
use super::numbers::{DISK, MARKS, Numbers};
use super::outcome::{Outcome, Stall};
use super::verb::Feed;
use crate::base::{ThinBlock, ThinId};
use crate::replay::engine::{Env, LockStats, Longest, Ns, World};
use crate::replay::machine::Act;
use crate::thin::live::{Base, LiveError, LivePool};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// A part of it was refused.
    pub refused: bool,
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
    /// The data is on the device already: a write of a whole block goes there before its mapping is made.
    pub written: bool,
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

/// What a pool's worker has to do.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Parts to be looked at.
    pub deferred: VecDeque<Bio>,
    /// Provisioned, to be inserted.
    pub prepared: VecDeque<(Bio, u64)>,
    /// Parts that wait for a commit.
    pub wait_commit: Vec<Bio>,
    /// Requests that wait for a commit, and nothing else.
    pub flushes: Vec<usize>,
    /// A commit is due by time.
    pub commit_due: bool,
    /// Metadata has changed since the last commit.
    pub changed: bool,
}

impl Work {
    /// Whether the worker has to look at anything.
    pub fn is_open(&self) -> bool {
        self.changed || !self.prepared.is_empty() || !self.deferred.is_empty()
    }
}

/// What the data device has to move, and what comes then.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The part.
    pub bio: Bio,
    /// So many bytes.
    pub bytes: u64,
    /// The data block whose mapping can be inserted then; without one the part is complete.
    pub prepares: Option<u64>,
}

/// The world of a pool's programs.
pub struct PoolWorld<'a> {
    /// The pool.
    pub pool: LivePool<'a>,
    /// Sectors of a block.
    pub block_sectors: u64,
    /// Numbers of the locks and conditions.
    pub numbers: Numbers,
    /// The streams.
    pub streams: Vec<StreamState>,
    /// Requests, by number.
    pub requests: Vec<Request>,
    free_requests: Vec<usize>,
    /// What each pool's worker has to do.
    pub work: Vec<Work>,
    /// Data blocks that were taken and are in no tree yet.
    pub uninserted: BTreeSet<u64>,
    /// Parts that wait for the same block.
    pub cells: BTreeMap<(ThinId, ThinBlock), Vec<Bio>>,
    /// For the data device.
    pub disk: VecDeque<Transfer>,
    /// The metadata in memory.
    pub memory: Memory,
    /// Marks that were passed.
    pub passed: BTreeSet<String>,
    /// Devices that are being deleted: nobody else can delete them.
    pub deleting: BTreeSet<ThinId>,
    /// How far the background is.
    pub background: Background,
    /// What is measured.
    pub measured: Measured,
    /// Why the run had to end.
    pub failure: Option<LiveError>,
    cursors: Cursors,
    until_deletes: u64,
    crash_after: u64,
    /// Price of moving 512 KiB.
    data_price: Ns,
    /// Foreground requests under way, and since when something was or the last one was done.
    outstanding: u64,
    quiet_since: Ns,
    /// What deletes had released by then: references and nodes.
    quiet_released: (u64, u64),
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
        let memory = Memory::new(options);
        pool.overlay.touches.log = (options.log_touches || memory.looks()).then(Vec::new);
        let numbers = Numbers::of(options, pool.overlay.data.nr_blocks());
        PoolWorld {
            pool,
            block_sectors: base.block_sectors().max(1),
            numbers,
            streams: streams.collect(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            work: vec![Work::default(); numbers.pools()],
            uninserted: BTreeSet::new(),
            cells: BTreeMap::new(),
            disk: VecDeque::new(),
            memory,
            passed: BTreeSet::new(),
            deleting: BTreeSet::new(),
            background: Background::default(),
            measured: Measured::new(options.timeline),
            failure: None,
            cursors: Cursors::new(options.allocation),
            until_deletes: options.until_deletes,
            crash_after: options.crash_after,
            data_price: options.costs.data,
            outstanding: 0,
            quiet_since: 0,
            quiet_released: (0, 0),
            open_streams: starts.len(),
        }
    }

    /// What the worker of a device's pool has to do.
    pub fn work_of(&mut self, dev: ThinId) -> &mut Work {
        let pool = self.numbers.pool_of(dev);
        &mut self.work[pool]
    }

    /// Leaves a part to the worker, who runs `wake` later where it sleeps.
    pub fn defer(&mut self, bio: Bio, env: &mut Env<'_>, wake: Ns) {
        self.work_of(bio.dev).deferred.push_back(bio);
        env.notify(self.numbers.work(self.numbers.pool_of(bio.dev)), wake);
    }

    /// Pays for what a pool did to the trees: what it costs, waiting for metadata that is not in memory, and the locks of
    /// the buffers that were used.
    pub fn pay<T>(&mut self, pool: usize, cost: Ns, now: Ns, then: &mut Vec<Act<T>>) {
        self.memory.pay(&mut self.pool.overlay.touches, (pool, cost), now, &self.numbers, then);
    }

    /// Whether the map path would have to wait for what it has just looked up.
    pub fn would_wait(&mut self, pool: usize, now: Ns) -> bool {
        self.memory.would_wait(&mut self.pool.overlay.touches, pool, now)
    }

    /// Takes note of an error that ends the run; gives the value otherwise.
    pub fn check<T>(&mut self, result: Result<T, LiveError>) -> Option<T> {
        result.map_err(|error| self.failure = Some(error)).ok()
    }

    /// A new request of so many parts.
    pub fn request(&mut self, request: Request, env: &mut Env<'_>) -> usize {
        let stream = &mut self.streams[request.stream];
        stream.outstanding += 1;
        if stream.foreground {
            if self.outstanding == 0 {
                self.quiet_from(env);
            }
            self.outstanding += 1;
            self.measured.note_depth(self.outstanding, env.now);
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

    /// A part can't be done; its request counts as refused.
    pub fn refuse(&mut self, number: usize, env: &mut Env<'_>) {
        self.requests[number].refused = true;
        self.complete(number, env);
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
        let (foreground, is_closed) = (stream.foreground, stream.depth.is_some());
        let latency = env.now - request.since.min(env.now);
        // What was refused moved nothing, and its latency says nothing.
        self.measured.failed += u64::from(request.refused);
        if !request.refused {
            self.measured.latency.entry(request.word).or_default().add(latency);
            if foreground && is_closed {
                self.measured.closed.entry(request.word).or_default().add(latency);
            }
        }
        if foreground {
            self.note_foreground(&request, latency, env);
        }
        env.notify(self.numbers.credit(request.stream), 0);
        if self.streams[request.stream].outstanding == 0 {
            env.notify(MARKS, 0);
        }
    }

    fn note_foreground(&mut self, request: &Request, latency: Ns, env: &mut Env<'_>) {
        let moved = if request.refused { 0 } else { request.bytes };
        self.measured.note_bytes(moved, env.now);
        if self.background.active > 0 && !request.refused {
            self.measured.window_bytes += request.bytes;
            self.measured.window_latency.add(latency);
        }
        self.end_stall(env);
        self.outstanding -= 1;
        self.measured.note_depth(self.outstanding, env.now);
        self.quiet_from(env);
    }

    /// A time without completions may begin; who held a lock before has nothing to do with it.
    fn quiet_from(&mut self, env: &mut Env<'_>) {
        env.forget_longest(self.numbers.of_pools());
        self.quiet_since = env.now;
        self.quiet_released = (self.background.entries, self.background.nodes);
    }

    /// A time without any completion is over.
    pub fn end_stall(&mut self, env: &mut Env<'_>) {
        let length = env.now - self.quiet_since.min(env.now);
        if self.outstanding == 0 || !self.measured.is_worth(length, self.background.active > 0) {
            return;
        }
        let longest =
            self.numbers.of_pools().map(|lock| env.longest(lock)).fold(Longest::default(), Longest::or_longer);
        let background = &self.background;
        self.measured.keep(Stall {
            begin: self.quiet_since,
            length,
            in_background: background.active > 0,
            entries: background.entries - self.quiet_released.0,
            nodes: background.nodes - self.quiet_released.1,
            ..Stall::of(longest)
        });
    }

    /// How long the data device takes to move so many bytes.
    pub fn disk_time(&self, bytes: u64) -> Ns {
        (u128::from(self.data_price) * u128::from(bytes) / (512 << 10)) as Ns
    }

    /// Sends a part on to the data device; what is to come then comes when the device says so.
    pub fn transfer(&mut self, transfer: Transfer, env: &mut Env<'_>) {
        if self.data_price == 0 {
            self.transferred(transfer, env);
        } else {
            self.disk.push_back(transfer);
            env.notify(DISK, 0);
        }
    }

    /// The data device is done with it.
    pub fn transferred(&mut self, Transfer { bio, prepares, .. }: Transfer, env: &mut Env<'_>) {
        match prepares {
            Some(data) => self.work_of(bio.dev).prepared.push_back((bio, data)),
            None => self.complete(bio.request, env),
        }
        env.notify(self.numbers.work(self.numbers.pool_of(bio.dev)), 0);
    }

    /// Sends a part on as it is.
    pub fn send(&mut self, bio: Bio, env: &mut Env<'_>) {
        self.transfer(Transfer { bio, bytes: bio.bytes, prepares: None }, env);
    }

    /// A part needs no metadata any more: it goes on, but where it has to wait for a commit of what has changed. The
    /// worker, if it sleeps, runs `wake` later.
    pub fn mapped(&mut self, bio: Bio, env: &mut Env<'_>, wake: Ns) {
        let work = self.work_of(bio.dev);
        if bio.kind == (BioKind::Write { fua: true }) && work.changed {
            work.wait_commit.push(bio);
            env.notify(self.numbers.work(self.numbers.pool_of(bio.dev)), wake);
        } else {
            self.send(bio, env);
        }
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
        self.background.note(0, env.now);
    }

    /// Takes a data block for a device, by the run's rule. `None` where the pool is full.
    pub fn allocate(&mut self, dev: ThinId, block: ThinBlock) -> Option<u64> {
        let found = self.cursors.take(&mut self.pool.overlay, dev)?;
        self.measured.allocated.push((dev.0, block.0, found));
        self.uninserted.insert(found);
        Some(found)
    }

    /// The bitmap in which the next data block of a device is looked for.
    pub fn next_bitmap(&self, dev: ThinId) -> u64 {
        self.cursors.next_bitmap(&self.pool.overlay, dev)
    }

    /// A pool commits; gives the blocks that it wrote.
    pub fn commit(&mut self, pool: usize, env: &Env<'_>) -> u64 {
        let result = self.pool.commit();
        let Some(committed) = self.check(result) else { return 0 };
        (self.work[pool].changed, self.work[pool].commit_due) = (false, false);
        let bitmaps = committed.data_bitmaps + committed.metadata_bitmaps;
        let cached = self.memory.commit(&mut self.pool.overlay.touches, pool, env.now, &self.numbers);
        self.measured.commits += 1;
        self.measured.commit_times.push(env.now);
        let blocks = cached.unwrap_or(committed.nodes + bitmaps);
        self.measured.committed_blocks += blocks;
        self.measured.committed_bitmaps += committed.data_bitmaps;
        blocks
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
