//! A pool as it is going to be written: which devices, and which leaves hold their mappings.
//!
//! Dumps make text of it, repairs make metadata. It is made strictly by a dump, and from what can be found by a
//! salvage.

use super::model::{Device, Pool};
use super::sharing::{Place, Sharing};
use crate::base::BlockNr;
use crate::block::BlockSource;
use crate::pdata::forest::{Forest, Step};
use std::ops::ControlFlow;

/// Where the mappings of a device are.
#[derive(Clone, Debug)]
pub enum Leaves {
    /// In the whole tree below this block.
    Tree(BlockNr),
    /// In these blocks, in key order: what is left of a damaged tree.
    List(Vec<u32>),
    /// They are not asked for.
    Skipped,
}

/// A device and its mappings.
#[derive(Clone, Debug)]
pub struct DocumentDevice {
    /// What its details say.
    pub device: Device,
    /// Its mappings.
    pub leaves: Leaves,
}

/// A pool, before it is written.
#[derive(Debug)]
pub struct Document {
    /// The pool.
    pub pool: Pool,
    /// Its devices, by id.
    pub devices: Vec<DocumentDevice>,
    /// The nodes of their trees.
    pub forest: Forest,
    /// Mappings that lead past so many data blocks are left out; times above this one are lowered to it, so that the
    /// blocks count as shared. `None` where mappings are written as they are.
    pub limits: Option<(u64, u32)>,
    /// Which runs of leaves are shared; `None` where they are to be repeated.
    pub sharing: Option<Sharing>,
}

/// What comes next in a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The mappings of this leaf, which is not empty.
    Leaf(BlockNr),
    /// The shared run of this number: its place in [`Document::shared_runs`].
    Shared(u32),
}

impl Document {
    /// Finds out which runs of leaves are shared.
    pub fn find_sharing(&mut self, source: &dyn BlockSource) {
        let mut sharing = Sharing::new(&self.forest, source);
        for device in &self.devices {
            match &device.leaves {
                Leaves::Tree(root) => sharing.add_tree(*root),
                Leaves::List(leaves) => {
                    let filled =
                        |leaf: &&u32| self.forest.info(BlockNr(u64::from(**leaf))).is_some_and(|i| !i.is_empty());
                    sharing.add_sequence(&leaves.iter().filter(filled).copied().collect::<Vec<_>>());
                }
                Leaves::Skipped => {}
            }
        }
        sharing.settle(&self.forest, source);
        sharing.number_runs(&self.forest, source, self.devices.iter().map(|device| &device.leaves));
        self.sharing = Some(sharing);
    }

    /// The first leaves of all shared runs, in the order in which they appear in the devices.
    pub fn shared_runs(&self) -> &[BlockNr] {
        self.sharing.as_ref().map(Sharing::heads).unwrap_or_default()
    }

    /// The leaves of the shared run that begins with `head`.
    pub fn shared_run(&self, head: BlockNr) -> Vec<BlockNr> {
        self.sharing.as_ref().map(|sharing| sharing.run(head)).unwrap_or_default()
    }

    /// Goes through a device in key order. `each` may stop it.
    pub fn pieces(
        &self,
        source: &dyn BlockSource,
        device: &DocumentDevice,
        each: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) {
        let mut leaf = |block: BlockNr| {
            if self.forest.info(block).is_none_or(|info| info.is_empty()) {
                return ControlFlow::Continue(());
            }
            let Some(sharing) = &self.sharing else { return each(Piece::Leaf(block)) };
            match sharing.place(block) {
                Place::Own => each(Piece::Leaf(block)),
                Place::Head => each(Piece::Shared(sharing.number(block))),
                Place::Inside => ControlFlow::Continue(()),
            }
        };
        match &device.leaves {
            Leaves::Tree(root) => self.forest.traverse(source, *root, &mut |step| match step {
                Step::Leaf(block) => leaf(block),
                Step::Lost(..) => ControlFlow::Continue(()),
            }),
            Leaves::List(blocks) => {
                let _ = blocks.iter().try_for_each(|block| leaf(BlockNr(u64::from(*block))));
            }
            Leaves::Skipped => {}
        }
    }
}
