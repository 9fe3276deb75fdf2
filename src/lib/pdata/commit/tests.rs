//! Images are read back, block by block, and every invariant of the space maps is held against plain tables.

use super::{CommitError, DataCounts, ImageWriter, SealedImage};
use crate::base::BlockNr;
use crate::block::memory::MemorySource;
use crate::block::testing::{CrashingOutput, FailingOutput, Operation};
use crate::block::{BlockOutput, BlockSource};
use crate::format::block::{self, BLOCK_SIZE, BlockKind};
use crate::format::node;
use crate::format::space_map::{self, ENTRIES_PER_BITMAP, IndexEntry, SpaceMapRoot};
use crate::pdata::build::{NodeSink, NothingShared, TreeBuilder};
use crate::pdata::counts::BitmapCounts;
use crate::pdata::space_map::ExpectedCounts;
use proptest::prelude::*;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

struct Table(Vec<u32>);

impl ExpectedCounts for Table {
    fn look(&self, index: u64, look: &mut dyn FnMut(BitmapCounts<'_>)) {
        let begin = (index * ENTRIES_PER_BITMAP) as usize;
        let end = (begin + ENTRIES_PER_BITMAP as usize).min(self.0.len());
        look(BitmapCounts::Wide(&self.0[begin..end]));
    }
}

/// Reads space maps and counts every reference on the way.
struct Reader<'a> {
    image: &'a MemorySource,
    references: BTreeMap<u64, u32>,
}

impl Reader<'_> {
    fn tree(&mut self, root: u64, value_size: usize) -> Vec<(u64, Vec<u8>)> {
        *self.references.entry(root).or_default() += 1;
        let block = self.image.read(BlockNr(root)).unwrap();
        let node = node::verify(&block, BlockNr(root), value_size).unwrap();
        if !node.is_leaf() {
            return (0..node.len()).flat_map(|index| self.tree(node.child(index).0, value_size)).collect();
        }
        let values = node.value_bytes().chunks_exact(value_size).map(<[u8]>::to_vec);
        node.keys().iter().map(|key| key.get()).zip(values).collect()
    }

    /// The counts that a space map holds, whose every hint is checked.
    fn counts(&mut self, root: &SpaceMapRoot, entries: &[IndexEntry]) -> Vec<u32> {
        let nr_blocks = root.nr_blocks.get();
        assert_eq!(entries.len() as u64, space_map::nr_bitmaps(nr_blocks));
        let mut above: BTreeMap<u64, u32> = BTreeMap::new();
        for (key, value) in self.tree(root.ref_count_root.get(), 4) {
            above.insert(key, u32::from_le_bytes(value.try_into().unwrap()));
        }
        let mut counts = vec![];
        for (index, entry) in entries.iter().enumerate() {
            let location = entry.blocknr.get();
            *self.references.entry(location).or_default() += 1;
            let block = self.image.read(BlockNr(location)).unwrap();
            block::verify(&block, BlockKind::Bitmap, BlockNr(location)).unwrap();
            let all: Vec<u32> = (0..16_320).map(|entry| space_map::bitmap_count(&block, entry).into()).collect();
            let free = all.iter().filter(|count| **count == 0).count();
            assert_eq!(entry.nr_free.get() as usize, free);
            let length = (nr_blocks - index as u64 * ENTRIES_PER_BITMAP).min(ENTRIES_PER_BITMAP) as usize;
            let first_free = all[..length].iter().position(|count| *count == 0).unwrap_or(length);
            assert_eq!(entry.none_free_before.get() as usize, first_free);
            assert!(all[length..].iter().all(|count| *count == 0));
            counts.extend(&all[..length]);
        }
        for (block, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count == 3) {
            *count = above.remove(&(block as u64)).unwrap();
            assert!(*count >= 3);
        }
        assert!(above.is_empty());
        assert_eq!(root.nr_allocated.get() as usize, counts.iter().filter(|count| **count > 0).count());
        counts
    }
}

fn superblock() -> [u8; BLOCK_SIZE] {
    let mut block = [5; BLOCK_SIZE];
    block::seal(&mut block, BlockKind::ThinSuperblock, BlockNr(0));
    block
}

/// A tree whose root is referred to by block 0, with some of its nodes shared.
fn fill(writer: &mut ImageWriter<'_>, shares: &[(u64, u32)]) -> Result<BlockNr, CommitError> {
    let mut tree = TreeBuilder::<8>::new();
    for key in 0..252 * 400 {
        tree.push(key, &key.to_le_bytes(), writer)?;
    }
    let root = tree.finish(&mut NothingShared, writer)?;
    for (block, times) in shares {
        (0..*times).for_each(|_| writer.share(BlockNr(1 + block % root.0)));
    }
    Ok(root)
}

fn data(table: &Table) -> DataCounts<'_> {
    DataCounts { nr_blocks: table.0.len() as u64, counts: table }
}

fn write(output: &mut dyn BlockOutput, shares: &[(u64, u32)], table: &Table) -> Result<(), CommitError> {
    let mut writer = ImageWriter::begin(output)?;
    fill(&mut writer, shares)?;
    writer.seal(Some(data(table)))?.commit(&superblock())
}

fn plan(nr_blocks: u64, shares: &[(u64, u32)], table: &Table) -> SealedImage<'static> {
    let mut writer = ImageWriter::plan(nr_blocks);
    fill(&mut writer, shares).unwrap();
    writer.seal(Some(data(table))).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn space_maps_describe_the_image_and_themselves(
        nr_blocks in prop_oneof![Just(600u64), 600u64..40_000],
        shares in prop::collection::vec((0u64..500, 1u32..7), 0..500),
        runs in prop::collection::vec((0usize..50_000, 0usize..3000, 0u32..5), 0..20),
        nr_data in 0usize..50_000,
    ) {
        let mut table = Table(vec![0; nr_data]);
        for (begin, length, count) in runs {
            let end = (begin + length).min(nr_data);
            table.0[begin.min(end)..end].iter_mut().for_each(|entry| *entry += count);
        }
        let mut image = MemorySource::new(nr_blocks);
        let planned = plan(nr_blocks, &shares, &table);
        prop_assert!(planned.nr_needed() <= nr_blocks);
        let mut writer = ImageWriter::begin(&mut image).unwrap();
        let root = fill(&mut writer, &shares).unwrap();
        let sealed = writer.seal(Some(data(&table))).unwrap();
        prop_assert_eq!(sealed.nr_needed(), planned.nr_needed());
        let roots = sealed.roots().clone();
        sealed.commit(&superblock()).unwrap();
        prop_assert_eq!(*image.read(BlockNr(0)).unwrap(), superblock());

        let mut reader = Reader { image: &image, references: BTreeMap::from([(0, 1)]) };
        reader.tree(root.0, 8);
        for (block, times) in &shares {
            *reader.references.entry(1 + block % root.0).or_default() += times;
        }
        let data_root = roots.data.unwrap();
        prop_assert_eq!(data_root.nr_blocks.get(), nr_data as u64);
        let index: Vec<IndexEntry> = reader.tree(data_root.bitmap_root.get(), 16).iter()
            .map(|(_, value)| IndexEntry::read_from_bytes(value).unwrap()).collect();
        prop_assert_eq!(reader.counts(&data_root, &index), table.0);

        prop_assert_eq!(roots.metadata.nr_blocks.get(), nr_blocks);
        let location = BlockNr(roots.metadata.bitmap_root.get());
        *reader.references.entry(location.0).or_default() += 1;
        let block = image.read(location).unwrap();
        block::verify(&block, BlockKind::Index, location).unwrap();
        let bitmaps = space_map::nr_bitmaps(nr_blocks) as usize;
        prop_assert!(block[16 + 16 * bitmaps..].iter().all(|byte| *byte == 0));
        let counts = reader.counts(&roots.metadata, space_map::index_entries(&block, bitmaps));
        let expected: Vec<u32> = (0..nr_blocks).map(|b| reader.references.get(&b).copied().unwrap_or(0)).collect();
        prop_assert_eq!(counts, expected);
        prop_assert_eq!(roots.metadata.nr_allocated.get(), planned.nr_needed());
    }
}

#[test]
fn the_plan_knows_the_number_of_blocks() {
    let table = Table(vec![1; 100_000]);
    let needed = plan(10, &[], &table).nr_needed();
    for (present, fits) in [(needed - 1, false), (needed, true), (needed + 1, true)] {
        assert_eq!(plan(present, &[], &table).nr_needed(), needed);
        let written = write(&mut MemorySource::new(present), &[], &table);
        assert_eq!(written.is_ok(), fits, "{present} of {needed} blocks");
        assert!(fits || matches!(written, Err(CommitError::NoSpace { .. })));
    }
    // On a device that is larger more bitmaps are needed, for itself.
    assert_eq!(plan(16_320 * 3, &[], &table).nr_needed(), needed + 2);
    assert_eq!(plan(u64::MAX, &[], &table).nr_needed(), needed + 254);
}

#[test]
fn the_superblock_goes_first_and_comes_last() {
    let mut output = CrashingOutput::new(MemorySource::new(1000));
    write(&mut output, &[(3, 5)], &Table(vec![4; 1000])).unwrap();
    let log = output.log();
    let is_superblock = |operation: &Operation| matches!(operation, Operation::Write(BlockNr(0), _));
    let is_flush = |operation: &Operation| matches!(operation, Operation::Flush);
    let superblocks: Vec<usize> = (0..log.len()).filter(|index| is_superblock(&log[*index])).collect();
    let flushes: Vec<usize> = (0..log.len()).filter(|index| is_flush(&log[*index])).collect();
    let last = log.len() - 1;
    assert_eq!((superblocks, flushes), (vec![0, last - 1], vec![1, last - 2, last]));
    let Operation::Write(_, first) = &log[0] else { panic!() };
    assert!(block::is_zero(first));
}

#[test]
fn whatever_fails_is_reported() {
    let table = Table(vec![1; 100]);
    let mut counting = FailingOutput::new(MemorySource::new(1000), u64::MAX);
    write(&mut counting, &[], &table).unwrap();
    let operations = counting.operations();
    for fail_at in 0..operations {
        let mut output = FailingOutput::new(MemorySource::new(1000), fail_at);
        assert!(matches!(write(&mut output, &[], &table), Err(CommitError::Write(_))), "operation {fail_at}");
        assert_eq!(output.operations(), fail_at + 1);
        let superblock = output.into_inner().read(BlockNr(0)).unwrap();
        // Only the very last flush is behind the superblock.
        assert_eq!(block::is_zero(&superblock), fail_at < operations - 1);
    }
}
