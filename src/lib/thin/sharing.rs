//! Which runs of leaves several devices share as a whole.
//!
//! Looks at every distinct node once, whatever the number of devices: what matters of a device's sequence of leaves
//! is which leaf follows which.

use crate::base::BlockNr;
use crate::block::BlockSource;
use crate::pdata::forest::Forest;

/// A neighbour that is not known yet.
const UNSEEN: u32 = u32::MAX;
/// No neighbour: the sequence begins or ends here.
const BORDER: u32 = u32::MAX - 1;
/// Different neighbours in different sequences.
const SEVERAL: u32 = u32::MAX - 2;

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

/// The neighbours and the number of users of every leaf of whole trees.
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
        let length = forest.nodes().len();
        let mut sharing = Sharing { before: vec![UNSEEN; length], after: vec![UNSEEN; length], users: vec![0; length] };
        // Leftmost and rightmost leaf of every node.
        let mut edges: Vec<(u32, u32)> = (0..length as u32).map(|index| (index, index)).collect();
        let by_height = by_height(forest);
        for index in by_height.iter().copied() {
            let children = child_indices(forest, source, index);
            for pair in children.windows(2) {
                sharing.join(edges[pair[0] as usize].1, edges[pair[1] as usize].0);
            }
            if let (Some(first), Some(last)) = (children.first(), children.last()) {
                edges[index as usize] = (edges[*first as usize].0, edges[*last as usize].1);
            }
        }
        for root in forest.roots().iter().filter_map(|root| forest.find(root.block)) {
            let (first, last) = edges[root as usize];
            merge(&mut sharing.before[first as usize], BORDER);
            merge(&mut sharing.after[last as usize], BORDER);
            add_users(&mut sharing.users[root as usize], 1);
        }
        for index in by_height.iter().rev().copied() {
            let users = sharing.users[index as usize];
            for child in child_indices(forest, source, index) {
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
    pub fn place(&self, leaf: u32) -> Place {
        if self.users[leaf as usize] < 2 {
            Place::Own
        } else if self.inseparable(self.before[leaf as usize], leaf) {
            Place::Inside
        } else {
            Place::Head
        }
    }

    /// The leaves of the run that `head` begins.
    pub fn run(&self, head: u32) -> Vec<u32> {
        let mut run = vec![head];
        let mut at = head;
        while self.inseparable(at, self.after[at as usize]) {
            at = self.after[at as usize];
            run.push(at);
        }
        run
    }

    /// The heads of all shared runs, by ascending block.
    pub fn heads(&self, forest: &Forest) -> Vec<u32> {
        let is_head = |index: &u32| {
            let info = &forest.nodes()[*index as usize];
            info.is_leaf() && !info.is_empty() && self.place(*index) == Place::Head
        };
        let mut heads: Vec<u32> = (0..forest.nodes().len() as u32).filter(is_head).collect();
        heads.sort_unstable_by_key(|head| forest.nodes()[*head as usize].block());
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
    let nodes = forest.nodes();
    let mut internals: Vec<u32> = (0..nodes.len() as u32).filter(|index| !nodes[*index as usize].is_leaf()).collect();
    internals.sort_by_key(|index| nodes[*index as usize].height());
    internals
}

fn child_indices(forest: &Forest, source: &dyn BlockSource, index: u32) -> Vec<u32> {
    let children: Vec<BlockNr> = forest.child_blocks(source, index);
    children.into_iter().filter_map(|block| forest.find(block)).collect()
}
