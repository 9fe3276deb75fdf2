//! The cache of metadata blocks: what is kept, for how long, and what has to be written before it can go.
//!
//! Pure state, without a clock of its own: whoever uses a block says when. What a miss or a write costs is the
//! caller's business.

use super::engine::Ns;
use super::policy::{call, duration};
use crate::pdata::overlay::{How, Used};
use std::collections::HashMap;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Ages are looked at this many times in the time that a block may grow old.
const AGE_CHECKS: Ns = 10;

/// When dirty blocks are written before they have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// When less than a quarter of the cache is clean, half of the dirty blocks: the old block manager.
    Half,
    /// When there are more than three times as many dirty blocks as clean ones, until there are not: the kernel's later
    /// rule.
    Ratio,
}

/// What a cache does. Read from text such as `cap(256KiB)+age(300s)+retain(256KiB)+forget`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheRules {
    /// Blocks that it has room for; without it there is no bound.
    pub capacity: Option<u64>,
    /// Blocks that were not used for so long go.
    pub age: Option<Ns>,
    /// So many blocks stay, however old they are.
    pub retain: u64,
    /// When dirty blocks are written early.
    pub flush: Option<Flush>,
    /// A block that is freed goes at once.
    pub forget: bool,
    /// One bound for all pools together, in place of one for each.
    pub share: bool,
    /// So many parts, each with its share of the room; a used block is only marked and gets a second chance, in place
    /// of being moved. 0 is one part, and a used block moves to the front.
    pub shards: u64,
    /// The map path records what it misses, and the worker reads all of that at once.
    pub prefetch_hint: bool,
}

/// Blocks in `64`, `256KiB` or `2MiB`.
fn blocks(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match &text[digits..] {
        "" => BLOCK,
        "KiB" | "k" => 1 << 10,
        "MiB" | "m" => 1 << 20,
        "GiB" | "g" => 1 << 30,
        _ => 0,
    };
    let bytes = text[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let blocks = bytes.map(|bytes| bytes / BLOCK).filter(|blocks| (1..=1 << 32).contains(blocks));
    blocks.ok_or_else(|| format!("'{text}' is no size such as 256KiB or 64 (blocks)"))
}

impl CacheRules {
    /// Reads rules: `cap(SIZE)` or `unbounded`, then any of `+age(T)`, `+retain(SIZE)`, `+flush` (the kernel's rule),
    /// `+flush(half)`, `+forget`, `+share`, `+shards(N)`, `+prefetch-hint`.
    ///
    /// # Errors
    /// Says what is not understood.
    pub fn parse(text: &str) -> Result<CacheRules, String> {
        let mut rules = CacheRules::default();
        let mut parts = text.split('+').map(str::trim);
        match call(parts.next().unwrap_or(""))? {
            ("cap", Some(size)) => rules.capacity = Some(blocks(size)?),
            ("unbounded", None) => {}
            _ => return Err(format!("'{text}' does not begin with cap(SIZE) or unbounded")),
        }
        for part in parts {
            match call(part)? {
                ("age", Some(time)) => rules.age = Some(duration(time)?),
                ("retain", Some(size)) => rules.retain = blocks(size)?,
                ("flush", None) => rules.flush = Some(Flush::Ratio),
                ("flush", Some("half")) => rules.flush = Some(Flush::Half),
                ("forget", None) => rules.forget = true,
                ("share", None) => rules.share = true,
                ("shards", Some(shards)) => {
                    let shards = shards.parse().ok().filter(|shards| (1..=1024).contains(shards));
                    rules.shards = shards.ok_or_else(|| format!("'{part}': 1 to 1024 parts are possible"))?;
                }
                ("prefetch-hint", None) => rules.prefetch_hint = true,
                _ => return Err(format!("a cache can't have '+{part}'")),
            }
        }
        match rules.capacity {
            None if rules.flush == Some(Flush::Half) => Err("'flush(half)' wants a bound: cap(SIZE)".into()),
            Some(room) if room < rules.shards => Err("a part has to have room for a block".into()),
            _ => Ok(rules),
        }
    }
}

/// What using a block has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// It has to be read.
    pub miss: bool,
    /// So many blocks had to be written to make room or for their age, or were written early.
    pub written: u64,
}

/// What a cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct CacheStats {
    /// Uses of blocks that were there.
    pub hits: u64,
    /// Uses of blocks that had to be read.
    pub misses: u64,
    /// Blocks that went to make room.
    pub evictions: u64,
    /// Blocks that went for their age.
    pub aged: u64,
    /// Blocks written before a commit.
    pub written_early: u64,
    /// Blocks written by commits.
    pub written_by_commits: u64,
    /// Commits.
    pub flushes: u64,
    /// Blocks read ahead.
    pub prefetched: u64,
    /// The most blocks at once.
    pub peak: u64,
    /// Blocks on average over time.
    pub mean: f64,
}

const NONE: usize = usize::MAX;

/// A block in the cache, in the list of its part.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    key: (usize, Used),
    part: usize,
    older: usize,
    newer: usize,
    used: Ns,
    dirty: bool,
    referenced: bool,
}

/// The blocks of a part, from the oldest to the newest.
#[derive(Clone, Copy, Debug)]
struct Part {
    oldest: usize,
    newest: usize,
    len: u64,
    dirty: u64,
}

/// A cache of metadata blocks of some pools.
#[derive(Clone, Debug)]
pub struct Cache {
    rules: CacheRules,
    buffers: Vec<Buffer>,
    spare: Vec<usize>,
    /// Only looked up, never gone through: its order shows nowhere.
    by_key: HashMap<(usize, Used), usize>,
    parts: Vec<Part>,
    next_check: Ns,
    stats: CacheStats,
    /// Blocks times nanoseconds, up to `at`.
    area: u128,
    at: Ns,
}

impl Cache {
    /// An empty cache for so many pools.
    pub fn new(rules: CacheRules, pools: usize) -> Cache {
        let of_pool = rules.shards.max(1) as usize;
        let count = if rules.share { of_pool } else { of_pool * pools.max(1) };
        let parts = vec![Part { oldest: NONE, newest: NONE, len: 0, dirty: 0 }; count];
        Cache {
            rules,
            buffers: Vec::new(),
            spare: Vec::new(),
            by_key: HashMap::new(),
            parts,
            next_check: 0,
            stats: CacheStats::default(),
            area: 0,
            at: 0,
        }
    }

    /// What it has done so far.
    pub fn stats(&self) -> CacheStats {
        CacheStats { mean: self.area as f64 / self.at.max(1) as f64, ..self.stats }
    }

    /// The rules that it follows.
    pub fn rules(&self) -> &CacheRules {
        &self.rules
    }

    /// Blocks in it.
    pub fn len(&self) -> u64 {
        self.by_key.len() as u64
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether a block of a pool is there.
    pub fn contains(&self, pool: usize, used: Used) -> bool {
        self.by_key.contains_key(&(pool, used))
    }

    /// Uses a block of a pool. One that is made needs no reading.
    pub fn touch(&mut self, pool: usize, used: Used, how: How, now: Ns) -> Touch {
        self.pass_time(now);
        let mut touch = Touch { written: self.drop_aged(now), miss: false };
        if matches!(how, How::Ahead) {
            return touch;
        }
        if how == How::Free {
            self.free(pool, used);
            return touch;
        }
        let found = self.by_key.get(&(pool, used)).copied();
        let slot = match found {
            Some(slot) => {
                self.use_again(slot, now);
                self.stats.hits += u64::from(how != How::New);
                slot
            }
            None => {
                touch.miss = how != How::New;
                self.stats.misses += u64::from(touch.miss);
                touch.written += self.make_room(self.part_of(pool, used));
                self.insert(pool, used, now)
            }
        };
        if how != How::Read {
            self.set_dirty(slot, true);
        }
        touch.written += self.write_early(self.buffers[slot].part);
        self.stats.peak = self.stats.peak.max(self.len());
        touch
    }

    /// Reads a block ahead; whether it was not there.
    pub fn prefetch(&mut self, pool: usize, used: Used, now: Ns) -> bool {
        self.pass_time(now);
        if self.contains(pool, used) {
            return false;
        }
        self.make_room(self.part_of(pool, used));
        self.insert(pool, used, now);
        self.stats.prefetched += 1;
        self.stats.peak = self.stats.peak.max(self.len());
        true
    }

    /// A pool commits: its dirty blocks are written. Gives their number.
    pub fn commit(&mut self, pool: usize, now: Ns) -> u64 {
        self.pass_time(now);
        let mut written = 0;
        for slot in 0..self.buffers.len() {
            if self.buffers[slot].dirty && self.buffers[slot].key.0 == pool {
                self.set_dirty(slot, false);
                written += 1;
            }
        }
        self.stats.flushes += 1;
        self.stats.written_by_commits += written;
        written
    }

    fn pass_time(&mut self, now: Ns) {
        self.area += u128::from(self.len()) * u128::from(now.saturating_sub(self.at));
        self.at = self.at.max(now);
    }

    fn part_of(&self, pool: usize, used: Used) -> usize {
        let of_pool = self.rules.shards.max(1);
        let number = match used {
            Used::Node(block) => block.0,
            Used::DataBitmap(bitmap) | Used::MetadataBitmap(bitmap) => bitmap,
        };
        let first = if self.rules.share { 0 } else { pool * of_pool as usize };
        first + (number % of_pool) as usize
    }

    /// Room of a part; the parts of a pool share its bound.
    fn room(&self, part: usize) -> Option<u64> {
        let of_pool = self.rules.shards.max(1);
        let capacity = self.rules.capacity?;
        Some(capacity / of_pool + u64::from((part as u64 % of_pool) < capacity % of_pool))
    }

    fn unlink(&mut self, slot: usize) {
        let Buffer { part, older, newer, dirty, .. } = self.buffers[slot];
        match older {
            NONE => self.parts[part].oldest = newer,
            older => self.buffers[older].newer = newer,
        }
        match newer {
            NONE => self.parts[part].newest = older,
            newer => self.buffers[newer].older = older,
        }
        self.parts[part].len -= 1;
        self.parts[part].dirty -= u64::from(dirty);
    }

    fn link_newest(&mut self, slot: usize) {
        let (part, dirty) = (self.buffers[slot].part, self.buffers[slot].dirty);
        let last = self.parts[part].newest;
        (self.buffers[slot].older, self.buffers[slot].newer) = (last, NONE);
        match last {
            NONE => self.parts[part].oldest = slot,
            last => self.buffers[last].newer = slot,
        }
        self.parts[part].newest = slot;
        self.parts[part].len += 1;
        self.parts[part].dirty += u64::from(dirty);
    }

    fn insert(&mut self, pool: usize, used: Used, now: Ns) -> usize {
        let key = (pool, used);
        let part = self.part_of(pool, used);
        let (dirty, referenced) = (false, false);
        let buffer = Buffer { key, part, older: NONE, newer: NONE, used: now, dirty, referenced };
        let slot = match self.spare.pop() {
            Some(slot) => {
                self.buffers[slot] = buffer;
                slot
            }
            None => {
                self.buffers.push(buffer);
                self.buffers.len() - 1
            }
        };
        self.by_key.insert(key, slot);
        self.link_newest(slot);
        slot
    }

    fn remove(&mut self, slot: usize) {
        self.unlink(slot);
        self.buffers[slot].dirty = false;
        self.by_key.remove(&self.buffers[slot].key);
        self.spare.push(slot);
    }

    fn use_again(&mut self, slot: usize, now: Ns) {
        self.buffers[slot].used = now;
        if self.rules.shards > 0 {
            self.buffers[slot].referenced = true;
        } else {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn set_dirty(&mut self, slot: usize, dirty: bool) {
        let buffer = &mut self.buffers[slot];
        let part = &mut self.parts[buffer.part];
        part.dirty = part.dirty - u64::from(buffer.dirty) + u64::from(dirty);
        buffer.dirty = dirty;
    }

    /// What is freed is never written; it stays until it has to go, unless such blocks go at once.
    fn free(&mut self, pool: usize, used: Used) {
        let Some(slot) = self.by_key.get(&(pool, used)).copied() else { return };
        self.set_dirty(slot, false);
        if self.rules.forget {
            self.remove(slot);
        }
    }

    /// Lets the oldest go until there is room for one more; gives how many had to be written.
    fn make_room(&mut self, part: usize) -> u64 {
        let Some(room) = self.room(part) else { return 0 };
        let mut written = 0;
        while self.parts[part].len >= room {
            let Some(slot) = self.victim(part) else { break };
            written += u64::from(self.buffers[slot].dirty);
            self.remove(slot);
            self.stats.evictions += 1;
        }
        self.stats.written_early += written;
        written
    }

    /// The oldest; with second chances, the oldest that was not used since it got its last.
    fn victim(&mut self, part: usize) -> Option<usize> {
        // Everything may get a second chance once.
        for _ in 0..2 * self.parts[part].len {
            let slot = self.parts[part].oldest;
            if !self.buffers[slot].referenced {
                return Some(slot);
            }
            self.buffers[slot].referenced = false;
            self.unlink(slot);
            self.link_newest(slot);
        }
        None
    }

    fn drop_aged(&mut self, now: Ns) -> u64 {
        let Some(age) = self.rules.age.filter(|_| now >= self.next_check) else { return 0 };
        self.next_check = now + (age / AGE_CHECKS).max(1);
        let mut written = 0;
        for part in 0..self.parts.len() {
            let keep = self.rules.retain / self.rules.shards.max(1);
            let mut slot = self.parts[part].oldest;
            while slot != NONE && self.parts[part].len > keep {
                let Buffer { newer, used, dirty, .. } = self.buffers[slot];
                if now.saturating_sub(used) <= age && self.rules.shards == 0 {
                    break;
                }
                if now.saturating_sub(used) > age {
                    written += u64::from(dirty);
                    self.remove(slot);
                    self.stats.aged += 1;
                }
                slot = newer;
            }
        }
        self.stats.written_early += written;
        written
    }

    fn write_early(&mut self, part: usize) -> u64 {
        let Part { len, dirty, .. } = self.parts[part];
        let wanted = match (self.rules.flush, self.room(part)) {
            (Some(Flush::Half), Some(room)) if room.saturating_sub(dirty) * 4 < room => dirty.div_ceil(2),
            (Some(Flush::Ratio), _) if dirty > 3 * (len - dirty) && len > 4 => dirty - 3 * len / 4,
            _ => 0,
        };
        let (mut written, mut slot) = (0, self.parts[part].oldest);
        while written < wanted && slot != NONE {
            let newer = self.buffers[slot].newer;
            if self.buffers[slot].dirty {
                self.set_dirty(slot, false);
                written += 1;
            }
            slot = newer;
        }
        self.stats.written_early += written;
        written
    }
}

#[cfg(test)]
mod tests;
