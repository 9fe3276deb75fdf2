//! Packed images: decoded into blocks, encoded from blocks; and the one place that opens metadata of any form.
//!
//! Knows the packed format and compressed files; does not know what the blocks mean.

pub mod open;
pub mod text;

pub use open::{Access, Form, OpenError, OpenOptions, Opened};
