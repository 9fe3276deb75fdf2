//! The one walk over btrees: level by level, each node once, in disk order, on all threads.
//!
//! First the levels are read from the roots down; every block is verified by itself. Then what is known of the
//! leaves is carried up, and every pointer is held against what is below it: key ranges, depths, occupancy. So a
//! node that a thousand devices share is read once, and each of its parents still gets its own verdict.

use super::forest::{
    ACTIVE, DAMAGED_BELOW, Forest, GOOD, HEIGHT_UNKNOWN, LEAF, NO_NODE, NodeInfo, PARENT_IS_ROOT, RESOLVED, Root,
};
use super::ledger::{BlockUse, Ledger, Referred};
use crate::base::{Area, BlockNr, Code, Finding, Findings, KeyRange, Place, Progress};
use crate::block::{BlockSource, ReadError};
use crate::format::node::{self, DEPTH_LIMIT, Node, NodeFault};
use crate::format::{Block, BlockFault};
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSliceMut;
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
        let mut forest = Forest {
            value_size: kind.value_size,
            roots,
            nodes: Vec::new(),
            index: vec![NO_NODE; self.ledger.nr_blocks() as usize],
        };
        let mut frontier = self.root_frontier(kind, &forest, &mut found);
        let locals = Mutex::new(Vec::new());
        while !frontier.is_empty() {
            frontier.sort_unstable();
            let begin = forest.nodes.len();
            for (offset, (block, parent)) in frontier.drain(..).enumerate() {
                forest.index[block as usize] = (begin + offset) as u32;
                forest.nodes.push(NodeInfo::new(block, parent));
            }
            self.read_level(kind, &mut forest.nodes[begin..], visitor, &locals, &mut found);
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
            Referred::OutOfRange => (Code::BlockOutOfRange, format!("block {block} of {}", self.ledger.nr_blocks())),
            Referred::Conflict(other) => {
                (Code::BlockSharedByKinds, format!("block {block} belongs to {}", other.word()))
            }
        };
        found.push(Finding::with(code, place, detail));
        false
    }

    fn read_level<V: LeafVisitor>(
        &self,
        kind: TreeKind,
        level: &mut [NodeInfo],
        visitor: &V,
        locals: &Mutex<Vec<V::Local>>,
        found: &mut Findings,
    ) {
        let task = |nodes: &mut [NodeInfo]| {
            let mut local = locals.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let keeper = local.get_or_insert_with(|| visitor.local());
            let mut findings = Findings::new();
            let blocks: Vec<BlockNr> = nodes.iter().map(NodeInfo::block).collect();
            let mut at = nodes.iter_mut();
            self.source.read_many(&blocks, &mut |location, block| {
                if let Some(info) = at.next() {
                    inspect(kind, info, location, block, visitor, keeper, &mut findings);
                }
                ControlFlow::Continue(())
            });
            self.progress.advance(blocks.len() as u64);
            locals.lock().unwrap_or_else(PoisonError::into_inner).extend(local);
            findings
        };
        if level.len() <= 2 * TASK_NODES {
            // Not worth a second thread, which would have to be started first.
            level.chunks_mut(TASK_NODES).for_each(|nodes| found.append(task(nodes)));
        } else {
            let all: Vec<Findings> = level.par_chunks_mut(TASK_NODES).map(task).collect();
            all.into_iter().for_each(|findings| found.append(findings));
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
        let internals: Vec<u32> = (begin..forest.nodes.len())
            .filter(|index| forest.nodes[*index].state & (GOOD | LEAF) == GOOD)
            .map(|index| index as u32)
            .collect();
        let blocks: Vec<BlockNr> = internals.iter().map(|index| forest.nodes[*index as usize].block()).collect();
        let mut parents = internals.iter();
        self.source.read_many(&blocks, &mut |location, block| {
            let parent = parents.next().copied().unwrap_or(NO_NODE);
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
    info: &mut NodeInfo,
    location: BlockNr,
    block: Result<&Block, ReadError>,
    visitor: &V,
    local: &mut V::Local,
    findings: &mut Findings,
) {
    let place = Place::block(Area::Mappings, location);
    let node = match block.map(|block| node::verify(block, location, kind.value_size)) {
        Ok(Ok(node)) => node,
        Ok(Err(fault)) => return findings.push(node_finding(fault, place)),
        Err(error) => return findings.push(Finding::with(Code::BlockUnreadable, place, error.to_string())),
    };
    if let Some(at) = node.first_out_of_order() {
        let detail = format!("entry {at} has key {} after {}", node.key(at), node.key(at - 1));
        return findings.push(Finding::with(Code::NodeKeyOrder, place, detail));
    }
    let wanted = node::max_entries(node.value_size());
    if node.max_entries() != wanted {
        let detail = format!("{} instead of {wanted}", node.max_entries());
        findings.push(Finding::with(Code::NodeMaxEntries, place, detail));
    }
    info.entries = node.len() as u16;
    if let (Some(first), Some(last)) = (node.keys().first(), node.keys().last()) {
        (info.first, info.last) = (first.get(), last.get());
    }
    if node.is_leaf() {
        info.entries_below = node.len() as u64;
        info.state = GOOD | LEAF | RESOLVED;
        visitor.visit(local, &node, place, findings);
    } else if node.is_empty() {
        findings.push(Finding::with(Code::NodeEmpty, place, "an internal node"));
    } else {
        info.state = GOOD;
    }
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
        // Children are mostly found after their parents, so going backwards finds them resolved.
        for index in (0..self.forest.nodes.len() as u32).rev() {
            self.resolve(index);
        }
    }

    fn is_open(&self, index: u32) -> bool {
        self.forest.nodes[index as usize].state & (GOOD | RESOLVED | ACTIVE) == GOOD
    }

    /// Resolves a node after those below it, without recursion: a damaged tree may be of any depth.
    fn resolve(&mut self, index: u32) {
        if !self.is_open(index) {
            return;
        }
        let mut stack = vec![index];
        self.forest.nodes[index as usize].state |= ACTIVE;
        while let Some(top) = stack.last().copied() {
            let info = self.forest.nodes[top as usize];
            let children = self.forest.children(self.source, &info).unwrap_or_default();
            let open =
                children.iter().filter_map(|(_, block)| self.forest.find(*block)).find(|child| self.is_open(*child));
            match open {
                Some(child) => {
                    self.forest.nodes[child as usize].state |= ACTIVE;
                    stack.push(child);
                }
                None => {
                    stack.pop();
                    self.combine(top, &children);
                }
            }
        }
    }

    /// Holds a node's pointers against what is below them.
    fn combine(&mut self, index: u32, children: &[(u64, BlockNr)]) {
        let mut info = self.forest.nodes[index as usize];
        let (mut first, mut last, mut below, mut damaged) = (u64::MAX, 0, 0u64, children.is_empty());
        info.height = children
            .iter()
            .filter_map(|(_, block)| self.forest.info(*block).filter(|child| child.is_good())?.height())
            .map(|height| height + 1)
            .next()
            .unwrap_or(HEIGHT_UNKNOWN);
        for (at, (key, block)) in children.iter().enumerate() {
            let bound = children.get(at + 1).map(|next| next.0);
            let Some(child) = self.forest.info(*block).copied() else {
                damaged = true;
                continue;
            };
            if !self.edge_is_good(&info, &child, *key, bound, children) {
                damaged = true;
                continue;
            }
            damaged |= !child.is_whole();
            (first, last) = (first.min(child.first), last.max(child.last));
            below = below.saturating_add(child.entries_below);
        }
        info.state = (info.state & !ACTIVE) | RESOLVED | if damaged { DAMAGED_BELOW } else { 0 };
        if info.height().is_some_and(|height| usize::from(height) > DEPTH_LIMIT) {
            let detail = format!("{} levels", info.height);
            self.found.push(Finding::with(Code::NodeDepth, Place::block(Area::Mappings, info.block()), detail));
            info.state &= !GOOD;
        }
        (info.first, info.last, info.entries_below) = (first, last, below);
        self.forest.nodes[index as usize] = info;
    }

    fn edge_is_good(
        &mut self,
        parent: &NodeInfo,
        child: &NodeInfo,
        key: u64,
        bound: Option<u64>,
        children: &[(u64, BlockNr)],
    ) -> bool {
        let place =
            Place { keys: Some(KeyRange { begin: key, end: bound }), ..Place::block(Area::Mappings, child.block()) };
        if child.state & ACTIVE != 0 {
            self.found.push(Finding::new(Code::NodeCycle, place));
            return false;
        }
        if !child.is_good() {
            return false;
        }
        if let Some(code) = Forest::edge_fault(child, key, bound, parent.height) {
            let twice = children.iter().filter(|(_, block)| *block == child.block()).count() > 1;
            let (code, detail) = match code {
                Code::NodeKeyRange if twice => (Code::NodeTwice, format!("both from block {}", parent.block())),
                Code::NodeKeyRange => (code, format!("it has {}..={}", child.first, child.last)),
                Code::NodeDepth => (code, format!("{} levels below it, others {}", child.height, parent.height - 1)),
                other => (other, String::new()),
            };
            self.found.push(Finding::with(code, place, detail));
            return false;
        }
        // Once, however many parents it has.
        if self.forest.find(parent.block()) == Some(child.parent) {
            self.judge_occupancy(child, place);
        }
        true
    }

    fn judge_occupancy(&mut self, child: &NodeInfo, place: Place) {
        let exempt = child.is_leaf() && !self.kind.leaves_filled;
        let capacity = node::max_entries(if child.is_leaf() { self.kind.value_size } else { 8 });
        if !exempt && usize::from(child.entries) < capacity / 3 {
            let detail = format!("{} of {capacity} entries", child.entries);
            self.found.push(Finding::with(Code::NodeUnderfull, place, detail));
        }
    }
}
