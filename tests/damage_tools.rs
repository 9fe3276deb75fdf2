//! Damaged pools by the thousand, under every tool that reads metadata, run as processes of their own: none may
//! crash, hang, or take memory; what is damaged may not pass; and what a writer calls good has to be good.
//!
//! `DAMAGE_TOOLS_SEEDS=250` damages each image in as many ways, `DAMAGE_TOOLS_FIRST=17` begins with that seed,
//! `DAMAGE_TOOLS_IMAGE=thin-one` takes that image alone. With `DMETA_PEER=/usr/sbin` the same is done to the tools in
//! that folder, as far as they have these forms. `DAMAGE_TOOLS_REPORT=file` writes the tables.

#[path = "damage_tools/bench.rs"]
mod bench;
#[path = "damage/build.rs"]
mod build;
#[path = "damage/faults.rs"]
mod faults;
#[path = "damage/image.rs"]
mod image;
#[path = "damage/model.rs"]
mod model;
#[path = "damage/model_maps.rs"]
mod model_maps;
#[path = "damage_tools/pool.rs"]
mod pool;
#[path = "damage_tools/process.rs"]
mod process;
#[path = "damage/random.rs"]
mod random;
#[path = "damage_tools/readers.rs"]
mod readers;
mod support;
#[path = "damage_tools/tally.rs"]
mod tally;
#[path = "damage_tools/writers.rs"]
mod writers;

use bench::{Bench, Change};
use model::Model;
use pool::Pool;
use process::{End, Tools};
use random::{Random, damage};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use support::{cases, memory_image, pool_text};
use tally::Tally;

/// Ways in which each image is damaged in an ordinary run.
const SEEDS: u64 = 1;
/// Dumps longer than this are not damaged and restored.
const XML_LONGEST: usize = 400_000;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn pools() -> Vec<Pool> {
    let folder = tempfile::tempdir().unwrap();
    let wanted = std::env::var("DAMAGE_TOOLS_IMAGE").unwrap_or_default();
    let kernel =
        cases::pools().map(|case| (case.name.clone(), image::Image::new(memory_image(&case.image(folder.path())))));
    let all = kernel.chain(std::iter::once_with(|| ("built".to_string(), build::pool())));
    all.filter(|(name, _)| wanted.is_empty() || *name == wanted).map(|(name, image)| Pool::new(name, image)).collect()
}

/// A dump of the pool, and a change in place with what takes it back.
fn prepare(pool: &Pool, folder: &Path) -> (Vec<u8>, Option<Change>) {
    let (file, undo) = (folder.join("sound"), folder.join("sound.undo"));
    pool::write(&file, &pool.target.image.to_bytes().unwrap());
    let mut xml = Tools::Ours.run("thin_dump", &[], &[&file]).stdout;
    if xml.len() > XML_LONGEST {
        xml.clear();
    }
    let Some(id) = pool.mappings.keys().next() else { return (xml, None) };
    let id = id.to_string();
    let ran = Tools::Ours.run("thin_delete", &["--dev-id", &id, "--undo"], &[&undo, &file]);
    let read = |path| fs::read(path).unwrap();
    (xml, (ran.end == End::Success).then(|| Change { after: read(&file), undo: read(&undo) }))
}

/// Damages a pool in all ways that are asked for, and tries `tools` on each.
fn try_pool(pool: &Pool, tools: &Tools) -> (u64, Tally) {
    let folder = tempfile::tempdir().unwrap();
    let (xml, change) = prepare(pool, folder.path());
    let (first, seeds) = (from_environment("DAMAGE_TOOLS_FIRST", 0), from_environment("DAMAGE_TOOLS_SEEDS", SEEDS));
    let (mut images, mut tally) = (0, Tally::default());
    for seed in first..first + seeds {
        let mut random = Random::new(seed ^ u64::from(crc32c::crc32c(pool.name.as_bytes())) << 32);
        // A bad sector can't be put into a file: other damage is taken instead.
        let (damaged, done, bytes) = loop {
            let (damaged, done) = damage(&pool.target, &mut random);
            let bytes = damaged.to_bytes().filter(|bytes| !bytes.is_empty() && !damaged.is_unchanged());
            if let Some(bytes) = bytes {
                break (damaged, done, bytes);
            }
        };
        images += 1;
        let input = folder.path().join("input");
        pool::write(&input, &bytes);
        let mut bench = Bench {
            tools,
            pool,
            folder: folder.path(),
            input,
            bytes: &bytes,
            xml: &xml,
            change: change.as_ref(),
            random,
            tally: Tally::default(),
            context: format!("{}, seed {seed} ({done})", pool.name),
        };
        let model = Model::read(&damaged);
        readers::all(&mut bench, &model);
        writers::all(&mut bench, &model);
        tally.add(bench.tally);
    }
    (images, tally)
}

/// All pools, on two threads.
fn try_all(tools: &Tools) -> (u64, Tally) {
    let waiting = Mutex::new(pools());
    let total = Mutex::new((0, Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(pool) = waiting.lock().unwrap().pop() else { return };
                    let (images, tally) = try_pool(&pool, tools);
                    let mut total = total.lock().unwrap();
                    total.0 += images;
                    total.1.add(tally);
                }
            });
        }
    });
    total.into_inner().unwrap()
}

#[test]
fn every_tool_bears_damage() {
    let (images, ours) = try_all(&Tools::Ours);
    let mut report = format!("{images} damaged images, these tools:\n\n{}", ours.text());
    if let Some(folder) = std::env::var_os("DMETA_PEER") {
        let (images, theirs) = try_all(&Tools::Peer(folder.into()));
        report += &format!("\n{images} damaged images, the other tools:\n\n{}", theirs.text());
        eprintln!("{}", theirs.faults.join("\n"));
    }
    eprintln!("{}\n{report}", ours.refusals.join("\n"));
    if let Some(path) = std::env::var_os("DAMAGE_TOOLS_REPORT") {
        fs::write(path, &report).unwrap();
    }
    assert!(images > 0 && !ours.forms.is_empty());
    assert!(
        ours.faults.is_empty(),
        "{} faults\n{}",
        ours.faults.len(),
        ours.faults[..ours.faults.len().min(40)].join("\n")
    );
}
