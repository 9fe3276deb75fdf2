//! Building metadata from a document by copying its nodes: what is whole stays as it is.
//!
//! A tree that is whole is copied node by node, each node once, so that all that was shared stays shared, upper nodes
//! included, and the copy takes no more blocks than the tree did. Of a damaged tree the leaves that are left are
//! copied, and new nodes are built above them. Only leaves too small to stand beside others are made anew.

use super::builder::{Built, BuiltPool, Recount, check_device, check_pool, finish_pool};
use super::fault::RestoreFault;
use super::mappings::count_values;
use super::{RestoreError, RestoreOutcome, commit_verified};
use crate::base::{BlockNr, Progress};
use crate::block::{BlockOutput, BlockSource, ReadError};
use crate::format::details::DeviceDetails;
use crate::format::node::{HEADER_SIZE, Node};
use crate::format::{BLOCK_SIZE, Block};
use crate::pdata::build::{Child, LeafRow, NodeBuf, NodeSink, Spine, TreeBuilder};
use crate::pdata::commit::ImageWriter;
use crate::pdata::counts::{Counts, Tally};
use crate::pdata::forest::{Forest, NodeInfo};
use crate::thin::document::{Document, DocumentDevice, Leaves};
use crate::thin::items::RereadError;
use std::collections::HashMap;
use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use zerocopy::byteorder::little_endian::{U32, U64};

/// Copies the pool of `document`, whose nodes are in `source`, to `output`. None, with nothing written, where a copy
/// does not fit; what is built anew may.
///
/// # Errors
/// Where a node that was good cannot be read any more, or writing fails.
pub(super) fn copy_document(
    source: &dyn BlockSource,
    document: &Document,
    output: &mut dyn BlockOutput,
    progress: &dyn Progress,
) -> Result<Option<RestoreOutcome>, RestoreError> {
    let present = output.nr_blocks();
    progress.section("planning", document.devices.len() as u64);
    check_pool(&document.pool, present)?;
    let counting = Copier::new(source, document, ImageWriter::plan(present), Counts::new(document.pool.nr_data_blocks));
    let (planned, counts) = counting.pool(document, progress)?;
    let nr_used = planned.sealed.nr_needed();
    if nr_used > present {
        return Ok(None);
    }
    progress.section("writing", document.devices.len() as u64);
    let (built, _) = Copier::new(source, document, ImageWriter::begin(output)?, counts).pool(document, progress)?;
    if built.sealed.nr_needed() != nr_used {
        return Err(RestoreError::Changed);
    }
    let recounts = built.recounts.clone();
    commit_verified(built, progress)?;
    Ok(Some(RestoreOutcome { recounts, nr_used, ..RestoreOutcome::default() }))
}

/// What is done with a leaf, given its block, its content and what that is as a node.
type EachLeaf<'e, C> = dyn FnMut(&mut C, BlockNr, &Block, &Node<'_>) -> Result<(), RestoreError> + 'e;

struct Copier<'a, 'w> {
    source: &'a dyn BlockSource,
    forest: &'a Forest,
    image: ImageWriter<'w>,
    /// Counted by the plan, which the copying relies on.
    data: Counts,
    tally: Tally,
    /// Where the copy of each node is, by the node's block; 0 where there is none yet.
    places: Vec<u32>,
    /// What was made of leaves that are too small.
    merged: HashMap<Vec<BlockNr>, Vec<Child>>,
    spine: Spine,
}

impl<'a, 'w> Copier<'a, 'w> {
    fn new(source: &'a dyn BlockSource, document: &'a Document, image: ImageWriter<'w>, data: Counts) -> Self {
        Copier {
            source,
            forest: &document.forest,
            image,
            data,
            tally: Tally::default(),
            places: vec![0; document.forest.nr_blocks()],
            merged: HashMap::new(),
            spine: Spine::default(),
        }
    }

    fn pool(mut self, document: &Document, progress: &dyn Progress) -> Result<(BuiltPool<'w>, Counts), RestoreError> {
        let (mut built, mut recounts, mut ids) = (Vec::new(), Vec::new(), HashSet::new());
        for DocumentDevice { device, leaves } in &document.devices {
            check_device(device, document.pool.time)?;
            if !ids.insert(device.id) {
                return Err(RestoreFault::DuplicateDevice(device.id).into());
            }
            let (root, mapped) = self.device(leaves)?;
            if mapped != device.mapped_blocks {
                recounts.push(Recount { device: device.id, claimed: device.mapped_blocks, counted: mapped });
            }
            let details = DeviceDetails {
                mapped_blocks: U64::new(mapped),
                transaction_id: U64::new(device.transaction),
                creation_time: U32::new(device.creation_time),
                snapshotted_time: U32::new(device.snapshotted_time),
            };
            // Ids were checked to have 24 bits.
            built.push(Built { id: device.id.0 as u32, root, details });
            progress.advance(1);
        }
        self.data.settle(&mut self.tally);
        let mut pool = finish_pool(self.image, &self.data, document.pool.clone(), built)?;
        pool.recounts = recounts;
        Ok((pool, self.data))
    }

    /// Copies a device's tree; gives its root, with a reference, and its number of mappings.
    fn device(&mut self, leaves: &Leaves) -> Result<(BlockNr, u64), RestoreError> {
        match leaves {
            Leaves::Tree(root) => {
                let copy = self.tree(*root)?;
                self.image.share(copy);
                Ok((copy, self.forest.info(*root).map_or(0, |info| info.entries_below)))
            }
            Leaves::List(leaves) => self.list(leaves),
            Leaves::Skipped => Ok((self.image.node(&mut NodeBuf::<8>::new_leaf())?, 0)),
        }
    }

    fn place(&self, block: BlockNr) -> Option<BlockNr> {
        let place = usize::try_from(block.0).ok().and_then(|block| self.places.get(block)).copied()?;
        (place != 0).then_some(BlockNr(u64::from(place)))
    }

    fn settle(&mut self, block: BlockNr, copy: BlockNr) {
        if let Some(place) = usize::try_from(block.0).ok().and_then(|block| self.places.get_mut(block)) {
            *place = copy.0 as u32;
        }
    }

    /// Copies a tree that is whole; gives its root. Its depth is bounded, as that of all whole trees is.
    fn tree(&mut self, root: BlockNr) -> Result<BlockNr, RestoreError> {
        if let Some(copy) = self.place(root) {
            return Ok(copy);
        }
        let height = self.forest.info(root).filter(|info| info.is_whole()).and_then(NodeInfo::height);
        match height {
            None => return Err(RestoreFault::from(RereadError::Changed).into()),
            Some(0) => self.leaves(&[root])?,
            Some(height) => {
                let mut content = self.source.read(root).map_err(|error| vanished(&error))?;
                let (at, children) = pointers(&content)?;
                if height == 1 {
                    self.leaves(&children)?;
                } else {
                    children.iter().try_for_each(|child| self.tree(*child).map(|_| ()))?;
                }
                for (index, child) in children.iter().enumerate() {
                    let copy = self.place(*child).ok_or(RestoreFault::from(RereadError::Changed))?;
                    self.image.share(copy);
                    content[at + 8 * index..at + 8 * index + 8].copy_from_slice(&copy.0.to_le_bytes());
                }
                let copy = self.image.add_copy(&mut content)?;
                self.settle(root, copy);
            }
        }
        self.place(root).ok_or(RestoreFault::from(RereadError::Changed).into())
    }

    /// Copies those leaves that have not been copied yet; a plan counts what they hold instead.
    fn leaves(&mut self, leaves: &[BlockNr]) -> Result<(), RestoreError> {
        let missing: Vec<BlockNr> = leaves.iter().copied().filter(|leaf| self.place(*leaf).is_none()).collect();
        let mut buffer = Box::new([0; BLOCK_SIZE]);
        self.read_leaves(&missing, &mut |copier, leaf, content, node| {
            if copier.image.is_plan() {
                count_values(&copier.data, &mut copier.tally, node.value_bytes());
            } else {
                buffer.copy_from_slice(content);
            }
            let copy = copier.image.add_copy(&mut buffer)?;
            copier.settle(leaf, copy);
            Ok(())
        })
    }

    fn read_leaves(&mut self, leaves: &[BlockNr], each: &mut EachLeaf<'_, Self>) -> Result<(), RestoreError> {
        let mut result = Ok(());
        self.source.read_many(leaves, &mut |leaf, content| {
            result = match content {
                Err(error) => Err(vanished(&error)),
                Ok(content) => match Node::trusting_checksum(content, 8) {
                    Ok(node) if node.is_leaf() => each(self, leaf, content, &node),
                    _ => Err(RestoreFault::from(RereadError::Changed).into()),
                },
            };
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result
    }

    /// Builds a tree over what is left of a damaged one.
    fn list(&mut self, leaves: &[u32]) -> Result<(BlockNr, u64), RestoreError> {
        let forest = self.forest;
        let known: Vec<(BlockNr, u64, u64)> = leaves
            .iter()
            .map(|leaf| BlockNr(u64::from(*leaf)))
            .filter_map(|leaf| forest.info(leaf).map(|info| (leaf, info.first, info.entries_below)))
            .filter(|(_, _, entries)| *entries > 0)
            .collect();
        if known.is_empty() {
            return Ok((self.image.node(&mut NodeBuf::<8>::new_leaf())?, 0));
        }
        let kept: Vec<BlockNr> = known.iter().map(|(leaf, ..)| *leaf).collect();
        let sizes: Vec<u64> = known.iter().map(|(.., entries)| *entries).collect();
        for Segment { begin, end, merge } in segments(&sizes) {
            if merge {
                for child in self.merge(&kept[begin..end])? {
                    self.image.share(child.block);
                    self.spine.push(child, &mut self.image)?;
                }
                continue;
            }
            self.leaves(&kept[begin..end])?;
            for (leaf, first_key, entries) in &known[begin..end] {
                let copy = self.place(*leaf).ok_or(RestoreFault::from(RereadError::Changed))?;
                self.image.share(copy);
                let child = Child { first_key: *first_key, block: copy, len: *entries as u32 };
                self.spine.push(child, &mut self.image)?;
            }
        }
        Ok((self.spine.finish(&mut self.image)?, sizes.iter().sum()))
    }

    /// New leaves with the entries of these. They have no reference yet.
    fn merge(&mut self, leaves: &[BlockNr]) -> Result<Vec<Child>, RestoreError> {
        if let Some(made) = self.merged.get(leaves) {
            return Ok(made.clone());
        }
        let (mut row, mut made) = (LeafRow::<8>::default(), Vec::new());
        self.read_leaves(leaves, &mut |copier, _, _, node| {
            if copier.image.is_plan() {
                count_values(&copier.data, &mut copier.tally, node.value_bytes());
            }
            for (key, value) in node.keys().iter().zip(node.value_bytes().as_chunks::<8>().0) {
                row.push(key.get(), value, &mut copier.image, &mut |child| made.push(child))?;
            }
            Ok(())
        })?;
        row.finish(&mut self.image, &mut |child| made.push(child))?;
        made.iter().for_each(|child| self.image.unrefer(child.block));
        self.merged.insert(leaves.to_vec(), made.clone());
        Ok(made)
    }
}

/// Where the pointers of an internal node begin, and the children that they lead to.
fn pointers(content: &Block) -> Result<(usize, Vec<BlockNr>), RestoreFault> {
    match Node::trusting_checksum(content, 8) {
        Ok(node) if !node.is_leaf() => {
            let children = node.values_u64().iter().map(|child| BlockNr(child.get())).collect();
            Ok((HEADER_SIZE + 8 * node.max_entries(), children))
        }
        _ => Err(RereadError::Changed.into()),
    }
}

fn vanished(error: &ReadError) -> RestoreError {
    RestoreFault::from(RereadError::Io(io::Error::other(error.to_string()))).into()
}

/// Leaves in a row: to be copied, or to be merged into new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    begin: usize,
    end: usize,
    merge: bool,
}

/// Divides leaves of the given sizes so that none that stands beside others has fewer entries than
/// [`TreeBuilder::SHARED_MIN`]: small ones are merged with a neighbour.
fn segments(sizes: &[u64]) -> Vec<Segment> {
    let enough = |entries: u64| entries >= TreeBuilder::<8>::SHARED_MIN as u64;
    if sizes.len() == 1 {
        return vec![Segment { begin: 0, end: 1, merge: false }];
    }
    let mut segments: Vec<Segment> = Vec::new();
    // Entries to be merged that don't make a leaf yet.
    let mut pending = 0;
    for (index, size) in sizes.iter().enumerate() {
        let joins = pending > 0 || !enough(*size);
        match segments.last_mut() {
            Some(last) if last.merge == joins && (pending > 0 || !joins) => last.end = index + 1,
            _ => segments.push(Segment { begin: index, end: index + 1, merge: joins }),
        }
        pending = if joins && !enough(pending + size) { pending + size } else { 0 };
    }
    if pending > 0
        && let Some(last) = segments.pop()
    {
        // The last ones are too few by themselves: the leaf before them joins.
        match segments.last_mut() {
            Some(before) if before.merge => before.end = last.end,
            Some(before) => {
                before.end -= 1;
                let begin = before.end;
                if before.begin == before.end {
                    segments.pop();
                }
                segments.push(Segment { begin, end: last.end, merge: true });
            }
            None => segments.push(last),
        }
    }
    segments
}

#[cfg(test)]
mod tests;
