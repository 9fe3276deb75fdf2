//! The one table of problems: code, severity, wording and cure. Text, JSON and manual pages are made from it.
//!
//! Codes are stable: scripts match on them. A new problem gets a new row; a row is never reused.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing, harmless: does not change the exit status.
    Note,
    /// Nothing is lost, but the pool should be tidied: leaked blocks, stale hints. Fails a check unless
    /// non-fatal errors are to be ignored.
    NonFatal,
    /// The metadata contradicts itself or cannot be read. Always fails a check.
    Fatal,
}

impl Severity {
    /// The word used in text and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::NonFatal => "non-fatal",
            Severity::Fatal => "fatal",
        }
    }
}

/// What helps against a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cure {
    /// Nothing needs to be done.
    None,
    /// `thin_check --clear-needs-check-flag`.
    ClearFlag,
    /// `thin_check --auto-repair`.
    AutoRepair,
    /// `thin_check --repair-space-maps`: both space maps are built again from the trees.
    RepairSpaceMaps,
    /// `thin_repair`: what can be read is written to another device.
    Repair,
    /// The device or file itself has to be put right first.
    Device,
    /// The metadata snapshot has to be released.
    ReleaseSnapshot,
}

impl Cure {
    /// The name used in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Cure::None => "none",
            Cure::ClearFlag => "clear-needs-check-flag",
            Cure::AutoRepair => "auto-repair",
            Cure::RepairSpaceMaps => "repair-space-maps",
            Cure::Repair => "thin-repair",
            Cure::Device => "device",
            Cure::ReleaseSnapshot => "release-metadata-snapshot",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Problem {
    /// Stable name, kebab-case.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in a few words, without numbers.
    pub wording: &'static str,
    /// What helps.
    pub cure: Cure,
}

macro_rules! problems {
    ($($variant:ident $name:literal $severity:ident $cure:ident $wording:literal;)*) => {
        /// Identifies a kind of problem; see [`Code::problem`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $(#[doc = $wording] $variant,)* }

        impl Code {
            /// Every code, in the table's order.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The row of the table.
            pub fn problem(self) -> &'static Problem {
                match self {
                    $(Code::$variant => &Problem {
                        name: $name, severity: Severity::$severity, wording: $wording, cure: Cure::$cure,
                    },)*
                }
            }
        }
    };
}

problems! {
    // The superblock.
    SuperblockUnreadable "superblock-unreadable" Fatal Device "the superblock cannot be read";
    SuperblockZeroed "superblock-zeroed" Fatal Repair "the superblock is all zeros";
    SuperblockChecksum "superblock-checksum" Fatal Repair "bad checksum in superblock";
    SuperblockOtherKind "superblock-other-kind" Fatal None "the first block is not that of a thin pool";
    SuperblockMagic "superblock-magic" Fatal Repair "the superblock has a wrong magic number";
    SuperblockMoved "superblock-moved" Fatal Repair "the superblock belongs to another block";
    SuperblockVersion "superblock-version" Fatal None "unsupported metadata version";
    SuperblockFeatures "superblock-features" Fatal None "feature flags that are not known are set";
    SuperblockFlags "superblock-flags" NonFatal Repair "superblock flags that are not known are set";
    SuperblockDataBlockSize "superblock-data-block-size" Fatal Repair "the data block size is not one that a pool can have";
    SuperblockMetadataBlockSize "superblock-metadata-block-size" Fatal Repair "the metadata block size is not 8 sectors";
    SuperblockMetadataSize "superblock-metadata-size" NonFatal Repair "the metadata had another size when it was formatted than it can have had";
    SuperblockTime "superblock-time" Fatal Repair "the pool's time does not fit the 24 bits that a mapping has for it";
    NeedsCheck "needs-check" Note ClearFlag "the kernel asks for a check (needs_check is set)";
    DeviceTooShort "device-too-short" Fatal Device "the device is shorter than its space map says";
    DeviceLarger "device-larger" Note None "the device is larger than its space map says";
    HeldRootInvalid "metadata-snapshot-superblock" Fatal ReleaseSnapshot "the metadata snapshot's superblock is not valid";
    SnapshotFields "metadata-snapshot-fields" NonFatal ReleaseSnapshot "the metadata snapshot's superblock contradicts the pool's";

    // Any block.
    BlockUnreadable "block-unreadable" Fatal Repair "the block cannot be read";
    BlockOutOfRange "block-out-of-range" Fatal Repair "a pointer leads past the end of the metadata";
    BlockNone "block-none" Fatal Repair "a pointer leads to block 0, which is the superblock";
    BlockChecksum "block-checksum" Fatal Repair "bad checksum";
    BlockZeroed "block-zeroed" Fatal Repair "the block is all zeros";
    BlockOtherKind "block-other-kind" Fatal Repair "the block is of another kind";
    BlockMoved "block-moved" Fatal Repair "the block says that it belongs elsewhere";
    BlockSharedByKinds "block-shared-by-kinds" Fatal Repair "two structures of different kinds lead to the same block";

    // Nodes of trees.
    NodeFlags "node-flags" Fatal Repair "the node is neither internal nor a leaf";
    NodeCapacity "node-capacity" Fatal Repair "the node's capacity does not fit in a block";
    NodeEntries "node-entries" Fatal Repair "the node says it has more entries than it can hold";
    NodeValueSize "node-value-size" Fatal Repair "the node's value size is not that of its tree";
    NodeEmpty "node-empty" Fatal Repair "a node below the root has no entries";
    NodeKeyOrder "node-key-order" Fatal Repair "the node's keys are not in order";
    NodeKeyRange "node-key-range" Fatal Repair "keys outside the range that the parent gives";
    NodeDepth "node-depth" Fatal Repair "leaves at different depths";
    NodeCycle "node-cycle" Fatal Repair "the node is below itself";
    NodeTwice "node-twice" Fatal Repair "the node is reached twice in one tree";
    NodeMaxEntries "node-max-entries" Fatal Repair "the node's capacity is not the one that its value size gives";
    NodeUnderfull "node-underfull" NonFatal Repair "the node holds less than a third of what it could";

    // Devices.
    DeviceWithoutDetails "device-without-details" Fatal Repair "the device has mappings but no details";
    DeviceWithoutMappings "device-without-mappings" Fatal Repair "the device has details but no mapping tree";
    DeviceId "device-id" NonFatal Repair "the device id is above 2^24 - 1";
    DeviceMappedBlocks "device-mapped-blocks" Fatal Repair "the device's count of mapped blocks is wrong";
    DeviceTime "device-time" NonFatal Repair "the device's times lie in the future or contradict each other";
    DeviceTransaction "device-transaction" Note None "the device's transaction id is above the pool's";
    MappingBeyondData "mapping-beyond-data" Fatal Repair "mappings lead past the end of the data device";
    MappingTime "mapping-time" NonFatal Repair "mappings are younger than the pool";

    // Space maps.
    SpaceMapSize "space-map-size" Fatal Repair "the space map is larger than its bitmaps could be";
    SpaceMapIndexKeys "space-map-index-keys" Fatal RepairSpaceMaps "the index of the space map has gaps or surplus entries";
    SpaceMapIndexEntry "space-map-index-entry" Fatal RepairSpaceMaps "an index entry leads to no bitmap";
    SpaceMapFree "space-map-free" NonFatal AutoRepair "the number of free blocks in an index entry is wrong";
    SpaceMapFirstFree "space-map-first-free" NonFatal AutoRepair "there are free blocks before the first that the index gives";
    SpaceMapAllocated "space-map-allocated" NonFatal AutoRepair "the number of allocated blocks is wrong";
    OverflowMissing "overflow-missing" Fatal RepairSpaceMaps "a bitmap refers to the tree of counts, which has no entry for the block";
    OverflowSurplus "overflow-surplus" NonFatal RepairSpaceMaps "the tree of counts has an entry that no bitmap refers to";
    OverflowSmall "overflow-small" NonFatal RepairSpaceMaps "the tree of counts holds a count below 3";
    OverflowBeyond "overflow-beyond" NonFatal RepairSpaceMaps "the tree of counts has an entry past the end of the space map";
    MetadataCountLow "metadata-count-low" Fatal RepairSpaceMaps "bad reference counts: metadata blocks are used more often than counted";
    MetadataLeak "metadata-leak" NonFatal AutoRepair "metadata blocks have leaked";
    DataCountLow "data-count-low" Fatal RepairSpaceMaps "bad reference counts: data blocks are used more often than counted";
    DataLeak "data-leak" NonFatal AutoRepair "data blocks have leaked";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_kebab_case() {
        let mut names: Vec<_> = Code::ALL.iter().map(|c| c.problem().name).collect();
        for name in &names {
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
        }
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(before, names.len());
    }
}
