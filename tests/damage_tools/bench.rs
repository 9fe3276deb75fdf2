//! One damaged image, the files made of it, and the tools that are run on them.

use super::pool::{self, Mappings, Pool};
use super::process::{Ran, Tools};
use super::random::Random;
use super::readers::loss;
use super::tally::Tally;
use std::path::{Path, PathBuf};

/// A change made in place to the sound pool, and what takes it back.
pub struct Change {
    pub after: Vec<u8>,
    pub undo: Vec<u8>,
}

/// Where tools are tried on one image.
pub struct Bench<'b> {
    pub tools: &'b Tools,
    pub pool: &'b Pool,
    pub folder: &'b Path,
    /// The damaged image, as a file and as bytes.
    pub input: PathBuf,
    pub bytes: &'b [u8],
    /// A dump of the sound pool; nothing where that is too long.
    pub xml: &'b [u8],
    pub change: Option<&'b Change>,
    pub random: Random,
    pub tally: Tally,
    pub context: String,
}

impl Bench<'_> {
    pub fn is_ours(&self) -> bool {
        matches!(self.tools, Tools::Ours)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A copy of the damaged image.
    pub fn copy(&self) -> PathBuf {
        let path = self.file("copy");
        pool::write(&path, self.bytes);
        path
    }

    /// Runs a tool of these tools, if they have it.
    pub fn run(&mut self, form: &'static str, tool: &str, words: &[&str], extra: &[&Path]) -> Ran {
        let ran = self.tools.run(tool, words, extra);
        self.tally.count(form, &ran, &self.context);
        ran
    }

    /// Runs a tool whose last word is the damaged image.
    pub fn simple(&mut self, form: &'static str, tool: &str, words: &[&str]) -> Ran {
        let input = self.input.clone();
        self.run(form, tool, words, &[&input])
    }

    pub fn wrong(&mut self, form: &'static str, what: &str) {
        self.tally.wrong(form, &self.context, what);
    }

    pub fn spoiled(&mut self, form: &'static str, what: &str) {
        self.tally.spoiled(form, &self.context, what);
    }

    /// Counts what `form` brought back.
    pub fn lose(&mut self, form: &'static str, found: Option<Mappings>) {
        let mut one = Tally::default();
        one.losses.insert(form, loss(self.pool, found.as_ref()));
        self.tally.add(one);
    }

    /// Flips bits of a file, cuts it, or moves a part of it.
    pub fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.random.below(3) {
            let at = self.random.below(bytes.len());
            let length = (1 + self.random.below(64)).min(bytes.len() - at);
            match self.random.below(8) {
                0 => bytes.truncate(at),
                1 => _ = bytes.drain(at..at + length),
                2 => {
                    let piece = bytes[at..at + length].to_vec();
                    bytes.splice(at..at, piece).for_each(drop);
                }
                3 => bytes[at..at + length].fill(0),
                _ => bytes[at] ^= 1 << self.random.below(8),
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
    }

    /// The same for text: also other digits, and lines that are gone, there twice, or elsewhere.
    pub fn spoil_text(&mut self, bytes: &mut Vec<u8>) {
        if self.random.chance(4) {
            return self.spoil(bytes);
        }
        let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let (at, to) = (self.random.below(lines.len()), self.random.below(lines.len()));
        match self.random.below(6) {
            0 => _ = lines.remove(at),
            1 => lines.insert(to, lines[at].clone()),
            2 => lines.swap(at, to),
            _ => {
                let digits: Vec<usize> = (0..lines[at].len()).filter(|i| lines[at][*i].is_ascii_digit()).collect();
                if !digits.is_empty() {
                    let digit = self.random.pick(&digits);
                    match self.random.below(3) {
                        0 => _ = lines[at].remove(digit),
                        1 => lines[at].insert(digit, b'7'),
                        _ => lines[at][digit] = b'0' + self.random.below(10) as u8,
                    }
                }
            }
        }
        *bytes = lines.join(&b'\n');
    }
}
