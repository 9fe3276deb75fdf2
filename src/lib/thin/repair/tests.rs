//! What is whole is copied as it is, what is damaged is built again, and both say the same as a dump.

use super::{RepairError, Repaired, repair};
use crate::base::{BlockNr, NoProgress};
use crate::block::BlockSource;
use crate::block::memory::MemorySource;
use crate::thin::check::{CheckOptions, check};
use crate::thin::damage::{BlockDamage, Kind, Target, damage_blocks, write};
use crate::thin::dump::{DumpOptions, dump, dump_salvaged};
use crate::thin::generate::{GenerateOptions, generate};
use crate::thin::report::{Report, Verdict};
use crate::thin::restore::RestoreError;
use crate::thin::salvage::SalvageOptions;

const BLOCKS: u64 = 4000;

fn pool(seed: u64) -> MemorySource {
    let options = GenerateOptions {
        seed,
        devices: 2,
        snapshots: 3,
        mappings: 40_000,
        change: 3,
        leaf_fill: 35..=60,
        ..GenerateOptions::default()
    };
    let mut image = MemorySource::new(BLOCKS);
    generate(&mut image, &options).unwrap();
    image
}

fn flat() -> DumpOptions {
    DumpOptions { flat: true, ..DumpOptions::default() }
}

fn salvaged(image: &MemorySource) -> String {
    let mut text = Vec::new();
    dump_salvaged(image, &flat(), None, &mut text, &NoProgress).unwrap();
    String::from_utf8(text).unwrap()
}

fn dumped(image: &MemorySource) -> String {
    let mut text = Vec::new();
    dump(image, &flat(), &mut text, &NoProgress).unwrap();
    String::from_utf8(text).unwrap()
}

fn checked(image: &MemorySource) -> Report {
    check(image, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap()
}

fn repaired(image: &MemorySource, blocks: u64) -> (MemorySource, Repaired) {
    let mut output = MemorySource::new(blocks);
    let repaired = repair(image, &mut output, &SalvageOptions::default(), &NoProgress).unwrap();
    assert_eq!(checked(&output).verdict(), Verdict::Clean);
    (output, repaired)
}

fn used(image: &MemorySource) -> u64 {
    checked(image).metadata.unwrap().allocated
}

#[test]
fn a_sound_pool_is_copied_with_all_that_it_shares() {
    let image = pool(1);
    let (output, outcome) = repaired(&image, BLOCKS);
    assert_eq!(dumped(&output), dumped(&image));
    assert_eq!(used(&output), used(&image));
    assert_eq!(outcome.written.nr_used, used(&image));
}

#[test]
fn what_does_not_fit_as_it_is_is_built_anew() {
    let image = pool(2);
    let blocks = used(&image) - 50;
    let (output, _) = repaired(&image, blocks);
    assert!(used(&output) <= blocks);
    assert_eq!(dumped(&output), dumped(&image));
    let mut small = MemorySource::new(100);
    let refused = repair(&image, &mut small, &SalvageOptions::default(), &NoProgress);
    assert!(matches!(refused, Err(RepairError::Restore(RestoreError::TooSmall { present: 100, .. }))), "{refused:?}");
    assert_eq!(small.nr_present(), 0);
}

#[test]
fn a_repair_says_what_a_dump_of_the_damaged_says() {
    let mut lost = 0;
    for seed in 0..60 {
        let sound = pool(seed % 4);
        let targets = [Target::MappingLeaf, Target::MappingNode, Target::TopLevel, Target::Details, Target::Any];
        let target = targets[seed as usize % targets.len()];
        let wanted = BlockDamage { kind: Kind::Noise, target, count: 1 + seed % 7, reseal: false, seed };
        let Ok(damage) = damage_blocks(&sound, &wanted) else { continue };
        let mut image = sound.clone();
        write(&mut image, &damage).unwrap();
        let (output, outcome) = repaired(&image, BLOCKS);
        assert_eq!(dumped(&output), salvaged(&image), "seed {seed}");
        lost += u64::from(outcome.account.devices.iter().any(|device| device.lost() > Some(0)));
        let superblock = output.read(BlockNr(0)).unwrap();
        assert_eq!(superblock[40..56], sound.read(BlockNr(0)).unwrap()[40..56], "version, time and transaction id");
    }
    assert!(lost > 10);
}
