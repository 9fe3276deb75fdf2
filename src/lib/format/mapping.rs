//! Values of a device's mapping tree (docs/format.md 4.2).

use crate::base::DataBlock;

/// The data block and the time that a value of a mapping tree packs: 40 and 24 bits.
pub fn unpack(value: u64) -> (DataBlock, u32) {
    (DataBlock(value >> 24), (value & 0xff_ffff) as u32)
}

/// The value for a data block below 2^40 and a time below 2^24.
pub fn pack(block: DataBlock, time: u32) -> u64 {
    assert!(block.0 < 1 << 40 && time < 1 << 24);
    (block.0 << 24) | u64::from(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_written_value() {
        // docs/format.md 11.3: leaf 48, key 248.
        assert_eq!(unpack(0x0000_0004_7800_0001), (DataBlock(0x478), 1));
        assert_eq!(pack(DataBlock(0x478), 1), 0x0000_0004_7800_0001);
        assert_eq!(unpack(u64::MAX), (DataBlock((1 << 40) - 1), (1 << 24) - 1));
    }
}
