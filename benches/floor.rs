//! The least that a check can cost: one pass over an image that reads every block in disk order and computes the
//! checksum of those that are not empty. Prints how many there were, so that nothing can be left out.

use std::fs::File;
use std::io::{self, Read};

const BLOCK_SIZE: usize = 4096;
const BATCH: usize = 256 * BLOCK_SIZE;

fn main() -> io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: floor IMAGE"))?;
    let mut image = File::open(path)?;
    let mut batch = vec![0; BATCH];
    let (mut blocks, mut sum) = (0u64, 0u32);
    loop {
        let mut filled = 0;
        while filled < BATCH {
            match image.read(&mut batch[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        for block in batch[..filled].chunks_exact(BLOCK_SIZE) {
            if block[..8] != [0; 8] {
                blocks += 1;
                sum ^= crc32c::crc32c(&block[4..]);
            }
        }
        if filled < BATCH {
            println!("{blocks} blocks, {sum:08x}");
            return Ok(());
        }
    }
}
