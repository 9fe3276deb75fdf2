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
    bitmaps: Vec<Bitmap>,
    /// Leaves of the tree of counts above 2, by the first key that they were written with.
    leaves: BTreeMap<u64, Leaf>,
    nr_blocks: u64,
}

struct Bitmap {
    location: BlockNr,
    content: Box<Block>,
    is_changed: bool,
}

/// A leaf of the tree of counts above 2. The nodes over it stay as they are.
struct Leaf {
    location: BlockNr,
    is_root: bool,
    counts: BTreeMap<u64, u32>,
    is_changed: bool,
}

/// Changes stored counts. The numbers of free and allocated blocks go along with it.
///
/// # Errors
/// Where the space map can't be read, too few blocks have that count, or there is no room in the leaves for so many
/// counts above 2.
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
    let before = map.nr_allocated();
    let mut left = leaks.nr_blocks;
    blocks.retain(|block| {
        let changed = left > 0 && map.set(*block, leaks.actual);
        left -= u64::from(changed);
        changed
    });
    if left > 0 {
        return Err(DamageError::NoRoom { found: leaks.nr_blocks - left, wanted: leaks.nr_blocks });
    }
    let after = map.nr_allocated();
    root.nr_allocated = U64::new(root.nr_allocated.get().wrapping_add(after).wrapping_sub(before));
    blocks.sort_unstable();
    let what = format!("blocks with count {} instead of {}: {blocks:?}", leaks.actual, leaks.expected);
    let mut damage = map.into_blocks();
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
            bitmaps.push(Bitmap { location, content: bitmap, is_changed: false });
        }
        let leaves = load_leaves(source, overflow_root)?;
        Ok(Map { index: (index, index_block), bitmaps, leaves, nr_blocks })
    }

    fn count(&self, block: u64) -> u32 {
        let Some(bitmap) = self.bitmaps.get((block / ENTRIES_PER_BITMAP) as usize) else { return 0 };
        match bitmap_count(&bitmap.content, (block % ENTRIES_PER_BITMAP) as usize) {
            3 => self
                .leaves
                .range(..=block)
                .next_back()
                .and_then(|(_, leaf)| leaf.counts.get(&block))
                .map_or(3, |count| *count),
            count => count.into(),
        }
    }

    /// Stores another count; false where the leaf that it belongs to is full, or would be empty.
    fn set(&mut self, block: u64, count: u32) -> bool {
        let Some(bitmap) = self.bitmaps.get_mut((block / ENTRIES_PER_BITMAP) as usize) else { return false };
        let entry = (block % ENTRIES_PER_BITMAP) as usize;
        if count > 2 || bitmap_count(&bitmap.content, entry) > 2 {
            let Some((_, leaf)) = self.leaves.range_mut(..=block).next_back() else { return false };
            if !leaf.set(block, count) {
                return false;
            }
        }
        set_bitmap_count(&mut bitmap.content, entry, count.min(3) as u8);
        bitmap.is_changed = true;
        true
    }

    fn nr_allocated(&self) -> u64 {
        (0..self.nr_blocks).filter(|block| self.count(*block) > 0).count() as u64
    }

    /// The blocks that change.
    fn into_blocks(mut self) -> Vec<Damage> {
        let mut damage = Vec::new();
        let mut entries = Vec::new();
        for Bitmap { location, mut content, is_changed } in self.bitmaps {
            let used = |entry: &usize| bitmap_count(&content, *entry) > 0;
            let nr_used = (0..ENTRIES_PER_BITMAP as usize).filter(used).count() as u32;
            let first_free = (0..ENTRIES_PER_BITMAP as usize).find(|entry| !used(entry)).unwrap_or(0);
            entries.push(IndexEntry {
                blocknr: U64::new(location.0),
                nr_free: U32::new(ENTRIES_PER_BITMAP as u32 - nr_used),
                none_free_before: U32::new(first_free as u32),
            });
            if is_changed {
                block::seal(&mut content, BlockKind::Bitmap, location);
                damage.push(Damage { location, content, what: "counts of metadata blocks".into() });
            }
        }
        let bytes = entries.as_bytes();
        self.index.1[BITMAP_HEADER..BITMAP_HEADER + bytes.len()].copy_from_slice(bytes);
        block::seal(&mut self.index.1, BlockKind::Index, self.index.0);
        let what = "the numbers of free blocks go along".to_string();
        damage.push(Damage { location: self.index.0, content: self.index.1, what });
        for leaf in self.leaves.into_values().filter(|leaf| leaf.is_changed) {
            let keys: Vec<u64> = leaf.counts.keys().copied().collect();
            let values: Vec<u8> = leaf.counts.values().flat_map(|count| count.to_le_bytes()).collect();
            let mut content = Box::new([0; BLOCK_SIZE]);
            node::write(&mut content, leaf.location, FLAG_LEAF, &keys, 4, &values);
            damage.push(Damage { location: leaf.location, content, what: "counts above 2".into() });
        }
        damage
    }
}

impl Leaf {
    fn set(&mut self, block: u64, count: u32) -> bool {
        if count > 2 {
            if self.counts.len() >= max_entries(4) && !self.counts.contains_key(&block) {
                return false;
            }
            self.counts.insert(block, count);
        } else {
            if self.counts.len() == 1 && !self.is_root {
                return false;
            }
            self.counts.remove(&block);
        }
        self.is_changed = true;
        true
    }
}

/// The leaves of the tree of counts above 2, in order.
fn load_leaves(source: &dyn BlockSource, root: BlockNr) -> Result<BTreeMap<u64, Leaf>, DamageError> {
    let mut leaves = BTreeMap::new();
    let mut ahead = vec![(0, root)];
    // A tree has no more nodes than there are blocks: where it seems to, it leads back into itself.
    for _ in 0..source.nr_blocks() {
        let Some((first, location)) = ahead.pop() else { return Ok(leaves) };
        let content = source.read(location)?;
        let node = node::verify(&content, location, 4).map_err(|_| DamageError::Unsound)?;
        if node.is_leaf() {
            let values = node.value_bytes().as_chunks::<4>().0.iter().map(|count| u32::from_le_bytes(*count));
            let counts = node.keys().iter().map(|key| key.get()).zip(values).collect();
            leaves.insert(first, Leaf { location, is_root: location == root, counts, is_changed: false });
            continue;
        }
        ahead.extend((0..node.len()).map(|entry| (node.key(entry), node.child(entry))));
    }
    Err(DamageError::Unsound)
}
