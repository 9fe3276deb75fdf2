//! Images are read back, block by block, and every invariant of the space maps is held against plain tables.

use super::DataCounts;
use crate::base::BlockNr;
use crate::block::BlockSource;
use crate::block::memory::MemorySource;
use crate::format::block::{self, BlockKind};
use crate::format::node;
use crate::format::space_map::{self, ENTRIES_PER_BITMAP, IndexEntry, SpaceMapRoot};
use crate::pdata::counts::BitmapCounts;
use crate::pdata::ledger::BlockUse;
use crate::pdata::space_map::ExpectedCounts;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

pub(super) struct Table(pub(super) Vec<u32>);

impl ExpectedCounts for Table {
    fn look(&self, index: u64, look: &mut dyn FnMut(BitmapCounts<'_>)) {
        let begin = (index * ENTRIES_PER_BITMAP) as usize;
        let end = (begin + ENTRIES_PER_BITMAP as usize).min(self.0.len());
        look(BitmapCounts::Wide(&self.0[begin..end]));
    }
}

/// Reads space maps and counts every reference on the way.
pub(super) struct Reader<'a> {
    image: &'a MemorySource,
    pub(super) references: BTreeMap<u64, u32>,
    pub(super) uses: BTreeMap<u64, BlockUse>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(image: &'a MemorySource) -> Self {
        let references = BTreeMap::from([(0, 1)]);
        Reader { image, references, uses: BTreeMap::from([(0, BlockUse::Superblock)]) }
    }

    /// Counts a reference; `true` where it is the first.
    fn refer(&mut self, block: u64, block_use: BlockUse) -> bool {
        *self.references.entry(block).or_default() += 1;
        self.uses.insert(block, block_use).is_none()
    }

    /// The entries of a tree; those of a node that was reached before are left out.
    pub(super) fn tree(&mut self, root: u64, value_size: usize, block_use: BlockUse) -> Vec<(u64, Vec<u8>)> {
        if !self.refer(root, block_use) {
            return vec![];
        }
        let block = self.image.read(BlockNr(root)).unwrap();
        let node = node::verify(&block, BlockNr(root), value_size).unwrap();
        if !node.is_leaf() {
            return (0..node.len()).flat_map(|index| self.tree(node.child(index).0, value_size, block_use)).collect();
        }
        let values = node.value_bytes().chunks_exact(value_size).map(<[u8]>::to_vec);
        node.keys().iter().map(|key| key.get()).zip(values).collect()
    }

    /// The counts that a space map holds, whose every hint is checked.
    fn counts(&mut self, root: &SpaceMapRoot, entries: &[IndexEntry]) -> Vec<u32> {
        let nr_blocks = root.nr_blocks.get();
        assert_eq!(entries.len() as u64, space_map::nr_bitmaps(nr_blocks));
        let mut above: BTreeMap<u64, u32> = BTreeMap::new();
        for (key, value) in self.tree(root.ref_count_root.get(), 4, BlockUse::DataCounts) {
            above.insert(key, u32::from_le_bytes(value.try_into().unwrap()));
        }
        let mut counts = vec![];
        for (index, entry) in entries.iter().enumerate() {
            let location = entry.blocknr.get();
            assert!(self.refer(location, BlockUse::DataBitmap));
            let block = self.image.read(BlockNr(location)).unwrap();
            block::verify(&block, BlockKind::Bitmap, BlockNr(location)).unwrap();
            let all: Vec<u32> = (0..16_320).map(|entry| space_map::bitmap_count(&block, entry).into()).collect();
            let free = all.iter().filter(|count| **count == 0).count();
            assert_eq!(entry.nr_free.get() as usize, free);
            let length = (nr_blocks - index as u64 * ENTRIES_PER_BITMAP).min(ENTRIES_PER_BITMAP) as usize;
            let first_free = all[..length].iter().position(|count| *count == 0).unwrap_or(length);
            assert_eq!(entry.none_free_before.get() as usize, first_free);
            assert!(all[length..].iter().all(|count| *count == 0));
            counts.extend(&all[..length]);
        }
        for (block, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count == 3) {
            *count = above.remove(&(block as u64)).unwrap();
            assert!(*count >= 3);
        }
        assert!(above.is_empty());
        assert_eq!(root.nr_allocated.get() as usize, counts.iter().filter(|count| **count > 0).count());
        counts
    }

    /// The counts of the data space map.
    pub(super) fn data_counts(&mut self, root: &SpaceMapRoot) -> Vec<u32> {
        let index = self.tree(root.bitmap_root.get(), 16, BlockUse::DataIndex);
        let index: Vec<_> = index.iter().map(|(_, value)| IndexEntry::read_from_bytes(value).unwrap()).collect();
        self.counts(root, &index)
    }

    /// The counts of the metadata space map, which have to be those of the references, its own included.
    pub(super) fn check_metadata_counts(&mut self, root: &SpaceMapRoot) {
        let location = BlockNr(root.bitmap_root.get());
        assert!(self.refer(location.0, BlockUse::MetadataIndex));
        let block = self.image.read(location).unwrap();
        block::verify(&block, BlockKind::Index, location).unwrap();
        let bitmaps = space_map::nr_bitmaps(root.nr_blocks.get()) as usize;
        assert!(block[16 + 16 * bitmaps..].iter().all(|byte| *byte == 0));
        let counts = self.counts(root, space_map::index_entries(&block, bitmaps));
        for (block, count) in counts.iter().enumerate() {
            assert_eq!(*count, self.references.get(&(block as u64)).copied().unwrap_or(0), "block {block}");
        }
    }
}

pub(super) fn data(table: &Table) -> DataCounts<'_> {
    DataCounts { nr_blocks: table.0.len() as u64, counts: table }
}
