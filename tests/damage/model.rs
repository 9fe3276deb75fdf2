//! A second reading of docs/format.md: a checker that is as plain as can be, to hold the real one against.
//!
//! It walks every path, keeps everything, and knows no order of work. What it calls sound must pass the real check,
//! and what it does not must not.

use super::image::Image;
use super::model_maps::Maps;
use dmeta::base::BlockNr;
use dmeta::block::BlockSource;
use dmeta::format::block::{self, BlockKind, le32, le64};
use dmeta::format::details::DeviceDetails;
use dmeta::format::superblock::ThinSuperblock;
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::FromBytes;

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    Superblock,
    Snapshot,
    Details,
    TopLevel,
    Mappings,
    DataIndex,
    DataCounts,
    MetadataCounts,
    Index,
    DataBitmap,
    MetadataBitmap,
}

impl Use {
    pub fn block_kind(self) -> BlockKind {
        match self {
            Use::Superblock | Use::Snapshot => BlockKind::ThinSuperblock,
            Use::Index => BlockKind::Index,
            Use::DataBitmap | Use::MetadataBitmap => BlockKind::Bitmap,
            _ => BlockKind::Node,
        }
    }

    /// Bytes of a leaf's value, for trees.
    pub fn value_size(self) -> Option<usize> {
        match self {
            Use::Details => Some(24),
            Use::TopLevel | Use::Mappings => Some(8),
            Use::DataIndex => Some(16),
            Use::DataCounts | Use::MetadataCounts => Some(4),
            _ => None,
        }
    }
}

/// A block that something leads to.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    pub used_for: Use,
    pub is_leaf: bool,
    /// The node and the entry that led here first; `None` for roots.
    pub parent: Option<(u64, usize)>,
}

/// An entry of a tree. Values are shorter than the room they have here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: u64,
    pub value: [u8; 24],
}

impl Entry {
    pub fn number(&self) -> u64 {
        u64::from_le_bytes(self.value[..8].try_into().unwrap())
    }
}

/// A device and all its mappings: virtual block, data block, time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDevice {
    pub id: u64,
    /// mapped_blocks, transaction id, creation time, snapshotted time.
    pub details: [u64; 4],
    pub mappings: Vec<(u64, u64, u64)>,
}

/// Everything there is to know of an image.
pub struct Model<'a> {
    pub image: &'a Image,
    pub problems: Vec<String>,
    pub reached: BTreeMap<u64, Reached>,
    /// References to metadata blocks and to data blocks.
    pub metadata_counts: BTreeMap<u64, u64>,
    pub data_counts: BTreeMap<u64, u64>,
    pub superblock: Option<ThinSuperblock>,
    /// The live devices, as far as details and trees could be read without a problem.
    pub devices: Vec<ModelDevice>,
    /// Whether superblock, details and mappings of the live devices are without a problem.
    pub dump_is_sound: bool,
    /// How many of the problems, from the first on, are of superblock, details and mappings of the live devices.
    pub nr_live_problems: usize,
    steps: usize,
}

/// Where a walk is.
#[derive(Clone, Copy)]
struct Slot {
    block: u64,
    parent: Option<(u64, usize)>,
    level: usize,
    low: u64,
    high: Option<u64>,
}

impl<'a> Model<'a> {
    /// Reads everything.
    pub fn read(image: &'a Image) -> Model<'a> {
        let mut model = Model::read_trees(image);
        if let Some(superblock) = model.superblock.clone() {
            Maps::judge(&mut model, &superblock);
        }
        model
    }

    /// Reads all but the space maps.
    pub fn read_trees(image: &'a Image) -> Model<'a> {
        let mut model = Model {
            image,
            problems: Vec::new(),
            reached: BTreeMap::new(),
            metadata_counts: BTreeMap::new(),
            data_counts: BTreeMap::new(),
            superblock: None,
            devices: Vec::new(),
            dump_is_sound: false,
            nr_live_problems: 0,
            steps: 0,
        };
        model.run();
        model
    }

    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// A problem that makes mappings or devices of the live pool doubtful: others are of dates, or of space maps.
    #[allow(dead_code, reason = "not every test asks for it")]
    pub fn loss(&self) -> Option<&String> {
        if self.superblock.is_none() {
            return self.problems.first();
        }
        let live = &self.problems[..self.nr_live_problems];
        let harmless = ["superblock: ", "live: details of device", "date of"];
        live.iter().find(|problem| !harmless.iter().any(|words| problem.starts_with(words)))
    }

    pub fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    fn run(&mut self) {
        self.metadata_counts.insert(0, 1);
        let Some(superblock) = self.superblock_at(0, Use::Superblock) else { return };
        self.superblock = Some(superblock.clone());
        self.judge_superblock(&superblock);
        let (mapping, details) = (superblock.mapping_root.get(), superblock.details_root.get());
        self.devices = self.pool(mapping, details, "live");
        self.dump_is_sound = self.problems.is_empty();
        self.nr_live_problems = self.problems.len();
        if superblock.held_root.get() != 0 {
            self.snapshot(&superblock);
        }
    }

    fn superblock_at(&mut self, location: u64, used_for: Use) -> Option<ThinSuperblock> {
        self.claim(location, used_for, None, false);
        if !self.block_is_good(location, BlockKind::ThinSuperblock) {
            return None;
        }
        let block = self.image.block(location);
        if le64(&block, 32) != 27_022_010 {
            self.problem("magic");
            return None;
        }
        Some(ThinSuperblock::view(&block).clone())
    }

    fn judge_superblock(&mut self, superblock: &ThinSuperblock) {
        let block_size = superblock.data_block_size.get();
        let nr_blocks = superblock.metadata_space_map.nr_blocks.get();
        let formatted = superblock.metadata_nr_blocks.get();
        let rules = [
            ("flags", superblock.flags.get() <= 1),
            ("version", [1, 2].contains(&superblock.version.get())),
            ("time", superblock.time.get() < 1 << 24),
            ("block size", (128..=2_097_152).contains(&block_size) && block_size.is_multiple_of(128)),
            ("metadata block size", superblock.metadata_block_size.get() == 8),
            ("formatted size", formatted > 0 && formatted <= nr_blocks),
            ("features", superblock.compat_flags.get() == 0),
            ("read-only features", superblock.compat_ro_flags.get() == 0),
            ("incompatible features", superblock.incompat_flags.get() == 0),
            ("device too short", nr_blocks <= self.image.nr_blocks()),
        ];
        for (what, holds) in rules {
            if !holds {
                self.problem(format!("superblock: {what}"));
            }
        }
    }

    fn snapshot(&mut self, live: &ThinSuperblock) {
        let location = live.held_root.get();
        self.refer(location);
        let Some(held) = self.superblock_at(location, Use::Snapshot) else { return };
        let rules = [
            ("time", held.time <= live.time),
            ("version", held.version == live.version),
            ("flags", held.flags.get() <= 1),
            ("block size", held.data_block_size == live.data_block_size),
            ("metadata block size", held.metadata_block_size == live.metadata_block_size),
            (
                "features",
                [held.compat_flags, held.compat_ro_flags, held.incompat_flags].iter().all(|flags| flags.get() == 0),
            ),
            ("snapshot in a snapshot", held.held_root.get() == 0),
        ];
        for (what, holds) in rules {
            if !holds {
                self.problem(format!("snapshot superblock: {what}"));
            }
        }
        let (mapping, details) = (held.mapping_root.get(), held.details_root.get());
        self.pool(mapping, details, "snapshot");
    }

    /// A mapping tree and a details tree that belong together.
    fn pool(&mut self, mapping_root: u64, details_root: u64, what: &str) -> Vec<ModelDevice> {
        let Some(superblock) = self.superblock.clone() else { return Vec::new() };
        let details = self.root(details_root, Use::Details);
        let roots = self.root(mapping_root, Use::TopLevel);
        let ids = |entries: &[Entry]| entries.iter().map(|entry| entry.key).collect::<Vec<_>>();
        if ids(&details) != ids(&roots) {
            self.problem(format!("{what}: the trees know different devices"));
        }
        let mut devices = Vec::new();
        for (details, root) in details.iter().zip(&roots) {
            let found = DeviceDetails::read_from_bytes(&details.value).unwrap();
            let (created, snapped) = (found.creation_time.get(), found.snapshotted_time.get());
            let latest = superblock.time.get();
            if created > snapped || snapped > latest || details.key >= 1 << 24 {
                self.problem(format!("{what}: details of device {}", details.key));
            }
            let mappings = self.tree(root.number(), Use::Mappings);
            if mappings.len() as u64 != found.mapped_blocks.get() {
                self.problem(format!("{what}: mapped blocks of device {}", details.key));
            }
            let mappings = mappings.iter().map(|entry| (entry.key, entry.number() >> 24, entry.number() & 0xff_ffff));
            devices.push(ModelDevice {
                id: details.key,
                details: [found.mapped_blocks.get(), found.transaction_id.get(), created.into(), snapped.into()],
                mappings: mappings.collect(),
            });
        }
        devices
    }

    /// Counts a reference to a metadata block.
    pub fn refer(&mut self, block: u64) {
        *self.metadata_counts.entry(block).or_default() += 1;
    }

    /// The entries of a tree whose root is referred to from here.
    pub fn root(&mut self, root: u64, used_for: Use) -> Vec<Entry> {
        self.refer(root);
        self.tree(root, used_for)
    }

    /// The entries of a tree whose root has been counted.
    fn tree(&mut self, root: u64, used_for: Use) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut leaf_levels = BTreeSet::new();
        let slot = Slot { block: root, parent: None, level: 0, low: 0, high: None };
        self.node(slot, used_for, &mut Vec::new(), &mut entries, &mut leaf_levels);
        if leaf_levels.len() > 1 {
            self.problem(format!("leaves of {used_for:?} at {leaf_levels:?}"));
        }
        entries
    }

    pub fn claim(&mut self, block: u64, used_for: Use, parent: Option<(u64, usize)>, is_leaf: bool) -> bool {
        let new = Reached { used_for, is_leaf, parent };
        let mut first = false;
        let held = *self.reached.entry(block).or_insert_with(|| {
            first = true;
            new
        });
        if held.used_for != used_for {
            self.problem(format!("block {block} is {used_for:?} and {:?}", held.used_for));
        }
        first
    }

    /// Whether the block is there, of this kind, and in its place.
    pub fn block_is_good(&mut self, location: u64, kind: BlockKind) -> bool {
        let good = match self.image.read(BlockNr(location)) {
            Ok(block) => block::verify(&block, kind, BlockNr(location)).is_ok(),
            Err(_) => false,
        };
        if !good {
            self.problem(format!("block {location} is no {kind:?}"));
        }
        good
    }

    fn node(
        &mut self,
        slot: Slot,
        used_for: Use,
        path: &mut Vec<u64>,
        entries: &mut Vec<Entry>,
        leaf_levels: &mut BTreeSet<usize>,
    ) {
        self.steps += 1;
        let Slot { block: location, parent, level, low, high } = slot;
        if location == 0 || path.contains(&location) || path.len() > 16 || self.steps > 100_000 {
            return self.problem(format!("{used_for:?}: no way to block {location}"));
        }
        if !self.block_is_good(location, BlockKind::Node) {
            return;
        }
        let block = self.image.block(location);
        let [flags, nr_entries, max_entries, value_size] = [4, 16, 20, 24].map(|offset| le32(&block, offset) as usize);
        let is_leaf = flags == 2;
        let wanted = if is_leaf { used_for.value_size().unwrap() } else { 8 };
        let capacity = (4096 - 32) / (8 + wanted) / 3 * 3;
        if !(1..=2).contains(&flags) || value_size != wanted || max_entries != capacity || nr_entries > capacity {
            return self.problem(format!("{used_for:?}: header of node {location}"));
        }
        let exempt = parent.is_none() || (is_leaf && used_for == Use::Mappings);
        if nr_entries == 0 && (parent.is_some() || !is_leaf) || (nr_entries < capacity / 3 && !exempt) {
            self.problem(format!("{used_for:?}: node {location} has {nr_entries} entries"));
        }
        let keys: Vec<u64> = (0..nr_entries).map(|at| le64(&block, 32 + 8 * at)).collect();
        let in_range = keys.first().is_none_or(|key| *key >= low)
            && keys.last().is_none_or(|key| high.is_none_or(|high| *key < high));
        if !in_range || keys.windows(2).any(|pair| pair[0] >= pair[1]) {
            self.problem(format!("{used_for:?}: keys of node {location}"));
        }
        let first = self.claim(location, used_for, parent, is_leaf);
        let value = |at: usize| {
            let mut value = [0; 24];
            let begin = 32 + 8 * capacity + wanted * at;
            value[..wanted].copy_from_slice(&block[begin..begin + wanted]);
            Entry { key: keys[at], value }
        };
        let values: Vec<Entry> = (0..nr_entries).map(value).collect();
        if is_leaf {
            leaf_levels.insert(level);
            if first {
                self.count_leaf(used_for, &values);
            }
            return entries.extend(values);
        }
        path.push(location);
        for (at, entry) in values.iter().enumerate() {
            if first {
                self.refer(entry.number());
            }
            let high = keys.get(at + 1).copied().or(high);
            let child =
                Slot { block: entry.number(), parent: Some((location, at)), level: level + 1, low: entry.key, high };
            self.node(child, used_for, path, entries, leaf_levels);
        }
        path.pop();
    }

    /// Counts what the values of a leaf refer to, once for each leaf.
    fn count_leaf(&mut self, used_for: Use, values: &[Entry]) {
        let (nr_data_blocks, time) = self
            .superblock
            .as_ref()
            .map_or((0, 0), |superblock| (superblock.data_space_map.nr_blocks.get(), superblock.time.get()));
        for entry in values {
            match used_for {
                Use::TopLevel => self.refer(entry.number()),
                Use::Mappings => {
                    let (data, made) = (entry.number() >> 24, entry.number() & 0xff_ffff);
                    *self.data_counts.entry(data).or_default() += 1;
                    if data >= nr_data_blocks {
                        self.problem(format!("mapping of {}: block {data}", entry.key));
                    }
                    if made > u64::from(time) {
                        self.problem(format!("date of the mapping of {}: {made}", entry.key));
                    }
                }
                _ => {}
            }
        }
    }
}
