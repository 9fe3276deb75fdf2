//! Counts of metadata blocks that are not what they should be, in a space map that is sound otherwise.

use super::{Damage, DamageError};
use crate::base::{BlockNr, Random};
use crate::block::BlockSource;
use crate::format::Block;
use crate::format::block::{self, BLOCK_SIZE, BlockKind};
use crate::format::node::{self, FLAG_LEAF, max_entries};
use crate::format::space_map::{
    BITMAP_HEADER, ENTRIES_PER_BITMAP, IndexEntry, bitmap_count, index_entries, nr_bitmaps, set_bitmap_count,
};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

/// Counts to change.
#[derive(Clone, Copy, Debug)]
pub struct Leaks {
    /// Blocks with this stored count are picked.
    pub expected: u32,
    /// This count is stored for them.
    pub actual: u32,
    /// How many.
    pub nr_blocks: u64,
    /// Picks the blocks.
    pub seed: u64,
}

/// The metadata space map, all of it in memory: some 4 KiB per 16320 blocks.
struct Map {
    index: (BlockNr, Box<Block>),
    bitmaps: Vec<(BlockNr, Box<Block>)>,
    overflow_root: BlockNr,
    overflow: BTreeMap<u64, u32>,
    nr_blocks: u64,
}

/// Changes stored counts. The numbers of free and allocated blocks go along with it.
///
/// # Errors
/// Where the space map can't be read, too few blocks have that count, or the counts above 2 don't fit in one node.
pub fn create_leaks(source: &dyn BlockSource, leaks: &Leaks) -> Result<Vec<Damage>, DamageError> {
    let mut superblock = super::superblock(source)?;
    let root = &mut superblock.metadata_space_map;
    let root_block = BlockNr(root.ref_count_root.get());
    let mut map = Map::load(source, BlockNr(root.bitmap_root.get()), root_block, root.nr_blocks.get())?;
    let mut blocks: Vec<u64> = (0..map.nr_blocks).filter(|block| map.count(*block) == leaks.expected).collect();
    if (blocks.len() as u64) < leaks.nr_blocks {
        return Err(DamageError::TooFew { found: blocks.len() as u64, wanted: leaks.nr_blocks });
    }
    Random::new(leaks.seed).shuffle(&mut blocks);
    blocks.truncate(leaks.nr_blocks as usize);
    let before = map.nr_allocated();
    blocks.iter().for_each(|block| map.set(*block, leaks.actual));
    let after = map.nr_allocated();
    root.nr_allocated = U64::new(root.nr_allocated.get().wrapping_add(after).wrapping_sub(before));
    blocks.sort_unstable();
    let what = format!("blocks with count {} instead of {}: {blocks:?}", leaks.actual, leaks.expected);
    let mut damage = map.into_blocks()?;
    let content = superblock.to_block(BlockNr(0));
    damage.push(Damage { location: BlockNr(0), content, what: "the number of allocated blocks goes along".into() });
    if let Some(first) = damage.first_mut() {
        first.what = what;
    }
    Ok(damage)
}

impl Map {
    fn load(
        source: &dyn BlockSource,
        index: BlockNr,
        overflow_root: BlockNr,
        nr_blocks: u64,
    ) -> Result<Map, DamageError> {
        let nr_blocks = nr_blocks.min(source.nr_blocks());
        let index_block = source.read(index)?;
        block::verify(&index_block, BlockKind::Index, index).map_err(|_| DamageError::Unsound)?;
        let mut bitmaps = Vec::new();
        for entry in index_entries(&index_block, nr_bitmaps(nr_blocks).min(255) as usize) {
            let location = BlockNr(entry.blocknr.get());
            let bitmap = source.read(location)?;
            block::verify(&bitmap, BlockKind::Bitmap, location).map_err(|_| DamageError::Unsound)?;
            bitmaps.push((location, bitmap));
        }
        let tree = source.read(overflow_root)?;
        let tree = node::verify(&tree, overflow_root, 4).map_err(|_| DamageError::Unsound)?;
        if !tree.is_leaf() {
            return Err(DamageError::Counts("there are too many counts above 2 to change any".into()));
        }
        let counts = tree.value_bytes().as_chunks::<4>().0.iter().map(|count| u32::from_le_bytes(*count));
        let overflow = tree.keys().iter().map(|key| key.get()).zip(counts).collect();
        Ok(Map { index: (index, index_block), bitmaps, overflow_root, overflow, nr_blocks })
    }

    fn count(&self, block: u64) -> u32 {
        let Some((_, bitmap)) = self.bitmaps.get((block / ENTRIES_PER_BITMAP) as usize) else { return 0 };
        match bitmap_count(bitmap, (block % ENTRIES_PER_BITMAP) as usize) {
            3 => self.overflow.get(&block).copied().unwrap_or(3),
            count => count.into(),
        }
    }

    fn set(&mut self, block: u64, count: u32) {
        let Some((_, bitmap)) = self.bitmaps.get_mut((block / ENTRIES_PER_BITMAP) as usize) else { return };
        set_bitmap_count(bitmap, (block % ENTRIES_PER_BITMAP) as usize, count.min(3) as u8);
        if count > 2 {
            self.overflow.insert(block, count);
        } else {
            self.overflow.remove(&block);
        }
    }

    fn nr_allocated(&self) -> u64 {
        (0..self.nr_blocks).filter(|block| self.count(*block) > 0).count() as u64
    }

    fn into_blocks(mut self) -> Result<Vec<Damage>, DamageError> {
        if self.overflow.len() > max_entries(4) {
            return Err(DamageError::Counts("more counts above 2 than one node holds".into()));
        }
        let mut damage = Vec::new();
        let mut entries = Vec::new();
        for (location, mut bitmap) in self.bitmaps {
            let used = |entry: &usize| bitmap_count(&bitmap, *entry) > 0;
            let nr_used = (0..ENTRIES_PER_BITMAP as usize).filter(used).count() as u32;
            let first_free = (0..ENTRIES_PER_BITMAP as usize).find(|entry| !used(entry)).unwrap_or(0);
            entries.push(IndexEntry {
                blocknr: U64::new(location.0),
                nr_free: U32::new(ENTRIES_PER_BITMAP as u32 - nr_used),
                none_free_before: U32::new(first_free as u32),
            });
            block::seal(&mut bitmap, BlockKind::Bitmap, location);
            damage.push(Damage { location, content: bitmap, what: "counts of metadata blocks".into() });
        }
        let bytes = entries.as_bytes();
        self.index.1[BITMAP_HEADER..BITMAP_HEADER + bytes.len()].copy_from_slice(bytes);
        block::seal(&mut self.index.1, BlockKind::Index, self.index.0);
        let what = "the numbers of free blocks go along".to_string();
        damage.push(Damage { location: self.index.0, content: self.index.1, what });
        let keys: Vec<u64> = self.overflow.keys().copied().collect();
        let values: Vec<u8> = self.overflow.values().flat_map(|count| count.to_le_bytes()).collect();
        let mut tree = Box::new([0; BLOCK_SIZE]);
        node::write(&mut tree, self.overflow_root, FLAG_LEAF, &keys, 4, &values);
        let what = "the tree of counts goes along".to_string();
        damage.push(Damage { location: self.overflow_root, content: tree, what });
        Ok(damage)
    }
}
