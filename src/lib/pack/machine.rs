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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What the instructions give in `words` words, and how many bytes they took.
    fn run_bytes(instructions: &[u8], bytes: usize) -> Result<(Vec<u8>, u64), Fault> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(instructions).unwrap();
        let frame = encoder.finish().unwrap();
        let mut input = Inflater::new(&frame[..]);
        input.start(frame.len() as u64);
        let mut out = vec![0xcc; bytes];
        run(&mut input, &mut out)?;
        Ok((out, input.offset()))
    }

    fn words(instructions: &[u8], count: usize) -> Vec<u64> {
        let (out, taken) = run_bytes(instructions, count * 8).unwrap();
        assert_eq!(taken, instructions.len() as u64);
        out.chunks(8).map(le64).collect()
    }

    fn fault(instructions: &[u8], count: usize) -> String {
        run_bytes(instructions, count * 8).unwrap_err().to_string()
    }

    #[test]
    fn each_instruction_does_what_the_table_says() {
        assert_eq!(words(&[0x02, 0x34, 0x12], 1), [0x1234]);
        assert_eq!(words(&[0x08, 1, 2, 3, 4, 5, 6, 7, 8], 1), [0x0807_0605_0403_0201]);
        assert_eq!(words(&[0x72, 0x01, 9], 2), [9, 9]);
        assert_eq!(words(&[0x13, 0x73, 0x11], 4), [3, 4, 5, 6]);
        assert_eq!(words(&[0x22, 0, 1, 0x81, 0, 0x21, 2][..3], 1), [256]);
        let many = words(&[0x81, 0, 0x22, 0, 1], 256);
        assert_eq!((many[0], many[255]), (256, 65_536));
        assert_eq!(words(&[0x31, 0x41, 1], 2), [u64::MAX, u64::MAX - 1]);
        assert_eq!(words(&[0x01, 7, 0x52], 3), [7, 7, 7]);
        assert_eq!(words(&[0x01, 7, 0x61, 0x2c], 301), [7; 301]);
        assert_eq!(words(&[0x98, 1, 0, 0, 0, 0, 0, 0, 0], 1), [1]);
        assert_eq!(words(&[0xa1, 8, 2, 0, 0, 0, 0, 0, 0, 0], 1), [2]);
        assert_eq!(words(&[0x70, 0x01, 5, 0x50, 0x11], 1), [6], "no times, but the register is set");
        // Two words; high: 1, 2, low: 2 (the register goes on), 3.
        assert_eq!(words(&[0xb0, 2, 0x01, 1, 0x11, 0x50, 0x10, 0x11], 2), [(1 << 24) | 2, (2 << 24) | 3]);
        assert_eq!(words(&[0xb0, 1, 0x01, 1, 0x04, 4, 3, 2, 1], 1), [(1 << 24) | 0x02_0304]);
        assert_eq!(words(&[0xb0, 0, 0x01, 1], 1), [1]);
    }

    #[test]
    fn what_is_no_instruction_is_refused() {
        assert!(fault(&[0x03, 1, 2, 3], 1).contains("operand has 3 bytes"));
        assert!(fault(&[0x20], 1).contains("operand has 0 bytes"));
        for tag in 12..16 {
            assert!(fault(&[tag << 4], 1).contains(&format!("no instruction {tag}")));
        }
        for instruction in [0x51, 0x60, 0x71, 0x80, 0x91, 0xa1, 0xb0] {
            assert!(fault(&[0x72, instruction, 0, 0], 1).contains("a count stands before"));
        }
        assert!(fault(&[0x73, 0x11], 2).contains("past the end"));
        assert!(fault(&[0x5f], 2).contains("past the end"));
        assert!(fault(&[0x6f, 0xff], 511).contains("past the end"));
        assert!(fault(&[0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1).contains("past the end"));
        assert!(fault(&[0xa8, 255, 255, 255, 255, 255, 255, 255, 255], 1).contains("past the end"));
        assert!(fault(&[0xb0, 2, 0x01, 1], 1).contains("past the end"));
        assert!(fault(&[0xb0, 1, 0x72, 0x11], 2).contains("past the end"), "of the run, not of the block");
        assert!(fault(&[0xb0, 1, 0xb0, 1, 0x11], 1).contains("no instruction 11"), "runs have no runs");
        assert!(fault(&[0x01, 1], 2).contains("ends within a block"));
        assert!(fault(&[0x94, 1], 1).contains("ends within a block"));
        assert!(fault(&[0x50; 40_000], 1).contains("more than 32768 bytes of instructions"));
    }
}
