//! Reading some mappings of a file again.

use super::XmlOptions;
use super::reader::Reader;
use super::window::Window;
use crate::thin::items::{PoolSink, Position, RereadError, Runs};
use crate::thin::model::{Device, Pool, Run};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Bytes read at first: about the mappings of one leaf.
const CHUNK: usize = 20 << 10;

/// The mappings of an XML file, by the offsets of their elements.
#[derive(Debug)]
pub struct FileRuns<'a> {
    file: &'a File,
    options: XmlOptions,
}

impl<'a> FileRuns<'a> {
    /// For a file that was read from its first byte on.
    pub fn new(file: &'a File, options: XmlOptions) -> Self {
        FileRuns { file, options }
    }
}

/// Reads a file without moving its position.
#[derive(Debug)]
pub struct ReadAt<'a> {
    file: &'a File,
    offset: u64,
}

impl<'a> ReadAt<'a> {
    /// Reads from `offset` on.
    pub fn new(file: &'a File, offset: u64) -> Self {
        ReadAt { file, offset }
    }
}

impl Read for ReadAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Hands on the runs of one definition.
struct OneDefinition<'a> {
    each: &'a mut dyn FnMut(&Run) -> bool,
    stopped: bool,
}

/// Not an error but the end of what is wanted.
struct Stop;

impl PoolSink for OneDefinition<'_> {
    type Error = Stop;

    fn run(&mut self, run: &Run, _at: Position) -> Result<(), Stop> {
        if (self.each)(run) {
            return Ok(());
        }
        self.stopped = true;
        Err(Stop)
    }

    fn end_definition(&mut self) -> Result<(), Stop> {
        self.stopped = true;
        Err(Stop)
    }

    // A reader inside a definition meets nothing else.
    fn pool(&mut self, _pool: &Pool) -> Result<(), Stop> {
        Err(Stop)
    }

    fn begin_definition(&mut self) -> Result<(), Stop> {
        Err(Stop)
    }

    fn begin_device(&mut self, _device: &Device) -> Result<(), Stop> {
        Err(Stop)
    }

    fn end_device(&mut self) -> Result<(), Stop> {
        Err(Stop)
    }

    fn reference(&mut self, _definition: u32) -> Result<(), Stop> {
        Err(Stop)
    }

    fn end(&mut self) -> Result<(), Stop> {
        Err(Stop)
    }
}

impl Runs for FileRuns<'_> {
    fn runs_from(&self, at: Position, each: &mut dyn FnMut(&Run) -> bool) -> Result<(), RereadError> {
        let mut sink = OneDefinition { each, stopped: false };
        let window = Window::with_chunk(ReadAt::new(self.file, at.0), at.0, CHUNK);
        // It was read without an error before, so any other end means that the file has changed.
        let _ = Reader::in_definition(window, self.options, &mut sink).document();
        if sink.stopped { Ok(()) } else { Err(RereadError::Changed) }
    }
}
