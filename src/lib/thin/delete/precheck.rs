//! Whether a pool is sound enough to delete from.

use super::DeleteError;
use crate::base::{Progress, Severity};
use crate::block::BlockSource;
use crate::thin::check::{CheckOptions, check};

/// What is looked at before anything is planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precheck {
    /// Everything.
    #[default]
    Full,
    /// The superblock, and the devices without their mappings.
    Quick,
}

/// Blocks that are counted more often than they are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaks {
    /// Of the data device.
    pub data: u64,
    /// Of the metadata.
    pub metadata: u64,
}

/// Checks the metadata. Leaks and the like are no obstacle; they stay, or go, as it happens. Returns them, where they were
/// looked for.
///
/// # Errors
/// Where anything is damaged, data blocks are counted too low, or needs_check is set.
pub fn precheck(
    source: &dyn BlockSource,
    how: Precheck,
    progress: &dyn Progress,
) -> Result<Option<Leaks>, DeleteError> {
    let options = CheckOptions { skip_mappings: how == Precheck::Quick, ..CheckOptions::default() };
    // Only a metadata snapshot that is asked for can be missing.
    let Ok(report) = check(source, &options, progress, &mut |_| ()) else { return Ok(None) };
    if report.findings.worst() == Some(Severity::Fatal) {
        let advice = report.advice();
        return Err(DeleteError::Damaged { findings: report.findings, advice });
    }
    match report.superblock.is_some_and(|superblock| superblock.needs_check()) {
        true => Err(DeleteError::NeedsCheck),
        false => {
            let maps = report.data.as_ref().zip(report.metadata.as_ref());
            Ok(maps.map(|(data, metadata)| Leaks { data: data.leaked, metadata: metadata.leaked }))
        }
    }
}
