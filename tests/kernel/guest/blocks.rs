//! A program for the guest: writes blocks of a device that tell where they were written, and reads what blocks tell.
//!
//! `blocks write DEVICE BLOCK_BYTES TAG RANGES [SEED]` writes the first 4 KiB of each block, in random order if there is a
//! seed. `blocks read DEVICE BLOCK_BYTES RANGES` prints `BLOCK TAG BLOCK_THEN` of each block that was written so.
//! `RANGES` is a list of `BEGIN+COUNT` or `BEGIN+COUNT/STEP`, with commas between. Nothing goes through the page cache.
//!
//! It is compiled by itself, with the standard library alone.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// What a stamp begins with; its tag and block follow, as 64-bit numbers.
pub const MAGIC: [u8; 8] = *b"stamped:";

const O_DIRECT: i32 = 0o40_000;

/// What is read and written: `O_DIRECT` wants it aligned.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// The beginning of a block that tells where it was written.
pub fn stamp(tag: u64, block: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&tag.to_le_bytes());
    bytes[16..].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// Tag and block of a stamp.
pub fn read_stamp(bytes: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    (bytes.get(..8)? == MAGIC).then_some((number(8)?, number(16)?))
}

fn ranges(text: &str) -> Option<Vec<u64>> {
    let mut blocks = Vec::new();
    for range in text.split(',') {
        let (begin, rest) = range.split_once('+')?;
        let (count, step) = rest.split_once('/').unwrap_or((rest, "1"));
        let (begin, count, step): (u64, u64, usize) = (begin.parse().ok()?, count.parse().ok()?, step.parse().ok()?);
        blocks.extend((begin..).step_by(step).take(usize::try_from(count).ok()?));
    }
    Some(blocks)
}

/// Fisher and Yates, with a xorshift.
fn shuffle(blocks: &mut [u64], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..blocks.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        blocks.swap(at, (state % (at as u64 + 1)) as usize);
    }
}

fn write(device: &str, block_bytes: u64, tag: u64, blocks: &[u64]) -> io::Result<()> {
    let device = OpenOptions::new().write(true).custom_flags(O_DIRECT).open(device)?;
    let mut page = Page([0; 4096]);
    for block in blocks {
        page.0[..24].copy_from_slice(&stamp(tag, *block));
        device.write_all_at(&page.0, block * block_bytes)?;
    }
    device.sync_all()
}

fn read(device: &str, block_bytes: u64, blocks: &[u64]) -> io::Result<()> {
    let device: File = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(device)?;
    let mut page = Page([0; 4096]);
    let mut out = BufWriter::new(io::stdout().lock());
    for block in blocks {
        device.read_exact_at(&mut page.0, block * block_bytes)?;
        if let Some((tag, then)) = read_stamp(&page.0) {
            writeln!(out, "{block} {tag} {then}")?;
        }
    }
    out.flush()
}

fn run(words: &[String]) -> Option<io::Result<()>> {
    let word = |at: usize| words.get(at).map(String::as_str);
    let block_bytes = word(2)?.parse().ok()?;
    match word(0)? {
        "write" => {
            let mut blocks = ranges(word(4)?)?;
            if let Some(seed) = word(5) {
                shuffle(&mut blocks, seed.parse().ok()?);
            }
            Some(write(word(1)?, block_bytes, word(3)?.parse().ok()?, &blocks))
        }
        "read" => Some(read(word(1)?, block_bytes, &ranges(word(3)?)?)),
        _ => None,
    }
}

pub fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    match run(&words) {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            eprintln!("blocks {}: {error}", words.join(" "));
            std::process::exit(1);
        }
        None => {
            eprintln!("blocks: cannot understand {}", words.join(" "));
            std::process::exit(1);
        }
    }
}
