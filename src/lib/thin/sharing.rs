//! Which runs of leaves several devices share as a whole.
//!
//! Looks at every distinct node once, whatever the number of devices: what matters of a device's sequence of leaves
//! is which leaf follows which.

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

/// The neighbours and the number of users of every leaf of whole trees, by block.
#[derive(Debug)]
pub struct Sharing {
    before: Vec<u32>,
    after: Vec<u32>,
    /// Sequences that the node is in: 0, 1, or 2 for more.
    users: Vec<u8>,
}

impl Sharing {
    /// Looks at the trees of a forest, all of which are whole.
    pub fn of(forest: &Forest, source: &dyn BlockSource) -> Sharing {
        let length = forest.reached().map(|block| block.0 as usize + 1).max().unwrap_or(0);
        let mut sharing = Sharing { before: vec![UNSEEN; length], after: vec![UNSEEN; length], users: vec![0; length] };
        // Leftmost and rightmost leaf of every internal node; a leaf is its own.
        let mut edges: Vec<[u32; 2]> = vec![[UNSEEN; 2]; length];
        let edges_of = |edges: &[[u32; 2]], block: u32| match edges[block as usize] {
            [UNSEEN, UNSEEN] => [block; 2],
            found => found,
        };
        let by_height = by_height(forest);
        for block in by_height.iter().copied() {
            let children = children(forest, source, block);
            for pair in children.windows(2) {
                sharing.join(edges_of(&edges, pair[0])[1], edges_of(&edges, pair[1])[0]);
            }
            if let (Some(first), Some(last)) = (children.first(), children.last()) {
                edges[block as usize] = [edges_of(&edges, *first)[0], edges_of(&edges, *last)[1]];
            }
        }
        for root in forest.roots().iter().filter(|root| forest.info(root.block).is_some()) {
            let root = root.block.0 as u32;
            let [first, last] = edges_of(&edges, root);
            merge(&mut sharing.before[first as usize], BORDER);
            merge(&mut sharing.after[last as usize], BORDER);
            add_users(&mut sharing.users[root as usize], 1);
        }
        for block in by_height.iter().rev().copied() {
            let users = sharing.users[block as usize];
            for child in children(forest, source, block) {
                add_users(&mut sharing.users[child as usize], users);
            }
        }
        sharing
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

    /// The heads of all shared runs, by ascending block.
    pub fn heads(&self, forest: &Forest) -> Vec<BlockNr> {
        let is_head = |block: &BlockNr| {
            let filled_leaf = forest.info(*block).is_some_and(|info| info.is_leaf() && !info.is_empty());
            filled_leaf && self.place(*block) == Place::Head
        };
        let mut heads: Vec<BlockNr> = forest.reached().filter(is_head).collect();
        heads.sort_unstable();
        heads
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
    let height = |block: BlockNr| forest.info(block).filter(|info| !info.is_leaf()).map(|info| info.height());
    let mut internals: Vec<_> = forest.reached().filter_map(|block| Some((height(block)?, block.0 as u32))).collect();
    internals.sort_unstable();
    internals.into_iter().map(|(_, block)| block).collect()
}

fn children(forest: &Forest, source: &dyn BlockSource, block: u32) -> Vec<u32> {
    let children = forest.children(source, BlockNr(u64::from(block))).unwrap_or_default();
    children.into_iter().map(|(_, block)| block.0 as u32).collect()
}
