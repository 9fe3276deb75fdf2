//! Huffman codes of bounded length, as RFC 1951 lays them out (3.2.2).

/// A symbol's code: bits in the order in which they are written, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The first bit is the lowest.
    pub bits: u16,
    /// 0 where the symbol is not used.
    pub length: u8,
}

/// Codes for symbols that are used so often; none is longer than `limit`.
pub fn codes(usage: &[u32], limit: u8) -> Vec<Code> {
    canonical(&lengths(usage, limit))
}

/// How long the codes are. A symbol that is used alone gets one bit, and so does another beside it: readers want a
/// whole code.
fn lengths(usage: &[u32], limit: u8) -> Vec<u8> {
    let mut lengths = vec![0; usage.len()];
    let mut used: Vec<(u32, usize)> =
        usage.iter().enumerate().filter(|(_, count)| **count > 0).map(|(symbol, count)| (*count, symbol)).collect();
    if used.len() < 2 {
        let only = used.first().map_or(0, |(_, symbol)| *symbol);
        lengths[only] = 1;
        lengths[usize::from(only == 0)] = 1;
        return lengths;
    }
    used.sort_unstable();
    loop {
        let depths = depths(&used);
        if depths.iter().all(|depth| *depth <= limit) {
            used.iter().zip(depths).for_each(|((_, symbol), depth)| lengths[*symbol] = depth);
            return lengths;
        }
        // Flatter: rare symbols count more. Order stays as it is.
        used.iter_mut().for_each(|(count, _)| *count = *count / 2 + 1);
    }
}

/// How deep each leaf lies in the tree over leaves that are sorted by weight.
fn depths(leaves: &[(u32, usize)]) -> Vec<u8> {
    // Nodes come in order of their weight too: the two lightest of both rows are joined next.
    let mut weights: Vec<u64> = Vec::with_capacity(leaves.len());
    let mut parents = vec![0; 2 * leaves.len() - 1];
    let (mut leaf, mut node) = (0, 0);
    for joined in 0..leaves.len() - 1 {
        let mut lightest = || {
            let from_leaves =
                leaf < leaves.len() && (node >= weights.len() || u64::from(leaves[leaf].0) <= weights[node]);
            let (at, weight) = if from_leaves {
                leaf += 1;
                (leaf - 1, u64::from(leaves[leaf - 1].0))
            } else {
                node += 1;
                (leaves.len() + node - 1, weights[node - 1])
            };
            parents[at] = leaves.len() + joined;
            weight
        };
        let weight = lightest() + lightest();
        weights.push(weight);
    }
    let root = parents.len() - 1;
    let mut depths = vec![0u8; parents.len()];
    for at in (0..root).rev() {
        depths[at] = depths[parents[at]].saturating_add(1);
    }
    depths.truncate(leaves.len());
    depths
}

/// Codes of these lengths: shorter ones first, and in the order of their symbols.
pub fn canonical(lengths: &[u8]) -> Vec<Code> {
    let mut next = [0u16; 17];
    for length in 1..=15u8 {
        let shorter = lengths.iter().filter(|other| **other == length).count() as u16;
        next[usize::from(length) + 1] = (next[usize::from(length)] + shorter) << 1;
    }
    let code = |length: &u8| {
        let number = &mut next[usize::from(*length)];
        *number += 1;
        match *length {
            0 => Code::default(),
            length => Code { bits: (*number - 1).reverse_bits() >> (16 - length), length },
        }
    };
    lengths.iter().map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::{Code, canonical, codes, lengths};
    use proptest::prelude::*;

    /// RFC 1951, 3.2.2.
    #[test]
    fn the_example_of_the_standard() {
        let found = canonical(&[3, 3, 3, 3, 3, 2, 4, 4]);
        let written = found.iter().map(|code| {
            format!("{:0w$b}", code.bits.reverse_bits() >> (16 - code.length), w = usize::from(code.length))
        });
        assert_eq!(written.collect::<Vec<_>>(), ["010", "011", "100", "101", "110", "00", "1110", "1111"]);
    }

    #[test]
    fn few_symbols() {
        assert_eq!(lengths(&[0, 0, 0], 15), [1, 1, 0]);
        assert_eq!(lengths(&[0, 9, 0], 15), [1, 1, 0]);
        assert_eq!(lengths(&[9, 0, 0], 15), [1, 1, 0]);
        assert_eq!(lengths(&[1, 0, 7], 15), [1, 0, 1]);
        assert_eq!(codes(&[0, 3, 0], 7)[2], Code::default());
    }

    proptest! {
        #[test]
        fn codes_are_whole_and_no_longer_than_allowed(
            usage in prop::collection::vec(prop_oneof![Just(0u32), 1..20u32, 1..4_000_000u32], 19),
            steep in any::<bool>(),
        ) {
            let mut usage = usage;
            if steep {
                // As deep as a tree can get.
                let (mut a, mut b) = (1, 1);
                for count in &mut usage {
                    *count = a;
                    (a, b) = (b, a + b);
                }
            }
            let found = lengths(&usage, 7);
            let sum: u32 = found.iter().filter(|length| **length > 0).map(|length| 1 << (7 - length)).sum();
            prop_assert_eq!(sum, 1 << 7);
            for (more, longer) in usage.iter().zip(&found) {
                prop_assert!(*more == 0 || *longer > 0);
                for (less, shorter) in usage.iter().zip(&found) {
                    prop_assert!(less == &0 || more <= less || longer <= shorter, "rarer symbols have no shorter code");
                }
            }
        }
    }
}
