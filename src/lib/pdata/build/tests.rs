//! Trees of every shape against what was put in.

use super::*;
use crate::block::BlockSource;
use crate::block::memory::MemorySource;
use crate::format::node;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Puts nodes into memory, from block 1 on, and counts references.
struct Memory {
    image: MemorySource,
    counts: BTreeMap<BlockNr, u32>,
}

impl Memory {
    fn new() -> Self {
        Memory { image: MemorySource::new(1 << 20), counts: BTreeMap::new() }
    }
}

impl NodeSink for Memory {
    type Error = Infallible;

    fn node<const V: usize>(&mut self, node: &mut NodeBuf<V>) -> Result<BlockNr, Infallible> {
        let location = BlockNr(self.counts.len() as u64 + 1);
        self.counts.insert(location, 1);
        self.image.put(location, node.seal(location)).unwrap();
        Ok(location)
    }

    fn share(&mut self, block: BlockNr) {
        *self.counts.get_mut(&block).unwrap() += 1;
    }
}

/// What a test wants to know of a tree.
struct Tree<'a, const V: usize> {
    memory: &'a Memory,
    entries: Vec<(u64, [u8; V])>,
    leaves: Vec<Child>,
    leaf_depth: Option<usize>,
    references: Vec<BlockNr>,
    min: usize,
}

impl<'a, const V: usize> Tree<'a, V> {
    fn read(memory: &'a Memory, root: BlockNr, min: usize) -> Self {
        let mut tree = Tree { memory, entries: vec![], leaves: vec![], leaf_depth: None, references: vec![], min };
        tree.visit(root, 0);
        tree
    }

    fn visit(&mut self, location: BlockNr, depth: usize) {
        self.references.push(location);
        let block = self.memory.image.read(location).unwrap();
        let node = node::verify(&block, location, V).unwrap();
        assert_eq!(node.first_out_of_order(), None);
        assert_eq!(node.max_entries(), if node.is_leaf() { max_entries(V) } else { 252 });
        let min = if node.is_leaf() { self.min } else { 126 };
        assert!(depth == 0 || node.len() >= min, "{} entries at depth {depth}", node.len());
        if !node.is_leaf() {
            assert!(node.len() >= 2);
            for index in 0..node.len() {
                let child = self.memory.image.read(node.child(index)).unwrap();
                assert_eq!(node::verify(&child, node.child(index), V).unwrap().key(0), node.key(index));
                self.visit(node.child(index), depth + 1);
            }
            return;
        }
        assert_eq!(*self.leaf_depth.get_or_insert(depth), depth);
        let first_key = if node.is_empty() { 0 } else { node.key(0) };
        self.leaves.push(Child { first_key, block: location, len: node.len() as u32 });
        for (key, value) in node.keys().iter().zip(node.value_bytes().chunks_exact(V)) {
            self.entries.push((key.get(), value.try_into().unwrap()));
        }
    }
}

fn value<const V: usize>(seed: u64) -> [u8; V] {
    std::array::from_fn(|index| (seed.wrapping_mul(0x9e37_79b9) >> (index % 8)) as u8)
}

fn build<const V: usize>(
    keys: impl Iterator<Item = u64>,
    builder: &mut TreeBuilder<V>,
    memory: &mut Memory,
) -> BlockNr {
    for key in keys {
        builder.push(key, &value(key), memory).unwrap();
    }
    builder.finish(&mut NothingShared, memory).unwrap()
}

fn any_number_of_entries_fits<const V: usize>() {
    let max = max_entries(V) as u64;
    let mut builder = TreeBuilder::<V>::new();
    let around = |n: u64| [n - 1, n, n + 1];
    let counts = [0, 1, 2].into_iter().chain(around(max)).chain(around(2 * max)).chain(around(3 * max));
    for count in counts.chain(around(252 * max)).chain(around(253 * max)) {
        let mut memory = Memory::new();
        let root = build((0..count).map(|key| key * 3), &mut builder, &mut memory);
        let tree = Tree::<V>::read(&memory, root, max_entries(V) / 2);
        assert_eq!(tree.entries.len() as u64, count);
        for (index, (key, stored)) in tree.entries.iter().enumerate() {
            assert_eq!((*key, *stored), (index as u64 * 3, value(index as u64 * 3)));
        }
        assert_eq!(tree.references.len(), memory.counts.len());
        assert_eq!(tree.leaves.len() as u64, count.div_ceil(max).max(1));
    }
}

#[test]
fn trees_of_every_value_size_hold_what_was_put_in() {
    any_number_of_entries_fits::<4>();
    any_number_of_entries_fits::<8>();
    any_number_of_entries_fits::<12>();
    any_number_of_entries_fits::<16>();
    any_number_of_entries_fits::<24>();
}

#[test]
fn three_levels() {
    let (mut builder, mut memory) = (TreeBuilder::<24>::new(), Memory::new());
    let root = build(0..252 * 252 * 126 + 1, &mut builder, &mut memory);
    let tree = Tree::<24>::read(&memory, root, 63);
    assert_eq!(tree.leaf_depth, Some(3));
    assert_eq!(tree.entries.len(), 252 * 252 * 126 + 1);
}

#[test]
fn unused_room_is_zero() {
    let (mut builder, mut memory) = (TreeBuilder::<8>::new(), Memory::new());
    build(1..=600, &mut builder, &mut memory);
    let root = build(1..=2, &mut builder, &mut memory);
    let block = memory.image.read(root).unwrap();
    assert!(block[node::HEADER_SIZE + 16..node::HEADER_SIZE + 8 * 252].iter().all(|byte| *byte == 0));
    assert!(block[node::HEADER_SIZE + 8 * 252 + 16..].iter().all(|byte| *byte == 0));
}

/// Entries of shared leaves, read from the image.
struct FromImage<'a>(&'a MemorySource);

impl LeafEntries<8, Infallible> for FromImage<'_> {
    fn entries(&mut self, leaf: &SharedLeaf, each: &mut EachEntry<'_, 8, Infallible>) -> Result<(), Infallible> {
        let location = leaf.child.block;
        let block = self.0.read(location).unwrap();
        let node = node::verify(&block, location, 8).unwrap();
        for (key, value) in node.keys().iter().zip(node.value_bytes().chunks_exact(8)) {
            each(key.get(), value.try_into().unwrap())?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Piece {
    Own(u64),
    Shared(usize),
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        prop_oneof![1u64..10, 70u64..100, 1u64..800].prop_map(Piece::Own),
        (0usize..6).prop_map(Piece::Shared),
    ];
    prop::collection::vec(piece, 0..12)
}

proptest! {
    #[test]
    fn shared_leaves_keep_trees_sound(
        sizes in prop::collection::vec(prop_oneof![1u64..140, 200u64..900], 6),
        trees in prop::collection::vec(pieces(), 1..6),
    ) {
        // Each device is a row of pieces; piece i has the keys from i * 1000 on, a shared one its own copy per i.
        let (mut builder, mut memory) = (TreeBuilder::<8>::new(), Memory::new());
        let mut shared: BTreeMap<(usize, usize), Vec<Child>> = BTreeMap::new();
        for place in 0..12 {
            for (number, size) in sizes.iter().enumerate() {
                let begin = place as u64 * 1000;
                let root = build(begin..begin + size, &mut builder, &mut memory);
                let tree = Tree::<8>::read(&memory, root, 126);
                shared.insert((place, number), tree.leaves);
            }
        }
        let mut expected = memory.counts.clone();
        for tree in &trees {
            let mut keys = vec![];
            for (place, piece) in tree.iter().enumerate() {
                let begin = place as u64 * 1000;
                let size = match piece {
                    Piece::Own(size) => {
                        (begin..begin + size).for_each(|key| builder.push(key, &value(key), &mut memory).unwrap());
                        *size
                    }
                    Piece::Shared(number) => {
                        for leaf in &shared[&(place, *number)] {
                            let image = memory.image.clone();
                            let leaf = SharedLeaf { child: *leaf, handle: 0 };
                            builder.share(leaf, &mut FromImage(&image), &mut memory).unwrap();
                        }
                        sizes[*number]
                    }
                };
                keys.extend(begin..begin + size);
            }
            let image = memory.image.clone();
            let root = builder.finish(&mut FromImage(&image), &mut memory).unwrap();
            let read = Tree::<8>::read(&memory, root, TreeBuilder::<8>::SHARED_MIN);
            prop_assert_eq!(read.entries, keys.iter().map(|key| (*key, value(*key))).collect::<Vec<_>>());
            for block in read.references {
                *expected.entry(block).or_default() += 1;
            }
        }
        prop_assert_eq!(&memory.counts, &expected);
    }

    #[test]
    fn a_large_shared_run_is_not_copied(own in 84u64..700, leaves in 1u64..5, tail in 84u64..700) {
        let (mut builder, mut memory) = (TreeBuilder::<8>::new(), Memory::new());
        let root = build(1000..1000 + leaves * 252, &mut builder, &mut memory);
        let shared = Tree::<8>::read(&memory, root, 126).leaves;
        (0..own).for_each(|key| builder.push(key, &value(key), &mut memory).unwrap());
        for leaf in &shared {
            builder.share(SharedLeaf { child: *leaf, handle: 0 }, &mut NothingShared, &mut memory).unwrap();
        }
        (0..tail).for_each(|key| builder.push(10_000 + key, &value(key), &mut memory).unwrap());
        builder.finish(&mut NothingShared, &mut memory).unwrap();
        for leaf in shared {
            prop_assert_eq!(memory.counts[&leaf.block], 2);
        }
    }
}
