//! Random pools: what is left is the same pool without the victims, by either strategy, and a crash leaves the pool with
//! all of them or with none.

use super::{DeleteError, DeleteOptions, Deletion, Strategy, Target, plan, plan_part};
use crate::base::{BlockNr, NoProgress, ThinId};
use crate::block::memory::MemorySource;
use crate::block::testing::{Applied, CrashingOutput, FailingOutput};
use crate::format::superblock::ThinSuperblock;
use crate::pdata::commit::CommitError;
use crate::thin::check::{CheckOptions, check};
use crate::thin::dump::{DumpOptions, dump};
use crate::thin::generate::{GenerateOptions, generate, set_needs_check};
use crate::thin::load::Snapshot;
use crate::thin::report::Verdict;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

fn pool(nr_blocks: u64, options: &GenerateOptions) -> MemorySource {
    let mut image = MemorySource::new(nr_blocks);
    generate(&mut image, options).unwrap();
    image
}

fn text(image: &MemorySource, devices: Option<Vec<RangeInclusive<u64>>>, snapshot: bool) -> Vec<u8> {
    let metadata_snapshot = snapshot.then_some(Snapshot::Held);
    let options = DumpOptions { flat: true, devices, metadata_snapshot, ..DumpOptions::default() };
    let mut out = Vec::new();
    dump(image, &options, &mut out, &NoProgress).unwrap();
    out
}

fn deletion(image: &MemorySource, victims: &BTreeSet<ThinId>, strategy: Strategy) -> Result<Deletion, DeleteError> {
    let target = Target::read(image, &NoProgress)?;
    plan(&target, victims, DeleteOptions { strategy, note_freed: true, ..DeleteOptions::default() }, &NoProgress)
}

/// Holds `after` against the pool that the victims were deleted from.
#[track_caller]
fn judge(before: &MemorySource, after: &MemorySource, victims: &BTreeSet<ThinId>, snapshot: bool) {
    let target = Target::read(before, &NoProgress).unwrap();
    let survivors = target.ids().filter(|id| !victims.contains(id)).map(|id| id.0..=id.0).collect();
    assert!(text(before, Some(survivors), false) == text(after, None, false));
    assert!(!snapshot || text(before, None, true) == text(after, None, true));
    let report = check(after, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
    assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
}

fn in_use(image: &MemorySource) -> (u64, u64) {
    let target = Target::read(image, &NoProgress).unwrap();
    let superblock = target.superblock();
    (superblock.data_space_map.nr_allocated.get(), superblock.metadata_space_map.nr_allocated.get())
}

fn pools() -> impl proptest::strategy::Strategy<Value = GenerateOptions> {
    let shape = (0u64..1000, 0u64..5, 0u64..6, 0u64..3000, 1u64..40);
    (shape, 34u64..=100, 0u64..60, any::<bool>()).prop_map(
        |((seed, devices, snapshots, mappings, run_length), fill, change, metadata_snapshot)| GenerateOptions {
            seed,
            devices,
            snapshots,
            mappings,
            run_length,
            leaf_fill: fill..=100,
            change,
            metadata_snapshot,
            ..GenerateOptions::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_left_is_the_pool_without_the_victims(options in pools(), choice in any::<u64>(), rate in 1u64..9) {
        let before = pool(6000, &options);
        let pick = |id: &ThinId| (choice ^ id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(choice | 1) >> 60 < rate * 2;
        let victims: BTreeSet<ThinId> = Target::read(&before, &NoProgress).unwrap().ids().filter(pick).collect();
        let mut results = Vec::new();
        for strategy in [Strategy::Drop, Strategy::Recount] {
            let deletion = deletion(&before, &victims, strategy).unwrap();
            let figures = deletion.figures();
            let freed = deletion.freed().to_vec();
            let mut after = before.clone();
            deletion.commit(&mut after).unwrap();
            judge(&before, &after, &victims, options.metadata_snapshot);
            prop_assert_eq!(in_use(&after), (figures.data_after, figures.metadata_after));
            let nr_freed: u64 = freed.iter().map(|range| range.end - range.start).sum();
            prop_assert_eq!(nr_freed, figures.data_before - figures.data_after);
            results.push((figures, freed));
        }
        // Trees of counts may be cut differently.
        let (one, other) = (&results[0], &results[1]);
        prop_assert_eq!((one.0.data_after, &one.1), (other.0.data_after, &other.1));
        prop_assert!(one.0.metadata_after.abs_diff(other.0.metadata_after) <= 4);
    }
}

fn example() -> (MemorySource, BTreeSet<ThinId>) {
    let options = GenerateOptions {
        devices: 3,
        snapshots: 3,
        mappings: 2000,
        change: 20,
        metadata_snapshot: true,
        ..GenerateOptions::default()
    };
    (pool(3000, &options), [1, 2, 5, 9].map(ThinId).into_iter().collect())
}

#[test]
fn a_crash_leaves_all_of_them_or_none() {
    let (before, victims) = example();
    for strategy in [Strategy::Drop, Strategy::Recount] {
        let mut output = CrashingOutput::new(before.clone());
        deletion(&before, &victims, strategy).unwrap().commit(&mut output).unwrap();
        let nr_operations = output.log().len();
        let superblock = nr_operations - 2;
        let fates: [fn(usize, usize) -> Applied; 4] = [
            |_, _| Applied::Not,
            |_, _| Applied::Whole,
            |index, stop| if (index * 7919 + stop) % 5 < 2 { Applied::Whole } else { Applied::Not },
            |index, stop| Applied::Torn(1 + (index * 31 + stop) % 8),
        ];
        for stop in 0..=nr_operations {
            for fate in fates {
                let image = output.image_after(stop, |index| fate(index, stop));
                // All that matters of a superblock lies in its first sector.
                let written = stop == nr_operations || stop > superblock && fate(superblock, stop) != Applied::Not;
                match written {
                    true => judge(&before, &image, &victims, true),
                    false => judge(&before, &image, &BTreeSet::new(), true),
                }
            }
        }
    }
}

#[test]
fn a_failure_leaves_all_of_them_or_none() {
    let (before, victims) = example();
    for strategy in [Strategy::Drop, Strategy::Recount] {
        let attempt = |fail_at| {
            let mut output = FailingOutput::new(before.clone(), fail_at);
            let result = deletion(&before, &victims, strategy).unwrap().commit(&mut output);
            (result, output)
        };
        let (result, output) = attempt(u64::MAX);
        result.unwrap();
        let operations = output.operations();
        assert!(operations > 10);
        for fail_at in 0..operations {
            let (result, output) = attempt(fail_at);
            assert!(matches!(result, Err(CommitError::Write(_))));
            let gone = if fail_at + 1 < operations { BTreeSet::new() } else { victims.clone() };
            judge(&before, &output.into_inner(), &gone, true);
        }
    }
}

/// Every block that a plan reads may fail: then there is no plan, or the same one.
#[test]
fn blocks_that_cannot_be_read_are_told() {
    let (before, victims) = example();
    for strategy in [Strategy::Drop, Strategy::Recount] {
        let sound = deletion(&before, &victims, strategy).unwrap();
        let mut refused = 0;
        for location in (0..3000).map(BlockNr) {
            let mut image = before.clone();
            if image.get(location).is_none_or(|block| block.iter().all(|byte| *byte == 0)) {
                continue;
            }
            image.put(location, &[0; 4096]).unwrap();
            match deletion(&image, &victims, strategy) {
                Err(_) => refused += 1,
                Ok(deletion) => {
                    // A bitmap or a tree of counts that can't be read is made anew.
                    assert_eq!(deletion.figures().data_after, sound.figures().data_after, "{strategy:?}, {location}");
                }
            }
        }
        assert!(refused > 20, "{strategy:?}: {refused}");
    }
}

#[test]
fn where_there_is_little_room_they_go_in_parts() {
    let options = GenerateOptions { devices: 12, mappings: 3000, run_length: 2, ..GenerateOptions::default() };
    let mut steps = BTreeSet::new();
    // How many blocks are free: from none to enough.
    let used = in_use(&pool(3000, &options)).1;
    for free in 0..24 {
        let before = pool(used + free, &options);
        let victims: BTreeSet<ThinId> = (2..=12).map(ThinId).collect();
        let (mut image, mut left, mut nr_steps) = (before.clone(), victims.clone(), 0);
        while !left.is_empty() {
            let target = Target::read(&image, &NoProgress).unwrap();
            let (deletion, rest) = match plan_part(&target, &left, DeleteOptions::default(), &NoProgress) {
                Ok(planned) => planned,
                Err(DeleteError::Commit(CommitError::NoFreeBlocks { needed, free: found })) => {
                    assert!(nr_steps == 0 && needed > found, "only the first step is hard");
                    break;
                }
                Err(error) => panic!("{error}"),
            };
            let gone = left.difference(&rest).copied().collect();
            let old = image.clone();
            deletion.commit(&mut image).unwrap();
            judge(&old, &image, &gone, false);
            (left, nr_steps) = (rest, nr_steps + 1);
        }
        if left.is_empty() {
            judge(&before, &image, &victims, false);
        }
        steps.insert(nr_steps);
    }
    assert!(steps.contains(&0) && steps.contains(&1), "{steps:?}");
}

/// A leaf of each device that no other device has.
fn own_leaves(image: &MemorySource) -> BTreeMap<ThinId, BlockNr> {
    let target = Target::read(image, &NoProgress).unwrap();
    let all: Vec<ThinId> = target.ids().collect();
    let leaf = |id: &ThinId| {
        let one = [*id].into_iter().collect();
        let dropped = super::drop::plan(&target, &one, DeleteOptions::default(), &NoProgress).unwrap();
        let own = dropped.forest.reached().find(|block| dropped.forest.info(*block).is_some_and(|info| info.is_leaf()));
        Some((*id, own?))
    };
    all.iter().filter_map(leaf).collect()
}

#[test]
fn damaged_devices_go_and_damaged_survivors_are_refused() {
    let options =
        GenerateOptions { devices: 3, snapshots: 2, mappings: 2000, change: 20, ..GenerateOptions::default() };
    let sound = pool(3000, &options);
    let leaves = own_leaves(&sound);
    assert!(leaves.len() > 1);
    for (id, leaf) in &leaves {
        let mut image = sound.clone();
        image.put(*leaf, &[0; 4096]).unwrap();
        set_needs_check(&mut image, true).unwrap();
        assert!(matches!(Target::read(&image, &NoProgress), Err(DeleteError::NeedsCheck)));
        let target = Target::read_damaged(&image, &NoProgress).unwrap();
        let with = |strategy| DeleteOptions { strategy, ..DeleteOptions::default() };
        let victims = [*id].into_iter().collect();
        assert!(matches!(plan(&target, &victims, with(Strategy::Drop), &NoProgress), Err(DeleteError::Damaged { .. })));
        let other = leaves.keys().filter(|other| *other != id).take(1).copied().collect();
        assert!(matches!(
            plan(&target, &other, with(Strategy::Recount), &NoProgress),
            Err(DeleteError::Damaged { .. })
        ));
        let deletion = plan(&target, &victims, with(Strategy::Recount), &NoProgress).unwrap();
        let mut after = image.clone();
        deletion.commit(&mut after).unwrap();
        assert!(ThinSuperblock::view(after.get(BlockNr(0)).unwrap()).needs_check());
        set_needs_check(&mut after, false).unwrap();
        judge(&sound, &after, &victims, false);
    }
}
