//! What a walk has learnt: the nodes of one kind of tree, each once, however many roots lead to it.

use crate::base::{Area, BlockNr, Code, KeyRange, Place, ThinId};
use crate::block::{BlockSource, ReadError};
use crate::format::node::{DEPTH_LIMIT, Node};
use std::mem::size_of;
use std::ops::ControlFlow;
use zerocopy::FromZeros;

/// A root from which a walk starts.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Its block.
    pub block: BlockNr,
    /// The structure that it is the root of.
    pub area: Area,
    /// The thin device, where the tree belongs to one.
    pub device: Option<ThinId>,
}

/// Set in `NodeInfo::parent` where the parent is a root's pointer; the other bits are the root's index.
pub(super) const PARENT_IS_ROOT: u32 = 1 << 31;
/// Height of an internal node below which no leaf can be read.
pub(super) const HEIGHT_UNKNOWN: u8 = u8::MAX;

pub(super) const GOOD: u8 = 1;
pub(super) const LEAF: u8 = 2;
pub(super) const RESOLVED: u8 = 4;
pub(super) const ACTIVE: u8 = 8;
pub(super) const DAMAGED_BELOW: u8 = 16;
pub(super) const REACHED: u8 = 32;

/// What is known of a node and of the tree below it. All zeros where no pointer led to the block.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub struct NodeInfo {
    /// The lowest key below the node. Above `last` where there is none.
    pub first: u64,
    /// The highest key below the node.
    pub last: u64,
    /// Entries of the leaves below, as far as they can be read; each path counts.
    pub entries_below: u64,
    pub(super) parent: u32,
    pub(super) entries: u16,
    pub(super) height: u8,
    pub(super) state: u8,
}

const _: () = assert!(size_of::<NodeInfo>() == 32);

impl NodeInfo {
    pub(super) fn reached_from(parent: u32) -> Self {
        NodeInfo { first: u64::MAX, last: 0, entries_below: 0, parent, entries: 0, height: 0, state: REACHED }
    }

    /// Whether it is a leaf.
    pub fn is_leaf(&self) -> bool {
        self.state & LEAF != 0
    }

    /// Whether the node can be read and used: it is whole, and not below itself.
    pub fn is_good(&self) -> bool {
        self.state & (GOOD | RESOLVED) == GOOD | RESOLVED
    }

    /// Whether the node and all below it can be used.
    pub fn is_whole(&self) -> bool {
        self.state & (GOOD | RESOLVED | DAMAGED_BELOW) == GOOD | RESOLVED
    }

    /// Levels below this one; 0 for a leaf. `None` where no leaf below can be read.
    pub fn height(&self) -> Option<u8> {
        (self.height != HEIGHT_UNKNOWN).then_some(self.height)
    }

    /// Whether there is no key below it.
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }
}

/// One step of a walk through a tree in key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The leaf in this block.
    Leaf(BlockNr),
    /// Keys that cannot be reached, and the block that should have led to them.
    Lost(KeyRange, BlockNr),
}

/// The nodes of one kind of tree. Takes 32 bytes per block up to the highest that was reached.
#[derive(Debug)]
pub struct Forest {
    pub(super) value_size: usize,
    pub(super) roots: Vec<Root>,
    /// By block.
    pub(super) nodes: Vec<NodeInfo>,
    /// Blocks that were reached, in the order in which they were.
    pub(super) reached: Vec<u32>,
}

impl Forest {
    /// A forest without nodes for metadata of `nr_blocks` blocks.
    pub(super) fn new(value_size: usize, roots: Vec<Root>, nr_blocks: u64) -> Forest {
        // Zeroed memory comes from the kernel page by page, as it is touched.
        let nodes = NodeInfo::new_vec_zeroed(nr_blocks as usize).unwrap_or_default();
        Forest { value_size, roots, nodes, reached: Vec::new() }
    }

    /// Blocks that there may be nodes in.
    pub fn nr_blocks(&self) -> usize {
        self.nodes.len()
    }

    /// The roots, in the order in which they were given.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// All blocks that were reached, each once.
    pub fn reached(&self) -> impl DoubleEndedIterator<Item = BlockNr> + ExactSizeIterator {
        self.reached.iter().map(|block| BlockNr(u64::from(*block)))
    }

    /// The node in `block`, where one was reached.
    #[inline]
    pub fn info(&self, block: BlockNr) -> Option<&NodeInfo> {
        let info = usize::try_from(block.0).ok().and_then(|block| self.nodes.get(block))?;
        (info.state & REACHED != 0).then_some(info)
    }

    /// Takes in a leaf that no good node leads to, and that was verified otherwise.
    pub fn adopt_leaf(&mut self, block: BlockNr, first: u64, last: u64, entries: u16) {
        let Some(info) = usize::try_from(block.0).ok().and_then(|block| self.nodes.get_mut(block)) else { return };
        if info.state & REACHED == 0 {
            self.reached.push(block.0 as u32);
        }
        *info = NodeInfo { first, last, entries_below: u64::from(entries), entries, ..NodeInfo::reached_from(0) };
        info.state |= GOOD | LEAF | RESOLVED;
    }

    /// Whether every root leads to a whole tree.
    pub fn is_whole(&self) -> bool {
        self.roots.iter().all(|root| self.info(root.block).is_some_and(NodeInfo::is_whole))
    }

    /// The first reason why a child may not hang below an entry with this key and bound, in a node of `height`.
    pub(super) fn edge_fault(child: &NodeInfo, key: u64, bound: Option<u64>, height: u8) -> Option<Code> {
        if child.is_empty() {
            return (child.is_whole()).then_some(Code::NodeEmpty);
        }
        if child.first < key || bound.is_some_and(|bound| child.last >= bound) {
            return Some(Code::NodeKeyRange);
        }
        let known = child.height != HEIGHT_UNKNOWN && height != HEIGHT_UNKNOWN;
        (known && child.height + 1 != height).then_some(Code::NodeDepth)
    }

    /// Completes a finding's place from the way that led to its block.
    pub fn locate(&self, source: &dyn BlockSource, place: &mut Place) {
        let Some(mut block) = place.block else { return };
        let Some(mut info) = self.info(block) else { return };
        let mut level = 0u8;
        let mut keys = KeyRange { begin: 0, end: None };
        loop {
            if info.parent & PARENT_IS_ROOT != 0 {
                if let Some(root) = self.roots.get((info.parent & !PARENT_IS_ROOT) as usize) {
                    place.area = root.area;
                    place.device = root.device;
                }
                break;
            }
            let parent = BlockNr(u64::from(info.parent));
            if let Some((key, bound)) = self.entry_of(source, parent, block) {
                keys.begin = keys.begin.max(key);
                keys.end = keys.end.or(bound);
            }
            level = level.saturating_add(1);
            let Some(above) = self.info(parent).filter(|_| usize::from(level) <= DEPTH_LIMIT) else { break };
            (block, info) = (parent, above);
        }
        place.level = Some(level);
        place.keys = place.keys.or(Some(keys));
    }

    /// The key of the entry of `parent` that leads to `child`, and the key behind it.
    fn entry_of(&self, source: &dyn BlockSource, parent: BlockNr, child: BlockNr) -> Option<(u64, Option<u64>)> {
        let children = self.children(source, parent)?;
        let at = children.iter().position(|(_, block)| *block == child)?;
        Some((children[at].0, children.get(at + 1).map(|next| next.0)))
    }

    /// Keys and children of the internal node in `block`.
    pub fn children(&self, source: &dyn BlockSource, block: BlockNr) -> Option<Vec<(u64, BlockNr)>> {
        let mut children = None;
        self.with_node(source, block, &mut |node| {
            let pairs = node.keys().iter().zip(node.values_u64());
            children = Some(pairs.map(|(key, value)| (key.get(), BlockNr(value.get()))).collect());
        });
        children
    }

    /// Lends the internal node in `block`, which was good when it was walked.
    pub(super) fn with_node(&self, source: &dyn BlockSource, block: BlockNr, look: &mut dyn FnMut(&Node<'_>)) {
        source.read_many(&[block], &mut |_, block| {
            if let Ok(block) = block
                && let Ok(node) = Node::trusting_checksum(block, self.value_size)
                && !node.is_leaf()
            {
                look(&node);
            }
            ControlFlow::Continue(())
        });
    }

    /// Walks the tree below `root` in key order. `step` may stop the walk.
    ///
    /// A child that does not fit its place is passed as lost. Every leaf's keys lie above those before it, so no
    /// leaf comes twice.
    pub fn traverse(&self, source: &dyn BlockSource, root: BlockNr, step: &mut dyn FnMut(Step) -> ControlFlow<()>) {
        self.traverse_where(source, root, &|_| true, step);
    }

    /// The same, but passes over everything that is whole: the steps are what is lost, and leaves beside it.
    pub fn traverse_damage(
        &self,
        source: &dyn BlockSource,
        root: BlockNr,
        step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) {
        self.traverse_where(source, root, &|info| !info.is_whole(), step);
    }

    /// Goes down only into nodes for which `enter` holds.
    fn traverse_where(
        &self,
        source: &dyn BlockSource,
        root: BlockNr,
        enter: &dyn Fn(&NodeInfo) -> bool,
        step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) {
        let everything = KeyRange { begin: 0, end: None };
        let _ = match self.info(root).filter(|info| info.is_good()) {
            None => step(Step::Lost(everything, root)),
            Some(info) if info.is_leaf() => step(Step::Leaf(root)),
            Some(info) if !enter(info) => ControlFlow::Continue(()),
            Some(info) => self.traverse_below(source, (root, info.height), everything, enter, step),
        };
    }

    /// Depth is bounded: a node's height is below [`DEPTH_LIMIT`] and above its children's.
    fn traverse_below(
        &self,
        source: &dyn BlockSource,
        (block, height): (BlockNr, u8),
        keys: KeyRange,
        enter: &dyn Fn(&NodeInfo) -> bool,
        step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(children) = self.children(source, block) else {
            return step(Step::Lost(keys, block));
        };
        for (at, (key, block)) in children.iter().enumerate() {
            let keys = KeyRange { begin: *key, end: children.get(at + 1).map(|next| next.0).or(keys.end) };
            let child = self.info(*block).filter(|child| {
                // Where no key is known there is nothing to find; and only keys bound the number of ways down.
                let found = child.is_good() && child.height != HEIGHT_UNKNOWN && !child.is_empty();
                found && Self::edge_fault(child, keys.begin, keys.end, height).is_none()
            });
            match child {
                None => step(Step::Lost(keys, *block))?,
                Some(child) if child.is_leaf() => step(Step::Leaf(*block))?,
                Some(child) if !enter(child) => {}
                Some(child) => self.traverse_below(source, (*block, child.height), keys, enter, step)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Hands the entries below `root` to `entry`, in key order: the leaf, key and value.
    ///
    /// # Errors
    /// The first leaf that was good during the walk and cannot be read now.
    pub fn entries(
        &self,
        source: &dyn BlockSource,
        root: BlockNr,
        entry: &mut dyn FnMut(BlockNr, u64, &[u8]),
    ) -> Result<(), (BlockNr, ReadError)> {
        let mut leaves = Vec::new();
        self.traverse(source, root, &mut |step| {
            if let Step::Leaf(block) = step {
                leaves.push(block);
            }
            ControlFlow::Continue(())
        });
        let mut failed = None;
        source.read_many(&leaves, &mut |location, block| {
            match block {
                Err(error) => {
                    failed = Some((location, error));
                    return ControlFlow::Break(());
                }
                Ok(block) => {
                    if let Ok(node) = Node::trusting_checksum(block, self.value_size) {
                        let values = node.value_bytes().chunks_exact(self.value_size);
                        node.keys().iter().zip(values).for_each(|(key, value)| entry(location, key.get(), value));
                    }
                }
            }
            ControlFlow::Continue(())
        });
        failed.map_or(Ok(()), Err)
    }
}
