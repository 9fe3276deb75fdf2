//! What a repair brings back, for each kind of damage to each kind of block: hundreds of damaged pools, in docs/repair.md.
//!
//! `BLESS=1 cargo test --test repair_matrix` writes the page anew.

mod support;

use dmeta::base::NoProgress;
use dmeta::block::BlockSource;
use dmeta::block::memory::MemorySource;
use dmeta::thin::check::{CheckOptions, check};
use dmeta::thin::damage::{BlockDamage, Kind, Target, damage_blocks, write};
use dmeta::thin::dump::{DumpOptions, dump};
use dmeta::thin::generate::{GenerateOptions, generate};
use dmeta::thin::repair::repair;
use dmeta::thin::report::Verdict;
use dmeta::thin::salvage::SalvageOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use support::pool_text::PoolText;
use support::{cases, memory_image};

const KINDS: [(&str, Kind); 6] = [
    ("bit-rot", Kind::BitRot),
    ("torn", Kind::Torn),
    ("zeroed", Kind::Zeroed),
    ("noise", Kind::Noise),
    ("swapped", Kind::Swapped),
    ("stale", Kind::Stale),
];

/// Entries of a full leaf.
const LEAF: usize = 252;

type Mappings = BTreeMap<u64, BTreeSet<(u64, u64)>>;

/// The mappings of each device; times are no part of what can get lost.
fn mappings(image: &MemorySource) -> Mappings {
    let mut text = Vec::new();
    let options = DumpOptions { flat: true, ..DumpOptions::default() };
    dump(image, &options, &mut text, &NoProgress).unwrap();
    let pool = PoolText::from_xml(std::str::from_utf8(&text).unwrap());
    let of = |device| pool.mappings(device).into_iter().map(|(block, data, _)| (block, data)).collect();
    pool.devices.iter().map(|device| (device.id(), of(device))).collect()
}

fn pools() -> Vec<(String, MemorySource)> {
    let folder = tempfile::tempdir().unwrap();
    let wanted = ["thin-mixed-1", "thin-refcounts"];
    let kernel = cases::pools().filter(|case| wanted.contains(&case.name.as_str()));
    let mut pools: Vec<_> = kernel.map(|case| (case.name.clone(), memory_image(&case.image(folder.path())))).collect();
    assert_eq!(pools.len(), wanted.len());
    let options = GenerateOptions { devices: 3, snapshots: 2, mappings: 9000, change: 5, ..GenerateOptions::default() };
    let mut made = MemorySource::new(2000);
    generate(&mut made, &options).unwrap();
    pools.push(("made up".into(), made));
    pools
}

#[derive(Default)]
struct Row {
    images: u64,
    refused: u64,
    devices: (usize, usize),
    mappings: (usize, usize),
}

#[test]
fn the_table_of_what_comes_back() {
    let mut rows: BTreeMap<(&str, &str), Row> = BTreeMap::new();
    let mut images = 0;
    for (name, sound) in pools() {
        let expected = mappings(&sound);
        let superblock = sound.read(dmeta::base::BlockNr(0)).unwrap();
        let size = u32::from_le_bytes(superblock[336..340].try_into().unwrap());
        for (target_name, target) in Target::ALL {
            for (kind_name, kind) in KINDS {
                for seed in 0..2 {
                    let wanted = BlockDamage { kind, target, count: 1, reseal: false, seed };
                    // There may be no such block, or none that differs.
                    let Ok(damage) = damage_blocks(&sound, &wanted) else { continue };
                    let mut image = sound.clone();
                    write(&mut image, &damage).unwrap();
                    images += 1;
                    let row = rows.entry((target_name, kind_name)).or_default();
                    row.images += 1;
                    row.devices.0 += expected.len();
                    row.mappings.0 += expected.values().map(BTreeSet::len).sum::<usize>();
                    let mut output = MemorySource::new(dmeta::block::BlockSource::nr_blocks(&sound) * 2);
                    let options = SalvageOptions { data_block_size: Some(size), ..SalvageOptions::default() };
                    let what = format!("{name}: {kind_name} of {target_name}, seed {seed}");
                    let Ok(repaired) = repair(&image, &mut output, &options, &NoProgress) else {
                        row.refused += 1;
                        assert!(
                            matches!(target, Target::TopLevel | Target::Details | Target::Any),
                            "{what} was refused"
                        );
                        continue;
                    };
                    let report = check(&output, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
                    assert_eq!(report.verdict(), Verdict::Clean, "{what}");
                    let found = mappings(&output);
                    row.devices.1 += found.len();
                    row.mappings.1 += found.values().map(BTreeSet::len).sum::<usize>();
                    for (id, of_device) in &found {
                        assert!(of_device.is_subset(&expected[id]), "{what}: device {id} has what it had not");
                        let told = repaired.account.devices.iter().find(|device| device.id.0 == *id).unwrap();
                        assert_eq!(told.found, of_device.len() as u64, "{what}");
                        let lost = expected[id].len() - of_device.len();
                        let most = match target {
                            // Each says where it belongs.
                            _ if kind == Kind::Swapped => 0,
                            Target::MappingLeaf => LEAF * damage.len(),
                            Target::TopLevel | Target::Any => usize::MAX,
                            _ => 0,
                        };
                        assert!(lost <= most, "{what}: device {id} lost {lost} mappings");
                    }
                    if !matches!(target, Target::TopLevel | Target::Any) {
                        assert_eq!(found.len(), expected.len(), "{what}: devices were lost");
                    }
                }
            }
        }
    }
    assert!(images >= 200, "{images}");
    let mut page = format!(
        "# What a repair brings back\n\n\
         {images} damaged pools, made from two that a kernel wrote and a made-up one: of each kind of block one is damaged,\n\
         in each way (two where blocks are swapped), and the pool is repaired. `tests/repair_matrix.rs` writes this page, and\n\
         holds that no mapping comes back that was not there, that the account is true, that every result passes the check, and\n\
         that only these lose anything: a damaged leaf what was in it, in every device that shares it; and a damaged upper tree\n\
         what nothing else tells apart. Blocks that have changed places are put back, and cost nothing.\n\n\
         | block | damage | pools | refused | devices | came back | mappings | came back |\n|---|---|---|---|---|---|---|---|\n"
    );
    for ((target, kind), row) in &rows {
        let Row { images, refused, devices, mappings } = row;
        let _ = writeln!(
            page,
            "| {target} | {kind} | {images} | {refused} | {} | {} | {} | {} |",
            devices.0, devices.1, mappings.0, mappings.1
        );
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/repair.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(std::fs::read_to_string(&path).unwrap() == page, "BLESS=1 cargo test --test repair_matrix makes it anew");
}
