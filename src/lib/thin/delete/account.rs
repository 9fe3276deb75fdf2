//! What would come back, for each device and for all of them.
//!
//! A data block that several victims share comes back once; it is counted for each of these devices, and once for the
//! whole. What had leaked before and comes back as well, because all references are counted anew, is no device's and is
//! kept apart.

use super::cost::Estimate;
use super::exclusive::Exclusive;
use super::{DeleteError, DeleteOptions, Figures, Leaks, Strategy, Target, plan_with_forest};
use crate::base::{BlockNr, Progress, Sectors, ThinId};
use crate::block::BlockSource;
use crate::format::node::Node;
use crate::pdata::commit::CommitError;
use crate::pdata::forest::Forest;
use crate::thin::load::DeviceRoots;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;
use std::collections::BTreeSet;
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

/// Blocks that nothing used before, although they were counted, and that come back as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaked {
    /// Of the data device.
    pub data: u64,
    /// Of the metadata, as far as they were looked for.
    pub metadata: u64,
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
    /// Of the blocks that would become free: those that had leaked before.
    pub leaked: Leaked,
    /// The free metadata blocks that deleting all of them at once needs, and those that there are, where these don't
    /// suffice. The figures for metadata are then those of the devices' own nodes.
    pub no_room: Option<(u64, u64)>,
    /// Size of a data block.
    pub data_block_size: Sectors,
}

/// Finds out what deleting `victims` would give back. Nothing is written. `leaks` are those that a check has found.
///
/// # Errors
/// As [`plan`](super::plan), but for room: none is needed here.
pub fn predict(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    options: DeleteOptions,
    leaks: Option<Leaks>,
    progress: &dyn Progress,
) -> Result<Account, DeleteError> {
    let mut options = DeleteOptions { note_freed: true, ..options };
    if options.strategy == Strategy::Auto {
        // Without leaks both come to the same, and dropping looks at the victims' mappings anyway.
        let no_leaks = leaks == Some(Leaks::default());
        options.strategy = if no_leaks { Strategy::Drop } else { Estimate::of(target, victims).best() };
    }
    let account = Account {
        devices: Vec::new(),
        figures: Figures::default(),
        freed: Vec::new(),
        leaked: Leaked::default(),
        no_room: None,
        data_block_size: Sectors(u64::from(target.superblock.data_block_size.get())),
    };
    let (deletion, forest) = match plan_with_forest(target, victims, options, progress) {
        Err(DeleteError::Commit(CommitError::NoFreeBlocks { needed, free })) => {
            let exclusive = Exclusive::of(target, victims, progress)?;
            let figures = figures_without_room(target, victims, &exclusive);
            let devices = devices(target, victims, &Below::of_exclusive(target, &exclusive));
            return Ok(Account { devices, figures, freed: exclusive.freed, no_room: Some((needed, free)), ..account });
        }
        planned => planned?,
    };
    let account = Account { figures: deletion.figures(), freed: deletion.freed().to_vec(), ..account };
    progress.section("mappings", 0);
    if let Some(forest) = forest {
        let below = Below::of(target, &forest, deletion.freed(), &|_| true);
        return Ok(Account { devices: devices(target, victims, &below), ..account });
    }
    // All was counted anew, so what had leaked comes back, too: only what the devices themselves have tells it apart.
    Ok(match Exclusive::of(target, victims, progress) {
        Ok(exclusive) => Account {
            devices: devices(target, victims, &Below::of_exclusive(target, &exclusive)),
            leaked: Leaked {
                data: account.figures.data_freed().saturating_sub(exclusive.nr_data()),
                metadata: leaks.map_or(0, |leaks| leaks.metadata),
            },
            ..account
        },
        Err(_) => Account { devices: unlooked(target, victims), ..account },
    })
}

/// Blocks in use, where the change itself cannot be put together.
fn figures_without_room(target: &Target<'_>, victims: &BTreeSet<ThinId>, exclusive: &Exclusive) -> Figures {
    let data_before = target.superblock.data_space_map.nr_allocated.get();
    let metadata_before = target.superblock.metadata_space_map.nr_allocated.get();
    Figures {
        devices: victims.len() as u64,
        data_before,
        data_after: data_before.saturating_sub(exclusive.nr_data()),
        metadata_before,
        metadata_after: metadata_before.saturating_sub(exclusive.nr_nodes()),
    }
}

fn devices(target: &Target<'_>, victims: &BTreeSet<ThinId>, below: &Below) -> Vec<DeviceAccount> {
    let mut devices = unlooked(target, victims);
    for device in &mut devices {
        if let Some(root) = target.devices.by_id.get(&device.id).and_then(|roots| roots.root) {
            (device.freed, device.metadata_freed) = (Some(below.freed(root)), Some(below.nodes(root)));
        }
    }
    devices
}

/// The devices, before their mappings are looked at.
fn unlooked(target: &Target<'_>, victims: &BTreeSet<ThinId>) -> Vec<DeviceAccount> {
    let known = victims.iter().filter_map(|id| Some((id, target.devices.by_id.get(id)?)));
    let account = |(id, device): (&ThinId, &DeviceRoots)| {
        let mapped = device.details.map_or(0, |details| details.mapped_blocks.get());
        DeviceAccount { id: *id, mapped, freed: None, metadata_freed: None }
    };
    known.map(account).collect()
}

/// What becomes free below each node that goes.
struct Below {
    /// By block: mappings whose data blocks become free, and nodes.
    counts: Vec<(u64, u64)>,
}

impl Below {
    /// Counts below the nodes of `forest` that `goes` holds for.
    fn of(target: &Target<'_>, forest: &Forest, freed: &[Range<u64>], goes: &dyn Fn(BlockNr) -> bool) -> Below {
        let source = target.source;
        let freed = Bits::of(freed, target.superblock.data_space_map.nr_blocks.get());
        let counts = vec![(0, 0); source.nr_blocks().min(u64::from(u32::MAX)) as usize];
        let is_leaf = |block: &BlockNr| forest.info(*block).is_some_and(|info| info.is_leaf());
        let mut leaves: Vec<BlockNr> = forest.reached().filter(|block| is_leaf(block) && goes(*block)).collect();
        leaves.sort_unstable();
        let look = |blocks: &[BlockNr]| freed_in(source, blocks, &freed);
        let found: Vec<(BlockNr, u64)> = leaves.par_chunks(TASK_LEAVES).flat_map_iter(look).collect();
        let mut below = Below { counts };
        found.into_iter().for_each(|(leaf, freed)| below.put(leaf, (freed, 1)));
        let mut internal: Vec<BlockNr> = forest.reached().filter(|block| !is_leaf(block) && goes(*block)).collect();
        internal.sort_by_key(|block| forest.info(*block).and_then(|info| info.height()));
        for block in internal {
            let children = forest.children(source, block).unwrap_or_default();
            let sum = children.iter().fold((0u64, 1u64), |sum, (_, child)| {
                (sum.0.saturating_add(below.freed(*child)), sum.1.saturating_add(below.nodes(*child)))
            });
            below.put(block, sum);
        }
        below
    }

    fn of_exclusive(target: &Target<'_>, exclusive: &Exclusive) -> Below {
        Below::of(target, &exclusive.forest, &exclusive.freed, &|block| exclusive.goes(block))
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
