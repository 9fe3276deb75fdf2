//! Writes zlib streams (RFC 1950, 1951) that are small for what packs hold.
//!
//! No library in pure Rust makes packs of scattered mappings as small in bearable time (see [`Prices`]), so this one
//! thing is our own: choosing matches by what they cost. Reading is left to a library.

mod bits;
mod block;
mod codes;
mod matches;
mod prices;
mod symbols;

use bits::Bits;
use matches::{Finder, LONG, Match};
use prices::{Parser, Prices};

/// Bytes of a text that get codes of their own. Codes take some 80 bytes.
const BLOCK: usize = 1 << 17;
/// Times that the first block is parsed to find prices.
const FIRST_PASSES: usize = 3;

/// Makes one stream after the other, with the same memory: some 4 MiB.
#[derive(Debug)]
pub struct Deflater {
    finder: Finder,
    found: Vec<Match>,
    starts: Vec<u32>,
    parser: Parser,
}

impl Deflater {
    /// Takes the memory.
    pub fn new() -> Deflater {
        Deflater { finder: Finder::new(), found: Vec::new(), starts: Vec::new(), parser: Parser::default() }
    }

    /// Appends a stream that holds `text`, which is below 4 GiB, to `out`.
    pub fn write(&mut self, text: &[u8], out: &mut Vec<u8>) {
        // A window of 32 KiB, the usual level.
        out.extend_from_slice(&[0x78, 0x9c]);
        self.finder.reset();
        let mut bits = Bits::new(out);
        let mut prices = Prices::favouring_matches(&text[..text.len().min(BLOCK)]);
        let mut begin = 0;
        loop {
            let end = (begin + BLOCK).min(text.len());
            let block = &text[begin..end];
            self.find(text, begin, end);
            for _ in 1..if begin == 0 { FIRST_PASSES } else { 1 } {
                self.parser.parse(block, &self.found, &self.starts, &prices);
                prices = Prices::of(&self.parser.usage(block));
            }
            self.parser.parse(block, &self.found, &self.starts, &prices);
            let usage = self.parser.usage(block);
            prices = Prices::of(&usage);
            block::write(block, &self.parser, &usage, end == text.len(), &mut bits);
            begin = end;
            if begin == text.len() {
                break;
            }
        }
        bits.align();
        let mut sum = simd_adler32::Adler32::new();
        sum.write(text);
        out.extend_from_slice(&sum.finish().to_be_bytes());
    }

    /// Finds the matches at every byte of a block.
    fn find(&mut self, text: &[u8], begin: usize, end: usize) {
        self.found.clear();
        self.starts.clear();
        let mut at = begin;
        while at < end {
            self.starts.push(self.found.len() as u32);
            let length = self.finder.find(text, at, &mut self.found);
            at += 1;
            if length >= LONG {
                let inside = at..(at + length - 1).min(end);
                at = inside.end;
                for place in inside {
                    self.starts.push(self.found.len() as u32);
                    self.finder.note(text, place);
                }
            }
        }
        self.starts.push(self.found.len() as u32);
    }
}

#[cfg(test)]
mod tests;
