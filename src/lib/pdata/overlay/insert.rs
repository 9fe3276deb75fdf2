//! Inserting an entry, with the splits that it takes.

use super::edit::{self, Entries};
use super::{Overlay, OverlayError, SplitRule, Values};
use crate::base::BlockNr;
use crate::format::node::DEPTH_LIMIT;

/// A neighbour must have room for this many entries to be worth sharing with.
const SHARE_ROOM: usize = 8;

/// What came of an insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// The root of the tree now.
    pub root: BlockNr,
    /// The value that was there before. Its reference is the caller's business.
    pub old: Option<Vec<u8>>,
}

impl Overlay<'_> {
    /// Puts in an entry, or overwrites its value. All nodes on the way become shadows.
    ///
    /// # Errors
    /// Where no block is free or the tree can't be read. Then the overlay may be half changed.
    pub fn insert(&mut self, root: BlockNr, values: Values, key: u64, value: &[u8]) -> Result<Inserted, OverlayError> {
        let root = self.shadow(root, values)?;
        if self.is_full(root, values, key)? {
            self.split_root(root, values)?;
        }
        let mut at = root;
        for _ in 0..DEPTH_LIMIT {
            let step = self.with_node(at, values, |node| (node.is_leaf(), node.child_index(key), node.is_empty()))?;
            let (leaf, index, empty) = step;
            if leaf {
                let old = self.insert_in_leaf(at, values, key, value)?;
                return Ok(Inserted { root, old });
            }
            if empty {
                return Err(OverlayError::Tree(at));
            }
            if index.is_none() {
                edit::set_key(self.edit(at)?, 0, key);
            }
            at = self.descend(at, values, index.unwrap_or(0), key)?;
        }
        Err(OverlayError::Tree(root))
    }

    /// Whether a node can't take `key`.
    fn is_full(&mut self, block: BlockNr, values: Values, key: u64) -> Result<bool, OverlayError> {
        self.with(block, |content| {
            let node = edit::view(content, block, values.size())?;
            Ok(node.len() == node.max_entries() && !(node.is_leaf() && node.find(key).is_some()))
        })?
    }

    fn insert_in_leaf(
        &mut self,
        leaf: BlockNr,
        values: Values,
        key: u64,
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, OverlayError> {
        let size = values.size();
        let place = self.with(leaf, |block| {
            let node = edit::view(block, leaf, size)?;
            let index = node.keys().partition_point(|own| own.get() < key);
            let old = node.find(key).map(|index| node.value_bytes()[index * size..][..size].to_vec());
            Ok((index, old))
        })?;
        let (index, old) = place?;
        let block = self.edit(leaf)?;
        match old {
            Some(_) => edit::set_value(block, index, value),
            None => edit::insert_at(block, index, key, value),
        }
        Ok(old)
    }

    /// Shadows a child, makes room in it, and says which node to go on with.
    pub(super) fn descend(
        &mut self,
        parent: BlockNr,
        values: Values,
        index: usize,
        key: u64,
    ) -> Result<BlockNr, OverlayError> {
        let child = self.shadow_child(parent, values, index)?;
        if !self.is_full(child, values, key)? {
            return Ok(child);
        }
        match self.split {
            SplitRule::Half => self.redistribute(parent, values, index, 1, 2)?,
            SplitRule::ShareFirst => self.share_or_split(parent, values, index)?,
        }
        self.with(parent, |content| {
            let node = edit::view(content, parent, values.size())?;
            node.child_index(key).map(|index| node.child(index)).ok_or(OverlayError::Tree(parent))
        })?
    }

    /// The shadow of a child, which the parent leads to.
    pub(super) fn shadow_child(
        &mut self,
        parent: BlockNr,
        values: Values,
        index: usize,
    ) -> Result<BlockNr, OverlayError> {
        let old = self.child(parent, values, index)?;
        let new = self.shadow(old, values)?;
        if new != old {
            edit::set_value(self.edit(parent)?, index, &new.0.to_le_bytes());
        }
        Ok(new)
    }

    fn child(&self, parent: BlockNr, values: Values, index: usize) -> Result<BlockNr, OverlayError> {
        self.with(parent, |content| {
            let node = edit::view(content, parent, values.size())?;
            let child = node.values_u64().get(index).filter(|_| !node.is_leaf());
            child.map(|child| BlockNr(child.get())).ok_or(OverlayError::Tree(parent))
        })?
    }

    fn share_or_split(&mut self, parent: BlockNr, values: Values, index: usize) -> Result<(), OverlayError> {
        let children =
            self.with(parent, |content| edit::view(content, parent, values.size()).map(|node| node.len()))??;
        for left in [index.checked_sub(1), Some(index)].into_iter().flatten().filter(|left| left + 1 < children) {
            let neighbour = self.child(parent, values, if left == index { index + 1 } else { left })?;
            let room = self.with(neighbour, |content| {
                edit::view(content, neighbour, values.size()).map(|node| node.max_entries() - node.len())
            })??;
            if room >= SHARE_ROOM {
                return self.redistribute(parent, values, left, 2, 2);
            }
        }
        if index == 0 || index + 1 == children {
            return self.redistribute(parent, values, index, 1, 2);
        }
        self.redistribute(parent, values, index - 1, 2, 3)
    }

    /// Spreads the entries of `old` children from `first` on evenly over `new` ones.
    fn redistribute(
        &mut self,
        parent: BlockNr,
        values: Values,
        first: usize,
        old: usize,
        new: usize,
    ) -> Result<(), OverlayError> {
        let mut total = 0;
        for index in first..first + old {
            total += self.with_child(parent, values, index)?.1;
        }
        let bounds: Vec<usize> = (0..=new).map(|index| total * index / new).collect();
        self.place(parent, values, first, old, &bounds)
    }

    /// Lays the entries of `old` children from `first` on out anew: each of the nodes then there has those between two
    /// neighbouring `bounds`, of which the first is 0 and the last is the number of entries.
    pub(super) fn place(
        &mut self,
        parent: BlockNr,
        values: Values,
        first: usize,
        old: usize,
        bounds: &[usize],
    ) -> Result<(), OverlayError> {
        let new = bounds.len().saturating_sub(1);
        let mut nodes = Vec::new();
        let mut all: Option<Entries> = None;
        for index in first..first + old {
            let node = self.shadow_child(parent, values, index)?;
            let entries =
                self.with(node, |content| edit::view(content, node, values.size()).map(|n| Entries::of(&n)))??;
            nodes.push(node);
            match &mut all {
                None => all = Some(entries),
                Some(all) => all.append(entries),
            }
        }
        let all = all.ok_or(OverlayError::Tree(parent))?;
        for extra in nodes.split_off(new.min(old)) {
            self.release(extra);
            edit::remove_at(self.edit(parent)?, first + nodes.len());
        }
        while nodes.len() < new {
            let node = self.allocate()?;
            let key = all.key(bounds[nodes.len()]);
            edit::insert_at(self.edit(parent)?, first + nodes.len(), key, &node.0.to_le_bytes());
            nodes.push(node);
        }
        for (index, (node, border)) in nodes.into_iter().zip(bounds.windows(2)).enumerate() {
            let (begin, end) = (border[0], border[1]);
            all.fill(begin, end, node, self.edit(node)?);
            if index > 0 {
                edit::set_key(self.edit(parent)?, first + index, all.key(begin));
            }
        }
        Ok(())
    }

    /// Puts a level between a full root and its entries.
    fn split_root(&mut self, root: BlockNr, values: Values) -> Result<(), OverlayError> {
        let all =
            self.with(root, |content| edit::view(content, root, values.size()).map(|node| Entries::of(&node)))??;
        let (left, right) = (self.allocate()?, self.allocate()?);
        let half = all.len() / 2;
        all.fill(0, half, left, self.edit(left)?);
        all.fill(half, all.len(), right, self.edit(right)?);
        Entries::fill_internal(&[(all.key(0), left), (all.key(half), right)], root, self.edit(root)?);
        Ok(())
    }
}
