//! Taking away what the victims refer to.
//!
//! A node whose count does not come down to 0 is not looked into: what is below it has lost nothing. Takes time for
//! what becomes free, and 5 bytes of memory per metadata block.

use super::target::damaged;
use super::trees::{self, NewTrees};
use super::{DeleteError, DeleteOptions, Target};
use crate::base::{BlockNr, Findings, Place, Progress, Severity, ThinId};
use crate::format::node::Node;
use crate::format::space_map::ENTRIES_PER_BITMAP;
use crate::pdata::commit::{CommitError, SealedTransaction, SpaceMapRoots, Transaction};
use crate::pdata::counts::Counts;
use crate::pdata::forest::{Forest, Root};
use crate::pdata::walk::{LeafVisitor, NoVisitor, Walker};
use crate::thin::check::MappingVisitor;
use crate::thin::judge::Bounds;
use crate::thin::load::{DETAILS_TREE, MAPPING_TREE, TOP_LEVEL_TREE};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// What becomes free, and what is left.
pub(super) struct Dropped {
    pub(super) trees: NewTrees,
    pub(super) sealed: SealedTransaction,
    /// The nodes of mapping trees that go.
    pub(super) forest: Forest,
}

pub(super) fn plan(
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    options: DeleteOptions,
    progress: &dyn Progress,
) -> Result<Dropped, DeleteError> {
    let data_map = &target.superblock.data_space_map;
    let committed =
        SpaceMapRoots { data: Some(data_map.clone()), metadata: target.superblock.metadata_space_map.clone() };
    let mut transaction = Transaction::begin_stored(target.source, &committed)?;
    if options.note_freed {
        transaction.note_freed();
    }
    let trees = trees::without(target, victims, &mut transaction)?;
    let (lost, forest) = take_away(target, &mut transaction, progress)?;
    progress.section("space maps", 0);
    let sealed = transaction.seal_without(data_map, &lost)?;
    Ok(Dropped { trees, sealed, forest })
}

/// Takes the old upper trees away, and with them all that only they led to. Returns the references that data blocks lose,
/// and the nodes of mapping trees that go.
fn take_away(
    target: &Target<'_>,
    transaction: &mut Transaction<'_>,
    progress: &dyn Progress,
) -> Result<(Counts, Forest), DeleteError> {
    let (source, roots) = (target.source, &target.roots);
    let mut findings = Findings::new();
    let bounds = Bounds::of(&target.superblock);
    if bounds.nr_data_blocks > source.nr_blocks().saturating_mul(ENTRIES_PER_BITMAP) {
        let block = BlockNr(target.superblock.data_space_map.bitmap_root.get());
        let detail = "the data space map is larger than its bitmaps could be".into();
        return Err(CommitError::Unsound { block, detail }.into());
    }
    let visitor = MappingVisitor { counts: Counts::new(bounds.nr_data_blocks), bounds };
    let forest = transaction.take_away(|ledger| {
        let mut walker = Walker { source, ledger, findings: &mut findings, progress };
        progress.section("devices", 0);
        let root = |block, area| vec![Root { block, area, device: None }];
        walker.walk(DETAILS_TREE, root(roots.details, roots.details_area()), &NoVisitor);
        let gone = DeviceRoots::default();
        walker.walk(TOP_LEVEL_TREE, root(roots.mapping, roots.top_level_area()), &gone);
        progress.section("mappings", 0);
        let area = roots.mappings_area();
        let gone = gone.sorted().into_iter().map(|(id, block)| Root { block, area, device: Some(id) }).collect();
        walker.walk(MAPPING_TREE, gone, &visitor)
    });
    match findings.worst() {
        Some(Severity::Fatal) => Err(damaged(findings)),
        _ => Ok((visitor.counts, forest)),
    }
}

/// Gathers the devices of the leaves that go.
#[derive(Default)]
struct DeviceRoots(Mutex<Vec<(ThinId, BlockNr)>>);

impl DeviceRoots {
    fn sorted(self) -> Vec<(ThinId, BlockNr)> {
        let mut all = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.sort_unstable();
        all
    }
}

impl LeafVisitor for DeviceRoots {
    type Local = Vec<(ThinId, BlockNr)>;

    fn local(&self) -> Self::Local {
        Vec::new()
    }

    fn visit(&self, local: &mut Self::Local, leaf: &Node<'_>, _: Place, _: &mut Findings) {
        let entries = leaf.keys().iter().zip(leaf.values_u64());
        local.extend(entries.map(|(key, value)| (ThinId(key.get()), BlockNr(value.get()))));
    }

    fn finish(&self, mut local: Self::Local) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(&mut local);
    }
}
