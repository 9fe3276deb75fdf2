//! Crashes and failures at every step of a fix, and of taking it back.

use super::{Fix, FixOptions, plan};
use crate::base::{BlockNr, NoProgress};
use crate::block::BlockSource;
use crate::block::memory::MemorySource;
use crate::block::testing::{Applied, CrashingOutput, FailingOutput};
use crate::format::Block;
use crate::pdata::commit::{CommitError, Undo, UndoError};
use crate::thin::check::{CheckOptions, check, check_and_count};
use crate::thin::damage::{Leaks, create_leaks, write};
use crate::thin::generate::{GenerateOptions, generate};
use crate::thin::report::Verdict;

const BLOCKS: u64 = 400;
const ALL: FixOptions = FixOptions { leaks: true, space_maps: true, needs_check: true };

/// A pool that asks for a check, with counts that are too high and, where `low`, too low.
fn pool(low: bool) -> MemorySource {
    let options = GenerateOptions {
        devices: 2,
        snapshots: 2,
        mappings: 2000,
        change: 30,
        needs_check: true,
        ..GenerateOptions::default()
    };
    let mut image = MemorySource::new(BLOCKS);
    generate(&mut image, &options).unwrap();
    let mut leaks = vec![Leaks { expected: 0, actual: 1, nr_blocks: 20, seed: 1 }];
    if low {
        leaks.push(Leaks { expected: 1, actual: 0, nr_blocks: 5, seed: 2 });
    }
    for leaks in leaks {
        let damage = create_leaks(&image, &leaks).unwrap();
        write(&mut image, &damage).unwrap();
    }
    image
}

fn fix(image: &MemorySource) -> Fix {
    let (report, counted) = check_and_count(image, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
    plan(image, &report, counted.as_ref(), ALL).unwrap().unwrap()
}

/// What a check says, but for the blocks where it says it.
fn told(image: &MemorySource) -> (Verdict, String) {
    let report = check(image, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
    (report.verdict(), report.text())
}

fn superblock(image: &MemorySource) -> Block {
    *image.read(BlockNr(0)).unwrap()
}

fn same(left: &MemorySource, right: &MemorySource) -> bool {
    (0..BLOCKS).all(|block| left.read(BlockNr(block)).unwrap() == right.read(BlockNr(block)).unwrap())
}

type Fate = fn(usize, usize) -> Applied;
const FATES: [Fate; 4] = [
    |_, _| Applied::Not,
    |_, _| Applied::Whole,
    |index, stop| if (index * 7919 + stop) % 5 < 2 { Applied::Whole } else { Applied::Not },
    |index, stop| Applied::Torn(1 + (index * 31 + stop) % 8),
];

/// Every image that a crash can leave.
fn after_crashes(output: &CrashingOutput) -> impl Iterator<Item = MemorySource> {
    let stops = 0..=output.log().len();
    stops.flat_map(move |stop| FATES.map(|fate| output.image_after(stop, |index| fate(index, stop))))
}

#[test]
fn after_a_crash_all_is_as_it_was_or_put_right() {
    for low in [false, true] {
        let before = pool(low);
        let old = told(&before);
        let mut output = CrashingOutput::new(before.clone());
        fix(&before).commit(&mut output).unwrap();
        let (mut unchanged, mut mended) = (0, 0);
        for image in after_crashes(&output) {
            if superblock(&image) == superblock(&before) {
                assert_eq!(told(&image), old);
                unchanged += 1;
            } else {
                assert_eq!(told(&image).0, Verdict::Clean);
                mended += 1;
            }
        }
        assert!(unchanged > 10 && mended > 3, "{unchanged} and {mended}");
    }
}

#[test]
fn after_a_failure_all_is_as_it_was() {
    let before = pool(true);
    let old = told(&before);
    let mut counting = FailingOutput::new(before.clone(), u64::MAX);
    fix(&before).commit(&mut counting).unwrap();
    let operations = counting.operations();
    assert!(operations > 4);
    for fail_at in 0..operations {
        let mut output = FailingOutput::new(before.clone(), fail_at);
        assert!(matches!(fix(&before).commit(&mut output), Err(CommitError::Write(_))));
        let image = output.into_inner();
        // All that fails after the superblock was written is its flush.
        let expected = if fail_at + 1 < operations { old.0 } else { Verdict::Clean };
        assert_eq!(told(&image).0, expected, "operation {fail_at} of {operations}");
    }
}

/// A pool before and after it was put right, and what takes that back.
fn mended() -> (MemorySource, MemorySource, Undo) {
    let before = pool(true);
    let fix = fix(&before);
    let undo = Undo::of(&before, fix.locations(), fix.superblock()).unwrap();
    let mut after = before.clone();
    fix.commit(&mut after).unwrap();
    assert!(!same(&before, &after));
    (before, after, undo)
}

#[test]
fn a_crash_while_a_fix_is_taken_back_leaves_a_pool_that_can_be_taken_back() {
    let (before, after, undo) = mended();
    let old = told(&before);
    let mut output = CrashingOutput::new(after.clone());
    undo.apply(&after, &mut output).unwrap();
    for mut image in after_crashes(&output) {
        let now = told(&image);
        assert!(now == old || now.0 == Verdict::Clean, "{}", now.1);
        let source = image.clone();
        undo.apply(&source, &mut image).unwrap();
        assert!(same(&image, &before));
    }
}

#[test]
fn a_failure_while_a_fix_is_taken_back_leaves_a_pool_that_can_be_taken_back() {
    let (before, after, undo) = mended();
    let mut counting = FailingOutput::new(after.clone(), u64::MAX);
    undo.apply(&after, &mut counting).unwrap();
    for fail_at in 0..counting.operations() {
        let mut output = FailingOutput::new(after.clone(), fail_at);
        assert!(matches!(undo.apply(&after, &mut output), Err(UndoError::Commit(_))));
        let mut image = output.into_inner();
        let source = image.clone();
        undo.apply(&source, &mut image).unwrap();
        assert!(same(&image, &before));
    }
}

#[test]
fn what_was_changed_since_is_left_alone() {
    let (_, after, undo) = mended();
    let mut changed = after.clone();
    let mut block = superblock(&after);
    block[48] ^= 1;
    changed.put(BlockNr(0), &block).unwrap();
    let source = changed.clone();
    assert!(matches!(undo.apply(&source, &mut changed), Err(UndoError::OtherState)));
    assert!(same(&changed, &source));
    let mut larger = after.clone();
    larger.resize(BLOCKS + 1);
    let source = larger.clone();
    assert!(matches!(undo.apply(&source, &mut larger), Err(UndoError::OtherSize { .. })));
    assert!(same(&larger, &source));
}
