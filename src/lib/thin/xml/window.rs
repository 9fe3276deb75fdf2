//! A window over a text that is read once, from front to back.

use std::io::{self, Read};

/// Bytes read in one go.
const CHUNK: usize = 256 << 10;
/// The longest piece of markup that is taken, in bytes.
pub(super) const LONGEST: usize = 64 << 10;

/// The part of the text that is in memory, and how far it has been consumed.
pub(super) struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    /// Bytes of `bytes` that hold text.
    filled: usize,
    /// The first byte that has not been consumed.
    at: usize,
    /// Where `bytes` begins in the whole text.
    offset: u64,
    /// Newlines consumed.
    newlines: u64,
    /// Where the line at hand begins in the whole text.
    line_begin: u64,
    ended: bool,
    chunk: usize,
}

impl<R: Read> Window<R> {
    /// A window over `input`, whose first byte is at `offset` of the whole text.
    pub(super) fn new(input: R, offset: u64) -> Self {
        Window::with_chunk(input, offset, CHUNK)
    }

    /// The same with reads of another size.
    pub(super) fn with_chunk(input: R, offset: u64, chunk: usize) -> Self {
        Window {
            input,
            bytes: Vec::new(),
            filled: 0,
            at: 0,
            offset,
            newlines: 0,
            line_begin: offset,
            ended: false,
            chunk,
        }
    }

    /// What has not been consumed and is in memory.
    #[inline]
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..self.filled]
    }

    /// Where the rest begins in the whole text.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// Line and column of the first byte that has not been consumed, both from 1 on; columns count bytes.
    pub(super) fn line_and_column(&self) -> (u64, u64) {
        (self.newlines + 1, self.offset() - self.line_begin + 1)
    }

    /// Whether all of the text has been read into memory.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Consumes `length` bytes.
    pub(super) fn consume(&mut self, length: usize) {
        let consumed = &self.bytes[self.at..self.at + length];
        self.newlines += memchr::memchr_iter(b'\n', consumed).count() as u64;
        if let Some(last) = memchr::memrchr(b'\n', consumed) {
            self.line_begin = self.offset() + last as u64 + 1;
        }
        self.at += length;
    }

    /// Reads more behind the rest; `false` at the end of the text.
    ///
    /// # Errors
    /// What the input gives.
    pub(super) fn refill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.bytes.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.offset += self.at as u64;
        self.at = 0;
        let wanted = (self.filled + self.chunk / 2).max(self.chunk);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        loop {
            match self.input.read(&mut self.bytes[self.filled..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(read) => {
                    self.filled += read;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether at least `length` bytes are in memory, or all that there are.
    ///
    /// # Errors
    /// What the input gives.
    #[inline]
    pub(super) fn ensure(&mut self, length: usize) -> io::Result<()> {
        while self.filled - self.at < length && self.refill()? {}
        Ok(())
    }
}
