//! Whatever is asked for, what is made is sound and is what was asked for.

use super::{GenerateError, GenerateOptions, Generated, format, generate, set_needs_check};
use crate::base::{BlockNr, Code, NoProgress};
use crate::block::BlockSource;
use crate::block::memory::MemorySource;
use crate::format::superblock::ThinSuperblock;
use crate::pdata::commit::CommitError;
use crate::thin::check::{CheckOptions, check};
use crate::thin::dump::{DumpOptions, dump};
use crate::thin::load::Snapshot;
use proptest::prelude::*;

#[track_caller]
fn expect_sound(image: &MemorySource, options: &GenerateOptions) {
    let report = check(image, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(report.findings.count(Code::NeedsCheck), u64::from(options.needs_check));
    assert_eq!(findings.len(), usize::from(options.needs_check), "{findings:#?}\n{options:?}");
    let snapshot = options.metadata_snapshot.then_some(Snapshot::Held);
    let check_options = CheckOptions { metadata_snapshot: snapshot, ..CheckOptions::default() };
    let report = check(image, &check_options, &NoProgress, &mut |_| ()).unwrap();
    assert!(report.devices.iter().all(|device| device.whole));
}

fn dumped(image: &MemorySource, flat: bool) -> String {
    let mut text = vec![];
    let options = DumpOptions { flat, ..DumpOptions::default() };
    dump(image, &options, &mut text, &NoProgress).unwrap();
    String::from_utf8(text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn pools_are_sound(
        seed: u64, devices in 0u64..5, snapshots in 0u64..4, change in 0u64..101,
        mappings in prop_oneof![0u64..300, 0u64..60_000], run_length in 1u64..100,
        fill in (34u64..101, 34u64..101), metadata_snapshot: bool, needs_check: bool,
    ) {
        let leaf_fill = fill.0.min(fill.1)..=fill.0.max(fill.1);
        let options = GenerateOptions {
            seed, devices, snapshots, change, mappings, run_length, leaf_fill, metadata_snapshot, needs_check,
            transaction: 5, ..GenerateOptions::default()
        };
        let mut image = MemorySource::new(20_000);
        let made = generate(&mut image, &options).unwrap();
        expect_sound(&image, &options);
        prop_assert_eq!(made.devices, devices * (1 + snapshots));
        let text = dumped(&image, true);
        prop_assert_eq!(text.matches("<device").count() as u64, made.devices);
        let counted = format!("mapped_blocks=\"{mappings}\"");
        prop_assert_eq!(text.matches(counted.as_str()).count() as u64, made.devices);
        let mut again = MemorySource::new(20_000);
        prop_assert_eq!(generate(&mut again, &options).unwrap(), made);
        prop_assert!((0..20_000).map(BlockNr).all(|block| image.get(block) == again.get(block)));
    }
}

#[test]
fn snapshots_share_what_did_not_change() {
    let base = GenerateOptions { devices: 1, mappings: 252 * 600, change: 1, ..GenerateOptions::default() };
    let blocks = |options: &GenerateOptions| {
        let mut image = MemorySource::new(50_000);
        let made = generate(&mut image, options).unwrap();
        (made.metadata_blocks, dumped(&image, false))
    };
    let (alone, text) = blocks(&base);
    assert!(!text.contains("<ref"));
    let (shared, text) = blocks(&GenerateOptions { snapshots: 10, ..base.clone() });
    assert!(text.contains("<ref"));
    assert!(shared < alone * 2, "{shared} blocks with ten snapshots, {alone} without");
    let (frozen, _) = blocks(&GenerateOptions { snapshots: 10, change: 0, ..base });
    assert_eq!(frozen, alone);
}

#[test]
fn leaves_are_as_full_as_asked_for() {
    let made = |leaf_fill| {
        let options = GenerateOptions { mappings: 252 * 100, leaf_fill, ..GenerateOptions::default() };
        let mut image = MemorySource::new(1000);
        generate(&mut image, &options).unwrap().metadata_blocks
    };
    let full = made(100..=100);
    assert!((full + 95..full + 105).contains(&made(50..=50)));
    assert!((full + 50..full + 80).contains(&made(50..=75)));
}

#[test]
fn a_new_pool_is_empty() {
    let mut image = MemorySource::new(16);
    format(&mut image, 256, 0).unwrap();
    expect_sound(&image, &GenerateOptions::default());
    let block = image.read(BlockNr(0)).unwrap();
    let superblock = ThinSuperblock::view(&block);
    assert_eq!((superblock.time.get(), superblock.transaction_id.get()), (0, 0));
    assert_eq!(superblock.data_space_map.nr_blocks.get(), 0);
    assert_eq!((superblock.metadata_nr_blocks.get(), superblock.data_block_size.get()), (16, 256));
}

#[test]
fn what_cannot_be_is_refused() {
    let refused =
        |options: GenerateOptions, nr_blocks| generate(&mut MemorySource::new(nr_blocks), &options).unwrap_err();
    let options = GenerateOptions { mappings: 1000, ..GenerateOptions::default() };
    assert!(matches!(refused(options.clone(), 10), GenerateError::Commit(CommitError::TooSmall { present: 10, .. })));
    let few = GenerateOptions { nr_data_blocks: Some(999), ..options.clone() };
    assert!(matches!(refused(few, 100), GenerateError::DataBlocks { given: 999, .. }));
    for bad in [
        GenerateOptions { data_block_size: 100, ..options.clone() },
        GenerateOptions { leaf_fill: 10..=100, ..options.clone() },
        GenerateOptions { leaf_fill: 50..=101, ..options.clone() },
        GenerateOptions { run_length: 0, ..options.clone() },
        GenerateOptions { change: 101, ..options.clone() },
        GenerateOptions { devices: 1 << 24, ..options.clone() },
        GenerateOptions { mappings: u64::MAX, ..options.clone() },
        GenerateOptions { devices: u64::MAX, snapshots: u64::MAX, ..options },
    ] {
        assert!(matches!(refused(bad.clone(), 100), GenerateError::Options(_)), "{bad:?}");
    }
}

#[test]
fn the_blocks_that_are_said_to_be_needed_suffice_and_no_fewer() {
    for (snapshots, change, metadata_snapshot) in [(0, 0, false), (3, 60, false), (2, 10, true), (0, 100, true)] {
        let mut options = GenerateOptions { mappings: 2000, run_length: 2, devices: 2, ..GenerateOptions::default() };
        (options.snapshots, options.change, options.metadata_snapshot) = (snapshots, change, metadata_snapshot);
        let mut small = MemorySource::new(3);
        let Err(GenerateError::Commit(CommitError::TooSmall { needed, present: 3 })) = generate(&mut small, &options)
        else {
            panic!("it fits into three blocks")
        };
        assert_eq!(small.nr_present(), 0, "nothing was written");
        let made = generate(&mut MemorySource::new(needed), &options).unwrap();
        assert_eq!(made.metadata_blocks, needed);
        let mut short = MemorySource::new(needed - 1);
        assert!(matches!(generate(&mut short, &options), Err(GenerateError::Commit(CommitError::TooSmall { .. }))));
        assert_eq!(short.nr_present(), 0, "nothing was written");
    }
}

#[test]
fn the_flag_is_set_and_cleared_and_nothing_else() {
    let mut image = MemorySource::new(100);
    let options = GenerateOptions { mappings: 300, needs_check: true, ..GenerateOptions::default() };
    let made: Generated = generate(&mut image, &options).unwrap();
    assert_eq!(made.mappings, 300);
    let with = image.clone();
    set_needs_check(&mut image, false).unwrap();
    expect_sound(&image, &GenerateOptions { needs_check: false, ..options.clone() });
    set_needs_check(&mut image, true).unwrap();
    assert_eq!(image.read(BlockNr(0)).unwrap(), with.read(BlockNr(0)).unwrap());
    let mut nothing = MemorySource::new(100);
    assert!(matches!(set_needs_check(&mut nothing, true), Err(GenerateError::Superblock(_))));
}
