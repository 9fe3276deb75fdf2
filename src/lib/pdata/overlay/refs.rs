//! Reference counts that change: two bits a block in bitmaps, and a tree for counts of 3 and more, as a space map has
//! them (docs/format.md 3.2, 3.6).

use crate::format::space_map::{self, ENTRIES_PER_BITMAP};
use crate::pdata::counts::BitmapCounts;
use crate::pdata::space_map::ExpectedCounts;
use std::collections::BTreeMap;

const WORDS: usize = (ENTRIES_PER_BITMAP / 32) as usize;
const HELD_WORDS: usize = (ENTRIES_PER_BITMAP / 64) as usize;
const LOW_BITS: u64 = 0x5555_5555_5555_5555;

/// The counts of one bitmap: plain two-bit numbers, the lower entry in the lower bits.
#[derive(Clone, Debug)]
struct Bitmap {
    words: Box<[u64; WORDS]>,
    /// A bit for each block that was freed since the last commit.
    held: Option<Box<[u64; HELD_WORDS]>>,
    nr_used: u32,
    dirty: bool,
}

/// The counts of a device's blocks. Takes 4 KiB per bitmap in which anything is counted.
#[derive(Clone, Debug)]
pub struct RefCounts {
    nr_blocks: u64,
    nr_used: u64,
    bitmaps: Vec<Option<Bitmap>>,
    overflow: BTreeMap<u64, u32>,
    nr_dirty: u64,
}

impl RefCounts {
    /// The counts that were counted for the first `nr_blocks` blocks.
    pub fn of(nr_blocks: u64, counted: &dyn ExpectedCounts) -> RefCounts {
        let mut bitmaps = Vec::new();
        bitmaps.resize_with(space_map::nr_bitmaps(nr_blocks) as usize, || None);
        let mut refs = RefCounts { nr_blocks, nr_used: 0, bitmaps, overflow: BTreeMap::new(), nr_dirty: 0 };
        for index in 0..space_map::nr_bitmaps(nr_blocks) {
            counted.look(index, &mut |counts| {
                if !matches!(counts, BitmapCounts::Zero) {
                    let begin = index * ENTRIES_PER_BITMAP;
                    let end = (begin + ENTRIES_PER_BITMAP).min(nr_blocks);
                    (begin..end).for_each(|block| refs.put(block, counts.get((block - begin) as usize)));
                }
            });
        }
        refs.commit();
        refs
    }

    /// Blocks that are counted.
    pub fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    /// Blocks with a count above 0.
    pub fn nr_used(&self) -> u64 {
        self.nr_used
    }

    /// Counts of 3 and more, which are not in the bitmaps. Looks at all of them.
    pub fn nr_high(&self) -> u64 {
        let words = self.bitmaps.iter().flatten().flat_map(|bitmap| bitmap.words.iter());
        words.map(|word| u64::from((word & word >> 1 & LOW_BITS).count_ones())).sum()
    }

    /// Bitmaps that changed since the last commit.
    pub fn nr_dirty(&self) -> u64 {
        self.nr_dirty
    }

    /// Whether the bitmap of `block` has changed since the last commit.
    pub fn is_dirty(&self, block: u64) -> bool {
        self.bitmap(block).is_some_and(|bitmap| bitmap.dirty)
    }

    fn bitmap(&self, block: u64) -> Option<&Bitmap> {
        let index = usize::try_from(block / ENTRIES_PER_BITMAP).ok()?;
        self.bitmaps.get(index)?.as_ref()
    }

    /// The count of a block; 0 past the end.
    #[inline]
    pub fn get(&self, block: u64) -> u32 {
        let Some(bitmap) = self.bitmap(block) else { return 0 };
        let entry = (block % ENTRIES_PER_BITMAP) as usize;
        match bitmap.words[entry / 32] >> (2 * (entry % 32)) & 3 {
            3 => self.overflow.get(&block).copied().unwrap_or(3),
            few => few as u32,
        }
    }

    /// Sets the count of a block, which is below [`RefCounts::nr_blocks`].
    fn put(&mut self, block: u64, count: u32) {
        let (index, entry) = ((block / ENTRIES_PER_BITMAP) as usize, (block % ENTRIES_PER_BITMAP) as usize);
        let Some(slot) = self.bitmaps.get_mut(index).filter(|_| block < self.nr_blocks) else { return };
        let bitmap =
            slot.get_or_insert_with(|| Bitmap { words: Box::new([0; WORDS]), held: None, nr_used: 0, dirty: false });
        let (word, shift) = (&mut bitmap.words[entry / 32], 2 * (entry % 32));
        let old = *word >> shift & 3;
        *word = (*word & !(3 << shift)) | u64::from(count.min(3)) << shift;
        if !bitmap.dirty {
            bitmap.dirty = true;
            self.nr_dirty += 1;
        }
        match (old, count) {
            (0, 0) => {}
            (0, _) => {
                bitmap.nr_used += 1;
                self.nr_used += 1;
            }
            (_, 0) => {
                bitmap.nr_used -= 1;
                self.nr_used -= 1;
                let held = bitmap.held.get_or_insert_with(|| Box::new([0; HELD_WORDS]));
                held[entry / 64] |= 1 << (entry % 64);
            }
            _ => {}
        }
        if count > 3 {
            self.overflow.insert(block, count);
        } else if old == 3 {
            self.overflow.remove(&block);
        }
    }

    /// Adds a reference; says how many there are.
    pub fn inc(&mut self, block: u64) -> u32 {
        let count = self.get(block).saturating_add(1);
        self.put(block, count);
        count
    }

    /// Takes a reference away; says how many are left.
    #[inline]
    pub fn dec(&mut self, block: u64) -> u32 {
        let count = self.get(block).saturating_sub(1);
        self.put(block, count);
        count
    }

    /// A block that was not in use at the last commit may be used again at once.
    pub fn forget_freed(&mut self, block: u64) {
        let index = (block / ENTRIES_PER_BITMAP) as usize;
        let entry = (block % ENTRIES_PER_BITMAP) as usize;
        let bitmap = self.bitmaps.get_mut(index).and_then(Option::as_mut);
        if let Some(held) = bitmap.and_then(|bitmap| bitmap.held.as_mut()) {
            held[entry / 64] &= !(1 << (entry % 64));
        }
    }

    /// The first block from `from` on that nothing refers to, now and at the last commit.
    pub fn find_free(&self, from: u64) -> Option<u64> {
        let mut block = from;
        while block < self.nr_blocks {
            let next = (block / ENTRIES_PER_BITMAP + 1) * ENTRIES_PER_BITMAP;
            let Some(bitmap) = self.bitmap(block) else { return Some(block) };
            if u64::from(bitmap.nr_used) < ENTRIES_PER_BITMAP
                && let Some(entry) = bitmap.first_free((block % ENTRIES_PER_BITMAP) as usize)
            {
                let found = next - ENTRIES_PER_BITMAP + entry as u64;
                return (found < self.nr_blocks).then_some(found);
            }
            block = next;
        }
        None
    }

    /// Makes the state the committed one; returns how many bitmaps have changed.
    pub fn commit(&mut self) -> u64 {
        if self.nr_dirty > 0 {
            for bitmap in self.bitmaps.iter_mut().flatten().filter(|bitmap| bitmap.dirty) {
                (bitmap.dirty, bitmap.held) = (false, None);
            }
        }
        std::mem::take(&mut self.nr_dirty)
    }
}

impl Bitmap {
    fn first_free(&self, from: usize) -> Option<usize> {
        let mut entry = from;
        while entry < ENTRIES_PER_BITMAP as usize {
            let word = self.words[entry / 32];
            let mut free = !(word | word >> 1) & LOW_BITS & (u64::MAX << (2 * (entry % 32)));
            while free != 0 {
                let found = entry / 32 * 32 + free.trailing_zeros() as usize / 2;
                if self.held.as_ref().is_none_or(|held| held[found / 64] >> (found % 64) & 1 == 0) {
                    return Some(found);
                }
                free &= free - 1;
            }
            entry = (entry / 32 + 1) * 32;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Random;
    use crate::pdata::counts::Counts;
    use std::collections::BTreeMap;

    #[test]
    fn counts_follow_a_plain_map() {
        let mut refs = RefCounts::of(40_000, &Counts::new(40_000));
        let (mut map, mut random) = (BTreeMap::new(), Random::new(3));
        for _ in 0..20_000 {
            let block = random.below(40_000) / (1 + random.below(400));
            let count: &mut u32 = map.entry(block).or_default();
            if random.percent(60) {
                *count += 1;
                assert_eq!(refs.inc(block), *count);
            } else if *count > 0 {
                *count -= 1;
                assert_eq!(refs.dec(block), *count);
            }
        }
        assert!(map.iter().all(|(block, count)| refs.get(*block) == *count));
        assert!(map.values().any(|count| *count > 3));
        assert_eq!(refs.nr_used(), map.values().filter(|count| **count > 0).count() as u64);
    }

    #[test]
    fn what_was_freed_is_free_after_the_commit() {
        let mut refs = RefCounts::of(100, &Counts::new(100));
        (0..50).for_each(|block| assert_eq!(refs.inc(block), 1));
        assert_eq!((refs.find_free(0), refs.commit(), refs.nr_dirty()), (Some(50), 1, 0));
        refs.dec(7);
        assert_eq!(refs.find_free(0), Some(50));
        refs.commit();
        assert_eq!((refs.find_free(0), refs.find_free(8), refs.find_free(99)), (Some(7), Some(50), Some(99)));
        (50..100).for_each(|block| assert_eq!(refs.inc(block), 1));
        assert_eq!((refs.find_free(8), refs.find_free(100)), (None, None));
    }
}
