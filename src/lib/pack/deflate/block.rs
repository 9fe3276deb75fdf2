//! One block of a stream: its codes, then its symbols; or its bytes as they are (RFC 1951, 3.2.3 to 3.2.7).

use super::bits::Bits;
use super::codes::{Code, canonical, codes};
use super::prices::{Parser, Usage};
use super::symbols::{END, LITERALS, distance_slot, length_slot};

/// The longest code of a symbol.
const LIMIT: u8 = 15;
/// The longest code of a code's length.
const LENGTH_LIMIT: u8 = 7;
/// The order in which the lengths of the codes of lengths are written.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/// Bytes that can be stored as they are, at once.
const STORED_MAX: usize = 0xffff;

/// The codes of a block.
struct Codes {
    literals: Vec<Code>,
    distances: Vec<Code>,
}

impl Codes {
    /// Those that every reader knows.
    fn fixed() -> Codes {
        let mut lengths = [8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        Codes { literals: canonical(&lengths), distances: canonical(&[5; 30]) }
    }

    /// Bits of all symbols, without their extra bits, which are the same for all codes.
    fn bits(&self, usage: &Usage) -> u64 {
        let sum = |codes: &[Code], counts: &[u32]| -> u64 {
            codes.iter().zip(counts).map(|(code, count)| u64::from(code.length) * u64::from(*count)).sum()
        };
        sum(&self.literals, &usage.literals) + sum(&self.distances, &usage.distances)
    }
}

/// Writes a block in the form that is the shortest.
pub fn write(text: &[u8], parser: &Parser, usage: &Usage, last: bool, bits: &mut Bits<'_>) {
    let own = Codes { literals: codes(&usage.literals, LIMIT), distances: codes(&usage.distances, LIMIT) };
    let header = Header::of(&own);
    let fixed = Codes::fixed();
    let (with_own, with_fixed) = (own.bits(usage) + header.bits(), fixed.bits(usage));
    let extra: u64 = parser
        .taken()
        .filter(|(_, step)| step.length > 1)
        .map(|(_, step)| length_slot(step.length.into()).extra + distance_slot(step.distance.into()).extra)
        .map(u64::from)
        .sum();
    // Each piece has a head of five bytes, at most.
    let stored = 8 * (text.len() + 5 * text.len().div_ceil(STORED_MAX).max(1)) as u64;
    if stored < with_own.min(with_fixed) + extra {
        return store(text, last, bits);
    }
    bits.push(last.into(), 1);
    if with_own < with_fixed {
        bits.push(2, 2);
        header.write(bits);
        symbols(text, parser, &own, bits);
    } else {
        bits.push(1, 2);
        symbols(text, parser, &fixed, bits);
    }
}

fn store(text: &[u8], last: bool, bits: &mut Bits<'_>) {
    let mut pieces = text.chunks(STORED_MAX).peekable();
    while let Some(piece) = pieces.next() {
        bits.push((last && pieces.peek().is_none()).into(), 1);
        bits.push(0, 2);
        bits.align();
        let length = piece.len() as u16;
        bits.bytes(&length.to_le_bytes());
        bits.bytes(&(!length).to_le_bytes());
        bits.bytes(piece);
    }
}

fn symbols(text: &[u8], parser: &Parser, codes: &Codes, bits: &mut Bits<'_>) {
    // A code and its extra bits go in at once: at most 20, or 28.
    let mut push = |code: Code, extra: u32, rest: u64| {
        bits.push(u64::from(code.bits) | rest << code.length, u32::from(code.length) + extra);
    };
    for (at, step) in parser.taken() {
        match usize::from(step.length) {
            1 => push(codes.literals[usize::from(text[at])], 0, 0),
            length => {
                let length = length_slot(length);
                push(codes.literals[END + 1 + length.slot], length.extra, length.rest);
                let distance = distance_slot(step.distance.into());
                push(codes.distances[distance.slot], distance.extra, distance.rest);
            }
        }
    }
    push(codes.literals[END], 0, 0);
}

/// A length of a code, or a repetition: symbol, how many extra bits, and these.
type Item = (usize, u32, u64);

/// The lengths of all codes, as they are written ahead of the symbols.
struct Header {
    nr_literals: usize,
    nr_distances: usize,
    items: Vec<Item>,
    codes: Vec<Code>,
    nr_codes: usize,
}

impl Header {
    fn of(own: &Codes) -> Header {
        let used = |codes: &[Code]| codes.iter().rposition(|code| code.length > 0).map_or(0, |last| last + 1);
        let nr_literals = used(&own.literals[..LITERALS]).max(END + 1);
        let nr_distances = used(&own.distances).max(1);
        let both = own.literals[..nr_literals].iter().chain(&own.distances[..nr_distances]);
        let items = items(&both.map(|code| code.length).collect::<Vec<_>>());
        let mut usage = [0; ORDER.len()];
        items.iter().for_each(|(symbol, ..)| usage[*symbol] += 1);
        let codes = codes(&usage, LENGTH_LIMIT);
        let nr_codes = ORDER.iter().rposition(|symbol| codes[*symbol].length > 0).map_or(4, |last| (last + 1).max(4));
        Header { nr_literals, nr_distances, items, codes, nr_codes }
    }

    fn bits(&self) -> u64 {
        let item = |(symbol, extra, _): &Item| u64::from(self.codes[*symbol].length) + u64::from(*extra);
        14 + 3 * self.nr_codes as u64 + self.items.iter().map(item).sum::<u64>()
    }

    fn write(&self, bits: &mut Bits<'_>) {
        bits.push((self.nr_literals - 257) as u64, 5);
        bits.push((self.nr_distances - 1) as u64, 5);
        bits.push((self.nr_codes - 4) as u64, 4);
        for symbol in &ORDER[..self.nr_codes] {
            bits.push(self.codes[*symbol].length.into(), 3);
        }
        for (symbol, extra, rest) in &self.items {
            let code = self.codes[*symbol];
            bits.push(code.bits.into(), code.length.into());
            bits.push(*rest, *extra);
        }
    }
}

/// Lengths with their repetitions: 16 is the last one 3 to 6 times, 17 and 18 are 0 for 3 to 10 and 11 to 138 times.
fn items(lengths: &[u8]) -> Vec<Item> {
    let mut items = Vec::new();
    for run in lengths.chunk_by(|left, right| left == right) {
        let mut left = run.len();
        let length = usize::from(run[0]);
        if length > 0 {
            items.push((length, 0, 0));
            left -= 1;
        }
        while left > 0 {
            let (count, item) = match (length, left) {
                (_, 1..3) => (1, (length, 0, 0)),
                (0, 3..11) => (left, (17, 3, left as u64 - 3)),
                (0, _) => (left.min(138), (18, 7, left.min(138) as u64 - 11)),
                _ => (left.min(6), (16, 2, left.min(6) as u64 - 3)),
            };
            items.push(item);
            left -= count;
        }
    }
    items
}
