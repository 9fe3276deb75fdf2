//! `thin_repair` from the command line: its forms, its account, and that the input stays as it is.

mod support;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
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
