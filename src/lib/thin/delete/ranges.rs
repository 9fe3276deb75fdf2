//! The data blocks that became free, for a later discard.

use crate::base::Sectors;
use serde_json::{Value, json};
use std::fmt::Write;
use std::ops::Range;

/// A line for each range: where it begins on the data device, and how long it is, both in bytes.
pub fn ranges_text(freed: &[Range<u64>], data_block_size: Sectors) -> String {
    let mut text = String::with_capacity(freed.len() * 24);
    let bytes = |blocks: u64| blocks.saturating_mul(data_block_size.bytes());
    for range in freed {
        let _ = writeln!(text, "{} {}", bytes(range.start), bytes(range.end - range.start));
    }
    text
}

/// The same as a JSON object, in blocks: `end` does not belong to a range.
pub fn ranges_json(freed: &[Range<u64>], data_block_size: Sectors) -> Value {
    let ranges: Vec<Value> = freed.iter().map(|range| json!({ "begin": range.start, "end": range.end })).collect();
    json!({ "schema": 1, "data_block_size_sectors": data_block_size.0, "freed": ranges })
}

#[cfg(test)]
mod tests {
    use super::{ranges_json, ranges_text};
    use crate::base::Sectors;

    #[test]
    fn text_is_in_bytes_and_json_in_blocks() {
        let freed = [3..4, 10..20];
        assert_eq!(ranges_text(&freed, Sectors(128)), "196608 65536\n655360 655360\n");
        assert_eq!(ranges_json(&freed, Sectors(128))["freed"][1]["end"], 20);
    }
}
