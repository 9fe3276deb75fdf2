//! Deleting a whole tree, as a walk that can stop at any leaf or inside one.

use super::{How, Overlay, OverlayError, Used, Values};
use crate::base::BlockNr;
use crate::format::node::{DEPTH_LIMIT, max_entries};
use crate::format::space_map::ENTRIES_PER_BITMAP;

/// Index entries of bitmaps that a kernel keeps at hand, each in the place that its bitmap's number ends in (Linux 5.14 and
/// later; held against Linux 6.1 in docs/thin_replay.md).
const INDEX_ENTRIES: u64 = 64;
/// A count from here on is in a tree of its own, not in a bitmap (docs/format.md 3).
const OVERFLOW: u32 = 3;

/// What a step of a [`DeleteWalk`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// So many references to data blocks were taken away, in so many runs of neighbouring blocks.
    Entries {
        /// Entries of the leaf.
        entries: u64,
        /// Runs that they make.
        runs: u64,
        /// The data block of the last of them.
        last: u64,
    },
    /// All below this node is done: its own reference is to be taken away with [`Overlay::release`].
    Node {
        /// The node.
        block: BlockNr,
        /// Whether it is shared, so that nothing below it was looked at.
        shared: bool,
        /// Whether it is known to be a leaf.
        leaf: bool,
    },
    /// There is nothing left.
    End,
}

/// What makes some entries dearer than others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// Nodes of the index tree, for bitmaps whose index entry was not at hand.
    pub index: u64,
    /// Counts above 3, which stay in the tree of high counts.
    pub overflow: u64,
    /// Nodes of that tree, for counts of 3, which leave it for their bitmap.
    pub settle: u64,
}

/// Levels of a tree with so many entries and full leaves; a node above them has 252 children.
fn levels(entries: u64, leaf: u64) -> u64 {
    let (mut levels, mut nodes) = (1, entries.div_ceil(leaf));
    while nodes > 1 {
        (levels, nodes) = (levels + 1, nodes.div_ceil(max_entries(8) as u64));
    }
    levels
}

#[derive(Debug)]
enum Frame {
    /// Not looked at yet.
    Unseen(BlockNr),
    /// An inner node: its children are dealt with one after the other.
    Inner { block: BlockNr, children: Vec<BlockNr>, next: usize },
    /// A leaf: values from `next` on still count.
    Leaf { block: BlockNr, values: Vec<u64>, next: usize },
}

/// Takes away the references of a device's mapping tree. A shared node only loses its reference.
#[derive(Debug)]
pub struct DeleteWalk {
    stack: Vec<Frame>,
    /// The bitmaps whose index entries are at hand.
    at_hand: [Option<u64>; INDEX_ENTRIES as usize],
    /// Levels of the trees of index entries and of high counts, as they were when they were first asked for.
    levels: Option<(u64, u64)>,
    beyond: Beyond,
}

impl DeleteWalk {
    /// A walk below `root`, which nothing leads to any more.
    pub fn new(root: BlockNr) -> DeleteWalk {
        let at_hand = [None; INDEX_ENTRIES as usize];
        DeleteWalk { stack: vec![Frame::Unseen(root)], at_hand, levels: None, beyond: Beyond::default() }
    }

    /// What the entries of the last step had beside what [`Released::Entries`] says.
    pub fn beyond(&self) -> Beyond {
        self.beyond
    }

    /// Goes on: at most `most` entries of one leaf, or one node.
    ///
    /// # Errors
    /// Where the tree can't be read.
    pub fn step(&mut self, overlay: &mut Overlay<'_>, most: usize) -> Result<Released, OverlayError> {
        self.beyond = Beyond::default();
        loop {
            let depth = self.stack.len();
            let Some(top) = self.stack.last_mut() else { return Ok(Released::End) };
            match top {
                Frame::Unseen(block) => {
                    let block = *block;
                    if overlay.metadata.get(block.0) > 1 {
                        self.stack.pop();
                        return Ok(Released::Node { block, shared: true, leaf: false });
                    }
                    if depth > DEPTH_LIMIT {
                        return Err(OverlayError::Tree(block));
                    }
                    *top = overlay.with_node(block, Values::Data, |node| {
                        let values: Vec<u64> = node.values_u64().iter().map(|value| value.get()).collect();
                        if node.is_leaf() {
                            Frame::Leaf { block, values, next: 0 }
                        } else {
                            Frame::Inner { block, children: values.into_iter().map(BlockNr).collect(), next: 0 }
                        }
                    })?;
                    if let (Frame::Inner { children, .. }, true) = (&*top, overlay.touches.log.is_some()) {
                        children.iter().for_each(|child| overlay.touches.note(Used::Node(*child), How::Ahead));
                    }
                }
                Frame::Inner { children, next, .. } if *next < children.len() => {
                    let child = children[*next];
                    *next += 1;
                    self.stack.push(Frame::Unseen(child));
                }
                Frame::Leaf { values, next, .. } if *next < values.len() => {
                    let end = values.len().min(*next + most.max(1));
                    let part = &values[*next..end];
                    let (index, high) = *self.levels.get_or_insert_with(|| {
                        let counts = &overlay.data;
                        let nr_bitmaps = counts.nr_blocks().div_ceil(ENTRIES_PER_BITMAP);
                        (levels(nr_bitmaps, max_entries(16) as u64), levels(counts.nr_high(), max_entries(4) as u64))
                    });
                    for block in part.iter().map(|value| value >> 24) {
                        let bitmap = block / ENTRIES_PER_BITMAP;
                        let place = &mut self.at_hand[(bitmap % INDEX_ENTRIES) as usize];
                        if place.replace(bitmap) != Some(bitmap) {
                            self.beyond.index += index;
                        }
                        let count = overlay.data.get(block);
                        self.beyond.overflow += u64::from(count > OVERFLOW);
                        if count == OVERFLOW {
                            self.beyond.settle += high;
                        }
                        overlay.release_data(block);
                    }
                    let runs = part.chunk_by(|left, right| (left >> 24) + 1 == right >> 24).count() as u64;
                    let entries = part.len() as u64;
                    let last = part.last().map_or(0, |value| value >> 24);
                    *next = end;
                    return Ok(Released::Entries { entries, runs, last });
                }
                Frame::Inner { block, .. } | Frame::Leaf { block, .. } => {
                    let (block, leaf) = (*block, matches!(top, Frame::Leaf { .. }));
                    self.stack.pop();
                    return Ok(Released::Node { block, shared: false, leaf });
                }
            }
        }
    }
}
