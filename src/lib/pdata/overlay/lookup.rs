//! Finding entries. Nothing is changed.

use super::edit;
use super::{Overlay, OverlayError, Values};
use crate::base::BlockNr;
use crate::format::node::DEPTH_LIMIT;

impl Overlay<'_> {
    /// Finds the leaf in which `key` would be.
    fn find_leaf(&mut self, root: BlockNr, values: Values, key: u64) -> Result<Option<BlockNr>, OverlayError> {
        let mut at = root;
        for _ in 0..DEPTH_LIMIT {
            let next = self.with_node(at, values, |node| {
                if node.is_leaf() { Ok(at) } else { Err(node.child_index(key).map(|index| node.child(index))) }
            })?;
            match next {
                Ok(leaf) => return Ok(Some(leaf)),
                Err(None) => return Ok(None),
                Err(Some(child)) => at = child,
            }
        }
        Err(OverlayError::Tree(root))
    }

    /// The value of `key`, as bytes.
    ///
    /// # Errors
    /// Where the tree can't be read.
    pub fn lookup(&mut self, root: BlockNr, values: Values, key: u64) -> Result<Option<Vec<u8>>, OverlayError> {
        let Some(leaf) = self.find_leaf(root, values, key)? else { return Ok(None) };
        let size = values.size();
        self.with(leaf, |block| {
            let node = edit::view(block, leaf, size)?;
            Ok(node.find(key).map(|index| node.value_bytes()[index * size..][..size].to_vec()))
        })?
    }

    /// The value of `key` in a tree whose values have 64 bits.
    ///
    /// # Errors
    /// Where the tree can't be read.
    pub fn lookup_u64(&mut self, root: BlockNr, values: Values, key: u64) -> Result<Option<u64>, OverlayError> {
        let Some(leaf) = self.find_leaf(root, values, key)? else { return Ok(None) };
        self.with(leaf, |block| {
            let node = edit::view(block, leaf, values.size())?;
            Ok(node.find(key).and_then(|index| node.values_u64().get(index)).map(|value| value.get()))
        })?
    }

    /// The first entry whose key is not below `key`.
    ///
    /// # Errors
    /// Where the tree can't be read.
    pub fn next_entry(&mut self, root: BlockNr, values: Values, key: u64) -> Result<Option<u64>, OverlayError> {
        self.next_below(root, values, key, 0)
    }

    fn next_below(&mut self, at: BlockNr, values: Values, key: u64, depth: usize) -> Result<Option<u64>, OverlayError> {
        if depth > DEPTH_LIMIT {
            return Err(OverlayError::Tree(at));
        }
        let (found, children) = self.with_node(at, values, |node| {
            if node.is_leaf() {
                let index = node.keys().partition_point(|own| own.get() < key);
                return (node.keys().get(index).map(|own| own.get()), Vec::new());
            }
            // The child in whose range the key lies may end before it; then the next one begins with the answer.
            let first = node.child_index(key).unwrap_or(0);
            (None, (first..node.len().min(first + 2)).map(|index| node.child(index)).collect())
        })?;
        for child in children {
            if let Some(found) = self.next_below(child, values, key, depth + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(found)
    }

    /// The last key of a tree.
    ///
    /// # Errors
    /// Where the tree can't be read.
    pub fn last_key(&mut self, root: BlockNr, values: Values) -> Result<Option<u64>, OverlayError> {
        let mut at = root;
        for _ in 0..DEPTH_LIMIT {
            let (leaf, last) = self.with_node(at, values, |node| {
                let last = node.len().checked_sub(1);
                let leaf = node.is_leaf();
                (leaf, last.map(|index| if leaf { node.key(index) } else { node.child(index).0 }))
            })?;
            match last {
                Some(child) if !leaf => at = BlockNr(child),
                last => return Ok(last),
            }
        }
        Err(OverlayError::Tree(root))
    }
}
