//! Bodies for the parsers of single blocks, alone and inside a pool.

use super::faults::faults;
use super::image::Image;
use super::{Bytes, overlay, pools};
use dmeta::base::{BlockNr, Findings};
use dmeta::block::memory::MemorySource;
use dmeta::format::block::{BLOCK_SIZE, BlockKind};
use dmeta::format::superblock::ThinSuperblock;
use dmeta::format::{array, node, space_map as maps};
use dmeta::thin::load;
use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::U64;

const LOCATION: BlockNr = BlockNr(3);
/// Sizes that values have in trees and arrays (docs/format.md 2, 5).
const VALUE_SIZES: [usize; 6] = [4, 8, 12, 16, 24, 1];

fn agrees(image: &Image) {
    let found = faults(image);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The superblock, alone and in its place before a pool.
pub fn superblock(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    if bytes.u8() % 2 == 1 {
        return agrees(&overlay::image(&mut bytes, |kind| kind == BlockKind::ThinSuperblock));
    }
    let block = overlay::block(&mut bytes, BlockKind::ThinSuperblock, BlockNr(0));
    let view = ThinSuperblock::verify(&block, BlockNr(0)).unwrap();
    let again = view.to_block(BlockNr(0));
    assert_eq!(again[4..size_of::<ThinSuperblock>()], block[4..size_of::<ThinSuperblock>()]);
    assert!(view.held_root().is_none_or(|held| held.0 == view.held_root.get()));
    let mut memory = MemorySource::new(4);
    memory.put(BlockNr(0), &block).unwrap();
    let mut findings = Findings::new();
    let loaded = load::superblock(&memory, &mut findings);
    assert!(loaded.is_some() || findings.worst().is_some(), "refused without a word");
    agrees(&Image::new(memory));
}

/// A node, alone and in trees.
pub fn node(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let how = usize::from(bytes.u8());
    if how % 2 == 1 {
        return agrees(&overlay::image(&mut bytes, |kind| kind == BlockKind::Node));
    }
    let value_size = VALUE_SIZES[how / 2 % 6];
    let block = overlay::block(&mut bytes, BlockKind::Node, LOCATION);
    let Ok(node) = node::verify(&block, LOCATION, value_size) else { return };
    let length = node.len();
    assert!(length <= node.max_entries() && length * (8 + node.value_size()) <= BLOCK_SIZE - node::HEADER_SIZE);
    assert_eq!((node.keys().len(), node.value_bytes().len()), (length, length * node.value_size()));
    assert!(node.values_u64().len() == length || node.value_size() != 8);
    let keys: Vec<u64> = (0..length).map(|at| node.key(at)).collect();
    let disorder = keys.windows(2).position(|pair| pair[0] >= pair[1]).map(|at| at + 1);
    assert_eq!(node.first_out_of_order(), disorder);
    if !node.is_leaf() {
        (0..length).for_each(|at| assert_eq!(node.child(at).0, node.values_u64()[at].get()));
    }
    if disorder.is_none() {
        for key in keys.iter().flat_map(|key| [key.wrapping_sub(1), *key, key.wrapping_add(1)]) {
            assert_eq!(node.find(key), keys.iter().position(|known| *known == key));
            assert_eq!(node.child_index(key), keys.iter().rposition(|known| *known <= key));
        }
        if node.max_entries() == node::max_entries(node.value_size()) {
            let mut again = [0; BLOCK_SIZE];
            let flags = node.header().flags.get();
            node::write(&mut again, LOCATION, flags, &keys, node.value_size(), node.value_bytes());
            let second = node::verify(&again, LOCATION, value_size).unwrap();
            assert_eq!((second.keys(), second.value_bytes()), (node.keys(), node.value_bytes()));
        }
    }
}

/// Index, bitmaps and trees of counts: alone, in a pool, and rebuilt.
pub fn space_map(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    if bytes.u8() % 2 == 1 {
        let takes = |kind| matches!(kind, BlockKind::Index | BlockKind::Bitmap | BlockKind::ThinSuperblock);
        let image = overlay::image(&mut bytes, takes);
        agrees(&image);
        return pools::mend(&image);
    }
    let old = overlay::block(&mut bytes, BlockKind::Bitmap, LOCATION);
    let mut new = old;
    for entry in (0..maps::ENTRIES_PER_BITMAP as usize).step_by(7) {
        let count = maps::bitmap_count(&old, entry);
        let word = maps::swap_bits(maps::bitmap_words(&old)[entry / 32].get());
        assert_eq!(u64::from(count), word >> (2 * (entry % 32)) & 3);
        maps::set_bitmap_count(&mut new, entry, 3 - count);
        assert_eq!(maps::bitmap_count(&new, entry), 3 - count);
    }
    let mut freed = Vec::new();
    maps::freed_entries(&old, &new, &mut |entry| freed.push(entry as usize));
    let wanted = (0..maps::ENTRIES_PER_BITMAP as usize)
        .filter(|entry| maps::bitmap_count(&new, *entry) == 0 && maps::bitmap_count(&old, *entry) != 0);
    assert!(freed.into_iter().eq(wanted));
    assert_eq!(maps::index_entries(&old, maps::MAX_METADATA_BITMAPS).len(), maps::MAX_METADATA_BITMAPS);
}

/// A block of an array.
pub fn array(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let value_size = VALUE_SIZES[usize::from(bytes.u8()) % 6];
    let block = overlay::block(&mut bytes, BlockKind::Array, LOCATION);
    let Ok(values) = array::verify(&block, LOCATION, value_size) else { return };
    assert!(values.len() % value_size == 0 && values.len() <= BLOCK_SIZE - array::HEADER_SIZE);
    assert_eq!(values, &block[array::HEADER_SIZE..array::HEADER_SIZE + values.len()]);
    if value_size == 8 {
        let words = <[U64]>::ref_from_bytes(values).unwrap();
        let plain = |at: u64| words.get((at / 64) as usize).is_some_and(|word| word.get() >> (at % 64) & 1 == 1);
        for at in (0..40_000).step_by(61).chain([u64::MAX, u64::MAX - 63]) {
            assert_eq!(array::bit(words, at), plain(at), "bit {at}");
        }
    }
}
