//! Inputs that are changes to a small sound pool: with checksums made right again, they get past the first test.

use super::Bytes;
use super::image::Image;
use dmeta::base::BlockNr;
use dmeta::block::BlockSource;
use dmeta::block::memory::MemorySource;
use dmeta::format::block::{self, BLOCK_SIZE, Block, BlockKind, le32};
use dmeta::thin::generate::{GenerateOptions, generate};
use std::sync::OnceLock;

/// A sound pool and where its parts are.
pub struct Base {
    pub image: Image,
    /// Blocks in use and their kinds.
    pub blocks: Vec<(u64, BlockKind)>,
}

fn make(nr_blocks: u64, options: &GenerateOptions) -> Base {
    let mut memory = MemorySource::new(nr_blocks);
    generate(&mut memory, options).unwrap();
    let kind = |location| block::identify(memory.get(BlockNr(location))?);
    let blocks = (0..nr_blocks).filter_map(|location| Some((location, kind(location)?))).collect();
    Base { image: Image::new(memory), blocks }
}

/// The pools: one with snapshots on trees of two levels and a metadata snapshot, and one of one device.
pub fn bases() -> &'static [Base; 2] {
    static BASES: OnceLock<[Base; 2]> = OnceLock::new();
    BASES.get_or_init(|| {
        let snapshots = GenerateOptions {
            devices: 2,
            snapshots: 2,
            mappings: 700,
            leaf_fill: 40..=60,
            change: 20,
            metadata_snapshot: true,
            ..GenerateOptions::default()
        };
        let one = GenerateOptions { devices: 1, mappings: 40, ..GenerateOptions::default() };
        [make(150, &snapshots), make(20, &one)]
    })
}

/// A pool with the changes that `bytes` says, in blocks of the kinds that `takes` takes.
pub fn image(bytes: &mut Bytes<'_>, takes: fn(BlockKind) -> bool) -> Image {
    let base = &bases()[usize::from(bytes.u8()) % 2];
    let blocks: Vec<(u64, BlockKind)> = base.blocks.iter().copied().filter(|(_, kind)| takes(*kind)).collect();
    let mut image = base.image.clone();
    // Each change takes three bytes and more; a handful is enough to get anywhere.
    for _ in 0..64 {
        if bytes.is_empty() {
            break;
        }
        let (location, kind) = blocks[usize::from(bytes.u8()) % blocks.len()];
        let how = bytes.u8();
        change(&mut image, location, how & 0x1f, bytes, &blocks);
        if how & 0x80 == 0 {
            let kind = if how & 0x60 == 0x60 { BlockKind::ALL[usize::from(bytes.u8()) % 7] } else { kind };
            image.edit(location, kind, |_| ());
        }
    }
    image
}

fn change(image: &mut Image, location: u64, how: u8, bytes: &mut Bytes<'_>, blocks: &[(u64, BlockKind)]) {
    match how {
        0..=7 => {
            let at = usize::from(bytes.u16()) % BLOCK_SIZE;
            let length = usize::from(bytes.u8()) % 16 + 1;
            let new = bytes.take(length.min(BLOCK_SIZE - at));
            image.spoil(location, |block| block[at..at + new.len()].copy_from_slice(new));
        }
        8..=11 => word(image, location, 8 * (usize::from(bytes.u16()) % 512), bytes),
        12 | 13 => word(image, location, 32 + 8 * usize::from(bytes.u8()), bytes),
        14..=17 => {
            let block = image.block(location);
            let [max, size] = [20, 24].map(|at| le32(&block, at) as usize % 512);
            word(image, location, 32 + 8 * max + size * usize::from(bytes.u8()), bytes);
        }
        18..=20 => {
            let (at, new) = (4 * (usize::from(bytes.u8()) % 8), u32::from(bytes.u16()));
            image.spoil(location, |block| block[at..at + 4].copy_from_slice(&new.to_le_bytes()));
        }
        21 | 22 => {
            let (from, _) = blocks[usize::from(bytes.u8()) % blocks.len()];
            let content = image.block(from);
            image.put(location, content);
        }
        23 => image.put(location, [0; BLOCK_SIZE]),
        24 => image.set_nr_blocks(u64::from(bytes.u8())),
        25 => image.make_unreadable(location),
        26 => {
            let (first, second) = (usize::from(bytes.u16()) % 4089, usize::from(bytes.u16()) % 4089);
            image.spoil(location, |block| (0..8).for_each(|at| block.swap(first + at, second + at)));
        }
        _ => {
            // A shift of everything behind a place, as a lost or a doubled entry leaves it.
            let (at, by) = (usize::from(bytes.u16()) % BLOCK_SIZE, usize::from(bytes.u8() % 16) + 1);
            let to = (at + by).min(BLOCK_SIZE);
            image.spoil(location, |block| block.copy_within(at..BLOCK_SIZE - (to - at), to));
        }
    }
}

/// Writes a small number, or any number, or changes the one that is there by one.
fn word(image: &mut Image, location: u64, at: usize, bytes: &mut Bytes<'_>) {
    let at = at.min(BLOCK_SIZE - 8);
    let old = block::le64(&image.block(location), at);
    let new = match bytes.u8() {
        0 => bytes.u64(),
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => old ^ 1 << (bytes.u8() % 64),
        small => u64::from(small - 4),
    };
    image.spoil(location, |block| block[at..at + 8].copy_from_slice(&new.to_le_bytes()));
}

/// A block that begins with the rest of an input, sealed as one of `kind`.
pub fn block(bytes: &mut Bytes<'_>, kind: BlockKind, location: BlockNr) -> Block {
    let mut block = [0; BLOCK_SIZE];
    let given = bytes.take(BLOCK_SIZE);
    block[..given.len()].copy_from_slice(given);
    block::seal(&mut block, kind, location);
    block
}

/// The image as blocks in memory; `None` where some can't be read.
pub fn memory(image: &Image) -> Option<MemorySource> {
    let bytes = image.to_bytes()?;
    let (blocks, _) = bytes.as_chunks::<BLOCK_SIZE>();
    let mut memory = MemorySource::new(image.nr_blocks());
    for (location, block) in (0..).map(BlockNr).zip(blocks).filter(|(_, block)| !block::is_zero(block)) {
        memory.put(location, block).unwrap();
    }
    Some(memory)
}
