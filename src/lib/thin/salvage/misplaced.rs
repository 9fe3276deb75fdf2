//! Blocks that lie in each other's places, as a device leaves them that mixes up its writes.
//!
//! Each is whole and says where it belongs. They are taken only where they have changed places among themselves: then
//! none of them can be the remains of another pool, which lie apart from where they say by one and the same distance.

use super::{Salvage, SalvageError, SalvageOptions, salvage};
use crate::base::{BlockNr, Code, Findings, Progress};
use crate::block::{BlockSource, ReadError, Visit};
use crate::format::block::{self, BlockKind};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Blocks that change places in a row, at most.
const LONGEST: usize = 1000;
/// Times that blocks put back may lead to more of them.
const ROUNDS: usize = 16;

/// A source in which such blocks are where they belong.
pub struct PutBack<'a> {
    source: &'a dyn BlockSource,
    /// Where a block is that belongs here.
    found_in: BTreeMap<BlockNr, BlockNr>,
}

impl BlockSource for PutBack<'_> {
    fn nr_blocks(&self) -> u64 {
        self.source.nr_blocks()
    }

    fn read_many(&self, blocks: &[BlockNr], visit: &mut Visit<'_>) {
        let stopped = Cell::new(false);
        let mut visit = |location, content: Result<&_, ReadError>| {
            let next = visit(location, content);
            stopped.set(next.is_break());
            next
        };
        for part in blocks.chunk_by(|left, right| self.is_home(left) == self.is_home(right)) {
            if part.first().is_some_and(|first| !self.is_home(first)) {
                self.source.read_many(part, &mut visit);
            } else {
                for block in part {
                    let found_in = self.found_in.get(block).unwrap_or(block);
                    let content = self.source.read(*found_in);
                    if visit(*block, content.as_deref().map_err(Clone::clone)).is_break() {
                        return;
                    }
                }
            }
            if stopped.get() {
                return;
            }
        }
    }

    fn nr_faults(&self) -> u64 {
        self.source.nr_faults()
    }
}

impl<'a> PutBack<'a> {
    fn is_home(&self, block: &BlockNr) -> bool {
        self.found_in.contains_key(block)
    }

    /// Takes up the blocks that `findings` tells of; `true` where there are more of them than before.
    fn follow(&mut self, findings: &Findings) -> bool {
        let before = self.found_in.len();
        for finding in findings.iter().filter(|finding| finding.code == Code::BlockMoved) {
            if let Some(place) = finding.place.block.filter(|place| !self.found_in.values().any(|known| known == place))
            {
                self.found_in.extend(self.circle(place));
            }
        }
        self.found_in.len() > before
    }

    /// From block to the place where it belongs, until the first place is reached again: every home on the way, and
    /// where its block is. Nothing where the way ends elsewhere.
    fn circle(&self, begin: BlockNr) -> Vec<(BlockNr, BlockNr)> {
        let mut circle = Vec::new();
        let mut at = begin;
        while circle.len() < LONGEST {
            let Some(home) = belongs_elsewhere(self.source, at) else { break };
            circle.push((home, at));
            if home == begin {
                return circle;
            }
            at = home;
        }
        Vec::new()
    }
}

/// Where a whole node belongs that is not where it is.
fn belongs_elsewhere(source: &dyn BlockSource, at: BlockNr) -> Option<BlockNr> {
    let content = source.read(at).ok()?;
    let home = BlockNr(block::stored_number(&content, BlockKind::Node));
    (block::identify(&content) == Some(BlockKind::Node) && home != at && home.0 < source.nr_blocks()).then_some(home)
}

/// As [`salvage`], and puts blocks back that have changed places. What the result rests on is to be read through the
/// source that comes with it.
///
/// # Errors
/// Where there is nothing to begin with.
pub fn salvage_put_back<'a>(
    source: &'a dyn BlockSource,
    options: &SalvageOptions,
    progress: &dyn Progress,
) -> Result<(Salvage, PutBack<'a>), SalvageError> {
    let mut put_back = PutBack { source, found_in: BTreeMap::new() };
    let mut best = salvage(source, options, progress)?;
    let mut findings = None;
    for _ in 0..ROUNDS {
        if !best.account.anything_lost() || !put_back.follow(&best.findings) {
            break;
        }
        let next = salvage(&put_back, options, progress)?;
        // The damage is what is on the device, so the first findings are the ones to tell.
        findings.get_or_insert(std::mem::replace(&mut best, next).findings);
    }
    if let Some(first) = findings {
        best.findings = first;
    }
    best.account.misplaced = put_back.found_in.iter().map(|(home, place)| (*home, *place)).collect();
    Ok((best, put_back))
}

#[cfg(test)]
mod tests {
    use super::PutBack;
    use crate::base::BlockNr;
    use crate::block::BlockSource;
    use crate::block::memory::MemorySource;
    use crate::format::block::{self, BLOCK_SIZE, BlockKind};
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    /// Nodes at the places to the left that belong to those on the right.
    fn image(nodes: &[(u64, u64)]) -> MemorySource {
        let mut image = MemorySource::new(20);
        for (place, home) in nodes {
            let mut node = [*home as u8; BLOCK_SIZE];
            block::seal(&mut node, BlockKind::Node, BlockNr(*home));
            image.put(BlockNr(*place), &node).unwrap();
        }
        image
    }

    #[test]
    fn only_those_that_changed_places_among_themselves_are_taken() {
        let image =
            image(&[(1, 2), (2, 1), (3, 4), (4, 5), (5, 3), (6, 6), (7, 6), (8, 18), (9, 19), (10, 12), (11, 13)]);
        let source = PutBack { source: &image, found_in: BTreeMap::new() };
        let circle =
            |from| source.circle(BlockNr(from)).into_iter().map(|(home, at)| (home.0, at.0)).collect::<Vec<_>>();
        assert_eq!(circle(1), [(2, 1), (1, 2)]);
        assert_eq!(circle(4), [(5, 4), (3, 5), (4, 3)]);
        for from in [0, 6, 7, 8, 9, 10, 11, 19, 20] {
            assert!(circle(from).is_empty(), "{from}");
        }
    }

    #[test]
    fn blocks_are_read_where_they_belong() {
        let image = image(&[(1, 2), (2, 1), (3, 3)]);
        let found_in = BTreeMap::from([(BlockNr(2), BlockNr(1)), (BlockNr(1), BlockNr(2))]);
        let source = PutBack { source: &image, found_in };
        let wanted: Vec<_> = [0, 1, 2, 3, 2, 25].map(BlockNr).into();
        let mut seen = Vec::new();
        source.read_many(&wanted, &mut |location, content| {
            seen.push((location.0, content.map(|block| block[100]).ok()));
            ControlFlow::Continue(())
        });
        assert_eq!(seen, [(0, Some(0)), (1, Some(1)), (2, Some(2)), (3, Some(3)), (2, Some(2)), (25, None)]);
        for stop_at in 0..wanted.len() {
            let mut nr_seen = 0;
            source.read_many(&wanted, &mut |_, _| {
                nr_seen += 1;
                if nr_seen > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(nr_seen, stop_at + 1);
        }
    }
}
