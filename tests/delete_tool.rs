//! `thin_delete` from the command line: what it tells before, and what it refuses.

#[path = "damage/build.rs"]
#[allow(dead_code, reason = "every test binary uses its own part of this")]
mod build;
#[path = "damage/image.rs"]
#[allow(dead_code, reason = "every test binary uses its own part of this")]
mod image;
#[path = "damage/model.rs"]
#[allow(dead_code, reason = "every test binary uses its own part of this")]
mod model;
#[path = "damage/model_maps.rs"]
mod model_maps;
mod support;
#[path = "damage/targeted.rs"]
#[allow(dead_code, reason = "every test binary uses its own part of this")]
mod targeted;

use dmeta::format::block::le64;
use image::set64;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::json_document::holds_what_is_documented;
use support::{Run, finish, run, tool};
use targeted::Scene;

/// Where the superblock has the number of allocated data blocks (docs/format.md 4.1).
const ALLOCATED: usize = 72;

/// A pool of 3 devices with 2 snapshots each: devices 1 to 9.
fn pool(folder: &Path, blocks: usize) -> PathBuf {
    let path = folder.join("pool.img");
    fs::write(&path, vec![0; blocks * 4096]).unwrap();
    let made = ["--devices=3", "--snapshots=2", "--mappings=3000", "--change=20", "--run-length=2"];
    finish(tool("thin_generate_metadata").arg("-o").arg(&path).args(made)).expect_code(0);
    path
}

/// The same pool as an image in which every metadata block is in use, and as XML.
fn full(image: &Path) -> (PathBuf, PathBuf) {
    let (xml, full) = (image.with_extension("xml"), image.with_extension("full"));
    finish(tool("thin_dump").arg(image).arg("-o").arg(&xml)).expect_code(0);
    let restore = |blocks: u64| {
        File::create(&full).unwrap().set_len(blocks * 4096).unwrap();
        finish(tool("thin_restore").args([Path::new("-i"), &xml, Path::new("-o"), &full]))
    };
    let refused = restore(20);
    let (_, rest) = refused.stderr.split_once("too small: ").unwrap_or_else(|| panic!("{refused}"));
    let needed = rest.split(' ').next().unwrap().parse().unwrap();
    restore(needed).expect_code(0);
    (full, xml)
}

fn delete(image: &Path, more: &[&str]) -> Run {
    finish(tool("thin_delete").args(more).arg(image))
}

fn account(image: &Path, more: &[&str]) -> Value {
    let run = delete(image, &[&["--dry-run", "--json"], more].concat());
    serde_json::from_str(&run.expect_code(0).stdout).unwrap()
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {value:#}"))
}

fn ids(image: &Path) -> Vec<u64> {
    let dump = run("thin_dump", [Path::new("--skip-mappings"), image]);
    let lines = dump.stdout.lines().filter_map(|line| line.split_once("dev_id=\"")?.1.split('"').next());
    lines.map(|id| id.parse().unwrap()).collect()
}

fn damaged(name: &str, path: &Path) {
    let mut scene = Scene::new(build::pool());
    let (_, _, damage) = targeted::all().find(|(known, ..)| *known == name).unwrap();
    damage(&mut scene);
    if name == "data leak" {
        // As a kernel leaks it: the number of allocated blocks knows of it.
        scene.superblock(|bytes| set64(bytes, ALLOCATED, le64(bytes, ALLOCATED) + 1));
    }
    fs::write(path, scene.image.to_bytes().unwrap()).unwrap();
}

#[test]
fn without_free_blocks_it_tells_all_the_same_and_names_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), 600);
    let (full, xml) = full(&image);
    let before = fs::read(&full).unwrap();
    for victims in ["--dev-id=4", "--dev-id=1,2,3", "--dev-id=1-9"] {
        let roomy = account(&image, &[victims]);
        assert_eq!(roomy["no_room"], Value::Null);
        for strategy in ["--strategy=auto", "--strategy=drop", "--strategy=recount"] {
            for crowded in [&full, &xml] {
                let told = account(crowded, &[victims, strategy]);
                let freed = |account: &Value| -> Vec<[u64; 2]> {
                    let devices = account["devices"].as_array().unwrap().iter();
                    devices.map(|device| [number(device, "/id"), number(device, "/freed_data_blocks")]).collect()
                };
                assert_eq!(freed(&told), freed(&roomy), "{victims} {strategy}");
                assert_eq!(told["all"]["freed_data_blocks"], roomy["all"]["freed_data_blocks"]);
                assert!(number(&told, "/no_room/needed") > number(&told, "/no_room/free"));
            }
        }
        let told = delete(&full, &["--dry-run", victims]);
        told.expect_code(0).expect("the way out", |run| run.stdout.contains("-o writes the pool without them"));
    }
    let told = account(&full, &["--dev-id=4"]);
    let refused = delete(&full, &["--dev-id=4"]);
    let numbers = format!(
        "needs {} free metadata blocks, of which there are {}: -o ",
        number(&told, "/no_room/needed"),
        number(&told, "/no_room/free")
    );
    refused.expect_code(1).expect(&numbers, |run| run.stderr.contains(&numbers));
    assert!(fs::read(&full).unwrap() == before);
    let out = folder.path().join("out.img");
    File::create(&out).unwrap().set_len(600 * 4096).unwrap();
    delete(&full, &["--dev-id=4", &format!("-o{}", out.display())]).expect_code(0);
    assert_eq!(ids(&out), [1, 2, 3, 5, 6, 7, 8, 9]);
    // XML cannot be changed, and is not.
    delete(&xml, &["--dev-id=4"]).expect_code(1).expect("why", |run| run.stderr.contains("not the metadata itself"));
}

#[test]
fn with_little_room_it_takes_several_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let (image, crowded) = (folder.path().join("pool.img"), folder.path().join("crowded.img"));
    fs::write(&image, vec![0; 700 * 4096]).unwrap();
    let made = ["--devices=500", "--mappings=20"];
    finish(tool("thin_generate_metadata").arg("-o").arg(&image).args(made)).expect_code(0);
    let (full, xml) = full(&image);
    // Each of them is in other leaves of the upper trees, which are written anew.
    let victims = "--dev-id=1,120,240,360,480";
    let needed = |victims: &str| number(&account(&full, &[victims]), "/no_room/needed");
    let (one, all) = (needed("--dev-id=1"), needed(victims));
    assert!(one + 2 < all, "{one} and {all}");
    for room in [one - 1, one, all - 1, all] {
        let blocks = fs::metadata(&full).unwrap().len() / 4096 + room;
        File::create(&crowded).unwrap().set_len(blocks * 4096).unwrap();
        finish(tool("thin_restore").args([Path::new("-i"), &xml, Path::new("-o"), &crowded])).expect_code(0);
        let undo = format!("--undo={}", folder.path().join(format!("undo-{room}")).display());
        let at_once = delete(&crowded, &[victims, &undo]);
        if room == all {
            at_once.expect_code(0);
        } else if room < one {
            at_once.expect_code(1).expect("the way out", |run| run.stderr.contains("-o writes the pool"));
            continue;
        } else {
            at_once.expect_code(1).expect("why", |run| run.stderr.contains("in steps cannot be taken back"));
            delete(&crowded, &[victims])
                .expect_code(0)
                .expect("all of them", |run| run.stderr.contains("5 devices deleted"));
        }
        let left: Vec<u64> = (1..=500).filter(|id| ![1, 120, 240, 360, 480].contains(id)).collect();
        assert_eq!(ids(&crowded), left);
        run("thin_check", [&crowded]).expect_code(0);
    }
}

#[test]
fn what_had_leaked_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (sound, leaky) = (folder.path().join("sound.img"), folder.path().join("leaky.img"));
    fs::write(&sound, build::pool().to_bytes().unwrap()).unwrap();
    damaged("data leak", &leaky);
    let id = ids(&sound)[0].to_string();
    for victims in [format!("--dev-id={id}"), "--dev-id=0-999999".to_string()] {
        for strategy in ["--strategy=auto", "--strategy=drop", "--strategy=recount"] {
            let (clean, found) = (account(&sound, &[&victims, strategy]), account(&leaky, &[&victims, strategy]));
            assert_eq!(clean["devices"], found["devices"], "{victims} {strategy}");
            assert_eq!(clean["all"]["freed_data_blocks"], found["all"]["freed_data_blocks"], "{victims} {strategy}");
            let leaked = number(&found, "/leaked/data_blocks");
            assert_eq!(number(&clean, "/leaked/data_blocks"), 0);
            let [before, after] = ["/before", "/after"].map(|end| number(&found["data_blocks_in_use"], end));
            assert_eq!(before - after, number(&found, "/all/freed_data_blocks") + leaked, "{victims} {strategy}");
            match strategy {
                "--strategy=drop" => assert_eq!(leaked, 0),
                "--strategy=recount" => assert_eq!(leaked, 1),
                _ => {}
            }
            let text = delete(&leaky, &["--dry-run", &victims, strategy]).stdout;
            assert_eq!(text.contains("leaked: nothing used these blocks"), leaked > 0, "{text}");
        }
    }
}

#[test]
fn blocks_that_devices_share_are_said_to_be_counted_in_each() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), 600);
    for (victims, shared) in [("--dev-id=1-9", true), ("--dev-id=4", false)] {
        let told = account(&image, &[victims]);
        let devices = told["devices"].as_array().unwrap().iter();
        let sum: u64 = devices.map(|device| number(device, "/freed_data_blocks")).sum();
        assert_eq!(sum > number(&told, "/all/freed_data_blocks"), shared);
        let text = delete(&image, &["--dry-run", victims]).stdout;
        assert_eq!(text.contains("is in FREED of each of them"), shared, "{text}");
    }
}

#[test]
fn damaged_devices_go_only_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), 600);
    let damage = ["--kind=noise", "--target=mapping-leaf", "--seed=3"];
    finish(tool("thin_generate_damage").arg("-o").arg(&image).args(damage)).expect_code(0);
    let report: Value = serde_json::from_str(&finish(tool("thin_check").arg("--json").arg(&image)).stdout).unwrap();
    let is_damaged = |device: &&Value| device["damaged"] == true;
    let hit: Vec<String> = report["devices"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is_damaged)
        .map(|device| device["id"].to_string())
        .collect();
    assert!(!hit.is_empty() && hit.len() < 9, "{hit:?}");
    let victims = format!("--dev-id={}", hit.join(","));
    let left: Vec<u64> = ids(&image).into_iter().filter(|id| !hit.contains(&id.to_string())).collect();
    let list = left.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let survivors =
        |image: &Path| finish(tool("thin_dump").arg("-r").arg(format!("--dev-id={list}")).arg(image)).stdout;
    let (before, expected) = (fs::read(&image).unwrap(), survivors(&image));
    delete(&image, &[&victims]).expect_code(1).expect("why", |run| run.stderr.contains("damaged"));
    // Others are damaged, too, if only some of them are named.
    let sound = format!("--dev-id={}", left[0]);
    delete(&image, &[&sound, "--allow-damaged"]).expect_code(1);
    assert!(fs::read(&image).unwrap() == before);
    delete(&image, &[&victims, "--allow-damaged"]).expect_code(0);
    run("thin_check", [&image]).expect_code(0).expect("a clean pool", |run| run.stderr.contains("verdict: clean"));
    assert_eq!(ids(&image), left);
    assert_eq!(survivors(&image), expected);
}

#[test]
fn data_blocks_that_are_counted_too_low_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("pool.img");
    damaged("data block counted too low", &image);
    let before = fs::read(&image).unwrap();
    let id = format!("--dev-id={}", ids(&image)[0]);
    for more in [&["--dry-run"][..], &[]] {
        let refused = delete(&image, &[&[id.as_str()], more].concat());
        refused.expect_code(1).expect("the code and what helps", |run| {
            run.stderr.contains("[data-count-low]") && run.stderr.contains("--repair-space-maps")
        });
    }
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn metadata_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), 600);
    let before = fs::read(&image).unwrap();
    let refused = |path: &Path, what: &str| {
        delete(path, &["--dev-id=1"])
            .expect_code(1)
            .expect(what, |run| run.stderr.contains("in use") || run.stderr.contains("written by another process"));
        assert!(fs::read(&image).unwrap() == before);
    };
    let holder = File::open(&image).unwrap();
    holder.lock().unwrap();
    refused(&image, "a file that somebody writes");
    holder.unlock().unwrap();
    // Who only reads keeps it from being written.
    holder.lock_shared().unwrap();
    refused(&image, "a file that somebody reads");
    holder.unlock().unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        assert!(std::env::var_os("CI").is_none(), "loop devices are needed");
        println!("skipped: no loop device");
        return;
    };
    let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
    let exclusive = {
        use std::os::unix::fs::OpenOptionsExt;
        const O_EXCL: i32 = 0o200;
        fs::OpenOptions::new().read(true).custom_flags(O_EXCL).open(&device)
    };
    let run = delete(&device, &["--dev-id=1"]);
    drop(exclusive);
    let detached = Command::new("losetup").arg("--detach").arg(&device).status();
    assert!(detached.is_ok_and(|status| status.success()));
    run.expect_code(1).expect("a device that somebody has", |run| run.stderr.contains("in use"));
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn its_json_is_as_documented() {
    let document = include_str!("../docs/thin_delete.json.md");
    let folder = tempfile::tempdir().unwrap();
    let image = pool(folder.path(), 600);
    let (full, _) = full(&image);
    let leaky = folder.path().join("leaky.img");
    damaged("data leak", &leaky);
    for (image, victims) in
        [(&image, "--dev-id=1"), (&image, "--dev-id=1-3"), (&full, "--dev-id=1"), (&leaky, "--keep=0")]
    {
        let told = account(image, &[victims, "--ignore-missing"]);
        holds_what_is_documented(document, "## `--dry-run`", &[&told]);
        let devices: Vec<&Value> = told["devices"].as_array().unwrap().iter().collect();
        holds_what_is_documented(document, "## A member of `devices`", &devices);
        holds_what_is_documented(document, "## `all`", &[&told["all"]]);
        holds_what_is_documented(document, "## `leaked`", &[&told["leaked"]]);
    }
    let ranges = folder.path().join("ranges");
    delete(&image, &["--dev-id=1", "--json", &format!("--freed-ranges={}", ranges.display())]).expect_code(0);
    let ranges: Value = serde_json::from_slice(&fs::read(&ranges).unwrap()).unwrap();
    holds_what_is_documented(document, "## `--freed-ranges`", &[&ranges]);
}
