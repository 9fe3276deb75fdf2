//! Changes that take references away: what they cost follows what becomes free, not what there is.
//!
//! They begin with the counts that are stored, which have to be right, and change only the bitmaps and the leaves of the
//! trees of counts that have to do with the blocks in question. The metadata space map is an exception, for it is
//! small: all of it is read, two bits a block.

use super::old_maps::OldMap;
use super::{CommitError, SealedTransaction, SpaceMapRoots, Transaction};
use crate::base::{BlockNr, KeyRange};
use crate::block::BlockSource;
use crate::format::block::{self, Block, BlockKind};
use crate::format::space_map::{self, ENTRIES_PER_BITMAP, IndexEntry, SpaceMapRoot};
use crate::pdata::counts::Counts;
use crate::pdata::edit::{self, Change};
use crate::pdata::ledger::Ledger;
use crate::pdata::space_map_write::{self, COUNT_SIZE, INDEX_ENTRY_SIZE};
use std::collections::VecDeque;
use zerocopy::FromBytes;

impl<'a> Transaction<'a> {
    /// Begins with the state that `committed` leads to, and with the counts that its space maps have.
    ///
    /// # Errors
    /// [`CommitError::Unsound`] where the metadata space map cannot be read whole, or contradicts itself.
    pub fn begin_stored(source: &'a dyn BlockSource, committed: &SpaceMapRoots) -> Result<Self, CommitError> {
        let root = &committed.metadata;
        let nr_blocks = root.nr_blocks.get().min(source.nr_blocks()).min(space_map::MAX_METADATA_BLOCKS);
        let mut counts = vec![0; nr_blocks as usize];
        let map = OldMap::load_metadata(source, root, &counts, nr_blocks);
        if map.index_nodes.is_none() || map.overflow_nodes.is_none() {
            return Err(unsound(map.index_root, "the metadata space map can't be read"));
        }
        let mut free = vec![0; nr_blocks.div_ceil(64) as usize];
        let mut nr_high = 0;
        for (bitmap, entry) in map.entries.iter().enumerate() {
            let content = read_bitmap(source, BlockNr(entry.blocknr.get()))?;
            nr_high += load_bitmap(&content, bitmap * ENTRIES_PER_BITMAP as usize, &mut counts, &mut free);
        }
        for (key, count) in &map.overflow {
            if let Some(slot) =
                usize::try_from(*key).ok().and_then(|key| counts.get_mut(key)).filter(|slot| **slot == 3)
            {
                (*slot, nr_high) = (*count, nr_high - 1);
            }
        }
        // Its own blocks are counted again when it is sealed.
        for block in map.blocks() {
            match counts.get_mut(block.0 as usize) {
                Some(count @ 1) => *count = 0,
                _ => return Err(unsound(block, "a block of the metadata space map is not used once")),
            }
        }
        if nr_high != 0 {
            return Err(unsound(map.overflow_root, "counts are missing in the tree of metadata counts"));
        }
        Ok(Transaction::with(source, (OldMap::default(), map), nr_blocks, free, counts))
    }

    /// Lends the references as a ledger from which a walk takes them away.
    pub fn take_away<T>(&mut self, walk: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledger = Ledger::taking_away(std::mem::take(&mut self.counts));
        let result = walk(&mut ledger);
        self.counts = ledger.into_counts();
        result
    }

    /// Completes a change that began with the stored counts, and in which data blocks lost the references in `lost`.
    ///
    /// # Errors
    /// As [`Transaction::seal`]; [`CommitError::Unsound`] where the data space map can't be read where it has to be, or
    /// has fewer references than are lost.
    pub fn seal_without(mut self, root: &SpaceMapRoot, lost: &Counts) -> Result<SealedTransaction, CommitError> {
        let source = self.source;
        let mut high = HighCounts { lost, ahead: VecDeque::new(), next: 0, lowered: Vec::new() };
        let overflow = edit::replace(source, BlockNr(root.ref_count_root.get()), &mut high, &mut self)?;
        let mut bitmaps = Bitmaps { source, lost, lowered: &high.lowered, nr_blocks: root.nr_blocks.get(), freed: 0 };
        let index = edit::replace(source, BlockNr(root.bitmap_root.get()), &mut bitmaps, &mut self)?;
        let allocated = root.nr_allocated.get().saturating_sub(bitmaps.freed);
        let data = space_map_write::root(root.nr_blocks.get(), allocated, index, overflow);
        self.seal_metadata(Some(data))
    }
}

fn unsound(block: BlockNr, detail: &str) -> CommitError {
    CommitError::Unsound { block, detail: detail.into() }
}

fn read_bitmap(source: &dyn BlockSource, location: BlockNr) -> Result<Box<Block>, CommitError> {
    let content = source.read(location).map_err(|error| unsound(location, &error.to_string()))?;
    match block::verify(&content, BlockKind::Bitmap, location) {
        Ok(()) => Ok(content),
        Err(fault) => Err(unsound(location, &fault.to_string())),
    }
}

/// Takes the counts of a bitmap whose first entry stands for block `begin`; returns how many are 3.
fn load_bitmap(content: &Block, begin: usize, counts: &mut [u32], free: &mut [u64]) -> usize {
    let mut high = 0;
    for (index, word) in space_map::bitmap_words(content).iter().enumerate() {
        let word = space_map::swap_bits(word.get());
        let first = begin + index * 32;
        for (entry, slot) in counts.iter_mut().skip(first).take(32).enumerate() {
            *slot = (word >> (2 * entry) & 3) as u32;
            high += usize::from(*slot == 3);
            let block = first + entry;
            if *slot == 0 && block != 0 {
                free[block / 64] |= 1 << (block % 64);
            }
        }
    }
    high
}

/// Lowers counts of 3 and more.
struct HighCounts<'a> {
    lost: &'a Counts,
    /// Entries of a bitmap that lose references, and how many: those that are still to come.
    ahead: VecDeque<(u64, u32)>,
    /// The bitmap after that one.
    next: u64,
    /// Blocks that the tree has, and what is left of their counts; ascending.
    lowered: Vec<(u64, u32)>,
}

impl Change<COUNT_SIZE> for HighCounts<'_> {
    fn concerns(&mut self, keys: KeyRange) -> bool {
        self.lost.any(keys.begin, keys.end.unwrap_or(u64::MAX))
    }

    fn change(
        &mut self,
        key: u64,
        value: &[u8; COUNT_SIZE],
        _: &mut Transaction<'_>,
    ) -> Result<Option<[u8; COUNT_SIZE]>, CommitError> {
        let lost = self.lost_at(key);
        if lost == 0 {
            return Ok(Some(*value));
        }
        let left = u32::from_le_bytes(*value).checked_sub(lost).ok_or_else(|| counted_low(key))?;
        self.lowered.push((key, left));
        Ok((left > 2).then(|| left.to_le_bytes()))
    }
}

impl HighCounts<'_> {
    /// The references that a block loses. Blocks are asked for in ascending order.
    fn lost_at(&mut self, block: u64) -> u32 {
        let bitmap = block / ENTRIES_PER_BITMAP;
        if bitmap >= self.next {
            self.next = bitmap + 1;
            self.ahead.clear();
            let ahead = &mut self.ahead;
            let begin = bitmap * ENTRIES_PER_BITMAP;
            self.lost.with_bitmap(bitmap, |lost| {
                lost.each(&mut |entry, lost| ahead.push_back((begin + entry as u64, lost)));
            });
        }
        while self.ahead.front().is_some_and(|(at, _)| *at < block) {
            self.ahead.pop_front();
        }
        self.ahead.front().filter(|(at, _)| *at == block).map_or(0, |(_, lost)| *lost)
    }
}

fn counted_low(data_block: u64) -> CommitError {
    CommitError::CountedLow { data_block }
}

/// Lowers counts in bitmaps, and puts these in other places.
struct Bitmaps<'a> {
    source: &'a dyn BlockSource,
    lost: &'a Counts,
    lowered: &'a [(u64, u32)],
    nr_blocks: u64,
    /// Blocks whose count became 0.
    freed: u64,
}

impl Change<INDEX_ENTRY_SIZE> for Bitmaps<'_> {
    fn concerns(&mut self, keys: KeyRange) -> bool {
        let end = keys.end.map_or(u64::MAX, |end| end.saturating_mul(ENTRIES_PER_BITMAP));
        self.lost.any(keys.begin.saturating_mul(ENTRIES_PER_BITMAP), end)
    }

    fn change(
        &mut self,
        key: u64,
        value: &[u8; INDEX_ENTRY_SIZE],
        transaction: &mut Transaction<'_>,
    ) -> Result<Option<[u8; INDEX_ENTRY_SIZE]>, CommitError> {
        let begin = key.saturating_mul(ENTRIES_PER_BITMAP);
        if !self.lost.any(begin, begin.saturating_add(ENTRIES_PER_BITMAP)) {
            return Ok(Some(*value));
        }
        let Ok(entry) = IndexEntry::read_from_bytes(value) else { unreachable!("the size is that of an entry") };
        let old = BlockNr(entry.blocknr.get());
        let mut content = read_bitmap(self.source, old)?;
        let mut result = Ok(());
        self.lost.with_bitmap(key, |lost| {
            lost.each(&mut |entry, lost| {
                if result.is_ok() {
                    result = self.lower(&mut content, begin, entry, lost);
                }
            });
        });
        result?;
        transaction.note_freed_in(key, old, &content);
        transaction.unrefer(old);
        let new = transaction.add(|location| {
            space_map_write::seal_bitmap(&mut content, location);
            content.clone()
        });
        let entries = space_map_write::entries_in_bitmap(key, self.nr_blocks);
        let entry = space_map_write::summary(&content).index_entry(new, entries);
        Ok(Some(zerocopy::transmute!(entry)))
    }
}

impl Bitmaps<'_> {
    fn lower(&mut self, content: &mut Block, begin: u64, entry: usize, lost: u32) -> Result<(), CommitError> {
        let block = begin + entry as u64;
        let left = match space_map::bitmap_count(content, entry) {
            3 => {
                // Both come in ascending order.
                let skipped = self.lowered.iter().take_while(|(lowered, _)| *lowered < block).count();
                self.lowered = self.lowered.get(skipped..).unwrap_or_default();
                self.lowered.first().filter(|(lowered, _)| *lowered == block).map(|(_, left)| *left)
            }
            count => u32::from(count).checked_sub(lost),
        };
        let left = left.ok_or_else(|| counted_low(block))?;
        self.freed += u64::from(left == 0);
        space_map::set_bitmap_count(content, entry, left.min(3) as u8);
        Ok(())
    }
}
