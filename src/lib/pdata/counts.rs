//! Reference counts that were counted, not read: compact, and filled by many threads at once.
//!
//! The range is cut into parts of [`PART`] blocks. A part takes no memory until something in it is counted; then
//! two bits per block, and more only where a count needs it. Threads collect what they count in a [`Tally`] of
//! their own and hand it to the parts in batches, so that a lock is taken once per batch and the random writes
//! stay within a part, which fits the processor's cache.

use crate::format::space_map::ENTRIES_PER_BITMAP;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks of a part: those of 16 bitmaps.
pub const PART: u64 = 16 * ENTRIES_PER_BITMAP;
const WORDS_PER_BITMAP: usize = (ENTRIES_PER_BITMAP / 32) as usize;
const LOW_BITS: u64 = 0x5555_5555_5555_5555;
/// Offsets that a tally keeps for a part before it hands them over.
const BATCH: usize = 512;
/// Runs of at least this many blocks are counted at once.
const RUN: u64 = 16;

/// The counts of one part, in the narrowest form that holds them.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Zero,
    Two(Box<[u64]>),
    Eight(Box<[u8]>),
    Wide(Box<[u32]>),
}

/// The counts of the blocks of one bitmap, as they are kept.
#[derive(Clone, Copy, Debug)]
pub enum BitmapCounts<'a> {
    /// Nothing is counted.
    Zero,
    /// Words of 32 plain two-bit numbers.
    Two(&'a [u64]),
    /// A byte each.
    Eight(&'a [u8]),
    /// 32 bits each; may be shorter than a bitmap, the rest is 0.
    Wide(&'a [u32]),
}

impl BitmapCounts<'_> {
    /// The count of an entry.
    pub fn get(&self, entry: usize) -> u32 {
        match self {
            BitmapCounts::Zero => 0,
            BitmapCounts::Two(words) => words.get(entry / 32).map_or(0, |word| (word >> (2 * (entry % 32)) & 3) as u32),
            BitmapCounts::Eight(bytes) => bytes.get(entry).map_or(0, |count| u32::from(*count)),
            BitmapCounts::Wide(counts) => counts.get(entry).copied().unwrap_or(0),
        }
    }

    /// Whether any of the entries `begin..end` is above 0.
    pub fn any(&self, begin: usize, end: usize) -> bool {
        match self {
            BitmapCounts::Zero => false,
            BitmapCounts::Two(words) => {
                let words = (begin / 32..end.div_ceil(32)).filter_map(|at| Some((at, words.get(at)?)));
                words.fold(0, |all, (at, word)| all | (word & (mask_two(at, begin, end) * 3))) != 0
            }
            BitmapCounts::Eight(bytes) => bytes.iter().take(end).skip(begin).fold(0, |all, count| all | count) != 0,
            BitmapCounts::Wide(counts) => counts.iter().take(end).skip(begin).any(|count| *count > 0),
        }
    }

    /// Calls `each` with every entry above 0 and its count, in ascending order.
    pub fn each(&self, each: &mut dyn FnMut(usize, u32)) {
        match self {
            BitmapCounts::Zero => {}
            BitmapCounts::Two(words) => {
                for (at, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
                    let mut used = (word | word >> 1) & LOW_BITS;
                    while used != 0 {
                        let shift = used.trailing_zeros();
                        each(at * 32 + shift as usize / 2, (word >> shift & 3) as u32);
                        used &= used - 1;
                    }
                }
            }
            BitmapCounts::Eight(bytes) => {
                let used = bytes.iter().enumerate().filter(|(_, count)| **count > 0);
                used.for_each(|(entry, count)| each(entry, u32::from(*count)));
            }
            BitmapCounts::Wide(counts) => {
                let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
                used.for_each(|(entry, count)| each(entry, *count));
            }
        }
    }
}

impl Part {
    fn widen(&mut self) {
        *self = match std::mem::take(self) {
            Part::Zero => Part::Two(vec![0; PART as usize / 32].into()),
            Part::Two(words) => Part::Eight(
                words.iter().flat_map(|word| (0..32).map(move |entry| (word >> (2 * entry) & 3) as u8)).collect(),
            ),
            Part::Eight(bytes) => Part::Wide(bytes.iter().map(|count| u32::from(*count)).collect()),
            Part::Wide(counts) => Part::Wide(counts),
        };
    }

    /// Adds one to each offset; all are below [`PART`].
    fn add(&mut self, mut offsets: &[u32]) {
        while !offsets.is_empty() {
            let done = match self {
                Part::Zero => 0,
                Part::Two(words) => add_two(words, offsets),
                Part::Eight(bytes) => add_eight(bytes, offsets),
                Part::Wide(counts) => {
                    for offset in offsets {
                        let count = &mut counts[*offset as usize];
                        *count = count.saturating_add(1);
                    }
                    offsets.len()
                }
            };
            offsets = &offsets[done..];
            if !offsets.is_empty() {
                self.widen();
            }
        }
    }

    /// Adds one to each of `begin..end`, which lies in the part.
    fn add_run(&mut self, begin: usize, end: usize) {
        loop {
            let done = match self {
                Part::Zero => false,
                Part::Two(words) => add_run_two(words, begin, end),
                Part::Eight(bytes) => {
                    let run = &mut bytes[begin..end];
                    let full = run.iter().fold(false, |full, count| full | (*count == u8::MAX));
                    if !full {
                        run.iter_mut().for_each(|count| *count += 1);
                    }
                    !full
                }
                Part::Wide(counts) => {
                    counts[begin..end].iter_mut().for_each(|count| *count = count.saturating_add(1));
                    true
                }
            };
            if done {
                return;
            }
            self.widen();
        }
    }

    fn bitmap(&self, index: usize) -> BitmapCounts<'_> {
        let entries = ENTRIES_PER_BITMAP as usize;
        match self {
            Part::Zero => BitmapCounts::Zero,
            Part::Two(words) => BitmapCounts::Two(&words[index * WORDS_PER_BITMAP..][..WORDS_PER_BITMAP]),
            Part::Eight(bytes) => BitmapCounts::Eight(&bytes[index * entries..][..entries]),
            Part::Wide(counts) => BitmapCounts::Wide(&counts[index * entries..][..entries]),
        }
    }
}

/// Counts until an offset would overflow; returns how many were counted.
fn add_two(words: &mut [u64], offsets: &[u32]) -> usize {
    for (done, offset) in offsets.iter().enumerate() {
        let word = &mut words[*offset as usize / 32];
        let shift = 2 * (offset % 32);
        if *word >> shift & 3 == 3 {
            return done;
        }
        *word += 1 << shift;
    }
    offsets.len()
}

/// Counts until an offset would overflow; returns how many were counted.
fn add_eight(bytes: &mut [u8], offsets: &[u32]) -> usize {
    for (done, offset) in offsets.iter().enumerate() {
        let count = &mut bytes[*offset as usize];
        if *count == u8::MAX {
            return done;
        }
        *count += 1;
    }
    offsets.len()
}

/// The entries `begin..end` that lie in word `word`, as their low bits.
fn mask_two(word: usize, begin: usize, end: usize) -> u64 {
    let first = begin.max(word * 32) - word * 32;
    let last = end.min(word * 32 + 32) - word * 32;
    let upto = if last == 32 { u64::MAX } else { (1 << (2 * last)) - 1 };
    LOW_BITS & upto & (u64::MAX << (2 * first))
}

/// Counts the whole run, or nothing where one of its counts would overflow.
fn add_run_two(words: &mut [u64], begin: usize, end: usize) -> bool {
    let range = begin / 32..end.div_ceil(32);
    let full = range.clone().any(|index| words[index] & (words[index] >> 1) & mask_two(index, begin, end) != 0);
    if !full {
        for index in range {
            words[index] += mask_two(index, begin, end);
        }
    }
    !full
}

/// Reference counts of the blocks `0..nr_blocks`.
#[derive(Debug)]
pub struct Counts {
    nr_blocks: u64,
    parts: Vec<Mutex<Part>>,
}

/// What one thread has counted and not handed over yet: offsets for each part, and how many.
#[derive(Debug, Default)]
pub struct Tally {
    batches: Vec<[u32; BATCH]>,
    lengths: Vec<usize>,
}

impl Counts {
    /// Counts of 0 for `nr_blocks` blocks. Takes some 40 bytes per [`PART`] blocks until something is counted.
    pub fn new(nr_blocks: u64) -> Self {
        let mut parts = Vec::new();
        parts.resize_with(nr_blocks.div_ceil(PART) as usize, Mutex::default);
        Counts { nr_blocks, parts }
    }

    /// Blocks that can be counted.
    pub fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    fn part(&self, index: usize) -> MutexGuard<'_, Part> {
        self.parts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts each of `blocks` once more; those that are not below [`Counts::nr_blocks`] are passed over.
    #[inline]
    pub fn add(&self, tally: &mut Tally, blocks: impl IntoIterator<Item = u64>) {
        if tally.lengths.len() < self.parts.len() {
            tally.batches.resize(self.parts.len(), [0; BATCH]);
            tally.lengths.resize(self.parts.len(), 0);
        }
        for block in blocks {
            if block >= self.nr_blocks {
                continue;
            }
            let (part, offset) = ((block / PART) as usize, (block % PART) as u32);
            let length = &mut tally.lengths[part];
            tally.batches[part][*length] = offset;
            *length += 1;
            if *length == BATCH {
                *length = 0;
                self.part(part).add(&tally.batches[part]);
            }
        }
    }

    /// Counts each of `length` blocks from `begin` on once more, as far as they are below [`Counts::nr_blocks`].
    #[inline]
    pub fn add_run(&self, tally: &mut Tally, mut begin: u64, mut length: u64) {
        length = length.min(self.nr_blocks.saturating_sub(begin));
        if length < RUN {
            self.add(tally, begin..begin + length);
            return;
        }
        while length > 0 {
            let offset = begin % PART;
            let here = length.min(PART - offset);
            self.part((begin / PART) as usize).add_run(offset as usize, (offset + here) as usize);
            begin += here;
            length -= here;
        }
    }

    /// Hands over what `tally` still holds. Counts are complete only after this was called for every tally.
    pub fn settle(&self, tally: &mut Tally) {
        for (part, length) in tally.lengths.iter_mut().enumerate().filter(|(_, length)| **length > 0) {
            self.part(part).add(&tally.batches[part][..*length]);
            *length = 0;
        }
    }

    /// Calls `look` with the counts of the blocks that bitmap `index` describes.
    pub fn with_bitmap<T>(&self, index: u64, look: impl FnOnce(BitmapCounts<'_>) -> T) -> T {
        let (part, within) = (index / 16, (index % 16) as usize);
        match usize::try_from(part).ok().filter(|part| *part < self.parts.len()) {
            Some(part) => look(self.part(part).bitmap(within)),
            None => look(BitmapCounts::Zero),
        }
    }

    /// Whether any of the blocks `begin..end` was counted.
    pub fn any(&self, begin: u64, end: u64) -> bool {
        let end = end.min(self.nr_blocks);
        let mut at = begin;
        while at < end {
            let bitmap = at / ENTRIES_PER_BITMAP;
            let next = ((bitmap + 1) * ENTRIES_PER_BITMAP).min(end);
            let first = bitmap * ENTRIES_PER_BITMAP;
            if self.with_bitmap(bitmap, |counts| counts.any((at - first) as usize, (next - first) as usize)) {
                return true;
            }
            at = next;
        }
        false
    }

    /// The count of a block; 0 past the end.
    pub fn get(&self, block: u64) -> u32 {
        self.with_bitmap(block / ENTRIES_PER_BITMAP, |counts| counts.get((block % ENTRIES_PER_BITMAP) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn counts_equal_a_map(
            runs in prop::collection::vec((0u64..600_000, 1u64..400, 1usize..6), 1..60),
            hot in 0u64..600_000, times in 0usize..700,
        ) {
            let counts = Counts::new(600_400);
            let mut map: HashMap<u64, u32> = HashMap::new();
            let mut tallies = [Tally::default(), Tally::default()];
            for (index, (begin, length, repeat)) in runs.iter().enumerate() {
                for _ in 0..*repeat {
                    counts.add_run(&mut tallies[index % 2], *begin, *length);
                    (*begin..begin + length).for_each(|block| *map.entry(block).or_default() += 1);
                }
            }
            for _ in 0..times {
                counts.add(&mut tallies[0], [hot]);
                *map.entry(hot).or_default() += 1;
            }
            tallies.iter_mut().for_each(|tally| counts.settle(tally));
            for (block, count) in &map {
                prop_assert_eq!(counts.get(*block), *count);
            }
            for (begin, length, _) in &runs {
                prop_assert!(counts.any(*begin, begin + 1) && counts.any(begin + length - 1, u64::MAX));
                prop_assert_eq!(counts.any(begin + length, begin + length + 3),
                    (begin + length..begin + length + 3).any(|block| map.contains_key(&block)));
            }
            let mut listed: HashMap<u64, u32> = HashMap::new();
            for bitmap in 0..600_400u64.div_ceil(ENTRIES_PER_BITMAP) {
                let first = bitmap * ENTRIES_PER_BITMAP;
                counts.with_bitmap(bitmap, |counts| counts.each(&mut |entry, count| {
                    listed.insert(first + entry as u64, count);
                }));
            }
            prop_assert_eq!(&listed, &map);
            let sum: u64 = (0..600_400).map(|block| u64::from(counts.get(block))).sum();
            prop_assert_eq!(sum, map.values().map(|count| u64::from(*count)).sum::<u64>());
        }
    }

    #[test]
    fn runs_cross_parts() {
        let counts = Counts::new(3 * PART);
        let mut tally = Tally::default();
        for _ in 0..5 {
            counts.add_run(&mut tally, PART - 20, PART + 40);
        }
        for (block, count) in [(PART - 21, 0), (PART - 20, 5), (PART, 5), (2 * PART + 19, 5), (2 * PART + 20, 0)] {
            assert_eq!(counts.get(block), count, "block {block}");
        }
        assert_eq!(counts.get(u64::MAX), 0);
    }
}
