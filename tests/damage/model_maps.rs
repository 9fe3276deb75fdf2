//! The part of the plain checker that reads space maps.

use super::model::{Entry, Model, Use};
use dmeta::format::block::{BlockKind, le64};
use dmeta::format::space_map::{SpaceMapRoot, bitmap_count};
use dmeta::format::superblock::ThinSuperblock;
use std::collections::BTreeMap;

const ENTRIES: u64 = 16_320;

/// Reads the space maps of an image whose trees have been read.
pub struct Maps;

impl Maps {
    pub fn judge(model: &mut Model<'_>, superblock: &ThinSuperblock) {
        let (data, metadata) = (&superblock.data_space_map, &superblock.metadata_space_map);
        let data_index = model.root(data.bitmap_root.get(), Use::DataIndex);
        let nr_bitmaps = data.nr_blocks.get().div_ceil(ENTRIES);
        let dense = (0..).zip(&data_index).all(|(wanted, entry)| entry.key == wanted);
        if !dense || data_index.len() as u64 != nr_bitmaps {
            model.problem("data space map: keys of the index");
        }
        let metadata_index = read_index(model, metadata);
        let data_stored = stored_counts(model, data, &data_index, [Use::DataBitmap, Use::DataCounts]);
        let metadata_stored =
            stored_counts(model, metadata, &metadata_index, [Use::MetadataBitmap, Use::MetadataCounts]);
        // The maps' own blocks have been referred to by now.
        let data_used = model.data_counts.clone();
        compare(model, "data", data, &data_stored, &data_used);
        let metadata_used = model.metadata_counts.clone();
        compare(model, "metadata", metadata, &metadata_stored, &metadata_used);
    }
}

fn read_index(model: &mut Model<'_>, map: &SpaceMapRoot) -> Vec<Entry> {
    let location = map.bitmap_root.get();
    model.refer(location);
    model.claim(location, Use::Index, None, false);
    let bitmaps = map.nr_blocks.get().div_ceil(ENTRIES);
    if location == 0 || bitmaps > 255 || !model.block_is_good(location, BlockKind::Index) {
        model.problem("metadata space map: index");
        return Vec::new();
    }
    let block = model.image.block(location);
    let entry = |key: u64| {
        let mut value = [0; 24];
        let begin = 16 + 16 * key as usize;
        value[..16].copy_from_slice(&block[begin..begin + 16]);
        Entry { key, value }
    };
    (0..bitmaps).map(entry).collect()
}

/// All counts above 0 of a space map.
fn stored_counts(model: &mut Model<'_>, map: &SpaceMapRoot, index: &[Entry], uses: [Use; 2]) -> BTreeMap<u64, u64> {
    let [bitmap_use, counts_use] = uses;
    let overflow: BTreeMap<u64, u64> = model
        .root(map.ref_count_root.get(), counts_use)
        .iter()
        .map(|entry| (entry.key, entry.number() & 0xffff_ffff))
        .collect();
    let mut stored = BTreeMap::new();
    let mut threes = 0;
    for entry in index {
        let location = entry.number();
        model.refer(location);
        if !model.claim(location, bitmap_use, None, false) || location == 0 {
            model.problem(format!("{bitmap_use:?} {location} twice"));
        }
        if !model.block_is_good(location, BlockKind::Bitmap) {
            continue;
        }
        let block = model.image.block(location);
        let length = map.nr_blocks.get().saturating_sub(entry.key.saturating_mul(ENTRIES)).min(ENTRIES) as usize;
        let mut free = vec![true; ENTRIES as usize];
        // Most words are zero, all entries free.
        for word in (0..510).filter(|word| le64(&block, 16 + 8 * word) != 0) {
            for (at, free) in free.iter_mut().enumerate().skip(32 * word).take(32) {
                let count = u64::from(bitmap_count(&block, at));
                *free = count == 0;
                let number = entry.key.wrapping_mul(ENTRIES).wrapping_add(at as u64);
                if count > 0 && at < length {
                    threes += u64::from(count == 3);
                    let above = overflow.get(&number).copied().unwrap_or(0);
                    if count == 3 && above < 3 {
                        model.problem(format!("{counts_use:?}: {number} has {above}"));
                    }
                    stored.insert(number, if count == 3 { above } else { count });
                }
            }
        }
        let nr_free = free.iter().filter(|free| **free).count();
        let [says_free, first_free] =
            [8, 12].map(|at| u32::from_le_bytes(entry.value[at..at + 4].try_into().unwrap()) as usize);
        // Writers may or may not count entries past the end as free.
        let clipped = nr_free.saturating_sub(ENTRIES as usize - length);
        if says_free != nr_free && says_free != clipped {
            model.problem(format!("{bitmap_use:?} {location}: free blocks"));
        }
        if free.iter().take(first_free).any(|free| *free) {
            model.problem(format!("{bitmap_use:?} {location}: first free block"));
        }
    }
    if threes != overflow.len() as u64 {
        model.problem(format!("{counts_use:?}: {} entries for {threes} bitmap entries", overflow.len()));
    }
    stored
}

fn compare(
    model: &mut Model<'_>,
    name: &str,
    map: &SpaceMapRoot,
    stored: &BTreeMap<u64, u64>,
    used: &BTreeMap<u64, u64>,
) {
    if map.nr_allocated.get() != stored.len() as u64 {
        model.problem(format!("{name}: allocated blocks"));
    }
    if stored != used {
        let differs = stored.keys().chain(used.keys()).find(|block| stored.get(block) != used.get(block)).unwrap();
        let [stored, used] = [stored, used].map(|counts| counts.get(differs).copied().unwrap_or(0));
        model.problem(format!("{name} block {differs}: {stored} counted, {used} used"));
    }
}
