//! Changes in place: whatever the committed space maps are worth, the new ones are right, and a crash leaves the old
//! state or the new one.

use crate::base::BlockNr;
use crate::block::memory::MemorySource;
use crate::block::testing::{Applied, CrashingOutput, FailingOutput, Operation};
use crate::block::{BlockOutput, BlockSource};
use crate::format::block::{self, BLOCK_SIZE, Block, BlockKind, le64};
use crate::format::space_map::{self, SpaceMapRoot};
use crate::pdata::build::{NothingShared, TreeBuilder};
use crate::pdata::commit::tests::{Reader, Table, data};
use crate::pdata::commit::{CommitError, ImageWriter, SealedTransaction, SpaceMapRoots, Transaction};
use crate::pdata::ledger::{BlockUse, Ledger};
use proptest::prelude::*;
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

/// A superblock of the test's own: two trees and the space maps.
fn superblock(trees: [BlockNr; 2], roots: &SpaceMapRoots) -> Block {
    let mut block = [0; BLOCK_SIZE];
    for (index, tree) in trees.iter().enumerate() {
        block[1000 + 8 * index..][..8].copy_from_slice(&tree.0.to_le_bytes());
    }
    block[2000..2128].copy_from_slice(roots.data.as_ref().unwrap().as_bytes());
    block[2128..2256].copy_from_slice(roots.metadata.as_bytes());
    block::seal(&mut block, BlockKind::ThinSuperblock, BlockNr(0));
    block
}

fn parse(block: &Block) -> ([BlockNr; 2], SpaceMapRoots) {
    block::verify(block, BlockKind::ThinSuperblock, BlockNr(0)).unwrap();
    let root = |at: usize| SpaceMapRoot::read_from_bytes(&block[at..at + 128]).unwrap();
    let trees = [BlockNr(le64(block, 1000)), BlockNr(le64(block, 1008))];
    (trees, SpaceMapRoots { data: Some(root(2000)), metadata: root(2128) })
}

/// What an image holds: the number of entries of its trees, and the counts of the data blocks.
#[derive(Debug, PartialEq)]
struct State([usize; 2], Vec<u32>);

/// Reads an image in which everything has to be right.
fn state(image: &MemorySource) -> State {
    let (trees, roots) = parse(&image.read(BlockNr(0)).unwrap());
    let mut reader = Reader::new(image);
    let sizes = trees.map(|tree| reader.tree(tree.0, 8, BlockUse::Mappings).len());
    let counts = reader.data_counts(&roots.data.unwrap());
    reader.check_metadata_counts(&roots.metadata);
    State(sizes, counts)
}

/// Counts references as a check does; space maps that are damaged are left out.
fn ledger(image: &MemorySource, with_space_maps: bool) -> Ledger {
    let (trees, roots) = parse(&image.read(BlockNr(0)).unwrap());
    let mut reader = Reader::new(image);
    trees.iter().for_each(|tree| drop(reader.tree(tree.0, 8, BlockUse::Mappings)));
    if with_space_maps {
        reader.data_counts(&roots.data.unwrap());
        reader.check_metadata_counts(&roots.metadata);
    }
    let mut ledger = Ledger::new(BlockOutput::nr_blocks(image));
    for (block, count) in &reader.references {
        for _ in 0..*count {
            ledger.refer(BlockNr(*block), reader.uses[block]);
        }
    }
    ledger
}

fn grow(tree: &mut TreeBuilder<8>, size: u64, sink: &mut Transaction<'_>) -> BlockNr {
    (0..size).for_each(|key| tree.push(key, &key.to_le_bytes(), sink).unwrap());
    tree.finish(&mut NothingShared, sink).unwrap()
}

fn image(nr_blocks: u64, sizes: [u64; 2], table: &Table) -> MemorySource {
    let mut image = MemorySource::new(nr_blocks);
    let mut writer = ImageWriter::begin(&mut image).unwrap();
    let trees = sizes.map(|size| {
        let mut tree = TreeBuilder::<8>::new();
        (0..size).for_each(|key| tree.push(key, &key.to_le_bytes(), &mut writer).unwrap());
        tree.finish(&mut NothingShared, &mut writer).unwrap()
    });
    let sealed = writer.seal(Some(data(table))).unwrap();
    let block = superblock(trees, sealed.roots());
    sealed.commit(&block).unwrap();
    image
}

/// Replaces the second tree by one of `size` entries.
fn replace(
    source: &MemorySource,
    ledger: &Ledger,
    size: u64,
    table: &Table,
) -> Result<(SealedTransaction, Block), CommitError> {
    let (trees, committed) = parse(&source.read(BlockNr(0)).unwrap());
    let mut transaction = Transaction::begin(source, committed, ledger);
    let mut reader = Reader::new(source);
    reader.tree(trees[1].0, 8, BlockUse::Mappings);
    reader
        .references
        .keys()
        .filter(|block| **block != 0)
        .for_each(|block| assert_eq!(transaction.unrefer(BlockNr(*block)), 0));
    let new = grow(&mut TreeBuilder::new(), size, &mut transaction);
    let sealed = transaction.seal(Some(data(table)))?;
    let block = superblock([trees[0], new], sealed.roots());
    Ok((sealed, block))
}

fn table(length: usize, changes: &[(usize, u32)]) -> Table {
    let mut table = Table(vec![1; length]);
    for (at, count) in changes {
        if length > 0 {
            table.0[at % length] = *count;
        }
    }
    table
}

#[test]
fn what_stays_the_same_stays_where_it_is() {
    let counts = table(100_000, &[(7, 3), (8, 0), (50_000, 9)]);
    let before = image(20_000, [3000, 500], &counts);
    let (trees, committed) = parse(&before.read(BlockNr(0)).unwrap());
    let nothing = Transaction::begin(&before, committed.clone(), &ledger(&before, true));
    let sealed = nothing.seal(Some(data(&counts))).unwrap();
    assert_eq!(sealed.locations().len(), 0);
    assert_eq!(superblock(trees, sealed.roots()), *before.read(BlockNr(0)).unwrap());

    // One data count: its bitmap, the index, and of the metadata space map a bitmap and the index.
    let other = table(100_000, &[(7, 3), (8, 1), (50_000, 9)]);
    let one = Transaction::begin(&before, committed, &ledger(&before, true)).seal(Some(data(&other))).unwrap();
    assert_eq!(one.locations().len(), 4);
}

#[test]
fn needs_are_known_before_anything_is_written() {
    let counts = table(100, &[]);
    let roomy = image(100, [10, 10], &counts);
    let (sealed, _) = replace(&roomy, &ledger(&roomy, true), 252 * 20, &counts).unwrap();
    let (needed, used) = (sealed.locations().len() as u64, ledger_used(&roomy));
    for (nr_blocks, fits) in [(used + needed, true), (used + needed - 1, false)] {
        let tight = image(nr_blocks, [10, 10], &counts);
        match replace(&tight, &ledger(&tight, true), 252 * 20, &counts) {
            Ok(_) => assert!(fits),
            Err(CommitError::NoFreeBlocks { needed: found, free }) => {
                assert_eq!((fits, found, free), (false, needed, needed - 1));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn ledger_used(image: &MemorySource) -> u64 {
    let ledger = ledger(image, true);
    (0..ledger.nr_blocks()).filter(|block| ledger.count(BlockNr(*block)) > 0).count() as u64
}

/// Ways to damage the committed space maps.
fn damage(image: &mut MemorySource, kind: u8, at: u64) {
    let (_, roots) = parse(&image.read(BlockNr(0)).unwrap());
    let index = BlockNr(roots.metadata.bitmap_root.get());
    let bitmap = BlockNr(space_map::index_entries(&image.read(index).unwrap(), 1)[0].blocknr.get());
    let data_root = roots.data.unwrap();
    let hit = match kind {
        0 => return,
        1 => {
            // Leaks: blocks that nothing refers to are counted.
            let mut block = image.read(bitmap).unwrap();
            let used = ledger_used(image);
            (0..5).for_each(|n| space_map::set_bitmap_count(&mut block, (used + (at + n) % 60) as usize, 1));
            block::seal(&mut block, BlockKind::Bitmap, bitmap);
            image.put(bitmap, &block).unwrap();
            return;
        }
        2 => bitmap,
        3 => index,
        4 => BlockNr(data_root.bitmap_root.get()),
        5 => BlockNr(data_root.ref_count_root.get()),
        _ => BlockNr(roots.metadata.ref_count_root.get()),
    };
    let mut block = image.read(hit).unwrap();
    block[(at % 4096) as usize] ^= 0x55;
    image.put(hit, &block).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn space_maps_are_right_whatever_they_were_before(
        nr_blocks in prop_oneof![Just(150u64), 150u64..40_000],
        sizes in [0u64..3000, 0u64..3000], size in 0u64..3000,
        length in prop_oneof![0usize..100, 0usize..60_000],
        old in prop::collection::vec((0usize..60_000, 0u32..6), 0..20),
        new in prop::collection::vec((0usize..60_000, 0u32..6), 0..20),
        kind in 0u8..7, at: u64,
    ) {
        let mut source = image(nr_blocks, sizes, &table(length, &old));
        damage(&mut source, kind, at);
        let ledger = ledger(&source, kind == 0);
        let wanted = table(length, &new);
        let (sealed, block) = replace(&source, &ledger, size, &wanted).unwrap();
        let locations: BTreeSet<BlockNr> = sealed.locations().collect();
        prop_assert!(locations.iter().all(|block| ledger.count(*block) == 0));
        let mut after = source.clone();
        sealed.commit(&mut after, &block).unwrap();
        prop_assert_eq!(state(&after), State([sizes[0] as usize, size as usize], wanted.0));
        for location in (1..nr_blocks).map(BlockNr).filter(|location| !locations.contains(location)) {
            prop_assert_eq!(source.get(location), after.get(location));
        }
    }
}

#[test]
fn after_a_crash_the_state_is_the_old_or_the_new_one() {
    let (old, new) = (table(40_000, &[(9, 4)]), table(40_000, &[(20_000, 5), (39_999, 0)]));
    let source = image(20_000, [600, 900], &old);
    let (sealed, block) = replace(&source, &ledger(&source, true), 700, &new).unwrap();
    let mut output = CrashingOutput::new(source.clone());
    sealed.commit(&mut output, &block).unwrap();
    let (before, after) = (State([600, 900], old.0), State([600, 700], new.0));
    let nr_operations = output.log().len();
    let fates: [fn(usize, usize) -> Applied; 5] = [
        |_, _| Applied::Not,
        |_, _| Applied::Whole,
        |index, stop| if (index + stop) % 2 == 0 { Applied::Whole } else { Applied::Not },
        |index, stop| if (index * 7919 + stop) % 5 < 2 { Applied::Whole } else { Applied::Not },
        |index, stop| Applied::Torn(1 + (index * 31 + stop) % 8),
    ];
    for stop in 0..=nr_operations {
        for (number, fate) in fates.iter().enumerate() {
            // The test's superblock does not fit in a sector, so it is not torn.
            let last = nr_operations - 2;
            let fate = |index: usize| if index == last && number == 4 { Applied::Whole } else { fate(index, stop) };
            let found = state(&output.image_after(stop, fate));
            let superblock_written = stop > last && (stop == nr_operations || fate(last) == Applied::Whole);
            assert_eq!(
                &found,
                if superblock_written { &after } else { &before },
                "stopped after {stop}, fate {number}"
            );
        }
    }
    assert!(matches!(output.log()[nr_operations - 3], Operation::Flush));
}

#[test]
fn a_failure_leaves_the_old_state() {
    let (old, new) = (table(4000, &[]), table(4000, &[(5, 3)]));
    let source = image(1000, [600, 900], &old);
    let attempt = |fail_at| {
        let (sealed, block) = replace(&source, &ledger(&source, true), 700, &new).unwrap();
        let mut output = FailingOutput::new(source.clone(), fail_at);
        let result = sealed.commit(&mut output, &block);
        (result, output)
    };
    let (result, output) = attempt(u64::MAX);
    result.unwrap();
    let operations = output.operations();
    for fail_at in 0..operations {
        let (result, output) = attempt(fail_at);
        assert!(matches!(result, Err(CommitError::Write(_))));
        assert_eq!(output.operations(), fail_at + 1);
        let found = state(&output.into_inner());
        assert_eq!(found.0[1], if fail_at + 1 < operations { 900 } else { 700 });
    }
}
