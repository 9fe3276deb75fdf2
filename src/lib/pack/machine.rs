//! The instructions that a block is packed as (docs/format.md 10.2), carried out.

use super::decode::Fault;
use super::inflate::Inflater;
use std::io::Read;

/// Bytes that the instructions of one block may have. None needs more than about 11 KiB.
const MAX_RECORD_BYTES: u64 = 32 << 10;

/// Carries out instructions until `out` is full, with a register of 0 at the start.
///
/// # Errors
/// An instruction that there is none of, or that gives more than there is room for; or no more instructions.
pub fn run<R: Read>(input: &mut Inflater<R>, out: &mut [u8]) -> Result<(), Fault> {
    let mut base = 0;
    let limit = input.offset() + MAX_RECORD_BYTES;
    run_with(input, limit, out, &mut base, false)
}

/// The part of `out` that is filled next.
struct Cursor<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn room(&mut self, len: u64) -> Result<&mut [u8], Fault> {
        let left = self.out.len() - self.at;
        match usize::try_from(len) {
            Ok(len) if len <= left => {
                self.at += len;
                Ok(&mut self.out[self.at - len..self.at])
            }
            _ => Err(Fault::Overshoot),
        }
    }

    /// Emits `count` words: `base` after each step.
    fn steps(&mut self, base: &mut u64, step: u64, count: u64) -> Result<(), Fault> {
        for word in self.room(count * 8)?.chunks_exact_mut(8) {
            *base = base.wrapping_add(step);
            word.copy_from_slice(&base.to_le_bytes());
        }
        Ok(())
    }
}

fn run_with<R: Read>(
    input: &mut Inflater<R>,
    limit: u64,
    out: &mut [u8],
    base: &mut u64,
    nested: bool,
) -> Result<(), Fault> {
    let mut cursor = Cursor { out, at: 0 };
    let mut count = None;
    while cursor.at < cursor.out.len() {
        let byte = input.byte()?;
        if input.offset() > limit {
            return Err(Fault::Long(MAX_RECORD_BYTES));
        }
        let (tag, nibble) = (byte >> 4, byte & 15);
        let wide = |low: u8| u64::from(nibble) << 8 | u64::from(low);
        let times = count.take();
        if !matches!(tag, 0..=4) && times.is_some() {
            return Err(Fault::Count(tag));
        }
        let times = times.unwrap_or(1);
        match tag {
            0 => {
                *base = input.number(nibble)?;
                cursor.steps(base, 0, times)?;
            }
            1 => cursor.steps(base, u64::from(nibble), times)?,
            2 => cursor.steps(base, input.number(nibble)?, times)?,
            3 => cursor.steps(base, u64::from(nibble).wrapping_neg(), times)?,
            4 => cursor.steps(base, input.number(nibble)?.wrapping_neg(), times)?,
            5 => cursor.steps(base, 0, u64::from(nibble))?,
            6 => cursor.steps(base, 0, wide(input.byte()?))?,
            7 => count = Some(u64::from(nibble)),
            8 => count = Some(wide(input.byte()?)),
            9 => input.copy_to(cursor.room(u64::from(nibble))?)?,
            10 => {
                let len = input.number(nibble)?;
                input.copy_to(cursor.room(len)?)?;
            }
            11 if !nested => {
                let words = wide(input.byte()?);
                shifted(input, limit, cursor.room(words * 8)?, base)?;
            }
            _ => return Err(Fault::Tag(tag)),
        }
    }
    Ok(())
}

/// Two runs of words, of which the second gives the low 24 bits.
fn shifted<R: Read>(input: &mut Inflater<R>, limit: u64, out: &mut [u8], base: &mut u64) -> Result<(), Fault> {
    let mut low = [0; crate::format::BLOCK_SIZE];
    let low = &mut low[..out.len()];
    run_with(input, limit, out, base, true)?;
    run_with(input, limit, low, base, true)?;
    for (word, low) in out.chunks_exact_mut(8).zip(low.chunks_exact(8)) {
        let value = (le64(word) << 24) | (le64(low) & 0xff_ffff);
        word.copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

fn le64(word: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(word);
    u64::from_le_bytes(bytes)
}
