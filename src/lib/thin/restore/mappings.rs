//! Where the nodes of mapping trees go, and what they hold counted.

use super::fault::RestoreFault;
use crate::base::{BlockNr, DataBlock};
use crate::format::mapping;
use crate::pdata::build::{NodeBuf, NodeSink};
use crate::pdata::commit::ImageWriter;
use crate::pdata::counts::{Counts, Tally};
use crate::thin::model::Run;

/// Leaves of definitions that no device ends up sharing, by their place among all leaves of definitions.
pub(super) type DeadLeaves = std::collections::BTreeSet<u32>;

/// Writes nodes into the image, and counts the data blocks of every leaf once, when it is made (docs/format.md 3.8).
pub(super) struct MappingSink<'w, 'a> {
    pub(super) image: ImageWriter<'w>,
    pub(super) data: Counts,
    tally: Tally,
    dead: &'a DeadLeaves,
    definition_leaves: u32,
}

impl<'w, 'a> MappingSink<'w, 'a> {
    /// A sink that knows no data blocks yet.
    pub(super) fn new(image: ImageWriter<'w>, dead: &'a DeadLeaves) -> Self {
        MappingSink { image, data: Counts::new(0), tally: Tally::default(), dead, definition_leaves: 0 }
    }

    /// The image, and the counts, complete.
    pub(super) fn finish(mut self) -> (ImageWriter<'w>, Counts) {
        self.data.settle(&mut self.tally);
        (self.image, self.data)
    }
}

/// Counts the data blocks that the values of a leaf lead to.
pub(super) fn count_values(data: &Counts, tally: &mut Tally, values: &[u8]) {
    let (values, _) = values.as_chunks::<8>();
    let block = |value: &[u8; 8]| mapping::unpack(u64::from_le_bytes(*value)).0.0;
    let breaks = values.windows(2).map(|pair| u32::from(block(&pair[1]) != block(&pair[0]) + 1)).sum::<u32>();
    if breaks as usize * 4 > values.len() {
        // Scattered: looking for runs would cost more than it saves.
        data.add(tally, values.iter().map(block));
        return;
    }
    for run in values.chunk_by(|left, right| block(right) == block(left) + 1) {
        data.add_run(tally, block(&run[0]), run.len() as u64);
    }
}

impl NodeSink for MappingSink<'_, '_> {
    type Error = RestoreFault;

    fn node<const V: usize>(&mut self, node: &mut NodeBuf<V>) -> Result<BlockNr, RestoreFault> {
        if node.is_leaf() {
            count_values(&self.data, &mut self.tally, node.value_bytes());
        }
        Ok(self.image.node(node)?)
    }

    fn share(&mut self, block: BlockNr) {
        self.image.share(block);
    }
}

/// Writes the leaves of definitions, which nothing refers to until they are shared. Dead ones are left out.
pub(super) struct DefinitionSink<'s, 'w, 'a>(pub(super) &'s mut MappingSink<'w, 'a>);

impl NodeSink for DefinitionSink<'_, '_, '_> {
    type Error = RestoreFault;

    fn node<const V: usize>(&mut self, node: &mut NodeBuf<V>) -> Result<BlockNr, RestoreFault> {
        let index = self.0.definition_leaves;
        self.0.definition_leaves += 1;
        if self.0.dead.contains(&index) {
            return Ok(BlockNr(0));
        }
        let block = self.0.node(node)?;
        self.0.image.unrefer(block);
        Ok(block)
    }

    fn share(&mut self, block: BlockNr) {
        self.0.share(block);
    }
}

/// Calls `each` with the keys and values of a run.
///
/// # Errors
/// What `each` gives.
#[inline]
pub(super) fn each_entry<E>(run: &Run, mut each: impl FnMut(u64, &[u8; 8]) -> Result<(), E>) -> Result<(), E> {
    let first = mapping::pack(run.data_begin, run.time);
    let one = mapping::pack(DataBlock(1), 0);
    for index in 0..run.length {
        each(run.thin_begin.0 + index, &(first + index * one).to_le_bytes())?;
    }
    Ok(())
}
