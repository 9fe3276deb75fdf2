//! The details tree and the upper mapping tree without the victims.

use super::Target;
use crate::base::{BlockNr, KeyRange, ThinId};
use crate::format::details::DETAILS_SIZE;
use crate::pdata::build::NodeSink;
use crate::pdata::commit::{CommitError, Transaction};
use crate::pdata::edit::{Change, edit};
use std::collections::BTreeSet;

/// The upper trees of the pool as it will be. Their nodes have their references, and so have the devices' roots that new
/// leaves lead to.
pub(super) struct NewTrees {
    /// Root of the upper mapping tree.
    pub(super) mapping: BlockNr,
    /// Root of the details tree.
    pub(super) details: BlockNr,
    /// Leaves of the upper mapping tree that are as they were.
    pub(super) kept_leaves: Vec<BlockNr>,
}

/// Leaves the victims out of both trees.
pub(super) fn without(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    transaction: &mut Transaction<'_>,
) -> Result<NewTrees, CommitError> {
    let (source, roots) = (target.source, &target.roots);
    let mut change = Without::<DETAILS_SIZE> { victims, placed: Vec::new() };
    let details = edit(source, roots.details, &mut change, transaction)?;
    let mut change = Without::<8> { victims, placed: Vec::new() };
    let mapping = edit(source, roots.mapping, &mut change, transaction)?;
    change.placed.into_iter().for_each(|root| transaction.share(BlockNr(u64::from_le_bytes(root))));
    Ok(NewTrees { mapping: mapping.root, details: details.root, kept_leaves: mapping.kept })
}

/// Takes entries away.
struct Without<'a, const V: usize> {
    victims: &'a BTreeSet<ThinId>,
    /// What is in new leaves.
    placed: Vec<[u8; V]>,
}

impl<const V: usize> Change<V> for Without<'_, V> {
    fn concerns(&mut self, keys: KeyRange) -> bool {
        let from = self.victims.range(ThinId(keys.begin)..).next();
        from.is_some_and(|id| keys.end.is_none_or(|end| id.0 < end))
    }

    fn change(&mut self, key: u64, value: &[u8; V], _: &mut Transaction<'_>) -> Result<Option<[u8; V]>, CommitError> {
        Ok((!self.victims.contains(&ThinId(key))).then_some(*value))
    }

    fn placed(&mut self, value: &[u8; V]) {
        self.placed.push(*value);
    }
}
