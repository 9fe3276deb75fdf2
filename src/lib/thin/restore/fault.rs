//! What a pool's items can have against them.

use crate::base::{DataBlock, ThinBlock, ThinId};
use crate::pdata::commit::CommitError;
use crate::thin::items::RereadError;

/// Why an item was refused, or could not be built in.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFault {
    /// Not a data block size that a pool can have.
    #[error(
        "invalid data block size {0}: it is a multiple of 128 sectors (64 KiB), up to 2097152 (1 GiB); --data-block-size gives another"
    )]
    DataBlockSize(u32),
    /// Not a version that a kernel takes.
    #[error("metadata version {0} is not supported: there are versions 1 and 2")]
    Version(u32),
    /// The output has not even room for the data device's space map.
    #[error(
        "a data device of {nr_data_blocks} blocks needs more than {bitmaps} metadata blocks, the output has {present}; \
         --nr-data-blocks gives another number"
    )]
    DataDevice {
        /// Blocks of the data device.
        nr_data_blocks: u64,
        /// Metadata blocks that its bitmaps alone need.
        bitmaps: u64,
        /// Blocks of the output.
        present: u64,
    },
    /// The pool's time does not fit in a mapping.
    #[error("the pool's time {0} does not fit in 24 bits")]
    PoolTime(u32),
    /// The device's id is one that the kernel does not take.
    #[error("device id {0} does not fit in 24 bits")]
    DeviceId(ThinId),
    /// The id has been used before.
    #[error("device {0} is there twice")]
    DuplicateDevice(ThinId),
    /// The device claims to come from the future.
    #[error("device {device} has time {time}, which is after the pool's time {pool}")]
    DeviceTime {
        /// The device.
        device: ThinId,
        /// Its creation or snapshot time.
        time: u32,
        /// The pool's time.
        pool: u32,
    },
    /// The device was snapshotted before it was made.
    #[error("device {device} has snap_time {snapshotted}, which is before its creation_time {created}")]
    DeviceTimes {
        /// The device.
        device: ThinId,
        /// Its creation time.
        created: u32,
        /// Its snapshot time.
        snapshotted: u32,
    },
    /// Mappings that don't ascend, or overlap.
    #[error("virtual block {begin} comes after block {last}{}: mappings must ascend and not overlap", in_device(.device))]
    Order {
        /// The device, where it is not a definition.
        device: Option<ThinId>,
        /// The first block of the mappings.
        begin: ThinBlock,
        /// The last block of those before.
        last: ThinBlock,
    },
    /// Virtual blocks past the largest number.
    #[error("the mapping of {length} blocks from virtual block {begin} on{} is too long", in_device(.device))]
    Length {
        /// The device, where it is not a definition.
        device: Option<ThinId>,
        /// The first block of the mappings.
        begin: ThinBlock,
        /// How many.
        length: u64,
    },
    /// Mappings beyond the data device.
    #[error(
        "virtual block {begin}{} is mapped to data block {data}, but the data device has {nr_data_blocks} blocks{}",
        in_device(.device), if *.nr_data_blocks == 0 { NO_DATA_BLOCKS } else { "" }
    )]
    BeyondData {
        /// The device, where it is not a definition.
        device: Option<ThinId>,
        /// The virtual block of the first mapping that is beyond.
        begin: ThinBlock,
        /// Its data block.
        data: DataBlock,
        /// Blocks of the data device.
        nr_data_blocks: u64,
    },
    /// Mappings from the future.
    #[error("virtual block {begin}{} has time {time}, which is after the pool's time {pool}", in_device(.device))]
    MappingTime {
        /// The device, where it is not a definition.
        device: Option<ThinId>,
        /// The first block of the mappings.
        begin: ThinBlock,
        /// Their time.
        time: u32,
        /// The pool's time.
        pool: u32,
    },
    /// Mappings of a definition could not be read again to copy them.
    #[error(transparent)]
    Reread(#[from] RereadError),
    /// There is no room, or the output failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

const NO_DATA_BLOCKS: &str = ", as the dump of a metadata snapshot says; --nr-data-blocks gives its size";

fn in_device(device: &Option<ThinId>) -> String {
    device.map_or_else(String::new, |device| format!(" of device {device}"))
}
