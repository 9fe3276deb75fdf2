//! Where free metadata blocks don't suffice for all victims at once: as many of them as go into one transaction.

use super::{DeleteError, DeleteOptions, Deletion, Target, plan};
use crate::base::{Progress, ThinId};
use crate::pdata::commit::CommitError;
use std::collections::BTreeSet;

/// Plans to delete the first of `victims`, by id: all of them, or half of them, or a quarter, and so on, where there is
/// room for no more. Returns those that are left for another transaction, for which the target has to be read again.
///
/// # Errors
/// As [`plan`]; [`CommitError::NoFreeBlocks`] where there is not even room for one.
pub fn plan_part(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    options: DeleteOptions,
    progress: &dyn Progress,
) -> Result<(Deletion, BTreeSet<ThinId>), DeleteError> {
    let mut part = victims.len();
    loop {
        let chosen: BTreeSet<ThinId> = victims.iter().take(part).copied().collect();
        match plan(target, &chosen, options, progress) {
            Err(DeleteError::Commit(CommitError::NoFreeBlocks { .. })) if part > 1 => part /= 2,
            Err(error) => return Err(error),
            Ok(deletion) => return Ok((deletion, victims.iter().skip(part).copied().collect())),
        }
    }
}
