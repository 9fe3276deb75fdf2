//! How much may come out of compressed input, and reading to the end of a buffer.

use crate::format::BLOCK_SIZE;
use std::io::{self, Read};

/// Blocks that any input may unfold to: 64 MiB.
const FREE_BLOCKS: u64 = 16_384;
/// Bytes of blocks that each byte of input may unfold to beyond that. A block has a checksum and a number that no other
/// has, which take more than six bytes however well the rest is compressed.
const MAX_RATIO: u64 = 1024;

/// Blocks that an input of so many bytes may unfold to.
pub fn max_blocks(input_bytes: u64) -> u64 {
    FREE_BLOCKS.saturating_add(input_bytes / (BLOCK_SIZE as u64 / MAX_RATIO))
}

/// Reads until `out` is full or the stream ends; gives the number of bytes.
pub fn read_full(stream: &mut dyn Read, out: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match stream.read(&mut out[done..]) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
