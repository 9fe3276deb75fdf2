//! Power cuts: after them the metadata is the old one or the new one, and what was done stays done.

use crate::accept::{make_file, succeeds};
use crate::guest::{Guest, Outcome};
use crate::lab::{Lab, lab};
use crate::support::cases;
use crate::support::{Run, run};
use dmeta::base::random::Random;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Times that the power is cut in each test.
const CUTS: u64 = 4;

/// Cuts the power at a random moment of what `prepare` sets up, again and again, and has `judge` look at what is left.
fn cut(lab: &Lab, most: Duration, prepare: impl Fn(&mut Guest<'_>, &Path), judge: impl Fn(&Outcome, &Path)) {
    for seed in 0..CUTS {
        let folder = tempfile::tempdir().unwrap();
        let mut guest = Guest::new(lab, "power_cut");
        prepare(&mut guest, folder.path());
        let micros = u64::try_from(most.as_micros()).unwrap();
        guest.kill_after(Duration::from_micros(Random::new(seed).below(micros)));
        let outcome = guest.run();
        outcome.expect_killed();
        judge(&outcome, folder.path());
    }
}

fn checked(metadata: &Path) -> (Run, serde_json::Value) {
    let run = run("thin_check", ["--json".as_ref(), metadata.as_os_str()]);
    let report = serde_json::from_str(&run.stdout).unwrap_or_default();
    (run, report)
}

/// Mapped blocks of each device.
fn devices(report: &serde_json::Value) -> BTreeMap<u64, u64> {
    let devices = report["devices"].as_array().unwrap().iter();
    devices.map(|device| (device["id"].as_u64().unwrap(), device["mappings_found"].as_u64().unwrap())).collect()
}

#[test]
fn during_thin_delete() {
    let Some(lab) = lab() else { return };
    let origin = tempfile::tempdir().unwrap();
    let original = origin.path().join("original");
    make_file(&original, 8 << 20);
    succeeds("thin_generate_metadata --devices 15 --snapshots 2 --mappings 6000 -o $1", &[&original]);
    let all = devices(&checked(&original).1);
    assert_eq!(all.len(), 45);
    // Not in the order of their numbers.
    let order: Vec<u64> =
        all.keys().copied().filter(|id| id % 2 == 0).chain(all.keys().copied().filter(|id| id % 2 == 1)).collect();
    cut(
        lab,
        Duration::from_secs(4),
        |guest, folder| {
            let metadata = folder.join("metadata");
            fs::copy(&original, &metadata).unwrap();
            guest.disk(&metadata);
            guest.set("WHAT", "delete");
            guest.set("IDS", order.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
        },
        |outcome, folder| {
            let (run, report) = checked(&folder.join("metadata"));
            assert_eq!(report["verdict"], "clean", "{run}\n{outcome}");
            let left = devices(&report);
            let told = outcome.lines("done").count();
            let gone = all.len() - left.len();
            assert!(gone == told || gone == told + 1, "{gone} devices are gone\n{outcome}");
            let wanted = order[gone..].iter().map(|id| (*id, all[id])).collect();
            assert_eq!(left, wanted, "\n{outcome}");
        },
    );
}

#[test]
fn during_auto_repair() {
    let Some(lab) = lab() else { return };
    let origin = tempfile::tempdir().unwrap();
    let case = cases::pools().find(|case| case.name == "thin-deleted").unwrap();
    let leaky = case.image(origin.path());
    succeeds("thin_generate_damage --create-metadata-leaks --expected 0 --actual 1 --nr-blocks 200 -o $1", &[&leaky]);
    let (_, before) = checked(&leaky);
    assert_eq!(before["verdict"], "tidy-able");
    cut(
        lab,
        Duration::from_secs(3),
        |guest, folder| {
            let disks: Vec<String> = (0..20)
                .map(|disk| {
                    let path = folder.join(disk.to_string());
                    fs::copy(&leaky, &path).unwrap();
                    guest.disk(&path)
                })
                .collect();
            guest.set("WHAT", "auto-repair");
            guest.set("DISKS", disks.join(" "));
        },
        |outcome, folder| {
            let told = outcome.lines("done").count();
            for disk in 0..20 {
                let (run, report) = checked(&folder.join(disk.to_string()));
                let mended = report["verdict"] == "clean";
                assert!(mended || report == before, "disk {disk}: {run}\n{outcome}");
                assert!(if disk < told { mended } else { disk == told || !mended }, "disk {disk}: {run}\n{outcome}");
                assert_eq!(devices(&report), devices(&before));
            }
        },
    );
}

/// What a pool says, for comparison.
fn dump(metadata: &Path) -> Run {
    run("thin_dump", ["--flat".as_ref(), metadata.as_os_str()])
}

#[test]
fn during_thin_restore() {
    let Some(lab) = lab() else { return };
    let origin = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = ["thin-snaps", "thin-mixed-1"]
        .iter()
        .map(|name| cases::pools().find(|case| case.name == *name).unwrap().image(origin.path()))
        .collect();
    let xml: Vec<String> = images.iter().map(|image| dump(image).stdout).collect();
    cut(
        lab,
        Duration::from_secs(3),
        |guest, folder| {
            let metadata = folder.join("metadata");
            make_file(&metadata, 16 << 20);
            // The old one is there from the beginning.
            fs::write(folder.join("old"), &xml[0]).unwrap();
            succeeds("thin_restore -i $1 -o $2", &[&folder.join("old"), &metadata]);
            guest.disk(&metadata);
            guest.set("WHAT", "restore");
            guest.file("old", xml[0].as_bytes());
            guest.file("new", xml[1].as_bytes());
        },
        |outcome, folder| {
            let metadata = folder.join("metadata");
            let (run, report) = checked(&metadata);
            if report["verdict"] == "clean" {
                let dump = dump(&metadata);
                assert!(xml.contains(&dump.stdout), "neither the one nor the other\n{outcome}");
            } else {
                // A restore begins by making the old superblock unusable.
                assert!(report["superblock"].is_null(), "{run}\n{outcome}");
            }
        },
    );
}
