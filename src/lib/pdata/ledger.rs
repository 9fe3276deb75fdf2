//! Who uses which metadata block, and how many references lead to it (docs/format.md 3.7).

use super::counts::BitmapCounts;
use crate::base::BlockNr;
use crate::format::space_map::ENTRIES_PER_BITMAP;

/// The kind of structure that a block belongs to. A block of one kind is never part of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockUse {
    /// Nothing leads to it.
    #[default]
    None,
    /// A superblock: block 0 or the metadata snapshot's.
    Superblock,
    /// A node of the upper mapping tree.
    TopLevel,
    /// A node of the details tree.
    Details,
    /// A node of a device's mapping tree.
    Mappings,
    /// A node of the data space map's index.
    DataIndex,
    /// A node of the data space map's tree of counts.
    DataCounts,
    /// A node of the metadata space map's tree of counts.
    MetadataCounts,
    /// The index block of the metadata space map.
    MetadataIndex,
    /// A bitmap of the data space map.
    DataBitmap,
    /// A bitmap of the metadata space map.
    MetadataBitmap,
}

impl BlockUse {
    /// Whether it is part of a space map.
    pub fn is_space_map(self) -> bool {
        match self {
            BlockUse::None | BlockUse::Superblock | BlockUse::TopLevel | BlockUse::Details | BlockUse::Mappings => {
                false
            }
            BlockUse::DataIndex
            | BlockUse::DataCounts
            | BlockUse::MetadataCounts
            | BlockUse::MetadataIndex
            | BlockUse::DataBitmap
            | BlockUse::MetadataBitmap => true,
        }
    }

    /// The name in messages.
    pub fn word(self) -> &'static str {
        match self {
            BlockUse::None => "nothing",
            BlockUse::Superblock => "a superblock",
            BlockUse::TopLevel => "the top-level mapping tree",
            BlockUse::Details => "the details tree",
            BlockUse::Mappings => "a mapping tree",
            BlockUse::DataIndex => "the index of the data space map",
            BlockUse::DataCounts => "the tree of data counts",
            BlockUse::MetadataCounts => "the tree of metadata counts",
            BlockUse::MetadataIndex => "the index of the metadata space map",
            BlockUse::DataBitmap => "the bitmaps of the data space map",
            BlockUse::MetadataBitmap => "the bitmaps of the metadata space map",
        }
    }
}

/// What [`Ledger::refer`] found at the end of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referred {
    /// A block that nothing led to before.
    First,
    /// A block that the same kind of structure has reached before.
    Again,
    /// A block that belongs to another kind of structure.
    Conflict(BlockUse),
    /// Past the end.
    OutOfRange,
    /// Block 0, which nothing may point to.
    Zero,
    /// A block that no reference was left to: it is counted lower than it is used.
    Uncounted,
}

/// The references counted so far. Takes 5 bytes per block of the metadata.
#[derive(Debug)]
pub struct Ledger {
    uses: Vec<BlockUse>,
    counts: Vec<u32>,
    /// Whether references are taken away instead.
    taking: bool,
}

impl Ledger {
    /// A ledger for `nr_blocks` blocks (at most 2^32 - 1), in which block 0 is used once, by definition.
    pub fn new(nr_blocks: u64) -> Self {
        let length = nr_blocks.min(u64::from(u32::MAX)) as usize;
        let mut ledger = Ledger { uses: vec![BlockUse::None; length], counts: vec![0; length], taking: false };
        if length > 0 {
            ledger.uses[0] = BlockUse::Superblock;
            ledger.counts[0] = 1;
        }
        ledger
    }

    /// A ledger that begins with these references, and in which [`Ledger::refer`] takes one away.
    ///
    /// [`Referred::First`] then means that none is left: a walk goes down only where nothing else leads to.
    pub fn taking_away(counts: Vec<u32>) -> Self {
        Ledger { uses: vec![BlockUse::None; counts.len()], counts, taking: true }
    }

    /// The references to each block.
    pub fn into_counts(self) -> Vec<u32> {
        self.counts
    }

    /// Blocks in the ledger.
    pub fn nr_blocks(&self) -> u64 {
        self.uses.len() as u64
    }

    /// Counts a reference to `block` by a structure of the given kind.
    ///
    /// The reference counts even where kinds conflict, unless it is a space map that leads into a tree: trees are counted
    /// first, and a space map that is built anew leads there no more. It does not count where there is no such block.
    #[inline]
    pub fn refer(&mut self, block: BlockNr, by: BlockUse) -> Referred {
        if block.0 == 0 {
            return Referred::Zero;
        }
        let Some(index) = usize::try_from(block.0).ok().filter(|index| *index < self.uses.len()) else {
            return Referred::OutOfRange;
        };
        if self.taking {
            return self.take(index, by);
        }
        let held = &mut self.uses[index];
        let referred = match *held {
            BlockUse::None => {
                *held = by;
                Referred::First
            }
            same if same == by => Referred::Again,
            other if by.is_space_map() && !other.is_space_map() => return Referred::Conflict(other),
            other => Referred::Conflict(other),
        };
        self.counts[index] = self.counts[index].saturating_add(1);
        referred
    }

    fn take(&mut self, index: usize, by: BlockUse) -> Referred {
        let held = std::mem::replace(&mut self.uses[index], by);
        match self.counts[index].checked_sub(1) {
            _ if held != BlockUse::None && held != by => Referred::Conflict(held),
            None => Referred::Uncounted,
            Some(left) => {
                self.counts[index] = left;
                if left == 0 { Referred::First } else { Referred::Again }
            }
        }
    }

    /// References to `block`; 0 past the end.
    pub fn count(&self, block: BlockNr) -> u32 {
        usize::try_from(block.0).ok().and_then(|index| self.counts.get(index)).copied().unwrap_or(0)
    }

    /// What `block` is used for.
    pub fn block_use(&self, block: BlockNr) -> BlockUse {
        usize::try_from(block.0).ok().and_then(|index| self.uses.get(index)).copied().unwrap_or_default()
    }

    /// The references to the blocks that bitmap `index` describes.
    pub fn bitmap(&self, index: u64) -> BitmapCounts<'_> {
        let begin = usize::try_from(index.saturating_mul(ENTRIES_PER_BITMAP)).unwrap_or(usize::MAX);
        let end = begin.saturating_add(ENTRIES_PER_BITMAP as usize).min(self.counts.len());
        match self.counts.get(begin..end) {
            Some(counts) => BitmapCounts::Wide(counts),
            None => BitmapCounts::Zero,
        }
    }
}
