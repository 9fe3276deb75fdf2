//! The account of a deletion as a table and as JSON.

use super::Figures;
use super::account::{Account, DeviceAccount, Leaked};
use serde_json::{Value, json};
use std::fmt::Write;

/// What to do where there are too few free metadata blocks.
pub fn no_room_text(needed: u64, free: u64) -> String {
    format!(
        "to delete them in place needs {needed} free metadata blocks, of which there are {free}: \
         -o writes the pool without them to another device"
    )
}

impl Account {
    /// Mapped blocks of all devices.
    pub fn mapped(&self) -> u64 {
        self.devices.iter().map(|device| device.mapped).fold(0, u64::saturating_add)
    }

    /// Mapped blocks of all devices that survivors use as well; `None` where mappings were not looked at.
    pub fn shared(&self) -> Option<u64> {
        self.devices.iter().map(DeviceAccount::shared).try_fold(0u64, |sum, shared| Some(sum.saturating_add(shared?)))
    }

    /// Data blocks that become free because the devices go; each once, and without what had leaked.
    pub fn data_freed(&self) -> u64 {
        self.figures.data_freed().saturating_sub(self.leaked.data)
    }

    /// The same for metadata blocks, less those that the change takes.
    pub fn metadata_freed(&self) -> u64 {
        self.figures.metadata_freed().saturating_sub(self.leaked.metadata)
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.data_block_size.bytes())
    }

    /// A table for people.
    pub fn text(&self) -> String {
        let mut text = row(["DEVICE", "MAPPED", "SHARED", "FREED", "METADATA", "BYTES"].map(String::from));
        let known = |number: Option<u64>| number.map_or_else(|| "-".to_string(), |number| number.to_string());
        for device in &self.devices {
            let bytes = device.freed.map(|freed| self.bytes(freed));
            let numbers = [device.shared(), device.freed, device.metadata_freed, bytes].map(known);
            let [shared, freed, metadata, bytes] = numbers;
            text += &row([device.id.to_string(), device.mapped.to_string(), shared, freed, metadata, bytes]);
        }
        let (data, metadata) = (self.data_freed(), self.metadata_freed());
        let bytes = self.bytes(data);
        let numbers = [Some(self.mapped()), self.shared(), Some(data), Some(metadata), Some(bytes)].map(known);
        let [mapped, shared, freed, metadata, bytes] = numbers;
        text += &row(["all".into(), mapped, shared, freed, metadata, bytes]);
        let Leaked { data: leaked, metadata: leaked_metadata } = self.leaked;
        if self.leaked != Leaked::default() {
            let numbers = [None, None, Some(leaked), Some(leaked_metadata), Some(self.bytes(leaked))].map(known);
            let [mapped, shared, freed, metadata, bytes] = numbers;
            text += &row(["leaked".into(), mapped, shared, freed, metadata, bytes]);
            text += "leaked: nothing used these blocks before; they become free as well\n";
        }
        let each = self.devices.iter().filter_map(|device| device.freed).fold(0, u64::saturating_add);
        if each > data {
            text +=
                "a block that several of these devices share is in FREED of each of them, and once in that of all\n";
        }
        let Figures { data_after, metadata_after, .. } = self.figures;
        let _ = writeln!(text, "in use afterwards: {data_after} data blocks, {metadata_after} metadata blocks");
        if let Some((needed, free)) = self.no_room {
            let _ = writeln!(text, "{}", no_room_text(needed, free));
        }
        text
    }

    /// The same as one JSON object.
    pub fn json(&self) -> Value {
        let device = |device: &DeviceAccount| {
            json!({
                "id": device.id.0,
                "mapped_blocks": device.mapped,
                "shared_with_survivors": device.shared(),
                "freed_data_blocks": device.freed,
                "freed_metadata_blocks": device.metadata_freed,
                "freed_bytes": device.freed.map(|freed| self.bytes(freed)),
            })
        };
        let figures = &self.figures;
        json!({
            "schema": 1,
            "data_block_size_sectors": self.data_block_size.0,
            "devices": self.devices.iter().map(device).collect::<Vec<_>>(),
            "all": {
                "devices": figures.devices,
                "mapped_blocks": self.mapped(),
                "shared_with_survivors": self.shared(),
                "freed_data_blocks": self.data_freed(),
                "freed_metadata_blocks": self.metadata_freed(),
                "freed_bytes": self.bytes(self.data_freed()),
            },
            "leaked": {
                "data_blocks": self.leaked.data,
                "metadata_blocks": self.leaked.metadata,
                "bytes": self.bytes(self.leaked.data),
            },
            "no_room": self.no_room.map(|(needed, free)| json!({ "needed": needed, "free": free })),
            "data_blocks_in_use": { "before": figures.data_before, "after": figures.data_after },
            "metadata_blocks_in_use": { "before": figures.metadata_before, "after": figures.metadata_after },
        })
    }
}

fn row([device, mapped, shared, freed, metadata, bytes]: [String; 6]) -> String {
    format!("{device:>8} {mapped:>12} {shared:>12} {freed:>12} {metadata:>9} {bytes:>18}\n")
}
