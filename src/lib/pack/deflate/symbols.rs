//! The symbols of RFC 1951, 3.2.5: lengths and distances are in slots, with extra bits that say where in the slot.

use super::matches::{MAX_LENGTH, MIN_LENGTH};

/// Literals, the end of a block, and the slots of lengths.
pub const LITERALS: usize = 286;
/// The symbol behind the last of a block.
pub const END: usize = 256;
/// Slots of distances.
pub const DISTANCES: usize = 30;

/// Where a number falls: its slot, how many extra bits that has, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The slot's number.
    pub slot: usize,
    /// How many extra bits.
    pub extra: u32,
    /// The extra bits.
    pub rest: u64,
}

/// Numbers from 0 in slots: `2^fine` slots for each power of two.
fn slot(number: usize, fine: u32) -> Slot {
    if number < 1 << (fine + 1) {
        return Slot { slot: number, extra: 0, rest: 0 };
    }
    let extra = number.ilog2() - fine;
    let slot = ((extra as usize) << fine) + (number >> extra);
    Slot { slot, extra, rest: (number & ((1 << extra) - 1)) as u64 }
}

/// The slot of a match's length; its symbol is 257 more.
pub fn length_slot(length: usize) -> Slot {
    if length >= MAX_LENGTH { Slot { slot: 28, extra: 0, rest: 0 } } else { slot(length - MIN_LENGTH, 2) }
}

/// The slot of a match's distance less one.
pub fn distance_slot(less_one: usize) -> Slot {
    slot(less_one, 1)
}

#[cfg(test)]
mod tests {
    use super::{Slot, distance_slot, length_slot};

    #[test]
    fn as_in_the_tables_of_the_standard() {
        let length = |length| {
            let Slot { slot, extra, rest } = length_slot(length);
            (257 + slot, extra, rest)
        };
        assert_eq!(length(3), (257, 0, 0));
        assert_eq!(length(10), (264, 0, 0));
        assert_eq!([length(11), length(12), length(13)], [(265, 1, 0), (265, 1, 1), (266, 1, 0)]);
        assert_eq!([length(35), length(42), length(43)], [(273, 3, 0), (273, 3, 7), (274, 3, 0)]);
        assert_eq!([length(227), length(257), length(258)], [(284, 5, 0), (284, 5, 30), (285, 0, 0)]);
        let distance = |distance: usize| {
            let Slot { slot, extra, rest } = distance_slot(distance - 1);
            (slot, extra, rest)
        };
        assert_eq!([distance(1), distance(4), distance(5), distance(6)], [(0, 0, 0), (3, 0, 0), (4, 1, 0), (4, 1, 1)]);
        assert_eq!([distance(25), distance(33), distance(257)], [(9, 3, 0), (10, 4, 0), (16, 7, 0)]);
        assert_eq!([distance(24577), distance(32768)], [(29, 13, 0), (29, 13, 8191)]);
    }
}
