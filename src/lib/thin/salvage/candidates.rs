//! Pairs of roots that metadata may have had: found by their looks, ranked by how well they agree.

use super::scan::{Kind, Scan};
use crate::base::{Area, BlockNr, Findings, NoProgress, ThinId};
use crate::block::BlockSource;
use crate::format::details::DeviceDetails;
use crate::format::superblock::DEVICE_ID_LIMIT;
use crate::pdata::forest::{Forest, Root};
use crate::pdata::ledger::Ledger;
use crate::pdata::walk::{NoVisitor, Walker};
use crate::thin::load::{self, MAPPING_TREE};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use zerocopy::FromBytes;

/// Pairs that agree on the devices but not on all mappings, of which so many are looked at for each set of devices.
const PARTIAL_PAIRS: usize = 32;

/// A pair of roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Root of an upper mapping tree.
    pub mapping_root: BlockNr,
    /// Root of a details tree with the same devices.
    pub details_root: BlockNr,
    /// The latest time in the details.
    pub time: u32,
    /// The highest transaction id in the details.
    pub transaction: u64,
    /// Devices.
    pub devices: u64,
    /// Devices whose trees are whole and have as many mappings as their details say.
    pub whole_devices: u64,
    /// Mappings of all devices that can be read.
    pub mappings: u64,
}

impl Candidate {
    /// Whether every device is whole.
    pub fn is_complete(&self) -> bool {
        self.whole_devices == self.devices
    }

    /// What a better candidate has more of, the most important first.
    ///
    /// Neither the number of devices nor that of mappings says what is newer: devices are deleted, blocks discarded.
    /// But the kernel takes free blocks from a start that moves upwards (docs/format.md 3.10), so of two states with
    /// the same times the one with the higher roots is the newer one, until the start wraps around.
    fn rank(&self) -> (bool, u32, u64, BlockNr, BlockNr) {
        // Without any device there is nothing to agree on.
        let complete = self.is_complete() && self.devices > 0;
        let (low, high) = (self.mapping_root.min(self.details_root), self.mapping_root.max(self.details_root));
        (complete, self.time, self.transaction, high, low)
    }
}

/// The candidates as a table for a person, the best first.
pub fn table(candidates: &[Candidate]) -> String {
    let mut text = String::from("mapping_root details_root time transaction devices whole mappings complete\n");
    for found in candidates {
        let Candidate { mapping_root, details_root, time, transaction, devices, whole_devices, mappings } = found;
        let complete = if found.is_complete() { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "{mapping_root:>12} {details_root:>12} {time:>4} {transaction:>11} {devices:>7} {whole_devices:>5} \
             {mappings:>8} {complete:>8}"
        );
    }
    text
}

/// The candidates as JSON, the best first.
pub fn json(candidates: &[Candidate]) -> Value {
    let rows = candidates.iter().map(|found| {
        json!({
            "mapping_root": found.mapping_root.0,
            "details_root": found.details_root.0,
            "time": found.time,
            "transaction": found.transaction,
            "devices": found.devices,
            "whole_devices": found.whole_devices,
            "mappings": found.mappings,
            "complete": found.is_complete(),
        })
    });
    json!({ "schema": 1, "roots": rows.collect::<Vec<_>>() })
}

/// The entries of a tree that may be a details tree.
type DetailsMap = BTreeMap<ThinId, DeviceDetails>;
/// The entries of a tree that may be an upper mapping tree.
type RootMap = BTreeMap<ThinId, BlockNr>;

/// Finds all candidates, the best first.
pub(super) fn find(source: &dyn BlockSource, scan: &Scan) -> Vec<Candidate> {
    let details = details_trees(source, scan);
    let tops = top_level_trees(source, scan);
    let probe = probe(source, tops.values().flat_map(|top| top.values().copied()).collect());
    let mut groups: HashMap<Vec<ThinId>, Vec<BlockNr>> = HashMap::new();
    for (block, map) in &details {
        groups.entry(map.keys().copied().collect()).or_default().push(*block);
    }
    let mut found = Vec::new();
    for (mapping_root, top) in &tops {
        let ids: Vec<ThinId> = top.keys().copied().collect();
        let Some(partners) = groups.get(&ids) else { continue };
        let mut pairs: Vec<Candidate> = partners
            .iter()
            .filter_map(|block| Some(judge(*mapping_root, top, *block, details.get(block)?, &probe)))
            .collect();
        pairs.sort_unstable_by_key(|pair| std::cmp::Reverse((pair.whole_devices, pair.rank())));
        pairs.truncate(PARTIAL_PAIRS);
        found.extend(pairs);
    }
    found.sort_unstable_by_key(|pair| std::cmp::Reverse(pair.rank()));
    found
}

fn judge(
    mapping_root: BlockNr,
    top: &RootMap,
    details_root: BlockNr,
    details: &DetailsMap,
    probe: &Forest,
) -> Candidate {
    let (mut time, mut transaction, mut whole_devices, mut mappings) = (0, 0, 0, 0u64);
    for (id, root) in top {
        let Some(device) = details.get(id) else { continue };
        time = time.max(device.snapshotted_time.get()).max(device.creation_time.get());
        transaction = transaction.max(device.transaction_id.get());
        if let Some(info) = probe.info(*root).filter(|info| info.is_good()) {
            mappings = mappings.saturating_add(info.entries_below);
            whole_devices += u64::from(info.is_whole() && info.entries_below == device.mapped_blocks.get());
        }
    }
    Candidate { mapping_root, details_root, time, transaction, devices: top.len() as u64, whole_devices, mappings }
}

/// Walks mapping trees without minding who else uses their blocks.
pub(super) fn probe(source: &dyn BlockSource, roots: BTreeSet<BlockNr>) -> Forest {
    let mut ledger = Ledger::new(load::usable_blocks(source));
    let mut findings = Findings::new();
    let mut walker = Walker { source, ledger: &mut ledger, findings: &mut findings, progress: &NoProgress };
    let root = |block| Root { block, area: Area::Mappings, device: None };
    walker.walk(MAPPING_TREE, roots.into_iter().map(root).collect(), &NoVisitor)
}

/// Internal nodes all of whose children are leaves that `leaf` takes, with those children.
fn above(source: &dyn BlockSource, scan: &Scan, leaf: impl Fn(BlockNr) -> bool) -> Vec<(BlockNr, Vec<BlockNr>)> {
    let mut found = Vec::new();
    for (block, _) in scan.all(Kind::Internal) {
        super::with_node(source, block, 8, &mut |node| {
            let children = || node.values_u64().iter().map(|value| BlockNr(value.get()));
            if !node.is_empty() && children().all(&leaf) {
                found.push((block, children().collect()));
            }
        });
    }
    found
}

fn join<T: Copy>(trees: &mut BTreeMap<BlockNr, BTreeMap<ThinId, T>>, above: Vec<(BlockNr, Vec<BlockNr>)>) {
    for (root, children) in above {
        let entries = children.iter().filter_map(|child| trees.get(child)).flatten();
        let joined = entries.map(|(id, value)| (*id, *value)).collect();
        trees.insert(root, joined);
    }
}

fn details_trees(source: &dyn BlockSource, scan: &Scan) -> BTreeMap<BlockNr, DetailsMap> {
    let leaves = scan.all(Kind::Leaf(24));
    let mut trees: BTreeMap<BlockNr, DetailsMap> =
        leaves.map(|(block, _)| (block, details_of(source, block))).collect();
    join(&mut trees, above(source, scan, |child| scan.get(child).kind == Kind::Leaf(24)));
    trees
}

/// The entries of a leaf of details.
pub(super) fn details_of(source: &dyn BlockSource, block: BlockNr) -> DetailsMap {
    let mut map = DetailsMap::new();
    super::with_node(source, block, 24, &mut |node| {
        for (key, value) in node.keys().iter().zip(node.value_bytes().chunks_exact(24)) {
            if let Ok(details) = DeviceDetails::read_from_bytes(value) {
                map.insert(ThinId(key.get()), details);
            }
        }
    });
    map
}

fn top_level_trees(source: &dyn BlockSource, scan: &Scan) -> BTreeMap<BlockNr, RootMap> {
    let mut trees = top_level_leaves(source, scan);
    let above = above(source, scan, |child| trees.contains_key(&child));
    join(&mut trees, above);
    trees
}

/// Leaves that look like those of an upper mapping tree: ids that a device can have, and blocks that hold nodes.
pub(super) fn top_level_leaves(source: &dyn BlockSource, scan: &Scan) -> BTreeMap<BlockNr, RootMap> {
    let is_root = |value: u64| {
        value < scan.nr_blocks() && matches!(scan.get(BlockNr(value)).kind, Kind::Leaf(8) | Kind::Internal)
    };
    let leaves = scan.all(Kind::Leaf(8)).filter(|(_, found)| found.entries == 0 || found.last < DEVICE_ID_LIMIT);
    let mut trees = BTreeMap::new();
    for (block, _) in leaves {
        super::with_node(source, block, 8, &mut |node| {
            let values = node.values_u64();
            if values.iter().all(|value| is_root(value.get())) {
                let ids = node.keys().iter().map(|key| ThinId(key.get()));
                trees.insert(block, ids.zip(values.iter().map(|value| BlockNr(value.get()))).collect());
            }
        });
    }
    trees
}
