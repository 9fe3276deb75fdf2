//! The old contents of the blocks that a change overwrites, so that it can be taken back.
//!
//! A change in place writes only blocks that were free, and the superblock. So taking it back begins with the old
//! superblock: from then on the old state is there, and the rest only restores what free blocks held.

use super::CommitError;
use crate::base::BlockNr;
use crate::block::{BlockOutput, BlockSource, ReadError};
use crate::format::block::{self, BLOCK_SIZE, Block};

/// The first bytes of an undo file.
const MAGIC: &[u8; 16] = b"dmeta-undo-file1";
/// Magic, size of the metadata, number of blocks.
const HEADER: usize = 16 + 8 + 8;
const RECORD: usize = 8 + BLOCK_SIZE;

/// What a change overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// Blocks of the metadata that was changed.
    nr_blocks: u64,
    /// The superblock that the change puts in place.
    after: Box<Block>,
    /// Old contents; the superblock first.
    old: Vec<(BlockNr, Box<Block>)>,
}

/// Why a change cannot be taken back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The file is none that was written for this, or not whole.
    #[error("this is not a whole undo file")]
    NotAnUndoFile,
    /// The metadata has another size.
    #[error("this is not the metadata that was changed: it has {found} blocks, and the other one has {wanted}")]
    OtherSize {
        /// Blocks that it has.
        found: u64,
        /// Blocks that the metadata had which was changed.
        wanted: u64,
    },
    /// The superblock is neither the old one nor the new one.
    #[error("this is not the metadata that was changed, or it was changed again since")]
    OtherState,
    /// The metadata could not be read.
    #[error("the metadata can't be read: {0}")]
    Read(#[from] ReadError),
    /// Writing failed. The file still holds all that is needed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl Undo {
    /// Reads what a change will overwrite: `locations` and the superblock, in whose place `after` comes.
    ///
    /// # Errors
    /// Where a block cannot be read.
    pub fn of(
        source: &dyn BlockSource,
        locations: impl IntoIterator<Item = BlockNr>,
        after: &Block,
    ) -> Result<Undo, ReadError> {
        let mut old = Vec::new();
        for location in std::iter::once(BlockNr(0)).chain(locations) {
            old.push((location, source.read(location)?));
        }
        Ok(Undo { nr_blocks: source.nr_blocks(), after: Box::new(*after), old })
    }

    /// Blocks that it puts back.
    pub fn len(&self) -> usize {
        self.old.len()
    }

    /// Whether it puts nothing back; never so for what [`Undo::of`] gives.
    pub fn is_empty(&self) -> bool {
        self.old.is_empty()
    }

    /// The content of an undo file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + BLOCK_SIZE + self.old.len() * RECORD + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.nr_blocks.to_le_bytes());
        bytes.extend_from_slice(&(self.old.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.after[..]);
        for (location, content) in &self.old {
            bytes.extend_from_slice(&location.0.to_le_bytes());
            bytes.extend_from_slice(&content[..]);
        }
        bytes.extend_from_slice(&block::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the content of an undo file.
    ///
    /// # Errors
    /// [`UndoError::NotAnUndoFile`] where it is none or not whole.
    pub fn from_bytes(bytes: &[u8]) -> Result<Undo, UndoError> {
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or(UndoError::NotAnUndoFile)?;
        let good = body.starts_with(MAGIC) && block::crc32c(body).to_le_bytes() == *checksum;
        let rest = body.get(MAGIC.len()..).filter(|_| good).ok_or(UndoError::NotAnUndoFile)?;
        let (nr_blocks, rest) = number(rest)?;
        let (count, rest) = number(rest)?;
        let (after, rest) = rest.split_first_chunk::<BLOCK_SIZE>().ok_or(UndoError::NotAnUndoFile)?;
        let mut old = Vec::new();
        for record in rest.chunks(RECORD) {
            let (location, content) = number(record)?;
            let content: &Block = content.try_into().map_err(|_| UndoError::NotAnUndoFile)?;
            old.push((BlockNr(location), Box::new(*content)));
        }
        let whole = old.len() as u64 == count && old.first().is_some_and(|(location, _)| location.0 == 0);
        if !whole {
            return Err(UndoError::NotAnUndoFile);
        }
        Ok(Undo { nr_blocks, after: Box::new(*after), old })
    }

    /// Puts everything back, after making sure that `source`, which is the same as `output`, is what was changed.
    ///
    /// # Errors
    /// Before anything is written where it is something else; or where writing fails.
    pub fn apply(&self, source: &dyn BlockSource, output: &mut dyn BlockOutput) -> Result<(), UndoError> {
        if source.nr_blocks() != self.nr_blocks {
            return Err(UndoError::OtherSize { found: source.nr_blocks(), wanted: self.nr_blocks });
        }
        let superblock = source.read(BlockNr(0))?;
        let old = self.old.first().map(|(_, content)| content);
        if superblock != self.after && Some(&superblock) != old {
            return Err(UndoError::OtherState);
        }
        for (location, content) in &self.old {
            output.write(*location, content).map_err(CommitError::from)?;
            if location.0 == 0 {
                output.flush().map_err(CommitError::from)?;
            }
        }
        Ok(output.flush().map_err(CommitError::from)?)
    }
}

fn number(bytes: &[u8]) -> Result<(u64, &[u8]), UndoError> {
    let (number, rest) = bytes.split_first_chunk::<8>().ok_or(UndoError::NotAnUndoFile)?;
    Ok((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::memory::MemorySource;

    fn undo() -> Undo {
        let mut source = MemorySource::new(20);
        source.put(BlockNr(0), &[1; BLOCK_SIZE]).unwrap();
        source.put(BlockNr(7), &[7; BLOCK_SIZE]).unwrap();
        Undo::of(&source, [BlockNr(7), BlockNr(8)], &[2; BLOCK_SIZE]).unwrap()
    }

    #[test]
    fn files_read_back_and_broken_ones_do_not() {
        let bytes = undo().to_bytes();
        assert_eq!(Undo::from_bytes(&bytes).unwrap(), undo());
        for at in [0, 20, 30, 100, 5000, bytes.len() - 1] {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            assert!(matches!(Undo::from_bytes(&broken), Err(UndoError::NotAnUndoFile)), "byte {at}");
        }
        for length in [0, 3, 16, 40, bytes.len() - 1] {
            assert!(matches!(Undo::from_bytes(&bytes[..length]), Err(UndoError::NotAnUndoFile)), "length {length}");
        }
    }
}
