//! A new image without the victims, beside the metadata that it is made from.

use super::recount::count;
use super::{DeleteError, Target};
use crate::base::{Progress, ThinId};
use crate::block::BlockOutput;
use crate::thin::document::{Document, DocumentDevice, Leaves};
use crate::thin::dump::{self, DumpOptions};
use crate::thin::restore::{RestoreError, RestoreOutcome, restore_document};
use std::collections::BTreeSet;

/// Why there is no new image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Survivors are damaged. Nothing was written.
    #[error(transparent)]
    Delete(#[from] DeleteError),
    /// The output is too small, or writing failed.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// Writes the pool without `victims` to `output`, which nobody else uses. A metadata snapshot is left out.
///
/// # Errors
/// Before anything is written where survivors are damaged or the output is too small. After an error in writing the
/// output has no valid superblock.
pub fn write_image(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    transaction_id: Option<u64>,
    output: &mut dyn BlockOutput,
    progress: &dyn Progress,
) -> Result<RestoreOutcome, ImageError> {
    let counted = count(target, victims, progress)?;
    let options = DumpOptions { transaction_id, ..DumpOptions::default() };
    let devices = dump::paired(&counted.survivors).into_iter();
    let mut document = Document {
        pool: dump::pool(&target.superblock, &options),
        devices: devices.map(|(device, root)| DocumentDevice { device, leaves: Leaves::Tree(root) }).collect(),
        forest: counted.forest,
        limits: None,
        sharing: None,
    };
    Ok(restore_document(target.source, &mut document, output, progress)?)
}
