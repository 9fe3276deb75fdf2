//! Space maps: root blobs, bitmaps, index entries (docs/format.md 3).

use super::block::{BLOCK_SIZE, Block};
use std::mem::size_of;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a bitmap's or an index block's header.
pub const BITMAP_HEADER: usize = 16;
/// Bytes of a bitmap that hold entries.
pub const BITMAP_BYTES: usize = BLOCK_SIZE - BITMAP_HEADER;
/// Blocks that one bitmap describes.
pub const ENTRIES_PER_BITMAP: u64 = BITMAP_BYTES as u64 * 4;
/// Bitmaps that the index block of a metadata space map has room for.
pub const MAX_METADATA_BITMAPS: usize = BITMAP_BYTES / size_of::<IndexEntry>();
/// The largest metadata device, in blocks; what lies behind is not used.
pub const MAX_METADATA_BLOCKS: u64 = MAX_METADATA_BITMAPS as u64 * ENTRIES_PER_BITMAP;

const _: () = {
    assert!(size_of::<SpaceMapRoot>() == 128);
    assert!(size_of::<IndexEntry>() == 16);
    assert!(ENTRIES_PER_BITMAP == 16_320);
    assert!(MAX_METADATA_BITMAPS == 255);
    assert!(MAX_METADATA_BLOCKS == 4_161_600);
};

/// The root of a space map as it lies in the superblock.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SpaceMapRoot {
    /// Blocks described.
    pub nr_blocks: U64,
    /// Blocks with a count above 0.
    pub nr_allocated: U64,
    /// Data: root of the tree of index entries. Metadata: the index block.
    pub bitmap_root: U64,
    /// Root of the tree of counts above 2.
    pub ref_count_root: U64,
    /// Undefined: the kernel may leave anything here.
    pub unused: [u8; 96],
}

/// What the index knows of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IndexEntry {
    /// The block of the bitmap.
    pub blocknr: U64,
    /// Entries with count 0, out of all 16320, also of those past the end of the space map.
    pub nr_free: U32,
    /// No entry below this one is free.
    pub none_free_before: U32,
}

/// Bitmaps that a space map of so many blocks has.
pub fn nr_bitmaps(nr_blocks: u64) -> u64 {
    nr_blocks.div_ceil(ENTRIES_PER_BITMAP)
}

/// The entries of an index block that `nr_bitmaps` (at most 255) bitmaps need.
pub fn index_entries(block: &Block, nr_bitmaps: usize) -> &[IndexEntry] {
    let bytes = &block[BITMAP_HEADER..BITMAP_HEADER + nr_bitmaps * size_of::<IndexEntry>()];
    match <[IndexEntry]>::ref_from_bytes(bytes) {
        Ok(entries) => entries,
        Err(_) => unreachable!("a multiple of an entry's size at any alignment"),
    }
}

/// The 510 words of a bitmap, 32 entries each.
pub fn bitmap_words(block: &Block) -> &[U64] {
    match <[U64]>::ref_from_bytes(&block[BITMAP_HEADER..]) {
        Ok(words) => words,
        Err(_) => unreachable!("a multiple of 8 bytes of any alignment"),
    }
}

/// Swaps the two bits of each of the 32 entries of a word.
///
/// On disk the lower-numbered bit is the high bit of the count; this turns a word of the disk into one of
/// plain two-bit numbers and back (docs/format.md 3.2).
pub const fn swap_bits(word: u64) -> u64 {
    const LOW: u64 = 0x5555_5555_5555_5555;
    ((word >> 1) & LOW) | ((word & LOW) << 1)
}

/// The count of an entry, 0 ..= 3, where 3 means that the tree of counts has it. `entry` is below 16320.
pub fn bitmap_count(block: &Block, entry: usize) -> u8 {
    let bits = block[BITMAP_HEADER + entry / 4] >> (2 * (entry % 4));
    ((bits & 1) << 1) | ((bits >> 1) & 1)
}

/// Calls `each` with every entry whose count is 0 in `new` and not in `old`, in ascending order.
pub fn freed_entries(old: &Block, new: &Block, each: &mut dyn FnMut(u32)) {
    const LOW: u64 = 0x5555_5555_5555_5555;
    for (index, (old, new)) in bitmap_words(old).iter().zip(bitmap_words(new)).enumerate() {
        let used = |word: u64| (word | word >> 1) & LOW;
        let mut freed = used(old.get()) & !used(new.get());
        while freed != 0 {
            each(index as u32 * 32 + freed.trailing_zeros() / 2);
            freed &= freed - 1;
        }
    }
}

/// Sets the count of an entry, 0 ..= 3. `entry` is below 16320. The block has to be sealed afterwards.
pub fn set_bitmap_count(block: &mut Block, entry: usize, count: u8) {
    assert!(count <= 3);
    let shift = 2 * (entry % 4);
    let bits = ((count & 1) << 1) | (count >> 1);
    let byte = &mut block[BITMAP_HEADER + entry / 4];
    *byte = (*byte & !(3 << shift)) | (bits << shift);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lie_as_the_kernel_has_them() {
        // docs/format.md 11.4: the first bytes of a bitmap that a kernel wrote.
        let mut block = [0; BLOCK_SIZE];
        block[16..20].copy_from_slice(&[0x22, 0x08, 0xa0, 0xaa]);
        block[0x18] = 0x56;
        let counts: Vec<u8> = (0..8).map(|entry| bitmap_count(&block, entry)).collect();
        assert_eq!(counts, [1, 0, 1, 0, 0, 1, 0, 0]);
        let counts: Vec<u8> = (32..36).map(|entry| bitmap_count(&block, entry)).collect();
        assert_eq!(counts, [1, 2, 2, 2]);
        for (entry, count) in [(33, 0), (34, 3), (35, 1), (36, 2)] {
            set_bitmap_count(&mut block, entry, count);
            assert_eq!(bitmap_count(&block, entry), count);
        }
        assert_eq!(bitmap_count(&block, 32), 1);
    }

    #[test]
    fn freed_entries_are_found() {
        let (mut old, mut new) = ([0; BLOCK_SIZE], [0; BLOCK_SIZE]);
        for (entry, before, after) in [(0, 1, 0), (31, 3, 0), (32, 2, 1), (33, 0, 1), (16_319, 2, 0)] {
            set_bitmap_count(&mut old, entry, before);
            set_bitmap_count(&mut new, entry, after);
        }
        let mut freed = Vec::new();
        freed_entries(&old, &new, &mut |entry| freed.push(entry));
        assert_eq!(freed, [0, 31, 16_319]);
    }

    #[test]
    fn swapped_words_are_plain_numbers() {
        let mut block = [0; BLOCK_SIZE];
        for (entry, count) in [(0, 1), (1, 2), (2, 3), (31, 1)] {
            set_bitmap_count(&mut block, entry, count);
        }
        let word = swap_bits(bitmap_words(&block)[0].get());
        assert_eq!(word, 1 | (2 << 2) | (3 << 4) | (1 << 62));
        assert_eq!(swap_bits(word), bitmap_words(&block)[0].get());
    }
}
