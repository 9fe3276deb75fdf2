//! Where blocks come from and where they go to. The only layer with `unsafe` code.
//!
//! Knows files, devices and memory; knows nothing of what the blocks mean.

pub mod direct;
mod guard;
pub mod mapped;
pub mod memory;
pub mod open;
pub mod output;
mod runs;
pub mod scarce;
pub mod signals;
pub mod source;
pub mod spool;
pub mod testing;

pub use output::{BlockOutput, FileOutput, OpenOutputError, WriteError, is_same_file};
pub use source::{BlockSource, ReadError, Visit};
