//! Earlier places where the same bytes stand.

/// How far back a match may lie.
const WINDOW: usize = 1 << 15;
/// The shortest match that the format knows.
pub const MIN_LENGTH: usize = 3;
/// The longest.
pub const MAX_LENGTH: usize = 258;
/// From this length on a match is taken as it is: nothing else is looked for at or inside it.
pub const LONG: usize = 32;
/// Places with the same hash that are looked at. More gain less than 0.01 percent.
const DEPTH: usize = 6;
/// Bits of the table of places.
const HASH_BITS: u32 = 15;

/// So many bytes from here are the same as those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// How many bytes.
    pub length: u16,
    /// How far before, less one.
    pub distance: u16,
}

/// Finds matches in one text, from its beginning to its end.
#[derive(Debug)]
pub struct Finder {
    /// The last place with a hash, plus one; 0 where there is none.
    heads: Vec<u32>,
    /// The place before with the same hash, plus one, by place within the window.
    before: Vec<u32>,
}

impl Finder {
    pub fn new() -> Finder {
        Finder { heads: vec![0; 1 << HASH_BITS], before: vec![0; WINDOW] }
    }

    /// Forgets the text.
    pub fn reset(&mut self) {
        self.heads.fill(0);
    }

    /// Takes note of a place; gives the last one with the same hash, plus one.
    #[inline]
    pub fn note(&mut self, text: &[u8], at: usize) -> u32 {
        let Some([a, b, c]) = text.get(at..).and_then(|rest| rest.first_chunk::<MIN_LENGTH>()) else { return 0 };
        let hash = u32::from_le_bytes([*a, *b, *c, 0]).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS);
        let last = std::mem::replace(&mut self.heads[hash as usize], at as u32 + 1);
        self.before[at % WINDOW] = last;
        last
    }

    /// Adds the matches at a place, longer ones behind shorter ones that are nearer; gives the greatest length, or 0.
    #[inline]
    pub fn find(&mut self, text: &[u8], at: usize, found: &mut Vec<Match>) -> usize {
        let mut next = self.note(text, at) as usize;
        let limit = MAX_LENGTH.min(text.len() - at);
        let here = &text[at..at + limit];
        let mut best = 0;
        for _ in 0..DEPTH {
            let Some(place) = next.checked_sub(1).filter(|place| at - place <= WINDOW) else { break };
            let there = &text[place..place + limit];
            // A longer match has the same byte behind what is matched so far.
            let length = if there.get(best) == here.get(best) { common(here, there) } else { 0 };
            if length > best.max(MIN_LENGTH - 1) {
                best = length;
                found.push(Match { length: length as u16, distance: (at - place - 1) as u16 });
                if length >= LONG || length == limit {
                    break;
                }
            }
            next = self.before[place % WINDOW] as usize;
        }
        best
    }
}

/// How many bytes two texts of the same length begin with alike.
#[inline]
fn common(left: &[u8], right: &[u8]) -> usize {
    let mut length = 0;
    for (l, r) in left.as_chunks::<8>().0.iter().zip(right.as_chunks::<8>().0) {
        let differ = u64::from_le_bytes(*l) ^ u64::from_le_bytes(*r);
        if differ != 0 {
            return length + differ.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length + left[length..].iter().zip(&right[length..]).take_while(|(l, r)| l == r).count()
}
