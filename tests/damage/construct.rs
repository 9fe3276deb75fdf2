//! Changes after which an image is as sound as before.

use super::image::{Image, set32, set64};
use dmeta::base::BlockNr;
use dmeta::block::BlockSource;
use dmeta::format::block::{BLOCK_SIZE, BlockKind, le32, le64};
use dmeta::format::node::{self, FLAG_INTERNAL, FLAG_LEAF};
use dmeta::format::space_map::{bitmap_count, set_bitmap_count};

/// Changes the counts of metadata blocks, all in the first bitmap, from below 3 to below 3.
fn set_counts(image: &mut Image, counts: &[(u64, u8)]) {
    let index = le64(&image.block(0), 208);
    let bitmap = le64(&image.block(index), 16);
    let mut taken = 0i64;
    image.edit(bitmap, BlockKind::Bitmap, |bytes| {
        for (block, count) in counts {
            let entry = *block as usize;
            taken += i64::from(*count > 0) - i64::from(bitmap_count(bytes, entry) > 0);
            set_bitmap_count(bytes, entry, *count);
        }
    });
    image.edit(index, BlockKind::Index, |bytes| {
        let free = i64::from(le32(bytes, 24)) - taken;
        set32(bytes, 24, free as u32);
        set32(bytes, 28, 0);
    });
    image.edit(0, BlockKind::ThinSuperblock, |bytes| {
        let allocated = le64(bytes, 200) as i64 + taken;
        set64(bytes, 200, allocated as u64);
    });
}

/// Reserves a metadata snapshot, as the kernel does (docs/format.md 4.5); returns its block.
pub fn hold_snapshot(image: &mut Image) -> u64 {
    let superblock = image.block(0);
    assert_eq!(le64(&superblock, 56), 0, "there is one");
    let index = le64(&superblock, 208);
    let bitmap = image.block(le64(&image.block(index), 16));
    let nr_blocks = le64(&superblock, 192).min(16_320);
    let free = (1..nr_blocks).rev().find(|block| bitmap_count(&bitmap, *block as usize) == 0).unwrap();
    let roots = [320, 328].map(|offset| le64(&superblock, offset));
    set_counts(image, &[(free, 1), (roots[0], 2), (roots[1], 2)]);
    image.put(free, superblock);
    image.edit(free, BlockKind::ThinSuperblock, |bytes| bytes[64..320].fill(0));
    image.edit(0, BlockKind::ThinSuperblock, |bytes| set64(bytes, 56, free));
    free
}

/// Puts a tree under the root `root` of a device that has more paths than anybody can walk: every entry of a node leads to the
/// same node below, and the lowest node leads to a leaf that does not belong there.
pub fn make_maze(image: &mut Image, root: u64, levels: u64) {
    let first =
        1 + (1..image.nr_blocks()).rev().find(|block| image.block(*block).iter().any(|byte| *byte != 0)).unwrap();
    let place = |level: u64| if level == levels { root } else { first + level };
    let mut put = |level: u64, flags: u32, keys: &[u64], values: &[u64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut block = [0; BLOCK_SIZE];
        node::write(&mut block, BlockNr(place(level)), flags, keys, 8, &bytes);
        image.put(place(level), block);
    };
    put(0, FLAG_LEAF, &[0], &[0]);
    put(1, FLAG_INTERNAL, &[1_000_000], &[place(0)]);
    for level in 2..=levels {
        let keys: Vec<u64> = (2_000_000..2_000_252).collect();
        put(level, FLAG_INTERNAL, &keys, &[place(level - 1); 252]);
    }
}
