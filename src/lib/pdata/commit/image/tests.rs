//! Whole images.

use crate::base::BlockNr;
use crate::block::memory::MemorySource;
use crate::block::testing::{CrashingOutput, FailingOutput, Operation};
use crate::block::{BlockOutput, BlockSource};
use crate::format::block::{self, BLOCK_SIZE, BlockKind};
use crate::pdata::build::{NodeSink, NothingShared, TreeBuilder};
use crate::pdata::commit::tests::{Reader, Table, data};
use crate::pdata::commit::{CommitError, ImageWriter, SealedImage};
use crate::pdata::ledger::BlockUse;
use proptest::prelude::*;

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

        let mut reader = Reader::new(&image);
        reader.tree(root.0, 8, BlockUse::Mappings);
        for (block, times) in &shares {
            *reader.references.entry(1 + block % root.0).or_default() += times;
        }
        let data_root = roots.data.unwrap();
        prop_assert_eq!(data_root.nr_blocks.get(), nr_data as u64);
        prop_assert_eq!(reader.data_counts(&data_root), table.0);
        prop_assert_eq!(roots.metadata.nr_blocks.get(), nr_blocks);
        reader.check_metadata_counts(&roots.metadata);
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
