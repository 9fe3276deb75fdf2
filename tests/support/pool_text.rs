//! Reads what thin_dump writes, in each of its forms, back into one model. Strict: what is not known fails the test.

use serde_json::Value;
use std::collections::BTreeMap;

/// A dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolText {
    /// Of the superblock: time, transaction, flags, version, data_block_size, nr_data_blocks.
    pub superblock: [u64; 6],
    /// Shared runs by name, in the order of the document.
    pub defs: Vec<(String, Vec<Item>)>,
    /// The devices, in the order of the document.
    pub devices: Vec<DeviceText>,
}

/// A device of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceText {
    /// dev_id, mapped_blocks, transaction, creation_time, snap_time.
    pub details: [u64; 5],
    /// What it holds.
    pub items: Vec<Item>,
}

/// A line inside a def or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// First virtual block, first data block, length, time.
    Run([u64; 4]),
    /// The name of a def.
    Ref(String),
}

const SUPERBLOCK: [&str; 6] = ["time", "transaction", "flags", "version", "data_block_size", "nr_data_blocks"];
const DEVICE: [&str; 5] = ["dev_id", "mapped_blocks", "transaction", "creation_time", "snap_time"];
const RANGE: [&str; 4] = ["origin_begin", "data_begin", "length", "time"];
const SINGLE: [&str; 3] = ["origin_block", "data_block", "time"];

impl DeviceText {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.details[0]
    }

    /// Mappings that its details promise.
    pub fn mapped_blocks(&self) -> u64 {
        self.details[1]
    }
}

impl PoolText {
    /// Every mapping of a device, shared ones in their place: virtual block, data block, time.
    pub fn mappings(&self, device: &DeviceText) -> Vec<(u64, u64, u64)> {
        let defs: BTreeMap<&str, &Vec<Item>> = self.defs.iter().map(|(name, items)| (name.as_str(), items)).collect();
        let mut all = Vec::new();
        let mut add = |item: &Item| match item {
            Item::Run([thin, data, length, time]) => all.extend((0..*length).map(|at| (thin + at, data + at, *time))),
            Item::Ref(name) => panic!("def within a def: {name}"),
        };
        for item in &device.items {
            match item {
                Item::Ref(name) => defs[name.as_str()].iter().for_each(&mut add),
                run => add(run),
            }
        }
        all
    }

    /// Reads XML.
    pub fn from_xml(text: &str) -> PoolText {
        let mut pool = PoolText::default();
        let mut in_def = false;
        for line in text.lines() {
            let (name, attributes) = tag(line.trim_start());
            match name {
                "superblock" => {
                    assert_eq!(attributes[0].0, "uuid");
                    pool.superblock = numbers(&attributes[1..], SUPERBLOCK);
                }
                "def" => {
                    in_def = true;
                    pool.defs.push((attributes[0].1.to_string(), Vec::new()));
                }
                "device" => {
                    in_def = false;
                    pool.devices.push(DeviceText { details: numbers(&attributes, DEVICE), items: Vec::new() });
                }
                "range_mapping" => pool.push(in_def, Item::Run(numbers(&attributes, RANGE))),
                "single_mapping" => {
                    let [thin, data, time] = numbers(&attributes, SINGLE);
                    pool.push(in_def, Item::Run([thin, data, 1, time]));
                }
                "ref" => pool.push(in_def, Item::Ref(attributes[0].1.to_string())),
                "/def" | "/device" | "/superblock" => {}
                other => panic!("unknown element {other}: {line}"),
            }
        }
        pool
    }

    /// Reads the form for people.
    pub fn from_human_readable(text: &str) -> PoolText {
        let mut pool = PoolText::default();
        let mut in_def = false;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = || words[words.len() - 1].parse::<u64>().unwrap_or_else(|error| panic!("{line}: {error}"));
            let mut detail = |at: usize| pool.devices.last_mut().unwrap().details[at] = number();
            match words.as_slice() {
                ["begin", "superblock:", "\"\",", rest @ ..] => {
                    let parts: Vec<u64> = rest.iter().map(|word| word.trim_end_matches(',').parse().unwrap()).collect();
                    pool.superblock = parts.try_into().unwrap();
                }
                ["device:", _] => {
                    in_def = false;
                    pool.devices.push(DeviceText::default());
                    pool.devices.last_mut().unwrap().details[0] = number();
                }
                ["def:", name] => {
                    in_def = true;
                    pool.defs.push((name.to_string(), Vec::new()));
                }
                ["mapped_blocks:", _] => detail(1),
                ["transaction:", _] => detail(2),
                ["creation", "time:", _] => detail(3),
                ["snap", "time:", _] => detail(4),
                ["ref:", name] => pool.push(in_def, Item::Ref(name.to_string())),
                [thin, "->", data, _] => {
                    let ((thin, end), (data, data_end)) = (inclusive(thin), inclusive(data.trim_end_matches(',')));
                    assert_eq!(end - thin, data_end - data, "{line}");
                    pool.push(in_def, Item::Run([thin, data, end - thin + 1, number()]));
                }
                [] | ["end", "superblock"] => {}
                _ => panic!("unknown line: {line}"),
            }
        }
        pool
    }

    /// Reads JSON.
    pub fn from_json(text: &str) -> PoolText {
        let document: Value = serde_json::from_str(text).unwrap();
        let items = |holder: &Value| holder["mappings"].as_array().unwrap().iter().map(json_item).collect();
        let list = |name: &str| document[name].as_array().unwrap().clone();
        PoolText {
            superblock: SUPERBLOCK.map(|name| document["superblock"][name].as_u64().unwrap()),
            defs: list("defs").iter().map(|def| (def["name"].as_str().unwrap().to_string(), items(def))).collect(),
            devices: list("devices")
                .iter()
                .map(|device| DeviceText {
                    details: DEVICE.map(|name| device[name].as_u64().unwrap()),
                    items: items(device),
                })
                .collect(),
        }
    }

    fn push(&mut self, in_def: bool, item: Item) {
        let items =
            if in_def { &mut self.defs.last_mut().unwrap().1 } else { &mut self.devices.last_mut().unwrap().items };
        items.push(item);
    }
}

fn json_item(item: &Value) -> Item {
    match item.get("ref") {
        Some(name) => Item::Ref(name.as_str().unwrap().to_string()),
        None => Item::Run(RANGE.map(|name| item[name].as_u64().unwrap())),
    }
}

/// `(5..9)` as 5 and 9.
fn inclusive(range: &str) -> (u64, u64) {
    let (begin, end) = range.trim_matches(['(', ')']).split_once("..").unwrap();
    (begin.parse().unwrap(), end.parse().unwrap())
}

/// The name and the attributes of a tag that stands alone on its line.
fn tag(line: &str) -> (&str, Vec<(&str, &str)>) {
    let inside = line.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or_else(|| panic!("{line}"));
    let inside = inside.strip_suffix('/').unwrap_or(inside);
    let (name, mut rest) = inside.split_once(' ').unwrap_or((inside, ""));
    let mut attributes = Vec::new();
    while let Some((attribute, behind)) = rest.trim_start().split_once("=\"") {
        let (value, behind) = behind.split_once('"').unwrap();
        attributes.push((attribute, value));
        rest = behind;
    }
    (name, attributes)
}

/// The values of exactly these attributes, in exactly this order.
fn numbers<const N: usize>(attributes: &[(&str, &str)], names: [&str; N]) -> [u64; N] {
    assert_eq!(attributes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    std::array::from_fn(|at| attributes[at].1.parse().unwrap())
}
