//! Building a pool's metadata from its items.
//!
//! The items are gone through twice. First nothing is written: everything is verified, and the blocks are counted
//! that it takes. Then the old superblock is overwritten, the same is done again in earnest, and the new superblock
//! comes last. Input that can be read only once is kept in memory in between.

mod builder;
mod copied;
mod definitions;
mod fault;
mod from_document;
mod mappings;

pub use builder::Recount;
pub use fault::RestoreFault;
pub use from_document::restore_document;

use super::check::{CheckOptions, check};
use super::items::Runs;
use super::recording::{Recorder, Recording};
use super::report::Report;
use super::xml::{self, FileRuns, ReadAt, XmlError, XmlOptions};
use crate::base::{BlockNr, Progress, Severity};
use crate::block::memory::MemorySource;
use crate::block::{BlockOutput, BlockSource};
use crate::format::BLOCK_SECTORS;
use crate::format::space_map::MAX_METADATA_BLOCKS;
use crate::format::superblock::{FLAG_NEEDS_CHECK, THIN_MAGIC, ThinSuperblock};
use crate::format::uuid;
use crate::pdata::commit::{CommitError, ImageWriter};
use builder::{Builder, BuiltPool};
use mappings::DeadLeaves;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use zerocopy::byteorder::little_endian::{U32, U64};

/// Blocks that are kept in memory for any text: 1 GiB.
const MEMORY_BLOCKS: u64 = 1 << 18;
/// Bytes of a text for each block beyond that.
const TEXT_BYTES_PER_BLOCK: u64 = 4;

/// What to change on the way, and how strict to be.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// Write this transaction id.
    pub transaction_id: Option<u64>,
    /// Write this data block size, in sectors.
    pub data_block_size: Option<u32>,
    /// Write this number of data blocks.
    pub nr_data_blocks: Option<u64>,
    /// How to read XML.
    pub xml: XmlOptions,
}

/// Where the XML comes from.
pub enum XmlInput<'a> {
    /// A file that can be read twice.
    File(&'a File),
    /// Something that can be read once: its mappings are kept in memory, about 10 bytes each.
    Stream(Box<dyn Read + 'a>),
}

/// What a restore has to say when all went well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// Devices that claimed another number of mappings than they have.
    pub recounts: Vec<Recount>,
    /// The input had needs_check set. What is written is whole, so it is not set there.
    pub needs_check_dropped: bool,
    /// The input's uuid is longer than what a superblock has room for. It is not written.
    pub uuid_dropped: bool,
    /// Ranges of length 0 in the input, which mean nothing.
    pub empty_runs: u64,
    /// Metadata blocks in use.
    pub nr_used: u64,
}

/// Why a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The input was refused.
    #[error("{0}")]
    Input(#[from] XmlError<RestoreFault>),
    /// The output can't hold it. Nothing was written.
    #[error("output file too small: {needed} metadata blocks are needed, there are {present}")]
    TooSmall {
        /// Blocks that are needed.
        needed: u64,
        /// Blocks that there are.
        present: u64,
    },
    /// What is to be built in memory is out of proportion to the text that describes it. Nothing was built.
    #[error(
        "it describes {needed} metadata blocks, more than the {limit} that are kept in memory for a text of this size: \
         write it to a file with thin_restore"
    )]
    TooLargeForMemory {
        /// Blocks that are needed.
        needed: u64,
        /// Blocks that may be kept.
        limit: u64,
    },
    /// The input was not the same when it was read for the second time.
    #[error("the input changed while it was read")]
    Changed,
    /// What was written does not read back as it should. The output has no valid superblock.
    #[error("what was written did not pass its check: the output's device is bad, or this program is. {0}")]
    Unsound(String),
    /// Building or writing failed.
    #[error(transparent)]
    Build(#[from] RestoreFault),
    /// Writing failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Builds the metadata that `input` describes into `output`, which nobody else uses.
///
/// # Errors
/// Whatever is wrong with the input is found before anything is written. After an error in writing the output has
/// no valid superblock.
pub fn restore(
    input: XmlInput<'_>,
    output: &mut dyn BlockOutput,
    options: &RestoreOptions,
    progress: &dyn Progress,
) -> Result<RestoreOutcome, RestoreError> {
    restore_to(input, Room::Given(output), options, progress, &Cell::new(0))
}

/// Builds the metadata that `input` describes in memory, on a device as small as can be, to be looked at.
///
/// It takes at most 1 GiB and 1024 bytes for each byte of the text: one line can describe a device of any size.
///
/// # Errors
/// Whatever is wrong with the input.
pub fn restore_in_memory(
    input: XmlInput<'_>,
    options: &RestoreOptions,
    progress: &dyn Progress,
) -> Result<MemorySource, RestoreError> {
    let mut memory = MemorySource::new(MAX_METADATA_BLOCKS);
    let text_bytes = Cell::new(0);
    restore_to(input, Room::AsNeeded(&mut memory, &text_bytes), options, progress, &text_bytes)?;
    Ok(memory)
}

/// Blocks that a text of so many bytes may take in memory.
fn memory_limit(text_bytes: u64) -> u64 {
    MEMORY_BLOCKS.saturating_add(text_bytes / TEXT_BYTES_PER_BLOCK)
}

fn restore_to(
    input: XmlInput<'_>,
    room: Room<'_>,
    options: &RestoreOptions,
    progress: &dyn Progress,
    text_bytes: &Cell<u64>,
) -> Result<RestoreOutcome, RestoreError> {
    match input {
        XmlInput::File(file) => {
            let runs = FileRuns::new(file, options.xml);
            restore_from(room, options, &runs, &commit, &mut |builder, title| {
                progress.section(title, file.metadata().map_or(0, |metadata| metadata.len()));
                text_bytes.set(0);
                let reader = Watched { input: ReadAt::new(file, 0), progress, text_bytes };
                Ok(xml::read(reader, options.xml, builder)?)
            })
        }
        XmlInput::Stream(stream) => {
            let recording = Recording::new();
            let mut stream = Some(stream);
            restore_from(room, options, &recording, &commit, &mut |builder, title| match stream.take() {
                Some(input) => {
                    progress.section(title, 0);
                    let mut recorder = Recorder::new(&recording, builder);
                    Ok(xml::read(Watched { input, progress, text_bytes }, options.xml, &mut recorder)?)
                }
                None => Ok(recording.replay(builder)?),
            })
        }
    }
}

/// Where metadata is built.
enum Room<'o> {
    /// On a device or file of a certain size.
    Given(&'o mut dyn BlockOutput),
    /// In memory that gets the size that is needed, as far as that is in proportion to the bytes of the text.
    AsNeeded(&'o mut MemorySource, &'o Cell<u64>),
}

/// Gives all items to a builder; may be called several times. The text says what for.
type Feed<'f> = dyn FnMut(&mut Builder<'_, '_>, &str) -> Result<(), RestoreError> + 'f;

fn restore_from(
    room: Room<'_>,
    options: &RestoreOptions,
    runs: &dyn Runs,
    finish: &dyn Fn(BuiltPool<'_>) -> Result<(), RestoreError>,
    feed: &mut Feed<'_>,
) -> Result<RestoreOutcome, RestoreError> {
    let present = match &room {
        Room::Given(output) => output.nr_blocks(),
        Room::AsNeeded(..) => MAX_METADATA_BLOCKS,
    };
    let mut plan = build(ImageWriter::plan(present), options, runs, &DeadLeaves::new(), feed, "reading")?;
    // What was recorded has none of them any more.
    let empty_runs = plan.empty_runs;
    let dead = std::mem::take(&mut plan.dead);
    if !dead.is_empty() {
        // Without the leaves that turned out to be of no use other blocks are taken.
        plan = build(ImageWriter::plan(present), options, runs, &dead, feed, "reading")?;
    }
    let mut needed = plan.sealed.nr_needed();
    if needed > present {
        return Err(RestoreError::TooSmall { needed, present });
    }
    let output: &mut dyn BlockOutput = match room {
        Room::Given(output) => output,
        Room::AsNeeded(memory, text_bytes) => {
            let limit = memory_limit(text_bytes.get());
            if needed > limit {
                return Err(RestoreError::TooLargeForMemory { needed, limit });
            }
            needed = plan.sealed.nr_smallest();
            memory.resize(needed);
            memory
        }
    };
    let built = build(ImageWriter::begin(output)?, options, runs, &dead, feed, "writing")?;
    if built.pool != plan.pool || built.sealed.nr_needed() != needed {
        return Err(RestoreError::Changed);
    }
    let needs_check_dropped = built.pool.flags & FLAG_NEEDS_CHECK != 0;
    let uuid_dropped = uuid::from_text(&built.pool.uuid).is_none();
    let recounts = built.recounts.clone();
    finish(built)?;
    Ok(RestoreOutcome { recounts, needs_check_dropped, uuid_dropped, empty_runs, nr_used: needed })
}

fn build<'w>(
    image: ImageWriter<'w>,
    options: &RestoreOptions,
    runs: &dyn Runs,
    dead: &DeadLeaves,
    feed: &mut Feed<'_>,
    title: &str,
) -> Result<BuiltPool<'w>, RestoreError> {
    let mut builder = Builder::new(image, options, runs, dead);
    feed(&mut builder, title)?;
    Ok(builder.finish()?)
}

/// Puts the superblock in place.
fn commit(built: BuiltPool<'_>) -> Result<(), RestoreError> {
    let superblock = superblock(&built).to_block(BlockNr(0));
    Ok(built.sealed.commit(&superblock)?)
}

/// Checks what was built, all of it, before its superblock makes it valid.
fn commit_verified(mut built: BuiltPool<'_>, progress: &dyn Progress) -> Result<(), RestoreError> {
    let superblock = superblock(&built).to_block(BlockNr(0));
    if let Some(preview) = built.sealed.preview(&superblock)? {
        let checked = check(&preview, &CheckOptions::default(), progress, &mut |_| ());
        // Notes are of what the input says: of transaction ids, say, which are for the volume manager.
        let passes = |report: &Report| report.findings.worst() <= Some(Severity::Note);
        let clean = checked.as_ref().is_ok_and(|report| passes(report) && preview.nr_faults() == 0);
        if !clean {
            return Err(RestoreError::Unsound(checked.map(|report| report.text()).unwrap_or_default()));
        }
    }
    Ok(built.sealed.commit(&superblock)?)
}

fn superblock(built: &BuiltPool<'_>) -> ThinSuperblock {
    let roots = built.sealed.roots();
    let Some(data) = &roots.data else { unreachable!("pools have a data space map") };
    ThinSuperblock {
        csum: U32::ZERO,
        flags: U32::ZERO,
        blocknr: U64::ZERO,
        uuid: uuid::from_text(&built.pool.uuid).unwrap_or_default(),
        magic: U64::new(THIN_MAGIC),
        version: U32::new(built.pool.version),
        time: U32::new(built.pool.time),
        transaction_id: U64::new(built.pool.transaction),
        held_root: U64::ZERO,
        data_space_map: data.clone(),
        metadata_space_map: roots.metadata.clone(),
        mapping_root: U64::new(built.mapping_root.0),
        details_root: U64::new(built.details_root.0),
        data_block_size: U32::new(built.pool.data_block_size),
        metadata_block_size: U32::new(BLOCK_SECTORS as u32),
        metadata_nr_blocks: roots.metadata.nr_blocks,
        compat_flags: U32::ZERO,
        compat_ro_flags: U32::ZERO,
        incompat_flags: U32::ZERO,
    }
}

/// Tells how much was read.
struct Watched<'a, R> {
    input: R,
    progress: &'a dyn Progress,
    text_bytes: &'a Cell<u64>,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.progress.advance(read as u64);
        self.text_bytes.set(self.text_bytes.get().saturating_add(read as u64));
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
