//! Fills a whole metadata device, from block 1 on (docs/format.md 8.2).

use super::{CommitError, DataCounts, SpaceMapRoots};
use crate::base::BlockNr;
use crate::block::{BlockOutput, BlockSource, Visit};
use crate::format::block::{self, BlockKind};
use crate::format::space_map::{self, ENTRIES_PER_BITMAP, IndexEntry, MAX_METADATA_BLOCKS, SpaceMapRoot};
use crate::format::{BLOCK_SIZE, Block};
use crate::pdata::build::{NodeBuf, NodeSink, NothingShared, TreeBuilder};
use crate::pdata::counts::BitmapCounts;
use crate::pdata::space_map_write::{self, COUNT_SIZE, INDEX_ENTRY_SIZE};

/// Writes a new image, or only finds out how many blocks it takes.
///
/// Blocks are taken in order from 1 upwards. Takes 4 bytes of memory per block taken.
pub struct ImageWriter<'a> {
    /// None where nothing is to be written.
    output: Option<&'a mut dyn BlockOutput>,
    /// Blocks of the image.
    nr_blocks: u64,
    /// References to each block taken so far; the next one to take is behind the last.
    counts: Vec<u32>,
}

impl std::fmt::Debug for ImageWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageWriter").field("nr_blocks", &self.nr_blocks).field("taken", &self.counts.len()).finish()
    }
}

impl<'a> ImageWriter<'a> {
    /// Writes nothing, and counts the blocks that an image on a device of `nr_blocks` takes. It may take more than
    /// there are.
    pub fn plan(nr_blocks: u64) -> ImageWriter<'static> {
        ImageWriter { output: None, nr_blocks: nr_blocks.min(MAX_METADATA_BLOCKS), counts: vec![1] }
    }

    /// Begins to write: from here on, until the new superblock is in place, the output holds no valid metadata.
    ///
    /// Blocks past the largest metadata device are not used.
    ///
    /// # Errors
    /// Where the old superblock could not be overwritten.
    pub fn begin(output: &'a mut dyn BlockOutput) -> Result<ImageWriter<'a>, CommitError> {
        let nr_blocks = output.nr_blocks().min(MAX_METADATA_BLOCKS);
        output.write(BlockNr(0), &[0; BLOCK_SIZE])?;
        output.flush()?;
        Ok(ImageWriter { output: Some(output), nr_blocks, counts: vec![1] })
    }

    /// Blocks of the image.
    pub fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    /// Blocks taken so far, the superblock's included.
    pub fn nr_taken(&self) -> u64 {
        self.counts.len() as u64
    }

    /// References to a block that was taken.
    pub fn count(&self, block: BlockNr) -> u32 {
        usize::try_from(block.0).ok().and_then(|index| self.counts.get(index)).copied().unwrap_or(0)
    }

    /// Takes back the reference that a block got when it was taken, for one that waits to be shared.
    pub fn unrefer(&mut self, block: BlockNr) {
        let count = &mut self.counts[block.0 as usize];
        *count = count.saturating_sub(1);
    }

    fn allocate(&mut self) -> Result<BlockNr, CommitError> {
        let next = self.nr_taken();
        if next >= MAX_METADATA_BLOCKS {
            return Err(CommitError::TooLarge);
        }
        if self.output.is_some() && next >= self.nr_blocks {
            return Err(CommitError::NoSpace { nr_blocks: self.nr_blocks });
        }
        self.counts.push(1);
        Ok(BlockNr(next))
    }

    /// Takes a block for what `seal` gives when it knows its place.
    ///
    /// # Errors
    /// Where there is no block left, or writing failed.
    pub fn add(&mut self, seal: impl FnOnce(BlockNr) -> Box<Block>) -> Result<BlockNr, CommitError> {
        let location = self.allocate()?;
        if self.output.is_some() {
            self.write(location, &seal(location))?;
        }
        Ok(location)
    }

    /// Whether nothing is written.
    pub fn is_plan(&self) -> bool {
        self.output.is_none()
    }

    /// Takes a block for a copy of a node, seals it and writes it. It gets no reference: sharing it gives it one.
    ///
    /// # Errors
    /// Where there is no block left, or writing failed.
    pub fn add_copy(&mut self, node: &mut Block) -> Result<BlockNr, CommitError> {
        let location = self.allocate()?;
        self.unrefer(location);
        if self.output.is_some() {
            block::seal(node, BlockKind::Node, location);
            self.write(location, node)?;
        }
        Ok(location)
    }

    /// A block that was written; zeros in a plan.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn read_back(&mut self, location: BlockNr) -> Result<Box<Block>, CommitError> {
        match self.output.as_deref_mut() {
            Some(output) => Ok(output.read_back(location)?),
            None => Ok(Box::new([0; BLOCK_SIZE])),
        }
    }

    fn write(&mut self, location: BlockNr, block: &Block) -> Result<(), CommitError> {
        if let Some(output) = self.output.as_deref_mut() {
            output.write(location, block)?;
        }
        Ok(())
    }

    /// Writes both space maps and makes everything but the superblock durable.
    ///
    /// # Errors
    /// Where there is no block left, or writing failed.
    pub fn seal(mut self, data: Option<DataCounts<'_>>) -> Result<SealedImage<'a>, CommitError> {
        let data = data.map(|data| self.write_data_space_map(data)).transpose()?;
        let metadata = self.write_metadata_space_map()?;
        if let Some(output) = self.output.as_deref_mut() {
            output.flush()?;
        }
        let nr_needed = needed(self.nr_taken(), self.nr_blocks);
        let without_bitmaps = self.nr_taken() - space_map::nr_bitmaps(self.nr_blocks);
        let mut nr_smallest = without_bitmaps;
        while without_bitmaps + space_map::nr_bitmaps(nr_smallest) > nr_smallest {
            nr_smallest = without_bitmaps + space_map::nr_bitmaps(nr_smallest);
        }
        Ok(SealedImage { nr_smallest, output: self.output, roots: SpaceMapRoots { data, metadata }, nr_needed })
    }

    fn write_data_space_map(&mut self, data: DataCounts<'_>) -> Result<SpaceMapRoot, CommitError> {
        let mut overflow = TreeBuilder::<COUNT_SIZE>::new();
        let mut index = TreeBuilder::<INDEX_ENTRY_SIZE>::new();
        let mut block = Box::new([0; BLOCK_SIZE]);
        let mut allocated = 0;
        for bitmap in 0..space_map::nr_bitmaps(data.nr_blocks) {
            let mut summary = None;
            let mut above: Vec<(u32, u32)> = Vec::new();
            data.counts.look(bitmap, &mut |counts| {
                let filled =
                    space_map_write::fill_bitmap(counts, &mut block, &mut |entry, count| above.push((entry, count)));
                summary = Some(filled);
            });
            let Some(summary) = summary else { unreachable!("there are counts for every bitmap") };
            let location = self.allocate()?;
            space_map_write::seal_bitmap(&mut block, location);
            self.write(location, &block)?;
            let entries = space_map_write::entries_in_bitmap(bitmap, data.nr_blocks);
            let entry = summary.index_entry(location, entries);
            index.push(bitmap, &zerocopy::transmute!(entry), self)?;
            for (entry, count) in above {
                overflow.push(bitmap * ENTRIES_PER_BITMAP + u64::from(entry), &count.to_le_bytes(), self)?;
            }
            allocated += u64::from(summary.allocated);
        }
        let index = index.finish(&mut NothingShared, self)?;
        let overflow = overflow.finish(&mut NothingShared, self)?;
        Ok(space_map_write::root(data.nr_blocks, allocated, index, overflow))
    }

    /// The map describes itself: its blocks are taken first, then all counts are final.
    fn write_metadata_space_map(&mut self) -> Result<SpaceMapRoot, CommitError> {
        let mut overflow = TreeBuilder::<COUNT_SIZE>::new();
        // Blocks that are taken meanwhile have count 1, so they never go into this tree.
        for block in 0..self.counts.len() {
            let count = self.counts[block];
            if count > 2 {
                overflow.push(block as u64, &count.to_le_bytes(), self)?;
            }
        }
        let overflow = overflow.finish(&mut NothingShared, self)?;
        let index = self.allocate()?;
        let bitmaps = space_map::nr_bitmaps(self.nr_blocks);
        let locations: Vec<BlockNr> = (0..bitmaps).map(|_| self.allocate()).collect::<Result<_, _>>()?;
        if self.output.is_some() {
            let entries = self.write_metadata_bitmaps(&locations)?;
            self.write(index, &space_map_write::index_block(&entries, index))?;
        }
        Ok(space_map_write::root(self.nr_blocks, self.nr_taken(), index, overflow))
    }

    fn write_metadata_bitmaps(&mut self, locations: &[BlockNr]) -> Result<Vec<IndexEntry>, CommitError> {
        let mut entries = Vec::new();
        let mut block = Box::new([0; BLOCK_SIZE]);
        for (bitmap, location) in locations.iter().enumerate() {
            let begin = (bitmap * ENTRIES_PER_BITMAP as usize).min(self.counts.len());
            let end = (begin + ENTRIES_PER_BITMAP as usize).min(self.counts.len());
            let counts = BitmapCounts::Wide(&self.counts[begin..end]);
            let summary = space_map_write::fill_bitmap(counts, &mut block, &mut |_, _| ());
            space_map_write::seal_bitmap(&mut block, *location);
            self.write(*location, &block)?;
            entries.push(
                summary.index_entry(*location, space_map_write::entries_in_bitmap(bitmap as u64, self.nr_blocks)),
            );
        }
        Ok(entries)
    }
}

/// Blocks that an image needs which took `taken` on a device of `nr_blocks`: a larger device needs more bitmaps.
fn needed(taken: u64, nr_blocks: u64) -> u64 {
    let without_bitmaps = taken - space_map::nr_bitmaps(nr_blocks);
    let mut needed = taken;
    while needed > nr_blocks && without_bitmaps + space_map::nr_bitmaps(needed) > needed {
        needed = without_bitmaps + space_map::nr_bitmaps(needed);
    }
    needed
}

impl NodeSink for ImageWriter<'_> {
    type Error = CommitError;

    fn node<const V: usize>(&mut self, node: &mut NodeBuf<V>) -> Result<BlockNr, CommitError> {
        let location = self.allocate()?;
        if self.output.is_some() {
            self.write(location, node.seal(location))?;
        }
        Ok(location)
    }

    fn share(&mut self, block: BlockNr) {
        // A block that is shared has been taken; counts end at 2^32 - 1 (docs/format.md 3.6).
        let count = &mut self.counts[block.0 as usize];
        *count = count.saturating_add(1);
    }
}

/// An image that lacks nothing but its superblock.
pub struct SealedImage<'a> {
    output: Option<&'a mut dyn BlockOutput>,
    roots: SpaceMapRoots,
    nr_needed: u64,
    nr_smallest: u64,
}

impl SealedImage<'_> {
    /// What the superblock has to say of the space maps.
    pub fn roots(&self) -> &SpaceMapRoots {
        &self.roots
    }

    /// Blocks that the image needs, its superblock included. After a plan this may be more than there are.
    pub fn nr_needed(&self) -> u64 {
        self.nr_needed
    }

    /// Blocks of the smallest device that the image fits on: a large device needs more bitmaps.
    pub fn nr_smallest(&self) -> u64 {
        self.nr_smallest
    }

    /// The image as it will be with this superblock; none after a plan.
    ///
    /// # Errors
    /// Where what was written can't be read.
    pub fn preview(&mut self, superblock: &Block) -> Result<Option<Preview<'_>>, CommitError> {
        let Some(output) = self.output.as_deref_mut() else { return Ok(None) };
        Ok(Some(Preview { written: output.written()?, superblock: *superblock }))
    }

    /// Puts the superblock in place: after this the image is valid. Does nothing after a plan.
    ///
    /// # Errors
    /// Where writing failed; then the image may be valid or not.
    pub fn commit(self, superblock: &Block) -> Result<(), CommitError> {
        if let Some(output) = self.output {
            output.write(BlockNr(0), superblock)?;
            output.flush()?;
        }
        Ok(())
    }
}

/// What was written, under a superblock that was not.
pub struct Preview<'a> {
    written: Box<dyn BlockSource + 'a>,
    superblock: Block,
}

impl BlockSource for Preview<'_> {
    fn nr_blocks(&self) -> u64 {
        self.written.nr_blocks()
    }

    fn read_many(&self, blocks: &[BlockNr], visit: &mut Visit<'_>) {
        self.written.read_many(blocks, &mut |location, block| match (location, block) {
            (BlockNr(0), Ok(_)) => visit(location, Ok(&self.superblock)),
            (_, block) => visit(location, block),
        });
    }

    fn nr_faults(&self) -> u64 {
        self.written.nr_faults()
    }
}

#[cfg(test)]
mod tests;
