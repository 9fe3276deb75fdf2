//! What the committed space maps say, as far as they can be read, and which of their blocks may stay in use.

use crate::base::{Area, BlockNr, Findings, NoProgress};
use crate::block::BlockSource;
use crate::format::block::{self, BlockKind};
use crate::format::space_map::{self, ENTRIES_PER_BITMAP, IndexEntry, SpaceMapRoot};
use crate::pdata::forest::Root;
use crate::pdata::ledger::{BlockUse, Ledger};
use crate::pdata::space_map_write::{COUNT_SIZE, INDEX_ENTRY_SIZE};
use crate::pdata::walk::{NoVisitor, TreeKind, Walker};
use zerocopy::FromBytes;

/// A committed space map.
#[derive(Debug, Default)]
pub(super) struct OldMap {
    pub(super) index_root: BlockNr,
    /// The blocks of the index; `None` where it can't stay in use.
    pub(super) index_nodes: Option<Vec<BlockNr>>,
    pub(super) entries: Vec<IndexEntry>,
    pub(super) overflow_root: BlockNr,
    /// The blocks of the tree of counts; `None` where it can't stay in use.
    pub(super) overflow_nodes: Option<Vec<BlockNr>>,
    pub(super) overflow: Vec<(u64, u32)>,
}

impl OldMap {
    /// Loads the data space map, its tree of counts only where that may stay in use. Blocks that `taken` counts belong
    /// to something else.
    pub(super) fn load_data(
        source: &dyn BlockSource,
        root: &SpaceMapRoot,
        taken: &[u32],
        with_overflow: bool,
    ) -> OldMap {
        let mut ledger = Ledger::new(taken.len() as u64);
        let mut map = OldMap { index_root: BlockNr(root.bitmap_root.get()), ..OldMap::default() };
        let mut keys = Vec::new();
        map.index_nodes = tree(source, &mut ledger, taken, map.index_root, INDEX_ENTRY_SIZE, &mut |key, value| {
            if let Ok(entry) = IndexEntry::read_from_bytes(value) {
                keys.push(key);
                map.entries.push(entry);
            }
        });
        if !keys.iter().enumerate().all(|(at, key)| at as u64 == *key) {
            map.index_nodes = None;
            map.entries.clear();
        }
        if with_overflow {
            map.load_overflow(source, &mut ledger, root, taken);
        }
        map
    }

    /// Loads the metadata space map, of whose blocks the first `nr_blocks` are of interest.
    pub(super) fn load_metadata(
        source: &dyn BlockSource,
        root: &SpaceMapRoot,
        taken: &[u32],
        nr_blocks: u64,
    ) -> OldMap {
        let mut ledger = Ledger::new(taken.len() as u64);
        let mut map = OldMap { index_root: BlockNr(root.bitmap_root.get()), ..OldMap::default() };
        map.entries = metadata_index(source, root, nr_blocks);
        if !map.entries.is_empty() && is_untaken(taken, map.index_root) {
            map.index_nodes = Some(vec![map.index_root]);
        }
        map.load_overflow(source, &mut ledger, root, taken);
        map
    }

    fn load_overflow(&mut self, source: &dyn BlockSource, ledger: &mut Ledger, root: &SpaceMapRoot, taken: &[u32]) {
        self.overflow_root = BlockNr(root.ref_count_root.get());
        self.overflow_nodes = tree(source, ledger, taken, self.overflow_root, COUNT_SIZE, &mut |key, value| {
            if let Ok(count) = value.try_into() {
                self.overflow.push((key, u32::from_le_bytes(count)));
            }
        });
    }

    /// All blocks of the map that are known.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockNr> {
        let bitmaps = self.entries.iter().map(|entry| BlockNr(entry.blocknr.get()));
        let nodes = self.index_nodes.iter().chain(&self.overflow_nodes).flatten().copied();
        bitmaps.chain(nodes)
    }

    /// Where a bitmap is.
    pub(super) fn bitmap(&self, index: u64) -> Option<BlockNr> {
        let entry = usize::try_from(index).ok().and_then(|index| self.entries.get(index))?;
        Some(BlockNr(entry.blocknr.get()))
    }
}

fn is_untaken(taken: &[u32], block: BlockNr) -> bool {
    usize::try_from(block.0).ok().and_then(|index| taken.get(index)) == Some(&0)
}

/// The blocks of a tree that is whole and shares no block with anything; `entry` gets what is in it in any case.
fn tree(
    source: &dyn BlockSource,
    ledger: &mut Ledger,
    taken: &[u32],
    root: BlockNr,
    value_size: usize,
    entry: &mut dyn FnMut(u64, &[u8]),
) -> Option<Vec<BlockNr>> {
    let block_use = if value_size == COUNT_SIZE { BlockUse::DataCounts } else { BlockUse::DataIndex };
    let kind = TreeKind { value_size, block_use, leaves_filled: false };
    let roots = vec![Root { block: root, area: Area::DataSpaceMap, device: None }];
    let mut findings = Findings::new();
    let mut walker = Walker { source, ledger, findings: &mut findings, progress: &NoProgress };
    let forest = walker.walk(kind, roots, &NoVisitor);
    let read = forest.entries(source, root, &mut |_, key, value| entry(key, value));
    let nodes: Vec<BlockNr> = forest.reached().collect();
    let alone = nodes.iter().all(|node| is_untaken(taken, *node) && ledger.count(*node) == 1);
    (read.is_ok() && forest.is_whole() && alone && !nodes.is_empty()).then_some(nodes)
}

/// The entries of the index block that describe `nr_blocks`; none where it can't be read.
fn metadata_index(source: &dyn BlockSource, root: &SpaceMapRoot, nr_blocks: u64) -> Vec<IndexEntry> {
    let location = BlockNr(root.bitmap_root.get());
    let Ok(content) = source.read(location) else { return Vec::new() };
    if block::verify(&content, BlockKind::Index, location).is_err() {
        return Vec::new();
    }
    let bitmaps = space_map::nr_bitmaps(nr_blocks).min(space_map::MAX_METADATA_BITMAPS as u64);
    space_map::index_entries(&content, bitmaps as usize).to_vec()
}

/// A bit for each block that is free in the committed state: nothing in `ledger` leads to it, and its bitmap says so.
/// Where that can't be read, `ledger` alone decides if it has `all` references; else nothing is free.
pub(super) fn free_blocks(
    source: &dyn BlockSource,
    root: &SpaceMapRoot,
    ledger: &Ledger,
    nr_blocks: u64,
    all: bool,
) -> Vec<u64> {
    let index = metadata_index(source, root, nr_blocks);
    let mut free = vec![0u64; nr_blocks.div_ceil(64) as usize];
    for bitmap in 0..space_map::nr_bitmaps(nr_blocks) {
        let location = index.get(bitmap as usize).map(|entry| BlockNr(entry.blocknr.get()));
        let content = location.and_then(|location| source.read(location).ok().map(|content| (location, content)));
        let content =
            content.filter(|(location, content)| block::verify(content, BlockKind::Bitmap, *location).is_ok());
        let begin = bitmap * ENTRIES_PER_BITMAP;
        for block in begin.max(1)..(begin + ENTRIES_PER_BITMAP).min(nr_blocks) {
            let counted = content
                .as_ref()
                .map_or(!all, |(_, content)| space_map::bitmap_count(content, (block - begin) as usize) > 0);
            if !counted && ledger.count(BlockNr(block)) == 0 {
                free[(block / 64) as usize] |= 1 << (block % 64);
            }
        }
    }
    free
}
