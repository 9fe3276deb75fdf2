//! The counts that the metadata space map stores, as far as they can be read.

use super::forest::Step;
use super::space_map::SpaceMap;
use crate::base::BlockNr;
use crate::block::BlockSource;
use crate::format::block::{self, BlockKind};
use crate::format::node::Node;
use crate::format::space_map::{self, ENTRIES_PER_BITMAP};
use std::ops::ControlFlow;

const UNKNOWN: u32 = u32::MAX;

/// Stored counts by block. Takes 4 bytes per block.
#[derive(Debug)]
pub struct StoredCounts(Vec<u32>);

impl StoredCounts {
    /// Reads them all.
    pub fn read(map: &SpaceMap, source: &dyn BlockSource) -> StoredCounts {
        let nr_blocks = map.nr_blocks.min(source.nr_blocks()) as usize;
        let mut stored = StoredCounts(vec![UNKNOWN; nr_blocks]);
        for (index, entry) in &map.entries {
            let location = BlockNr(entry.blocknr.get());
            source.read_many(&[location], &mut |_, content| {
                if let Ok(content) = content
                    && block::verify(content, BlockKind::Bitmap, location).is_ok()
                {
                    stored.take_bitmap(*index, |at| space_map::bitmap_count(content, at));
                }
                ControlFlow::Continue(())
            });
        }
        stored.take_overflow(map, source);
        stored
    }

    fn take_bitmap(&mut self, index: u64, count: impl Fn(usize) -> u8) {
        let begin = (index * ENTRIES_PER_BITMAP) as usize;
        let counts = self.0.iter_mut().skip(begin).take(ENTRIES_PER_BITMAP as usize);
        for (at, stored) in counts.enumerate() {
            *stored = match count(at) {
                3 => UNKNOWN,
                known => u32::from(known),
            };
        }
    }

    fn take_overflow(&mut self, map: &SpaceMap, source: &dyn BlockSource) {
        for root in map.counts.roots() {
            let mut leaves = Vec::new();
            map.counts.traverse(source, root.block, &mut |step| {
                if let Step::Leaf(block) = step {
                    leaves.push(block);
                }
                ControlFlow::Continue(())
            });
            source.read_many(&leaves, &mut |_, content| {
                if let Ok(content) = content
                    && let Ok(node) = Node::trusting_checksum(content, 4)
                {
                    let counts = node.value_bytes().as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
                    for (key, count) in node.keys().iter().zip(counts) {
                        let stored = usize::try_from(key.get()).ok().and_then(|key| self.0.get_mut(key));
                        if let Some(stored) = stored.filter(|stored| **stored == UNKNOWN) {
                            *stored = count;
                        }
                    }
                }
                ControlFlow::Continue(())
            });
        }
    }

    /// The stored count of a block; `None` where it cannot be read.
    pub fn get(&self, block: BlockNr) -> Option<u32> {
        let stored = usize::try_from(block.0).ok().and_then(|index| self.0.get(index)).copied()?;
        (stored != UNKNOWN).then_some(stored)
    }
}
