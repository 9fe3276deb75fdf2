//! What is done with any bytes at all, one body for each parser. Each panics where a promise is broken.
//!
//! The fuzz targets run these, and so does `tests/fuzz.rs`, with the stable toolchain and numbers from a seed.

#![allow(dead_code, reason = "every program uses its own part of this")]

#[path = "../../tests/damage/faults.rs"]
mod faults;
#[path = "../../tests/damage/image.rs"]
mod image;
#[path = "../../tests/damage/model.rs"]
mod model;
#[path = "../../tests/damage/model_maps.rs"]
mod model_maps;
#[path = "../../tests/support/pool_text.rs"]
mod pool_text;

mod blocks;
mod overlay;
mod packs;
mod pools;
mod seeds;
mod text;

#[allow(unused_imports, reason = "not for the fuzzer")]
pub use seeds::seeds;

/// The names of all bodies.
pub const TARGETS: [&str; 9] = ["array", "image", "node", "pack", "space_map", "superblock", "trace", "undo", "xml"];

/// Runs a body.
pub fn run(target: &str, data: &[u8]) {
    match target {
        "array" => blocks::array(data),
        "image" => pools::image(data),
        "node" => blocks::node(data),
        "pack" => packs::pack(data),
        "space_map" => blocks::space_map(data),
        "superblock" => blocks::superblock(data),
        "trace" => text::trace(data),
        "undo" => packs::undo(data),
        "xml" => text::xml(data),
        other => panic!("there is no target {other}"),
    }
}

/// Takes numbers off the front of an input; zeros where it has ended.
pub struct Bytes<'d>(&'d [u8]);

impl<'d> Bytes<'d> {
    pub fn new(data: &'d [u8]) -> Bytes<'d> {
        Bytes(data)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, length: usize) -> &'d [u8] {
        let (first, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        first
    }

    pub fn rest(&mut self) -> &'d [u8] {
        self.take(usize::MAX)
    }

    fn number(&mut self, width: usize) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.take(width);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    pub fn u8(&mut self) -> u8 {
        self.number(1) as u8
    }

    pub fn u16(&mut self) -> u16 {
        self.number(2) as u16
    }

    pub fn u64(&mut self) -> u64 {
        self.number(8)
    }
}
