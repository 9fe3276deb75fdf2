//! Reading a pool's superblocks and its devices.

use crate::base::{Area, BlockNr, Code, Finding, Findings, Place, ThinId};
use crate::block::BlockSource;
use crate::format::details::{DETAILS_SIZE, DeviceDetails};
use crate::format::foreign;
use crate::format::space_map::MAX_METADATA_BLOCKS;
use crate::format::superblock::{self, FLAG_NEEDS_CHECK, TIME_LIMIT, ThinSuperblock, version_is_known};
use crate::format::{BLOCK_SECTORS, BlockFault};
use crate::pdata::forest::{Forest, Root};
use crate::pdata::ledger::BlockUse;
use crate::pdata::walk::{NoVisitor, TreeKind, Walker};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::FromBytes;

/// The details tree.
pub const DETAILS_TREE: TreeKind =
    TreeKind { value_size: DETAILS_SIZE, block_use: BlockUse::Details, leaves_filled: true };
/// The upper mapping tree: device id to root.
pub const TOP_LEVEL_TREE: TreeKind = TreeKind { value_size: 8, block_use: BlockUse::TopLevel, leaves_filled: true };
/// A device's mapping tree.
pub const MAPPING_TREE: TreeKind = TreeKind { value_size: 8, block_use: BlockUse::Mappings, leaves_filled: false };

/// Blocks of the metadata that can be in use: what lies past the largest space map is ignored (docs/format.md 3.5).
pub fn usable_blocks(source: &dyn BlockSource) -> u64 {
    source.nr_blocks().min(MAX_METADATA_BLOCKS)
}

/// Reads the superblock of a pool.
///
/// `None` where it cannot be used; `findings` then says why. Findings about single fields do not make it useless.
pub fn superblock(source: &dyn BlockSource, findings: &mut Findings) -> Option<ThinSuperblock> {
    let place = Place::block(Area::Superblock, BlockNr(0));
    let block = match source.read(BlockNr(0)) {
        Ok(block) => block,
        Err(error) => {
            findings.push(Finding::with(Code::SuperblockUnreadable, place, error.to_string()));
            return None;
        }
    };
    match ThinSuperblock::verify(&block, BlockNr(0)) {
        Ok(found) if found.magic.get() == superblock::THIN_MAGIC => {
            judge_fields(found, source, findings);
            Some(found.clone())
        }
        Ok(found) => {
            findings.push(Finding::with(Code::SuperblockMagic, place, format!("{}", found.magic.get())));
            None
        }
        Err(fault) => {
            findings.push(superblock_finding(fault, &block[..], place));
            None
        }
    }
}

fn superblock_finding(fault: BlockFault, bytes: &[u8], place: Place) -> Finding {
    match fault {
        BlockFault::Zeroed => Finding::with(Code::SuperblockZeroed, place, "a pool that was never used, or was wiped"),
        BlockFault::Moved(_) => Finding::with(Code::SuperblockMoved, place, fault.to_string()),
        BlockFault::OtherKind(kind) => {
            Finding::with(Code::SuperblockOtherKind, place, format!("{} found", kind.word()))
        }
        BlockFault::Checksum { .. } => match foreign::recognise(bytes) {
            Some(other) => Finding::with(Code::SuperblockOtherKind, place, format!("this looks like {other}")),
            None => Finding::with(Code::SuperblockChecksum, place, fault.to_string()),
        },
    }
}

/// Looks at every field that can be judged by itself.
fn judge_fields(found: &ThinSuperblock, source: &dyn BlockSource, findings: &mut Findings) {
    let place = Place::block(Area::Superblock, BlockNr(0));
    let mut judge = |bad: bool, code, detail: String| {
        if bad {
            findings.push(Finding::with(code, place, detail));
        }
    };
    let version = found.version.get();
    judge(!version_is_known(version), Code::SuperblockVersion, format!("{version}, known are 1 and 2"));
    let features = [found.compat_ro_flags.get(), found.incompat_flags.get()];
    judge(
        features != [0, 0],
        Code::SuperblockFeatures,
        format!("compat_ro {:#x}, incompat {:#x}", features[0], features[1]),
    );
    let (other_flags, compat) = (found.flags.get() & !FLAG_NEEDS_CHECK, found.compat_flags.get());
    judge(other_flags | compat != 0, Code::SuperblockFlags, format!("flags {other_flags:#x}, compat {compat:#x}"));
    judge(found.needs_check(), Code::NeedsCheck, String::new());
    let size = found.data_block_size.get();
    judge(!superblock::data_block_size_is_valid(size), Code::SuperblockDataBlockSize, format!("{size} sectors"));
    let size = u64::from(found.metadata_block_size.get());
    judge(size != BLOCK_SECTORS, Code::SuperblockMetadataBlockSize, format!("{size} sectors"));
    let (formatted, managed) = (found.metadata_nr_blocks.get(), found.metadata_space_map.nr_blocks.get());
    // The kernel does not raise the first when the device grows, and may not have cut it at the largest map.
    let contradicts = formatted == 0 || (formatted > managed && managed < MAX_METADATA_BLOCKS);
    judge(contradicts, Code::SuperblockMetadataSize, format!("formatted with {formatted} blocks, now {managed}"));
    let time = found.time.get();
    judge(time >= TIME_LIMIT, Code::SuperblockTime, format!("{time}"));
    let (said, there) = (found.metadata_space_map.nr_blocks.get(), source.nr_blocks());
    judge(said > there, Code::DeviceTooShort, format!("{there} blocks instead of {said}"));
    let unused = said < there && said < MAX_METADATA_BLOCKS;
    judge(unused, Code::DeviceLarger, format!("{there} blocks, {said} are managed"));
}

/// Which metadata snapshot is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// The one that the superblock holds.
    Held,
    /// The one that the superblock holds, which must be in this block.
    At(BlockNr),
}

/// Why there is no such metadata snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The pool holds none.
    #[error(
        "the pool holds no metadata snapshot; for a live pool, reserve one with \
         'dmsetup message POOL 0 reserve_metadata_snap'"
    )]
    None,
    /// The pool's is in another block.
    #[error("the pool's metadata snapshot is in block {held}, not in block {wanted}")]
    Elsewhere {
        /// Where it is.
        held: BlockNr,
        /// Where it should be.
        wanted: BlockNr,
    },
}

/// Where the wanted metadata snapshot is.
///
/// # Errors
/// Where there is none, or another one.
pub fn find_snapshot(superblock: &ThinSuperblock, wanted: Snapshot) -> Result<BlockNr, SnapshotError> {
    match (superblock.held_root(), wanted) {
        (None, _) => Err(SnapshotError::None),
        (Some(held), Snapshot::At(wanted)) if held != wanted => Err(SnapshotError::Elsewhere { held, wanted }),
        (Some(held), _) => Ok(held),
    }
}

/// Reads the superblock that a metadata snapshot of the pool `live` keeps. Findings say why there is none.
pub fn snapshot_superblock(
    source: &dyn BlockSource,
    location: BlockNr,
    live: &ThinSuperblock,
    findings: &mut Findings,
) -> Option<ThinSuperblock> {
    let place = Place::block(Area::SnapshotSuperblock, location);
    let invalid = |detail: String| Finding::with(Code::HeldRootInvalid, place, detail);
    let block = match source.read(location) {
        Ok(block) => block,
        Err(error) => {
            findings.push(invalid(error.to_string()));
            return None;
        }
    };
    match ThinSuperblock::verify(&block, location) {
        Ok(found) if found.magic.get() == superblock::THIN_MAGIC => {
            judge_snapshot_fields(found, live, place, findings);
            Some(found.clone())
        }
        Ok(found) => {
            findings.push(invalid(format!("magic number {}", found.magic.get())));
            None
        }
        Err(fault) => {
            findings.push(invalid(fault.to_string()));
            None
        }
    }
}

/// Holds the copy of a superblock against the one that it was made from (docs/format.md 4.5).
fn judge_snapshot_fields(held: &ThinSuperblock, live: &ThinSuperblock, place: Place, findings: &mut Findings) {
    let features = |superblock: &ThinSuperblock| {
        [superblock.compat_flags, superblock.compat_ro_flags, superblock.incompat_flags].map(|flags| flags.get())
    };
    let rules = [
        ("its version is another one", held.version != live.version),
        ("its data block size is another one", held.data_block_size != live.data_block_size),
        ("its metadata block size is another one", held.metadata_block_size != live.metadata_block_size),
        ("its feature flags are others", features(held) != features(live)),
        ("it has flags that are not known", held.flags.get() & !FLAG_NEEDS_CHECK != 0),
        ("its time lies in the future", held.time.get() > live.time.get()),
        ("it holds a metadata snapshot of its own", held.held_root().is_some()),
    ];
    for (what, _) in rules.iter().filter(|(_, broken)| *broken) {
        findings.push(Finding::with(Code::SnapshotFields, place, *what));
    }
}

/// A pair of trees: those of the live superblock, or those of a metadata snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Roots {
    /// Root of the upper mapping tree.
    pub mapping: BlockNr,
    /// Root of the details tree.
    pub details: BlockNr,
    /// Whether they belong to a metadata snapshot.
    pub snapshot: bool,
}

impl Roots {
    /// The roots in a superblock.
    pub fn of(superblock: &ThinSuperblock, snapshot: bool) -> Roots {
        Roots {
            mapping: BlockNr(superblock.mapping_root.get()),
            details: BlockNr(superblock.details_root.get()),
            snapshot,
        }
    }

    /// What the mapping trees of its devices are called.
    pub fn mappings_area(&self) -> Area {
        if self.snapshot { Area::SnapshotMappings } else { Area::Mappings }
    }

    /// What its upper tree is called.
    pub fn top_level_area(&self) -> Area {
        if self.snapshot { Area::SnapshotTopLevel } else { Area::TopLevel }
    }

    /// What its details tree is called.
    pub fn details_area(&self) -> Area {
        if self.snapshot { Area::SnapshotDetails } else { Area::Details }
    }
}

/// The devices below one pair of roots, from both trees.
#[derive(Debug, Default)]
pub struct Devices {
    /// Details and root of every device that either tree knows.
    pub by_id: BTreeMap<ThinId, DeviceRoots>,
    /// Whether the details tree could be read whole.
    pub details_whole: bool,
    /// Whether the upper mapping tree could be read whole.
    pub top_level_whole: bool,
}

/// What the two trees say of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceRoots {
    /// From the details tree.
    pub details: Option<DeviceDetails>,
    /// From the upper mapping tree.
    pub root: Option<BlockNr>,
    /// The leaf of the upper mapping tree that leads to `root`.
    pub leaf: Option<BlockNr>,
}

/// Walks the details trees and upper mapping trees of all `pairs`; returns their devices in the same order.
pub fn devices(walker: &mut Walker<'_>, pairs: &[Roots]) -> Vec<Devices> {
    let root = |block, area| Root { block, area, device: None };
    let details = pairs.iter().map(|pair| root(pair.details, pair.details_area())).collect();
    let details = walker.walk(DETAILS_TREE, details, &NoVisitor);
    let top = pairs.iter().map(|pair| root(pair.mapping, pair.top_level_area())).collect();
    let top = walker.walk(TOP_LEVEL_TREE, top, &NoVisitor);
    pairs.iter().map(|pair| collect(walker, pair, &details, &top)).collect()
}

fn collect(walker: &mut Walker<'_>, pair: &Roots, details: &Forest, top: &Forest) -> Devices {
    let whole = |forest: &Forest, root| forest.info(root).is_some_and(|info| info.is_whole());
    let mut devices = Devices {
        by_id: BTreeMap::new(),
        details_whole: whole(details, pair.details),
        top_level_whole: whole(top, pair.mapping),
    };
    let read = details.entries(walker.source, pair.details, &mut |_, key, value| {
        if let Ok(found) = DeviceDetails::read_from_bytes(value) {
            devices.by_id.entry(ThinId(key)).or_default().details = Some(found);
        }
    });
    let read_top = top.entries(walker.source, pair.mapping, &mut |leaf, key, value| {
        if let Ok(bytes) = value.try_into() {
            let device = devices.by_id.entry(ThinId(key)).or_default();
            (device.root, device.leaf) = (Some(BlockNr(u64::from_le_bytes(bytes))), Some(leaf));
        }
    });
    for (area, result) in [(pair.details_area(), read), (pair.top_level_area(), read_top)] {
        if let Err((block, error)) = result {
            let place = Place::block(area, block);
            walker.findings.push(Finding::with(Code::BlockUnreadable, place, error.to_string()));
        }
    }
    devices
}

/// Walks the mapping trees of all devices of all `pairs`, each node once.
///
/// Upper leaves that a pair shares with one before it lead to the same roots; their references count once
/// (docs/format.md 3.7).
pub fn mappings<V: crate::pdata::walk::LeafVisitor>(
    walker: &mut Walker<'_>,
    pairs: &[(Roots, &Devices)],
    visitor: &V,
) -> Forest {
    let mut roots = Vec::new();
    let mut counted = BTreeSet::new();
    for (pair, devices) in pairs {
        let is_new = |device: &DeviceRoots| device.leaf.is_none_or(|leaf| !counted.contains(&leaf));
        for (id, device) in devices.by_id.iter().filter(|(_, device)| is_new(device)) {
            let device_root = |block| Root { block, area: pair.mappings_area(), device: Some(*id) };
            roots.extend(device.root.map(device_root));
        }
        counted.extend(devices.by_id.values().filter_map(|device| device.leaf));
    }
    walker.walk(MAPPING_TREE, roots, visitor)
}
