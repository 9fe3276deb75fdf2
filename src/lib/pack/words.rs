//! Blocks as instructions (docs/format.md 10.3), the same bytes for a block as every packer that keeps the rules.

use crate::format::node::{FLAG_LEAF, HEADER_SIZE};
use crate::format::{BLOCK_SIZE, Block, BlockKind, block};

/// Appends the instructions for a block of `kind` to `out`. `scratch` is room for numbers.
pub fn pack_block(block: &Block, kind: BlockKind, scratch: &mut Vec<u64>, out: &mut Vec<u8>) {
    let whole = kind != BlockKind::Node || !pack_node(block, scratch, out);
    if whole {
        literal(block, out);
    }
}

/// `false` where the header leads out of the block: then nothing was appended.
fn pack_node(block: &Block, scratch: &mut Vec<u64>, out: &mut Vec<u8>) -> bool {
    let is_leaf = block::le32(block, 4) == FLAG_LEAF;
    let max_entries = block::le32(block, 20) as usize;
    let value_size = block::le32(block, 24);
    let has_words = !is_leaf || value_size == 8;
    let per_entry = if has_words { 16 } else { 8 };
    if max_entries > (BLOCK_SIZE - HEADER_SIZE) / per_entry {
        return false;
    }
    literal(&block[..HEADER_SIZE], out);
    let keys_end = HEADER_SIZE + 8 * max_entries;
    load(&block[HEADER_SIZE..keys_end], scratch);
    words(scratch, out);
    if !has_words {
        literal(&block[keys_end..], out);
        return true;
    }
    let values_end = keys_end + 8 * max_entries;
    load(&block[keys_end..values_end], scratch);
    if is_leaf {
        shifted(scratch, out)
    } else {
        words(scratch, out)
    }
    literal(&block[values_end..], out);
    true
}

fn load(bytes: &[u8], numbers: &mut Vec<u64>) {
    numbers.clear();
    numbers.extend(bytes.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    }));
}

/// An instruction with the narrowest operand that holds `number`.
fn with_operand(tag: u8, number: u64, out: &mut Vec<u8>) {
    let width = match number {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    out.push(tag << 4 | width);
    out.extend_from_slice(&number.to_le_bytes()[..usize::from(width)]);
}

/// Nothing where there is nothing: a full block takes no more instructions.
fn literal(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    if bytes.len() < 16 {
        out.push(9 << 4 | bytes.len() as u8);
    } else {
        with_operand(10, bytes.len() as u64, out);
    }
    out.extend_from_slice(bytes);
}

/// `short` with a nibble where `count` fits in one, otherwise `long` with twelve bits. `count` is below 4096, as there
/// are less than 512 words in a block.
fn with_count(short: u8, long: u8, count: usize, out: &mut Vec<u8>) {
    if count < 16 {
        out.push(short << 4 | count as u8);
    } else {
        out.extend_from_slice(&[long << 4 | (count >> 8) as u8, count as u8]);
    }
}

fn words(list: &[u64], out: &mut Vec<u8>) {
    let Some((first, mut rest)) = list.split_first() else { return };
    let mut base = *first;
    with_operand(0, base, out);
    while let Some(next) = rest.first() {
        let step = next.wrapping_sub(base);
        let is_up = *next > base;
        let mut count = 0;
        while rest.get(count).is_some_and(|word| *word == base.wrapping_add(step)) {
            base = base.wrapping_add(step);
            count += 1;
        }
        rest = &rest[count..];
        if step == 0 {
            with_count(5, 6, count, out);
            continue;
        }
        if count > 1 {
            with_count(7, 8, count, out);
        }
        let (tag, wide_tag, distance) = if is_up { (1, 2, step) } else { (3, 4, step.wrapping_neg()) };
        if distance < 16 {
            out.push(tag << 4 | distance as u8);
        } else {
            with_operand(wide_tag, distance, out);
        }
    }
}

fn shifted(list: &mut [u64], out: &mut Vec<u8>) {
    out.extend_from_slice(&[11 << 4 | (list.len() >> 8) as u8, list.len() as u8]);
    let mut low = [0; BLOCK_SIZE / 8];
    let low = &mut low[..list.len()];
    for (value, low) in list.iter_mut().zip(low.iter_mut()) {
        (*low, *value) = (*value & 0xff_ffff, *value >> 24);
    }
    words(list, out);
    words(low, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(list: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        words(list, &mut out);
        out
    }

    #[test]
    fn words_are_packed_by_the_rules() {
        // The example of docs/format.md 10.3.
        assert_eq!(packed(&[5, 6, 7, 8, 8, 0]), [0x01, 5, 0x73, 0x11, 0x51, 0x38]);
        assert!(packed(&[]).is_empty());
        assert_eq!(packed(&[0x1234]), [0x02, 0x34, 0x12]);
        assert_eq!(packed(&[0x1_0000, 0x1_0000]), [0x04, 0, 0, 1, 0, 0x51]);
        assert_eq!(packed(&[1 << 32, (1 << 32) + 16]), [0x08, 0, 0, 0, 0, 1, 0, 0, 0, 0x21, 16]);
        let same = packed(&[7; 301]);
        assert_eq!(same, [0x01, 7, 0x61, 0x2c]);
        let up: Vec<u64> = (0..21).map(|n| n * 300).collect();
        assert_eq!(packed(&up), [0x01, 0, 0x80, 20, 0x22, 0x2c, 1]);
        // Up or down is said of the first step as plain numbers; a run goes on over the wrap.
        assert_eq!(packed(&[u64::MAX - 31, u64::MAX - 15, 0, 16])[9..], [0x73, 0x21, 16]);
        assert_eq!(packed(&[17, 1, u64::MAX - 14])[2..], [0x72, 0x41, 16]);
    }
}
