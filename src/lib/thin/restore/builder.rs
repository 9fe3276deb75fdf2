//! Builds the items of a pool into an image, and refuses what does not fit together.

use super::RestoreOptions;
use super::definitions::{Definition, Definitions};
use super::fault::RestoreFault;
use super::mappings::{DeadLeaves, MappingSink, each_entry};
use crate::base::{BlockNr, DataBlock, ThinBlock, ThinId};
use crate::format::details::{DETAILS_SIZE, DeviceDetails};
use crate::format::node::max_entries;
use crate::format::space_map::{self, MAX_METADATA_BLOCKS};
use crate::format::superblock::{DEVICE_ID_LIMIT, TIME_LIMIT, data_block_size_is_valid, version_is_known};
use crate::pdata::build::{NothingShared, TreeBuilder};
use crate::pdata::commit::{CommitError, DataCounts, ImageWriter, SealedImage};
use crate::pdata::counts::Counts;
use crate::thin::items::{PoolSink, Position, RereadError, Runs};
use crate::thin::model::{Device, Pool, Run};
use std::collections::HashSet;
use zerocopy::byteorder::little_endian::{U32, U64};

/// The most mappings that the leaves of any metadata device have room for.
const MAX_MAPPINGS: u64 = MAX_METADATA_BLOCKS * max_entries(8) as u64;
/// Data blocks of 40 bits (docs/format.md 4.2).
const MAX_DATA_BLOCKS: u64 = 1 << 40;

/// A device whose number of mappings was not the one it claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recount {
    /// The device.
    pub device: ThinId,
    /// What it claimed.
    pub claimed: u64,
    /// What was counted, and written.
    pub counted: u64,
}

/// A device that is complete.
pub(super) struct Built {
    pub(super) id: u32,
    pub(super) root: BlockNr,
    pub(super) details: DeviceDetails,
}

/// The device that is being built.
struct OpenDevice {
    device: Device,
    mapped: u64,
    /// A definition that is all that the device has so far, and has not been put into the tree.
    only: Option<u32>,
}

/// Takes items and builds them in.
pub(super) struct Builder<'w, 'a> {
    options: &'a RestoreOptions,
    sink: MappingSink<'w, 'a>,
    pool: Option<Pool>,
    definitions: Definitions<'a>,
    tree: TreeBuilder<8>,
    device: Option<OpenDevice>,
    /// The last virtual block of the open device or definition.
    last_key: Option<u64>,
    /// Mappings given so far; those of a definition count once.
    mappings: u64,
    built: Vec<Built>,
    ids: HashSet<u32>,
    recounts: Vec<Recount>,
    empty_runs: u64,
}

/// What was built.
pub(super) struct BuiltPool<'w> {
    pub(super) pool: Pool,
    pub(super) mapping_root: BlockNr,
    pub(super) details_root: BlockNr,
    pub(super) recounts: Vec<Recount>,
    /// Ranges of length 0.
    pub(super) empty_runs: u64,
    /// Leaves of definitions that were written although nothing refers to them.
    pub(super) dead: DeadLeaves,
    pub(super) sealed: SealedImage<'w>,
}

impl<'w, 'a> Builder<'w, 'a> {
    pub(super) fn new(
        image: ImageWriter<'w>,
        options: &'a RestoreOptions,
        runs: &'a dyn Runs,
        dead: &'a DeadLeaves,
    ) -> Self {
        Builder {
            options,
            sink: MappingSink::new(image, dead),
            pool: None,
            definitions: Definitions::new(runs),
            tree: TreeBuilder::new(),
            device: None,
            last_key: None,
            mappings: 0,
            built: Vec::new(),
            ids: HashSet::new(),
            recounts: Vec::new(),
            empty_runs: 0,
        }
    }

    /// Builds the trees over the devices and the space maps. All items have come.
    pub(super) fn finish(self) -> Result<BuiltPool<'w>, RestoreFault> {
        // Items begin with the pool, or end with an error.
        let Some(pool) = self.pool else { return Err(RereadError::Changed.into()) };
        let dead = self.definitions.dead_leaves(&self.sink.image);
        let (image, counts) = self.sink.finish();
        let built = finish_pool(image, &counts, pool, self.built)?;
        Ok(BuiltPool { recounts: self.recounts, empty_runs: self.empty_runs, dead, ..built })
    }

    fn device_id(&self) -> Option<ThinId> {
        self.device.as_ref().map(|open| open.device.id)
    }

    /// Mappings have to ascend within a device or definition.
    fn check_order(&mut self, begin: u64, last: u64) -> Result<(), RestoreFault> {
        match self.last_key {
            Some(before) if before >= begin => {
                Err(RestoreFault::Order { device: self.device_id(), begin: ThinBlock(begin), last: ThinBlock(before) })
            }
            _ => {
                self.last_key = Some(last);
                Ok(())
            }
        }
    }

    fn check_run(&mut self, run: &Run) -> Result<(), RestoreFault> {
        let Some(pool) = &self.pool else { return Err(RereadError::Changed.into()) };
        let (device, begin) = (self.device_id(), run.thin_begin);
        if run.time > pool.time {
            return Err(RestoreFault::MappingTime { device, begin, time: run.time, pool: pool.time });
        }
        let room = pool.nr_data_blocks.saturating_sub(run.data_begin.0);
        if run.length > room {
            let (begin, data) = (begin.0.saturating_add(room), run.data_begin.0.saturating_add(room));
            return Err(RestoreFault::BeyondData {
                device,
                begin: ThinBlock(begin),
                data: DataBlock(data),
                nr_data_blocks: pool.nr_data_blocks,
            });
        }
        let Some(last) = begin.0.checked_add(run.length - 1) else {
            return Err(RestoreFault::Length { device, begin, length: run.length });
        };
        // More than any device could hold need not be built to be refused. Neither sum overflows: the length is
        // below that of the data device.
        self.mappings += run.length;
        if self.mappings > MAX_MAPPINGS {
            return Err(CommitError::TooLarge.into());
        }
        self.check_order(begin.0, last)
    }

    /// Puts the definition that was all so far into the tree, as more comes.
    fn settle_only(&mut self) -> Result<(), RestoreFault> {
        match self.device.as_mut().and_then(|open| open.only.take()) {
            Some(only) => self.definitions.share(only, &mut self.tree, &mut self.sink),
            None => Ok(()),
        }
    }
}

impl PoolSink for Builder<'_, '_> {
    type Error = RestoreFault;

    fn pool(&mut self, pool: &Pool) -> Result<(), RestoreFault> {
        let mut pool = pool.clone();
        pool.transaction = self.options.transaction_id.unwrap_or(pool.transaction);
        pool.data_block_size = self.options.data_block_size.unwrap_or(pool.data_block_size);
        pool.nr_data_blocks = self.options.nr_data_blocks.unwrap_or(pool.nr_data_blocks);
        check_pool(&pool, self.sink.image.nr_blocks())?;
        self.sink.data = Counts::new(pool.nr_data_blocks);
        self.pool = Some(pool);
        Ok(())
    }

    fn begin_definition(&mut self) -> Result<(), RestoreFault> {
        self.last_key = None;
        Ok(())
    }

    fn end_definition(&mut self) -> Result<(), RestoreFault> {
        self.definitions.end(&mut self.sink)
    }

    fn begin_device(&mut self, device: &Device) -> Result<(), RestoreFault> {
        check_device(device, self.pool.as_ref().map_or(0, |pool| pool.time))?;
        if !self.ids.insert(device.id.0 as u32) {
            return Err(RestoreFault::DuplicateDevice(device.id));
        }
        self.last_key = None;
        self.device = Some(OpenDevice { device: *device, mapped: 0, only: None });
        Ok(())
    }

    fn end_device(&mut self) -> Result<(), RestoreFault> {
        let Some(OpenDevice { device, mapped, only }) = self.device.take() else { return Ok(()) };
        let root = match only {
            Some(only) => self.definitions.root(only, &mut self.tree, &mut self.sink)?,
            None => self.definitions.finish(&mut self.tree, &mut self.sink)?,
        };
        if mapped != device.mapped_blocks {
            self.recounts.push(Recount { device: device.id, claimed: device.mapped_blocks, counted: mapped });
        }
        let details = DeviceDetails {
            mapped_blocks: U64::new(mapped),
            transaction_id: U64::new(device.transaction),
            creation_time: U32::new(device.creation_time),
            snapshotted_time: U32::new(device.snapshotted_time),
        };
        self.built.push(Built { id: device.id.0 as u32, root, details });
        Ok(())
    }

    fn run(&mut self, run: &Run, at: Position) -> Result<(), RestoreFault> {
        self.check_run(run)?;
        let Some(open) = &mut self.device else {
            return self.definitions.push(run, at, &mut self.sink);
        };
        open.mapped += run.length;
        if open.only.is_some() {
            self.settle_only()?;
        }
        each_entry(run, |key, value| self.tree.push(key, value, &mut self.sink))
    }

    fn reference(&mut self, definition: u32) -> Result<(), RestoreFault> {
        let &Definition { mapped, first_key, last_key, .. } = self.definitions.get(definition);
        if mapped == 0 {
            return Ok(());
        }
        let is_first = self.last_key.is_none();
        self.check_order(first_key, last_key)?;
        if let Some(open) = &mut self.device {
            open.mapped += mapped;
            if is_first {
                open.only = Some(definition);
                return Ok(());
            }
        }
        self.settle_only()?;
        self.definitions.share(definition, &mut self.tree, &mut self.sink)
    }

    fn upcoming(&mut self, definitions: &[u32]) {
        self.definitions.warm(definitions, &self.sink.image);
    }

    fn empty_run(&mut self) {
        self.empty_runs += 1;
    }

    fn end(&mut self) -> Result<(), RestoreFault> {
        Ok(())
    }
}

/// Refuses what a pool can't be, or what an output of `present` blocks has no room to count.
pub(super) fn check_pool(pool: &Pool, present: u64) -> Result<(), RestoreFault> {
    if !data_block_size_is_valid(pool.data_block_size) {
        return Err(RestoreFault::DataBlockSize(pool.data_block_size));
    }
    if !version_is_known(pool.version) {
        return Err(RestoreFault::Version(pool.version));
    }
    if pool.time >= TIME_LIMIT {
        return Err(RestoreFault::PoolTime(pool.time));
    }
    let bitmaps = space_map::nr_bitmaps(pool.nr_data_blocks);
    if bitmaps > MAX_METADATA_BLOCKS || pool.nr_data_blocks > MAX_DATA_BLOCKS {
        return Err(CommitError::TooLarge.into());
    }
    // Counting takes memory for each data block, so it is not begun where there is no room for the counts.
    if bitmaps > present {
        return Err(RestoreFault::DataDevice { nr_data_blocks: pool.nr_data_blocks, bitmaps, present });
    }
    Ok(())
}

/// Refuses what a device of a pool of this time can't be.
pub(super) fn check_device(device: &Device, pool_time: u32) -> Result<(), RestoreFault> {
    if device.id.0 >= DEVICE_ID_LIMIT {
        return Err(RestoreFault::DeviceId(device.id));
    }
    let (created, snapshotted) = (device.creation_time, device.snapshotted_time);
    if created.max(snapshotted) > pool_time {
        let time = created.max(snapshotted);
        return Err(RestoreFault::DeviceTime { device: device.id, time, pool: pool_time });
    }
    if created > snapshotted {
        return Err(RestoreFault::DeviceTimes { device: device.id, created, snapshotted });
    }
    Ok(())
}

/// Builds the trees over the devices, and the space maps.
pub(super) fn finish_pool<'w>(
    mut image: ImageWriter<'w>,
    counts: &Counts,
    pool: Pool,
    mut built: Vec<Built>,
) -> Result<BuiltPool<'w>, RestoreFault> {
    built.sort_unstable_by_key(|device| device.id);
    let mut roots = TreeBuilder::<8>::new();
    let mut details = TreeBuilder::<DETAILS_SIZE>::new();
    for device in &built {
        roots.push(device.id.into(), &device.root.0.to_le_bytes(), &mut image)?;
        details.push(device.id.into(), &zerocopy::transmute!(device.details), &mut image)?;
    }
    let mapping_root = roots.finish(&mut NothingShared, &mut image)?;
    let details_root = details.finish(&mut NothingShared, &mut image)?;
    let data = DataCounts { nr_blocks: pool.nr_data_blocks, counts };
    let sealed = image.seal(Some(data))?;
    Ok(BuiltPool {
        pool,
        mapping_root,
        details_root,
        recounts: Vec::new(),
        empty_runs: 0,
        dead: DeadLeaves::new(),
        sealed,
    })
}
