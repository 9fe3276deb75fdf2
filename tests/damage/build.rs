//! A small pool with what the kernel's images lack: upper trees of several leaves, mapping trees of three levels that
//! share nodes on each of them, counts above 2 in both space maps, and a metadata snapshot older than the trees.

use super::image::Image;
use super::model::Model;
use dmeta::base::BlockNr;
use dmeta::block::memory::MemorySource;
use dmeta::format::block::{self, BLOCK_SIZE, Block, BlockKind};
use dmeta::format::details::DeviceDetails;
use dmeta::format::node::{self, FLAG_INTERNAL, FLAG_LEAF};
use dmeta::format::space_map::{SpaceMapRoot, set_bitmap_count};
use dmeta::format::superblock::ThinSuperblock;
use std::collections::BTreeMap;
use zerocopy::{FromZeros, IntoBytes};

const NR_BLOCKS: u64 = 1024;
const NR_DATA_BLOCKS: u64 = 40_000;
const NR_DEVICES: u64 = 300;
const TIME: u64 = 9;

struct Builder {
    image: MemorySource,
    next: u64,
}

impl Builder {
    fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn put(&mut self, location: u64, block: &Block) {
        self.image.put(BlockNr(location), block).unwrap();
    }

    fn node(&mut self, flags: u32, entries: &[(u64, Vec<u8>)]) -> u64 {
        let location = self.take();
        let keys: Vec<u64> = entries.iter().map(|(key, _)| *key).collect();
        let values = entries.iter().flat_map(|(_, value)| value.clone()).collect::<Vec<u8>>();
        let value_size = entries.first().map_or(8, |(_, value)| value.len());
        let mut block = [0; BLOCK_SIZE];
        node::write(&mut block, BlockNr(location), flags, &keys, value_size, &values);
        self.put(location, &block);
        location
    }

    /// A level above `children`, with so many entries in each node.
    fn level(&mut self, children: &[(u64, u64)], fill: usize) -> Vec<(u64, u64)> {
        let nodes = children.chunks(fill);
        nodes.map(|nodes| (nodes[0].0, self.node(FLAG_INTERNAL, &numbers(nodes)))).collect()
    }

    fn leaves(&mut self, entries: &[(u64, Vec<u8>)], fill: usize) -> Vec<(u64, u64)> {
        entries.chunks(fill).map(|entries| (entries[0].0, self.node(FLAG_LEAF, entries))).collect()
    }

    /// A tree of leaves that hold about as many entries each; returns its root.
    fn tree(&mut self, entries: &[(u64, Vec<u8>)], leaf_fill: usize, fill: usize) -> u64 {
        let even_fill = entries.len().div_ceil(entries.len().div_ceil(leaf_fill));
        let mut level = self.leaves(entries, even_fill);
        while level.len() > 1 {
            level = self.level(&level, fill);
        }
        level[0].1
    }

    fn empty_tree(&mut self, value_size: usize) -> u64 {
        let location = self.take();
        let mut block = [0; BLOCK_SIZE];
        node::write(&mut block, BlockNr(location), FLAG_LEAF, &[], value_size, &[]);
        self.put(location, &block);
        location
    }

    fn counts_tree(&mut self, counts: &BTreeMap<u64, u64>) -> u64 {
        let above: Vec<_> = counts
            .iter()
            .filter(|(_, count)| **count > 2)
            .map(|(block, count)| (*block, (*count as u32).to_le_bytes().to_vec()))
            .collect();
        if above.is_empty() { self.empty_tree(4) } else { self.tree(&above, 200, 252) }
    }
}

fn numbers(pairs: &[(u64, u64)]) -> Vec<(u64, Vec<u8>)> {
    pairs.iter().map(|(key, number)| (*key, number.to_le_bytes().to_vec())).collect()
}

/// Mappings of every third block; `shift` makes them others. Most lead to 300 data blocks, some to blocks that are
/// used once or twice.
fn mappings(begin: u64, length: u64, shift: u64) -> Vec<(u64, Vec<u8>)> {
    let data = |at: u64| match at % 9 {
        0 => 1000 + at + shift,
        4 => 20_000 + at / 18 + shift,
        _ => (at * 7 + shift) % 300,
    };
    let value = |at: u64| (data(at) << 24) | ((at + shift) % TIME);
    numbers(&(begin..begin + length).map(|at| (3 * at, value(at))).collect::<Vec<_>>())
}

/// Roots and numbers of mappings of the devices.
fn devices(builder: &mut Builder) -> Vec<(u64, u64)> {
    // Three levels: 240 leaves of 3 entries, two nodes of 120.
    let leaves = builder.leaves(&mappings(0, 720, 0), 3);
    let halves = builder.level(&leaves, 120);
    let whole = builder.node(FLAG_INTERNAL, &numbers(&halves));
    // Another first half, every second leaf of which is the same.
    let others = builder.leaves(&mappings(0, 360, 5000), 3);
    let mixed: Vec<_> = (0..120).map(|at| if at % 2 == 0 { others[at] } else { leaves[at] }).collect();
    let mixed = builder.level(&mixed, 120);
    let other = builder.node(FLAG_INTERNAL, &numbers(&[mixed[0], halves[1]]));
    let small = builder.tree(&mappings(50, 20, 300), 252, 252);
    let empty = builder.empty_tree(8);
    let mut all = vec![(whole, 720), (whole, 720), (other, 720), (halves[1].1, 360)];
    for device in all.len() as u64..NR_DEVICES {
        all.push(match device % 10 {
            1 => (empty, 0),
            2 | 3 => (small, 20),
            4 => (builder.tree(&mappings(device, 30, device), 10, 252), 30),
            _ => (leaves[device as usize % 240].1, 3),
        });
    }
    all
}

fn upper_trees(builder: &mut Builder, devices: &[(u64, u64)]) -> [u64; 2] {
    let details = |(_, mapped): &(u64, u64)| {
        let details = DeviceDetails {
            mapped_blocks: (*mapped).into(),
            transaction_id: 2.into(),
            creation_time: 1.into(),
            snapshotted_time: 3.into(),
        };
        details.as_bytes().to_vec()
    };
    let ids = || (0..).map(|id| 2 * id);
    let details: Vec<_> = ids().zip(devices.iter().map(details)).collect();
    let roots: Vec<_> = ids().zip(devices.iter().map(|(root, _)| root.to_le_bytes().to_vec())).collect();
    [builder.tree(&roots, 100, 252), builder.tree(&details, 60, 252)]
}

/// The pool.
pub fn pool() -> Image {
    let mut builder = Builder { image: MemorySource::new(NR_BLOCKS), next: 1 };
    let live = devices(&mut builder);
    let [mapping_root, details_root] = upper_trees(&mut builder, &live);
    let [held_mapping, held_details] = upper_trees(&mut builder, &live[..180]);
    let held_root = builder.take();
    let mut superblock = ThinSuperblock::new_zeroed();
    superblock.magic = 27_022_010.into();
    superblock.version = 2.into();
    superblock.time = (TIME as u32).into();
    superblock.transaction_id = 4.into();
    superblock.data_block_size = 128.into();
    superblock.metadata_block_size = 8.into();
    superblock.metadata_nr_blocks = NR_BLOCKS.into();
    superblock.mapping_root = held_mapping.into();
    superblock.details_root = held_details.into();
    let held = superblock.to_block(BlockNr(held_root));
    builder.put(held_root, &held);
    superblock.mapping_root = mapping_root.into();
    superblock.details_root = details_root.into();
    superblock.held_root = held_root.into();
    superblock.data_space_map.nr_blocks = NR_DATA_BLOCKS.into();
    let block = superblock.to_block(BlockNr(0));
    builder.put(0, &block);
    space_maps(&mut builder, &mut superblock);
    let block = superblock.to_block(BlockNr(0));
    builder.put(0, &block);
    Image::new(builder.image)
}

/// Both space maps, for what the plain reader counts.
fn space_maps(builder: &mut Builder, superblock: &mut ThinSuperblock) {
    let image = Image::new(builder.image.clone());
    let model = Model::read_trees(&image);
    let (data_counts, mut metadata_counts) = (model.data_counts, model.metadata_counts);
    let first = builder.next;
    let data_tree = builder.counts_tree(&data_counts);
    let metadata_tree = builder.counts_tree(&metadata_counts);
    let bitmaps: Vec<u64> = (0..NR_DATA_BLOCKS.div_ceil(16_320)).map(|_| builder.take()).collect();
    let entries: Vec<_> =
        (0..).zip(&bitmaps).map(|(at, location)| (at, bitmap(builder, *location, at, &data_counts))).collect();
    let data_index = builder.tree(&entries, 168, 252);
    let (index, metadata_bitmap) = (builder.take(), builder.take());
    metadata_counts.extend((first..builder.next).map(|block| (block, 1)));
    let entry = bitmap(builder, metadata_bitmap, 0, &metadata_counts);
    let mut block = [0; BLOCK_SIZE];
    block[16..32].copy_from_slice(&entry);
    block::seal(&mut block, BlockKind::Index, BlockNr(index));
    builder.put(index, &block);
    let root = |nr_blocks: u64, counts: &BTreeMap<u64, u64>, bitmap_root: u64, ref_count_root: u64| SpaceMapRoot {
        nr_blocks: nr_blocks.into(),
        nr_allocated: (counts.len() as u64).into(),
        bitmap_root: bitmap_root.into(),
        ref_count_root: ref_count_root.into(),
        unused: [0xa5; 96],
    };
    superblock.data_space_map = root(NR_DATA_BLOCKS, &data_counts, data_index, data_tree);
    superblock.metadata_space_map = root(NR_BLOCKS, &metadata_counts, index, metadata_tree);
}

/// Writes a bitmap; returns its index entry.
fn bitmap(builder: &mut Builder, location: u64, number: u64, counts: &BTreeMap<u64, u64>) -> Vec<u8> {
    let mut block = [0; BLOCK_SIZE];
    let begin = 16_320 * number;
    let here: Vec<(u64, u64)> =
        counts.range(begin..begin + 16_320).map(|(block, count)| (block - begin, *count)).collect();
    here.iter().for_each(|(entry, count)| set_bitmap_count(&mut block, *entry as usize, (*count).min(3) as u8));
    block::seal(&mut block, BlockKind::Bitmap, BlockNr(location));
    builder.put(location, &block);
    let mut entry = [0; 16];
    entry[..8].copy_from_slice(&location.to_le_bytes());
    entry[8..12].copy_from_slice(&(16_320 - here.len() as u32).to_le_bytes());
    entry.to_vec()
}
