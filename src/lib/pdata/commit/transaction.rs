//! Changes metadata in place, so that after a crash at any point it is as it was or as it should be
//! (docs/format.md 8.1).
//!
//! Only blocks are written that are free in the committed state; what is freed is not used again before the commit.

use super::old_maps::{OldMap, free_blocks};
use super::{CommitError, DataCounts, SpaceMapRoots};
use crate::base::BlockNr;
use crate::block::{BlockOutput, BlockSource};
use crate::format::block::{self, BLOCK_SIZE, Block, BlockKind};
use crate::format::space_map::{self, BITMAP_HEADER, ENTRIES_PER_BITMAP, IndexEntry, SpaceMapRoot};
use crate::pdata::build::{NodeBuf, NodeSink, NothingShared, TreeBuilder};
use crate::pdata::counts::BitmapCounts;
use crate::pdata::ledger::Ledger;
use crate::pdata::space_map_write::{self, COUNT_SIZE, INDEX_ENTRY_SIZE};
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

/// A change that is being put together. Nothing is written before [`SealedTransaction::commit`].
///
/// Takes 4 bytes per metadata block, and every block that will be written.
pub struct Transaction<'a> {
    pub(super) source: &'a dyn BlockSource,
    old_data: OldMap,
    old_metadata: OldMap,
    /// Blocks of the metadata space map.
    nr_blocks: u64,
    /// A bit for each block that is free in the committed state and has not been taken.
    free: Vec<u64>,
    /// The first word of `free` that may have a bit.
    cursor: usize,
    nr_free: u64,
    /// Blocks taken, also those that there aren't.
    nr_taken: u64,
    /// References in the new state.
    pub(super) counts: Vec<u32>,
    staged: Vec<(BlockNr, Box<Block>)>,
    /// Data blocks that become free, where that is asked for.
    freed: Option<Vec<Range<u64>>>,
}

impl<'a> Transaction<'a> {
    /// Begins with the state that `committed` leads to.
    ///
    /// `ledger` has every reference to a block, as a whole check has counted them. What it says of the space maps'
    /// own blocks only keeps these from being overwritten: all else in it is taken over as the new state's count.
    pub fn begin(source: &'a dyn BlockSource, committed: SpaceMapRoots, ledger: &Ledger) -> Self {
        Self::begin_counted(source, committed, ledger, true)
    }

    /// The same, where `ledger` has only what stays, and what loses its last reference was not looked at.
    ///
    /// No block is taken whose bitmap can't be read: the committed state may need it.
    pub fn begin_with_survivors(source: &'a dyn BlockSource, committed: SpaceMapRoots, ledger: &Ledger) -> Self {
        Self::begin_counted(source, committed, ledger, false)
    }

    fn begin_counted(source: &'a dyn BlockSource, committed: SpaceMapRoots, ledger: &Ledger, all: bool) -> Self {
        let nr_blocks = committed.metadata.nr_blocks.get().min(source.nr_blocks()).min(ledger.nr_blocks());
        let counts: Vec<u32> = (0..nr_blocks).map(|block| tree_references(ledger, BlockNr(block))).collect();
        let old_data = committed.data.map(|root| OldMap::load_data(source, &root, &counts, all)).unwrap_or_default();
        let old_metadata = OldMap::load_metadata(source, &committed.metadata, &counts, nr_blocks);
        let mut free = free_blocks(source, &committed.metadata, ledger, nr_blocks, all);
        // They may stay in use, even where a damaged bitmap says that they are free.
        for block in old_data.blocks().chain(old_metadata.blocks()) {
            if let Some(word) = usize::try_from(block.0 / 64).ok().and_then(|index| free.get_mut(index)) {
                *word &= !(1 << (block.0 % 64));
            }
        }
        Self::with(source, (old_data, old_metadata), nr_blocks, free, counts)
    }

    /// `free` has a bit for each block that may be taken; `counts` leaves out the space maps that are given.
    pub(super) fn with(
        source: &'a dyn BlockSource,
        (old_data, old_metadata): (OldMap, OldMap),
        nr_blocks: u64,
        free: Vec<u64>,
        counts: Vec<u32>,
    ) -> Self {
        let nr_free = free.iter().map(|word| u64::from(word.count_ones())).sum();
        let (cursor, nr_taken, staged, freed) = (0, 0, Vec::new(), None);
        Transaction {
            source,
            old_data,
            old_metadata,
            nr_blocks,
            free,
            cursor,
            nr_free,
            nr_taken,
            counts,
            staged,
            freed,
        }
    }

    /// Notes which data blocks become free, for [`SealedTransaction::freed`].
    pub fn note_freed(&mut self) {
        self.freed = Some(Vec::new());
    }

    /// Free blocks of the committed state.
    pub fn nr_free(&self) -> u64 {
        self.nr_free
    }

    /// References to a block in the new state, the space maps' own left out.
    pub fn count(&self, block: BlockNr) -> u32 {
        usize::try_from(block.0).ok().and_then(|index| self.counts.get(index)).copied().unwrap_or(0)
    }

    /// Takes away a reference; returns how many are left. Whatever the block refers to is its caller's business.
    pub fn unrefer(&mut self, block: BlockNr) -> u32 {
        let left = self.count(block).saturating_sub(1);
        self.set_count(block, left);
        left
    }

    fn set_count(&mut self, block: BlockNr, count: u32) {
        if let Some(slot) = usize::try_from(block.0).ok().and_then(|index| self.counts.get_mut(index)) {
            *slot = count;
        }
    }

    /// Takes a block. Where none is left it takes one that there isn't, so that all needs can be counted.
    fn allocate(&mut self) -> BlockNr {
        self.nr_taken += 1;
        while let Some(word) = self.free.get_mut(self.cursor) {
            if *word != 0 {
                let block = BlockNr(self.cursor as u64 * 64 + u64::from(word.trailing_zeros()));
                *word &= *word - 1;
                self.set_count(block, 1);
                return block;
            }
            self.cursor += 1;
        }
        BlockNr(self.nr_blocks + self.nr_taken)
    }

    /// Takes a block for what `seal` gives when it knows its place.
    pub fn add(&mut self, seal: impl FnOnce(BlockNr) -> Box<Block>) -> BlockNr {
        let location = self.allocate();
        self.staged.push((location, seal(location)));
        location
    }

    /// Completes the change: makes both space maps, which share with the old ones what stays the same.
    ///
    /// # Errors
    /// [`CommitError::NoFreeBlocks`] where there are not enough free blocks.
    pub fn seal(mut self, data: Option<DataCounts<'_>>) -> Result<SealedTransaction, CommitError> {
        let data = data.map(|data| self.data_space_map(data)).transpose()?;
        self.seal_metadata(data)
    }

    /// The rest, when the data space map is there.
    pub(super) fn seal_metadata(mut self, data: Option<SpaceMapRoot>) -> Result<SealedTransaction, CommitError> {
        let metadata = self.metadata_space_map()?;
        if self.nr_taken > self.nr_free {
            return Err(CommitError::NoFreeBlocks { needed: self.nr_taken, free: self.nr_free });
        }
        self.staged.sort_by_key(|(location, _)| *location);
        let freed = self.freed.unwrap_or_default();
        Ok(SealedTransaction { staged: self.staged, roots: SpaceMapRoots { data, metadata }, freed })
    }

    /// Notes what is free in the `new` content of a data bitmap, and was not in the committed one in `location`.
    pub(super) fn note_freed_in(&mut self, bitmap: u64, location: BlockNr, new: &Block) {
        let Some(freed) = &mut self.freed else { return };
        self.source.read_many(&[location], &mut |_, old| {
            if let Ok(old) = old
                && block::verify(old, BlockKind::Bitmap, location).is_ok()
            {
                space_map::freed_entries(old, new, &mut |entry| {
                    let block = bitmap * ENTRIES_PER_BITMAP + u64::from(entry);
                    match freed.last_mut() {
                        Some(last) if last.end == block => last.end += 1,
                        _ => freed.push(block..block + 1),
                    }
                });
            }
            ControlFlow::Continue(())
        });
    }

    /// Whether the committed bitmap in `location` can stay: it says the same, and nothing else is there.
    fn keeps_bitmap(&self, location: BlockNr, block: &Block) -> bool {
        let same = |old: &Block| {
            block::verify(old, BlockKind::Bitmap, location).is_ok() && old[BITMAP_HEADER..] == block[BITMAP_HEADER..]
        };
        location.0 != 0 && location.0 < self.nr_blocks && self.source.read(location).is_ok_and(|old| same(&old))
    }

    fn data_space_map(&mut self, data: DataCounts<'_>) -> Result<SpaceMapRoot, CommitError> {
        let old = std::mem::take(&mut self.old_data);
        let mut entries: Vec<IndexEntry> = Vec::new();
        let mut above: Vec<(u64, u32)> = Vec::new();
        // Where no tree of counts can stay there is nothing to compare, so that no list of them all is needed.
        let anew = old.overflow_nodes.is_none();
        let mut overflow = TreeBuilder::<COUNT_SIZE>::new();
        let mut allocated = 0;
        let mut block = Box::new([0; BLOCK_SIZE]);
        for bitmap in 0..space_map::nr_bitmaps(data.nr_blocks) {
            let mut summary = None;
            data.counts.look(bitmap, &mut |counts| {
                summary = Some(space_map_write::fill_bitmap(counts, &mut block, &mut |entry, count| {
                    above.push((bitmap * ENTRIES_PER_BITMAP + u64::from(entry), count));
                }));
            });
            let Some(summary) = summary else { unreachable!("there are counts for every bitmap") };
            allocated += u64::from(summary.allocated);
            if anew {
                above.drain(..).try_for_each(|(block, count)| overflow.push(block, &count.to_le_bytes(), self))?;
            }
            if let Some(location) = old.bitmap(bitmap) {
                self.note_freed_in(bitmap, location, &block);
            }
            let location = match old.bitmap(bitmap) {
                Some(location) if self.count(location) == 0 && self.keeps_bitmap(location, &block) => {
                    self.set_count(location, 1);
                    location
                }
                _ => {
                    let location = self.allocate();
                    space_map_write::seal_bitmap(&mut block, location);
                    self.staged.push((location, block.clone()));
                    location
                }
            };
            let length = space_map_write::entries_in_bitmap(bitmap, data.nr_blocks);
            entries.push(summary.index_entry(location, length));
        }
        let overflow = match anew {
            true => overflow.finish(&mut NothingShared, self)?,
            false => self.overflow_tree(&old, &above)?,
        };
        let index = if old.index_nodes.is_some() && old.entries == entries {
            self.keep_nodes(old.index_nodes.as_deref().unwrap_or_default());
            old.index_root
        } else {
            let mut index = TreeBuilder::<INDEX_ENTRY_SIZE>::new();
            for (bitmap, entry) in (0..).zip(entries) {
                index.push(bitmap, &zerocopy::transmute!(entry), self)?;
            }
            index.finish(&mut NothingShared, self)?
        };
        Ok(space_map_write::root(data.nr_blocks, allocated, index, overflow))
    }

    fn keep_nodes(&mut self, nodes: &[BlockNr]) {
        nodes.iter().for_each(|node| self.set_count(*node, 1));
    }

    /// The tree of counts above 2: the old one where it says the same.
    fn overflow_tree(&mut self, old: &OldMap, above: &[(u64, u32)]) -> Result<BlockNr, CommitError> {
        if let Some(nodes) = old.overflow_nodes.as_deref().filter(|_| old.overflow == above) {
            self.keep_nodes(nodes);
            return Ok(old.overflow_root);
        }
        let mut overflow = TreeBuilder::<COUNT_SIZE>::new();
        for (block, count) in above {
            overflow.push(*block, &count.to_le_bytes(), self)?;
        }
        overflow.finish(&mut NothingShared, self)
    }

    /// All other blocks have been taken, so no count above 2 changes any more. The map's own blocks have count 1.
    fn metadata_space_map(&mut self) -> Result<SpaceMapRoot, CommitError> {
        let old = std::mem::take(&mut self.old_metadata);
        let above = self.counts.iter().enumerate().filter(|(_, count)| **count > 2);
        let above: Vec<(u64, u32)> = above.map(|(block, count)| (block as u64, *count)).collect();
        let overflow = self.overflow_tree(&old, &above)?;
        let nr_bitmaps = space_map::nr_bitmaps(self.nr_blocks);
        // First as if all could stay.
        let mut locations: Vec<Option<BlockNr>> = (0..nr_bitmaps).map(|bitmap| old.bitmap(bitmap)).collect();
        for location in &mut locations {
            *location = location.filter(|location| self.count(*location) == 0);
            if let Some(location) = *location {
                self.set_count(location, 1);
            }
        }
        let mut index = old.index_root;
        let index_stays = old.index_nodes.is_some() && self.count(index) == 0;
        if index_stays {
            self.set_count(index, 1);
        }
        let stays = index_stays && (0..nr_bitmaps).all(|bitmap| self.stays(bitmap, &locations, Some(&old)));
        if !stays {
            if index_stays {
                self.set_count(index, 0);
            }
            index = self.allocate();
            self.renew_bitmaps(&mut locations);
            let entries = self.stage_bitmaps(&locations, &old);
            self.staged.push((index, space_map_write::index_block(&entries, index)));
        }
        let allocated = self.counts.iter().filter(|count| **count > 0).count() as u64;
        Ok(space_map_write::root(self.nr_blocks, allocated, index, overflow))
    }

    fn fill(&self, bitmap: u64, block: &mut Block) -> space_map_write::BitmapSummary {
        let begin = ((bitmap * ENTRIES_PER_BITMAP) as usize).min(self.counts.len());
        let end = (begin + ENTRIES_PER_BITMAP as usize).min(self.counts.len());
        space_map_write::fill_bitmap(BitmapCounts::Wide(&self.counts[begin..end]), block, &mut |_, _| ())
    }

    /// Whether a bitmap of the metadata space map can stay where it is, and, given the old map, its index entry too.
    fn stays(&self, bitmap: u64, locations: &[Option<BlockNr>], old: Option<&OldMap>) -> bool {
        let Some(location) = locations.get(bitmap as usize).copied().flatten() else { return false };
        let mut block = Box::new([0; BLOCK_SIZE]);
        let summary = self.fill(bitmap, &mut block);
        let entry = summary.index_entry(location, space_map_write::entries_in_bitmap(bitmap, self.nr_blocks));
        self.keeps_bitmap(location, &block) && old.is_none_or(|old| old.entries.get(bitmap as usize) == Some(&entry))
    }

    /// Finds new places for the bitmaps that change. Each move changes the bitmaps of the old and the new place.
    fn renew_bitmaps(&mut self, locations: &mut [Option<BlockNr>]) {
        let mut renewed = vec![false; locations.len()];
        let mut queue: VecDeque<u64> = (0..locations.len() as u64).collect();
        while let Some(bitmap) = queue.pop_front() {
            let index = bitmap as usize;
            if renewed.get(index) != Some(&false) || self.stays(bitmap, locations, None) {
                continue;
            }
            renewed[index] = true;
            if let Some(old) = locations[index] {
                self.set_count(old, 0);
                queue.push_back(old.0 / ENTRIES_PER_BITMAP);
            }
            let new = self.allocate();
            locations[index] = Some(new);
            queue.push_back(new.0 / ENTRIES_PER_BITMAP);
        }
    }

    /// Stages the bitmaps that are not where they were. All counts are final.
    fn stage_bitmaps(&mut self, locations: &[Option<BlockNr>], old: &OldMap) -> Vec<IndexEntry> {
        let mut entries = Vec::new();
        for (bitmap, location) in (0..).zip(locations) {
            let Some(location) = *location else { unreachable!("every bitmap has its place by now") };
            let mut block = Box::new([0; BLOCK_SIZE]);
            let summary = self.fill(bitmap, &mut block);
            entries.push(summary.index_entry(location, space_map_write::entries_in_bitmap(bitmap, self.nr_blocks)));
            if old.bitmap(bitmap) != Some(location) {
                space_map_write::seal_bitmap(&mut block, location);
                self.staged.push((location, block));
            }
        }
        entries
    }
}

/// References to a block that don't come from the space maps.
fn tree_references(ledger: &Ledger, block: BlockNr) -> u32 {
    if ledger.block_use(block).is_space_map() { 0 } else { ledger.count(block) }
}

impl NodeSink for Transaction<'_> {
    type Error = CommitError;

    fn node<const V: usize>(&mut self, node: &mut NodeBuf<V>) -> Result<BlockNr, CommitError> {
        Ok(self.add(|location| Box::new(*node.seal(location))))
    }

    fn share(&mut self, block: BlockNr) {
        self.set_count(block, self.count(block).saturating_add(1));
    }
}

/// A change that lacks nothing but to be written.
#[derive(Debug)]
pub struct SealedTransaction {
    staged: Vec<(BlockNr, Box<Block>)>,
    roots: SpaceMapRoots,
    freed: Vec<Range<u64>>,
}

impl SealedTransaction {
    /// What the superblock has to say of the space maps. `data` is `None` where nothing was said of data counts.
    pub fn roots(&self) -> &SpaceMapRoots {
        &self.roots
    }

    /// Ascending ranges of data blocks that become free, where [`Transaction::note_freed`] asked for them.
    pub fn freed(&self) -> &[Range<u64>] {
        &self.freed
    }

    /// The blocks that will be written, in ascending order, beside the superblock.
    pub fn locations(&self) -> impl ExactSizeIterator<Item = BlockNr> {
        self.staged.iter().map(|(location, _)| *location)
    }

    /// Writes everything, the superblock last. After this the change is made, before it is not.
    ///
    /// # Errors
    /// Where writing failed. Before the superblock was written all is as it was.
    pub fn commit(self, output: &mut dyn BlockOutput, superblock: &Block) -> Result<(), CommitError> {
        if !self.staged.is_empty() {
            for (location, block) in &self.staged {
                output.write(*location, block)?;
            }
            output.flush()?;
        }
        replace_superblock(output, superblock)
    }
}

/// Writes a superblock that leads to what the old one leads to, with other fields.
///
/// # Errors
/// Where writing failed; then the old or the new one is there.
pub fn replace_superblock(output: &mut dyn BlockOutput, superblock: &Block) -> Result<(), CommitError> {
    output.write(BlockNr(0), superblock)?;
    output.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
