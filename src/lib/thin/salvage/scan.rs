//! One look at every block: which of them are whole nodes, whoever leads to them.

use crate::base::{BlockNr, Progress};
use crate::block::BlockSource;
use crate::format::Block;
use crate::format::block::{self, BlockKind};
use crate::format::node::{Node, NodeHeader};
use crate::thin::load;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::mem::size_of;
use std::ops::ControlFlow;
use zerocopy::FromBytes;

/// Blocks that one task reads: 2 MiB.
const TASK_BLOCKS: u64 = 512;

/// What a block is, by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing that a salvage needs.
    #[default]
    Other,
    /// A leaf with values of so many bytes.
    Leaf(u8),
    /// An internal node.
    Internal,
    /// A thin superblock: a metadata snapshot's.
    Superblock,
}

/// What is known of a block by itself. Nodes have their keys in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) entries: u16,
    pub(super) kind: Kind,
}

// 20 where words of 64 bits are aligned to 4 bytes.
const _: () = assert!(size_of::<Found>() <= 24);

/// Every block. Takes 24 bytes per block, or fewer.
pub(super) struct Scan(Vec<Found>);

impl Scan {
    /// Reads all blocks that can be in use.
    pub(super) fn of(source: &dyn BlockSource, progress: &dyn Progress) -> Scan {
        let nr_blocks = load::usable_blocks(source);
        progress.section("looking at every block", nr_blocks);
        let parts: Vec<Vec<Found>> = (0..nr_blocks.div_ceil(TASK_BLOCKS))
            .into_par_iter()
            .map(|task| {
                let end = ((task + 1) * TASK_BLOCKS).min(nr_blocks);
                let blocks: Vec<BlockNr> = (task * TASK_BLOCKS..end).map(BlockNr).collect();
                let mut found = Vec::with_capacity(blocks.len());
                if source.skip_holes(BlockNr(task * TASK_BLOCKS)).0 >= end {
                    found.resize(blocks.len(), Found::default());
                    return found;
                }
                source.read_many(&blocks, &mut |location, content| {
                    found.push(content.map(|content| look(content, location)).unwrap_or_default());
                    ControlFlow::Continue(())
                });
                progress.advance(blocks.len() as u64);
                found
            })
            .collect();
        Scan(parts.into_iter().flatten().collect())
    }

    /// What the block is; nothing past the end.
    pub(super) fn get(&self, block: BlockNr) -> Found {
        usize::try_from(block.0).ok().and_then(|index| self.0.get(index)).copied().unwrap_or_default()
    }

    /// All blocks of a kind.
    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = (BlockNr, Found)> + '_ {
        self.0
            .iter()
            .enumerate()
            .filter(move |(_, found)| found.kind == kind)
            .map(|(block, found)| (BlockNr(block as u64), *found))
    }

    /// Blocks that were looked at.
    pub(super) fn nr_blocks(&self) -> u64 {
        self.0.len() as u64
    }
}

fn look(content: &Block, location: BlockNr) -> Found {
    match block::identify(content) {
        Some(BlockKind::ThinSuperblock) if location.0 != 0 && is_at_home(content, location) => {
            Found { kind: Kind::Superblock, ..Found::default() }
        }
        Some(BlockKind::Node) if is_at_home(content, location) => node(content).unwrap_or_default(),
        _ => Found::default(),
    }
}

fn is_at_home(content: &Block, location: BlockNr) -> bool {
    block::stored_number(content, BlockKind::Node) == location.0
}

fn node(content: &Block) -> Option<Found> {
    let (header, _) = NodeHeader::ref_from_prefix(content).ok()?;
    let value_size = header.value_size.get();
    let node = Node::trusting_checksum(content, value_size as usize).ok()?;
    if node.first_out_of_order().is_some() {
        return None;
    }
    let kind = if node.is_leaf() { Kind::Leaf(u8::try_from(value_size).ok()?) } else { Kind::Internal };
    let (first, last) = match (node.keys().first(), node.keys().last()) {
        (Some(first), Some(last)) => (first.get(), last.get()),
        _ => (u64::MAX, 0),
    };
    Some(Found { first, last, entries: node.len() as u16, kind })
}
