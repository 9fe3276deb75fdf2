//! What a walk has learnt: the nodes of one kind of tree, each once, however many roots lead to it.

use crate::base::{Area, BlockNr, Code, KeyRange, Place, ThinId};
use crate::block::{BlockSource, ReadError};
use crate::format::node::{DEPTH_LIMIT, Node};
use std::ops::ControlFlow;

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
pub(super) const NO_NODE: u32 = u32::MAX;

pub(super) const GOOD: u8 = 1;
pub(super) const LEAF: u8 = 2;
pub(super) const RESOLVED: u8 = 4;
pub(super) const ACTIVE: u8 = 8;
pub(super) const DAMAGED_BELOW: u8 = 16;

/// What is known of a node and of the tree below it.
#[derive(Clone, Copy, Debug)]
pub struct NodeInfo {
    /// The lowest key below the node. Above `last` where there is none.
    pub first: u64,
    /// The highest key below the node.
    pub last: u64,
    /// Entries of the leaves below, as far as they can be read; each path counts.
    pub entries_below: u64,
    pub(super) block: u32,
    pub(super) parent: u32,
    pub(super) entries: u16,
    pub(super) height: u8,
    pub(super) state: u8,
}

impl NodeInfo {
    pub(super) fn new(block: u32, parent: u32) -> Self {
        NodeInfo { first: u64::MAX, last: 0, entries_below: 0, block, parent, entries: 0, height: 0, state: 0 }
    }

    /// Where the node lies.
    pub fn block(&self) -> BlockNr {
        BlockNr(u64::from(self.block))
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
    /// The leaf with this index.
    Leaf(u32),
    /// Keys that cannot be reached, and the block that should have led to them.
    Lost(KeyRange, BlockNr),
}

/// The nodes of one kind of tree.
#[derive(Debug)]
pub struct Forest {
    pub(super) value_size: usize,
    pub(super) roots: Vec<Root>,
    pub(super) nodes: Vec<NodeInfo>,
    /// Block to index in `nodes`.
    pub(super) index: Vec<u32>,
}

impl Forest {
    /// The roots, in the order in which they were given.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// All nodes that were reached, each once.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// The index of the node in `block`.
    pub fn find(&self, block: BlockNr) -> Option<u32> {
        let index = usize::try_from(block.0).ok().and_then(|block| self.index.get(block)).copied()?;
        (index != NO_NODE).then_some(index)
    }

    /// The node in `block`.
    pub fn info(&self, block: BlockNr) -> Option<&NodeInfo> {
        self.find(block).map(|index| &self.nodes[index as usize])
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
        let Some(mut index) = place.block.and_then(|block| self.find(block)) else { return };
        let mut level = 0u8;
        let mut keys = KeyRange { begin: 0, end: None };
        loop {
            let info = self.nodes[index as usize];
            if info.parent & PARENT_IS_ROOT != 0 {
                if let Some(root) = self.roots.get((info.parent & !PARENT_IS_ROOT) as usize) {
                    place.area = root.area;
                    place.device = root.device;
                }
                break;
            }
            let parent = &self.nodes[info.parent as usize];
            if let Some((key, bound)) = self.entry_of(source, parent, info.block()) {
                keys.begin = keys.begin.max(key);
                keys.end = keys.end.or(bound);
            }
            level = level.saturating_add(1);
            if usize::from(level) > DEPTH_LIMIT {
                break;
            }
            index = info.parent;
        }
        place.level = Some(level);
        place.keys = place.keys.or(Some(keys));
    }

    /// The key of the entry of `parent` that leads to `child`, and the key behind it.
    fn entry_of(&self, source: &dyn BlockSource, parent: &NodeInfo, child: BlockNr) -> Option<(u64, Option<u64>)> {
        let children = self.children(source, parent)?;
        let at = children.iter().position(|(_, block)| *block == child)?;
        Some((children[at].0, children.get(at + 1).map(|next| next.0)))
    }

    /// Keys and children of an internal node.
    pub(super) fn children(&self, source: &dyn BlockSource, info: &NodeInfo) -> Option<Vec<(u64, BlockNr)>> {
        let mut children = None;
        source.read_many(&[info.block()], &mut |_, block| {
            if let Ok(block) = block
                && let Ok(node) = Node::trusting_checksum(block, self.value_size)
                && !node.is_leaf()
            {
                let pairs = node.keys().iter().zip(node.values_u64());
                children = Some(pairs.map(|(key, value)| (key.get(), BlockNr(value.get()))).collect());
            }
            ControlFlow::Continue(())
        });
        children
    }

    /// The children of the node with this index; none where it is a leaf or cannot be read.
    pub fn child_blocks(&self, source: &dyn BlockSource, index: u32) -> Vec<BlockNr> {
        let Some(info) = self.nodes.get(index as usize).filter(|info| !info.is_leaf()) else { return Vec::new() };
        self.children(source, info).unwrap_or_default().into_iter().map(|(_, block)| block).collect()
    }

    /// Walks the tree below `root` in key order. `step` may stop the walk.
    ///
    /// A child that does not fit its place is passed as lost. Every leaf's keys lie above those before it, so no
    /// leaf comes twice.
    pub fn traverse(&self, source: &dyn BlockSource, root: BlockNr, step: &mut dyn FnMut(Step) -> ControlFlow<()>) {
        let everything = KeyRange { begin: 0, end: None };
        let Some(index) = self.find(root).filter(|index| self.nodes[*index as usize].is_good()) else {
            let _ = step(Step::Lost(everything, root));
            return;
        };
        if self.nodes[index as usize].is_leaf() {
            let _ = step(Step::Leaf(index));
            return;
        }
        let _ = self.traverse_below(source, index, everything, step);
    }

    /// Depth is bounded: a node's height is below [`DEPTH_LIMIT`] and above its children's.
    fn traverse_below(
        &self,
        source: &dyn BlockSource,
        index: u32,
        keys: KeyRange,
        step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let info = &self.nodes[index as usize];
        let Some(children) = self.children(source, info) else {
            return step(Step::Lost(keys, info.block()));
        };
        for (at, (key, block)) in children.iter().enumerate() {
            let bound = children.get(at + 1).map(|next| next.0).or(keys.end);
            let lost = Step::Lost(KeyRange { begin: *key, end: bound }, *block);
            let Some(child_index) = self.find(*block).filter(|child| self.nodes[*child as usize].is_good()) else {
                step(lost)?;
                continue;
            };
            let child = &self.nodes[child_index as usize];
            // Where the height is unknown there is nothing to find, at whatever depth.
            if Self::edge_fault(child, *key, bound, info.height).is_some() || child.height == HEIGHT_UNKNOWN {
                step(lost)?;
            } else if child.is_leaf() {
                step(Step::Leaf(child_index))?;
            } else {
                self.traverse_below(source, child_index, KeyRange { begin: *key, end: bound }, step)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Hands the entries below `root` to `entry`, in key order: key and value.
    ///
    /// # Errors
    /// The first leaf that was good during the walk and cannot be read now.
    pub fn entries(
        &self,
        source: &dyn BlockSource,
        root: BlockNr,
        entry: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), (BlockNr, ReadError)> {
        let mut leaves = Vec::new();
        self.traverse(source, root, &mut |step| {
            if let Step::Leaf(index) = step {
                leaves.push(self.nodes[index as usize].block());
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
                        node.keys().iter().zip(values).for_each(|(key, value)| entry(key.get(), value));
                    }
                }
            }
            ControlFlow::Continue(())
        });
        failed.map_or(Ok(()), Err)
    }
}
