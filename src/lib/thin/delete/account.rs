//! What would come back, for each device and for all of them.
//!
//! A data block that several victims share comes back once; it is counted for each of these devices, and once for the
//! whole.

use super::{DeleteError, DeleteOptions, Deletion, Figures, Strategy, Target, plan_with_forest};
use crate::base::{BlockNr, Progress, Sectors, ThinId};
use crate::block::BlockSource;
use crate::format::node::Node;
use crate::pdata::forest::Forest;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::{ControlFlow, Range};

/// Leaves that one task reads: 2 MiB.
const TASK_LEAVES: usize = 512;

/// What would come back of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAccount {
    /// Its id.
    pub id: ThinId,
    /// Its mapped blocks, as its details say.
    pub mapped: u64,
    /// Mapped blocks whose data blocks become free; `None` where its mappings were not looked at.
    pub freed: Option<u64>,
    /// Metadata blocks of its mappings that become free.
    pub metadata_freed: Option<u64>,
}

impl DeviceAccount {
    /// Mapped blocks that survivors, or the metadata snapshot, use as well.
    pub fn shared(&self) -> Option<u64> {
        self.freed.map(|freed| self.mapped.saturating_sub(freed))
    }
}

/// What would come back.
#[derive(Clone, Debug)]
pub struct Account {
    /// Each device that would go, by id.
    pub devices: Vec<DeviceAccount>,
    /// Blocks in use before and afterwards.
    pub figures: Figures,
    /// Ascending ranges of data blocks that would become free.
    pub freed: Vec<Range<u64>>,
    /// Size of a data block.
    pub data_block_size: Sectors,
}

/// Finds out what deleting `victims` would give back. Nothing is written.
///
/// # Errors
/// As [`plan`](super::plan).
pub fn predict(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    options: DeleteOptions,
    progress: &dyn Progress,
) -> Result<Account, DeleteError> {
    let mut options = DeleteOptions { note_freed: true, ..options };
    // What only one device has is known without looking at its mappings.
    if options.strategy == Strategy::Auto && victims.len() > 1 {
        options.strategy = Strategy::Drop;
    }
    let (deletion, forest) = plan_with_forest(target, victims, options, progress)?;
    Ok(account(target, victims, &deletion, forest.as_ref(), progress))
}

fn account(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    deletion: &Deletion,
    forest: Option<&Forest>,
    progress: &dyn Progress,
) -> Account {
    let figures = deletion.figures();
    let below = forest.filter(|_| victims.len() > 1).map(|forest| {
        progress.section("mappings", 0);
        Below::of(target, forest, deletion.freed())
    });
    let devices = victims.iter().filter_map(|id| Some((id, target.devices.by_id.get(id)?)));
    let devices = devices.map(|(id, device)| {
        let mapped = device.details.map_or(0, |details| details.mapped_blocks.get());
        let (freed, metadata_freed) = match (&below, device.root) {
            (Some(below), Some(root)) => (Some(below.freed(root)), Some(below.nodes(root))),
            (None, _) if victims.len() == 1 => (Some(figures.data_freed().min(mapped)), Some(figures.metadata_freed())),
            _ => (None, None),
        };
        DeviceAccount { id: *id, mapped, freed, metadata_freed }
    });
    Account {
        devices: devices.collect(),
        figures,
        freed: deletion.freed().to_vec(),
        data_block_size: Sectors(u64::from(target.superblock.data_block_size.get())),
    }
}

/// What becomes free below each node that goes.
struct Below {
    /// By block: mappings whose data blocks become free, and nodes.
    counts: Vec<(u64, u64)>,
}

impl Below {
    fn of(target: &Target<'_>, forest: &Forest, freed: &[Range<u64>]) -> Below {
        let source = target.source;
        let freed = Bits::of(freed, target.superblock.data_space_map.nr_blocks.get());
        let counts = vec![(0, 0); source.nr_blocks().min(u64::from(u32::MAX)) as usize];
        let is_leaf = |block: &BlockNr| forest.info(*block).is_some_and(|info| info.is_leaf());
        let mut leaves: Vec<BlockNr> = forest.reached().filter(is_leaf).collect();
        leaves.sort_unstable();
        let look = |blocks: &[BlockNr]| freed_in(source, blocks, &freed);
        let found: Vec<(BlockNr, u64)> = leaves.par_chunks(TASK_LEAVES).flat_map_iter(look).collect();
        let mut below = Below { counts };
        found.into_iter().for_each(|(leaf, freed)| below.put(leaf, (freed, 1)));
        // A node is reached when the last that led to it was: those below it come after it.
        for block in forest.reached().rev().filter(|block| !is_leaf(block)) {
            let children = forest.children(source, block).unwrap_or_default();
            let sum = children.iter().fold((0u64, 1u64), |sum, (_, child)| {
                (sum.0.saturating_add(below.freed(*child)), sum.1.saturating_add(below.nodes(*child)))
            });
            below.put(block, sum);
        }
        below
    }

    fn put(&mut self, block: BlockNr, found: (u64, u64)) {
        if let Some(slot) = usize::try_from(block.0).ok().and_then(|index| self.counts.get_mut(index)) {
            *slot = found;
        }
    }

    fn at(&self, block: BlockNr) -> (u64, u64) {
        usize::try_from(block.0).ok().and_then(|index| self.counts.get(index)).copied().unwrap_or_default()
    }

    fn freed(&self, block: BlockNr) -> u64 {
        self.at(block).0
    }

    fn nodes(&self, block: BlockNr) -> u64 {
        self.at(block).1
    }
}

/// How many mappings of each leaf lead to blocks that become free.
fn freed_in(source: &dyn BlockSource, leaves: &[BlockNr], freed: &Bits) -> Vec<(BlockNr, u64)> {
    let mut found = Vec::with_capacity(leaves.len());
    source.read_many(leaves, &mut |location, block| {
        if let Ok(block) = block
            && let Ok(node) = Node::trusting_checksum(block, 8)
        {
            let count = node.values_u64().iter().filter(|value| freed.has(value.get() >> 24)).count();
            found.push((location, count as u64));
        }
        ControlFlow::Continue(())
    });
    found
}

/// A bit for each data block.
struct Bits(Vec<u64>);

impl Bits {
    fn of(ranges: &[Range<u64>], nr_blocks: u64) -> Bits {
        let mut bits = vec![0u64; nr_blocks.div_ceil(64) as usize];
        for range in ranges {
            for at in range.start / 64..range.end.div_ceil(64) {
                let Some(slot) = bits.get_mut(at as usize) else { continue };
                let (first, last) = (range.start.max(at * 64) - at * 64, range.end.min(at * 64 + 64) - at * 64);
                *slot |= (u64::MAX << first) & (u64::MAX >> (64 - last));
            }
        }
        Bits(bits)
    }

    fn has(&self, block: u64) -> bool {
        self.0.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }
}

impl Account {
    /// Mapped blocks of all devices.
    pub fn mapped(&self) -> u64 {
        self.devices.iter().map(|device| device.mapped).fold(0, u64::saturating_add)
    }

    /// Mapped blocks of all devices that survivors use as well; `None` where mappings were not looked at.
    pub fn shared(&self) -> Option<u64> {
        self.devices.iter().map(DeviceAccount::shared).try_fold(0u64, |sum, shared| Some(sum.saturating_add(shared?)))
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.data_block_size.bytes())
    }

    /// A table for people.
    pub fn text(&self) -> String {
        let mut text = row(["DEVICE", "MAPPED", "SHARED", "FREED", "METADATA", "BYTES"].map(String::from));
        let known = |number: Option<u64>| number.map_or_else(|| "-".to_string(), |number| number.to_string());
        for device in &self.devices {
            let bytes = device.freed.map(|freed| self.bytes(freed));
            let numbers = [device.shared(), device.freed, device.metadata_freed, bytes].map(known);
            let [shared, freed, metadata, bytes] = numbers;
            text += &row([device.id.to_string(), device.mapped.to_string(), shared, freed, metadata, bytes]);
        }
        let (data, metadata) = (self.figures.data_freed(), self.figures.metadata_freed());
        let bytes = self.bytes(data);
        let numbers = [Some(self.mapped()), self.shared(), Some(data), Some(metadata), Some(bytes)].map(known);
        let [mapped, shared, freed, metadata, bytes] = numbers;
        text += &row(["all".into(), mapped, shared, freed, metadata, bytes]);
        let Figures { data_after, metadata_after, .. } = self.figures;
        let _ = writeln!(text, "in use afterwards: {data_after} data blocks, {metadata_after} metadata blocks");
        text
    }

    /// The same as one JSON object.
    pub fn json(&self) -> Value {
        let device = |device: &DeviceAccount| {
            json!({
                "id": device.id.0,
                "mapped_blocks": device.mapped,
                "shared_with_survivors": device.shared(),
                "freed_data_blocks": device.freed,
                "freed_metadata_blocks": device.metadata_freed,
                "freed_bytes": device.freed.map(|freed| self.bytes(freed)),
            })
        };
        let figures = &self.figures;
        json!({
            "schema": 1,
            "data_block_size_sectors": self.data_block_size.0,
            "devices": self.devices.iter().map(device).collect::<Vec<_>>(),
            "all": {
                "devices": figures.devices,
                "mapped_blocks": self.mapped(),
                "shared_with_survivors": self.shared(),
                "freed_data_blocks": figures.data_freed(),
                "freed_metadata_blocks": figures.metadata_freed(),
                "freed_bytes": self.bytes(figures.data_freed()),
            },
            "data_blocks_in_use": { "before": figures.data_before, "after": figures.data_after },
            "metadata_blocks_in_use": { "before": figures.metadata_before, "after": figures.metadata_after },
        })
    }
}

fn row([device, mapped, shared, freed, metadata, bytes]: [String; 6]) -> String {
    format!("{device:>8} {mapped:>12} {shared:>12} {freed:>12} {metadata:>9} {bytes:>18}\n")
}
