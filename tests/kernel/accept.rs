//! The kernel takes what the tools wrote, and goes on with it.

use crate::blocks::stamp;
use crate::guest::Guest;
use crate::lab::{Lab, lab};
use crate::support::cases::{self, Case};
use crate::support::{run, words};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Metadata for the kernel to take, and what it has to find in it.
pub struct Pool {
    pub name: String,
    pub metadata: PathBuf,
    pub block_sectors: u64,
    pub nr_data_blocks: u64,
    /// Mapped sectors of each device.
    pub devices: BTreeMap<u64, u64>,
    /// A data device, and what the stamps of each device are on it, as `blocks read` prints them.
    pub data: Option<(PathBuf, BTreeMap<u64, String>)>,
}

impl Pool {
    /// Metadata that says the same as that of a case.
    pub fn of_case(case: &Case, name: String, metadata: PathBuf) -> Pool {
        Pool {
            name,
            metadata,
            block_sectors: case.number("block_sectors"),
            nr_data_blocks: case.number("data_total"),
            devices: case.thins().into_iter().map(|(id, thin)| (id, thin.mapped_sectors)).collect(),
            data: None,
        }
    }

    /// Metadata of which only our check knows what is in it.
    pub fn as_checked(name: String, metadata: PathBuf) -> Pool {
        let report = check(&metadata);
        let superblock = &report["superblock"];
        let block_sectors = superblock["data_block_size_sectors"].as_u64().unwrap();
        let live = report["devices"].as_array().unwrap().iter().filter(|device| device["metadata_snapshot"] == false);
        let devices = live.map(|device| {
            let mapped = device["mappings_found"].as_u64().unwrap();
            (device["id"].as_u64().unwrap(), mapped * block_sectors)
        });
        let nr_data_blocks = superblock["nr_data_blocks"].as_u64().unwrap();
        Pool { name, metadata, block_sectors, nr_data_blocks, devices: devices.collect(), data: None }
    }
}

/// What `thin_check --json` says of metadata that has to be clean.
#[track_caller]
pub fn check(metadata: &Path) -> serde_json::Value {
    let run = run("thin_check", ["--json".as_ref(), metadata.as_os_str()]);
    run.expect_code(0);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["verdict"], "clean", "{run}");
    report
}

/// Runs a tool that has to succeed: words, and paths in place of `$1`, `$2`.
#[track_caller]
pub fn succeeds(line: &str, paths: &[&Path]) {
    let words = words(line).into_iter().map(|word| {
        let place = word.to_str().and_then(|word| word.strip_prefix('$')?.parse::<usize>().ok());
        place.map_or(word, |place| paths[place - 1].as_os_str().to_os_string())
    });
    let words: Vec<OsString> = words.collect();
    run(words[0].to_str().unwrap(), &words[1..]).expect_code(0);
}

/// An empty file of that size.
pub fn make_file(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

/// Has the kernel take all of them, and checks what it left.
#[track_caller]
pub fn accepted(lab: &Lab, pools: &[Pool]) {
    let mut guest = Guest::new(lab, "accept");
    let mut list = String::new();
    for pool in pools {
        check(&pool.metadata);
        let device = guest.disk(&pool.metadata);
        let data = pool.data.as_ref().map_or("-".into(), |(data, _)| guest.disk(data));
        for (id, stamps) in pool.data.iter().flat_map(|(_, stamps)| stamps) {
            guest.file(&format!("{}.{id}", pool.name), stamps.as_bytes());
        }
        let devices: Vec<String> = pool.devices.iter().map(|(id, mapped)| format!("{id}:{mapped}")).collect();
        let devices = devices.join(" ");
        list += &format!("{} {device} {data} {} {} {devices}\n", pool.name, pool.block_sectors, pool.nr_data_blocks);
    }
    guest.file("pools", list.as_bytes());
    let outcome = guest.run_to_end();
    let taken: Vec<&str> = outcome.lines("accepted").collect();
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(taken, names, "\n{outcome}");
    let to_read: usize = pools.iter().flat_map(|pool| &pool.data).map(|(_, stamps)| stamps.len()).sum();
    assert_eq!(outcome.lines("read").count(), to_read, "\n{outcome}");
    for pool in pools {
        check(&pool.metadata);
    }
}

/// Cases of pools that a kernel can open.
pub fn openable() -> impl Iterator<Item = Case> {
    cases::pools().filter(|case| case.number("data_total") > 0)
}

/// What a dump of `image`, restored, gives, on a device of that size.
fn restored(image: &Path, name: &str) -> PathBuf {
    let (xml, metadata) = (image.with_extension("xml"), image.with_file_name(format!("{name}-restored.img")));
    make_file(&metadata, fs::metadata(image).unwrap().len() * 2);
    succeeds("thin_dump -o $1 $2", &[&xml, image]);
    succeeds("thin_restore -i $1 -o $2", &[&xml, &metadata]);
    metadata
}

#[test]
fn what_restore_wrote() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Of those that a kernel left when it was killed, one is enough: a restore makes all of them new.
    let alike = |case: &Case| case.name.starts_with("crash-thin-0") && case.name != "crash-thin-09";
    let sound = openable().filter(|case| case.fact("verdict") == "clean" && !alike(case));
    let mut pools: Vec<Pool> = sound
        .map(|case| {
            let metadata = restored(&case.image(folder.path()), &case.name);
            Pool::of_case(&case, case.name.clone(), metadata)
        })
        .collect();
    assert!(pools.len() >= 12);
    let made_up = [
        "--format --nr-data-blocks 5000",
        "--seed 1 --devices 3 --snapshots 4 --nr-data-blocks 200000",
        "--seed 2 --mappings 100000 --run-length 1 --nr-data-blocks 200000",
    ];
    for (number, arguments) in made_up.iter().enumerate() {
        let name = format!("made-up-{number}");
        let metadata = folder.path().join(&name);
        make_file(&metadata, 16 << 20);
        succeeds(&format!("thin_generate_metadata {arguments} -o $1"), &[&metadata]);
        pools.push(Pool::as_checked(name, metadata));
    }
    accepted(lab, &pools);
}

/// The stamped pool, `metadata` that says the same, and a data device on which each block tells its number.
pub fn stamped(name: &str, metadata: PathBuf) -> Pool {
    let case = cases::pools().find(|case| case.name == "thin-stamped").unwrap();
    let mut text = String::new();
    let file = File::open(case.folder.join("mappings.xz")).unwrap();
    lzma_rust2::XzReader::new(file, false).read_to_string(&mut text).unwrap();
    let mut pool = Pool::of_case(&case, name.into(), metadata.clone());
    let data = metadata.with_extension("data");
    let block_bytes = pool.block_sectors * 512;
    make_file(&data, pool.nr_data_blocks * block_bytes);
    let file = File::options().write(true).open(&data).unwrap();
    for block in 0..pool.nr_data_blocks {
        file.write_all_at(&stamp(1, block), block * block_bytes).unwrap();
    }
    let mut reads: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for line in text.lines() {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [device, block, data] = numbers[..] else { panic!("{line}") };
        reads.entry(device).or_default().insert(block, data);
    }
    let print = |blocks: BTreeMap<u64, u64>| blocks.iter().map(|(block, data)| format!("{block} 1 {data}\n")).collect();
    pool.data = Some((data, reads.into_iter().map(|(id, blocks)| (id, print(blocks))).collect()));
    pool
}

#[test]
fn data_is_where_the_tools_say() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let case = cases::pools().find(|case| case.name == "thin-stamped").unwrap();
    let image = case.image(folder.path());
    let restored = restored(&image, "stamped");

    // Without a superblock, so that the roots have to be found.
    let broken = folder.path().join("broken.img");
    fs::copy(&image, &broken).unwrap();
    File::options().write(true).open(&broken).unwrap().write_all_at(&[0; 4096], 0).unwrap();
    let repaired = folder.path().join("repaired.img");
    make_file(&repaired, fs::metadata(&image).unwrap().len());
    succeeds("thin_repair --data-block-size 128 --nr-data-blocks 4096 -i $1 -o $2", &[&broken, &repaired]);
    accepted(lab, &[stamped("kept", image), stamped("restored", restored), stamped("repaired", repaired)]);
}
