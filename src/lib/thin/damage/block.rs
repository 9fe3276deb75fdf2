//! What can happen to a block.

use super::{BlockDamage, Damage, DamageError};
use crate::base::{BlockNr, Random};
use crate::block::BlockSource;
use crate::format::block::{self, BLOCK_SIZE, Block, BlockKind, le32, le64};
use crate::format::node::{FLAG_INTERNAL, HEADER_SIZE};
use crate::format::space_map::{ENTRIES_PER_BITMAP, bitmap_count, set_bitmap_count};
use crate::pdata::ledger::BlockUse;

/// What happens to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One bit flips.
    BitRot,
    /// Only the first sectors are as they should be: of the others there is what another block of its kind has, or
    /// zeros.
    Torn,
    /// All is zero.
    Zeroed,
    /// All is random.
    Noise,
    /// It trades places with another block of its kind.
    Swapped,
    /// It holds what another block of its kind holds.
    Stale,
    /// A pointer in a node leads back to the node.
    Cycle,
    /// A node says that it has far more entries than it can hold.
    HugeCount,
    /// A pointer in a node leads past the end.
    WildPointer,
    /// Two keys of a node trade places.
    KeyOrder,
    /// A bitmap gives another count for a block.
    WrongCount,
}

impl Kind {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Kind); 11] = [
        ("bit-rot", Kind::BitRot),
        ("torn", Kind::Torn),
        ("zeroed", Kind::Zeroed),
        ("noise", Kind::Noise),
        ("swapped", Kind::Swapped),
        ("stale", Kind::Stale),
        ("cycle", Kind::Cycle),
        ("huge-count", Kind::HugeCount),
        ("wild-pointer", Kind::WildPointer),
        ("key-order", Kind::KeyOrder),
        ("wrong-count", Kind::WrongCount),
    ];
}

/// Which blocks something may happen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any block in use but block 0.
    Any,
    /// This block, whatever it is.
    Block(BlockNr),
    /// Block 0.
    Superblock,
    /// The metadata snapshot's superblock.
    SnapshotSuperblock,
    /// Nodes of the upper mapping tree.
    TopLevel,
    /// Nodes of the details tree.
    Details,
    /// Leaves of mapping trees.
    MappingLeaf,
    /// Nodes of mapping trees that are no leaves.
    MappingNode,
    /// Bitmaps of the data space map.
    DataBitmap,
    /// Nodes of the data space map's index.
    DataIndex,
    /// Nodes of the data space map's tree of counts.
    DataCounts,
    /// Bitmaps of the metadata space map.
    MetadataBitmap,
    /// The index block of the metadata space map.
    MetadataIndex,
    /// Nodes of the metadata space map's tree of counts.
    MetadataCounts,
}

impl Target {
    /// All that have names.
    pub const ALL: [(&'static str, Target); 13] = [
        ("any", Target::Any),
        ("superblock", Target::Superblock),
        ("snapshot-superblock", Target::SnapshotSuperblock),
        ("top-level", Target::TopLevel),
        ("details", Target::Details),
        ("mapping-leaf", Target::MappingLeaf),
        ("mapping-node", Target::MappingNode),
        ("data-bitmap", Target::DataBitmap),
        ("data-index", Target::DataIndex),
        ("data-counts", Target::DataCounts),
        ("metadata-bitmap", Target::MetadataBitmap),
        ("metadata-index", Target::MetadataIndex),
        ("metadata-counts", Target::MetadataCounts),
    ];

    fn takes(self, location: BlockNr, block_use: BlockUse, is_internal: bool) -> bool {
        match self {
            Target::Any => location.0 != 0 && block_use != BlockUse::None,
            Target::Block(wanted) => location == wanted,
            Target::Superblock => location.0 == 0,
            Target::SnapshotSuperblock => location.0 != 0 && block_use == BlockUse::Superblock,
            Target::TopLevel => block_use == BlockUse::TopLevel,
            Target::Details => block_use == BlockUse::Details,
            Target::MappingLeaf => block_use == BlockUse::Mappings && !is_internal,
            Target::MappingNode => block_use == BlockUse::Mappings && is_internal,
            Target::DataBitmap => block_use == BlockUse::DataBitmap,
            Target::DataIndex => block_use == BlockUse::DataIndex,
            Target::DataCounts => block_use == BlockUse::DataCounts,
            Target::MetadataBitmap => block_use == BlockUse::MetadataBitmap,
            Target::MetadataIndex => block_use == BlockUse::MetadataIndex,
            Target::MetadataCounts => block_use == BlockUse::MetadataCounts,
        }
    }
}

/// Blocks that something may happen to, and how their checksums are made.
pub(super) fn candidates(
    source: &dyn BlockSource,
    wanted: &BlockDamage,
) -> Result<Vec<(BlockNr, Option<BlockKind>)>, DamageError> {
    if let Target::Block(location) = wanted.target {
        let block = source.read(location)?;
        return Ok(vec![(location, block::identify(&block))]);
    }
    if wanted.target == Target::Superblock {
        return Ok(vec![(BlockNr(0), Some(BlockKind::ThinSuperblock))]);
    }
    let ledger = super::ledger(source)?;
    let mut found = Vec::new();
    for location in (0..ledger.nr_blocks()).map(BlockNr) {
        let block_use = ledger.block_use(location);
        if block_use == BlockUse::None {
            continue;
        }
        let block = source.read(location)?;
        let kind = block::identify(&block);
        if wanted.target.takes(location, block_use, is_internal(&block)) && may_happen(wanted.kind, &block, kind) {
            found.push((location, kind));
        }
    }
    Ok(found)
}

fn is_internal(block: &Block) -> bool {
    le32(block, 4) == FLAG_INTERNAL
}

fn may_happen(what: Kind, block: &Block, kind: Option<BlockKind>) -> bool {
    let is_node = kind == Some(BlockKind::Node);
    match what {
        Kind::Cycle | Kind::WildPointer => is_node && is_internal(block) && le32(block, 16) > 0,
        Kind::KeyOrder => is_node && le32(block, 16) > 1,
        Kind::HugeCount => is_node,
        Kind::WrongCount => kind == Some(BlockKind::Bitmap),
        Kind::BitRot | Kind::Torn | Kind::Zeroed | Kind::Noise | Kind::Swapped | Kind::Stale => true,
    }
}

/// Damages one block, or two that trade places. None where it can't happen to this one.
pub(super) fn damage(
    source: &dyn BlockSource,
    wanted: &BlockDamage,
    (location, kind): (BlockNr, Option<BlockKind>),
    others: &[(BlockNr, Option<BlockKind>)],
    random: &mut Random,
) -> Result<Vec<Damage>, DamageError> {
    let mut block = source.read(location)?;
    let before = block.clone();
    let alike: Vec<BlockNr> = others.iter().filter(|(_, other)| *other == kind).map(|(other, _)| *other).collect();
    let other = alike.get(random.below(alike.len() as u64) as usize).copied();
    let seal = |block: &mut Block, location: BlockNr| {
        if let (true, Some(kind)) = (wanted.reseal, kind) {
            block::seal(block, kind, location);
        }
    };
    let what = match (wanted.kind, other) {
        (Kind::Swapped, None) | (Kind::Stale, None) => return Ok(Vec::new()),
        (Kind::Swapped, Some(other)) => {
            let mut second = source.read(other)?;
            seal(&mut second, location);
            seal(&mut block, other);
            let what = format!("blocks {location} and {other} trade places");
            let first = Damage { location, content: second, what: what.clone() };
            return Ok(vec![first, Damage { location: other, content: block, what }]);
        }
        (Kind::Stale, Some(other)) => {
            block = source.read(other)?;
            format!("holds what block {other} holds")
        }
        (Kind::Torn, other) => {
            let sectors = random.within(1, 7) as usize;
            let rest = other.map(|other| source.read(other)).transpose()?.unwrap_or(Box::new([0; BLOCK_SIZE]));
            block[sectors * 512..].copy_from_slice(&rest[sectors * 512..]);
            format!("torn after {sectors} sectors")
        }
        (kind, _) => change(kind, &mut block, location, source.nr_blocks(), random),
    };
    seal(&mut block, location);
    if block == before {
        return Ok(Vec::new());
    }
    Ok(vec![Damage { location, content: block, what }])
}

/// Changes a block by itself; says how.
fn change(kind: Kind, block: &mut Block, location: BlockNr, nr_blocks: u64, random: &mut Random) -> String {
    match kind {
        Kind::Zeroed => {
            block.fill(0);
            "zeroed".into()
        }
        Kind::Noise => {
            block.iter_mut().for_each(|byte| *byte = random.number() as u8);
            "noise".into()
        }
        Kind::Cycle => {
            let entry = set_pointer(block, location.0, random);
            format!("entry {entry} leads back to the node")
        }
        Kind::WildPointer => {
            let target = nr_blocks + random.below(1 << 20);
            let entry = set_pointer(block, target, random);
            format!("entry {entry} leads to block {target}")
        }
        Kind::HugeCount => {
            let at = if random.percent(50) { 16 } else { 20 };
            let count = u32::MAX - random.below(1000) as u32;
            block[at..at + 4].copy_from_slice(&count.to_le_bytes());
            format!("{} is {count}", if at == 16 { "nr_entries" } else { "max_entries" })
        }
        Kind::KeyOrder => {
            let entries = u64::from(le32(block, 16)).clamp(2, 336);
            let first = HEADER_SIZE + 8 * random.below(entries - 1) as usize;
            let (left, right) = (le64(block, first), le64(block, first + 8));
            block[first..first + 8].copy_from_slice(&right.to_le_bytes());
            block[first + 8..first + 16].copy_from_slice(&left.to_le_bytes());
            format!("keys {left} and {right} trade places")
        }
        Kind::WrongCount => {
            let entry = random.below(ENTRIES_PER_BITMAP) as usize;
            let old = bitmap_count(block, entry);
            let new = (u64::from(old) + random.within(1, 3)) as u8 % 4;
            set_bitmap_count(block, entry, new);
            format!("entry {entry} gives count {new} instead of {old}")
        }
        Kind::BitRot | Kind::Torn | Kind::Swapped | Kind::Stale => {
            let bit = random.below(BLOCK_SIZE as u64 * 8) as usize;
            block[bit / 8] ^= 1 << (bit % 8);
            format!("bit {} of byte {} flipped", bit % 8, bit / 8)
        }
    }
}

/// Lets an entry of an internal node lead to `target`; returns which.
fn set_pointer(block: &mut Block, target: u64, random: &mut Random) -> u64 {
    let max_entries = u64::from(le32(block, 20)).min(252);
    let entry = random.below(u64::from(le32(block, 16)).clamp(1, 252));
    let at = HEADER_SIZE + 8 * (max_entries + entry) as usize;
    block[at..at + 8].copy_from_slice(&target.to_le_bytes());
    entry
}
