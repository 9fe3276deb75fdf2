//! Repairing metadata where it is: put together in memory, and written when all that was there is saved.

use super::super::context::Context;
use super::super::output::save_copy;
use super::explain;
use crate::base::BlockNr;
use crate::block::memory::MemorySource;
use crate::block::{BlockSource, FileOutput};
use crate::pack::Form;
use crate::pack::open::Opened;
use crate::pdata::commit::write_whole;
use crate::thin::repair::{Repaired, repair};
use crate::thin::salvage::SalvageOptions;
use anyhow::{Context as _, bail};
use std::path::Path;

/// Saves all of `opened`, which is the file or device at `path`, to `backup`, and overwrites it with what could be read.
///
/// # Errors
/// Before anything is written where nothing can be salvaged or the copy fails. After an error in writing the metadata
/// is only in the copy.
pub(super) fn repair_in_place(
    opened: Opened,
    path: &Path,
    backup: &Path,
    options: &SalvageOptions,
    context: &Context,
) -> anyhow::Result<Repaired> {
    if !matches!(opened.form, Form::RawFile | Form::BlockDevice) {
        bail!("this is not the metadata itself: unpack it first, or repair into another device with -o");
    }
    let source = opened.source.as_ref();
    let mut result = MemorySource::new(source.nr_blocks());
    let progress = context.progress(false);
    let repaired = repair(source, &mut result, options, progress.as_ref());
    drop(progress);
    let repaired = repaired.map_err(|error| explain(error, path))?;
    let unreadable = save_copy(backup, source)?;
    if unreadable > 0 {
        context.warning(format_args!("{unreadable} blocks could not be read, and are zeros in '{}'", backup.display()));
    }
    let before = source.read(BlockNr(0)).ok().map(|block| *block);
    drop(opened);
    let mut output = FileOutput::open(path, None).context("the metadata cannot be repaired in place")?;
    let now = output.source().context("the metadata cannot be read again")?;
    if now.read(BlockNr(0)).ok().map(|block| *block) != before {
        bail!("the metadata changed while it was looked at: nothing was changed");
    }
    drop(now);
    write_whole(&result, &mut output).with_context(|| {
        format!("'{}' holds no valid metadata now; repair it from '{}'", path.display(), backup.display())
    })?;
    context.note(format_args!("repaired in place; '{}' has what was there before", backup.display()));
    Ok(repaired)
}
