//! The details tree and the upper mapping tree without the victims.

use super::Target;
use crate::base::{BlockNr, ThinId};
use crate::format::details::DETAILS_SIZE;
use crate::pdata::build::NodeSink;
use crate::pdata::commit::{CommitError, Transaction};
use crate::pdata::edit::{Edits, edit};
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
    fn gone<const V: usize>(victims: &BTreeSet<ThinId>) -> Edits<V> {
        victims.iter().map(|id| (id.0, None)).collect()
    }
    let (source, roots) = (target.source, &target.roots);
    let details = edit::<DETAILS_SIZE>(source, roots.details, &gone(victims), transaction, &mut |_| ())?;
    let mut led_to = Vec::new();
    let mut fresh = |root: &[u8; 8]| led_to.push(BlockNr(u64::from_le_bytes(*root)));
    let mapping = edit::<8>(source, roots.mapping, &gone(victims), transaction, &mut fresh)?;
    led_to.into_iter().for_each(|root| transaction.share(root));
    Ok(NewTrees { mapping: mapping.root, details: details.root, kept_leaves: mapping.kept })
}
