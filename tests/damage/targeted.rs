//! One damage after the other, each with the code that has to be found for it.

use super::image::{Image, set32, set64};
use super::model::{Model, Reached, Use};
use dmeta::base::Code;
use dmeta::block::BlockSource;
use dmeta::format::block::{BlockKind, le32, le64};
use dmeta::format::space_map::{bitmap_count, set_bitmap_count};
use std::collections::BTreeMap;

/// An image and what is where in it.
pub struct Scene {
    pub image: Image,
    reached: BTreeMap<u64, Reached>,
}

const MAPPING_ROOT: usize = 320;
const DETAILS_ROOT: usize = 328;
const DATA_MAP: usize = 64;
const METADATA_MAP: usize = 192;

impl Scene {
    pub fn new(image: Image) -> Scene {
        let reached = Model::read(&image).reached;
        Scene { image, reached }
    }

    /// The root of the mapping tree of a device in the first leaf of the upper tree.
    pub fn root_of_device(&self, id: u64) -> u64 {
        let leaf = self.leaf(Use::TopLevel);
        let entry = (0..self.nr_entries(leaf)).find(|entry| self.key(leaf, *entry) == id).unwrap();
        self.value(leaf, entry)
    }

    pub fn superblock(&mut self, change: impl FnOnce(&mut [u8; 4096])) {
        self.image.edit(0, BlockKind::ThinSuperblock, change);
    }

    fn field(&self, offset: usize) -> u64 {
        le64(&self.image.block(0), offset)
    }

    fn node(&mut self, block: u64, change: impl FnOnce(&mut [u8; 4096])) {
        self.image.edit(block, BlockKind::Node, change);
    }

    fn find(&self, what: &str, fits: impl Fn(&Reached) -> bool) -> u64 {
        let found = self.reached.iter().find(|(_, reached)| fits(reached));
        *found.unwrap_or_else(|| panic!("there is no {what}")).0
    }

    /// A leaf of a mapping tree of three levels.
    pub fn deep_leaf(&self) -> u64 {
        let is_deep = |reached: &Reached| {
            let parent = reached.parent.map(|(parent, _)| self.reached[&parent]);
            reached.used_for == Use::Mappings && reached.is_leaf && parent.is_some_and(|parent| parent.parent.is_some())
        };
        self.find("deep leaf", is_deep)
    }

    /// The node above a block.
    pub fn above(&self, block: u64) -> u64 {
        self.reached[&block].parent.unwrap().0
    }

    /// A leaf of a tree, below its root.
    pub fn leaf(&self, used_for: Use) -> u64 {
        self.find("leaf", |reached| reached.used_for == used_for && reached.is_leaf && reached.parent.is_some())
    }

    /// Changes the value of an entry of a node.
    fn set_value(&mut self, block: u64, entry: usize, offset: usize, value: u64) {
        self.node(block, |bytes| {
            let (max, size) = (le32(bytes, 20) as usize, le32(bytes, 24) as usize);
            let at = 32 + 8 * max + size * entry + offset;
            if size == 4 { set32(bytes, at, value as u32) } else { set64(bytes, at, value) }
        });
    }

    pub fn value(&self, block: u64, entry: usize) -> u64 {
        let bytes = self.image.block(block);
        le64(&bytes, 32 + 8 * le32(&bytes, 20) as usize + le32(&bytes, 24) as usize * entry)
    }

    fn key(&self, block: u64, entry: usize) -> u64 {
        le64(&self.image.block(block), 32 + 8 * entry)
    }

    fn set_key(&mut self, block: u64, entry: usize, key: u64) {
        self.node(block, |bytes| set64(bytes, 32 + 8 * entry, key));
    }

    fn nr_entries(&self, block: u64) -> usize {
        le32(&self.image.block(block), 16) as usize
    }

    fn set_nr_entries(&mut self, block: u64, entries: usize) {
        self.node(block, |bytes| set32(bytes, 16, entries as u32));
    }

    /// The bitmap with number 0 of a map.
    fn bitmap(&self, used_for: Use) -> u64 {
        match used_for {
            Use::DataBitmap => self.value(self.field(DATA_MAP + 16), 0),
            _ => le64(&self.image.block(self.field(METADATA_MAP + 16)), 16),
        }
    }

    /// Sets the count of an entry of bitmap 0 that has the count `old`; returns the entry.
    fn set_count(&mut self, used_for: Use, old: u8, new: u8) -> usize {
        let bitmap = self.bitmap(used_for);
        let bytes = self.image.block(bitmap);
        let entry = (1..16_320)
            .find(|entry| bitmap_count(&bytes, *entry) == old)
            .unwrap_or_else(|| panic!("no count is {old}"));
        self.image.edit(bitmap, BlockKind::Bitmap, |bytes| set_bitmap_count(bytes, entry, new));
        entry
    }

    fn index(&mut self, offset: usize, change: impl Fn(u32) -> u32) {
        let index = self.field(METADATA_MAP + 16);
        self.image.edit(index, BlockKind::Index, |bytes| {
            let old = le32(bytes, offset);
            set32(bytes, offset, change(old));
        });
    }

    fn held(&self) -> u64 {
        self.field(56)
    }
}

/// A damage: what it is called, the code that must be among those found, and how it is done.
pub type Case = (&'static str, Code, fn(&mut Scene));

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [SUPERBLOCK, BLOCKS, NODES, DEVICES, SPACE_MAPS].into_iter().flatten()
}

const SUPERBLOCK: &[Case] = &[
    ("superblock unreadable", Code::SuperblockUnreadable, |s| s.image.make_unreadable(0)),
    ("superblock zeroed", Code::SuperblockZeroed, |s| s.image.put(0, [0; 4096])),
    ("bit rot in the superblock", Code::SuperblockChecksum, |s| s.image.spoil(0, |bytes| bytes[48] ^= 1)),
    ("a cache superblock", Code::SuperblockOtherKind, |s| s.image.edit(0, BlockKind::CacheSuperblock, |_| ())),
    ("magic", Code::SuperblockMagic, |s| s.superblock(|bytes| set64(bytes, 32, 27_022_011))),
    ("superblock of another place", Code::SuperblockMoved, |s| {
        let held = s.image.block(s.held());
        s.image.put(0, held);
    }),
    ("version 0", Code::SuperblockVersion, |s| s.superblock(|bytes| set32(bytes, 40, 0))),
    ("version 3", Code::SuperblockVersion, |s| s.superblock(|bytes| set32(bytes, 40, 3))),
    ("read-only features", Code::SuperblockFeatures, |s| s.superblock(|bytes| set32(bytes, 356, 1))),
    ("incompatible features", Code::SuperblockFeatures, |s| s.superblock(|bytes| set32(bytes, 360, 1 << 31))),
    ("unknown flags", Code::SuperblockFlags, |s| s.superblock(|bytes| set32(bytes, 4, 2))),
    ("compatible features", Code::SuperblockFlags, |s| s.superblock(|bytes| set32(bytes, 352, 4))),
    ("block size 0", Code::SuperblockDataBlockSize, |s| s.superblock(|bytes| set32(bytes, 336, 0))),
    ("block size 129", Code::SuperblockDataBlockSize, |s| s.superblock(|bytes| set32(bytes, 336, 129))),
    ("block size above 1 GiB", Code::SuperblockDataBlockSize, |s| s.superblock(|bytes| set32(bytes, 336, 2_097_280))),
    ("metadata block size", Code::SuperblockMetadataBlockSize, |s| s.superblock(|bytes| set32(bytes, 340, 16))),
    ("formatted larger than it is", Code::SuperblockMetadataSize, |s| s.superblock(|bytes| set64(bytes, 344, 1025))),
    ("formatted with no blocks", Code::SuperblockMetadataSize, |s| s.superblock(|bytes| set64(bytes, 344, 0))),
    ("time of 25 bits", Code::SuperblockTime, |s| s.superblock(|bytes| set32(bytes, 44, 1 << 24))),
    ("needs_check", Code::NeedsCheck, |s| s.superblock(|bytes| set32(bytes, 4, 1))),
    ("one block short", Code::DeviceTooShort, |s| s.image.set_nr_blocks(s.image.nr_blocks() - 1)),
    ("map larger than the device", Code::DeviceTooShort, |s| s.superblock(|bytes| set64(bytes, METADATA_MAP, 1 << 40))),
    ("device grown", Code::DeviceLarger, |s| s.image.set_nr_blocks(s.image.nr_blocks() + 1)),
    ("snapshot nowhere", Code::HeldRootInvalid, |s| s.superblock(|bytes| set64(bytes, 56, u64::MAX))),
    ("snapshot in a node", Code::HeldRootInvalid, |s| {
        let details = s.field(DETAILS_ROOT);
        s.superblock(|bytes| set64(bytes, 56, details));
    }),
    ("bit rot in the snapshot's superblock", Code::HeldRootInvalid, |s| {
        s.image.spoil(s.held(), |bytes| bytes[320] ^= 1)
    }),
    ("snapshot's magic", Code::HeldRootInvalid, |s| {
        s.image.edit(s.held(), BlockKind::ThinSuperblock, |bytes| set64(bytes, 32, 0));
    }),
    ("snapshot of the future", Code::SnapshotFields, |s| {
        s.image.edit(s.held(), BlockKind::ThinSuperblock, |bytes| set32(bytes, 44, 10));
    }),
    ("snapshot of another pool", Code::SnapshotFields, |s| {
        s.image.edit(s.held(), BlockKind::ThinSuperblock, |bytes| set32(bytes, 336, 256));
    }),
];

const BLOCKS: &[Case] = &[
    ("leaf unreadable", Code::BlockUnreadable, |s| s.image.make_unreadable(s.deep_leaf())),
    ("bitmap unreadable", Code::BlockUnreadable, |s| s.image.make_unreadable(s.bitmap(Use::DataBitmap))),
    ("pointer past the end", Code::BlockOutOfRange, |s| s.set_value(s.above(s.deep_leaf()), 0, 0, s.image.nr_blocks())),
    ("mapping root past the end", Code::BlockOutOfRange, |s| {
        s.superblock(|bytes| set64(bytes, MAPPING_ROOT, u64::MAX))
    }),
    ("pointer to block 0", Code::BlockNone, |s| s.set_value(s.above(s.deep_leaf()), 1, 0, 0)),
    ("details root 0", Code::BlockNone, |s| s.superblock(|bytes| set64(bytes, DETAILS_ROOT, 0))),
    ("metadata index 0", Code::BlockNone, |s| s.superblock(|bytes| set64(bytes, METADATA_MAP + 16, 0))),
    ("bit rot in a leaf", Code::BlockChecksum, |s| s.image.spoil(s.deep_leaf(), |bytes| bytes[4095] ^= 1)),
    ("bit rot in a bitmap", Code::BlockChecksum, |s| {
        s.image.spoil(s.bitmap(Use::MetadataBitmap), |bytes| bytes[2000] ^= 1)
    }),
    ("leaf zeroed", Code::BlockZeroed, |s| s.image.put(s.deep_leaf(), [0; 4096])),
    ("leaf is a bitmap", Code::BlockOtherKind, |s| s.image.edit(s.deep_leaf(), BlockKind::Bitmap, |_| ())),
    ("bitmap is a node", Code::BlockOtherKind, |s| s.image.edit(s.bitmap(Use::DataBitmap), BlockKind::Node, |_| ())),
    ("leaf of another place", Code::BlockMoved, |s| {
        let (leaf, parent) = (s.deep_leaf(), s.above(s.deep_leaf()));
        let other = s.image.block(s.value(parent, 3));
        s.image.put(leaf, other);
    }),
    ("bitmap of another place", Code::BlockMoved, |s| {
        let other = s.image.block(s.value(s.field(DATA_MAP + 16), 1));
        s.image.put(s.bitmap(Use::DataBitmap), other);
    }),
    ("index of another place", Code::BlockMoved, |s| {
        let index = s.field(METADATA_MAP + 16);
        s.image.edit(index + 1, BlockKind::Index, |_| ());
        let other = s.image.block(index + 1);
        s.image.put(index, other);
    }),
    ("mapping tree leads to the details tree", Code::BlockSharedByKinds, |s| {
        s.set_value(s.above(s.deep_leaf()), 0, 0, s.field(DETAILS_ROOT));
    }),
    ("a device's tree is the upper tree", Code::BlockSharedByKinds, |s| {
        s.set_value(s.leaf(Use::TopLevel), 0, 0, s.field(MAPPING_ROOT));
    }),
    ("both trees of counts are one", Code::BlockSharedByKinds, |s| {
        let data = s.field(DATA_MAP + 24);
        s.superblock(|bytes| set64(bytes, METADATA_MAP + 24, data));
    }),
];

const NODES: &[Case] = &[
    ("neither leaf nor internal", Code::NodeFlags, |s| s.node(s.deep_leaf(), |bytes| set32(bytes, 4, 0))),
    ("leaf and internal", Code::NodeFlags, |s| s.node(s.above(s.deep_leaf()), |bytes| set32(bytes, 4, 3))),
    ("more flags", Code::NodeFlags, |s| s.node(s.deep_leaf(), |bytes| set32(bytes, 4, 2 | 1 << 31))),
    ("capacity of 4 billion", Code::NodeCapacity, |s| s.node(s.deep_leaf(), |bytes| set32(bytes, 20, u32::MAX))),
    ("value size of 4 billion", Code::NodeCapacity, |s| s.node(s.deep_leaf(), |bytes| set32(bytes, 24, u32::MAX))),
    ("entries above capacity", Code::NodeEntries, |s| s.set_nr_entries(s.deep_leaf(), 253)),
    ("4 billion entries", Code::NodeEntries, |s| s.set_nr_entries(s.above(s.deep_leaf()), u32::MAX as usize)),
    ("value size of a leaf", Code::NodeValueSize, |s| s.node(s.deep_leaf(), |bytes| set32(bytes, 24, 4))),
    ("value size of an internal node", Code::NodeValueSize, |s| {
        s.node(s.above(s.deep_leaf()), |bytes| set32(bytes, 24, 4))
    }),
    ("details root in a mapping tree", Code::NodeValueSize, |s| {
        let leaf = s.deep_leaf();
        s.superblock(|bytes| set64(bytes, DETAILS_ROOT, leaf));
    }),
    ("empty leaf below the root", Code::NodeEmpty, |s| s.set_nr_entries(s.deep_leaf(), 0)),
    ("empty internal node", Code::NodeEmpty, |s| s.set_nr_entries(s.above(s.deep_leaf()), 0)),
    ("empty internal root", Code::NodeEmpty, |s| s.set_nr_entries(s.field(MAPPING_ROOT), 0)),
    ("two equal keys", Code::NodeKeyOrder, |s| s.set_key(s.deep_leaf(), 1, s.key(s.deep_leaf(), 0))),
    ("descending keys in a leaf", Code::NodeKeyOrder, |s| s.set_key(s.deep_leaf(), 0, u64::MAX)),
    ("descending keys in an internal node", Code::NodeKeyOrder, |s| s.set_key(s.above(s.deep_leaf()), 1, u64::MAX)),
    ("leaf begins before its parent's key", Code::NodeKeyRange, |s| {
        let leaf = s.value(s.above(s.deep_leaf()), 5);
        s.set_key(leaf, 0, s.key(leaf, 0) - 1);
    }),
    ("leaf ends behind its parent's next key", Code::NodeKeyRange, |s| {
        s.set_key(s.deep_leaf(), 2, s.key(s.above(s.deep_leaf()), 1));
    }),
    ("leaf ends behind the next key two levels up", Code::NodeKeyRange, |s| {
        let parent = s.above(s.deep_leaf());
        let last = s.value(parent, s.nr_entries(parent) - 1);
        s.set_key(last, 2, s.key(s.above(parent), 1));
    }),
    ("parent's key raised", Code::NodeKeyRange, |s| {
        let parent = s.above(s.deep_leaf());
        s.set_key(parent, 5, s.key(parent, 5) + 1);
    }),
    ("first key of an internal node below its parent's", Code::NodeKeyRange, |s| {
        let root = s.above(s.above(s.deep_leaf()));
        s.set_key(s.value(root, 1), 0, s.key(root, 1) - 1);
    }),
    ("a leaf beside an internal node", Code::NodeDepth, |s| {
        let parent = s.above(s.deep_leaf());
        let root = s.above(parent);
        s.set_value(root, 0, 0, s.value(parent, 0));
    }),
    ("a node below itself", Code::NodeCycle, |s| {
        let parent = s.above(s.deep_leaf());
        s.set_value(parent, 7, 0, parent);
    }),
    ("a root below itself", Code::NodeCycle, |s| {
        let parent = s.above(s.deep_leaf());
        s.set_value(parent, 0, 0, s.above(parent));
    }),
    ("a root that is its own child", Code::NodeCycle, |s| {
        s.set_value(s.field(MAPPING_ROOT), 0, 0, s.field(MAPPING_ROOT))
    }),
    ("one leaf in two entries", Code::NodeTwice, |s| {
        let parent = s.above(s.deep_leaf());
        s.set_value(parent, 9, 0, s.value(parent, 8));
    }),
    ("smaller capacity", Code::NodeMaxEntries, |s| s.node(s.deep_leaf(), |bytes| set32(bytes, 20, 249))),
    ("larger capacity", Code::NodeMaxEntries, |s| s.node(s.field(MAPPING_ROOT), |bytes| set32(bytes, 20, 253))),
    ("details leaf underfull", Code::NodeUnderfull, |s| s.set_nr_entries(s.leaf(Use::Details), 41)),
    ("internal node underfull", Code::NodeUnderfull, |s| s.set_nr_entries(s.above(s.deep_leaf()), 83)),
];

const DEVICES: &[Case] = &[
    ("device missing in the details", Code::DeviceWithoutDetails, |s| {
        let leaf = s.leaf(Use::Details);
        s.set_nr_entries(leaf, s.nr_entries(leaf) - 1);
    }),
    ("device missing in the upper tree", Code::DeviceWithoutMappings, |s| {
        let leaf = s.leaf(Use::TopLevel);
        s.set_nr_entries(leaf, s.nr_entries(leaf) - 1);
    }),
    ("device id of 25 bits", Code::DeviceId, |s| {
        for root in [s.field(DETAILS_ROOT), s.field(MAPPING_ROOT)] {
            let last = s.value(root, s.nr_entries(root) - 1);
            s.set_key(last, s.nr_entries(last) - 1, 1 << 24);
        }
    }),
    ("one mapping more than there is", Code::DeviceMappedBlocks, |s| s.set_value(s.leaf(Use::Details), 0, 0, 721)),
    ("one mapping less than there is", Code::DeviceMappedBlocks, |s| s.set_value(s.leaf(Use::Details), 1, 0, 719)),
    ("mapping dropped from a leaf", Code::DeviceMappedBlocks, |s| s.set_nr_entries(s.deep_leaf(), 2)),
    ("device made in the future", Code::DeviceTime, |s| s.set_value(s.leaf(Use::Details), 0, 16, 10 | 10 << 32)),
    ("device snapshotted in the future", Code::DeviceTime, |s| s.set_value(s.leaf(Use::Details), 0, 16, 1 | 10 << 32)),
    ("device snapshotted before it was made", Code::DeviceTime, |s| {
        s.set_value(s.leaf(Use::Details), 0, 16, 3 | 2 << 32)
    }),
    ("transaction of the future", Code::DeviceTransaction, |s| s.set_value(s.leaf(Use::Details), 0, 8, 5)),
    ("mapping past the data device", Code::MappingBeyondData, |s| s.set_value(s.deep_leaf(), 1, 0, 40_000 << 24)),
    ("mapping to the last block of all", Code::MappingBeyondData, |s| s.set_value(s.deep_leaf(), 1, 0, u64::MAX)),
    ("mapping of the future", Code::MappingTime, |s| {
        let leaf = s.deep_leaf();
        s.set_value(leaf, 1, 0, s.value(leaf, 1) | 0xff_ffff);
    }),
    ("data device smaller than a mapping", Code::MappingBeyondData, |s| {
        s.superblock(|bytes| set64(bytes, DATA_MAP, 1000))
    }),
];

const SPACE_MAPS: &[Case] = &[
    ("metadata map of 256 bitmaps", Code::SpaceMapSize, |s| {
        s.superblock(|bytes| set64(bytes, METADATA_MAP, 255 * 16_320 + 1))
    }),
    ("data map of 2^64 blocks", Code::SpaceMapSize, |s| s.superblock(|bytes| set64(bytes, DATA_MAP, u64::MAX))),
    ("a bitmap too few", Code::SpaceMapIndexKeys, |s| s.superblock(|bytes| set64(bytes, DATA_MAP, 3 * 16_320 + 1))),
    ("a bitmap too many", Code::SpaceMapIndexKeys, |s| s.superblock(|bytes| set64(bytes, DATA_MAP, 2 * 16_320))),
    ("a gap in the index", Code::SpaceMapIndexKeys, |s| s.set_key(s.field(DATA_MAP + 16), 2, 3)),
    ("no bitmap", Code::SpaceMapIndexEntry, |s| s.index(16, |_| 0)),
    ("bitmap past the end", Code::SpaceMapIndexEntry, |s| s.set_value(s.field(DATA_MAP + 16), 1, 0, 1 << 50)),
    ("one bitmap twice", Code::SpaceMapIndexEntry, |s| {
        let index = s.field(DATA_MAP + 16);
        s.set_value(index, 1, 0, s.value(index, 0));
    }),
    ("bitmap in a node", Code::SpaceMapIndexEntry, |s| {
        s.set_value(s.field(DATA_MAP + 16), 1, 0, s.field(MAPPING_ROOT))
    }),
    ("more free than there are", Code::SpaceMapFree, |s| s.index(24, |free| free + 1)),
    ("less free than there are", Code::SpaceMapFree, |s| s.index(24, |free| free - 1)),
    ("free data blocks", Code::SpaceMapFree, |s| s.set_value(s.field(DATA_MAP + 16), 1, 8, 16_319)),
    ("first free too high", Code::SpaceMapFirstFree, |s| s.index(28, |_| 1024)),
    ("one block more allocated", Code::SpaceMapAllocated, |s| {
        let allocated = s.field(DATA_MAP + 8) + 1;
        s.superblock(|bytes| set64(bytes, DATA_MAP + 8, allocated));
    }),
    ("2^64 blocks allocated", Code::SpaceMapAllocated, |s| {
        s.superblock(|bytes| set64(bytes, METADATA_MAP + 8, u64::MAX))
    }),
    ("bitmap says 3, no count", Code::OverflowMissing, |s| {
        s.set_count(Use::DataBitmap, 2, 3);
    }),
    ("count, bitmap says 2", Code::OverflowSurplus, |s| {
        s.set_count(Use::DataBitmap, 3, 2);
    }),
    ("count of 2 in the tree", Code::OverflowSmall, |s| s.set_value(s.leaf(Use::DataCounts), 0, 0, 2)),
    ("count past the end", Code::OverflowBeyond, |s| {
        let root = s.field(DATA_MAP + 24);
        let last = s.value(root, s.nr_entries(root) - 1);
        s.set_key(last, s.nr_entries(last) - 1, 40_000);
    }),
    ("metadata block counted too low", Code::MetadataCountLow, |s| {
        s.set_count(Use::MetadataBitmap, 2, 1);
    }),
    ("metadata block in use counted free", Code::MetadataCountLow, |s| {
        s.set_count(Use::MetadataBitmap, 1, 0);
    }),
    ("metadata block past the map", Code::MetadataCountLow, |s| {
        s.superblock(|bytes| {
            set64(bytes, METADATA_MAP, 400);
            set64(bytes, 344, 400);
        })
    }),
    ("metadata leak", Code::MetadataLeak, |s| {
        s.set_count(Use::MetadataBitmap, 0, 1);
    }),
    ("metadata block counted too high", Code::MetadataLeak, |s| {
        s.set_count(Use::MetadataBitmap, 1, 2);
    }),
    ("data block counted too low", Code::DataCountLow, |s| {
        s.set_count(Use::DataBitmap, 2, 1);
    }),
    ("data count too low in the tree", Code::DataCountLow, |s| s.set_value(s.leaf(Use::DataCounts), 0, 0, 3)),
    ("data leak", Code::DataLeak, |s| {
        s.set_count(Use::DataBitmap, 0, 1);
    }),
    ("data count too high in the tree", Code::DataLeak, |s| {
        s.set_value(s.leaf(Use::DataCounts), 0, 0, u64::from(u32::MAX))
    }),
    ("snapshot forgotten", Code::MetadataLeak, |s| s.superblock(|bytes| set64(bytes, 56, 0))),
];
