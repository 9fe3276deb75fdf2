//! Splits a list of blocks into runs that are fetched in one go.

use super::source::ReadError;
use crate::base::BlockNr;
use std::io;

/// A part of a list: ascending blocks, not far from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// The blocks wanted, in the list's order.
    pub blocks: &'a [BlockNr],
    /// The first block to fetch.
    pub first: u64,
    /// The block after the last to fetch; `first` where the run is of blocks past the end.
    pub past: u64,
}

/// Splits `blocks` into ascending runs within `nr_blocks`, each of at most `window` blocks from first to last, in which
/// less than `gap` blocks that are not wanted lie between two that are. Blocks past the end are runs of one.
pub fn split(blocks: &[BlockNr], nr_blocks: u64, gap: u64, window: u64) -> impl Iterator<Item = Run<'_>> {
    let mut rest = blocks;
    std::iter::from_fn(move || {
        let first = rest.first()?.0;
        if first >= nr_blocks {
            let (blocks, others) = rest.split_at(1);
            rest = others;
            return Some(Run { blocks, first, past: first });
        }
        let mut last = first;
        let len = rest
            .iter()
            .skip(1)
            .take_while(|block| {
                let fits = block.0 > last && block.0 - last <= gap && block.0 - first < window && block.0 < nr_blocks;
                last = if fits { block.0 } else { last };
                fits
            })
            .count();
        let (blocks, others) = rest.split_at(len + 1);
        rest = others;
        Some(Run { blocks, first, past: last + 1 })
    })
}

/// The error of a block that the file or device did not give.
pub fn read_error(error: &io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Io("the file ends before it: it was cut while it was read".into()),
        _ => ReadError::Io(format!("the device gave an error: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(blocks: &[u64], nr_blocks: u64) -> Vec<(u64, u64, usize)> {
        let blocks: Vec<_> = blocks.iter().map(|block| BlockNr(*block)).collect();
        split(&blocks, nr_blocks, 2, 5).map(|run| (run.first, run.past, run.blocks.len())).collect()
    }

    #[test]
    fn runs_are_ascending_close_and_short() {
        assert_eq!(ranges(&[], 100), []);
        assert_eq!(ranges(&[7], 100), [(7, 8, 1)]);
        assert_eq!(ranges(&[1, 2, 4, 7, 6, 6], 100), [(1, 5, 3), (7, 8, 1), (6, 7, 1), (6, 7, 1)]);
        assert_eq!(ranges(&[0, 1, 2, 3, 4, 5, 6], 100), [(0, 5, 5), (5, 7, 2)]);
        assert_eq!(
            ranges(&[8, 9, 10, 11, u64::MAX], 10),
            [(8, 10, 2), (10, 10, 1), (11, 11, 1), (u64::MAX, u64::MAX, 1)]
        );
    }
}
