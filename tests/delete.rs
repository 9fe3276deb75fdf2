//! Deleting devices: the pool is the same pool without them, whatever wrote it and however they are deleted.

mod support;

use dmeta::base::{BlockNr, NoProgress, ThinId};
use dmeta::block::BlockOutput;
use dmeta::block::memory::MemorySource;
use dmeta::format::BLOCK_SIZE;
use dmeta::thin::check::{CheckOptions, check};
use dmeta::thin::delete::{DeleteError, DeleteOptions, Figures, Strategy, Target, plan};
use dmeta::thin::dump::{DumpOptions, dump};
use dmeta::thin::generate;
use dmeta::thin::report::Verdict;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use support::cases::{self, Case};
use support::pool_text::PoolText;
use support::{finish, memory_image, peer, run};

const STRATEGIES: [Strategy; 1] = [Strategy::Recount];

/// The image of a case in memory, without needs_check: that is another test's business.
fn sound_image(case: &Case, folder: &Path) -> MemorySource {
    let mut image = memory_image(&case.image(folder));
    generate::set_needs_check(&mut image, false).unwrap();
    image
}

fn ids(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<ThinId> {
    numbers.into_iter().map(ThinId).collect()
}

/// The mappings of every device, flat, and the superblock's fields.
fn pool(image: &MemorySource) -> PoolText {
    let mut out = Vec::new();
    let options = DumpOptions { flat: true, ..DumpOptions::default() };
    dump(image, &options, &mut out, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
    PoolText::from_xml(&String::from_utf8(out).unwrap())
}

fn delete(
    image: &MemorySource,
    victims: &BTreeSet<ThinId>,
    strategy: Strategy,
) -> Result<(MemorySource, Figures), DeleteError> {
    let options = DeleteOptions { strategy, ..DeleteOptions::default() };
    let deletion = plan(&Target::read(image, &NoProgress)?, victims, options, &NoProgress)?;
    let figures = deletion.figures();
    let mut after = image.clone();
    deletion.commit(&mut after)?;
    Ok((after, figures))
}

/// Holds the result of a deletion against the pool that it was made from.
#[track_caller]
fn judge(before: &PoolText, after: &MemorySource, victims: &BTreeSet<ThinId>, figures: Figures, what: &str) {
    let mut wanted = before.clone();
    wanted.devices.retain(|device| !victims.contains(&ThinId(device.id())));
    assert_eq!(pool(after), wanted, "{what}");
    let report = check(after, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
    assert_eq!(report.verdict(), Verdict::Clean, "{what}\n{}", report.text());
    let used = (report.data.unwrap().allocated, report.metadata.unwrap().allocated);
    assert_eq!(used, (figures.data_after, figures.metadata_after), "{what}");
}

#[test]
fn every_device_of_every_pool_that_a_kernel_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let mut deletions = 0;
    for case in cases::pools().filter(|case| case.name != "thin-meta-full") {
        let image = sound_image(&case, folder.path());
        let before = pool(&image);
        let all: Vec<u64> = before.devices.iter().map(|device| device.id()).collect();
        let one_each = all.iter().map(|id| ids([*id]));
        let half = all.iter().step_by(2).copied();
        for victims in one_each.chain([ids(all.iter().copied()), ids(half)]).filter(|victims| !victims.is_empty()) {
            for strategy in STRATEGIES {
                let what = format!("{}, {victims:?}, {strategy:?}", case.name);
                let (after, figures) =
                    delete(&image, &victims, strategy).unwrap_or_else(|error| panic!("{what}: {error}"));
                judge(&before, &after, &victims, figures, &what);
                second_opinion(&after, folder.path(), &what);
                deletions += 1;
            }
        }
    }
    assert!(deletions > 100, "{deletions}");
}

/// What the distribution's checker says of it.
fn second_opinion(image: &MemorySource, folder: &Path, what: &str) {
    let Some(peer) = peer("thin_check") else { return };
    let path = folder.join("deleted.img");
    write_image(image, &path);
    let run = finish(std::process::Command::new(peer).arg(&path));
    assert_eq!(run.code, Some(0), "{what}\n{run}");
}

fn write_image(image: &MemorySource, path: &Path) {
    let mut bytes = vec![0; BlockOutput::nr_blocks(image) as usize * BLOCK_SIZE];
    for (location, slot) in (0..).zip(bytes.chunks_exact_mut(BLOCK_SIZE)) {
        slot.copy_from_slice(image.get(BlockNr(location)).unwrap());
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn the_tool_deletes_in_place_and_takes_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let case = cases::pools().find(|case| case.name == "thin-snaps").unwrap();
    let path = case.image(folder.path());
    let (metadata, undo) = (path.to_str().unwrap(), folder.path().join("undo"));
    let before = fs::read(&path).unwrap();
    let text = |path: &Path| pool(&memory_image(path));
    let pool_before = text(&path);
    let kept: Vec<u64> = vec![2, 12];
    for (list, left) in [("--dev-id=0-1,10,11,13-30", &kept), ("--keep=2,12", &kept)] {
        run("thin_delete", [list, "--undo", undo.to_str().unwrap(), metadata]).expect_code(0);
        let after = text(&path);
        assert_eq!(after.devices.iter().map(|device| device.id()).collect::<Vec<_>>(), *left);
        assert_eq!(after.superblock, pool_before.superblock);
        run("thin_check", [metadata]).expect_code(0);
        run("thin_undo", [undo.to_str().unwrap(), metadata]).expect_code(0);
        assert!(fs::read(&path).unwrap() == before);
        fs::remove_file(&undo).unwrap();
    }
    let list = folder.path().join("list");
    fs::write(&list, "# snapshots\n20-22 # of 1\n\n30,11\n").unwrap();
    run("thin_delete", ["--from", list.to_str().unwrap(), "--transaction-id=77", metadata])
        .expect_code(0)
        .expect("figures", |run| run.stderr.contains("5 devices deleted"));
    let after = text(&path);
    assert_eq!(after.devices.iter().map(|device| device.id()).collect::<Vec<_>>(), [0, 1, 2, 10, 12, 13]);
    assert_eq!(after.superblock[1], 77);
}

#[test]
fn what_is_not_there_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let case = cases::pools().find(|case| case.name == "thin-snaps").unwrap();
    let path = case.image(folder.path());
    let metadata = path.to_str().unwrap();
    let before = fs::read(&path).unwrap();
    for (option, unknown) in [("--dev-id=1,3", "3"), ("--dev-id=0,40-50", "in 40-50"), ("--keep=1,4", "4")] {
        let run = run("thin_delete", [option, metadata]);
        run.expect_code(1).expect("the id", |run| run.stderr.contains(&format!("there is no device {unknown};")));
    }
    run("thin_delete", [metadata]).expect_code(1).expect("advice", |run| run.stderr.contains("give --dev-id"));
    assert!(fs::read(&path).unwrap() == before);
    run("thin_delete", ["--dev-id=3", "--ignore-missing", metadata]).expect_code(0);
    assert!(fs::read(&path).unwrap() == before);
    run("thin_delete", ["--dev-id=1,3", "--ignore-missing", metadata]).expect_code(0);
    assert!(fs::read(&path).unwrap() != before);
}

#[test]
fn needs_check_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let case = cases::pools().find(|case| case.name == "thin-needs-check").unwrap();
    let path = case.image(folder.path());
    let before = fs::read(&path).unwrap();
    let id = pool(&memory_image(&path)).devices[0].id().to_string();
    for option in ["--quiet", "--no-check", "--quick-check", "--ignore-missing"] {
        let run = run("thin_delete", ["--dev-id", &id, option, path.to_str().unwrap()]);
        run.expect_code(1).expect("what to run", |run| {
            option == "--quiet" || run.stderr.contains("thin_check --clear-needs-check-flag")
        });
    }
    assert!(fs::read(&path).unwrap() == before);
}
