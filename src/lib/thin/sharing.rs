//! Which runs of leaves several devices share as a whole.
//!
//! Looks at every distinct node once, whatever the number of devices: what matters of a device's sequence of leaves
//! is which leaf follows which.

use super::document::Leaves;
use crate::base::BlockNr;
use crate::block::BlockSource;
use crate::pdata::forest::Forest;

/// A neighbour that is not known yet: block 0 is never a leaf.
const UNSEEN: u32 = 0;
/// No neighbour: the sequence begins or ends here.
const BORDER: u32 = u32::MAX;
/// Different neighbours in different sequences.
const SEVERAL: u32 = u32::MAX - 1;

/// What a dump has to know of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One device has it: its mappings are written there.
    Own,
    /// It begins a run that several devices have.
    Head,
    /// It continues such a run.
    Inside,
}

/// The neighbours and the number of users of every leaf, by block.
#[derive(Debug)]
pub struct Sharing {
    before: Vec<u32>,
    after: Vec<u32>,
    /// Sequences that the node is in: 0, 1, or 2 for more.
    users: Vec<u8>,
    /// Leftmost and rightmost leaf of every internal node.
    edges: Vec<[u32; 2]>,
    /// First leaves of the runs that several sequences have, in the order in which they appear first.
    heads: Vec<BlockNr>,
    /// Where the run of such a leaf stands in that order.
    numbers: Vec<u32>,
}

impl Sharing {
    /// Looks at which leaf follows which below every good node of `forest`. Sequences are to be added.
    pub fn new(forest: &Forest, source: &dyn BlockSource) -> Sharing {
        let length = forest.reached().map(|block| block.0 as usize + 1).max().unwrap_or(0);
        let edges = vec![[UNSEEN; 2]; length];
        let (before, after, users) = (vec![UNSEEN; length], vec![UNSEEN; length], vec![0; length]);
        let mut sharing = Sharing { before, after, users, edges, heads: Vec::new(), numbers: Vec::new() };
        for block in by_height(forest) {
            let children = children(forest, source, block);
            for pair in children.windows(2) {
                sharing.join(sharing.edges_of(pair[0])[1], sharing.edges_of(pair[1])[0]);
            }
            if let (Some(first), Some(last)) = (children.first(), children.last()) {
                sharing.edges[block as usize] = [sharing.edges_of(*first)[0], sharing.edges_of(*last)[1]];
            }
        }
        sharing
    }

    /// Leftmost and rightmost leaf below a node; a leaf is its own.
    fn edges_of(&self, block: u32) -> [u32; 2] {
        match self.edges[block as usize] {
            [UNSEEN, UNSEEN] => [block; 2],
            found => found,
        }
    }

    /// Adds the sequence of leaves of the whole tree below `root`.
    pub fn add_tree(&mut self, root: BlockNr) {
        let root = root.0 as u32;
        if (root as usize) < self.edges.len() {
            let [first, last] = self.edges_of(root);
            merge(&mut self.before[first as usize], BORDER);
            merge(&mut self.after[last as usize], BORDER);
            add_users(&mut self.users[root as usize], 1);
        }
    }

    /// Adds a sequence of leaves.
    pub fn add_sequence(&mut self, leaves: &[u32]) {
        if let (Some(first), Some(last)) = (leaves.first(), leaves.last()) {
            merge(&mut self.before[*first as usize], BORDER);
            merge(&mut self.after[*last as usize], BORDER);
        }
        leaves.windows(2).for_each(|pair| self.join(pair[0], pair[1]));
        leaves.iter().for_each(|leaf| add_users(&mut self.users[*leaf as usize], 1));
    }

    /// All sequences have been added: counts the users of every leaf.
    pub fn settle(&mut self, forest: &Forest, source: &dyn BlockSource) {
        self.edges = Vec::new();
        for block in by_height(forest).into_iter().rev() {
            let users = self.users[block as usize];
            for child in children(forest, source, block) {
                add_users(&mut self.users[child as usize], users);
            }
        }
    }

    fn join(&mut self, left: u32, right: u32) {
        merge(&mut self.after[left as usize], right);
        merge(&mut self.before[right as usize], left);
    }

    /// Whether `left` and `right` stand together in every sequence that has one of them.
    fn inseparable(&self, left: u32, right: u32) -> bool {
        self.after.get(left as usize) == Some(&right) && self.before.get(right as usize) == Some(&left)
    }

    /// What to do with a leaf.
    pub fn place(&self, leaf: BlockNr) -> Place {
        let leaf = leaf.0 as u32;
        if self.users[leaf as usize] < 2 {
            Place::Own
        } else if self.inseparable(self.before[leaf as usize], leaf) {
            Place::Inside
        } else {
            Place::Head
        }
    }

    /// The leaves of the run that `head` begins.
    pub fn run(&self, head: BlockNr) -> Vec<BlockNr> {
        let mut run = vec![head];
        let mut at = head.0 as u32;
        while self.inseparable(at, self.after[at as usize]) {
            at = self.after[at as usize];
            run.push(BlockNr(u64::from(at)));
        }
        run
    }

    /// Gives every shared run its number, in the order in which the sequences have them: this order stays the same when
    /// the pool is written elsewhere, which no block number does. All sequences have been added and settled.
    pub fn number_runs<'a>(
        &mut self,
        forest: &Forest,
        source: &dyn BlockSource,
        sequences: impl Iterator<Item = &'a Leaves>,
    ) {
        self.numbers = vec![0; self.users.len()];
        // What is below a node that was seen has its numbers already.
        let mut seen = vec![false; self.users.len()];
        for sequence in sequences {
            let mut waiting = match sequence {
                Leaves::Tree(root) => vec![root.0 as u32],
                Leaves::List(leaves) => leaves.iter().rev().copied().collect(),
                Leaves::Skipped => Vec::new(),
            };
            while let Some(block) = waiting.pop() {
                if seen.get(block as usize).is_none_or(|seen| *seen) {
                    continue;
                }
                seen[block as usize] = true;
                let at = BlockNr(u64::from(block));
                match forest.info(at) {
                    Some(info) if !info.is_leaf() => {
                        waiting.extend(children(forest, source, block).into_iter().rev());
                    }
                    Some(info) if !info.is_empty() && self.place(at) == Place::Head => {
                        self.numbers[block as usize] = self.heads.len() as u32;
                        self.heads.push(at);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The first leaves of all shared runs, by number.
    pub fn heads(&self) -> &[BlockNr] {
        &self.heads
    }

    /// The number of the run that `head` begins.
    pub fn number(&self, head: BlockNr) -> u32 {
        self.numbers.get(head.0 as usize).copied().unwrap_or_default()
    }
}

fn merge(neighbour: &mut u32, found: u32) {
    match *neighbour {
        UNSEEN => *neighbour = found,
        same if same == found => {}
        _ => *neighbour = SEVERAL,
    }
}

fn add_users(users: &mut u8, more: u8) {
    *users = (*users + more).min(2);
}

/// Internal nodes, lowest first.
fn by_height(forest: &Forest) -> Vec<u32> {
    let height =
        |block: BlockNr| forest.info(block).filter(|info| info.is_good() && !info.is_leaf()).map(|info| info.height());
    let mut internals: Vec<_> = forest.reached().filter_map(|block| Some((height(block)?, block.0 as u32))).collect();
    internals.sort_unstable();
    internals.into_iter().map(|(_, block)| block).collect()
}

fn children(forest: &Forest, source: &dyn BlockSource, block: u32) -> Vec<u32> {
    let children = forest.children(source, BlockNr(u64::from(block))).unwrap_or_default();
    children.into_iter().filter(|(_, block)| forest.info(*block).is_some()).map(|(_, block)| block.0 as u32).collect()
}
