//! The on-disk structures, one file each: layouts as types, verification, no I/O.
//!
//! Knows bytes; knows neither where a block comes from nor what other blocks say.

pub mod array;
pub mod block;
pub mod details;
pub mod foreign;
pub mod mapping;
pub mod node;
pub mod space_map;
pub mod superblock;
pub mod uuid;

pub use block::{BLOCK_SECTORS, BLOCK_SIZE, Block, BlockFault, BlockKind};
