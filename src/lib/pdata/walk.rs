//! The one walk over btrees: level by level, each node once, in disk order, on all threads.
//!
//! First the levels are read from the roots down; every block is verified by itself. Then what is known of the
//! leaves is carried up, and every pointer is held against what is below it: key ranges, depths, occupancy. So a
//! node that a thousand devices share is read once, and each of its parents still gets its own verdict.

use super::forest::{
    ACTIVE, DAMAGED_BELOW, Forest, GOOD, HEIGHT_UNKNOWN, LEAF, NodeInfo, PARENT_IS_ROOT, RESOLVED, Root,
};
use super::ledger::{BlockUse, Ledger, Referred};
use crate::base::{Area, BlockNr, Code, Finding, Findings, KeyRange, Place, Progress};
use crate::block::{BlockSource, ReadError};
use crate::format::node::{self, DEPTH_LIMIT, Node, NodeFault};
use crate::format::{Block, BlockFault};
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

/// Nodes that one task reads: 2 MiB.
const TASK_NODES: usize = 512;

/// What kind of tree a walk is about.
#[derive(Clone, Copy, Debug)]
pub struct TreeKind {
    /// Bytes of a leaf's value.
    pub value_size: usize,
    /// What the ledger calls its nodes.
    pub block_use: BlockUse,
    /// Whether leaves below the root must be a third full. The kernel leaves those of mappings emptier when it
    /// discards ranges.
    pub leaves_filled: bool,
}

/// Looks at the entries of leaves. Called from several threads, in no order.
pub trait LeafVisitor: Sync {
    /// What a thread keeps for itself between leaves.
    type Local: Send;
    /// A fresh one.
    fn local(&self) -> Self::Local;
    /// A leaf whose checksum, header and key order are good. `place` is for findings.
    fn visit(&self, local: &mut Self::Local, leaf: &Node<'_>, place: Place, findings: &mut Findings);
    /// Every leaf has been visited.
    fn finish(&self, local: Self::Local);
}

/// Does not look at entries.
#[derive(Debug, Clone, Copy)]
pub struct NoVisitor;

impl LeafVisitor for NoVisitor {
    type Local = ();
    fn local(&self) {}
    fn visit(&self, (): &mut (), _: &Node<'_>, _: Place, _: &mut Findings) {}
    fn finish(&self, (): ()) {}
}

/// What a walk reads from and writes to.
pub struct Walker<'a> {
    /// The metadata.
    pub source: &'a dyn BlockSource,
    /// Where references are counted and kinds are remembered.
    pub ledger: &'a mut Ledger,
    /// Where damage goes.
    pub findings: &'a mut Findings,
    /// Told about every node that was read.
    pub progress: &'a dyn Progress,
}

impl Walker<'_> {
    /// Walks the trees below `roots`. Each root counts as one reference to its block.
    pub fn walk<V: LeafVisitor>(&mut self, kind: TreeKind, roots: Vec<Root>, visitor: &V) -> Forest {
        let mut found = Findings::new();
        let mut forest = Forest::new(kind.value_size, roots, self.ledger.nr_blocks());
        let mut frontier = self.root_frontier(kind, &forest, &mut found);
        let locals = Mutex::new(Vec::new());
        while !frontier.is_empty() {
            frontier.sort_unstable();
            let begin = forest.reached.len();
            for (block, parent) in frontier.drain(..) {
                forest.nodes[block as usize] = NodeInfo::reached_from(parent);
                forest.reached.push(block);
            }
            self.read_level(kind, &mut forest, begin, visitor, &locals, &mut found);
            frontier = self.next_frontier(kind, &forest, begin, &mut found);
        }
        for local in locals.into_inner().unwrap_or_else(PoisonError::into_inner) {
            visitor.finish(local);
        }
        Resolver { kind, source: self.source, forest: &mut forest, found: &mut found }.resolve_all();
        let source = self.source;
        found.relocate(&mut |place| forest.locate(source, place));
        self.findings.append(found);
        forest
    }

    fn root_frontier(&mut self, kind: TreeKind, forest: &Forest, found: &mut Findings) -> Vec<(u32, u32)> {
        let mut frontier = Vec::new();
        for (index, root) in forest.roots.iter().enumerate() {
            let referred = self.ledger.refer(root.block, kind.block_use);
            let place = Place { device: root.device, level: Some(0), ..Place::block(root.area, root.block) };
            if self.follow(referred, root.block, place, found) {
                frontier.push((root.block.0 as u32, PARENT_IS_ROOT | index as u32));
            }
        }
        frontier
    }

    /// Whether a block that was referred to is to be read; says why it cannot be.
    fn follow(&self, referred: Referred, block: BlockNr, place: Place, found: &mut Findings) -> bool {
        let (code, detail) = match referred {
            Referred::First => return true,
            Referred::Again => return false,
            Referred::Zero => (Code::BlockNone, String::new()),
            Referred::Uncounted => (Code::MetadataCountLow, String::new()),
            Referred::OutOfRange => (Code::BlockOutOfRange, format!("block {block} of {}", self.ledger.nr_blocks())),
            Referred::Conflict(other) => {
                (Code::BlockSharedByKinds, format!("block {block} belongs to {}", other.word()))
            }
        };
        found.push(Finding::with(code, place, detail));
        false
    }

    /// Reads the nodes that were reached from `begin` on.
    fn read_level<V: LeafVisitor>(
        &self,
        kind: TreeKind,
        forest: &mut Forest,
        begin: usize,
        visitor: &V,
        locals: &Mutex<Vec<V::Local>>,
        found: &mut Findings,
    ) {
        let task = |blocks: &[u32]| {
            let mut local = locals.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let keeper = local.get_or_insert_with(|| visitor.local());
            let (mut infos, mut findings) = (Vec::with_capacity(blocks.len()), Findings::new());
            let blocks: Vec<BlockNr> = blocks.iter().map(|block| BlockNr(u64::from(*block))).collect();
            self.source.read_many(&blocks, &mut |location, block| {
                infos.push(inspect(kind, location, block, visitor, keeper, &mut findings));
                ControlFlow::Continue(())
            });
            self.progress.advance(blocks.len() as u64);
            locals.lock().unwrap_or_else(PoisonError::into_inner).extend(local);
            (infos, findings)
        };
        let (nodes, level) = (&mut forest.nodes, &forest.reached[begin..]);
        let mut take = |blocks: &[u32], (infos, findings): (Vec<NodeInfo>, Findings)| {
            for (block, info) in blocks.iter().zip(infos) {
                let parent = nodes[*block as usize].parent;
                nodes[*block as usize] = NodeInfo { parent, ..info };
            }
            found.append(findings);
        };
        if level.len() <= 2 * TASK_NODES {
            // Not worth a second thread, which would have to be started first.
            level.chunks(TASK_NODES).for_each(|blocks| take(blocks, task(blocks)));
        } else {
            let all: Vec<_> = level.par_chunks(TASK_NODES).map(task).collect();
            level.chunks(TASK_NODES).zip(all).for_each(|(blocks, result)| take(blocks, result));
        }
    }

    /// Counts the pointers of the internal nodes from `begin` on; returns the blocks that are new.
    fn next_frontier(
        &mut self,
        kind: TreeKind,
        forest: &Forest,
        begin: usize,
        found: &mut Findings,
    ) -> Vec<(u32, u32)> {
        let mut frontier = Vec::new();
        let internals: Vec<BlockNr> = forest.reached[begin..]
            .iter()
            .filter(|block| forest.nodes[**block as usize].state & (GOOD | LEAF) == GOOD)
            .map(|block| BlockNr(u64::from(*block)))
            .collect();
        self.source.read_many(&internals, &mut |location, block| {
            let parent = location.0 as u32;
            let Some(node) = block.ok().and_then(|block| Node::trusting_checksum(block, kind.value_size).ok()) else {
                return ControlFlow::Continue(());
            };
            for (at, value) in node.values_u64().iter().enumerate() {
                let child = BlockNr(value.get());
                match self.ledger.refer(child, kind.block_use) {
                    Referred::First => frontier.push((child.0 as u32, parent)),
                    Referred::Again => {}
                    refused => {
                        let end = node.keys().get(at + 1).map(|key| key.get());
                        let keys = Some(KeyRange { begin: node.key(at), end });
                        let place = Place { keys, ..Place::block(Area::Mappings, location) };
                        self.follow(refused, child, place, found);
                    }
                }
            }
            ControlFlow::Continue(())
        });
        frontier
    }
}

/// Verifies one node by itself.
fn inspect<V: LeafVisitor>(
    kind: TreeKind,
    location: BlockNr,
    block: Result<&Block, ReadError>,
    visitor: &V,
    local: &mut V::Local,
    findings: &mut Findings,
) -> NodeInfo {
    let mut info = NodeInfo::reached_from(0);
    let place = Place::block(Area::Mappings, location);
    let node = match block.map(|block| node::verify(block, location, kind.value_size)) {
        Ok(Ok(node)) => node,
        Ok(Err(fault)) => {
            findings.push(node_finding(fault, place));
            return info;
        }
        Err(error) => {
            findings.push(Finding::with(Code::BlockUnreadable, place, error.to_string()));
            return info;
        }
    };
    if let Some(at) = node.first_out_of_order() {
        let detail = format!("entry {at} has key {} after {}", node.key(at), node.key(at - 1));
        findings.push(Finding::with(Code::NodeKeyOrder, place, detail));
        return info;
    }
    let wanted = node::max_entries(node.value_size());
    if node.max_entries() != wanted {
        let detail = format!("{} instead of {wanted}", node.max_entries());
        findings.push(Finding::with(Code::NodeMaxEntries, place, detail));
        // Values lie behind the room for keys: where that is another size, they are not where they were written.
        return info;
    }
    info.entries = node.len() as u16;
    if let (Some(first), Some(last)) = (node.keys().first(), node.keys().last()) {
        (info.first, info.last) = (first.get(), last.get());
    }
    if node.is_leaf() {
        info.entries_below = node.len() as u64;
        info.state |= GOOD | LEAF | RESOLVED;
        visitor.visit(local, &node, place, findings);
    } else if node.is_empty() {
        findings.push(Finding::with(Code::NodeEmpty, place, "an internal node"));
    } else {
        info.state |= GOOD;
    }
    info
}

/// The finding for a block that is no usable node.
pub fn node_finding(fault: NodeFault, place: Place) -> Finding {
    let code = match fault {
        NodeFault::Block(fault) => return block_finding(fault, place),
        NodeFault::Flags(_) => Code::NodeFlags,
        NodeFault::Capacity { .. } => Code::NodeCapacity,
        NodeFault::Entries { .. } => Code::NodeEntries,
        NodeFault::ValueSize { .. } => Code::NodeValueSize,
    };
    Finding::with(code, place, fault.to_string())
}

/// The finding for a block that is not of the kind that it should be.
pub fn block_finding(fault: BlockFault, place: Place) -> Finding {
    let code = match fault {
        BlockFault::Zeroed => return Finding::new(Code::BlockZeroed, place),
        BlockFault::Checksum { .. } => Code::BlockChecksum,
        BlockFault::OtherKind(_) => Code::BlockOtherKind,
        BlockFault::Moved(_) => Code::BlockMoved,
    };
    Finding::with(code, place, fault.to_string())
}

/// Carries what is known of the leaves up to the roots.
struct Resolver<'a> {
    kind: TreeKind,
    source: &'a dyn BlockSource,
    forest: &'a mut Forest,
    found: &'a mut Findings,
}

impl Resolver<'_> {
    fn resolve_all(&mut self) {
        let mut children = Vec::new();
        // Children are mostly found after their parents, so going backwards finds them resolved.
        for at in (0..self.forest.reached.len()).rev() {
            let block = BlockNr(u64::from(self.forest.reached[at]));
            if self.is_open(block) {
                self.resolve(block, &mut children);
            }
        }
    }

    /// Whether it is a good node that waits for those below it.
    fn is_open(&self, block: BlockNr) -> bool {
        self.forest.info(block).is_some_and(|info| info.state & (GOOD | RESOLVED | ACTIVE) == GOOD)
    }

    /// Resolves a node after those below it, without recursion: a damaged tree may be of any depth.
    fn resolve(&mut self, block: BlockNr, children: &mut Vec<(u64, BlockNr)>) {
        let mut stack = vec![block];
        while let Some(top) = stack.last().copied() {
            self.forest.nodes[top.0 as usize].state |= ACTIVE;
            children.clear();
            self.forest.with_node(self.source, top, &mut |node| {
                let pairs = node.keys().iter().zip(node.values_u64());
                children.extend(pairs.map(|(key, value)| (key.get(), BlockNr(value.get()))));
            });
            match children.iter().find(|(_, child)| self.is_open(*child)) {
                Some((_, child)) => stack.push(*child),
                None => {
                    stack.pop();
                    self.combine(top, children);
                }
            }
        }
    }

    /// Holds a node's pointers against what is below them.
    fn combine(&mut self, block: BlockNr, children: &[(u64, BlockNr)]) {
        let mut info = self.forest.nodes[block.0 as usize];
        let (mut first, mut last, mut below, mut damaged) = (u64::MAX, 0, 0u64, children.is_empty());
        let height_of = |block: BlockNr| self.forest.info(block).filter(|child| child.is_good())?.height();
        let heights = children.iter().filter_map(|(_, child)| height_of(*child));
        info.height = heights.map(|height| height + 1).next().unwrap_or(HEIGHT_UNKNOWN);
        for (at, (key, child_block)) in children.iter().enumerate() {
            let edge = Edge { parent: block, height: info.height, key: *key, at, child: *child_block };
            let child = self.forest.info(*child_block).copied();
            let Some(child) = child.filter(|child| self.edge_is_good(&edge, child, children)) else {
                damaged = true;
                continue;
            };
            damaged |= !child.is_whole();
            (first, last) = (first.min(child.first), last.max(child.last));
            below = below.saturating_add(child.entries_below);
        }
        info.state = (info.state & !ACTIVE) | RESOLVED | if damaged { DAMAGED_BELOW } else { 0 };
        if info.height().is_some_and(|height| usize::from(height) > DEPTH_LIMIT) {
            let detail = format!("{} levels", info.height);
            self.found.push(Finding::with(Code::NodeDepth, Place::block(Area::Mappings, block), detail));
            info.state &= !GOOD;
        }
        (info.first, info.last, info.entries_below) = (first, last, below);
        self.forest.nodes[block.0 as usize] = info;
    }

    fn edge_is_good(&mut self, edge: &Edge, child: &NodeInfo, children: &[(u64, BlockNr)]) -> bool {
        let bound = children.get(edge.at + 1).map(|next| next.0);
        let place = || Place {
            keys: Some(KeyRange { begin: edge.key, end: bound }),
            ..Place::block(Area::Mappings, edge.child)
        };
        if child.state & ACTIVE != 0 {
            self.found.push(Finding::new(Code::NodeCycle, place()));
            return false;
        }
        if !child.is_good() {
            return false;
        }
        if let Some(code) = Forest::edge_fault(child, edge.key, bound, edge.height) {
            let twice = children.iter().filter(|(_, block)| *block == edge.child).count() > 1;
            let (code, detail) = match code {
                Code::NodeKeyRange if twice => (Code::NodeTwice, format!("both from block {}", edge.parent)),
                Code::NodeKeyRange => (code, format!("it has {}..={}", child.first, child.last)),
                Code::NodeDepth => (code, format!("{} levels below it, others {}", child.height, edge.height - 1)),
                other => (other, String::new()),
            };
            self.found.push(Finding::with(code, place(), detail));
            return false;
        }
        if let Some(key) = self.first_key(edge.child, child).filter(|key| *key < edge.key) {
            // What is below is where it belongs, so nothing is lost.
            let detail = format!("its first key is {key}, that of its parent {}", edge.key);
            self.found.push(Finding::with(Code::NodeKeyRange, place(), detail));
        }
        // Occupancy is judged once, however many parents there are.
        let exempt = child.is_leaf() && !self.kind.leaves_filled;
        if !exempt && u64::from(child.parent) == edge.parent.0 {
            let capacity = node::max_entries(if child.is_leaf() { self.kind.value_size } else { 8 });
            if usize::from(child.entries) < capacity / 3 {
                let detail = format!("{} of {capacity} entries", child.entries);
                self.found.push(Finding::with(Code::NodeUnderfull, place(), detail));
            }
        }
        true
    }

    /// The first key of an internal node, which may lie before all that is below.
    fn first_key(&self, block: BlockNr, info: &NodeInfo) -> Option<u64> {
        let mut first = None;
        if !info.is_leaf() {
            self.forest.with_node(self.source, block, &mut |node| first = node.keys().first().map(|key| key.get()));
        }
        first
    }
}

/// A pointer from a node to one below it.
struct Edge {
    parent: BlockNr,
    /// The parent's height.
    height: u8,
    key: u64,
    /// The entry of the parent.
    at: usize,
    child: BlockNr,
}
