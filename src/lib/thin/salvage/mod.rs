//! Getting out of damaged metadata what is in it, and telling what is not.
//!
//! While the superblock is good, its roots are the truth, and whatever is whole below them stays as it is. What is
//! damaged is looked for among the blocks that nothing leads to any more. Older states are offered as candidates;
//! they are taken only when asked for, or when the superblock is lost.

mod account;
mod candidates;
mod devices;
mod limits;
mod misplaced;
mod orphans;
mod pool;
mod scan;

pub use account::{Account, DeviceAccount, Field, Origin, PoolFields};
pub use candidates::{Candidate, json as candidates_json, table as candidates_table};
pub use misplaced::salvage_put_back;

use super::document::{Document, DocumentDevice, Leaves};
use super::load::{self, Devices, Roots};
use super::model::{Device, Pool, lowered};
use crate::base::{Area, BlockNr, Code, Finding, Findings, KeyRange, NoProgress, Place, Progress, ThinId};
use crate::block::BlockSource;
use crate::format::block::BLOCK_SIZE;
use crate::format::foreign::{self, Foreign, HEAD_BYTES};
use crate::format::node::Node;
use crate::format::superblock::{DEVICE_ID_LIMIT, ThinSuperblock};
use crate::pdata::forest::{Forest, Step};
use crate::pdata::ledger::{BlockUse, Ledger, Referred};
use crate::pdata::space_map::SpaceMap;
use crate::pdata::stored::StoredCounts;
use crate::pdata::walk::Walker;
use limits::{LimitVisitor, Limits};
use orphans::LostRange;
use scan::Scan;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What to take, where it is not to be what is found.
#[derive(Clone, Copy, Debug, Default)]
pub struct SalvageOptions {
    /// Take these roots: of the upper mapping tree and of the details tree.
    pub roots: Option<(BlockNr, BlockNr)>,
    /// The pool's transaction id.
    pub transaction_id: Option<u64>,
    /// Sectors of a data block. Only the superblock holds this.
    pub data_block_size: Option<u32>,
    /// Blocks of the data device.
    pub nr_data_blocks: Option<u64>,
}

/// Why nothing can be salvaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SalvageError {
    /// The superblock is gone, and with it what only it held.
    #[error(
        "the superblock is lost, and with it the size of a data block: give it with --data-block-size \
         (in sectors; the pool's table in the volume manager's records has it)"
    )]
    NeedsDataBlockSize,
    /// No pair of roots fits together.
    #[error("no roots were found that fit together: there is nothing to salvage")]
    NoRoots,
    /// There are no roots because this is no metadata of a pool.
    #[error("no roots were found that fit together: this looks like {0}")]
    Foreign(Foreign),
    /// The superblock is good, but no pool can have its data block size.
    #[error(
        "the superblock says that a data block has {0} sectors, which no pool can have: give the size with \
         --data-block-size (in sectors; the pool's table in the volume manager's records has it)"
    )]
    DataBlockSize(u32),
    /// The superblock is good, but its data device is larger than this metadata can hold counts for.
    #[error(
        "the superblock says that the data device has {0} blocks, for which this metadata has no room: give the number \
         with --nr-data-blocks"
    )]
    NrDataBlocks(u64),
    /// More data blocks were asked for than mappings can lead to.
    #[error("a pool cannot have {0} data blocks: mappings have room for block numbers of 40 bits")]
    TooManyDataBlocks(u64),
    /// The superblock is good, but neither of its trees can be read.
    #[error(
        "neither the mapping tree nor the details that the superblock names can be read; \
         --list-roots shows older ones, --root MAPPING,DETAILS takes them"
    )]
    RootsLost,
}

/// What was got out.
#[derive(Debug)]
pub struct Salvage {
    /// The pool as it can be written.
    pub document: Document,
    /// What was found and lost.
    pub account: Account,
    /// The damage, as a check would tell it.
    pub findings: Findings,
}

/// Lists the pairs of roots that the metadata may have had, the best first.
pub fn list_roots(source: &dyn BlockSource, progress: &dyn Progress) -> Vec<Candidate> {
    candidates::find(source, &Scan::of(source, progress))
}

/// What there is instead of the roots of a pool.
pub fn no_roots(source: &dyn BlockSource) -> SalvageError {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let blocks: Vec<BlockNr> = (0..source.nr_blocks().min((HEAD_BYTES / BLOCK_SIZE) as u64)).map(BlockNr).collect();
    source.read_many(&blocks, &mut |_, block| match block {
        Ok(block) => {
            head.extend_from_slice(block);
            ControlFlow::Continue(())
        }
        Err(_) => ControlFlow::Break(()),
    });
    foreign::recognise(&head).map_or(SalvageError::NoRoots, SalvageError::Foreign)
}

/// Salvages what is in `source`.
///
/// # Errors
/// Where there is nothing to begin with.
pub fn salvage(
    source: &dyn BlockSource,
    options: &SalvageOptions,
    progress: &dyn Progress,
) -> Result<Salvage, SalvageError> {
    let mut findings = Findings::new();
    let superblock = load::superblock(source, &mut findings);
    let scan = std::cell::OnceCell::new();
    let scan = || scan.get_or_init(|| Scan::of(source, progress));
    let roots = match (options.roots, &superblock) {
        (Some((mapping, details)), _) => Roots { mapping, details, snapshot: false },
        (None, Some(superblock)) => Roots::of(superblock, false),
        (None, None) => {
            let best = candidates::find(source, scan()).into_iter().next().ok_or_else(|| no_roots(source))?;
            Roots { mapping: best.mapping_root, details: best.details_root, snapshot: false }
        }
    };
    let limits = pool::limits(source, superblock.as_ref(), options)?;
    let mut work = Work { source, superblock: superblock.as_ref(), roots, limits, adopted: BTreeMap::new() };
    let mut walked = work.walk(progress);
    if walked.nothing_can_be_read() {
        return Err(if superblock.is_some() { SalvageError::RootsLost } else { no_roots(source) });
    }
    if !walked.devices.top_level_whole {
        // Roots are looked for with the counts of all that was reached; then everything is walked again with them.
        let stored = work.stored(&mut walked);
        work.adopted = devices::missing_roots(source, scan(), &walked.devices, &walked.ledger, stored.as_ref());
        walked = work.walk(progress);
    }
    let mut salvage = work.finish(walked, options, &scan)?;
    salvage.findings.append(findings);
    Ok(salvage)
}

/// What a walk below one pair of roots gives.
struct Walked {
    devices: Devices,
    forest: Forest,
    ledger: Ledger,
    findings: Findings,
    limits: LimitVisitor,
}

impl Walked {
    fn nothing_can_be_read(&self) -> bool {
        self.devices.by_id.is_empty() && !self.devices.details_whole && !self.devices.top_level_whole
    }
}

struct Work<'a> {
    source: &'a dyn BlockSource,
    superblock: Option<&'a ThinSuperblock>,
    roots: Roots,
    limits: Limits,
    /// Roots that were found for devices without one.
    adopted: BTreeMap<ThinId, BlockNr>,
}

impl Work<'_> {
    /// Walks all trees of the pool, and those of its metadata snapshot for the references that they hold.
    fn walk(&self, progress: &dyn Progress) -> Walked {
        let mut ledger = Ledger::new(load::usable_blocks(self.source));
        let mut findings = Findings::new();
        let mut walker = Walker { source: self.source, ledger: &mut ledger, findings: &mut findings, progress };
        let mut pairs = vec![self.roots];
        pairs.extend(self.snapshot(&mut walker));
        progress.section("devices", 0);
        let mut devices = load::devices(&mut walker, &pairs);
        for (id, root) in &self.adopted {
            if let Some(device) = devices.first_mut().and_then(|live| live.by_id.get_mut(id)) {
                device.root = Some(*root);
            }
        }
        progress.section("mappings", 0);
        let limits = LimitVisitor::new(self.limits);
        let with_devices: Vec<_> = pairs.iter().copied().zip(&devices).collect();
        let forest = load::mappings(&mut walker, &with_devices, &limits);
        let devices = devices.into_iter().next().unwrap_or_default();
        Walked { devices, forest, ledger, findings, limits }
    }

    fn snapshot(&self, walker: &mut Walker<'_>) -> Option<Roots> {
        let live = self.superblock?;
        let location = live.held_root()?;
        if walker.ledger.refer(location, BlockUse::Superblock) != Referred::First {
            return None;
        }
        let superblock = load::snapshot_superblock(self.source, location, live, walker.findings)?;
        Some(Roots::of(&superblock, true))
    }

    /// The counts that the metadata space map holds, where there is a superblock that leads to it.
    fn stored(&self, walked: &mut Walked) -> Option<StoredCounts> {
        let superblock = self.superblock?;
        let mut walker = Walker {
            source: self.source,
            ledger: &mut walked.ledger,
            findings: &mut walked.findings,
            progress: &NoProgress,
        };
        // The data space map's blocks are used too, so none of them is an orphan.
        SpaceMap::load_data(&mut walker, &superblock.data_space_map);
        let map = SpaceMap::load_metadata(&mut walker, &superblock.metadata_space_map);
        Some(StoredCounts::read(&map, self.source))
    }

    fn finish<'s>(
        &self,
        mut walked: Walked,
        options: &SalvageOptions,
        scan: &dyn Fn() -> &'s Scan,
    ) -> Result<Salvage, SalvageError> {
        let mut devices: Vec<Salvaged> =
            walked.devices.by_id.iter().map(|(id, roots)| Salvaged::new(*id, roots.root, &self.adopted)).collect();
        for device in &mut devices {
            device.read_tree(self.source, &walked.forest);
        }
        if devices.iter().any(|device| !device.lost.is_empty()) {
            let lost = lost_ranges(&devices);
            if let Some(stored) = self.stored(&mut walked) {
                let orphans = orphans::find(self.source, scan(), &walked.ledger, &stored, self.limits);
                let homes = orphans::assign(&lost, orphans);
                for device in &mut devices {
                    let expected = walked.devices.by_id.get(&device.id).and_then(|roots| roots.details);
                    let expected = expected.map(|details| details.mapped_blocks.get());
                    device.adopt(&homes, expected, &mut walked.forest);
                }
            }
        }
        let found = pool::Found::of(&walked.devices, walked.limits.highest());
        let (pool, fields) = pool::fields(self.superblock, options, self.limits, &found)?;
        let details = devices::details(self.source, &walked.devices, &devices, &pool, scan);
        let mut account = Account {
            superblock: if self.superblock.is_some() { Origin::Live } else { Origin::Lost },
            mapping_root: self.roots.mapping,
            details_root: self.roots.details,
            pool: fields,
            lowered: self.superblock.map_or_else(Vec::new, |superblock| lowered(&Pool::of(superblock), &pool)),
            misplaced: Vec::new(),
            devices: Vec::new(),
        };
        let beyond = walked.limits.beyond_by_block();
        let mut written = Vec::new();
        for device in devices {
            let (details, origin) =
                details.get(&device.id).copied().unwrap_or((Device::unknown(device.id, &pool), Origin::Made));
            let told = device.account(self.source, &walked.forest, &beyond, details.mapped_blocks, origin);
            let leaves = device.leaves();
            // Of a time that cannot be, the latest that there is keeps shared blocks safe.
            let snapshotted_time = details.snapshotted_time.min(pool.time);
            let details = Device {
                mapped_blocks: told.found,
                creation_time: details.creation_time.min(snapshotted_time),
                snapshotted_time,
                ..details
            };
            if device.id.0 >= DEVICE_ID_LIMIT {
                // No pool can have it, and what it was is not known.
                walked.findings.push(Finding::new(Code::DeviceId, Place::device(Area::TopLevel, device.id)));
                account.devices.push(DeviceAccount { found: 0, ..told });
                continue;
            }
            account.devices.push(told);
            written.push(DocumentDevice { device: details, leaves });
        }
        let (last_data, last_time) = walked.limits.highest();
        let within = last_data.is_none_or(|last| last < pool.nr_data_blocks) && last_time <= pool.time;
        let limits = (!within).then_some((pool.nr_data_blocks, pool.time));
        let document = Document { pool, devices: written, forest: walked.forest, limits, sharing: None };
        Ok(Salvage { document, account, findings: walked.findings })
    }
}

/// The lost ranges of all devices, those with the same block together.
fn lost_ranges(devices: &[Salvaged]) -> Vec<LostRange> {
    let mut by_block: BTreeMap<BlockNr, LostRange> = BTreeMap::new();
    for device in devices {
        for (keys, block) in &device.lost {
            let range = by_block.entry(*block).or_insert(LostRange { keys: *keys, block: *block, devices: Vec::new() });
            range.devices.push(device.id);
        }
    }
    by_block.into_values().collect()
}

/// A device on its way into the document.
pub(super) struct Salvaged {
    id: ThinId,
    root: Option<BlockNr>,
    root_origin: Origin,
    /// Leaves in key order; only filled where the tree is not whole.
    list: Vec<BlockNr>,
    lost: Vec<(KeyRange, BlockNr)>,
    found: u64,
    recovered: u64,
}

impl Salvaged {
    fn new(id: ThinId, root: Option<BlockNr>, adopted: &BTreeMap<ThinId, BlockNr>) -> Self {
        let root_origin = match root {
            None => Origin::Lost,
            Some(_) if adopted.contains_key(&id) => Origin::Recovered,
            Some(_) => Origin::Live,
        };
        Salvaged { id, root, root_origin, list: Vec::new(), lost: Vec::new(), found: 0, recovered: 0 }
    }

    fn read_tree(&mut self, source: &dyn BlockSource, forest: &Forest) {
        let Some(root) = self.root else { return };
        if let Some(info) = forest.info(root).filter(|info| info.is_whole()) {
            self.found = info.entries_below;
            return;
        }
        forest.traverse(source, root, &mut |step| {
            match step {
                Step::Leaf(block) => {
                    self.found += forest.info(block).map_or(0, |info| info.entries_below);
                    self.list.push(block);
                }
                Step::Lost(keys, block) => self.lost.push((keys, block)),
            }
            ControlFlow::Continue(())
        });
    }

    /// Takes in the leaves that were found for its lost ranges, unless that would be more than it ever had.
    fn adopt(&mut self, homes: &BTreeMap<BlockNr, Vec<orphans::Orphan>>, expected: Option<u64>, forest: &mut Forest) {
        let found: Vec<&orphans::Orphan> =
            self.lost.iter().filter_map(|(_, block)| homes.get(block)).flatten().collect();
        let entries: u64 = found.iter().map(|orphan| u64::from(orphan.entries)).sum();
        if entries == 0 || expected.is_some_and(|expected| self.found + entries > expected) {
            return;
        }
        for orphan in found {
            if forest.info(orphan.block).is_none_or(|info| !info.is_good()) {
                forest.adopt_leaf(orphan.block, orphan.first, orphan.last, orphan.entries);
            }
            self.list.push(orphan.block);
        }
        self.list.sort_unstable_by_key(|block| forest.info(*block).map(|info| info.first));
        self.found += entries;
        self.recovered = entries;
    }

    fn leaves(&self) -> Leaves {
        match self.root {
            Some(root) if self.lost.is_empty() => Leaves::Tree(root),
            _ => Leaves::List(self.list.iter().map(|block| block.0 as u32).collect()),
        }
    }

    fn account(
        &self,
        source: &dyn BlockSource,
        forest: &Forest,
        beyond: &BTreeMap<BlockNr, u64>,
        expected: u64,
        details: Origin,
    ) -> DeviceAccount {
        let mut beyond_data = 0;
        if !beyond.is_empty() {
            let mut count = |block: &BlockNr| beyond_data += beyond.get(block).copied().unwrap_or(0);
            match self.root {
                Some(root) if self.lost.is_empty() => forest.traverse(source, root, &mut |step| {
                    if let Step::Leaf(block) = step {
                        count(&block);
                    }
                    ControlFlow::Continue(())
                }),
                _ => self.list.iter().for_each(count),
            }
        }
        let complete = details != Origin::Made && self.found >= expected;
        DeviceAccount {
            id: self.id,
            found: self.found - beyond_data,
            expected: (details != Origin::Made).then_some(expected),
            recovered: self.recovered,
            beyond_data,
            lost_ranges: if complete { Vec::new() } else { gaps(&self.lost, &self.list, forest) },
            details,
            root: self.root_origin,
        }
    }
}

/// What is left of the lost ranges when the leaves that were recovered are taken away.
fn gaps(lost: &[(KeyRange, BlockNr)], leaves: &[BlockNr], forest: &Forest) -> Vec<KeyRange> {
    let infos: Vec<_> = leaves.iter().filter_map(|block| forest.info(*block)).collect();
    let mut gaps: Vec<KeyRange> = Vec::new();
    for (keys, _) in lost {
        let mut begin = keys.begin;
        let from = infos.partition_point(|info| info.first < keys.begin);
        for info in infos[from..].iter().take_while(|info| keys.end.is_none_or(|end| info.first < end)) {
            if info.first > begin {
                gaps.push(KeyRange { begin, end: Some(info.first) });
            }
            begin = info.last.saturating_add(1);
        }
        if keys.end.is_none_or(|end| begin < end) {
            match gaps.last_mut() {
                Some(last) if last.end == Some(begin) => last.end = keys.end,
                _ => gaps.push(KeyRange { begin, end: keys.end }),
            }
        }
    }
    gaps
}

impl Device {
    /// Details for a device of which none are known: as if it had just taken part in a snapshot, so that every
    /// block that may be shared is treated as shared.
    fn unknown(id: ThinId, pool: &Pool) -> Device {
        Device { id, mapped_blocks: 0, transaction: 0, creation_time: pool.time, snapshotted_time: pool.time }
    }
}

/// Lends the node in `block`, if there is one with values of this size.
fn with_node(source: &dyn BlockSource, block: BlockNr, value_size: usize, look: &mut dyn FnMut(&Node<'_>)) {
    source.read_many(&[block], &mut |_, content| {
        if let Ok(content) = content
            && let Ok(node) = Node::trusting_checksum(content, value_size)
        {
            look(&node);
        }
        ControlFlow::Continue(())
    });
}
