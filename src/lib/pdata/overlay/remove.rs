//! Taking an entry out, with the joining of small nodes that it takes.

use super::edit;
use super::{Overlay, OverlayError, Values};
use crate::base::BlockNr;
use crate::format::node::DEPTH_LIMIT;

/// What came of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The root of the tree now.
    pub root: BlockNr,
    /// The value that was there. Its reference is the caller's business.
    pub old: Option<Vec<u8>>,
}

impl Overlay<'_> {
    /// Takes an entry out. All nodes on the way become shadows; a node with a third of its capacity or less is joined
    /// with its neighbours, or gets some of their entries (docs/format.md 2.5).
    ///
    /// # Errors
    /// Where no block is free or the tree can't be read. Then the overlay may be half changed.
    pub fn remove(&mut self, root: BlockNr, values: Values, key: u64) -> Result<Removed, OverlayError> {
        if self.lookup(root, values, key)?.is_none() {
            return Ok(Removed { root, old: None });
        }
        let mut root = self.shadow(root, values)?;
        let mut at = root;
        for _ in 0..2 * DEPTH_LIMIT {
            let step = self.with_node(at, values, |node| (node.is_leaf(), node.child_index(key), node.len()))?;
            let (leaf, index, children) = step;
            if leaf {
                let old = self.remove_from_leaf(at, values, key)?;
                return Ok(Removed { root, old });
            }
            let index = index.ok_or(OverlayError::Tree(at))?;
            let child = self.shadow_child(at, values, index)?;
            if children == 1 && at == root {
                // The tree loses a level.
                self.release(root);
                (root, at) = (child, child);
                continue;
            }
            at = if children > 1 { self.enrich(at, values, index, key)? } else { child };
        }
        Err(OverlayError::Tree(root))
    }

    fn remove_from_leaf(&mut self, leaf: BlockNr, values: Values, key: u64) -> Result<Option<Vec<u8>>, OverlayError> {
        let size = values.size();
        let found = self.with(leaf, |block| {
            let node = edit::view(block, leaf, size)?;
            Ok(node.find(key).map(|index| (index, node.value_bytes()[index * size..][..size].to_vec())))
        })??;
        let Some((index, old)) = found else { return Ok(None) };
        edit::remove_at(self.edit(leaf)?, index);
        Ok(Some(old))
    }

    /// Joins a small child with its neighbours or evens them out: with both where it has two, else with the one that it
    /// has. Says which node to go on with.
    fn enrich(&mut self, parent: BlockNr, values: Values, index: usize, key: u64) -> Result<BlockNr, OverlayError> {
        let (child, len, max) = self.with_child(parent, values, index)?;
        if len > max / 3 {
            return Ok(child);
        }
        let children = self.with_node(parent, values, |node| node.len())?;
        let (first, end) = (index.saturating_sub(1), (index + 2).min(children));
        let mut lens = Vec::with_capacity(3);
        for index in first..end {
            lens.push(self.with_child(parent, values, index)?.1);
        }
        self.place(parent, values, first, lens.len(), &bounds(&lens, max))?;
        self.with(parent, |content| {
            let node = edit::view(content, parent, values.size())?;
            node.child_index(key).map(|index| node.child(index)).ok_or(OverlayError::Tree(parent))
        })?
    }

    /// A child, how many entries it has, and how many it could have.
    pub(super) fn with_child(
        &self,
        parent: BlockNr,
        values: Values,
        index: usize,
    ) -> Result<(BlockNr, usize, usize), OverlayError> {
        let child = self.with(parent, |content| {
            let node = edit::view(content, parent, values.size())?;
            node.values_u64().get(index).map(|child| BlockNr(child.get())).ok_or(OverlayError::Tree(parent))
        })??;
        self.with(child, |content| {
            edit::view(content, child, values.size()).map(|node| (child, node.len(), node.max_entries()))
        })?
    }
}

/// How the entries of two or three neighbours are to lie, as the kernel does it: the borders of the nodes that stay.
/// Two become one where they fill at most two thirds of it. Of three the middle one goes where four thirds of a node
/// hold them all: its entries go left as far as there is room. Otherwise all get the same, and the left
/// one what is over.
fn bounds(lens: &[usize], max: usize) -> Vec<usize> {
    let total: usize = lens.iter().sum();
    match *lens {
        // Nodes without entries come from damage or strange tools; none stays but as the only one.
        _ if total < 2 => vec![0, total],
        [left, middle, _] if total <= max / 3 * 4 => vec![0, (left + middle).min(max).clamp(1, total - 1), total],
        [_, _, _] => vec![0, total.div_ceil(3), total - total / 3, total],
        _ if total <= max / 3 * 2 => vec![0, total],
        _ => vec![0, total / 2, total],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_stays_empty_or_gets_too_much() {
        let max = 12;
        let lens = |count| {
            (0..=max)
                .flat_map(move |a| (0..=max).flat_map(move |b| (0..=max).map(move |c| [a, b, c][..count].to_vec())))
        };
        for lens in lens(2).chain(lens(3)).filter(|lens| lens.iter().any(|len| *len <= max / 3)) {
            let (bounds, total) = (bounds(&lens, max), lens.iter().sum::<usize>());
            assert_eq!((bounds[0], bounds[bounds.len() - 1]), (0, total), "{lens:?}");
            let parts: Vec<usize> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(parts.len() <= lens.len() && parts.iter().all(|part| *part <= max), "{lens:?}: {parts:?}");
            assert!(total == 0 || parts.iter().all(|part| *part > 0), "{lens:?}: {parts:?}");
        }
    }
}
