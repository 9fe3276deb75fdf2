//! A pool whose trees are changed as a running pool changes them, over an image that stays as it is.
//!
//! Knows devices, details and the superblock; the trees themselves are [`Overlay`]'s business. Nothing is written
//! here: [`LivePool::seal`] gives a source of blocks that a check can read.

use super::check::{CheckOptions, check_and_count, fails};
use super::load::{self, Roots};
use crate::base::{BlockNr, DataBlock, Findings, NoProgress, Severity, ThinBlock, ThinId};
use crate::block::BlockSource;
use crate::format::details::{DETAILS_SIZE, DeviceDetails};
use crate::format::mapping;
use crate::format::superblock::{DEVICE_ID_LIMIT, ThinSuperblock};
use crate::pdata::ledger::Ledger;
use crate::pdata::overlay::{Committed, Overlay, OverlayError, RefCounts, SplitRule, Values};
use crate::pdata::walk::Walker;
use std::collections::BTreeMap;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromZeros, IntoBytes};

const DETAILS: Values = Values::Plain(DETAILS_SIZE);

/// Why a pool can't be used, or an operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The metadata is not sound.
    #[error("the metadata is damaged; thin_check says where")]
    Damaged,
    /// There is no such device.
    #[error("there is no device {0}")]
    NoDevice(ThinId),
    /// There is such a device already, or its id is too large.
    #[error("device {0} can't be made: it is there already, or ids end before it")]
    CannotCreate(ThinId),
    /// A metadata snapshot is held already, or none is.
    #[error("a metadata snapshot is held already, or there is none to release")]
    MetadataSnapshot,
    /// A tree could not be read or changed.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
}

/// A sound image and what was counted in it: where any number of [`LivePool`]s begin.
pub struct Base<'a> {
    source: &'a dyn BlockSource,
    superblock: ThinSuperblock,
    metadata: RefCounts,
    data: RefCounts,
    devices: BTreeMap<ThinId, DeviceDetails>,
}

impl<'a> Base<'a> {
    /// Checks the metadata and counts all references.
    ///
    /// # Errors
    /// [`LiveError::Damaged`] where anything is wrong that a pool would stumble over.
    pub fn open(source: &'a dyn BlockSource) -> Result<Base<'a>, LiveError> {
        let checked = check_and_count(source, &CheckOptions::default(), &NoProgress, &mut |_| ());
        let (report, counted) = checked.map_err(|_| LiveError::Damaged)?;
        let (Some(superblock), Some(counted)) = (report.superblock.clone(), counted) else {
            return Err(LiveError::Damaged);
        };
        if fails(report.findings.worst(), true) || report.findings.worst() == Some(Severity::Fatal) {
            return Err(LiveError::Damaged);
        }
        let nr_blocks = superblock.metadata_space_map.nr_blocks.get().min(load::usable_blocks(source));
        let metadata = RefCounts::of(nr_blocks, &counted.metadata);
        let data = RefCounts::of(counted.data.nr_blocks(), &counted.data);
        let (mut findings, mut ledger) = (Findings::new(), Ledger::new(nr_blocks));
        let mut walker = Walker { source, ledger: &mut ledger, findings: &mut findings, progress: &NoProgress };
        let found = load::devices(&mut walker, &[Roots::of(&superblock, false)]).pop().unwrap_or_default();
        let devices = found.by_id.into_iter().filter_map(|(id, device)| Some((id, device.details?))).collect();
        Ok(Base { source, superblock, metadata, data, devices })
    }

    /// Sectors of a data block.
    pub fn block_sectors(&self) -> u64 {
        u64::from(self.superblock.data_block_size.get())
    }

    /// Ids of the devices and how many mappings they have.
    pub fn devices(&self) -> impl Iterator<Item = (ThinId, u64)> {
        self.devices.iter().map(|(id, details)| (*id, details.mapped_blocks.get()))
    }

    /// The pool as it is in the image.
    pub fn pool(&self, split: SplitRule) -> LivePool<'a> {
        LivePool {
            overlay: Overlay::new(self.source, self.metadata.clone(), self.data.clone(), split),
            superblock: self.superblock.clone(),
            mapping_root: BlockNr(self.superblock.mapping_root.get()),
            details_root: BlockNr(self.superblock.details_root.get()),
            devices: self.devices.iter().map(|(id, details)| (*id, (*details, false))).collect(),
        }
    }
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The data block.
    pub data: DataBlock,
    /// Whether a snapshot may share it, so that a write has to break the sharing.
    pub shared: bool,
}

/// A pool in use.
#[derive(Clone, Debug)]
pub struct LivePool<'a> {
    /// Its trees and counts.
    pub overlay: Overlay<'a>,
    superblock: ThinSuperblock,
    mapping_root: BlockNr,
    details_root: BlockNr,
    /// Details, and whether they differ from the tree's.
    devices: BTreeMap<ThinId, (DeviceDetails, bool)>,
}

impl LivePool<'_> {
    /// Whether there is such a device.
    pub fn has_device(&self, id: ThinId) -> bool {
        self.devices.contains_key(&id)
    }

    /// Ids of the devices and how many mappings they have.
    pub fn devices(&self) -> impl Iterator<Item = (ThinId, u64)> {
        self.devices.iter().map(|(id, (details, _))| (*id, details.mapped_blocks.get()))
    }

    /// The root of a device's mapping tree.
    ///
    /// # Errors
    /// Where there is none.
    pub fn root(&mut self, id: ThinId) -> Result<BlockNr, LiveError> {
        let root = self.overlay.lookup_u64(self.mapping_root, Values::Roots, id.0)?;
        root.map(BlockNr).ok_or(LiveError::NoDevice(id))
    }

    /// The last mapped block of a device.
    ///
    /// # Errors
    /// Where there is no such device, or its tree can't be read.
    pub fn last_mapped(&mut self, id: ThinId) -> Result<Option<ThinBlock>, LiveError> {
        let root = self.root(id)?;
        Ok(self.overlay.last_key(root, Values::Data)?.map(ThinBlock))
    }

    fn set_root(&mut self, id: ThinId, root: BlockNr) -> Result<(), LiveError> {
        let inserted = self.overlay.insert(self.mapping_root, Values::Roots, id.0, &root.0.to_le_bytes())?;
        self.mapping_root = inserted.root;
        Ok(())
    }

    /// The root of a device, with all above it copied, so that it can be changed.
    fn open_root(&mut self, id: ThinId) -> Result<BlockNr, LiveError> {
        let root = self.root(id)?;
        self.set_root(id, root)?;
        Ok(root)
    }

    fn details(&mut self, id: ThinId) -> Result<&mut DeviceDetails, LiveError> {
        let (details, changed) = self.devices.get_mut(&id).ok_or(LiveError::NoDevice(id))?;
        *changed = true;
        Ok(details)
    }

    fn add_device(&mut self, id: ThinId, root: BlockNr, mapped: u64, time: u32) -> Result<(), LiveError> {
        self.set_root(id, root)?;
        let details = DeviceDetails {
            mapped_blocks: U64::new(mapped),
            transaction_id: self.superblock.transaction_id,
            creation_time: U32::new(time),
            snapshotted_time: U32::new(time),
        };
        self.devices.insert(id, (details, true));
        Ok(())
    }

    /// Makes a device without mappings.
    ///
    /// # Errors
    /// Where it is there, or no block is free.
    pub fn create(&mut self, id: ThinId) -> Result<(), LiveError> {
        if self.has_device(id) || id.0 >= DEVICE_ID_LIMIT {
            return Err(LiveError::CannotCreate(id));
        }
        let root = self.overlay.empty_tree(Values::Data)?;
        self.add_device(id, root, 0, self.superblock.time.get())
    }

    /// Makes a snapshot, which shares everything with its origin (docs/format.md 4.4).
    ///
    /// # Errors
    /// Where it is there, the origin isn't, or no block is free.
    pub fn snapshot(&mut self, id: ThinId, origin: ThinId) -> Result<(), LiveError> {
        if self.has_device(id) || id.0 >= DEVICE_ID_LIMIT {
            return Err(LiveError::CannotCreate(id));
        }
        let root = self.root(origin)?;
        self.overlay.share(root);
        let time = self.superblock.time.get() + 1;
        self.superblock.time = U32::new(time);
        let details = self.details(origin)?;
        details.snapshotted_time = U32::new(time);
        let mapped = details.mapped_blocks.get();
        self.add_device(id, root, mapped, time)
    }

    /// What a block of a device is mapped to.
    ///
    /// # Errors
    /// Where there is no such device, or its tree can't be read.
    pub fn lookup(&mut self, id: ThinId, block: ThinBlock) -> Result<Option<Mapped>, LiveError> {
        let root = self.root(id)?;
        let Some(value) = self.overlay.lookup_u64(root, Values::Data, block.0)? else { return Ok(None) };
        let (data, time) = mapping::unpack(value);
        let snapshotted = self.devices.get(&id).map_or(0, |(details, _)| details.snapshotted_time.get());
        Ok(Some(Mapped { data, shared: snapshotted > time }))
    }

    /// The first mapped block from `from` on.
    ///
    /// # Errors
    /// Where there is no such device, or its tree can't be read.
    pub fn next_mapped(&mut self, id: ThinId, from: ThinBlock) -> Result<Option<ThinBlock>, LiveError> {
        let root = self.root(id)?;
        Ok(self.overlay.next_entry(root, Values::Data, from.0)?.map(ThinBlock))
    }

    /// Maps a block to a data block that has been taken; the old one, if any, loses a reference.
    ///
    /// # Errors
    /// Where there is no such device, or no block is free.
    pub fn insert(&mut self, id: ThinId, block: ThinBlock, data: DataBlock) -> Result<(), LiveError> {
        let root = self.open_root(id)?;
        let value = mapping::pack(data, self.superblock.time.get()).to_le_bytes();
        let inserted = self.overlay.insert(root, Values::Data, block.0, &value)?;
        if inserted.root != root {
            self.set_root(id, inserted.root)?;
        }
        match inserted.old.and_then(|old| old.try_into().ok()).map(u64::from_le_bytes) {
            Some(old) => _ = self.overlay.release_data(old >> 24),
            None => self.count_mapped(id, 1)?,
        }
        Ok(())
    }

    fn count_mapped(&mut self, id: ThinId, by: i64) -> Result<(), LiveError> {
        let details = self.details(id)?;
        details.mapped_blocks = U64::new(details.mapped_blocks.get().saturating_add_signed(by));
        Ok(())
    }

    /// Takes the mapping of a block away; its data block loses a reference. Says whether there was one.
    ///
    /// # Errors
    /// Where there is no such device, or no block is free.
    pub fn remove(&mut self, id: ThinId, block: ThinBlock) -> Result<bool, LiveError> {
        let root = self.open_root(id)?;
        let removed = self.overlay.remove(root, Values::Data, block.0)?;
        if removed.root != root {
            self.set_root(id, removed.root)?;
        }
        let Some(old) = removed.old.and_then(|old| old.try_into().ok()).map(u64::from_le_bytes) else {
            return Ok(false);
        };
        self.overlay.release_data(old >> 24);
        self.count_mapped(id, -1)?;
        Ok(true)
    }

    /// Takes a device out of both trees, and gives the root of what it maps, which is still to be released.
    ///
    /// # Errors
    /// Where there is no such device, or no block is free.
    pub fn unlink(&mut self, id: ThinId) -> Result<BlockNr, LiveError> {
        let root = self.open_root(id)?;
        self.mapping_root = self.overlay.remove(self.mapping_root, Values::Roots, id.0)?.root;
        self.details_root = self.overlay.remove(self.details_root, DETAILS, id.0)?.root;
        self.devices.remove(&id);
        Ok(root)
    }

    /// Keeps the state in a metadata snapshot (docs/format.md 4.5).
    ///
    /// # Errors
    /// Where one is held, or no block is free.
    pub fn hold(&mut self) -> Result<(), LiveError> {
        if self.superblock.held_root().is_some() {
            return Err(LiveError::MetadataSnapshot);
        }
        self.commit()?;
        let location = self.overlay.take_block()?;
        self.overlay.share(self.mapping_root);
        self.overlay.share(self.details_root);
        let mut held = self.current();
        held.data_space_map = FromZeros::new_zeroed();
        held.metadata_space_map = FromZeros::new_zeroed();
        self.overlay.put(location, &held.to_block(location));
        self.superblock.held_root = U64::new(location.0);
        Ok(())
    }

    /// Releases the metadata snapshot.
    ///
    /// # Errors
    /// Where there is none, or it can't be read.
    pub fn release_held(&mut self) -> Result<(), LiveError> {
        let location = self.superblock.held_root().ok_or(LiveError::MetadataSnapshot)?;
        let content = self.overlay.read(location).map_err(|error| OverlayError::Read(location, error))?;
        let held = ThinSuperblock::view(&content).clone();
        self.overlay.release_tree(BlockNr(held.mapping_root.get()), Values::Roots)?;
        self.overlay.release_tree(BlockNr(held.details_root.get()), DETAILS)?;
        self.overlay.release(location);
        self.superblock.held_root = U64::new(0);
        Ok(())
    }

    /// Writes changed details into their tree and makes the state the committed one.
    ///
    /// # Errors
    /// Where no block is free.
    pub fn commit(&mut self) -> Result<Committed, LiveError> {
        for (id, (details, changed)) in &mut self.devices {
            if std::mem::take(changed) {
                let inserted = self.overlay.insert(self.details_root, DETAILS, id.0, details.as_bytes())?;
                self.details_root = inserted.root;
            }
        }
        Ok(self.overlay.commit())
    }

    fn current(&self) -> ThinSuperblock {
        ThinSuperblock {
            mapping_root: U64::new(self.mapping_root.0),
            details_root: U64::new(self.details_root.0),
            ..self.superblock.clone()
        }
    }

    /// Commits, and makes the overlay readable as metadata whose space maps are still the old ones.
    ///
    /// # Errors
    /// Where no block is free.
    pub fn seal(&mut self) -> Result<(), LiveError> {
        self.commit()?;
        let held = self.superblock.held_root();
        self.overlay.seal(held.as_slice());
        self.overlay.put(BlockNr(0), &self.current().to_block(BlockNr(0)));
        Ok(())
    }

    /// All mapped blocks of all devices, for comparing pools; each device's in ascending order.
    ///
    /// # Errors
    /// Where a tree can't be read.
    pub fn logical(&mut self) -> Result<BTreeMap<ThinId, Vec<u64>>, LiveError> {
        let ids: Vec<ThinId> = self.devices.keys().copied().collect();
        let mut all = BTreeMap::new();
        for id in ids {
            let (mut blocks, mut from) = (Vec::new(), 0);
            while let Some(found) = self.next_mapped(id, ThinBlock(from))? {
                blocks.push(found.0);
                from = found.0 + 1;
            }
            all.insert(id, blocks);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
