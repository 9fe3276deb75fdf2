//! Changes entries of a tree and keeps the leaves that stay the same (docs/format.md 2.8, 8.1).
//!
//! Internal nodes are read, and the leaves with changes; no other. The nodes of the new tree get their references here;
//! taking away those of the old tree is its caller's business, for it may be shared.

use super::build::{Child, EachEntry, LeafEntries, NodeSink, SharedLeaf, TreeBuilder};
use super::commit::{CommitError, Transaction};
use crate::base::{BlockNr, KeyRange};
use crate::block::BlockSource;
use crate::format::node::{self, DEPTH_LIMIT, Node, max_entries};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// What is to be changed in a tree.
pub trait Change<const V: usize> {
    /// Whether an entry with one of these keys may change. Leaves without any are kept.
    fn concerns(&mut self, keys: KeyRange) -> bool;

    /// What the value of an entry becomes; `None` takes the entry away. Called in the order of the keys.
    ///
    /// # Errors
    /// Where the value makes no sense.
    fn change(
        &mut self,
        key: u64,
        value: &[u8; V],
        transaction: &mut Transaction<'_>,
    ) -> Result<Option<[u8; V]>, CommitError>;

    /// A value went into a new leaf.
    fn placed(&mut self, _value: &[u8; V]) {}
}

/// A changed tree.
#[derive(Debug)]
pub struct Edited {
    /// The new root, which has one reference.
    pub root: BlockNr,
    /// The leaves that both trees have.
    pub kept: Vec<BlockNr>,
    /// The internal nodes of the old tree; the new one has none of them.
    pub old_internal: Vec<BlockNr>,
    /// The leaves of the old tree.
    pub old_leaves: Vec<BlockNr>,
}

/// Makes a tree with these changes out of the one below `root`, which stays where it is if nothing is concerned.
///
/// # Errors
/// [`CommitError::Unsound`] where a node that has to be read can't be used; and what the change gives.
pub fn edit<const V: usize>(
    source: &dyn BlockSource,
    root: BlockNr,
    change: &mut dyn Change<V>,
    transaction: &mut Transaction<'_>,
) -> Result<Edited, CommitError> {
    let tree = Upper::read(source, root, V)?;
    let concerned: Vec<bool> = (0..tree.leaves.len()).map(|at| change.concerns(tree.keys(at))).collect();
    let blocks: Vec<BlockNr> = tree.leaves.iter().map(|(_, block)| *block).collect();
    if !concerned.contains(&true) {
        transaction.share(root);
        return Ok(Edited { root, kept: blocks, old_internal: Vec::new(), old_leaves: vec![root] });
    }
    let mut copies = Copies { source, tree: &tree, copied: BTreeSet::new(), change };
    let mut builder = TreeBuilder::<V>::new();
    for ((at, (key, block)), concerned) in (0..).zip(&tree.leaves).zip(concerned) {
        if concerned {
            copies.copied.insert(at);
            tree.entries(source, at as usize, &mut |key, value| {
                if let Some(value) = copies.change.change(key, value, transaction)? {
                    copies.change.placed(&value);
                    builder.push(key, &value, transaction)?;
                }
                Ok(())
            })?;
        } else {
            // How full it is does not matter: it is as it was.
            let child = Child { first_key: *key, block: *block, len: max_entries(V) as u32 };
            builder.share(SharedLeaf { child, handle: at }, &mut copies, transaction)?;
        }
    }
    let root = builder.finish(&mut copies, transaction)?;
    let copied = copies.copied;
    let kept = (0..).zip(&blocks).filter(|(at, _)| !copied.contains(at)).map(|(_, block)| *block).collect();
    Ok(Edited { root, kept, old_internal: tree.internal, old_leaves: blocks })
}

/// As [`edit`], of a tree that shares nothing with another one: the old tree loses its references, too.
///
/// # Errors
/// As [`edit`].
pub fn replace<const V: usize>(
    source: &dyn BlockSource,
    root: BlockNr,
    change: &mut dyn Change<V>,
    transaction: &mut Transaction<'_>,
) -> Result<BlockNr, CommitError> {
    let edited = edit(source, root, change, transaction)?;
    for block in edited.old_internal.iter().chain(&edited.old_leaves) {
        transaction.unrefer(*block);
    }
    Ok(edited.root)
}

/// Hands out the entries of leaves that stay the same and yet have to be copied.
struct Copies<'a, const V: usize> {
    source: &'a dyn BlockSource,
    tree: &'a Upper,
    /// Leaves whose entries went into new ones.
    copied: BTreeSet<u32>,
    change: &'a mut dyn Change<V>,
}

impl<const V: usize> LeafEntries<V, CommitError> for Copies<'_, V> {
    fn entries(&mut self, leaf: &SharedLeaf, each: &mut EachEntry<'_, V, CommitError>) -> Result<(), CommitError> {
        self.copied.insert(leaf.handle);
        self.tree.entries(self.source, leaf.handle as usize, &mut |key, value| {
            self.change.placed(value);
            each(key, value)
        })
    }
}

/// A tree down to the places of its leaves.
struct Upper {
    internal: Vec<BlockNr>,
    /// The lowest key that each may have, and its block; keys ascend.
    leaves: Vec<(u64, BlockNr)>,
}

impl Upper {
    fn read(source: &dyn BlockSource, root: BlockNr, value_size: usize) -> Result<Upper, CommitError> {
        let mut internal = Vec::new();
        let mut level = vec![(0, root)];
        for _ in 0..DEPTH_LIMIT {
            let first = level.first().map_or(root, |(_, block)| *block);
            let mut is_leaf = true;
            with_node(source, first, value_size, &mut |node| {
                is_leaf = node.is_leaf();
                Ok(())
            })?;
            if is_leaf {
                return Ok(Upper { internal, leaves: level });
            }
            let mut below: Vec<(u64, BlockNr)> = Vec::new();
            for (_, block) in &level {
                with_node(source, *block, value_size, &mut |node| {
                    if node.is_leaf() || node.is_empty() {
                        return Err(unsound(*block, "it has no children"));
                    }
                    below.extend(node.keys().iter().zip(node.values_u64()).map(|(k, v)| (k.get(), BlockNr(v.get()))));
                    Ok(())
                })?;
            }
            let ordered = below.is_sorted_by(|left, right| left.0 < right.0);
            if !ordered || below.len() as u64 > source.nr_blocks() {
                return Err(unsound(root, "the keys below it are not in order"));
            }
            internal.extend(level.iter().map(|(_, block)| *block));
            level = below;
        }
        Err(unsound(root, "it has too many levels below it"))
    }

    /// The keys that a leaf answers for.
    fn keys(&self, at: usize) -> KeyRange {
        let begin = self.leaves.get(at).filter(|_| at > 0).map_or(0, |leaf| leaf.0);
        KeyRange { begin, end: self.leaves.get(at + 1).map(|next| next.0) }
    }

    /// Hands out the entries of a leaf, which lie where its parent says.
    fn entries<const V: usize>(
        &self,
        source: &dyn BlockSource,
        at: usize,
        each: &mut EachEntry<'_, V, CommitError>,
    ) -> Result<(), CommitError> {
        let Some((_, block)) = self.leaves.get(at).copied() else { return Ok(()) };
        let KeyRange { begin, end } = self.keys(at);
        with_node(source, block, V, &mut |node| {
            let outside = |key: u64| key < begin || end.is_some_and(|end| key >= end);
            if !node.is_leaf() || node.keys().iter().any(|key| outside(key.get())) {
                return Err(unsound(block, "it does not belong where it is"));
            }
            let (values, _) = node.value_bytes().as_chunks::<V>();
            node.keys().iter().zip(values).try_for_each(|(key, value)| each(key.get(), value))
        })
    }
}

fn unsound(block: BlockNr, detail: impl Into<String>) -> CommitError {
    CommitError::Unsound { block, detail: detail.into() }
}

/// Lends a node that is good by itself.
fn with_node(
    source: &dyn BlockSource,
    block: BlockNr,
    value_size: usize,
    look: &mut dyn FnMut(&Node<'_>) -> Result<(), CommitError>,
) -> Result<(), CommitError> {
    let mut result = Err(unsound(block, "it can't be read"));
    source.read_many(&[block], &mut |_, content| {
        result = match content.map(|content| node::verify(content, block, value_size)) {
            Err(error) => Err(unsound(block, error.to_string())),
            Ok(Err(fault)) => Err(unsound(block, fault.to_string())),
            Ok(Ok(node)) if node.first_out_of_order().is_some() => Err(unsound(block, "its keys are not in order")),
            Ok(Ok(node)) if node.max_entries() != max_entries(node.value_size()) => {
                Err(unsound(block, "its capacity is not the usual one"))
            }
            Ok(Ok(node)) => look(&node),
        };
        ControlFlow::Continue(())
    });
    result
}
