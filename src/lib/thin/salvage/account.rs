//! What a salvage found and what it did not: told for every device.

use crate::base::{BlockNr, KeyRange, ThinId};
use crate::thin::model::Lowered;
use serde_json::{Value, json};
use std::fmt::Write;

/// Where a part of the result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From where it should be.
    Live,
    /// From a block that nothing leads to any more, which can only be this one.
    Recovered,
    /// Made up, as careful as possible.
    Made,
    /// Not at all.
    Lost,
    /// As it was asked for.
    Given,
}

impl Origin {
    fn word(self) -> &'static str {
        match self {
            Origin::Live => "live",
            Origin::Recovered => "recovered",
            Origin::Made => "made",
            Origin::Lost => "lost",
            Origin::Given => "given",
        }
    }
}

/// What became of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAccount {
    /// The device.
    pub id: ThinId,
    /// Mappings in the result.
    pub found: u64,
    /// Mappings that its details promise, where they are known.
    pub expected: Option<u64>,
    /// Of those found: mappings from leaves that nothing led to.
    pub recovered: u64,
    /// Mappings that were left out because they lead past the data device.
    pub beyond_data: u64,
    /// Virtual blocks whose mappings are lost; whole ranges of which some may never have been mapped.
    pub lost_ranges: Vec<KeyRange>,
    /// Where its details come from.
    pub details: Origin,
    /// Where the root of its tree comes from.
    pub root: Origin,
}

impl DeviceAccount {
    /// Mappings that are missing; `None` where the details are lost and ranges too.
    pub fn lost(&self) -> Option<u64> {
        match self.expected {
            Some(expected) => Some(expected.saturating_sub(self.found)),
            None if self.lost_ranges.is_empty() && self.root != Origin::Lost => Some(self.beyond_data),
            None => None,
        }
    }

    /// Whether the device is as it was.
    pub fn is_whole(&self) -> bool {
        self.lost() == Some(0) && self.details == Origin::Live
    }
}

/// A field of the pool, and where it comes from: [`Origin::Live`], [`Origin::Given`] or [`Origin::Made`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// What was written.
    pub value: u64,
    /// Where it comes from.
    pub origin: Origin,
}

/// The pool's own fields that callers can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFields {
    /// The pool's transaction id.
    pub transaction_id: Field,
    /// Sectors of a data block.
    pub data_block_size: Field,
    /// Blocks of the data device.
    pub nr_data_blocks: Field,
}

/// What became of the pool.
#[derive(Clone, Debug)]
pub struct Account {
    /// Whether the superblock was good; otherwise its fields were put together from what was found.
    pub superblock: Origin,
    /// Root of the upper mapping tree that was used.
    pub mapping_root: BlockNr,
    /// Root of the details tree that was used.
    pub details_root: BlockNr,
    /// The pool's own fields.
    pub pool: PoolFields,
    /// Fields that were given, and are lower than the superblock has them.
    pub lowered: Vec<Lowered>,
    /// Blocks that had changed places: where each belongs, and where it was.
    pub misplaced: Vec<(BlockNr, BlockNr)>,
    /// Every device.
    pub devices: Vec<DeviceAccount>,
}

impl Account {
    /// Whether anything is missing that was once there: of a device, or what only a superblock that is lost held.
    pub fn anything_lost(&self) -> bool {
        self.superblock != Origin::Live || self.devices.iter().any(|device| !device.is_whole())
    }

    /// The account as lines for a person. Devices that are whole are only counted.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.superblock != Origin::Live {
            let _ = writeln!(
                text,
                "the superblock is lost: using the mapping tree at block {} and the details at block {}",
                self.mapping_root, self.details_root
            );
            text.push_str(&self.guesses());
        }
        for (home, place) in &self.misplaced {
            let _ = writeln!(text, "block {home} was in the place of block {place}, and was taken from there");
        }
        let whole = self.devices.iter().filter(|device| device.is_whole() && device.recovered == 0).count();
        for device in self.devices.iter().filter(|device| !device.is_whole() || device.recovered > 0) {
            let _ = writeln!(text, "{}", line(device));
        }
        if self.devices.iter().any(|device| device.beyond_data > 0) {
            let Field { value, .. } = self.pool.nr_data_blocks;
            let _ = writeln!(
                text,
                "if the data device has more than {value} blocks, give the number with --nr-data-blocks"
            );
        }
        let _ = writeln!(text, "{whole} of {} devices are as they were", self.devices.len());
        text
    }

    /// What had to be guessed because only the superblock held it.
    fn guesses(&self) -> String {
        let PoolFields { transaction_id, nr_data_blocks, .. } = self.pool;
        let mut text = String::new();
        if transaction_id.origin == Origin::Made {
            let _ = writeln!(
                text,
                "guessed: transaction id {}, the highest that a device has; --transaction-id gives the true one",
                transaction_id.value
            );
        }
        if nr_data_blocks.origin == Origin::Made {
            let _ = writeln!(
                text,
                "guessed: {} data blocks, up to the last that is mapped; --nr-data-blocks gives the true number",
                nr_data_blocks.value
            );
        }
        text
    }

    /// The account as one JSON object.
    pub fn json(&self) -> Value {
        json!({
            "schema": 1,
            "superblock": self.superblock.word(),
            "mapping_root": self.mapping_root.0,
            "details_root": self.details_root.0,
            "transaction_id": field_json(self.pool.transaction_id),
            "data_block_size": field_json(self.pool.data_block_size),
            "nr_data_blocks": field_json(self.pool.nr_data_blocks),
            "misplaced_blocks": self.misplaced.iter().map(|(home, place)| json!([home.0, place.0])).collect::<Vec<_>>(),
            "anything_lost": self.anything_lost(),
            "devices": self.devices.iter().map(device_json).collect::<Vec<_>>(),
        })
    }
}

fn line(device: &DeviceAccount) -> String {
    let mut line = format!("device {}: {} mappings", device.id, device.found);
    if let Some(expected) = device.expected {
        let _ = write!(line, " of {expected}");
    }
    if device.recovered > 0 {
        let _ = write!(line, ", {} of them from leaves that nothing led to", device.recovered);
    }
    match device.lost() {
        Some(0) => {}
        Some(lost) => {
            let _ = write!(line, ", {lost} lost");
        }
        None => line.push_str(", an unknown number lost"),
    }
    if !device.lost_ranges.is_empty() {
        let ranges: Vec<String> = device.lost_ranges.iter().map(KeyRange::to_string).collect();
        let _ = write!(line, " in virtual blocks {}", ranges.join(", "));
    }
    if device.beyond_data > 0 {
        let _ = write!(line, ", {} led past the data device", device.beyond_data);
    }
    for (what, origin) in [("details", device.details), ("root", device.root)] {
        if origin != Origin::Live {
            let _ = write!(line, ", {what} {}", origin.word());
        }
    }
    line
}

fn field_json(field: Field) -> Value {
    json!({ "value": field.value, "origin": field.origin.word() })
}

fn device_json(device: &DeviceAccount) -> Value {
    let ranges: Vec<Value> =
        device.lost_ranges.iter().map(|range| json!({ "begin": range.begin, "end": range.end })).collect();
    json!({
        "id": device.id.0,
        "mappings_found": device.found,
        "mappings_expected": device.expected,
        "mappings_recovered": device.recovered,
        "mappings_beyond_data": device.beyond_data,
        "mappings_lost": device.lost(),
        "lost_ranges": ranges,
        "details": device.details.word(),
        "root": device.root.word(),
    })
}
