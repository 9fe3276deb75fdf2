//! What a check tells beside its findings: verdicts, advice, places, what is left of each device; and what its options
//! leave out.

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

use dmeta::base::{Area, BlockNr, Code, KeyRange, NoProgress, Progress, Severity, ThinId};
use dmeta::format::block::{BlockKind, le32, le64};
use dmeta::thin::check::{CheckOptions, check, fails};
use dmeta::thin::dump::{DumpOptions, dump};
use dmeta::thin::load::Snapshot;
use dmeta::thin::report::{DeviceReport, Report, Verdict};
use image::{Image, set64};
use model::Use;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use support::json_document::holds_what_is_documented;
use support::{finish, tool};
use targeted::Scene;

const HELD: CheckOptions = CheckOptions {
    metadata_snapshot: Some(Snapshot::Held),
    superblock_only: false,
    skip_mappings: false,
    mapping_root: None,
    details_root: None,
};

fn scene() -> Scene {
    Scene::new(build::pool())
}

fn check_with(image: &Image, options: &CheckOptions) -> Report {
    check(image, options, &NoProgress, &mut |_| ()).unwrap()
}

fn check_all(image: &Image) -> Report {
    check_with(image, &CheckOptions::default())
}

fn device(report: &Report, id: u64) -> &DeviceReport {
    report.devices.iter().find(|device| device.id == ThinId(id) && !device.snapshot).unwrap()
}

fn codes(report: &Report) -> Vec<Code> {
    report.findings.counts().keys().copied().collect()
}

/// Does the damage of that name to the pool that was built.
fn damaged(name: &str) -> Image {
    let mut scene = scene();
    let (_, _, damage) = targeted::all().find(|(known, ..)| *known == name).unwrap_or_else(|| panic!("no {name}"));
    damage(&mut scene);
    scene.image
}

#[test]
fn verdicts_fit_what_is_lost() {
    for (name, verdict, advice) in [
        ("device grown", Verdict::Clean, "nothing to do"),
        ("needs_check", Verdict::Tidy, "--clear-needs-check-flag"),
        ("transaction of the future", Verdict::Tidy, "volume manager"),
        ("metadata leak", Verdict::Tidy, "--auto-repair"),
        ("data leak", Verdict::Tidy, "--auto-repair"),
        ("more free than there are", Verdict::Tidy, "--auto-repair"),
        ("count past the end", Verdict::Broken, "--repair-space-maps"),
        ("data block counted too low", Verdict::Broken, "--repair-space-maps"),
        ("mapping of the future", Verdict::Tidy, "thin_dump and thin_restore"),
        ("bit rot in a leaf", Verdict::Loss, "thin_repair"),
        ("one mapping more than there is", Verdict::Loss, "thin_repair"),
        ("bit rot in the snapshot's superblock", Verdict::Loss, "release the metadata snapshot"),
        ("mapping root past the end", Verdict::Loss, "thin_repair"),
        ("bit rot in the superblock", Verdict::Broken, "thin_repair"),
        ("version 3", Verdict::Broken, "not metadata that can be used here"),
        ("one block short", Verdict::Broken, "put the device or file right first"),
    ] {
        let report = check_all(&damaged(name));
        let told = (report.verdict(), report.advice());
        assert!(told.0 == verdict && told.1.contains(advice), "{name}: {told:?}\n{}", report.text());
        assert!(report.text().ends_with(&format!("verdict: {}: {}\n", verdict.word(), told.1)), "{name}");
    }
    // Without a metadata snapshot nothing is left when the root is gone.
    let mut image = damaged("mapping root past the end");
    image.edit(0, BlockKind::ThinSuperblock, |bytes| set64(bytes, 56, 0));
    assert_eq!(check_all(&image).verdict(), Verdict::Broken);
}

#[test]
fn severities_decide_the_exit_status() {
    for (name, fatal, non_fatal) in
        [("needs_check", false, false), ("data leak", false, true), ("bit rot in a leaf", true, true)]
    {
        let worst = check_all(&damaged(name)).findings.worst();
        assert_eq!((fails(worst, true), fails(worst, false)), (fatal, non_fatal), "{name}");
    }
}

#[test]
fn what_is_left_of_a_device_is_told() {
    let mut scene = scene();
    // The second leaf, which is no device's root. Leaves hold three mappings, of every third virtual block.
    let leaf = scene.value(scene.above(scene.deep_leaf()), 1);
    scene.image.put(leaf, [0; 4096]);
    let report = check_all(&scene.image);
    let hit = device(&report, 0);
    let lost = KeyRange { begin: 9, end: Some(18) };
    assert_eq!((hit.expected, hit.found, hit.lost()), (Some(720), Some(717), Some(3)));
    assert_eq!((hit.lost_ranges.as_slice(), hit.more_ranges), (&[lost][..], false));
    assert!(report.text().contains("device 0: 717 of 720 mappings found, 3 lost, virtual blocks 9..18\n"));
    // Device 2 shares the tree, device 4 every second leaf of this half, device 6 the other half, device 16 nothing.
    for (id, lost) in [(2, 3), (4, 3), (6, 0), (16, 0)] {
        assert_eq!((device(&report, id).lost(), device(&report, id).is_damaged()), (Some(lost), lost > 0), "{id}");
    }
    let found: Vec<_> = report.findings.iter().collect();
    assert_eq!(found.len(), 1, "a shared leaf is told of once");
    let place = found[0].place;
    assert_eq!((place.area, place.block, place.level), (Area::Mappings, Some(BlockNr(leaf)), Some(2)));
    assert_eq!((place.device, place.keys), (Some(ThinId(0)), Some(lost)));
}

#[test]
fn a_lost_node_loses_what_is_below_it() {
    let mut scene = scene();
    let leaf = scene.deep_leaf();
    let node = scene.above(leaf);
    scene.image.spoil(node, |bytes| bytes[1] ^= 4);
    let report = check_all(&scene.image);
    let hit = device(&report, 0);
    let lost = KeyRange { begin: 0, end: Some(1080) };
    assert_eq!((hit.found, hit.lost(), hit.lost_ranges.as_slice()), (Some(360), Some(360), &[lost][..]));
    let place = report.findings.iter().next().unwrap().place;
    assert_eq!((place.level, place.keys), (Some(1), Some(lost)));
    // What is above it is known to lead to it no more, so that nothing is called a leak.
    assert_eq!(codes(&report), [Code::BlockChecksum]);
}

#[test]
fn a_lost_upper_leaf_does_not_blame_its_devices() {
    for used_for in [Use::Details, Use::TopLevel] {
        let mut scene = scene();
        let leaf = scene.leaf(used_for);
        scene.image.put(leaf, [0; 4096]);
        let report = check_all(&scene.image);
        assert_eq!(codes(&report), [Code::BlockZeroed], "{}", report.text());
        assert_eq!(report.verdict(), Verdict::Loss);
        let hit = device(&report, 0);
        match used_for {
            Use::Details => assert_eq!((hit.expected, hit.found, hit.lost()), (None, Some(720), None)),
            _ => assert_eq!((hit.expected, hit.found, hit.lost()), (Some(720), Some(0), Some(720))),
        }
        assert!(hit.is_damaged() && !device(&report, 598).is_damaged());
    }
}

#[test]
fn a_metadata_snapshot_is_checked_with_the_pool_and_alone() {
    let sound = build::pool();
    let alone = check_with(&sound, &HELD);
    assert!(alone.findings.is_empty() && alone.devices.iter().all(|device| device.snapshot));
    assert_eq!((alone.devices.len(), alone.data, alone.metadata), (180, None, None));
    assert_eq!(check_all(&sound).devices.len(), 300 + 180);

    // Damage to the snapshot alone: the pool can still be dumped.
    let held = le64(&sound.block(0), 56);
    let details = le64(&sound.block(held), 328);
    let mut image = sound.clone();
    image.spoil(details, |bytes| bytes[100] ^= 1);
    for options in [CheckOptions::default(), HELD] {
        let report = check_with(&image, &options);
        let finding = report.findings.iter().next().unwrap();
        assert_eq!((finding.code, finding.place.area), (Code::BlockChecksum, Area::SnapshotDetails));
        assert!(report.devices.iter().all(|device| device.snapshot == device.is_damaged()));
    }
    let dump_of = |image: &Image, snapshot| {
        let options = DumpOptions { metadata_snapshot: snapshot, ..Default::default() };
        dump(image, &options, &mut Vec::new(), &NoProgress)
    };
    assert!(dump_of(&image, None).is_ok() && dump_of(&image, Some(Snapshot::Held)).is_err());

    // Damage to the pool alone: the snapshot is sound.
    let mut image = sound.clone();
    let details = le64(&sound.block(0), 328);
    image.spoil(details, |bytes| bytes[100] ^= 1);
    assert_eq!(check_all(&image).verdict(), Verdict::Loss);
    assert_eq!(check_with(&image, &HELD).verdict(), Verdict::Clean);
    assert!(dump_of(&image, None).is_err() && dump_of(&image, Some(Snapshot::Held)).is_ok());
    assert!(dump_of(&image, Some(Snapshot::At(BlockNr(held)))).is_ok());
    assert!(dump_of(&image, Some(Snapshot::At(BlockNr(held + 1)))).is_err());
}

#[test]
fn roots_can_be_given() {
    let image = build::pool();
    let held = image.block(le64(&image.block(0), 56));
    let with = |mapping: u64, details: u64| CheckOptions {
        mapping_root: Some(BlockNr(mapping)),
        details_root: Some(BlockNr(details)),
        ..Default::default()
    };
    let live = [320, 328].map(|offset| le64(&image.block(0), offset));
    let older = [320, 328].map(|offset| le64(&held, offset));
    assert_eq!(check_with(&image, &with(live[0], live[1])).verdict(), Verdict::Clean);
    // What the other roots lead to is counted, so nothing leaks that belongs to the live ones.
    let report = check_with(&image, &with(older[0], older[1]));
    assert_eq!(report.devices.iter().filter(|device| !device.snapshot).count(), 180);
    assert_eq!(report.findings.count(Code::MetadataLeak) + report.findings.count(Code::DataLeak), 0);
    let half = CheckOptions { details_root: Some(BlockNr(older[1])), ..Default::default() };
    assert_eq!(check_with(&image, &half).findings.count(Code::DeviceWithoutDetails), 120);
    let wrong = check_with(&image, &with(u64::MAX, live[1]));
    assert!(codes(&wrong).contains(&Code::BlockOutOfRange));
}

#[test]
fn options_leave_out_what_they_say() {
    let superblock_only = CheckOptions { superblock_only: true, ..Default::default() };
    let skip_mappings = CheckOptions { skip_mappings: true, ..Default::default() };
    for (name, seen_by_superblock, seen_by_upper_trees) in [
        ("version 3", true, true),
        ("one block short", true, true),
        ("details leaf underfull", false, true),
        ("device missing in the details", false, true),
        ("device made in the future", false, true),
        ("bit rot in a leaf", false, false),
        ("data leak", false, false),
        ("bit rot in a bitmap", false, false),
    ] {
        let image = damaged(name);
        let sees = |options| check_with(&image, options).findings.worst() > Some(Severity::Note);
        let seen = (sees(&superblock_only), sees(&skip_mappings));
        assert_eq!(seen, (seen_by_superblock, seen_by_upper_trees), "{name}");
    }
    let report = check_with(&build::pool(), &skip_mappings);
    assert_eq!(device(&report, 0).found, None);
    assert!(!device(&report, 0).is_damaged());
}

/// `BLESS=1` in the environment writes the table of codes anew.
#[test]
fn the_document_of_the_json_form_is_complete() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/thin_check.json.md");
    let document = fs::read_to_string(&path).unwrap();
    let heading = "## Codes\n";
    let mut codes = String::from("| code | severity | cure | |\n|---|---|---|---|\n");
    for problem in Code::ALL.iter().map(|code| code.problem()) {
        let (severity, cure) = (problem.severity.word(), problem.cure.word());
        let _ = writeln!(codes, "| `{}` | {severity} | `{cure}` | {} |", problem.name, problem.wording);
    }
    if std::env::var_os("BLESS").is_some() {
        let before = document.split(heading).next().unwrap();
        fs::write(&path, format!("{before}{heading}\n{codes}")).unwrap();
    }
    let document = fs::read_to_string(&path).unwrap();
    assert!(document.ends_with(&format!("{heading}\n{codes}")), "BLESS=1 cargo test --test check");

    for image in ["bit rot in a leaf", "data leak", "bit rot in the superblock", "version 3"].map(damaged) {
        let report = check_all(&image).json();
        holds_what_is_documented(&document, "## The object", &[&report]);
        let list = |name: &str| report[name].as_array().unwrap().iter().collect::<Vec<_>>();
        holds_what_is_documented(&document, "## A member of `findings`", &list("findings"));
        holds_what_is_documented(&document, "## A member of `devices`", &list("devices"));
        if !report["superblock"].is_null() {
            holds_what_is_documented(&document, "## `superblock`", &[&report["superblock"]]);
            let maps = [&report["data_space_map"], &report["metadata_space_map"]];
            holds_what_is_documented(&document, "## `data_space_map`, `metadata_space_map`", &maps);
        }
    }
}

#[derive(Default)]
struct Counter(AtomicU64);

impl Progress for Counter {
    fn section(&self, _: &str, _: u64) {}
    fn advance(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

#[test]
fn a_shared_node_is_read_once() {
    let image = build::pool();
    let counter = Counter::default();
    check(&image, &CheckOptions::default(), &counter, &mut |_| ()).unwrap();
    let nodes = model::Model::read(&image).reached.values().filter(|node| node.used_for.value_size().is_some()).count();
    assert_eq!(counter.0.into_inner(), nodes as u64);
}

#[test]
fn garbage_where_nothing_is_kept_is_harmless() {
    let mut scene = scene();
    let sound = check_all(&scene.image).json().to_string();
    let (leaf, held) = (scene.deep_leaf(), le64(&scene.image.block(0), 56));
    let index = le64(&scene.image.block(0), 208);
    let image = &mut scene.image;
    image.edit(0, BlockKind::ThinSuperblock, |bytes| {
        // The uuid, what root blobs don't use, and what lies behind the fields.
        for range in [16..32, 96..192, 224..320, 364..4096] {
            bytes[range].fill(0xa5);
        }
    });
    image.edit(held, BlockKind::ThinSuperblock, |bytes| bytes[364..].fill(0xa5));
    image.edit(index, BlockKind::Index, |bytes| bytes[32..].fill(0xa5));
    image.edit(leaf, BlockKind::Node, |bytes| {
        // Slots behind the third entry, and what is left of the block.
        for range in [28..32, 32 + 8 * 3..2048, 2048 + 8 * 3..4096] {
            bytes[range].fill(0xa5);
        }
    });
    assert_eq!(check_all(image).json().to_string(), sound);
}

#[test]
fn what_a_volume_manager_runs_mends_stale_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool.img");
    let stale = targeted::all()
        .filter(|(_, code, _)| [Code::SpaceMapFree, Code::SpaceMapFirstFree, Code::SpaceMapAllocated].contains(code));
    let mut runs = 0;
    for (name, ..) in stale {
        let image = damaged(name);
        fs::write(&path, image.to_bytes().unwrap()).unwrap();
        let check = |more: &[&str]| finish(tool("thin_check").args(more).arg(&path));
        check(&[]).expect_code(1);
        let silent = check(&["-q", "--clear-needs-check-flag"]);
        silent.expect_code(0).expect("silence", |run| run.stdout.is_empty() && run.stderr.is_empty());
        check(&[]).expect_code(0).expect(name, |run| run.stderr.contains("verdict: clean"));
        runs += 1;
    }
    assert!(runs >= 5, "{runs}");
}

#[test]
fn version_1_is_as_good_as_2() {
    let mut scene = scene();
    let held = le64(&scene.image.block(0), 56);
    for superblock in [0, held] {
        scene.image.edit(superblock, BlockKind::ThinSuperblock, |bytes| bytes[40] = 1);
    }
    let report = check_all(&scene.image);
    assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
    let mut out = Vec::new();
    dump(&scene.image, &DumpOptions::default(), &mut out, &NoProgress).unwrap();
    assert!(String::from_utf8(out).unwrap().lines().next().unwrap().contains(" version=\"1\" "));
}

#[test]
fn leaves_of_mappings_may_hold_few() {
    let scene = scene();
    let leaf = scene.image.block(scene.deep_leaf());
    let entries = le32(&leaf, 16);
    // 252 fit: any other node with less than a third of that fails the check.
    assert!(entries > 0 && entries * 3 < 252, "{entries}");
    let report = check_all(&scene.image);
    assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
}
