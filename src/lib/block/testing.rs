//! Outputs for tests: one that fails when told to, and one that can show every state a crash may leave.

use super::memory::MemorySource;
use super::output::{BlockOutput, WriteError};
use super::source::BlockSource;
use crate::base::BlockNr;
use crate::format::Block;
use std::io;

/// Passes everything on until the `fail_at`-th operation (a write, a flush or a reading back, counted from 0), which fails like
/// all that follow it.
#[derive(Debug)]
pub struct FailingOutput<O> {
    inner: O,
    done: u64,
    fail_at: u64,
}

impl<O: BlockOutput> FailingOutput<O> {
    /// Wraps `inner`.
    pub fn new(inner: O, fail_at: u64) -> Self {
        FailingOutput { inner, done: 0, fail_at }
    }

    /// Operations asked for so far, those that failed included.
    pub fn operations(&self) -> u64 {
        self.done
    }

    /// What was wrapped.
    pub fn into_inner(self) -> O {
        self.inner
    }

    fn step(&mut self) -> Result<(), WriteError> {
        self.done += 1;
        if self.done > self.fail_at {
            return Err(WriteError::Io(io::Error::from_raw_os_error(libc::EIO)));
        }
        Ok(())
    }
}

impl<O: BlockOutput> BlockOutput for FailingOutput<O> {
    fn nr_blocks(&self) -> u64 {
        self.inner.nr_blocks()
    }

    fn write(&mut self, location: BlockNr, block: &Block) -> Result<(), WriteError> {
        self.step()?;
        self.inner.write(location, block)
    }

    fn read_back(&mut self, location: BlockNr) -> Result<Box<Block>, WriteError> {
        self.step()?;
        self.inner.read_back(location)
    }

    fn written(&mut self) -> Result<Box<dyn BlockSource + '_>, WriteError> {
        self.step()?;
        self.inner.written()
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.step()?;
        self.inner.flush()
    }
}

/// Something that an output was asked to do.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A block to be written.
    Write(BlockNr, Box<Block>),
    /// Everything before has to be durable.
    Flush,
}

/// How much of a write a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing.
    Not,
    /// All of it.
    Whole,
    /// The first so many sectors of 512 bytes.
    Torn(usize),
}

/// Records what is written, over an image that it starts from.
#[derive(Debug)]
pub struct CrashingOutput {
    before: MemorySource,
    log: Vec<Operation>,
}

impl CrashingOutput {
    /// Records writes on top of `before`.
    pub fn new(before: MemorySource) -> Self {
        CrashingOutput { before, log: Vec::new() }
    }

    /// Everything that was asked for, in order.
    pub fn log(&self) -> &[Operation] {
        &self.log
    }

    /// The image after a crash behind the first `stop` operations: what the last flush among them covers is all
    /// there; of each later write, given by its place in the log, there is what `fate` says.
    pub fn image_after(&self, stop: usize, mut fate: impl FnMut(usize) -> Applied) -> MemorySource {
        let done = &self.log[..stop];
        let durable = done.iter().rposition(|operation| matches!(operation, Operation::Flush)).unwrap_or(0);
        let mut image = self.before.clone();
        for (index, operation) in done.iter().enumerate() {
            let Operation::Write(location, block) = operation else { continue };
            let applied = if index < durable { Applied::Whole } else { fate(index) };
            let mut result = **block;
            match applied {
                Applied::Not => continue,
                Applied::Whole => {}
                Applied::Torn(sectors) => {
                    let old = image.get(*location).copied().unwrap_or(result);
                    let torn = (sectors * 512).min(result.len());
                    result[torn..].copy_from_slice(&old[torn..]);
                }
            }
            // Writes past the end were refused before they came into the log.
            let _ = image.put(*location, &result);
        }
        image
    }
}

impl BlockOutput for CrashingOutput {
    fn nr_blocks(&self) -> u64 {
        BlockOutput::nr_blocks(&self.before)
    }

    fn write(&mut self, location: BlockNr, block: &Block) -> Result<(), WriteError> {
        let nr_blocks = BlockOutput::nr_blocks(self);
        if location.0 >= nr_blocks {
            return Err(WriteError::OutOfRange { block: location, nr_blocks });
        }
        self.log.push(Operation::Write(location, Box::new(*block)));
        Ok(())
    }

    fn read_back(&mut self, location: BlockNr) -> Result<Box<Block>, WriteError> {
        let written = self.log.iter().rev().find_map(|operation| match operation {
            Operation::Write(at, block) if *at == location => Some(block.clone()),
            _ => None,
        });
        written.map_or_else(|| self.before.read_back(location), Ok)
    }

    fn written(&mut self) -> Result<Box<dyn BlockSource + '_>, WriteError> {
        Ok(Box::new(self.image_after(self.log.len(), |_| Applied::Whole)))
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.log.push(Operation::Flush);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::BLOCK_SIZE;

    fn first_byte(image: &MemorySource, location: u64) -> u8 {
        image.get(BlockNr(location)).unwrap()[0]
    }

    #[test]
    fn a_crash_keeps_what_was_flushed_and_any_part_of_the_rest() {
        let mut before = MemorySource::new(4);
        before.put(BlockNr(2), &[9; BLOCK_SIZE]).unwrap();
        let mut output = CrashingOutput::new(before);
        output.write(BlockNr(1), &[1; BLOCK_SIZE]).unwrap();
        output.flush().unwrap();
        output.write(BlockNr(1), &[2; BLOCK_SIZE]).unwrap();
        output.write(BlockNr(2), &[3; BLOCK_SIZE]).unwrap();
        assert!(output.write(BlockNr(4), &[3; BLOCK_SIZE]).is_err());

        let none = output.image_after(4, |_| Applied::Not);
        assert_eq!((first_byte(&none, 1), first_byte(&none, 2)), (1, 9));
        let second = output.image_after(4, |index| if index == 3 { Applied::Whole } else { Applied::Not });
        assert_eq!((first_byte(&second, 1), first_byte(&second, 2)), (1, 3));
        let unflushed = output.image_after(1, |_| Applied::Not);
        assert_eq!(first_byte(&unflushed, 1), 0);
        let torn = output.image_after(4, |_| Applied::Torn(1));
        let block = torn.get(BlockNr(2)).unwrap();
        assert_eq!((block[511], block[512]), (3, 9));
    }

    #[test]
    fn the_chosen_operation_fails_and_all_after_it() {
        let mut output = FailingOutput::new(MemorySource::new(4), 1);
        output.write(BlockNr(1), &[1; BLOCK_SIZE]).unwrap();
        assert!(output.flush().is_err());
        assert!(output.write(BlockNr(2), &[1; BLOCK_SIZE]).is_err());
        assert_eq!(output.operations(), 3);
        assert_eq!(first_byte(&output.into_inner(), 2), 0);
    }
}
