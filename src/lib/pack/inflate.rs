//! The bytes of a frame, decompressed as they are asked for.

use super::decode::Fault;
use flate2::{Decompress, FlushDecompress, Status};
use std::io::{self, Read};

const COMPRESSED_BYTES: usize = 64 << 10;
const PLAIN_BYTES: usize = 128 << 10;

/// Decompresses one frame after the other. Holds 192 KiB and what the decompressor needs, whatever the frames say.
pub struct Inflater<R> {
    input: R,
    /// Compressed bytes of the frame that have not been read yet.
    left: u64,
    compressed: Box<[u8]>,
    compressed_at: usize,
    compressed_end: usize,
    state: Decompress,
    plain: Box<[u8]>,
    at: usize,
    end: usize,
    /// Where `plain` begins in the frame.
    base: u64,
    ended: bool,
}

impl<R: Read> Inflater<R> {
    /// Without a frame yet.
    pub fn new(input: R) -> Self {
        Inflater {
            input,
            left: 0,
            compressed: vec![0; COMPRESSED_BYTES].into_boxed_slice(),
            compressed_at: 0,
            compressed_end: 0,
            state: Decompress::new(true),
            plain: vec![0; PLAIN_BYTES].into_boxed_slice(),
            at: 0,
            end: 0,
            base: 0,
            ended: true,
        }
    }

    /// Where the compressed bytes come from, to be used between frames.
    pub fn input(&mut self) -> &mut R {
        &mut self.input
    }

    /// Begins a frame of `len` compressed bytes, which come next from the input.
    pub fn start(&mut self, len: u64) {
        self.left = len;
        (self.compressed_at, self.compressed_end) = (0, 0);
        self.state.reset(true);
        (self.at, self.end, self.base) = (0, 0, 0);
        self.ended = false;
    }

    /// Decompressed bytes taken so far.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Whether the frame has no more bytes. It has then been verified to its end.
    pub fn at_end(&mut self) -> Result<bool, Fault> {
        while self.at == self.end && !self.ended {
            self.fill()?;
        }
        Ok(self.at == self.end)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Fault> {
        if self.at == self.end && self.at_end()? {
            return Err(Fault::Ended);
        }
        let byte = self.plain[self.at];
        self.at += 1;
        Ok(byte)
    }

    /// The next `width` bytes as a number; 1, 2, 4 or 8 of them.
    pub fn number(&mut self, width: u8) -> Result<u64, Fault> {
        if !matches!(width, 1 | 2 | 4 | 8) {
            return Err(Fault::Width(width));
        }
        let width = usize::from(width);
        let mut bytes = [0; 8];
        self.copy_to(&mut bytes[..width])?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The next bytes, as many as fit in `out`.
    pub fn copy_to(&mut self, out: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        loop {
            let len = (out.len() - done).min(self.end - self.at);
            out[done..done + len].copy_from_slice(&self.plain[self.at..self.at + len]);
            self.at += len;
            done += len;
            if done == out.len() {
                return Ok(());
            }
            if self.at_end()? {
                return Err(Fault::Ended);
            }
        }
    }

    /// Puts more bytes into `plain`, which has been used up, unless the end is reached.
    fn fill(&mut self) -> Result<(), Fault> {
        if self.compressed_at == self.compressed_end && self.left > 0 {
            self.refill()?;
        }
        let (before_in, before_out) = (self.state.total_in(), self.state.total_out());
        // With no input left there may still be output.
        let input = &self.compressed[self.compressed_at..self.compressed_end];
        let status = self
            .state
            .decompress(input, &mut self.plain, FlushDecompress::None)
            .map_err(|error| Fault::Corrupt(error.to_string()))?;
        let (taken, given) = (self.state.total_in() - before_in, self.state.total_out() - before_out);
        self.compressed_at += taken as usize;
        self.base += self.end as u64;
        (self.at, self.end) = (0, given as usize);
        if status == Status::StreamEnd {
            self.ended = true;
            let surplus = self.left + (self.compressed_end - self.compressed_at) as u64;
            if surplus > 0 {
                return Err(Fault::Surplus(surplus));
            }
        } else if taken == 0 && given == 0 {
            return Err(Fault::Unfinished);
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<(), Fault> {
        let want = self.left.min(COMPRESSED_BYTES as u64) as usize;
        self.input.read_exact(&mut self.compressed[..want]).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Unfinished,
            _ => Fault::Read(error),
        })?;
        self.left -= want as u64;
        (self.compressed_at, self.compressed_end) = (0, want);
        Ok(())
    }
}
