//! A fixture, what it holds, and files of it.

use super::image::Image;
use super::model::{Model, ModelDevice};
use super::random::Target;
use super::support::memory_image;
use dmeta::block::BlockSource;
use dmeta::format::BLOCK_SIZE;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Virtual block and data block of every mapping, by device.
pub type Mappings = BTreeMap<u64, BTreeSet<(u64, u64)>>;

/// A sound pool.
pub struct Pool {
    pub name: String,
    pub target: Target,
    pub mappings: Mappings,
    pub data_block_size: u32,
    pub nr_blocks: u64,
}

/// What the plain reader finds in an image.
pub fn mappings(devices: &[ModelDevice]) -> Mappings {
    let of = |device: &ModelDevice| device.mappings.iter().map(|(thin, data, _)| (*thin, *data)).collect();
    devices.iter().map(|device| (device.id, of(device))).collect()
}

impl Pool {
    pub fn new(name: String, image: Image) -> Pool {
        let model = Model::read(&image);
        let data_block_size = model.superblock.as_ref().unwrap().data_block_size.get();
        let mappings = mappings(&model.devices);
        let nr_blocks = image.nr_blocks();
        Pool { name, target: Target::new(image), mappings, data_block_size, nr_blocks }
    }
}

/// Writes the bytes of an image to a new file; zeros become holes.
pub fn write(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    let file = File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (at, block) in (0..).zip(bytes.chunks(BLOCK_SIZE)) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, at * BLOCK_SIZE as u64).unwrap();
        }
    }
}

/// A new file of zeros.
pub fn blank(path: &Path, nr_blocks: u64) {
    let _ = fs::remove_file(path);
    File::create(path).unwrap().set_len(nr_blocks * BLOCK_SIZE as u64).unwrap();
}

/// The image in a file.
pub fn read(path: &Path) -> Image {
    Image::new(memory_image(path))
}

/// Whether a file still holds these bytes.
pub fn is(path: &Path, bytes: &[u8]) -> bool {
    fs::read(path).unwrap() == bytes
}
