//! Writing the state after a replay as metadata of its own.

use crate::base::{BlockNr, NoProgress};
use crate::block::{BlockOutput, BlockSource, WriteError};
use crate::pdata::commit::{CommitError, replace_superblock};
use crate::pdata::overlay::OverlayError;
use crate::thin::check::{CheckOptions, check_and_count};
use crate::thin::fix::{self, FixError, FixOptions};
use crate::thin::live::{LiveError, LivePool};

/// Why a state could not be saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The pool could not be committed, or read again.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The space maps could not be made.
    #[error(transparent)]
    Fix(#[from] FixError),
    /// Writing failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Commits the pool, reads it whole, counts all references anew, and writes everything that is in use with space maps
/// that say so; the superblock comes last. `output` holds zeros and is as large as the image.
///
/// # Errors
/// Where the pool can't be read, or writing failed.
pub fn save(pool: &mut LivePool<'_>, output: &mut dyn BlockOutput) -> Result<(), SaveError> {
    pool.seal()?;
    let overlay = &pool.overlay;
    let checked = check_and_count(overlay, &CheckOptions::default(), &NoProgress, &mut |_| ());
    let Ok((report, Some(counted))) = checked else { return Err(LiveError::Damaged.into()) };
    let options = FixOptions { space_maps: true, ..FixOptions::default() };
    let fix = fix::plan(overlay, &report, Some(&counted), options)?;
    let used = |block: &BlockNr| counted.metadata.count(*block) > 0;
    for block in (1..overlay.nr_blocks()).map(BlockNr).filter(used) {
        let content = overlay.read(block).map_err(|error| LiveError::from(OverlayError::Read(block, error)))?;
        output.write(block, &content)?;
    }
    match fix {
        Some(fix) => fix.commit(output)?,
        None => {
            output.flush()?;
            let location = BlockNr(0);
            let superblock =
                overlay.read(location).map_err(|error| LiveError::from(OverlayError::Read(location, error)))?;
            replace_superblock(output, &superblock)?;
        }
    }
    Ok(())
}
