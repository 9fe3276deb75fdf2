//! Damage drawn from a seed, done to blocks that something leads to.

use super::image::{Image, set32, set64};
use super::model::{Model, Reached, Use};
use dmeta::block::BlockSource;
use dmeta::format::block::{BLOCK_SIZE, BlockKind, le32, le64};
use dmeta::format::space_map::{bitmap_count, set_bitmap_count};
use std::collections::BTreeMap;

/// Numbers from a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// What a damager knows of the image that it damages.
#[derive(Clone)]
pub struct Target {
    pub image: Image,
    pub reached: BTreeMap<u64, Reached>,
    pub blocks: Vec<u64>,
}

impl Target {
    pub fn new(image: Image) -> Target {
        let reached = Model::read(&image).reached;
        let blocks = reached.keys().copied().collect();
        Target { image, reached, blocks }
    }

    fn used_for(&self, block: u64) -> Use {
        self.reached[&block].used_for
    }

    fn kind(&self, block: u64) -> BlockKind {
        self.used_for(block).block_kind()
    }

    /// A reachable block, each kind as likely as any other: there are few superblocks and many leaves.
    fn any(&self, random: &mut Random) -> u64 {
        if random.chance(4) {
            return random.pick(&self.blocks);
        }
        let mut uses: Vec<Use> = self.reached.values().map(|reached| reached.used_for).collect();
        uses.sort();
        uses.dedup();
        let wanted = random.pick(&uses);
        self.of(random, |reached| reached.used_for == wanted).unwrap_or(0)
    }

    fn of(&self, random: &mut Random, fits: impl Fn(&Reached) -> bool) -> Option<u64> {
        let all: Vec<u64> = self.blocks.iter().copied().filter(|block| fits(&self.reached[block])).collect();
        (!all.is_empty()).then(|| random.pick(&all))
    }

    fn node(&self, random: &mut Random) -> u64 {
        let wanted = random.pick(&[
            Use::Details,
            Use::TopLevel,
            Use::Mappings,
            Use::DataIndex,
            Use::DataCounts,
            Use::MetadataCounts,
        ]);
        self.of(random, |reached| reached.used_for == wanted).unwrap_or(0)
    }

    fn ancestors(&self, block: u64) -> Vec<u64> {
        let mut all = vec![block];
        while let Some((parent, _)) = self.reached[&all[all.len() - 1]].parent {
            all.push(parent);
        }
        all
    }
}

/// Values that are more likely than others to do harm.
fn odd(random: &mut Random, old: u64) -> u64 {
    let bit = 1u64 << random.below(64);
    random.pick(&[
        0,
        1,
        2,
        3,
        old.wrapping_add(1),
        old.wrapping_sub(1),
        old ^ bit,
        old << 1,
        old >> 1,
        1 << 24,
        1 << 32,
        u64::MAX,
        u64::MAX >> 1,
        bit,
    ])
}

type Damage = fn(&Target, &mut Random, &mut Image) -> String;

const DAMAGES: &[Damage] = &[
    flip_a_bit,
    flip_a_bit,
    flip_and_seal,
    flip_and_seal,
    flip_and_seal,
    zero,
    tear,
    swap,
    stale,
    pointer,
    pointer,
    node_header,
    key,
    value,
    value,
    index_entry,
    bitmap_entry,
    bitmap_entry,
    superblock_field,
    superblock_field,
    truncate,
    unreadable,
];

/// Damages a copy of the image; says how.
pub fn damage(target: &Target, random: &mut Random) -> (Image, String) {
    let mut image = target.image.clone();
    let mut done = vec![random.pick(DAMAGES)(target, random, &mut image)];
    while random.chance(8) {
        done.push(random.pick(DAMAGES)(target, random, &mut image));
    }
    (image, done.join("; "))
}

fn flip_a_bit(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let (block, bit) = (target.any(random), random.below(8 * BLOCK_SIZE));
    image.spoil(block, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
    format!("bit {} of byte {:#x} of {:?} {block} flipped", bit % 8, bit / 8, target.used_for(block))
}

fn flip_and_seal(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target.any(random);
    // Most of what matters is in the first bytes; values of nodes are in the upper half.
    let end = random.pick(&[32, 64, 400, BLOCK_SIZE]);
    let bits: Vec<usize> = (0..random.pick(&[1, 1, 2, 8])).map(|_| random.below(8 * end)).collect();
    image.edit(block, target.kind(block), |bytes| bits.iter().for_each(|bit| bytes[bit / 8] ^= 1 << (bit % 8)));
    let places: Vec<String> = bits.iter().map(|bit| format!("{:#x}.{}", bit / 8, bit % 8)).collect();
    format!("bits {} of {:?} {block} flipped, sealed", places.join(" "), target.used_for(block))
}

fn zero(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target.any(random);
    let seal = random.chance(3);
    if seal {
        image.edit(block, target.kind(block), |bytes| bytes.fill(0));
    } else {
        image.put(block, [0; BLOCK_SIZE]);
    }
    format!("{:?} {block} zeroed, sealed: {seal}", target.used_for(block))
}

fn tear(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target.any(random);
    let wanted = target.used_for(block);
    let other = target.of(random, |reached| reached.used_for == wanted).unwrap_or(block);
    let (sectors, seal) = (1 + random.below(7), random.chance(2));
    let bytes = target.image.block(other);
    image.spoil(block, |old| old[..512 * sectors].copy_from_slice(&bytes[..512 * sectors]));
    if seal {
        image.edit(block, target.kind(block), |_| ());
    }
    format!("{sectors} sectors of {wanted:?} {block} from {other}, sealed: {seal}")
}

fn swap(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target.any(random);
    let wanted = target.kind(block);
    let other = target.of(random, |reached| reached.used_for.block_kind() == wanted).unwrap_or(block);
    let seal = random.chance(2);
    for (to, from) in [(block, other), (other, block)] {
        image.put(to, target.image.block(from));
        if seal {
            image.edit(to, target.kind(to), |_| ());
        }
    }
    format!("{:?} {block} and {:?} {other} swapped, sealed: {seal}", target.used_for(block), target.used_for(other))
}

/// What a block held before, as far as free blocks still show it; or what another of its kind holds.
fn stale(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target.any(random);
    let from = if random.chance(2) { target.any(random) } else { random.next() % target.image.nr_blocks() };
    image.put(block, target.image.block(from));
    image.edit(block, target.kind(block), |_| ());
    format!("{:?} {block} holds what {from} holds, sealed", target.used_for(block))
}

fn pointer(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target
        .of(random, |reached| match reached.used_for {
            Use::TopLevel | Use::DataIndex => true,
            used_for => used_for.value_size().is_some() && !reached.is_leaf,
        })
        .filter(|_| random.chance(4) || target.blocks.len() > 20);
    let Some(block) = block else { return superblock_field(target, random, image) };
    let ancestors = target.ancestors(block);
    let to = match random.below(6) {
        0 => random.pick(&ancestors),
        1 => 0,
        2 => target.image.nr_blocks() + random.next() % 3,
        3 => random.next() % target.image.nr_blocks(),
        4 => odd(random, block),
        _ => random.pick(&target.blocks),
    };
    let entry = set_value(target, random, image, block, |value| set64_in(value, to));
    format!("entry {entry} of {:?} {block} leads to {to}", target.used_for(block))
}

fn set64_in(value: &mut [u8], number: u64) {
    value[..8].copy_from_slice(&number.to_le_bytes());
}

/// Changes the value of a random entry of a node; returns the entry.
fn set_value(
    target: &Target,
    random: &mut Random,
    image: &mut Image,
    block: u64,
    change: impl FnOnce(&mut [u8]),
) -> usize {
    let old = image.block(block);
    let [entries, max, size] = [16, 20, 24].map(|offset| le32(&old, offset) as usize);
    let entry = random.below(entries);
    let begin = (32 + 8 * max + size * entry).min(BLOCK_SIZE - size.min(BLOCK_SIZE));
    image.edit(block, target.kind(block), |bytes| {
        if entries > 0 && (4..=24).contains(&size) {
            change(&mut bytes[begin..begin + size]);
        }
    });
    entry
}

fn node_header(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let (block, field) = (target.node(random), random.pick(&[4, 16, 16, 20, 24]));
    if block == 0 {
        return "nothing".into();
    }
    let old = le32(&image.block(block), field);
    let harmful = odd(random, old.into()) as u32;
    let new = random.pick(&[harmful, 0, 1, 2, 84, 252, 253, 336, 508, u32::MAX]);
    image.edit(block, target.kind(block), |bytes| set32(bytes, field, new));
    format!("field {field} of {:?} {block}: {old} to {new}", target.used_for(block))
}

fn key(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target.node(random);
    if block == 0 {
        return "nothing".into();
    }
    let entry = random.below(le32(&image.block(block), 16) as usize);
    let offset = 32 + 8 * entry.min(500);
    let old = le64(&image.block(block), offset);
    let neighbour = le64(&image.block(block), offset + 8);
    let harmful = odd(random, old);
    let new = random.pick(&[harmful, neighbour, neighbour.wrapping_add(1)]);
    image.edit(block, target.kind(block), |bytes| set64(bytes, offset, new));
    format!("key {entry} of {:?} {block}: {old} to {new}", target.used_for(block))
}

fn value(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target.node(random);
    if block == 0 {
        return "nothing".into();
    }
    let mut said = String::new();
    let [shift, which, draw] = [random.below(64), random.below(3), random.next() as usize];
    let mut inner = Random::new(draw as u64);
    let entry = set_value(target, random, image, block, |value| {
        let field = (8 * which).min(value.len().saturating_sub(8));
        let mut old = [0; 8];
        let width = value.len().min(8);
        old[..width].copy_from_slice(&value[field..field + width]);
        let old = u64::from_le_bytes(old);
        let harmful = odd(&mut inner, old);
        let new = inner.pick(&[harmful, old ^ (1 << shift), old.wrapping_add(1 << 24)]);
        value[field..field + width].copy_from_slice(&new.to_le_bytes()[..width]);
        said = format!("{old:#x} to {new:#x}");
    });
    format!("value {entry} of {:?} {block}: {said}", target.used_for(block))
}

fn index_entry(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let Some(block) = target.of(random, |reached| reached.used_for == Use::Index) else { return "nothing".into() };
    let offset = random.pick(&[16, 16, 24, 24, 28, 32, 40]);
    let old = le64(&image.block(block), offset);
    let new = odd(random, old);
    image.edit(block, BlockKind::Index, |bytes| {
        if offset.is_multiple_of(16) {
            set64(bytes, offset, new);
        } else {
            set32(bytes, offset, new as u32);
        }
    });
    format!("byte {offset} of index {block}: {old:#x} to {new:#x}")
}

fn bitmap_entry(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let wanted = random.pick(&[Use::DataBitmap, Use::MetadataBitmap]);
    let Some(block) = target.of(random, |reached| reached.used_for == wanted) else { return "nothing".into() };
    let old = image.block(block);
    let used: Vec<usize> = (0..16_320).filter(|entry| bitmap_count(&old, *entry) > 0).collect();
    let entry = if used.is_empty() || random.chance(4) { random.below(16_320) } else { random.pick(&used) };
    let count = random.below(4) as u8;
    image.edit(block, BlockKind::Bitmap, |bytes| set_bitmap_count(bytes, entry, count));
    format!("entry {entry} of {wanted:?} {block}: {} to {count}", bitmap_count(&old, entry))
}

/// Offset and width of the fields of a superblock.
const FIELDS: &[(usize, usize)] = &[
    (4, 4),
    (32, 8),
    (40, 4),
    (44, 4),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (192, 8),
    (200, 8),
    (208, 8),
    (216, 8),
    (320, 8),
    (328, 8),
    (336, 4),
    (340, 4),
    (344, 8),
    (352, 4),
    (356, 4),
    (360, 4),
];

fn superblock_field(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block =
        if random.chance(4) { target.of(random, |reached| reached.used_for == Use::Snapshot).unwrap_or(0) } else { 0 };
    let (offset, width) = random.pick(FIELDS);
    let old = if width == 8 { le64(&image.block(block), offset) } else { le32(&image.block(block), offset).into() };
    let (harmful, other) = (odd(random, old), random.pick(&target.blocks));
    let new = random.pick(&[harmful, other, old.wrapping_add(128)]);
    image.edit(block, BlockKind::ThinSuperblock, |bytes| {
        if width == 8 {
            set64(bytes, offset, new);
        } else {
            set32(bytes, offset, new as u32);
        }
    });
    format!("field {offset} of superblock {block}: {old} to {new}")
}

fn truncate(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let nr_blocks = target.image.nr_blocks();
    let left = if random.chance(2) { random.next() % nr_blocks } else { nr_blocks - 1 - random.next() % 3 };
    image.set_nr_blocks(left);
    format!("cut to {left} blocks")
}

fn unreadable(target: &Target, random: &mut Random, image: &mut Image) -> String {
    let block = target.any(random);
    image.make_unreadable(block);
    format!("{:?} {block} unreadable", target.used_for(block))
}
