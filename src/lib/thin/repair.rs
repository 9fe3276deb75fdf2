//! Repairing a pool: a salvage, written to another device.

use super::restore::{RestoreError, RestoreOutcome, restore_document};
use super::salvage::{Account, Salvage, SalvageError, SalvageOptions, salvage_put_back};
use crate::base::{Findings, Progress};
use crate::block::{BlockOutput, BlockSource};

/// Why nothing was repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// There is nothing to salvage. The output was left as it was.
    #[error(transparent)]
    Salvage(#[from] SalvageError),
    /// Building or writing failed.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// What a repair has to say.
#[derive(Debug)]
pub struct Repaired {
    /// What was found and lost.
    pub account: Account,
    /// The damage.
    pub findings: Findings,
    /// What was written.
    pub written: RestoreOutcome,
}

/// Writes what can be salvaged of `source` to `output`, which nobody else uses. `source` is only read.
///
/// # Errors
/// Before anything is written where there is nothing to salvage or the output is too small. After an error in writing
/// the output has no valid superblock.
pub fn repair(
    source: &dyn BlockSource,
    output: &mut dyn BlockOutput,
    options: &SalvageOptions,
    progress: &dyn Progress,
) -> Result<Repaired, RepairError> {
    let (Salvage { mut document, account, findings }, source) = salvage_put_back(source, options, progress)?;
    let written = restore_document(&source, &mut document, output, progress)?;
    Ok(Repaired { account, findings, written })
}

#[cfg(test)]
mod tests;
