//! `thin_repair --in-place`, and the statuses of fsck: what is opted in for.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use support::{Run, finish, run, tool};

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

const LOST_LEAF: &str = "--kind noise --target mapping-leaf";
const LEAKS: &str = "--create-metadata-leaks --expected 0 --actual 1 --nr-blocks 7";

fn dump(image: &Path, more: &[&str]) -> String {
    let run = finish(tool("thin_dump").arg(image).args(more));
    run.expect_code(0);
    run.stdout
}

fn in_place(image: &Path, backup: &Path, more: &[&str]) -> Run {
    let backup = format!("--backup={}", backup.display());
    finish(tool("thin_repair").arg("-i").arg(image).args(["--in-place", &backup]).args(more))
}

#[test]
fn a_repair_in_place_gives_what_one_elsewhere_gives_and_keeps_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), &[LOST_LEAF]);
    let (backup, other) = (folder.path().join("backup"), folder.path().join("other.img"));
    fs::write(&other, vec![0; 400 * 4096]).unwrap();
    let before = fs::read(&image).unwrap();
    let elsewhere = finish(tool("thin_repair").args([Path::new("-i"), &image, Path::new("-o"), &other]));
    elsewhere.expect_code(0);
    in_place(&image, &backup, &[]).expect_code(0).expect("the same account", |run| {
        elsewhere.stderr.lines().all(|line| run.stderr.contains(line)) && run.stderr.contains("repaired in place")
    });
    assert!(fs::read(&backup).unwrap() == before);
    run("thin_check", [&image]).expect_code(0).expect("a clean pool", |run| run.stderr.contains("verdict: clean"));
    assert_eq!(dump(&image, &[]), dump(&other, &[]));
    // The copy is never overwritten, and the way back is plain.
    let repaired = fs::read(&image).unwrap();
    in_place(&image, &backup, &[]).expect_code(1);
    assert!(fs::read(&image).unwrap() == repaired && fs::read(&backup).unwrap() == before);
    let again = finish(tool("thin_repair").args([Path::new("-i"), &backup, Path::new("-o"), &image]));
    again.expect_code(0);
    assert_eq!(dump(&image, &[]), dump(&other, &[]));
}

#[test]
fn what_cannot_be_repaired_in_place_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    let image = pool(folder.path(), &[LOST_LEAF]);
    let before = fs::read(&image).unwrap();
    let pack = folder.path().join("pack");
    finish(tool("thin_metadata_pack").args([Path::new("-i"), &image, Path::new("-o"), &pack])).expect_code(0);
    in_place(&pack, &backup, &[]).expect_code(1).expect("why", |run| run.stderr.contains("not the metadata itself"));
    in_place(&image, &folder.path().join("missing/backup"), &[]).expect_code(1);
    in_place(&image, &image, &[]).expect_code(1);
    in_place(&image, &backup, &["-o", "elsewhere"]).expect_code(1);
    finish(tool("thin_repair").arg("-i").arg(&image).arg("--in-place"))
        .expect_code(1)
        .expect("what is missing", |run| run.stderr.contains("--backup"));
    let holder = fs::File::open(&image).unwrap();
    holder.lock_shared().unwrap();
    in_place(&image, &backup, &[]).expect_code(1).expect("why", |run| run.stderr.contains("in use"));
    holder.unlock().unwrap();
    assert!(fs::read(&image).unwrap() == before);
    let same = finish(tool("thin_repair").args([Path::new("-i"), &image, Path::new("-o"), &image]));
    same.expect_code(1).expect("the way", |run| run.stderr.contains("--in-place"));
    let zeros = folder.path().join("zeros.img");
    fs::write(&zeros, vec![0; 400 * 4096]).unwrap();
    in_place(&zeros, &folder.path().join("nothing"), &["--data-block-size=128"]).expect_code(1);
    assert!(!folder.path().join("nothing").exists());
}

#[test]
fn statuses_of_fsck_only_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let sound = || pool(folder.path(), &[]);
    let leaky = || pool(folder.path(), &[LEAKS]);
    let lost = || pool(folder.path(), &[LOST_LEAF]);
    for (tool_name, image, more, plain, fsck) in [
        ("thin_check", &sound as &dyn Fn() -> PathBuf, &[][..], 0, 0),
        ("thin_check", &sound, &["--auto-repair"], 0, 0),
        ("thin_check", &leaky, &[], 1, 4),
        ("thin_check", &leaky, &["--auto-repair"], 0, 1),
        ("thin_check", &leaky, &["--ignore-non-fatal-errors"], 0, 0),
        ("thin_check", &lost, &["--auto-repair"], 1, 4),
        ("thin_check", &|| missing.clone(), &[], 1, 8),
        ("thin_check", &sound, &["--nonsense"], 1, 16),
        ("thin_check", &sound, &["-m", "--auto-repair"], 1, 16),
        ("thin_dump", &lost, &["-o/dev/null"], 1, 4),
        ("thin_dump", &|| missing.clone(), &[], 1, 8),
    ] {
        for (scheme, status) in [(None, plain), (Some("--exit-codes=plain"), plain), (Some("--exit-codes=fsck"), fsck)]
        {
            let path = image();
            finish(tool(tool_name).args(scheme).args(more).arg(path)).expect_code(status);
        }
    }
    let image = lost();
    let repaired = in_place(&image, &folder.path().join("one"), &["--exit-codes=fsck", "--fail-on-loss"]);
    repaired.expect_code(4);
    let image = lost();
    in_place(&image, &folder.path().join("two"), &["--exit-codes", "fsck"]).expect_code(1);
    finish(tool("thin_check").args(["--exit-codes=other"]).arg(&image)).expect_code(1);
}
