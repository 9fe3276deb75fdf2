//! What a salvage gets out of damaged pools that a kernel wrote, block by block: never anything that was not there,
//! never less than what can be found, and never another state of a device that was whole.

mod support;

use dmeta::base::{BlockNr, Findings, NoProgress};
use dmeta::block::BlockSource;
use dmeta::block::memory::MemorySource;
use dmeta::format::BLOCK_SIZE;
use dmeta::pdata::forest::Forest;
use dmeta::pdata::ledger::Ledger;
use dmeta::pdata::walk::{NoVisitor, Walker};
use dmeta::thin::dump::{DumpOptions, dump, dump_salvaged};
use dmeta::thin::load::{self, Devices, Roots};
use dmeta::thin::salvage::{Account, SalvageError, SalvageOptions, list_roots, salvage};
use std::collections::{BTreeMap, BTreeSet};
use support::cases;
use support::pool_text::PoolText;

type Mappings = BTreeMap<u64, BTreeMap<u64, (u64, u64)>>;

/// A pool as it was before it was damaged.
struct Sound {
    name: String,
    image: MemorySource,
    superblock: [u64; 6],
    details: BTreeMap<u64, [u64; 5]>,
    mappings: Mappings,
    roots: Roots,
    devices: Devices,
    forest: Forest,
}

fn mappings(text: &PoolText) -> Mappings {
    let of = |device| text.mappings(device).into_iter().map(|(thin, data, time)| (thin, (data, time))).collect();
    text.devices.iter().map(|device| (device.id(), of(device))).collect()
}

fn text(bytes: Vec<u8>) -> PoolText {
    PoolText::from_xml(&String::from_utf8(bytes).unwrap())
}

impl Sound {
    fn of(name: &str, image: MemorySource) -> Sound {
        let mut out = Vec::new();
        dump(&image, &DumpOptions::default(), &mut out, &NoProgress).unwrap();
        let dumped = text(out);
        let mut findings = Findings::new();
        let superblock = load::superblock(&image, &mut findings).unwrap();
        let roots = Roots::of(&superblock, false);
        let mut ledger = Ledger::new(image.nr_blocks());
        let mut walker = Walker { source: &image, ledger: &mut ledger, findings: &mut findings, progress: &NoProgress };
        let devices = load::devices(&mut walker, &[roots]).pop().unwrap();
        let forest = load::mappings(&mut walker, &[(roots, &devices)], &NoVisitor);
        Sound {
            name: name.to_string(),
            superblock: dumped.superblock,
            details: dumped.devices.iter().map(|device| (device.id(), device.details)).collect(),
            mappings: mappings(&dumped),
            image,
            roots,
            devices,
            forest,
        }
    }

    /// The image with these blocks zeroed.
    fn without(&self, blocks: &[BlockNr]) -> MemorySource {
        let mut image = self.image.clone();
        blocks.iter().for_each(|block| image.put(*block, &[0; BLOCK_SIZE]).unwrap());
        image
    }

    /// Salvages an image, holds what must always hold against it, and returns what is missing for each device.
    fn salvaged(&self, image: &MemorySource, what: &str) -> (Account, BTreeMap<u64, BTreeSet<u64>>) {
        let what = format!("{}, {what}", self.name);
        let mut out = Vec::new();
        let salvaged = dump_salvaged(image, &DumpOptions::default(), None, &mut out, &NoProgress)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let result = text(out);
        assert_eq!(result.superblock, self.superblock, "{what}");
        let found = mappings(&result);
        assert_eq!(found.keys().collect::<Vec<_>>(), self.mappings.keys().collect::<Vec<_>>(), "{what}: devices");
        let mut missing = BTreeMap::new();
        for (id, before) in &self.mappings {
            let device = &found[id];
            for (thin, mapping) in device {
                assert_eq!(before.get(thin), Some(mapping), "{what}: device {id}, block {thin} was never so");
            }
            let lost: BTreeSet<u64> = before.keys().filter(|thin| !device.contains_key(thin)).copied().collect();
            let told = salvaged.account.devices.iter().find(|told| told.id.0 == *id).unwrap();
            assert_eq!(told.found, device.len() as u64, "{what}: account of device {id}");
            if told.expected.is_some() {
                assert_eq!(told.lost(), Some(lost.len() as u64), "{what}: account of device {id}");
            }
            for thin in &lost {
                let listed =
                    told.lost_ranges.iter().any(|range| (range.begin..range.end.unwrap_or(u64::MAX)).contains(thin));
                let root_is_lost = told.found == 0 && told.lost_ranges.is_empty();
                assert!(listed || root_is_lost, "{what}: device {id}: the loss of block {thin} is not told");
            }
            missing.insert(*id, lost);
        }
        for device in &result.devices {
            let before = self.details[&device.id()];
            assert_eq!(device.mapped_blocks(), found[&device.id()].len() as u64, "{what}");
            // A time that is too low would let writes go to shared blocks.
            assert!(device.details[4] >= before[4], "{what}: device {}", device.id());
        }
        (salvaged.account, missing)
    }

    fn all_there(&self, image: &MemorySource, what: &str) -> Account {
        let (account, missing) = self.salvaged(image, what);
        assert!(missing.values().all(BTreeSet::is_empty), "{}, {what}: lost {missing:?}", self.name);
        account
    }
}

fn pools() -> Vec<Sound> {
    let folder = tempfile::tempdir().unwrap();
    let pools = cases::all().into_iter().filter(|case| case.is_pool());
    pools
        .map(|case| {
            let bytes = std::fs::read(case.image(folder.path())).unwrap();
            let mut image = MemorySource::new((bytes.len() / BLOCK_SIZE) as u64);
            for (at, block) in bytes.as_chunks::<BLOCK_SIZE>().0.iter().enumerate() {
                image.put(BlockNr(at as u64), block).unwrap();
            }
            Sound::of(&case.name, image)
        })
        .collect()
}

/// At most `most` of the items, spread evenly.
fn some<T>(items: Vec<T>, most: usize) -> Vec<T> {
    let step = items.len().div_ceil(most).max(1);
    items.into_iter().step_by(step).collect()
}

#[test]
fn a_lost_leaf_costs_what_it_held_and_a_lost_internal_node_costs_nothing() {
    let mut internals = 0;
    for pool in pools() {
        let nodes: Vec<BlockNr> = pool.forest.reached().collect();
        for block in some(nodes, 40) {
            let info = pool.forest.info(block).unwrap();
            let image = pool.without(&[block]);
            if info.is_leaf() {
                let (_, missing) = pool.salvaged(&image, &format!("without leaf {block}"));
                for lost in missing.values().flatten() {
                    assert!((info.first..=info.last).contains(lost), "{}: leaf {block} costs {lost}", pool.name);
                }
            } else {
                internals += 1;
                let account = pool.all_there(&image, &format!("without internal node {block}"));
                assert!(account.devices.iter().any(|device| device.recovered > 0), "{}: {block}", pool.name);
                assert!(!account.anything_lost());
            }
        }
    }
    assert!(internals > 50, "only {internals}");
}

#[test]
fn lost_details_keep_every_mapping() {
    for pool in pools().into_iter().filter(|pool| !pool.mappings.is_empty()) {
        pool.all_there(&pool.without(&[pool.roots.details]), "without details");
    }
}

#[test]
fn a_lost_upper_tree_never_gives_a_device_another_one_s_mappings() {
    let (mut whole, mut devices) = (0, 0);
    for pool in pools().into_iter().filter(|pool| !pool.mappings.is_empty()) {
        let (account, _) = pool.salvaged(&pool.without(&[pool.roots.mapping]), "without the upper tree");
        devices += account.devices.len();
        whole += account.devices.iter().filter(|device| device.lost() == Some(0)).count();
    }
    // What can't be told apart is lost; most can.
    assert!(whole * 4 > devices * 3, "{whole} of {devices}");
}

#[test]
fn a_lost_superblock_costs_only_what_it_alone_held() {
    for pool in pools().into_iter().filter(|pool| !pool.mappings.is_empty()) {
        let image = pool.without(&[BlockNr(0)]);
        let options = DumpOptions {
            data_block_size: Some(pool.superblock[4] as u32),
            transaction_id: Some(pool.superblock[1]),
            nr_data_blocks: Some(pool.superblock[5]),
            ..DumpOptions::default()
        };
        let mut out = Vec::new();
        dump_salvaged(&image, &options, None, &mut out, &NoProgress).unwrap();
        let result = text(out);
        assert_eq!(mappings(&result), pool.mappings, "{}", pool.name);
        let details: BTreeMap<u64, [u64; 5]> =
            result.devices.iter().map(|device| (device.id(), device.details)).collect();
        assert_eq!(details, pool.details, "{}", pool.name);
        let without_size = salvage(&image, &SalvageOptions::default(), &NoProgress);
        assert_eq!(without_size.err(), Some(SalvageError::NeedsDataBlockSize), "{}", pool.name);
    }
}

#[test]
fn the_live_roots_are_listed_and_taken_by_name() {
    for pool in pools().into_iter().filter(|pool| !pool.mappings.is_empty()) {
        let listed = list_roots(&pool.image, &NoProgress);
        let live = listed
            .iter()
            .find(|found| (found.mapping_root, found.details_root) == (pool.roots.mapping, pool.roots.details))
            .unwrap_or_else(|| panic!("{}: the live roots are not listed", pool.name));
        assert!(live.is_complete(), "{}", pool.name);
        assert_eq!(live.devices, pool.devices.by_id.len() as u64);
        assert_eq!(live.mappings, pool.mappings.values().map(|device| device.len() as u64).sum::<u64>());
        let mut out = Vec::new();
        let roots = Some((live.mapping_root, live.details_root));
        dump_salvaged(&pool.image, &DumpOptions::default(), roots, &mut out, &NoProgress).unwrap();
        assert_eq!(mappings(&text(out)), pool.mappings, "{}", pool.name);
    }
}

#[test]
fn both_roots_lost_is_refused_while_the_superblock_is_good() {
    for pool in pools() {
        let image = pool.without(&[pool.roots.mapping, pool.roots.details]);
        let result = salvage(&image, &SalvageOptions::default(), &NoProgress);
        assert_eq!(result.err(), Some(SalvageError::RootsLost), "{}", pool.name);
    }
}

#[test]
fn several_lost_blocks_never_make_up_anything() {
    for pool in pools().into_iter().filter(|pool| !pool.mappings.is_empty()) {
        let nodes: Vec<BlockNr> = pool.forest.reached().collect();
        for seed in 0..12u64 {
            let pick = |at: u64| nodes[(seed * 7919 + at * 104_729 + 13) as usize % nodes.len()];
            let lost: Vec<BlockNr> = (0..2 + seed % 4).map(pick).collect();
            pool.salvaged(&pool.without(&lost), &format!("without {lost:?}"));
        }
    }
}
