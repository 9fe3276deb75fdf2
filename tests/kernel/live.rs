//! The tools read what the kernel wrote a moment ago: a pool in use, by its metadata snapshot, and one at rest.

use crate::accept::{check, make_file};
use crate::guest::Guest;
use crate::lab::lab;
use std::collections::BTreeMap;

/// `key=value` words.
fn pairs(line: &str) -> BTreeMap<&str, &str> {
    line.split(' ').filter_map(|word| word.split_once('=')).collect()
}

/// `ID: REST`
fn by_id<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<u64, &'a str> {
    lines.map(|line| line.split_once(": ").unwrap()).map(|(id, rest)| (id.parse().unwrap(), rest)).collect()
}

fn starting<'a>(told: &'a [String], word: &'a str) -> impl Iterator<Item = &'a str> {
    told.iter().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
}

#[test]
fn figures_are_those_of_the_kernel() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let metadata = folder.path().join("metadata");
    let spare = folder.path().join("spare");
    make_file(&metadata, 8 << 20);
    make_file(&spare, 8 << 20);
    let mut guest = Guest::new(lab, "live");
    guest.disk(&metadata);
    guest.disk(&spare);
    guest.set("POOL", 128 * 60_000);
    guest.set("SEED", 20_260_117);
    let outcome = guest.run_to_end();

    let rounds: Vec<&[String]> = outcome.told.split(|line| line == "round").collect();
    assert_eq!(rounds.len(), 4, "\n{outcome}");
    let mut seen = Vec::new();
    for round in &rounds[..3] {
        let kernel = by_id(starting(round, "thin"));
        let ours = by_id(starting(round, "dumped"));
        let wanted = kernel.into_iter().map(|(id, line)| {
            let blocks = pairs(line)["mapped"].parse::<u64>().unwrap() / 128;
            (id, format!("{blocks} {blocks}"))
        });
        assert_eq!(wanted.collect::<BTreeMap<_, _>>(), ours.into_iter().map(|(id, line)| (id, line.into())).collect());
        seen.push(starting(round, "dumped").collect::<Vec<_>>());
    }
    assert!(seen[0] != seen[1] && seen[1] != seen[2], "nothing changed between the rounds\n{outcome}");

    let rest = rounds[3];
    let report = check(&metadata);
    let superblock = &report["superblock"];
    let pool = pairs(starting(rest, "pool").last().unwrap());
    let number = |key: &str| pool[key].parse::<u64>().unwrap();
    assert_eq!(superblock["transaction_id"], number("transaction_id"));
    assert_eq!(superblock["nr_data_blocks"], number("data_total"));
    assert_eq!(superblock["nr_metadata_blocks"], number("metadata_total"));
    assert_eq!(report["data_space_map"]["allocated"], number("data_used"));
    // The kernel counts its reserve as used, a tenth of the device up to 1024 blocks.
    let in_use = number("metadata_used") - 1024.min(number("metadata_total") / 10);
    assert_eq!(report["metadata_space_map"]["allocated"], in_use);
    assert!(superblock["metadata_snapshot"].is_null());
    let devices = report["devices"].as_array().unwrap().iter();
    let ours: BTreeMap<u64, u64> =
        devices.map(|device| (device["id"].as_u64().unwrap(), device["mappings_found"].as_u64().unwrap())).collect();
    let kernel = by_id(starting(rest, "thin"));
    assert!(kernel.len() > 4, "\n{outcome}");
    let kernel = kernel.into_iter().map(|(id, line)| (id, pairs(line)["mapped"].parse::<u64>().unwrap() / 128));
    assert_eq!(ours, kernel.collect(), "\n{outcome}");
}
