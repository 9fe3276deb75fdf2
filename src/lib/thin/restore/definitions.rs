//! Definitions: leaves that devices share.

use super::fault::RestoreFault;
use super::mappings::{DeadLeaves, DefinitionSink, MappingSink, each_entry};
use crate::base::BlockNr;
use crate::format::node::max_entries;
use crate::pdata::build::{Child, EachEntry, LeafEntries, LeafRow, NodeSink, SharedLeaf, TreeBuilder};
use crate::pdata::commit::ImageWriter;
use crate::thin::items::{Position, RereadError, Runs};
use crate::thin::model::Run;

/// Mappings that a leaf has room for.
const LEAF: u64 = max_entries(8) as u64;

/// A complete definition: what is needed wherever it is referred to, and no more, as there may be many and
/// references jump about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Definition {
    /// The virtual block of its first mapping; meaningless where it has none.
    pub(super) first_key: u64,
    /// The virtual block of its last mapping; meaningless where it has none.
    pub(super) last_key: u64,
    /// How many mappings it has.
    pub(super) mapped: u64,
    /// The block of its leaf where it has one, else the place of the first in `Definitions::leaves`.
    leaf: u32,
    nr_leaves: u32,
}

const _: () = assert!(size_of::<Definition>() == 32);

/// What is seldom needed of a definition.
#[derive(Clone, Copy, Debug)]
struct Origin {
    /// Its first run.
    begin: Position,
    /// A run not behind the one that holds the first entry of its last leaf, and little before it.
    tail: Position,
    /// The tree over its leaves, once a device consists of them alone; 0 until then.
    root: u32,
}

/// A leaf of a definition that has several.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    first_key: u64,
    block: u32,
    len: u32,
}

impl Leaf {
    fn new(child: Child) -> Self {
        Leaf { first_key: child.first_key, block: child.block.0 as u32, len: child.len }
    }

    fn child(&self) -> Child {
        Child { first_key: self.first_key, block: BlockNr(self.block.into()), len: self.len }
    }
}

/// The definition that is being built.
#[derive(Debug, Default)]
struct Open {
    mapped: u64,
    first_key: u64,
    last_key: u64,
    /// How many leaves there were before.
    first_leaf: usize,
    begin: Position,
    /// Where the last two of its stretches of a leaf's length begin.
    stretches: [Position; 2],
}

/// All definitions so far. Takes 56 bytes for each, and 16 for each leaf of those with several.
pub(super) struct Definitions<'a> {
    complete: Vec<Definition>,
    origins: Vec<Origin>,
    leaves: Vec<Leaf>,
    row: LeafRow<8>,
    open: Open,
    /// Where runs can be read again.
    runs: &'a dyn Runs,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(runs: &'a dyn Runs) -> Self {
        Definitions {
            complete: Vec::new(),
            origins: Vec::new(),
            leaves: Vec::new(),
            row: LeafRow::default(),
            open: Open::default(),
            runs,
        }
    }

    /// Builds a run into the open definition; its keys are above those before.
    pub(super) fn push(&mut self, run: &Run, at: Position, sink: &mut MappingSink<'_, '_>) -> Result<(), RestoreFault> {
        let open = &mut self.open;
        if open.mapped == 0 {
            open.begin = at;
            open.first_key = run.thin_begin.0;
            open.first_leaf = self.leaves.len();
        }
        let before = open.mapped.div_ceil(LEAF);
        open.mapped += run.length;
        open.last_key = run.thin_begin.0 + (run.length - 1);
        match open.mapped.div_ceil(LEAF) - before {
            0 => {}
            1 => open.stretches = [open.stretches[1], at],
            _ => open.stretches = [at, at],
        }
        let leaves = &mut self.leaves;
        let mut sink = DefinitionSink(sink);
        each_entry(run, |key, value| self.row.push(key, value, &mut sink, &mut |child| leaves.push(Leaf::new(child))))?;
        Ok(())
    }

    /// Completes the open definition.
    pub(super) fn end(&mut self, sink: &mut MappingSink<'_, '_>) -> Result<(), RestoreFault> {
        let leaves = &mut self.leaves;
        self.row.finish(&mut DefinitionSink(sink), &mut |child| leaves.push(Leaf::new(child)))?;
        let open = std::mem::take(&mut self.open);
        let Open { mapped, first_key, last_key, .. } = open;
        let mut definition = Definition { first_key, last_key, mapped, leaf: open.first_leaf as u32, nr_leaves: 0 };
        if mapped > 0 {
            definition.nr_leaves = (self.leaves.len() - open.first_leaf) as u32;
        }
        if let (1, Some(leaf)) = (definition.nr_leaves, self.leaves.last()) {
            definition.leaf = leaf.block;
            self.leaves.pop();
        }
        self.complete.push(definition);
        let tail = if mapped > LEAF { open.stretches[0] } else { open.begin };
        self.origins.push(Origin { begin: open.begin, tail, root: 0 });
        Ok(())
    }

    /// A complete definition.
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Definition {
        &self.complete[number as usize]
    }

    /// Brings what references to these definitions need into the processor's cache: read one by one, each would be
    /// waited for.
    pub(super) fn warm(&self, numbers: &[u32], image: &ImageWriter<'_>) {
        let touch = |number: &u32| {
            let definition = self.get(*number);
            definition.first_key ^ u64::from(image.count(BlockNr(definition.leaf.into())))
        };
        std::hint::black_box(numbers.iter().map(touch).fold(0, |all, one| all ^ one));
    }

    /// The leaf of that place in a definition.
    fn leaf(&self, definition: &Definition, index: u32) -> Child {
        match definition.nr_leaves {
            1 => {
                let block = BlockNr(definition.leaf.into());
                Child { first_key: definition.first_key, block, len: definition.mapped as u32 }
            }
            _ => self.leaves[(definition.leaf + index) as usize].child(),
        }
    }

    /// Puts a definition into a tree.
    pub(super) fn share(
        &mut self,
        number: u32,
        tree: &mut TreeBuilder<8>,
        sink: &mut MappingSink<'_, '_>,
    ) -> Result<(), RestoreFault> {
        let definition = *self.get(number);
        for index in 0..definition.nr_leaves {
            let leaf = SharedLeaf { child: self.leaf(&definition, index), handle: number };
            tree.share(leaf, self, sink)?;
        }
        Ok(())
    }

    /// Completes a tree in which definitions may be.
    pub(super) fn finish(
        &mut self,
        tree: &mut TreeBuilder<8>,
        sink: &mut MappingSink<'_, '_>,
    ) -> Result<BlockNr, RestoreFault> {
        tree.finish(self, sink)
    }

    /// The tree of a device that consists of one definition: all such devices share it.
    pub(super) fn root(
        &mut self,
        number: u32,
        tree: &mut TreeBuilder<8>,
        sink: &mut MappingSink<'_, '_>,
    ) -> Result<BlockNr, RestoreFault> {
        let definition = *self.get(number);
        let root = match definition.nr_leaves {
            1 => definition.leaf,
            _ => self.origins[number as usize].root,
        };
        if root != 0 || definition.nr_leaves == 1 {
            sink.share(BlockNr(root.into()));
            return Ok(BlockNr(root.into()));
        }
        self.share(number, tree, sink)?;
        let root = self.finish(tree, sink)?;
        self.origins[number as usize].root = root.0 as u32;
        Ok(root)
    }

    /// The leaves that nothing refers to.
    pub(super) fn dead_leaves(&self, image: &ImageWriter<'_>) -> DeadLeaves {
        let leaves = self
            .complete
            .iter()
            .flat_map(|definition| (0..definition.nr_leaves).map(|index| self.leaf(definition, index)));
        (0..).zip(leaves).filter(|(_, leaf)| image.count(leaf.block) == 0).map(|(index, _)| index).collect()
    }
}

/// Entries are copied where a leaf can't be shared.
impl LeafEntries<8, RestoreFault> for Definitions<'_> {
    fn entries(&mut self, leaf: &SharedLeaf, each: &mut EachEntry<'_, 8, RestoreFault>) -> Result<(), RestoreFault> {
        let (definition, origin) = (self.get(leaf.handle), &self.origins[leaf.handle as usize]);
        let last = self.leaf(definition, definition.nr_leaves.saturating_sub(1));
        let at = if leaf.child.first_key == last.first_key { origin.tail } else { origin.begin };
        let (first_key, mut left) = (leaf.child.first_key, u64::from(leaf.child.len));
        let mut result = Ok(());
        self.runs.runs_from(at, &mut |run| {
            let skipped = first_key.saturating_sub(run.thin_begin.0).min(run.length);
            let taken = (run.length - skipped).min(left);
            left -= taken;
            result = each_entry(&run.part(skipped, taken), |key, value| each(key, value));
            result.is_ok() && left > 0
        })?;
        result?;
        if left > 0 { Err(RereadError::Changed.into()) } else { Ok(()) }
    }
}
