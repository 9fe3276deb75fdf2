//! Makes the blocks of space maps from reference counts (docs/format.md 3).
//!
//! Knows how counts are laid out; does not decide where blocks go nor when they are written.

use super::counts::BitmapCounts;
use crate::base::BlockNr;
use crate::format::block::{self, BLOCK_SIZE, Block, BlockKind};
use crate::format::space_map::{self, BITMAP_HEADER, ENTRIES_PER_BITMAP, IndexEntry, SpaceMapRoot};
use std::mem::size_of;
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

const LOW_BITS: u64 = 0x5555_5555_5555_5555;
/// Bytes of a value of a tree of counts.
pub const COUNT_SIZE: usize = 4;
/// Bytes of a value of the data space map's index.
pub const INDEX_ENTRY_SIZE: usize = size_of::<IndexEntry>();

/// What the index needs to know of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapSummary {
    /// Entries with a count above 0.
    pub allocated: u32,
    /// The first entry with count 0; 16320 where there is none.
    pub first_free: u32,
}

impl BitmapSummary {
    /// The index entry of the bitmap in block `location`, of whose entries `nr_entries` stand for blocks.
    pub fn index_entry(&self, location: BlockNr, nr_entries: u32) -> IndexEntry {
        IndexEntry {
            blocknr: U64::new(location.0),
            nr_free: U32::new(ENTRIES_PER_BITMAP as u32 - self.allocated),
            none_free_before: U32::new(self.first_free.min(nr_entries)),
        }
    }
}

/// Entries of bitmap `index` that stand for blocks, in a space map of `nr_blocks`.
pub fn entries_in_bitmap(index: u64, nr_blocks: u64) -> u32 {
    nr_blocks.saturating_sub(index.saturating_mul(ENTRIES_PER_BITMAP)).min(ENTRIES_PER_BITMAP) as u32
}

/// Fills `block` with the counts of a bitmap, not sealed yet, and hands every count above 2 to `overflow` with its
/// entry. Counts past the end of the space map are 0.
pub fn fill_bitmap(counts: BitmapCounts<'_>, block: &mut Block, overflow: &mut dyn FnMut(u32, u32)) -> BitmapSummary {
    block.fill(0);
    match counts {
        BitmapCounts::Zero => BitmapSummary { allocated: 0, first_free: 0 },
        BitmapCounts::Two(words) => fill_words(words.iter().copied(), block, &mut |entry| overflow(entry, 3)),
        BitmapCounts::Eight(bytes) => fill_wide(&|entry| bytes.get(entry).map(|c| u32::from(*c)), block, overflow),
        BitmapCounts::Wide(counts) => fill_wide(&|entry| counts.get(entry).copied(), block, overflow),
    }
}

/// Words of plain two-bit numbers; `threes` gets the entries with 3.
fn fill_words(words: impl Iterator<Item = u64>, block: &mut Block, threes: &mut dyn FnMut(u32)) -> BitmapSummary {
    let mut summary = BitmapSummary { allocated: 0, first_free: ENTRIES_PER_BITMAP as u32 };
    let (slots, _) = block[BITMAP_HEADER..].as_chunks_mut::<8>();
    for (index, (slot, word)) in slots.iter_mut().zip(words.chain(std::iter::repeat(0))).enumerate() {
        *slot = space_map::swap_bits(word).to_le_bytes();
        let used = (word | word >> 1) & LOW_BITS;
        summary.allocated += used.count_ones();
        if used != LOW_BITS && summary.first_free == ENTRIES_PER_BITMAP as u32 {
            summary.first_free = index as u32 * 32 + (used ^ LOW_BITS).trailing_zeros() / 2;
        }
        let mut high = word & (word >> 1) & LOW_BITS;
        while high != 0 {
            threes(index as u32 * 32 + high.trailing_zeros() / 2);
            high &= high - 1;
        }
    }
    summary
}

fn fill_wide(
    count: &dyn Fn(usize) -> Option<u32>,
    block: &mut Block,
    overflow: &mut dyn FnMut(u32, u32),
) -> BitmapSummary {
    let word = |index: usize| {
        (0..32).fold(0, |word, bit| {
            let count = count(index * 32 + bit).unwrap_or(0).min(3);
            word | u64::from(count) << (2 * bit)
        })
    };
    let words = (0..ENTRIES_PER_BITMAP as usize / 32).map(word);
    fill_words(words, block, &mut |entry| overflow(entry, count(entry as usize).unwrap_or(0)))
}

/// What the index needs to know of a bitmap that is there.
pub fn summary(block: &Block) -> BitmapSummary {
    let mut summary = BitmapSummary { allocated: 0, first_free: ENTRIES_PER_BITMAP as u32 };
    for (index, word) in (0..).zip(space_map::bitmap_words(block)) {
        let used = (word.get() | word.get() >> 1) & LOW_BITS;
        summary.allocated += used.count_ones();
        if used != LOW_BITS && summary.first_free == ENTRIES_PER_BITMAP as u32 {
            summary.first_free = index * 32 + (used ^ LOW_BITS).trailing_zeros() / 2;
        }
    }
    summary
}

/// Seals a filled bitmap for its place.
pub fn seal_bitmap(block: &mut Block, location: BlockNr) {
    block::seal(block, BlockKind::Bitmap, location);
}

/// The index block of a metadata space map with these entries, at most 255.
pub fn index_block(entries: &[IndexEntry], location: BlockNr) -> Box<Block> {
    let mut block = Box::new([0; BLOCK_SIZE]);
    let bytes = entries.as_bytes();
    block[BITMAP_HEADER..BITMAP_HEADER + bytes.len()].copy_from_slice(bytes);
    block::seal(&mut block, BlockKind::Index, location);
    block
}

/// A space map's root as it goes into the superblock.
pub fn root(nr_blocks: u64, nr_allocated: u64, bitmap_root: BlockNr, ref_count_root: BlockNr) -> SpaceMapRoot {
    SpaceMapRoot {
        nr_blocks: U64::new(nr_blocks),
        nr_allocated: U64::new(nr_allocated),
        bitmap_root: U64::new(bitmap_root.0),
        ref_count_root: U64::new(ref_count_root.0),
        unused: [0; 96],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(counts: &[u32], given: BitmapCounts<'_>) {
        let (mut block, mut overflow) = ([0xff; BLOCK_SIZE], vec![]);
        let summary = fill_bitmap(given, &mut block, &mut |entry, count| overflow.push((entry, count)));
        assert_eq!(super::summary(&block), summary);
        let get = |entry: usize| counts.get(entry).copied().unwrap_or(0);
        let all = || 0..ENTRIES_PER_BITMAP as usize;
        for entry in all() {
            assert_eq!(u32::from(space_map::bitmap_count(&block, entry)), get(entry).min(3), "entry {entry}");
        }
        assert_eq!(block[..BITMAP_HEADER], [0; BITMAP_HEADER]);
        assert_eq!(summary.allocated as usize, all().filter(|entry| get(*entry) > 0).count());
        assert_eq!(summary.first_free as usize, all().find(|entry| get(*entry) == 0).unwrap_or(16_320));
        let above: Vec<_> = all().filter(|entry| get(*entry) > 2).map(|entry| (entry as u32, get(entry))).collect();
        assert_eq!(overflow, above);
    }

    /// The same counts in every form that holds them.
    fn check_all_forms(counts: &[u32]) {
        check(counts, BitmapCounts::Wide(counts));
        let full: Vec<u32> = counts.iter().copied().chain(std::iter::repeat(0)).take(16_320).collect();
        let bytes: Vec<u8> = full.iter().map(|count| *count as u8).collect();
        if full.iter().all(|count| *count < 256) {
            check(&full, BitmapCounts::Eight(&bytes));
        }
        if full.iter().all(|count| *count < 4) {
            let word = |entries: &[u32]| entries.iter().rev().fold(0, |word, count| word << 2 | u64::from(*count));
            let words: Vec<u64> = full.chunks(32).map(word).collect();
            check(&full, BitmapCounts::Two(&words));
        }
    }

    #[test]
    fn full_and_empty_bitmaps() {
        check(&[], BitmapCounts::Zero);
        for count in [0, 1, 2, 3, 200, 4_000_000_000] {
            check_all_forms(&vec![count; 16_320]);
            check_all_forms(&vec![count; 100]);
        }
    }

    proptest! {
        #[test]
        fn bitmaps_hold_the_counts(
            counts in prop::collection::vec(prop_oneof![Just(0u32), 0u32..4, 0u32..300], 0..16_320),
            used in 0usize..16_320,
        ) {
            check_all_forms(&counts);
            let narrow: Vec<u32> = counts.iter().enumerate()
                .map(|(entry, count)| if entry < used { 1 + count % 3 } else { count % 4 }).collect();
            check_all_forms(&narrow);
        }
    }

    #[test]
    fn hints_of_the_last_bitmap() {
        let counts = vec![1; 640];
        let mut block = [0; BLOCK_SIZE];
        let summary = fill_bitmap(BitmapCounts::Wide(&counts), &mut block, &mut |_, _| ());
        let entry = summary.index_entry(BlockNr(9), entries_in_bitmap(10, 163_840));
        assert_eq!((entry.nr_free.get(), entry.none_free_before.get()), (15_680, 640));
        assert_eq!(entries_in_bitmap(0, 163_840), 16_320);
        assert_eq!(entries_in_bitmap(11, 163_840), 0);
    }
}
