//! What is whole is copied as it is, what is damaged is built again, and both say the same as a dump.

use super::{RepairError, Repaired, repair};
use crate::base::{BlockNr, Code, NoProgress, Severity};
use crate::block::BlockSource;
use crate::block::memory::MemorySource;
use crate::block::testing::{Applied, CrashingOutput, FailingOutput};
use crate::format::block::{self, BlockKind};
use crate::format::superblock::ThinSuperblock;
use crate::thin::check::{CheckOptions, check};
use crate::thin::damage::{BlockDamage, Kind, Target, damage_blocks, write};
use crate::thin::dump::{DumpOptions, dump, dump_salvaged};
use crate::thin::generate::{GenerateOptions, generate};
use crate::thin::report::{Report, Verdict};
use crate::thin::restore::RestoreError;
use crate::thin::salvage::SalvageOptions;
use std::collections::BTreeSet;

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

/// A damaged pool of some dozen blocks.
fn small() -> MemorySource {
    let options = GenerateOptions { devices: 2, snapshots: 1, mappings: 600, ..GenerateOptions::default() };
    let mut image = MemorySource::new(60);
    generate(&mut image, &options).unwrap();
    let wanted = BlockDamage { kind: Kind::Noise, target: Target::MappingLeaf, count: 1, reseal: false, seed: 3 };
    let damage = damage_blocks(&image, &wanted).unwrap();
    write(&mut image, &damage).unwrap();
    image
}

fn is_valid(image: &MemorySource) -> bool {
    block::verify(&image.read(BlockNr(0)).unwrap(), BlockKind::ThinSuperblock, BlockNr(0)).is_ok()
}

#[test]
fn after_a_crash_the_output_holds_what_was_there_or_nothing_or_the_repaired() {
    let image = small();
    let expected = salvaged(&image);
    let mut before = MemorySource::new(60);
    generate(&mut before, &GenerateOptions { devices: 1, mappings: 10, ..GenerateOptions::default() }).unwrap();
    let old = dumped(&before);
    let mut output = CrashingOutput::new(before);
    repair(&image, &mut output, &SalvageOptions::default(), &NoProgress).unwrap();
    let fates: [fn(usize, usize) -> Applied; 4] = [
        |_, _| Applied::Not,
        |_, _| Applied::Whole,
        |index, stop| if (index * 7919 + stop) % 5 < 2 { Applied::Whole } else { Applied::Not },
        |index, stop| Applied::Torn(1 + (index * 31 + stop) % 8),
    ];
    let mut seen = BTreeSet::new();
    for stop in 0..=output.log().len() {
        for fate in fates {
            let image = output.image_after(stop, |index| fate(index, stop));
            if !is_valid(&image) {
                seen.insert("nothing");
                continue;
            }
            let text = dumped(&image);
            assert!(text == old || text == expected, "stopped at {stop}");
            seen.insert(if text == old { "old" } else { "repaired" });
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["nothing", "old", "repaired"]);
}

#[test]
fn an_output_that_fails_holds_nothing_that_looks_valid() {
    let image = small();
    let mut counting = FailingOutput::new(MemorySource::new(60), u64::MAX);
    repair(&image, &mut counting, &SalvageOptions::default(), &NoProgress).unwrap();
    let operations = counting.operations();
    assert!(operations > 10);
    for fail_at in 0..operations {
        let mut output = FailingOutput::new(MemorySource::new(60), fail_at);
        let error = repair(&image, &mut output, &SalvageOptions::default(), &NoProgress).unwrap_err();
        assert!(matches!(error, RepairError::Restore(RestoreError::Commit(_) | RestoreError::Build(_))), "{error}");
        // All that fails after the superblock was written is its flush.
        assert!(!is_valid(&output.into_inner()) || fail_at + 1 == operations, "operation {fail_at} of {operations}");
    }
}

fn set(image: &mut MemorySource, location: BlockNr, kind: BlockKind, at: usize, value: &[u8]) {
    let mut content = *image.get(location).unwrap();
    content[at..at + value.len()].copy_from_slice(value);
    block::seal(&mut content, kind, location);
    image.put(location, &content).unwrap();
}

/// Numbers that no pool can have are no reason to bring back nothing.
#[test]
fn what_no_pool_can_say_of_itself_is_put_right() {
    let sound = pool(5);
    let superblock = ThinSuperblock::view(sound.get(BlockNr(0)).unwrap()).clone();
    let details = BlockNr(superblock.details_root.get());
    let (time, version) = (superblock.time.get(), superblock.version.get());
    // Values of the details tree: 24 bytes from byte 32 + 8 * 126 on; transaction at 8, creation at 16, snapshot at 20.
    let value = 32 + 8 * 126;
    let everything = dumped(&sound);
    type Case = (&'static str, BlockNr, usize, &'static [u8]);
    let cases: [Case; 5] = [
        ("a version of the future", BlockNr(0), 40, &[42]),
        ("a clock of 32 bits", BlockNr(0), 47, &[0x80]),
        ("a device of another age", details, value + 23, &[0x80]),
        ("a device made in the future", details, value + 19, &[0x80]),
        ("a device's transaction that the pool has not seen", details, value + 8, &[0xff, 0xff]),
    ];
    for (name, location, at, bytes) in cases {
        let kind = if location.0 == 0 { BlockKind::ThinSuperblock } else { BlockKind::Node };
        let mut image = sound.clone();
        set(&mut image, location, kind, at, bytes);
        let mut output = MemorySource::new(BLOCKS);
        repair(&image, &mut output, &SalvageOptions::default(), &NoProgress).unwrap();
        assert!(checked(&output).findings.worst() <= Some(Severity::Note), "{name}: {}", checked(&output).text());
        let after = ThinSuperblock::view(output.get(BlockNr(0)).unwrap());
        assert_eq!((after.time.get(), after.version.get()), (time, version), "{name}");
        let mappings = |text: &str| text.lines().filter(|line| line.contains("mapping ")).map(String::from).collect();
        let (before, after): (Vec<_>, Vec<_>) = (mappings(&everything), mappings(&dumped(&output)));
        assert!(before == after, "{name}: mappings are others");
    }
    // An id of 25 bits: the device cannot be kept, all others are.
    let mut image = sound.clone();
    let last = 32 + 8 * (nr_devices(&sound) - 1);
    for root in [superblock.details_root.get(), superblock.mapping_root.get()] {
        set(&mut image, BlockNr(root), BlockKind::Node, last + 3, &[1]);
    }
    let (output, repaired) = repaired(&image, BLOCKS);
    assert_eq!(nr_devices(&output), nr_devices(&sound) - 1);
    assert_eq!(repaired.findings.count(Code::DeviceId), 1);
    assert!(repaired.account.devices.iter().any(|device| device.id.0 >> 24 == 1 && device.found == 0));
}

fn nr_devices(image: &MemorySource) -> usize {
    dumped(image).lines().filter(|line| line.contains("<device ")).count()
}
