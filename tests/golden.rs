//! Images that a Linux kernel wrote: every figure that the kernel gave must come out of our tools, and their output
//! must stay as it is.
//!
//! A case is a folder in `testdata/kernel` and needs no code. `about.txt` holds what the kernel said, and the verdict;
//! `expected.txt` holds what our tools print, and is written anew where the environment has `BLESS`.

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::Path;
use support::cases::{self, Case, ThinFacts};
use support::pool_text::PoolText;
use support::{Run, run};

/// What was found wrong with a case, each with what it is about.
type Wrong = Vec<String>;

/// Runs `look` on every case and fails with all that is wrong.
fn for_all(cases: impl Iterator<Item = Case>, look: impl Fn(&Case, &Path, &mut Wrong)) {
    let mut wrong = Wrong::new();
    for case in cases {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        let mut of_case = Wrong::new();
        look(&case, &image, &mut of_case);
        wrong.extend(of_case.iter().map(|text| format!("{}: {text}", case.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn compare<T: PartialEq + std::fmt::Debug>(wrong: &mut Wrong, what: &str, ours: T, kernels: T) {
    if ours != kernels {
        wrong.push(format!("{what}: we say {ours:?}, the kernel {kernels:?}"));
    }
}

#[test]
fn the_kernels_figures_come_out_of_thin_check() {
    for_all(cases::pools(), |case, image, wrong| {
        let run = run("thin_check", ["--json".as_ref(), image.as_os_str()]);
        let report: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}\n{run}"));
        let superblock = &report["superblock"];
        let number = |value: &Value| value.as_u64();
        for (name, key) in [
            ("transaction_id", "transaction_id"),
            ("data_block_size_sectors", "block_sectors"),
            ("nr_data_blocks", "data_total"),
            ("data_blocks_allocated", "data_used"),
            ("nr_metadata_blocks", "metadata_total"),
        ] {
            compare(wrong, name, number(&superblock[name]), Some(case.number(key)));
        }
        let in_use = Some(case.metadata_in_use());
        compare(wrong, "metadata_blocks_allocated", number(&superblock["metadata_blocks_allocated"]), in_use);
        compare(wrong, "allocated in the metadata map", number(&report["metadata_space_map"]["allocated"]), in_use);
        let data_used = Some(case.number("data_used"));
        compare(wrong, "allocated in the data map", number(&report["data_space_map"]["allocated"]), data_used);
        compare(wrong, "metadata_snapshot", number(&superblock["metadata_snapshot"]), case.held_root());
        let needs_check = Some(case.fact("needs_check") == "yes");
        compare(wrong, "needs_check", superblock["needs_check"].as_bool(), needs_check);
        compare(
            wrong,
            "devices",
            mapped_sectors(&report, case.number("block_sectors")),
            facts_of(case, |thin| thin.mapped_sectors),
        );
    });
}

fn facts_of<T>(case: &Case, fact: impl Fn(ThinFacts) -> T) -> BTreeMap<u64, T> {
    case.thins().into_iter().map(|(id, thin)| (id, fact(thin))).collect()
}

/// Mapped sectors by device, from a report; those of a metadata snapshot aside.
fn mapped_sectors(report: &Value, block_sectors: u64) -> BTreeMap<u64, u64> {
    let devices = report["devices"].as_array().unwrap().iter();
    devices
        .filter(|device| device["metadata_snapshot"] == false)
        .map(|device| (device["id"].as_u64().unwrap(), device["mappings_found"].as_u64().unwrap() * block_sectors))
        .collect()
}

#[test]
fn the_kernels_figures_come_out_of_thin_dump() {
    for_all(cases::pools(), |case, image, wrong| {
        let run = run("thin_dump", [image]);
        run.expect_code(0);
        let pool = PoolText::from_xml(&run.stdout);
        let [_, transaction, flags, _, block_sectors, nr_data_blocks] = pool.superblock;
        compare(wrong, "transaction id", transaction, case.number("transaction_id"));
        compare(wrong, "needs_check", flags, u64::from(case.fact("needs_check") == "yes"));
        compare(wrong, "block size", block_sectors, case.number("block_sectors"));
        compare(wrong, "data blocks", nr_data_blocks, case.number("data_total"));
        let mut thins = BTreeMap::new();
        for device in &pool.devices {
            let mappings = pool.mappings(device);
            let mapped_sectors = mappings.len() as u64 * block_sectors;
            let highest_sector = mappings.last().map(|(thin, ..)| (thin + 1) * block_sectors - 1);
            compare(wrong, "mapped_blocks", device.mapped_blocks(), mappings.len() as u64);
            thins.insert(device.id(), ThinFacts { mapped_sectors, highest_sector });
        }
        compare(wrong, "devices", thins, case.thins());
    });
}

#[test]
fn the_two_lines_for_volume_managers_are_true() {
    for_all(cases::pools(), |case, image, wrong| {
        let run = run("thin_check", [image]);
        let free = case.number("metadata_total") - case.metadata_in_use();
        let lines = format!("TRANSACTION_ID={}\nMETADATA_FREE_BLOCKS={free}\n", case.number("transaction_id"));
        compare(wrong, "standard output", run.stdout.as_str(), lines.as_str());
    });
}

#[test]
fn every_stamp_that_was_written_is_where_the_dump_says() {
    let case = cases::pools().find(|case| case.name == "thin-stamped").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = run("thin_dump", [case.image(folder.path())]);
    let pool = PoolText::from_xml(&run.expect_code(0).stdout);
    let mut ours = Vec::new();
    for device in &pool.devices {
        let mappings = pool.mappings(device).into_iter();
        ours.extend(mappings.map(|(thin, data, _)| format!("map {} {thin} at {data}", device.id())));
    }
    let mut stamps = String::new();
    let packed = fs::File::open(case.folder.join("mappings.xz")).unwrap();
    lzma_rust2::XzReader::new(packed, false).read_to_string(&mut stamps).unwrap();
    let mut stamps: Vec<&str> = stamps.lines().collect();
    assert!(stamps.len() > 3000);
    ours.sort();
    stamps.sort();
    for (ours, stamp) in ours.iter().zip(&stamps) {
        assert_eq!(ours, stamp);
    }
    assert_eq!(ours.len(), stamps.len());
}

#[test]
fn verdicts_and_output_stay_as_they_are() {
    let bless = std::env::var_os("BLESS").is_some();
    for_all(cases::all().into_iter(), |case, image, wrong| {
        let check = run("thin_check", [image]);
        let verdict = check.stderr.lines().last().unwrap_or_default();
        if !verdict.starts_with(&format!("verdict: {}: ", case.fact("verdict"))) {
            wrong.push(format!("should be {}\n{check}", case.fact("verdict")));
        }
        let mut text = String::new();
        transcribe(&mut text, "thin_check IMAGE", &check, image);
        let dump = run("thin_dump", [image]);
        transcribe(&mut text, "thin_dump IMAGE", &dump, image);
        if case.is_pool() && case.held_root().is_some() {
            let of_snapshot = ["-m".as_ref(), image.as_os_str()];
            transcribe(&mut text, "thin_check -m IMAGE", &run("thin_check", of_snapshot), image);
            transcribe(&mut text, "thin_dump -m IMAGE", &run("thin_dump", of_snapshot), image);
        }
        let path = case.folder.join("expected.txt");
        if bless {
            fs::write(&path, &text).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if text != expected {
            wrong.push(format!("\n--- expected\n{expected}--- printed\n{text}---"));
        }
    });
}

/// Takes down what a run printed; of long output the first line and a sum.
fn transcribe(text: &mut String, line: &str, run: &Run, image: &Path) {
    let _ = writeln!(text, "$ {line}\nexit: {}", run.code.map_or("signal".into(), |code| code.to_string()));
    for (name, printed) in [("stdout", &run.stdout), ("stderr", &run.stderr)] {
        let printed = printed.replace(image.to_str().unwrap(), "IMAGE");
        let lines = printed.lines().count();
        if lines > 20 {
            let sum = crc32c::crc32c(printed.as_bytes());
            let first = printed.lines().next().unwrap();
            let _ = writeln!(text, "{name}: {first}\n{name}: {lines} lines, {} bytes, crc32c {sum:08x}", printed.len());
        } else {
            printed.lines().for_each(|line| writeln!(text, "{name}: {line}").unwrap());
        }
    }
    text.push('\n');
}
