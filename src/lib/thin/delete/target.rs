//! The pool that devices are to be deleted from, and which of them.

use super::DeleteError;
use crate::base::{Findings, Progress, Severity, ThinId};
use crate::block::BlockSource;
use crate::format::superblock::ThinSuperblock;
use crate::pdata::ledger::Ledger;
use crate::pdata::walk::Walker;
use crate::thin::load::{self, Devices, Roots};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Which devices are meant. Ids and ranges as they were given.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Delete these.
    Delete(Vec<RangeInclusive<u64>>),
    /// Delete all but these.
    Keep(Vec<RangeInclusive<u64>>),
}

/// A pool whose superblock and whose upper trees are sound.
pub struct Target<'a> {
    pub(super) source: &'a dyn BlockSource,
    pub(super) superblock: ThinSuperblock,
    pub(super) roots: Roots,
    pub(super) devices: Devices,
}

impl<'a> Target<'a> {
    /// Reads superblock, details and the upper mapping tree. Mappings are not looked at.
    ///
    /// # Errors
    /// Where one of these is damaged, or needs_check is set.
    pub fn read(source: &'a dyn BlockSource, progress: &dyn Progress) -> Result<Target<'a>, DeleteError> {
        let target = Self::read_damaged(source, progress)?;
        if target.superblock.needs_check() { Err(DeleteError::NeedsCheck) } else { Ok(target) }
    }

    /// The same, of a pool in which devices are damaged: needs_check may be set, and stays so. Only
    /// [`Strategy::Recount`](super::Strategy::Recount) is for it.
    ///
    /// # Errors
    /// Where the superblock, the details or the upper mapping tree is damaged.
    pub fn read_damaged(source: &'a dyn BlockSource, progress: &dyn Progress) -> Result<Target<'a>, DeleteError> {
        let mut findings = Findings::new();
        let Some(superblock) = load::superblock(source, &mut findings) else { return Err(damaged(findings)) };
        let roots = Roots::of(&superblock, false);
        let mut ledger = Ledger::new(load::usable_blocks(source));
        let mut walker = Walker { source, ledger: &mut ledger, findings: &mut findings, progress };
        let devices = load::devices(&mut walker, &[roots]).pop().unwrap_or_default();
        if findings.worst() == Some(Severity::Fatal) {
            return Err(damaged(findings));
        }
        Ok(Target { source, superblock, roots, devices })
    }

    /// The superblock.
    pub fn superblock(&self) -> &ThinSuperblock {
        &self.superblock
    }

    /// The ids of all devices.
    pub fn ids(&self) -> impl Iterator<Item = ThinId> {
        self.devices.by_id.keys().copied()
    }

    /// The devices that are to be deleted. An id or a range without a device is refused, unless `ignore_missing`.
    ///
    /// # Errors
    /// [`DeleteError::Unknown`].
    pub fn select(&self, wanted: &Wanted, ignore_missing: bool) -> Result<BTreeSet<ThinId>, DeleteError> {
        let (Wanted::Delete(items) | Wanted::Keep(items)) = wanted;
        let mut named = BTreeSet::new();
        let mut missing = Vec::new();
        for item in items.iter().filter(|item| !item.is_empty()) {
            let mut found = self.devices.by_id.range(ThinId(*item.start())..=ThinId(*item.end())).peekable();
            if found.peek().is_none() {
                missing.push(item.clone());
            }
            named.extend(found.map(|(id, _)| *id));
        }
        if !missing.is_empty() && !ignore_missing {
            return Err(DeleteError::Unknown(missing));
        }
        Ok(match wanted {
            Wanted::Delete(_) => named,
            Wanted::Keep(_) => self.ids().filter(|id| !named.contains(id)).collect(),
        })
    }

    /// The devices that stay.
    pub(super) fn survivors(&self, victims: &BTreeSet<ThinId>) -> Devices {
        let by_id = self.devices.by_id.iter().filter(|(id, _)| !victims.contains(id));
        Devices { by_id: by_id.map(|(id, device)| (*id, *device)).collect(), ..self.devices }
    }
}

pub(super) fn damaged(findings: Findings) -> DeleteError {
    DeleteError::Damaged { findings, advice: "thin_repair writes what can be read to another device" }
}
