//! Building metadata from a document: a salvage, or the trees of another image.

use super::builder::{Builder, BuiltPool};
use super::copied::copy_document;
use super::fault::RestoreFault;
use super::{RestoreError, RestoreOptions, RestoreOutcome, Room, commit_verified, restore_from};
use crate::base::{BlockNr, Progress, ThinBlock};
use crate::block::{BlockOutput, BlockSource, ReadError};
use crate::format::mapping;
use crate::format::node::Node;
use crate::thin::document::{Document, DocumentDevice, Piece};
use crate::thin::items::{PoolSink, Position, RereadError, Runs};
use crate::thin::model::Run;
use std::io;
use std::ops::ControlFlow;

/// Leaves that are read in one go.
const WINDOW: usize = 256;

/// Builds the pool of `document`, whose leaves are in `source`, into `output`, which nobody else uses.
///
/// Its nodes are copied where that fits and no mapping has to be changed; otherwise all is built anew, which is most
/// compact. The result is checked before its superblock is written.
///
/// # Errors
/// Where a leaf that was good cannot be read any more, the output is too small (then nothing was written), or writing
/// fails. After an error in writing the output has no valid superblock.
pub fn restore_document(
    source: &dyn BlockSource,
    document: &mut Document,
    output: &mut dyn BlockOutput,
    progress: &dyn Progress,
) -> Result<RestoreOutcome, RestoreError> {
    if document.limits.is_none()
        && let Some(copied) = copy_document(source, document, output, progress)?
    {
        return Ok(copied);
    }
    if document.devices.len() > 1 {
        document.find_sharing(source);
    }
    let document = &*document;
    let leaves = Leaves { source, document };
    let finish = |built: BuiltPool<'_>| commit_verified(built, progress);
    restore_from(Room::Given(output), &RestoreOptions::default(), &leaves, &finish, &mut |builder, title| {
        progress.section(title, document.devices.len() as u64);
        Ok(leaves.feed(builder, progress)?)
    })
}

/// The leaves of a document as runs.
struct Leaves<'a> {
    source: &'a dyn BlockSource,
    document: &'a Document,
}

impl Leaves<'_> {
    fn feed(&self, builder: &mut Builder<'_, '_>, progress: &dyn Progress) -> Result<(), RestoreFault> {
        builder.pool(&self.document.pool)?;
        for &head in self.document.shared_runs() {
            builder.begin_definition()?;
            for (at, window) in self.document.shared_run(head).chunks(WINDOW).enumerate() {
                self.runs(window, Place { head, leaf: at * WINDOW, entry: 0 }, &mut |run, at| builder.run(run, at))?;
            }
            builder.end_definition()?;
        }
        for device in &self.document.devices {
            builder.begin_device(&device.device)?;
            self.device(builder, device)?;
            builder.end_device()?;
            progress.advance(1);
        }
        builder.end()
    }

    fn device(&self, builder: &mut Builder<'_, '_>, device: &DocumentDevice) -> Result<(), RestoreFault> {
        let mut result = Ok(());
        let mut leaves = Vec::new();
        let mut references = Vec::new();
        self.document.pieces(self.source, device, &mut |piece| {
            result = match piece {
                Piece::Leaf(leaf) => {
                    let flushed = self.references(builder, &mut references);
                    leaves.push(leaf);
                    if flushed.is_ok() && leaves.len() >= WINDOW { self.leaves(builder, &mut leaves) } else { flushed }
                }
                Piece::Shared(number) => {
                    let flushed = self.leaves(builder, &mut leaves);
                    references.push(number);
                    if flushed.is_ok() && references.len() >= WINDOW {
                        self.references(builder, &mut references)
                    } else {
                        flushed
                    }
                }
            };
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result?;
        self.references(builder, &mut references)?;
        self.leaves(builder, &mut leaves)
    }

    /// Gives references that follow each other to the builder.
    fn references(&self, builder: &mut Builder<'_, '_>, references: &mut Vec<u32>) -> Result<(), RestoreFault> {
        builder.upcoming(references);
        references.drain(..).try_for_each(|number| builder.reference(number))
    }

    /// Gives the runs of a device's own leaves to the builder.
    fn leaves(&self, builder: &mut Builder<'_, '_>, leaves: &mut Vec<BlockNr>) -> Result<(), RestoreFault> {
        // Runs of a device are not read again: their place is no place.
        let nowhere = Place { head: BlockNr(0), leaf: 0, entry: 0 };
        let result = self.runs(leaves, nowhere, &mut |run, at| builder.run(run, at));
        leaves.clear();
        result
    }

    /// Hands out the runs of some leaves. `place` is that of the first entry of the first leaf.
    fn runs<E: From<RereadError>>(
        &self,
        leaves: &[BlockNr],
        mut place: Place,
        each: &mut dyn FnMut(&Run, Position) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut result = Ok(());
        self.source.read_many(leaves, &mut |_, block| {
            let node = match block.map(|block| Node::trusting_checksum(block, 8)) {
                Ok(Ok(node)) => node,
                Ok(Err(_)) => {
                    result = Err(RereadError::Changed.into());
                    return ControlFlow::Break(());
                }
                Err(error) => {
                    result = Err(vanished(&error).into());
                    return ControlFlow::Break(());
                }
            };
            result = self.leaf_runs(&node, place, each);
            place = Place { leaf: place.leaf + 1, entry: 0, ..place };
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result
    }

    /// Hands out the runs of one leaf, from the entry of `place` on.
    fn leaf_runs<E>(
        &self,
        node: &Node<'_>,
        place: Place,
        each: &mut dyn FnMut(&Run, Position) -> Result<(), E>,
    ) -> Result<(), E> {
        let (nr_data_blocks, latest) = self.document.limits.unwrap_or((u64::MAX, u32::MAX));
        let mut open: Option<(Run, Position)> = None;
        for (at, (key, value)) in node.keys().iter().zip(node.values_u64()).enumerate().skip(place.entry) {
            let (data_begin, time) = mapping::unpack(value.get());
            if data_begin.0 >= nr_data_blocks {
                continue;
            }
            let one = Run { thin_begin: ThinBlock(key.get()), data_begin, length: 1, time: time.min(latest) };
            match &mut open {
                Some((run, _)) if run.continues_with(&one) => run.length += 1,
                _ => {
                    if let Some((run, position)) = open.replace((one, Place { entry: at, ..place }.position())) {
                        each(&run, position)?;
                    }
                }
            }
        }
        open.map_or(Ok(()), |(run, position)| each(&run, position))
    }
}

fn vanished(error: &ReadError) -> RereadError {
    RereadError::Io(io::Error::other(error.to_string()))
}

/// An entry of a leaf of the shared run that begins with `head`.
#[derive(Clone, Copy)]
struct Place {
    head: BlockNr,
    leaf: usize,
    entry: usize,
}

impl Place {
    /// Packs it: metadata blocks have 22 bits, and so has the number of leaves; a leaf has 252 entries.
    fn position(self) -> Position {
        Position((self.head.0 << 32) | ((self.leaf as u64) << 8) | self.entry as u64)
    }

    fn of(position: Position) -> Place {
        let Position(packed) = position;
        Place {
            head: BlockNr(packed >> 32),
            leaf: ((packed >> 8) & 0xff_ffff) as usize,
            entry: (packed & 0xff) as usize,
        }
    }
}

impl Runs for Leaves<'_> {
    fn runs_from(&self, at: Position, each: &mut dyn FnMut(&Run) -> bool) -> Result<(), RereadError> {
        let mut place = Place::of(at);
        let run = self.document.shared_run(place.head);
        for leaf in run.get(place.leaf..).unwrap_or_default() {
            let mut ended = false;
            let read = self.runs(&[*leaf], place, &mut |run, _| {
                if each(run) {
                    return Ok(());
                }
                ended = true;
                // Any error ends the reading; this one is taken back below.
                Err(RereadError::Changed)
            });
            if ended {
                return Ok(());
            }
            read?;
            place = Place { leaf: place.leaf + 1, entry: 0, ..place };
        }
        Ok(())
    }
}
