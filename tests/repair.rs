//! `thin_repair` from the command line: its forms, its account, and that the input stays as it is.

mod support;

use dmeta::base::BlockNr;
use dmeta::format::BLOCK_SIZE;
use dmeta::format::block::{self, BlockKind};
use dmeta::format::superblock::ThinSuperblock;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use support::json_document::holds_what_is_documented;
use support::{Run, finish, run, tool};

const BLOCKS: usize = 500;

/// A pool with snapshots, damaged as the arguments for `thin_generate_damage` say.
fn pool(folder: &Path, damage: &str) -> PathBuf {
    let path = output(folder, "pool.img", BLOCKS);
    let made = ["--devices=3", "--snapshots=1", "--mappings=6000", "--change=20", "--run-length=2"];
    finish(tool("thin_generate_metadata").arg("-o").arg(&path).args(made)).expect_code(0);
    if !damage.is_empty() {
        finish(tool("thin_generate_damage").arg("-o").arg(&path).args(damage.split_whitespace())).expect_code(0);
    }
    path
}

fn output(folder: &Path, name: &str, blocks: usize) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, vec![0; blocks * 4096]).unwrap();
    path
}

fn repair(input: &Path, output: &Path, more: &[&str]) -> Run {
    finish(tool("thin_repair").args([Path::new("-i"), input, Path::new("-o"), output]).args(more))
}

fn dump(image: &Path, more: &[&str]) -> String {
    let run = finish(tool("thin_dump").arg(image).args(more));
    run.expect_code(0);
    run.stdout
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value:#}"))
}

#[test]
fn every_spelling_writes_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "--kind noise --target mapping-leaf --count 2");
    let before = fs::read(&image).unwrap();
    let mut first = None;
    let (input, target) = (image.display().to_string(), folder.path().join("out.img"));
    let out = target.display().to_string();
    for form in [
        vec!["-i", &input, "-o", &out],
        vec!["-o", &out, "-i", &input],
        vec!["--input", &input, "--output", &out],
        vec![&format!("-i{input}"), &format!("-o{out}")],
        vec![&format!("--input={input}"), &format!("--output={out}"), "-q"],
        vec!["-i", &input, "-o", &out, "--threads", "1"],
        vec!["-i", &input, "-o", &out, "--json"],
        vec!["-v", "-i", &input, "-o", &out, "--io-engine=sync"],
    ] {
        output(folder.path(), "out.img", BLOCKS);
        run("thin_repair", &form).expect_code(0);
        let written = fs::read(&target).unwrap();
        assert!(*first.get_or_insert_with(|| written.clone()) == written, "{form:?}");
    }
    assert!(fs::read(&image).unwrap() == before);
    run("thin_check", [&target]).expect_code(0);
    assert_eq!(dump(&target, &["--flat"]), dump(&image, &["--flat", "--repair"]));
}

#[test]
fn the_account_is_the_same_in_words_and_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "--kind noise --target mapping-leaf --count 3 --seed 4");
    let target = output(folder.path(), "out.img", BLOCKS);
    let told = repair(&image, &target, &[]);
    told.expect_code(0).expect("words on standard error alone", |run| run.stdout.is_empty());
    let account = repair(&image, &target, &["--json"]);
    let account = json(&account.expect_code(0).stdout);
    assert_eq!(account["anything_lost"], true, "{account:#}");
    let mut lost = 0;
    for device in account["devices"].as_array().unwrap() {
        let (id, here) = (number(device, "id"), number(device, "mappings_lost"));
        let (found, expected) = (number(device, "mappings_found"), number(device, "mappings_expected"));
        assert_eq!(expected, 6000);
        assert_eq!(found + here, expected, "{device:#}");
        let line = format!("device {id}: {found} mappings of 6000, {here} lost in virtual blocks");
        told.expect("a line on each damaged device", |run| run.stderr.contains(&line) == (here > 0));
        let ranges = device["lost_ranges"].as_array().unwrap();
        let width = |range: &Value| number(range, "end") - number(range, "begin");
        assert!(ranges.iter().map(width).sum::<u64>() >= here, "{device:#}");
        lost += here;
        let text = dump(&target, &["--skip-mappings"]);
        assert!(text.contains(&format!("<device dev_id=\"{id}\" mapped_blocks=\"{found}\"")), "{text}");
    }
    assert!(lost > 0);
    // One leaf holds no more than 252 mappings, in each of the devices that share it.
    assert!(lost <= 3 * 252 * 2, "{lost}");
    repair(&image, &target, &["--fail-on-loss"]).expect_code(1);
    run("thin_check", [&target]).expect_code(0);
    let sound = pool(folder.path(), "");
    repair(&sound, &target, &["--fail-on-loss"]).expect_code(0);
}

#[test]
fn roots_are_listed_and_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "");
    let before = fs::read(&image).unwrap();
    let table = finish(tool("thin_repair").args([Path::new("-i"), &image]).arg("--list-roots"));
    table.expect_code(0);
    let list = finish(tool("thin_repair").args([Path::new("-i"), &image]).args(["--list-roots", "--json"]));
    let list = json(&list.expect_code(0).stdout);
    let best = &list["roots"][0];
    let root = |name: &str| number(best, name);
    let superblock = |offset: usize| u64::from_le_bytes(before[offset..offset + 8].try_into().unwrap());
    assert_eq!((root("mapping_root"), root("details_root")), (superblock(320), superblock(328)));
    assert!(table.stdout.contains(&root("mapping_root").to_string()));
    assert!(fs::read(&image).unwrap() == before);
    let expected = dump(&image, &["--flat"]);
    let chosen = format!("--root={},{}", root("mapping_root"), root("details_root"));
    // Without a superblock the same pair is found again; what only the superblock held is given.
    let mut bytes = before.clone();
    bytes[..4096].fill(0);
    let lost = folder.path().join("lost.img");
    fs::write(&lost, &bytes).unwrap();
    let target = output(folder.path(), "out.img", BLOCKS);
    for (input, options) in [(&image, vec![chosen.as_str()]), (&lost, vec![]), (&lost, vec![chosen.as_str()])] {
        let mut given = options.clone();
        if input == &lost {
            repair(input, &target, &options)
                .expect_code(1)
                .expect("what is missing", |run| run.stderr.contains("--data-block-size"));
            given.push("--data-block-size=128");
        }
        repair(input, &target, &given).expect_code(0);
        assert_eq!(dump(&target, &["--flat"]), expected, "{given:?}");
    }
    for wrong in ["--root=1", "--root=a,b", "--root=1,2,3"] {
        repair(&image, &target, &[wrong]).expect_code(1);
    }
    // Blocks that are no roots.
    fs::write(&target, vec![0; BLOCKS * 4096]).unwrap();
    repair(&image, &target, &["--root=0,0"]).expect_code(1);
    assert!(fs::read(&target).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_given_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "");
    let target = output(folder.path(), "out.img", BLOCKS);
    repair(&image, &target, &["--transaction-id=77", "--data-block-size=1024", "--nr-data-blocks=900000"])
        .expect_code(0);
    let first = dump(&target, &["--skip-mappings"]);
    let first = first.lines().next().unwrap();
    for wanted in ["transaction=\"77\"", "data_block_size=\"1024\"", "nr_data_blocks=\"900000\""] {
        assert!(first.contains(wanted), "{first}");
    }
    run("thin_check", [&target]).expect_code(0);
}

#[test]
fn what_cannot_be_written_leaves_all_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "--kind noise --target mapping-leaf");
    let before = fs::read(&image).unwrap();
    // Too small.
    let small = output(folder.path(), "small.img", 20);
    repair(&image, &small, &[]).expect_code(1).expect("both numbers", |run| {
        let numbers: Vec<u64> =
            run.stderr.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        run.stderr.contains("too small") && numbers.contains(&20) && numbers.iter().any(|number| *number > 20)
    });
    assert!(fs::read(&small).unwrap().iter().all(|byte| *byte == 0));
    // Into itself, also by another name.
    let link = folder.path().join("link.img");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    let hard = folder.path().join("hard.img");
    fs::hard_link(&image, &hard).unwrap();
    for same in [&image, &link, &hard] {
        repair(&image, same, &[]).expect_code(1);
        assert!(fs::read(&image).unwrap() == before);
    }
    // To nowhere, and from nowhere.
    let nowhere = folder.path().join("nowhere.img");
    repair(&image, &nowhere, &[]).expect_code(1).expect("its name", |run| run.stderr.contains("nowhere.img"));
    assert!(!nowhere.exists());
    let target = output(folder.path(), "out.img", BLOCKS);
    fs::write(&target, vec![7; BLOCKS * 4096]).unwrap();
    repair(&nowhere, &target, &[]).expect_code(1).expect("its name", |run| run.stderr.contains("nowhere.img"));
    for content in [vec![0; 100 * 4096], vec![0xa5; 100 * 4096], vec![]] {
        let garbage = folder.path().join("garbage.img");
        fs::write(&garbage, &content).unwrap();
        repair(&garbage, &target, &["--data-block-size=128"]).expect_code(1);
    }
    assert!(fs::read(&target).unwrap().iter().all(|byte| *byte == 7));
}

/// The image with another superblock, its checksum good.
fn with_superblock(image: &Path, change: impl FnOnce(&mut ThinSuperblock)) {
    let mut bytes = fs::read(image).unwrap();
    let mut superblock = ThinSuperblock::view(bytes[..BLOCK_SIZE].try_into().unwrap()).clone();
    change(&mut superblock);
    bytes[..BLOCK_SIZE].copy_from_slice(&superblock.to_block(BlockNr(0))[..]);
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_superblock_with_fields_that_cannot_be_is_the_same_to_a_repair_and_to_a_dump() {
    type Change = fn(&mut ThinSuperblock);
    let folder = tempfile::tempdir().unwrap();
    let sound = pool(folder.path(), "");
    let bytes = fs::read(&sound).unwrap();
    let expected = dump(&sound, &["--flat"]);
    let target = output(folder.path(), "out.img", BLOCKS);
    let size: (&[&str], &str) = (&["--data-block-size=128"], "--data-block-size");
    let number: (&[&str], &str) = (&["--nr-data-blocks=1000000"], "--nr-data-blocks");
    let nothing: (&[&str], &str) = (&[], "");
    let cases: [(Change, (&[&str], &str)); 9] = [
        (|superblock| superblock.data_block_size = 0.into(), size),
        (|superblock| superblock.data_block_size = 100.into(), size),
        (|superblock| superblock.data_block_size = u32::MAX.into(), size),
        (|superblock| superblock.data_space_map.nr_blocks = u64::MAX.into(), number),
        (|superblock| superblock.data_space_map.nr_blocks = (1 << 40).into(), number),
        (|superblock| superblock.version = 9.into(), nothing),
        (|superblock| superblock.time = u32::MAX.into(), nothing),
        (|superblock| superblock.flags = 6.into(), nothing),
        (|superblock| superblock.metadata_nr_blocks = 0.into(), nothing),
    ];
    for (at, (change, (options, named))) in cases.into_iter().enumerate() {
        fs::write(&sound, &bytes).unwrap();
        with_superblock(&sound, change);
        if !options.is_empty() {
            let refused = repair(&sound, &target, &[]);
            refused.expect_code(1).expect("the option that helps", |run| run.stderr.contains(named));
            let dumped = finish(tool("thin_dump").arg("--repair").arg(&sound));
            let same = |run: &Run| run.stdout.is_empty() && refused.stderr.ends_with(said(&run.stderr));
            dumped.expect_code(1).expect("the same words", same);
        }
        let devices = |text: &str| text.split_once('\n').unwrap().1.to_string();
        let dumped = dump(&sound, &[&["--repair", "--flat"], options].concat());
        assert_eq!(devices(&dumped), devices(&expected), "case {at}");
        repair(&sound, &target, options).expect_code(0);
        run("thin_check", [&target]).expect_code(0);
        let repaired = dump(&target, &["--flat"]);
        assert_eq!(repaired, dumped.replace("flags=\"6\"", "flags=\"0\""), "case {at}");
        let xml = folder.path().join("dump.xml");
        fs::write(&xml, &dumped).unwrap();
        finish(tool("thin_restore").args([Path::new("-i"), &xml, Path::new("-o"), &target])).expect_code(0);
    }
}

/// A message without the tool's name before it, and without what was done.
fn said(line: &str) -> &str {
    line.split_once(": ").unwrap().1
}

#[test]
fn mappings_past_a_data_device_that_is_too_small_are_told_with_the_option_that_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "");
    let expected = dump(&image, &["--flat"]);
    with_superblock(&image, |superblock| superblock.data_space_map.nr_blocks = 10.into());
    let target = output(folder.path(), "out.img", BLOCKS);
    repair(&image, &target, &[]).expect_code(0).expect("the option", |run| run.stderr.contains("--nr-data-blocks"));
    repair(&image, &target, &["--nr-data-blocks=1000000"]).expect_code(0);
    let all = dump(&target, &["--flat"]);
    assert_eq!(all.lines().skip(1).collect::<Vec<_>>(), expected.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn what_is_guessed_without_a_superblock_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "");
    let mut bytes = fs::read(&image).unwrap();
    bytes[..BLOCK_SIZE].fill(0);
    fs::write(&image, bytes).unwrap();
    let target = output(folder.path(), "out.img", BLOCKS);
    let (size, id, number) = ("--data-block-size=128", "--transaction-id=50", "--nr-data-blocks=70000");
    for (given, guessed) in [
        (vec![size], vec!["transaction id", "data blocks"]),
        (vec![size, id], vec!["data blocks"]),
        (vec![size, number], vec!["transaction id"]),
        (vec![size, id, number], vec![]),
    ] {
        let told = repair(&image, &target, &given);
        let first = dump(&target, &["--skip-mappings"]).lines().next().unwrap().to_string();
        let dumped = finish(tool("thin_dump").arg("--repair").arg(&image).args(&given));
        let account = json(&repair(&image, &target, &[&given[..], &["--json"]].concat()).stdout);
        assert_eq!(account["superblock"], "lost");
        assert_eq!(account["anything_lost"], true);
        for (what, name, attribute) in
            [("transaction id", "transaction_id", "transaction"), ("data blocks", "nr_data_blocks", "nr_data_blocks")]
        {
            let is_guessed = guessed.contains(&what);
            let value = number_of(&account[name]);
            assert!(first.contains(&format!(" {attribute}=\"{value}\"")), "{first}: {value}");
            assert_eq!(account[name]["origin"], if is_guessed { "made" } else { "given" });
            let option = format!("--{}", name.replace('_', "-"));
            for run in [&told, &dumped] {
                run.expect_code(0).expect("the loss", |run| run.stderr.contains("the superblock is lost"));
                let guess = |line: &str| line.starts_with("guessed: ") && line.contains(&option);
                let line = run.stderr.lines().find(|line| guess(line));
                assert_eq!(line.is_some(), is_guessed, "{option}\n{run}");
                assert!(line.is_none_or(|line| line.contains(&value.to_string())), "{value}\n{run}");
            }
        }
    }
}

fn number_of(field: &Value) -> u64 {
    number(field, "value")
}

#[test]
fn what_was_given_and_is_lower_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "");
    let target = output(folder.path(), "out.img", BLOCKS);
    let own = dump(&image, &["--skip-mappings"]);
    let attribute = |name: &str| -> u64 {
        let (_, rest) = own.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let mut lowers = 0;
    for (option, name, words) in [
        ("--transaction-id", "transaction", "transaction id"),
        ("--data-block-size", "data_block_size", "data block size"),
        ("--nr-data-blocks", "nr_data_blocks", "number of data blocks"),
    ] {
        let own = attribute(name);
        let step = if name == "data_block_size" { 128 } else { 1 };
        for given in [own.checked_sub(step).filter(|lower| *lower > 0), Some(own), Some(own + step)] {
            let Some(given) = given else { continue };
            let option = format!("{option}={given}");
            let runs = [
                finish(tool("thin_dump").arg(&image).arg(&option)),
                finish(tool("thin_dump").arg("-r").arg(&image).arg(&option)),
                repair(&image, &target, &[&option]),
            ];
            let warning = format!("the pool's {words} is {own}; {given} was written");
            lowers += usize::from(given < own);
            for run in runs {
                run.expect_code(0).expect("a warning", |run| run.stderr.contains(&warning) == (given < own));
                let first = if run.stdout.is_empty() { dump(&target, &["--skip-mappings"]) } else { run.stdout };
                assert!(first.contains(&format!(" {name}=\"{given}\"")), "{option}: {first}");
            }
        }
    }
    assert!(lowers > 0);
}

#[test]
fn a_data_block_size_that_no_pool_can_have_is_refused_up_front() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), "");
    for wrong in ["0", "100", "2097280", "4294967296", "x", ""] {
        let option = format!("--data-block-size={wrong}");
        for arguments in [vec!["thin_dump"], vec!["thin_dump", "-r"]] {
            let run = finish(tool(arguments[0]).args(&arguments[1..]).arg(&image).arg(&option));
            run.expect_code(1).expect("no dump", |run| run.stdout.is_empty() && run.stderr.contains("data-block-size"));
        }
        let target = output(folder.path(), "out.img", BLOCKS);
        repair(&image, &target, &[&option]).expect_code(1);
    }
}

#[test]
fn metadata_of_something_else_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = output(folder.path(), "out.img", BLOCKS);
    for (kind, name) in [(BlockKind::CacheSuperblock, "cache"), (BlockKind::EraSuperblock, "era device")] {
        let image = folder.path().join("other.img");
        let mut bytes = vec![0; 64 * BLOCK_SIZE];
        let block: &mut [u8; BLOCK_SIZE] = (&mut bytes[..BLOCK_SIZE]).try_into().unwrap();
        block::seal(block, kind, BlockNr(0));
        fs::write(&image, bytes).unwrap();
        let named =
            |run: &Run| run.stderr.contains(&format!("metadata of a{} {name}", if name == "cache" { "" } else { "n" }));
        repair(&image, &target, &[]).expect_code(1).expect("what it is", named);
        repair(&image, &target, &["--data-block-size=128"]).expect_code(1).expect("what it is", named);
        finish(tool("thin_dump").arg("-r").arg(&image)).expect_code(1).expect("what it is", named);
        finish(tool("thin_repair").arg("-i").arg(&image).arg("--list-roots")).expect("what it is", named);
    }
}

#[test]
fn its_json_is_as_documented() {
    let document = include_str!("../docs/thin_repair.json.md");
    let folder = tempfile::tempdir().unwrap();
    let target = output(folder.path(), "out.img", BLOCKS);
    for damage in ["", "--kind noise --target mapping-leaf --count 3", "--kind noise --target details"] {
        let image = pool(folder.path(), damage);
        let account = json(&repair(&image, &target, &["--json"]).expect_code(0).stdout);
        holds_what_is_documented(document, "## The account", &[&account]);
        let fields = ["transaction_id", "data_block_size", "nr_data_blocks"].map(|name| &account[name]);
        holds_what_is_documented(document, "## `transaction_id`, `data_block_size`, `nr_data_blocks`", &fields);
        let devices: Vec<&Value> = account["devices"].as_array().unwrap().iter().collect();
        assert!(!devices.is_empty());
        holds_what_is_documented(document, "## A member of `devices`", &devices);
        let list = finish(tool("thin_repair").args([Path::new("-i"), &image]).args(["--list-roots", "--json"]));
        let list = json(&list.expect_code(0).stdout);
        holds_what_is_documented(document, "## `--list-roots`", &[&list]);
        let roots: Vec<&Value> = list["roots"].as_array().unwrap().iter().collect();
        holds_what_is_documented(document, "## A member of `roots`", &roots);
    }
}
