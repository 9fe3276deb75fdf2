//! The pool's own fields: given, from the superblock, or from what else there is.

use super::account::{Field, Origin, PoolFields};
use super::limits::Limits;
use super::{SalvageError, SalvageOptions};
use crate::block::BlockSource;
use crate::format::space_map::ENTRIES_PER_BITMAP;
use crate::format::superblock::{TIME_LIMIT, ThinSuperblock, VERSION, data_block_size_is_valid, version_is_known};
use crate::thin::load::{Devices, usable_blocks};
use crate::thin::model::Pool;

/// The highest number of data blocks that mappings can lead to (docs/format.md 4.2).
const DATA_BLOCK_LIMIT: u64 = 1 << 40;

/// What mappings must keep to.
///
/// # Errors
/// Where the number of data blocks is one that the pool cannot have had: every data block has a count in the metadata.
pub(super) fn limits(
    source: &dyn BlockSource,
    superblock: Option<&ThinSuperblock>,
    options: &SalvageOptions,
) -> Result<Limits, SalvageError> {
    let own = superblock.map(|superblock| superblock.data_space_map.nr_blocks.get());
    let nr_data_blocks = match (options.nr_data_blocks, own) {
        (Some(given), _) if given > DATA_BLOCK_LIMIT => return Err(SalvageError::TooManyDataBlocks(given)),
        (Some(given), _) => given,
        (None, Some(own)) if own.div_ceil(ENTRIES_PER_BITMAP) > usable_blocks(source) => {
            return Err(SalvageError::NrDataBlocks(own));
        }
        (None, own) => own.unwrap_or(DATA_BLOCK_LIMIT),
    };
    let time = superblock.map(|superblock| superblock.time.get()).filter(|time| *time < TIME_LIMIT);
    Ok(Limits { nr_data_blocks, time: time.unwrap_or(TIME_LIMIT - 1) })
}

/// What devices and mappings tell of the pool.
#[derive(Debug)]
pub(super) struct Found {
    /// The latest time of a device, as far as a pool can have it.
    device_time: u32,
    /// The latest time of a mapping.
    mapping_time: u32,
    /// The highest transaction id of a device.
    transaction: Option<u64>,
    last_data_block: Option<u64>,
}

impl Found {
    pub(super) fn of(devices: &Devices, (last_data_block, mapping_time): (Option<u64>, u32)) -> Found {
        let details = || devices.by_id.values().filter_map(|device| device.details);
        let times = details().flat_map(|found| [found.snapshotted_time.get(), found.creation_time.get()]);
        Found {
            // A time that cannot be says nothing: the pool's clock would stand at its end.
            device_time: times.filter(|time| *time < TIME_LIMIT).max().unwrap_or(0),
            mapping_time,
            transaction: details().map(|found| found.transaction_id.get()).max(),
            last_data_block,
        }
    }
}

/// The pool as it is written, and where its fields come from.
///
/// # Errors
/// Where the size of a data block is not known.
pub(super) fn fields(
    superblock: Option<&ThinSuperblock>,
    options: &SalvageOptions,
    limits: Limits,
    found: &Found,
) -> Result<(Pool, PoolFields), SalvageError> {
    let own = superblock.map(Pool::of);
    let field = |given: Option<u64>, own: Option<u64>, made: u64| match (given, own) {
        (Some(value), _) => Field { value, origin: Origin::Given },
        (None, Some(value)) => Field { value, origin: Origin::Live },
        (None, None) => Field { value: made, origin: Origin::Made },
    };
    let data_block_size = match (options.data_block_size, &own) {
        (Some(given), _) => given,
        (None, Some(own)) if !data_block_size_is_valid(own.data_block_size) => {
            return Err(SalvageError::DataBlockSize(own.data_block_size));
        }
        (None, Some(own)) => own.data_block_size,
        (None, None) => return Err(SalvageError::NeedsDataBlockSize),
    };
    let fields = PoolFields {
        transaction_id: field(
            options.transaction_id,
            own.as_ref().map(|own| own.transaction),
            found.transaction.unwrap_or(0),
        ),
        data_block_size: field(options.data_block_size.map(u64::from), Some(data_block_size.into()), 0),
        nr_data_blocks: field(
            options.nr_data_blocks,
            own.as_ref().map(|_| limits.nr_data_blocks),
            found.last_data_block.map_or(0, |block| block + 1),
        ),
    };
    let pool = Pool {
        // A device that is younger than the pool would have its shared blocks written to.
        time: match &own {
            Some(own) if own.time < TIME_LIMIT => own.time.max(found.device_time),
            _ => found.device_time.max(found.mapping_time),
        },
        // A version that is not known is told as a finding. Whatever was read is as the known ones have it.
        version: own.as_ref().map(|own| own.version).filter(|version| version_is_known(*version)).unwrap_or(VERSION),
        flags: own.as_ref().map_or(0, |own| own.flags),
        uuid: own.map_or_else(String::new, |own| own.uuid),
        transaction: fields.transaction_id.value,
        data_block_size,
        nr_data_blocks: fields.nr_data_blocks.value,
    };
    Ok((pool, fields))
}
