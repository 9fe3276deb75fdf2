//! Damage of every kind, done to images that a kernel wrote: nothing may panic or hang, and nothing that is not sound
//! may pass.
//!
//! A plain second reader (`damage/model.rs`) says what is sound. `DAMAGE_SEEDS=5000` in the environment damages each
//! image in as many ways; `DAMAGE_FIRST=17` begins with that seed, `DAMAGE_IMAGE=thin-one` takes that image alone.

#[path = "damage/build.rs"]
mod build;
#[path = "damage/construct.rs"]
mod construct;
#[path = "damage/faults.rs"]
mod faults;
#[path = "damage/image.rs"]
mod image;
#[path = "damage/model.rs"]
mod model;
#[path = "damage/model_maps.rs"]
mod model_maps;
#[path = "damage/random.rs"]
mod random;
mod support;
#[path = "damage/targeted.rs"]
mod targeted;

use dmeta::base::{Code, NoProgress, Severity};
use dmeta::block::BlockSource;
use dmeta::thin::dump::{DumpOptions, dump};
use dmeta::thin::salvage::{SalvageOptions, salvage};
use faults::{check_all, dump_flat, faults};
use image::Image;
use model::{Model, Use};
use random::{Random, Target};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use support::pool_text::{self, PoolText};
use support::{BINARY, cases, finish, memory_image};
use targeted::Scene;

/// Ways in which each image is damaged in an ordinary run.
const SEEDS: u64 = 25;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn images() -> impl Iterator<Item = (String, Image)> {
    let built = std::iter::once_with(|| ("built".to_string(), build::pool()));
    built.chain(cases::pools().map(|case| {
        let folder = tempfile::tempdir().unwrap();
        let image = Image::new(memory_image(&case.image(folder.path())));
        (case.name, image)
    }))
}

#[test]
fn undamaged_images_are_sound() {
    for (name, image) in images() {
        let model = Model::read(&image);
        let wanted: &[&str] = if name == "thin-meta-full" { &["data block 43972: 1 counted, 0 used"] } else { &[] };
        assert_eq!(model.problems, wanted, "{name}");
        let leak = "is sound, but";
        let found = faults(&image);
        assert!(found.is_empty() || found[0].starts_with(leak), "{name}: {found:?}");
    }
}

/// Nothing has been written since the snapshot was taken: both superblocks lead to the same trees.
#[test]
fn a_fresh_metadata_snapshot_is_sound() {
    for (name, mut image) in
        images().filter(|(name, _)| !["built", "thin-metasnap", "thin-meta-full"].contains(&name.as_str()))
    {
        construct::hold_snapshot(&mut image);
        assert_eq!(Model::read(&image).problems, [""; 0], "{name}");
        assert_eq!(faults(&image), [""; 0], "{name}");
    }
}

/// Each code there is has a damage that is told by it, and each of these damages tells its code.
#[test]
fn every_damage_has_its_code() {
    let image = build::pool();
    let mut wrong = Vec::new();
    for (name, code, damage) in targeted::all() {
        let mut scene = Scene::new(image.clone());
        damage(&mut scene);
        let report = check_all(&scene.image);
        if report.findings.count(*code) == 0 {
            wrong.push(format!("{name}: should be {}\n{}", code.problem().name, report.text()));
        }
        wrong.extend(faults(&scene.image).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    for code in Code::ALL.iter().filter(|code| !targeted::all().any(|(_, proved, _)| proved == *code)) {
        wrong.push(format!("nothing is told by {}", code.problem().name));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn images_may_be_cut_anywhere() {
    for (name, step) in [("thin-one", 1), ("built", 29)] {
        let (_, whole) = images().find(|(known, _)| *known == name).unwrap();
        for nr_blocks in (0..whole.nr_blocks()).rev().step_by(step) {
            let mut image = whole.clone();
            image.set_nr_blocks(nr_blocks);
            assert_eq!(check_all(&image).findings.worst(), Some(Severity::Fatal));
            assert_eq!(faults(&image), [""; 0], "{name}, {nr_blocks} blocks");
        }
    }
}

/// The number of paths through a damaged tree may be beyond counting.
#[test]
fn nobody_gets_lost_in_a_maze() {
    for levels in [2, 3, 15, 16, 17, 40] {
        let mut image = build::pool();
        let root = targeted::Scene::new(image.clone()).root_of_device(8);
        construct::make_maze(&mut image, root, levels);
        let report = check_all(&image);
        assert_eq!(report.findings.worst(), Some(Severity::Fatal), "{}", report.text());
        assert!(dump_flat(&image).1.is_err());
        assert!(salvage(&image, &SalvageOptions::default(), &NoProgress).is_ok());
    }
}

/// What is asked for is dumped whatever has happened to other devices, also to their part of the upper trees.
#[test]
fn a_sound_device_is_dumped_beside_damaged_ones() {
    let image = build::pool();
    let whole = PoolText::from_xml(std::str::from_utf8(&dump_flat(&image).0).unwrap());
    let ask = |image: &Image, ids: &[u64]| {
        let mut out = Vec::new();
        let devices = Some(ids.iter().map(|id| *id..=*id).collect());
        let result = dump(image, &DumpOptions { devices, ..Default::default() }, &mut out, &NoProgress);
        let pool = PoolText::from_xml(std::str::from_utf8(&out).unwrap());
        let wanted: Vec<_> = whole.devices.iter().filter(|device| ids.contains(&device.id())).cloned().collect();
        if result.is_ok() {
            assert!(pool.devices == wanted);
        } else {
            assert!(out.is_empty());
        }
        result.is_ok()
    };
    // Ids are even. Device 0 has a tree of its own, of three levels; 598 is the last.
    let mut scene = Scene::new(image.clone());
    let leaf = scene.deep_leaf();
    scene.image.put(leaf, [0; 4096]);
    assert!(!ask(&scene.image, &[0]) && ask(&scene.image, &[8, 598]) && !ask(&scene.image, &[8, 0]));
    for used_for in [Use::Details, Use::TopLevel] {
        let mut scene = Scene::new(image.clone());
        let first = scene.leaf(used_for);
        scene.image.spoil(first, |bytes| bytes[4000] ^= 1);
        assert!(!ask(&scene.image, &[0]) && ask(&scene.image, &[598]) && !ask(&scene.image, &[598, 2]));
        assert!(dump_flat(&scene.image).1.is_err());
    }
}

/// The order in which threads finish does not show in a report.
#[test]
fn reports_do_not_depend_on_the_number_of_threads() {
    let pools = [1, 5].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    for (name, image) in images() {
        let target = Target::new(image);
        for seed in 0..4 {
            let mut random = Random::new(seed);
            let (damaged, done) = (0..4).fold((target.image.clone(), String::new()), |(image, done), _| {
                let target = Target { image, ..target.clone() };
                let (image, more) = random::damage(&target, &mut random);
                (image, format!("{done}; {more}"))
            });
            let [one, five] = pools.each_ref().map(|pool| pool.install(|| check_all(&damaged).json().to_string()));
            assert_eq!(one, five, "{name}, seed {seed}: {done}");
        }
    }
}

/// Nothing that metadata say of themselves makes a tool take memory: 96 MiB of address space are enough for an image
/// of 4 MiB, and most of that is the program and what it maps.
#[test]
fn claims_do_not_cost_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let image = build::pool();
    for (name, _, damage) in targeted::all() {
        let mut scene = Scene::new(image.clone());
        damage(&mut scene);
        let Some(bytes) = scene.image.to_bytes() else { continue };
        std::fs::write(&path, bytes).unwrap();
        for tool in ["thin_check", "thin_dump"] {
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -v 98304; exec \"$0\" \"$@\"", BINARY, tool, "--threads", "1"]).arg(&path);
            let run = finish(&mut command);
            assert!(run.code == Some(0) || run.code == Some(1), "{name}\n{run}");
            assert!(!run.stderr.contains("internal error"), "{name}\n{run}");
        }
    }
}

#[test]
fn damage_shows() {
    let (first, seeds) = (from_environment("DAMAGE_FIRST", 0), from_environment("DAMAGE_SEEDS", SEEDS));
    let mut failed = Vec::new();
    let mut nr = 0;
    let wanted = std::env::var("DAMAGE_IMAGE").unwrap_or_default();
    for (name, image) in images().filter(|(name, _)| wanted.is_empty() || *name == wanted) {
        let target = Target::new(image);
        for seed in first..first + seeds {
            let mut random = Random::new(seed ^ u64::from(crc32c::crc32c(name.as_bytes())) << 32);
            let (damaged, done) = random::damage(&target, &mut random);
            if damaged.is_unchanged() {
                continue;
            }
            nr += 1;
            let found = catch_unwind(AssertUnwindSafe(|| faults(&damaged))).unwrap_or_else(|_| vec!["panic".into()]);
            failed.extend(found.into_iter().map(|fault| format!("{name}, seed {seed}: {done}:\n    {fault}")));
        }
    }
    eprintln!("{nr} damaged images, {} faults", failed.len());
    assert!(failed.is_empty(), "{}", failed[..failed.len().min(30)].join("\n"));
}
