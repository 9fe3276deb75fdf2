//! Deleting devices: the pool is the same pool without them, whatever wrote it and however they are deleted.

mod support;

use dmeta::base::{BlockNr, NoProgress, ThinId};
use dmeta::block::BlockOutput;
use dmeta::block::memory::MemorySource;
use dmeta::format::BLOCK_SIZE;
use dmeta::thin::check::{CheckOptions, check};
use dmeta::thin::delete::{DeleteError, DeleteOptions, Figures, Strategy, Target, plan, predict};
use dmeta::thin::dump::{DumpOptions, dump};
use dmeta::thin::generate;
use dmeta::thin::load::Snapshot;
use dmeta::thin::report::Verdict;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use support::cases::{self, Case};
use support::pool_text::PoolText;
use support::{finish, memory_image, peer, run, tool, words};

const STRATEGIES: [Strategy; 2] = [Strategy::Drop, Strategy::Recount];

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
    dumped(image, None)
}

fn dumped(image: &MemorySource, metadata_snapshot: Option<Snapshot>) -> PoolText {
    let mut out = Vec::new();
    let options = DumpOptions { flat: true, metadata_snapshot, ..DumpOptions::default() };
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
                if (strategy == Strategy::Drop) == (deletions % 4 == 0) {
                    second_opinion(&after, folder.path(), &what);
                }
                deletions += 1;
            }
        }
    }
    assert!(deletions > 100, "{deletions}");
}

/// Data blocks that each device maps, with repetitions.
fn mapped(pool: &PoolText) -> BTreeMap<u64, Vec<u64>> {
    let data = |device| pool.mappings(device).into_iter().map(|(_, data, _)| data).collect();
    pool.devices.iter().map(|device| (device.id(), data(device))).collect()
}

/// Holds what is foretold against what a list of all mappings gives.
fn foretell(case: &Case, image: &MemorySource, before: &PoolText, victims: &BTreeSet<ThinId>, strategy: Strategy) {
    let what = format!("{}, {victims:?}, {strategy:?}", case.name);
    let options = DeleteOptions { strategy, ..DeleteOptions::default() };
    let account = predict(&Target::read(image, &NoProgress).unwrap(), victims, options, None, &NoProgress).unwrap();
    let is_victim = |id: &u64| victims.contains(&ThinId(*id));
    let (gone, left): (BTreeMap<_, _>, BTreeMap<_, _>) = mapped(before).into_iter().partition(|(id, _)| is_victim(id));
    let mut used: BTreeSet<u64> = left.into_values().flatten().collect();
    if case.held_root().is_some() {
        used.extend(mapped(&dumped(image, Some(Snapshot::Held))).into_values().flatten());
    }
    let told: Vec<(u64, u64, Option<u64>)> =
        account.devices.iter().map(|device| (device.id.0, device.mapped, device.freed)).collect();
    let wanted: Vec<(u64, u64, Option<u64>)> = gone
        .iter()
        .map(|(id, data)| {
            (*id, data.len() as u64, Some(data.iter().filter(|block| !used.contains(block)).count() as u64))
        })
        .collect();
    assert_eq!(told, wanted, "{what}");
    let freed: BTreeSet<u64> = gone.into_values().flatten().filter(|block| !used.contains(block)).collect();
    assert!(account.freed.iter().cloned().flatten().eq(freed.iter().copied()), "{what}");
    assert_eq!(account.figures.data_freed(), freed.len() as u64, "{what}");
    let (_, done) = delete(image, victims, strategy).unwrap();
    assert_eq!(account.figures, done, "{what}");
}

#[test]
fn what_would_come_back_is_foretold() {
    let folder = tempfile::tempdir().unwrap();
    for case in cases::pools().filter(|case| case.name != "thin-meta-full") {
        let image = sound_image(&case, folder.path());
        let before = pool(&image);
        let all: Vec<u64> = before.devices.iter().map(|device| device.id()).collect();
        for victims in [ids(all.iter().copied()), ids(all.iter().step_by(2).copied())] {
            if victims.len() > 1 {
                foretell(&case, &image, &before, &victims, Strategy::Drop);
            }
        }
        for (id, strategy) in all.iter().zip([Strategy::Drop, Strategy::Recount].into_iter().cycle()) {
            foretell(&case, &image, &before, &ids([*id]), strategy);
        }
    }
}

#[test]
fn the_tool_tells_first_and_writes_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let case = cases::pools().find(|case| case.name == "thin-snaps").unwrap();
    let path = case.image(folder.path());
    let metadata = path.to_str().unwrap();
    let before = fs::read(&path).unwrap();
    let run_it = run("thin_delete", ["--dry-run", "--dev-id=0,10-13", metadata]);
    run_it.expect_code(0).expect("a line for each", |run| run.stdout.lines().count() == 9);
    let json = run("thin_delete", ["--dry-run", "--json", "--dev-id=0,10-13", metadata]);
    let account: Value = serde_json::from_str(&json.expect_code(0).stdout).unwrap();
    let all = &account["all"];
    // Nothing of these is shared with others: all of it comes back.
    assert_eq!(account["devices"][1]["shared_with_survivors"], 0);
    assert_eq!(all["freed_bytes"].as_u64().unwrap(), all["freed_data_blocks"].as_u64().unwrap() * 512 * 1024);
    run_it.expect("the same", |run| run.stdout.contains(&format!(" {} ", all["freed_data_blocks"])));

    let out = folder.path().join("out.img");
    fs::File::create(&out).unwrap().set_len(4 << 20).unwrap();
    run("thin_delete", ["--dev-id=0,10-13", "-o", out.to_str().unwrap(), metadata]).expect_code(0);
    run("thin_check", [&out]).expect_code(0);
    let written = pool(&memory_image(&out));
    assert!(fs::read(&path).unwrap() == before, "the input is only read");

    let (ranges, json_ranges) = (folder.path().join("ranges"), folder.path().join("ranges.json"));
    run("thin_delete", ["--dev-id=0,10-13", "--freed-ranges", ranges.to_str().unwrap(), metadata]).expect_code(0);
    assert_eq!(pool(&memory_image(&path)), written);
    let text = fs::read_to_string(&ranges).unwrap();
    let lengths = text.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap());
    assert_eq!(lengths.sum::<u64>(), all["freed_bytes"].as_u64().unwrap());
    fs::write(&path, &before).unwrap();
    let option = format!("--freed-ranges={}", json_ranges.display());
    run("thin_delete", ["--dev-id=0,10-13", "--json", &option, metadata]).expect_code(0);
    let document: Value = serde_json::from_str(&fs::read_to_string(&json_ranges).unwrap()).unwrap();
    assert_eq!(document["freed"].as_array().unwrap().len(), text.lines().count());
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

#[test]
fn without_victims_another_image_is_written_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let case = cases::pools().find(|case| case.name == "thin-snaps").unwrap();
    let image = case.image(folder.path());
    let out = folder.path().join("out.img");
    std::fs::File::create(&out).unwrap().set_len(16 << 20).unwrap();
    let (ranges, before) = (folder.path().join("ranges"), std::fs::read(&image).unwrap());
    let run = |line: &str, paths: [&std::path::Path; 2]| {
        finish(tool("thin_delete").args(words(line)).args(paths)).expect_code(0);
    };
    run("--dev-id 9999999 --ignore-missing -o", [&out, &image]);
    support::run("thin_check", [&out]).expect_code(0);
    let dump = |image| support::run("thin_dump", ["--flat".as_ref(), std::ffi::OsStr::new(image)]).stdout;
    assert_eq!(dump(out.as_os_str()), dump(image.as_os_str()));
    run("--dev-id 9999999 --ignore-missing --freed-ranges", [&ranges, &image]);
    assert_eq!(std::fs::read_to_string(&ranges).unwrap(), "");
    support::run("thin_check", [&image]).expect_code(0);
    std::fs::write(&image, before).unwrap();
    let told =
        finish(tool("thin_delete").args(words("--dry-run --json --dev-id 9999999 --ignore-missing")).arg(&image));
    told.expect_code(0).expect("an object", |run| run.stdout.starts_with('{'));
}
