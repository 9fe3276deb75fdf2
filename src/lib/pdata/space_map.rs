//! Reading space maps, and holding them against counts that were counted.
//!
//! Loading walks the maps' own trees, so that their blocks are in the ledger; comparing comes when every reference
//! has been counted.

use super::counts::{BitmapCounts, Counts};
use super::forest::{Forest, Root, Step};
use super::ledger::{BlockUse, Ledger, Referred};
use super::walk::{NoVisitor, TreeKind, Walker, block_finding};
use crate::base::{Area, BlockNr, Code, Finding, Findings, KeyRange, Place};
use crate::block::BlockSource;
use crate::format::block::{self, BlockKind};
use crate::format::node::Node;
use crate::format::space_map::{self, ENTRIES_PER_BITMAP, IndexEntry, MAX_METADATA_BLOCKS, SpaceMapRoot};
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;
use std::ops::ControlFlow;
use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::U64;

/// Bitmaps that one task compares.
const TASK_BITMAPS: usize = 16;
const LOW_BITS: u64 = 0x5555_5555_5555_5555;

/// Counts of references, from wherever they were counted.
pub trait ExpectedCounts: Sync {
    /// Calls `look` with the counts of the blocks that bitmap `index` describes.
    fn look(&self, index: u64, look: &mut dyn FnMut(BitmapCounts<'_>));
}

impl ExpectedCounts for Counts {
    fn look(&self, index: u64, look: &mut dyn FnMut(BitmapCounts<'_>)) {
        self.with_bitmap(index, look);
    }
}

impl ExpectedCounts for Ledger {
    fn look(&self, index: u64, look: &mut dyn FnMut(BitmapCounts<'_>)) {
        look(self.bitmap(index));
    }
}

/// A space map whose own blocks have been walked.
#[derive(Debug)]
pub struct SpaceMap {
    area: Area,
    /// Blocks that it describes, as far as there can be bitmaps for them.
    pub(super) nr_blocks: u64,
    stored_allocated: u64,
    /// Bitmap number and index entry, in order; only bitmaps that can be looked up.
    pub(super) entries: Vec<(u64, IndexEntry)>,
    index_complete: bool,
    pub(super) counts: Forest,
}

/// What a comparison has found, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceMapTotals {
    /// Blocks that the map describes.
    pub nr_blocks: u64,
    /// Blocks whose stored count is not 0.
    pub allocated: u64,
    /// Blocks that are counted higher than they are used. Meaningless where `complete` is not set.
    pub leaked: u64,
    /// Blocks that are counted lower than they are used.
    pub counted_low: u64,
    /// Whether every bitmap could be read.
    pub complete: bool,
}

impl SpaceMap {
    /// Loads the data space map.
    pub fn load_data(walker: &mut Walker<'_>, root: &SpaceMapRoot) -> SpaceMap {
        let area = Area::DataSpaceMap;
        let kind = TreeKind { value_size: 16, block_use: BlockUse::DataIndex, leaves_filled: true };
        let index_root = BlockNr(root.bitmap_root.get());
        let roots = vec![Root { block: index_root, area, device: None }];
        let index = walker.walk(kind, roots, &NoVisitor);
        let mut entries = Vec::new();
        let read = index.entries(walker.source, index_root, &mut |_, key, value| {
            if let Ok(entry) = IndexEntry::read_from_bytes(value) {
                entries.push((key, entry));
            }
        });
        if let Err((block, error)) = read {
            let place = Place::block(area, block);
            walker.findings.push(Finding::with(Code::BlockUnreadable, place, error.to_string()));
        }
        let whole = index.is_whole();
        let nr_blocks = clip(walker, area, root.nr_blocks.get(), walker.ledger.nr_blocks());
        SpaceMap::finish(walker, area, nr_blocks, root, entries, whole)
    }

    /// Loads the metadata space map.
    pub fn load_metadata(walker: &mut Walker<'_>, root: &SpaceMapRoot) -> SpaceMap {
        let area = Area::MetadataSpaceMap;
        let index_block = BlockNr(root.bitmap_root.get());
        let nr_blocks = clip(walker, area, root.nr_blocks.get(), MAX_METADATA_BLOCKS / ENTRIES_PER_BITMAP);
        let place = Place::block(area, index_block);
        let mut entries = Vec::new();
        let mut whole = false;
        match walker.ledger.refer(index_block, BlockUse::MetadataIndex) {
            Referred::First => match walker.source.read(index_block) {
                Err(error) => walker.findings.push(Finding::with(Code::BlockUnreadable, place, error.to_string())),
                Ok(content) => match block::verify(&content, BlockKind::Index, index_block) {
                    Err(fault) => walker.findings.push(block_finding(fault, place)),
                    Ok(()) => {
                        let bitmaps = space_map::nr_bitmaps(nr_blocks) as usize;
                        let found = space_map::index_entries(&content, bitmaps);
                        entries.extend(found.iter().enumerate().map(|(at, entry)| (at as u64, *entry)));
                        whole = true;
                    }
                },
            },
            Referred::Zero => walker.findings.push(Finding::new(Code::BlockNone, place)),
            Referred::OutOfRange => walker.findings.push(Finding::new(Code::BlockOutOfRange, place)),
            Referred::Again | Referred::Conflict(_) | Referred::Uncounted => {
                walker.findings.push(Finding::new(Code::BlockSharedByKinds, place));
            }
        }
        SpaceMap::finish(walker, area, nr_blocks, root, entries, whole)
    }

    fn finish(
        walker: &mut Walker<'_>,
        area: Area,
        nr_blocks: u64,
        root: &SpaceMapRoot,
        mut entries: Vec<(u64, IndexEntry)>,
        index_whole: bool,
    ) -> SpaceMap {
        let bitmaps = space_map::nr_bitmaps(nr_blocks);
        let dense = entries.iter().enumerate().all(|(at, (key, _))| *key == at as u64);
        if index_whole && !(dense && entries.len() as u64 == bitmaps) {
            let detail = format!("{} entries for {bitmaps} bitmaps", entries.len());
            walker.findings.push(Finding::with(Code::SpaceMapIndexKeys, Place::area(area), detail));
        }
        let (bitmap_use, counts_use) = match area {
            Area::DataSpaceMap => (BlockUse::DataBitmap, BlockUse::DataCounts),
            _ => (BlockUse::MetadataBitmap, BlockUse::MetadataCounts),
        };
        entries.retain(|(key, entry)| *key < bitmaps && refer_bitmap(walker, area, bitmap_use, *key, entry));
        let kind = TreeKind { value_size: 4, block_use: counts_use, leaves_filled: true };
        let roots = vec![Root { block: BlockNr(root.ref_count_root.get()), area, device: None }];
        let counts = walker.walk(kind, roots, &NoVisitor);
        let index_complete = entries.len() as u64 == bitmaps;
        SpaceMap { area, nr_blocks, stored_allocated: root.nr_allocated.get(), entries, index_complete, counts }
    }

    /// Whether all its own blocks but the bitmaps could be read.
    pub fn is_whole(&self) -> bool {
        self.index_complete && self.counts.is_whole()
    }

    /// Compares the map with the counts in `expected`.
    ///
    /// `judge_leaks` is false where references may be missing from `expected` because trees are damaged: then
    /// counts that are too high are not called leaks.
    pub fn compare(
        &self,
        source: &dyn BlockSource,
        expected: &dyn ExpectedCounts,
        judge_leaks: bool,
        findings: &mut Findings,
    ) -> SpaceMapTotals {
        let overflow = OverflowLeaves::new(self, source);
        let task = |chunk: &[(u64, IndexEntry)]| {
            let mut part = Comparison::new(self, judge_leaks, overflow.whole);
            part.compare_bitmaps(source, expected, chunk, &overflow);
            part
        };
        let parts: Vec<Comparison<'_>> = if self.entries.len() <= 4 * TASK_BITMAPS {
            self.entries.chunks(TASK_BITMAPS).map(task).collect()
        } else {
            self.entries.par_chunks(TASK_BITMAPS).map(task).collect()
        };
        let mut totals =
            SpaceMapTotals { nr_blocks: self.nr_blocks, complete: self.index_complete, ..Default::default() };
        for part in parts {
            totals.allocated += part.totals.allocated;
            totals.leaked += part.totals.leaked;
            totals.counted_low += part.totals.counted_low;
            totals.complete &= part.totals.complete;
            findings.append(part.findings);
        }
        overflow.judge_end(self, source, findings);
        if totals.complete && totals.allocated != self.stored_allocated {
            let detail = format!("says {}, the bitmaps give {}", self.stored_allocated, totals.allocated);
            findings.push(Finding::with(Code::SpaceMapAllocated, Place::area(self.area), detail));
        }
        totals
    }
}

/// The blocks that can have bitmaps, where at most `bitmaps` are possible.
fn clip(walker: &mut Walker<'_>, area: Area, nr_blocks: u64, bitmaps: u64) -> u64 {
    let most = bitmaps.saturating_mul(ENTRIES_PER_BITMAP);
    if nr_blocks > most {
        let detail = format!("says {nr_blocks} blocks, at most {most} are possible");
        walker.findings.push(Finding::with(Code::SpaceMapSize, Place::area(area), detail));
    }
    nr_blocks.min(most)
}

fn refer_bitmap(walker: &mut Walker<'_>, area: Area, bitmap_use: BlockUse, key: u64, entry: &IndexEntry) -> bool {
    let location = BlockNr(entry.blocknr.get());
    let why = match walker.ledger.refer(location, bitmap_use) {
        Referred::First => return true,
        Referred::Again | Referred::Uncounted => "another bitmap is there".to_string(),
        Referred::Zero => "the superblock is there".to_string(),
        Referred::OutOfRange => "past the end of the metadata".to_string(),
        Referred::Conflict(other) => format!("{} is there", other.word()),
    };
    let begin = key.saturating_mul(ENTRIES_PER_BITMAP);
    let keys = Some(KeyRange { begin, end: begin.checked_add(ENTRIES_PER_BITMAP) });
    let detail = format!("bitmap {key} should be in block {location}: {why}");
    walker.findings.push(Finding::with(Code::SpaceMapIndexEntry, Place { keys, ..Place::area(area) }, detail));
    false
}

/// The leaves of a tree of counts, in key order.
struct OverflowLeaves {
    /// Highest key and block of each.
    leaves: Vec<(u64, BlockNr)>,
    whole: bool,
}

impl OverflowLeaves {
    fn new(map: &SpaceMap, source: &dyn BlockSource) -> Self {
        let mut leaves = Vec::new();
        let mut whole = true;
        for root in map.counts.roots() {
            map.counts.traverse(source, root.block, &mut |step| {
                match step {
                    Step::Leaf(block) => {
                        let filled = map.counts.info(block).filter(|info| !info.is_empty());
                        leaves.extend(filled.map(|info| (info.last, block)));
                    }
                    Step::Lost(..) => whole = false,
                }
                ControlFlow::Continue(())
            });
        }
        OverflowLeaves { leaves, whole: whole && map.counts.is_whole() }
    }

    /// Entries with keys in `begin..end`, in order.
    fn range(&self, source: &dyn BlockSource, begin: u64, end: u64) -> Vec<(u64, u32)> {
        let from = self.leaves.partition_point(|(last, _)| *last < begin);
        let to = self.leaves.partition_point(|(last, _)| *last < end);
        let blocks: Vec<BlockNr> = self.leaves.iter().take(to + 1).skip(from).map(|(_, block)| *block).collect();
        let mut entries = Vec::new();
        source.read_many(&blocks, &mut |_, block| {
            if let Ok(block) = block
                && let Ok(node) = Node::trusting_checksum(block, 4)
            {
                let counts = node.value_bytes().as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
                let all = node.keys().iter().map(|key| key.get()).zip(counts);
                entries.extend(all.filter(|(key, _)| (begin..end).contains(key)));
            }
            ControlFlow::Continue(())
        });
        entries
    }

    /// Reports entries past the end of the map.
    fn judge_end(&self, map: &SpaceMap, source: &dyn BlockSource, findings: &mut Findings) {
        let Some((last, _)) = self.leaves.last().filter(|(last, _)| *last >= map.nr_blocks) else { return };
        let beyond = self.range(source, map.nr_blocks, last.saturating_add(1));
        let keys = Some(KeyRange { begin: map.nr_blocks, end: None });
        let detail = format!("{} entries", beyond.len().max(1));
        findings.push(Finding::with(Code::OverflowBeyond, Place { keys, ..Place::area(map.area) }, detail));
    }
}

/// The comparison of some bitmaps.
struct Comparison<'a> {
    map: &'a SpaceMap,
    judge_leaks: bool,
    overflow_whole: bool,
    totals: SpaceMapTotals,
    findings: Findings,
    /// Neighbouring blocks with the same difference: first, end, stored, counted.
    open: Option<(u64, u64, u32, u32)>,
}

impl<'a> Comparison<'a> {
    fn new(map: &'a SpaceMap, judge_leaks: bool, overflow_whole: bool) -> Self {
        let totals = SpaceMapTotals { complete: true, ..SpaceMapTotals::default() };
        Comparison { map, judge_leaks, overflow_whole, totals, findings: Findings::new(), open: None }
    }

    fn compare_bitmaps(
        &mut self,
        source: &dyn BlockSource,
        expected: &dyn ExpectedCounts,
        chunk: &[(u64, IndexEntry)],
        overflow: &OverflowLeaves,
    ) {
        let (Some((first, _)), Some((last, _))) = (chunk.first(), chunk.last()) else { return };
        let entries = overflow.range(source, first * ENTRIES_PER_BITMAP, (last + 1) * ENTRIES_PER_BITMAP);
        let blocks: Vec<BlockNr> = chunk.iter().map(|(_, entry)| BlockNr(entry.blocknr.get())).collect();
        let mut at = chunk.iter();
        source.read_many(&blocks, &mut |location, content| {
            let Some((index, entry)) = at.next() else { return ControlFlow::Break(()) };
            let place = self.bitmap_place(*index, location);
            match content.map(|content| (content, block::verify(content, BlockKind::Bitmap, location))) {
                Err(error) => self.lost(Finding::with(Code::BlockUnreadable, place, error.to_string())),
                Ok((_, Err(fault))) => self.lost(block_finding(fault, place)),
                Ok((content, Ok(()))) => {
                    self.judge_index_entry(content, entry, place);
                    let begin = index * ENTRIES_PER_BITMAP;
                    let from = entries.partition_point(|(key, _)| *key < begin);
                    let to = entries.partition_point(|(key, _)| *key < begin + ENTRIES_PER_BITMAP);
                    expected.look(*index, &mut |counts| {
                        self.compare_one(content, *index, counts, &entries[from..to]);
                    });
                }
            }
            ControlFlow::Continue(())
        });
        self.close();
    }

    fn bitmap_place(&self, index: u64, location: BlockNr) -> Place {
        let begin = index * ENTRIES_PER_BITMAP;
        let end = (begin + ENTRIES_PER_BITMAP).min(self.map.nr_blocks);
        Place { keys: Some(KeyRange { begin, end: Some(end) }), ..Place::block(self.map.area, location) }
    }

    fn lost(&mut self, finding: Finding) {
        self.totals.complete = false;
        self.findings.push(finding);
    }

    fn judge_index_entry(&mut self, content: &crate::format::Block, entry: &IndexEntry, place: Place) {
        let words = space_map::bitmap_words(content);
        let used: u32 = words.iter().map(|word| ((word.get() | word.get() >> 1) & LOW_BITS).count_ones()).sum();
        let free = ENTRIES_PER_BITMAP as u32 - used;
        // The kernel counts all 16320 entries as free at first, also those past the end of the map. Other writers
        // leave them out; that hides no free block.
        let end = place.keys.and_then(|keys| keys.end.map(|end| end - keys.begin)).unwrap_or(ENTRIES_PER_BITMAP);
        let past_end = (ENTRIES_PER_BITMAP - end) as u32;
        if ![free, free.saturating_sub(past_end)].contains(&entry.nr_free.get()) {
            let detail = format!("says {}, the bitmap has {free}", entry.nr_free.get());
            self.findings.push(Finding::with(Code::SpaceMapFree, place, detail));
        }
        let first_free = first_free(words);
        if let Some(free) = first_free.filter(|free| *free < entry.none_free_before.get()) {
            let detail = format!("says {}, entry {free} is free", entry.none_free_before.get());
            self.findings.push(Finding::with(Code::SpaceMapFirstFree, place, detail));
        }
    }

    fn compare_one(
        &mut self,
        content: &crate::format::Block,
        index: u64,
        counts: BitmapCounts<'_>,
        overflow: &[(u64, u32)],
    ) {
        let begin = index * ENTRIES_PER_BITMAP;
        let length = (self.map.nr_blocks - begin).min(ENTRIES_PER_BITMAP) as usize;
        if overflow.is_empty() && same_words(content, counts, length) {
            let words = &space_map::bitmap_words(content)[..length.div_ceil(32)];
            let used = words.iter().map(|word| u64::from(((word.get() | word.get() >> 1) & LOW_BITS).count_ones()));
            self.totals.allocated += used.sum::<u64>();
            return;
        }
        let mut overflow = overflow.iter().copied().peekable();
        for entry in 0..length {
            let block = begin + entry as u64;
            let wanted = counts.get(entry);
            let listed = overflow.next_if(|(key, _)| *key == block).map(|(_, count)| count);
            let stored = self.stored(block, space_map::bitmap_count(content, entry), listed);
            let Some(stored) = stored else { continue };
            self.totals.allocated += u64::from(stored != 0);
            if stored != wanted {
                self.differ(block, stored, wanted);
            }
        }
    }

    /// The stored count, from the bitmap and the entry of the tree of counts; `None` where it is not known.
    fn stored(&mut self, block: u64, bits: u8, listed: Option<u32>) -> Option<u32> {
        let place = Place { keys: Some(KeyRange { begin: block, end: Some(block + 1) }), ..Place::area(self.map.area) };
        match (bits, listed) {
            (3, Some(count)) => {
                if count < 3 {
                    self.findings.push(Finding::with(Code::OverflowSmall, place, format!("{count}")));
                }
                Some(count)
            }
            (3, None) => {
                self.totals.allocated += 1;
                if self.overflow_whole {
                    self.findings.push(Finding::new(Code::OverflowMissing, place));
                }
                None
            }
            (bits, Some(count)) => {
                let detail = format!("{count} there, {bits} in the bitmap");
                self.findings.push(Finding::with(Code::OverflowSurplus, place, detail));
                Some(u32::from(bits))
            }
            (bits, None) => Some(u32::from(bits)),
        }
    }

    fn differ(&mut self, block: u64, stored: u32, wanted: u32) {
        if stored > wanted {
            if !self.judge_leaks {
                return;
            }
            self.totals.leaked += 1;
        } else {
            self.totals.counted_low += 1;
        }
        match &mut self.open {
            Some((_, end, s, w)) if *end == block && (*s, *w) == (stored, wanted) => *end += 1,
            _ => {
                self.close();
                self.open = Some((block, block + 1, stored, wanted));
            }
        }
    }

    /// Makes a finding of the run of blocks that is open.
    fn close(&mut self) {
        let Some((begin, end, stored, wanted)) = self.open.take() else { return };
        let code = match (self.map.area, stored > wanted) {
            (Area::DataSpaceMap, true) => Code::DataLeak,
            (Area::DataSpaceMap, false) => Code::DataCountLow,
            (_, true) => Code::MetadataLeak,
            (_, false) => Code::MetadataCountLow,
        };
        let keys = Some(KeyRange { begin, end: Some(end) });
        let detail = format!("counted {stored}, used {wanted} times");
        self.findings.push(Finding::with(code, Place { keys, ..Place::area(self.map.area) }, detail));
    }
}

/// The first entry whose count is 0.
fn first_free(words: &[U64]) -> Option<u32> {
    let free = |word: &U64| !(word.get() | word.get() >> 1) & LOW_BITS;
    let at = words.iter().position(|word| free(word) != 0)?;
    Some(at as u32 * 32 + free(&words[at]).trailing_zeros() / 2)
}

/// Whether all counts are below 3 and equal, so that nothing more needs to be looked at.
fn same_words(content: &crate::format::Block, counts: BitmapCounts<'_>, length: usize) -> bool {
    let words = &space_map::bitmap_words(content)[..length.div_ceil(32)];
    let plain = words.iter().map(|word| space_map::swap_bits(word.get()));
    let no_three = |word: u64| word & (word >> 1) & LOW_BITS == 0;
    match counts {
        BitmapCounts::Zero => plain.fold(0, |all, word| all | word) == 0,
        BitmapCounts::Two(own) => plain.zip(own).fold(true, |same, (word, own)| same & (word == *own) & no_three(word)),
        BitmapCounts::Eight(_) | BitmapCounts::Wide(_) => false,
    }
}
