//! Deleting a whole tree, as a walk that can stop at any leaf or inside one.

use super::{How, Overlay, OverlayError, Used, Values};
use crate::base::BlockNr;
use crate::format::node::DEPTH_LIMIT;
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
    /// Bitmaps whose index entry was not at hand.
    pub index: u64,
    /// Counts that were too high for a bitmap.
    pub overflow: u64,
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
    beyond: Beyond,
}

impl DeleteWalk {
    /// A walk below `root`, which nothing leads to any more.
    pub fn new(root: BlockNr) -> DeleteWalk {
        let at_hand = [None; INDEX_ENTRIES as usize];
        DeleteWalk { stack: vec![Frame::Unseen(root)], at_hand, beyond: Beyond::default() }
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
                    for block in part.iter().map(|value| value >> 24) {
                        let bitmap = block / ENTRIES_PER_BITMAP;
                        let place = &mut self.at_hand[(bitmap % INDEX_ENTRIES) as usize];
                        self.beyond.index += u64::from(place.replace(bitmap) != Some(bitmap));
                        self.beyond.overflow += u64::from(overlay.data.get(block) >= OVERFLOW);
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
