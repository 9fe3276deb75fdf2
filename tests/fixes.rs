//! Fixes in place from the command line: what is put right, what is left alone, and that it can be taken back.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use support::{Run, finish, peer, raw_image, run, tool};

/// A pool of 400 blocks with snapshots, damaged as the lines of arguments for `thin_generate_damage` say.
fn pool(folder: &Path, damage: &[&str]) -> PathBuf {
    let path = folder.join("pool.img");
    fs::write(&path, vec![0; 400 * 4096]).unwrap();
    let made = ["--devices=2", "--snapshots=2", "--mappings=3000", "--change=20"];
    finish(tool("thin_generate_metadata").arg("-o").arg(&path).args(made)).expect_code(0);
    for line in damage {
        finish(tool("thin_generate_damage").arg("-o").arg(&path).args(line.split_whitespace())).expect_code(0);
    }
    path
}

fn needs_check(image: &Path) {
    finish(tool("thin_generate_metadata").arg("-o").arg(image).arg("--set-needs-check=true")).expect_code(0);
}

fn check(image: &Path, more: &[&str]) -> Run {
    finish(tool("thin_check").arg(image).args(more))
}

/// What a dump says; the image has to be sound for it.
fn dump(image: &Path) -> String {
    let run = run("thin_dump", [image]);
    run.expect_code(0);
    run.stdout
}

const LEAKS: &str = "--create-metadata-leaks --expected 0 --actual 1 --nr-blocks 7";
const TOO_LOW: &str = "--create-metadata-leaks --expected 1 --actual 0 --nr-blocks 7";

/// Runs a fix with --undo, holds the result against the distribution's check, and takes it back.
fn fixed_and_undone(image: &Path, option: &str) {
    let before = fs::read(image).unwrap();
    let text = finish(tool("thin_dump").arg("--repair").arg(image));
    let undo = image.with_extension("undo");
    let undo_option = format!("--undo={}", undo.display());
    check(image, &[option, &undo_option]).expect_code(0).expect("a word on it", |run| run.stderr.contains("put right"));
    let fixed = fs::read(image).unwrap();
    assert_ne!(before, fixed);
    check(image, &[]).expect_code(0).expect("a clean pool", |run| run.stderr.contains("verdict: clean"));
    if let Some(theirs) = peer("thin_check") {
        finish(std::process::Command::new(theirs).arg(image)).expect_code(0);
    }
    assert_eq!(dump(image), text.stdout);
    // A second time there is nothing to do.
    check(image, &[option]).expect_code(0);
    assert!(fs::read(image).unwrap() == fixed);
    let undone = finish(tool("thin_undo").args([&undo, image]));
    undone.expect_code(0).expect("a word on it", |run| run.stderr.contains("blocks were put back"));
    assert!(fs::read(image).unwrap() == before, "{option}");
}

#[test]
fn leaks_are_put_right() {
    for option in ["--auto-repair", "--clear-needs-check-flag", "--repair-space-maps"] {
        let folder = tempfile::tempdir().unwrap();
        let image = pool(folder.path(), &[LEAKS]);
        check(&image, &[]).expect_code(1).expect("tidy-able", |run| run.stderr.contains("verdict: tidy-able"));
        fixed_and_undone(&image, option);
    }
}

#[test]
fn counts_that_are_too_low_are_put_right_only_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), &[TOO_LOW]);
    let before = fs::read(&image).unwrap();
    for option in ["--auto-repair", "--clear-needs-check-flag"] {
        check(&image, &[option]).expect_code(1);
        assert!(fs::read(&image).unwrap() == before, "{option}");
    }
    fixed_and_undone(&image, "--repair-space-maps");
}

#[test]
fn space_maps_that_cannot_be_read_are_built_anew() {
    for target in ["data-bitmap", "data-index", "data-counts", "metadata-bitmap", "metadata-index"] {
        let folder = tempfile::tempdir().unwrap();
        let image = pool(folder.path(), &[&format!("--kind noise --target {target}")]);
        let before = fs::read(&image).unwrap();
        check(&image, &["--auto-repair"]).expect_code(1);
        assert!(fs::read(&image).unwrap() == before, "{target}");
        fixed_and_undone(&image, "--repair-space-maps");
    }
}

#[test]
fn mappings_are_never_changed() {
    for target in ["mapping-leaf", "mapping-node", "top-level", "details"] {
        let folder = tempfile::tempdir().unwrap();
        let image = pool(folder.path(), &[LEAKS, &format!("--kind noise --target {target}")]);
        needs_check(&image);
        let before = fs::read(&image).unwrap();
        for option in ["--auto-repair", "--clear-needs-check-flag", "--repair-space-maps"] {
            let undo = folder.path().join("undo");
            let refused = check(&image, &[option, &format!("--undo={}", undo.display())]);
            refused.expect_code(1).expect("a word on it", |run| run.stderr.contains("nothing was changed"));
            assert!(fs::read(&image).unwrap() == before, "{target} {option}");
            assert!(!undo.exists());
        }
    }
}

#[test]
fn the_flag_is_cleared_and_set_again() {
    let folder = tempfile::tempdir().unwrap();
    let image = raw_image("kernel/thin-needs-check", folder.path());
    let before = fs::read(&image).unwrap();
    let undo = folder.path().join("undo");
    check(&image, &["--clear-needs-check-flag", &format!("--undo={}", undo.display())])
        .expect_code(0)
        .expect("a word on it", |run| run.stderr.contains("needs_check was cleared"));
    let changed = fs::read(&image).unwrap();
    assert!(changed[4096..] == before[4096..], "only the superblock changes");
    assert_eq!((before[4], changed[4]), (1, 0));
    assert!(changed[5..4096] == before[5..4096], "only the flag, and the checksum before it");
    finish(tool("thin_undo").args([&undo, &image])).expect_code(0);
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn quietly_as_a_volume_manager_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), &[LEAKS]);
    needs_check(&image);
    let quiet = check(&image, &["-q", "--clear-needs-check-flag"]);
    quiet.expect_code(0).expect("no word", |run| run.stderr.is_empty() && run.stdout.is_empty());
    check(&image, &[]).expect_code(0).expect("a clean pool", |run| run.stderr.contains("verdict: clean"));
}

#[test]
fn what_would_lose_something_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), &[LEAKS]);
    let undo = folder.path().join("undo");
    fs::write(&undo, "precious").unwrap();
    let before = fs::read(&image).unwrap();
    // A file that is there is not overwritten, and without what takes it back nothing is changed.
    check(&image, &["--auto-repair", &format!("--undo={}", undo.display())])
        .expect_code(1)
        .expect("the file's name", |run| run.stderr.contains("undo"));
    assert_eq!(fs::read_to_string(&undo).unwrap(), "precious");
    assert!(fs::read(&image).unwrap() == before);
    // Something that is no undo file, and one of another pool.
    finish(tool("thin_undo").args([&undo, &image]))
        .expect_code(1)
        .expect("its name", |run| run.stderr.contains(&undo.display().to_string()));
    fs::remove_file(&undo).unwrap();
    check(&image, &["--auto-repair", &format!("--undo={}", undo.display())]).expect_code(0);
    let other = raw_image("kernel/thin-one", folder.path());
    let (fixed, untouched) = (fs::read(&image).unwrap(), fs::read(&other).unwrap());
    finish(tool("thin_undo").args([&undo, &other])).expect_code(1);
    assert!(fs::read(&other).unwrap() == untouched);
    // A pool that was changed since.
    needs_check(&image);
    let changed = fs::read(&image).unwrap();
    assert!(changed != fixed);
    finish(tool("thin_undo").args([&undo, &image])).expect_code(1);
    assert!(fs::read(&image).unwrap() == changed);
}
