//! `thin_replay` from the outside: real recordings on metadata that a kernel wrote, in every form.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use support::{Run, run};

fn sample(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/replay").join(name).display().to_string()
}

/// A trace of one delete, beside a recording.
fn deletes(folder: &Path) -> PathBuf {
    let path = folder.join("deletes.trace");
    fs::write(&path, "thin-trace 1\nS d0 mode=open\n100000 d0 snap dev=500 origin=2\n300000 d0 delete dev=0\n")
        .unwrap();
    path
}

fn replay(metadata: &Path, side: &Path, more: &[&str]) -> Run {
    let (trace, metadata, side) = (sample("thin.blkparse"), metadata.display().to_string(), side.display().to_string());
    let words = [metadata.as_str(), "-t", &trace, "--map", "253,2:2", "--side", &side];
    run("thin_replay", words.iter().chain(more))
}

#[test]
fn a_real_block_trace_on_real_metadata_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let side = deletes(folder.path());
    let raw = support::raw_image("kernel/thin-snaps", folder.path());
    let pack = folder.path().join("pool.pack");
    run("thin_metadata_pack", ["-i", raw.to_str().unwrap(), "-o", pack.to_str().unwrap()]).expect_code(0);
    let xz = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/kernel/thin-snaps/image.img.xz");
    let first = replay(&raw, &side, &["--json"]);
    first.expect_code(0).expect("what was not taken", |run| run.stderr.contains("lines that are no events"));
    let value: serde_json::Value = serde_json::from_str(&first.stdout).unwrap();
    for policy in value["policies"].as_array().unwrap() {
        assert_eq!((&policy["background"]["deletes"], &policy["sound"]), (&1.into(), &true.into()), "{policy}");
        assert!(policy["latency"]["write"]["count"].as_u64().unwrap() > 40, "{policy}");
        assert!(policy["expected"]["count"].as_u64().unwrap() > 60, "recorded latencies are kept for comparison");
    }
    for (form, threads) in [(&raw, "1"), (&raw, "4"), (&pack, "2"), (&xz, "2")] {
        let again = replay(form, &side, &["--json", "--threads", threads]);
        assert_eq!(again.stdout, first.stdout, "{} with {threads} threads", form.display());
    }
}

#[test]
fn what_is_saved_passes_the_check_and_is_the_same_for_all_policies() {
    let folder = tempfile::tempdir().unwrap();
    let side = deletes(folder.path());
    let mut logical = None;
    for case in ["kernel/thin-snaps", "kernel/thin-metasnap"] {
        let raw = support::raw_image(case, folder.path());
        for (index, policy) in
            ["coarse", "batch(1)", "subleaf(7)", "background", "rolling", "discard-first", "budget(50us)+yield"]
                .iter()
                .enumerate()
        {
            let saved = folder.path().join(format!("{index}.img"));
            if case == "kernel/thin-snaps" {
                replay(&raw, &side, &["-p", policy, "--save-overlay", saved.to_str().unwrap()]).expect_code(0);
            } else {
                let trace = folder.path().join("own.trace");
                let list = run("thin_dump", ["--format", "json", raw.to_str().unwrap()]);
                let value: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
                let id = value["devices"][0]["dev_id"].as_u64().unwrap();
                let events = format!(
                    "thin-trace 1\nS a mode=closed\n- a snap dev=900 origin={id}\n- a mrelease\n- a delete dev={id}\n"
                );
                fs::write(&trace, events).unwrap();
                let words = [raw.to_str().unwrap(), "-t", trace.to_str().unwrap(), "-p", policy];
                let saved = ["--save-overlay", saved.to_str().unwrap()];
                run("thin_replay", words.iter().chain(&saved)).expect_code(0);
            }
            run("thin_check", [saved.to_str().unwrap()])
                .expect_code(0)
                .expect("clean", |run| run.stderr.contains("clean"));
            if let Some(peer) = support::peer("thin_check") {
                support::finish(std::process::Command::new(peer).arg(&saved)).expect_code(0);
            }
            if case == "kernel/thin-snaps" {
                let dump = run("thin_dump", ["--format", "json", saved.to_str().unwrap()]);
                let value: serde_json::Value = serde_json::from_str(&dump.stdout).unwrap();
                let devices = value["devices"].as_array().unwrap();
                let counts: Vec<_> =
                    devices.iter().map(|d| (d["dev_id"].clone(), d["mapped_blocks"].clone())).collect();
                assert_eq!(*logical.get_or_insert(counts.clone()), counts, "{policy}");
            }
            fs::remove_file(&saved).unwrap();
        }
    }
}

#[test]
fn a_real_iolog_is_replayed_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let raw = support::raw_image("kernel/thin-snaps", folder.path());
    for log in ["fio-v2.iolog", "fio-v3.iolog"] {
        let picture = folder.path().join(log).with_extension("svg");
        let sample = sample(log);
        let words = [
            raw.to_str().unwrap(),
            "-t",
            &sample,
            "--map",
            "vdb:2",
            "-p",
            "coarse",
            "--svg",
            picture.to_str().unwrap(),
        ];
        let told = run("thin_replay", words);
        told.expect_code(0).expect("what was not taken", |run| run.stderr.contains("1 open (nothing to do)"));
        assert!(fs::read_to_string(picture).unwrap().contains("vdb").eq(&false));
        let plain = run("thin_replay", ["import", &sample, "--map", "vdb:2"]);
        plain.expect_code(0).expect("a trace", |run| run.stdout.starts_with("thin-trace 1\n"));
        let trace = folder.path().join("again.trace");
        fs::write(&trace, &plain.stdout).unwrap();
        let again = run("thin_replay", [raw.to_str().unwrap(), "-t", trace.to_str().unwrap(), "-p", "coarse"]);
        assert_eq!(again.stdout, told.stdout, "{log}");
    }
}

#[test]
fn a_delete_is_predicted_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let raw = support::raw_image("kernel/thin-snaps", folder.path());
    let told = run("thin_replay", ["predict", raw.to_str().unwrap(), "--delete", "0,2"]);
    told.expect_code(0)
        .expect("every policy", |run| ["coarse", "subleaf(31)", "offline"].iter().all(|p| run.stdout.contains(p)));
    let json = run("thin_replay", ["predict", raw.to_str().unwrap(), "--delete", "0", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&value["version"], &value["work"][0]["mapped"]), (&1.into(), &12_000.into()));
    assert!(value["offline"].is_null() && value["calibration"]["calibrated"] == false);
    let again = run("thin_replay", ["predict", raw.to_str().unwrap(), "--delete", "0", "--json", "--threads", "3"]);
    assert_eq!(again.stdout, json.stdout, "a prediction is the same on every machine");
    let measured = run("thin_replay", ["predict", raw.to_str().unwrap(), "--delete", "0", "--json", "--measure"]);
    let value: serde_json::Value = serde_json::from_str(&measured.stdout).unwrap();
    assert!(value["offline"]["blocks"].as_u64().unwrap() > 3 && value["offline"]["plan"].as_f64().unwrap() > 0.0);
    told.expect("thin_delete beside it", |run| run.stderr.contains("thin_delete would take"));
    run("thin_replay", ["predict", raw.to_str().unwrap(), "--delete", "7777"]).expect_code(1);
}

/// Every way of running a trace ends sound, says what it measured, and gives the same bytes again.
#[test]
fn caches_buffers_pools_and_rules_of_allocation() {
    let folder = tempfile::tempdir().unwrap();
    let side = deletes(folder.path());
    let raw = support::raw_image("kernel/thin-snaps", folder.path());
    let cases: [&[&str]; 7] = [
        &["--cache", "cap(32KiB)+age(1s)+retain(4)+forget"],
        &["--cache", "cap(64)+prefetch-hint+flush", "-p", "coarse+prefetch", "-p", "coarse"],
        &["--buffer-locks", "1", "-p", "batch(1)"],
        &["--buffer-locks", "64", "--cache", "unbounded", "-p", "rolling"],
        &["--allocation", "shared", "-p", "rolling", "-p", "batch(1)"],
        &["--skip-block-zeroing", "-p", "coarse+split-pools(3)"],
        &["--lock", "all", "-p", "batch(1)", "-p", "coarse", "--elasticity"],
    ];
    for case in cases {
        let mut words = case.to_vec();
        words.push("--json");
        let told = replay(&raw, &side, &words);
        told.expect_code(0);
        assert_eq!(replay(&raw, &side, &[words.as_slice(), &["--threads", "3"]].concat()).stdout, told.stdout);
        let value: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
        let policies = value["policies"].as_array().unwrap();
        for policy in policies {
            assert_eq!((&policy["sound"], &policy["failed"]), (&true.into(), &0.into()), "{case:?}");
            assert_eq!(policy["cache"].is_object(), case.contains(&"--cache"), "{case:?}");
            let locks: Vec<&str> =
                policy["locks"].as_array().unwrap().iter().flat_map(|l| l["name"].as_str()).collect();
            assert_eq!(locks.contains(&"buffers"), case.contains(&"--buffer-locks"), "{case:?} {locks:?}");
            assert_eq!(locks.contains(&"bitmap"), case.contains(&"shared"), "{case:?} {locks:?}");
            assert_eq!(locks.contains(&"root/2"), case.contains(&"--skip-block-zeroing"), "{case:?} {locks:?}");
        }
        assert_eq!(value["calibration"]["weights"].is_array(), case.contains(&"--elasticity"));
        let weights = value["calibration"]["weights"].as_array().into_iter().flatten();
        let heavy = weights.filter(|weight| weight["elasticity"].as_f64().unwrap().abs() > 0.2).count();
        assert_eq!(value["calibration"]["calibrated"], case.contains(&"--elasticity") && heavy == 0, "{case:?}");
    }
    for bad in [
        &["--cache", "cap(0)"][..],
        &["--buffer-locks", "1025"],
        &["-p", "coarse+split-pools(65)"],
        &["--cache", "age(1s)"],
    ] {
        replay(&raw, &side, bad).expect_code(1);
    }
}

/// With and without the pool's lock at once nothing would keep operations apart.
#[test]
fn a_delete_of_its_own_policy_has_to_fit_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let raw = support::raw_image("kernel/thin-snaps", folder.path());
    let trace = folder.path().join("a.trace");
    fs::write(&trace, "thin-trace 1\n- d delete dev=0 policy=rolling\n").unwrap();
    let run_with =
        |policy: &str| run("thin_replay", [raw.to_str().unwrap(), "-t", trace.to_str().unwrap(), "-p", policy]);
    run_with("coarse").expect_code(1).expect("why", |run| run.stderr.contains("other locks"));
    run_with("rolling").expect_code(0);
}

#[test]
fn threads_do_the_same_work() {
    let folder = tempfile::tempdir().unwrap();
    let side = deletes(folder.path());
    let raw = support::raw_image("kernel/thin-snaps", folder.path());
    let saved = folder.path().join("saved.img");
    let told = replay(
        &raw,
        &side,
        &["--clock", "real", "--bare", "-p", "batch(1)", "--save-overlay", saved.to_str().unwrap()],
    );
    told.expect_code(0)
        .expect("a label", |run| run.stderr.contains("not the kernel") && run.stderr.contains("processors"));
    run("thin_check", [saved.to_str().unwrap()]).expect_code(0);
}

#[test]
fn commands_say_what_they_want() {
    for (words, what) in [
        ("scenario", "which scenario"),
        ("scenario nothing", "no scenario"),
        ("predict", "of what"),
        ("predict /missing", "which devices"),
        ("generate nothing", "s1-write"),
        ("costs nothing", "no cost profile"),
        ("import /missing", "can't read"),
        ("/missing --trace x --policy nap", "no policy"),
        ("/missing --map x", "not NAME:DEVICE"),
    ] {
        run("thin_replay", support::words(words)).expect_code(1).expect(what, |run| run.stderr.contains(what));
    }
    run("thin_replay", ["costs"]).expect_code(0).expect("profiles", |run| run.stdout.contains("ssd-2016"));
    let small = run("thin_replay", support::words("scenario all --scale 64 --json"));
    let value: serde_json::Value = serde_json::from_str(&small.stdout).unwrap();
    assert_eq!(value["scenarios"].as_array().unwrap().len(), 5);
    let checks = value["scenarios"].as_array().unwrap().iter().flat_map(|one| one["checks"].as_array().unwrap());
    let excluded: Vec<_> =
        checks.filter(|check| check["kind"] == "Excluded").map(|check| check["pass"].clone()).collect();
    assert!(excluded.len() == 4 && excluded.iter().all(|pass| pass.is_null()), "excluded rows stay excluded");
}

/// Names of members, without those that are data: verbs, operations, devices and the keys of a trace's header.
fn members(value: &serde_json::Value, all: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Array(items) => items.iter().for_each(|item| members(item, all)),
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                all.insert(name.clone());
                match name.as_str() {
                    "trace_header" | "fragments" => {}
                    "latency" | "latency_corrected" | "operations" => {
                        value.as_object().unwrap().values().for_each(|value| members(value, all))
                    }
                    _ => members(value, all),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_member_of_the_json_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let side = deletes(folder.path());
    let raw = support::raw_image("kernel/thin-snaps", folder.path());
    let words = ["--json", "--stripe", "5:64", "--seed", "3", "--cache", "cap(64)", "--elasticity"];
    let told = replay(&raw, &side, &words);
    told.expect_code(0);
    let value: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(value["inputs"]["seed"], 3);
    assert!(value["inputs"]["image_checksum"].as_u64().unwrap() > 0);
    let mut all = BTreeSet::new();
    members(&value, &mut all);
    for words in [
        &["predict", raw.to_str().unwrap(), "--delete", "0", "--json", "--measure"][..],
        &["scenario", "stripe", "--json"],
    ] {
        members(&serde_json::from_str(&run("thin_replay", words).stdout).unwrap(), &mut all);
    }
    assert!(all.len() > 110, "{all:?}");
    let page = include_str!("../docs/thin_replay.json.md");
    let missing: Vec<_> = all.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Without seeks the resync does no such harm: the check fails, and so does the command.
#[test]
fn a_check_that_does_not_hold_fails_the_command() {
    run("thin_replay", ["scenario", "barrier"]).expect_code(0);
    let told = run("thin_replay", ["scenario", "barrier", "--kappa", "3"]);
    told.expect_code(1).expect("B1", |run| run.stdout.lines().any(|line| line.contains("B1") && line.contains("FAIL")));
}

/// No input is ever an output, under whatever option, and a result goes to the file that is named.
#[test]
fn inputs_stay_and_outputs_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let side = deletes(folder.path());
    let raw = support::raw_image("kernel/thin-snaps", folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (image, events) = (raw.display().to_string(), side.display().to_string());
    let before = (fs::read(&raw).unwrap(), fs::read(&side).unwrap());
    std::os::unix::fs::symlink(&raw, path("link")).unwrap();
    for output in ["--svg", "-o"] {
        for input in [&image, &events, &path("link")] {
            let words = [image.as_str(), "-t", &events, "-p", "coarse", output, input];
            run("thin_replay", words).expect_code(1).expect("why", |run| run.stderr.contains("is the input"));
        }
    }
    run("thin_replay", ["predict", &image, "--delete", "0", "-o", &image]).expect_code(1);
    let both = path("both");
    let words = [image.as_str(), "-t", &events, "-p", "coarse", "--svg", &both, "--save-overlay", &both];
    run("thin_replay", words).expect_code(1);
    run("thin_check", [both.as_str()]).expect_code(0);
    assert!((fs::read(&raw).unwrap(), fs::read(&side).unwrap()) == before);
    let cases: [&[&str]; 6] = [
        &[&image, "-t", &events, "-p", "coarse"],
        &[&image, "-t", &events, "-p", "coarse", "--json"],
        &["predict", &image, "--delete", "0"],
        &["predict", &image, "--delete", "0", "--json"],
        &["scenario", "stripe"],
        &["costs", "ssd-2016"],
    ];
    for case in cases {
        let printed = run("thin_replay", case);
        printed.expect_code(0);
        let out = path("out");
        let written = run("thin_replay", [case, &["-o", &out]].concat());
        written.expect_code(0);
        assert_eq!((written.stdout.as_str(), fs::read_to_string(&out).unwrap()), ("", printed.stdout), "{case:?}");
    }
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let cases: [&[&str]; 7] = [
        &["scenario", "barrier", "--kappa", "nan"],
        &["scenario", "barrier", "--kappa", "0"],
        &["scenario", "delete", "--scale", "0"],
        &["sweep", "--scale", "1025"],
        &["generate", "s2-seq", "--requests", "18446744073709551615"],
        &["generate", "s2-seq", "--block-size", "0"],
        &["import", "x", "--depth", "0"],
    ];
    for case in cases {
        run("thin_replay", case).expect_code(1).expect("nothing on standard output", |run| run.stdout.is_empty());
    }
}
