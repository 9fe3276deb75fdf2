//! Packed images: decoded into blocks, encoded from blocks; and the one place that opens metadata of any form.
//!
//! Knows the packed format and compressed files; does not know what the blocks mean.

mod bound;
pub mod compressed;
pub mod decode;
mod deflate;
pub mod encode;
mod header;
mod inflate;
mod machine;
pub mod open;
pub mod text;
mod words;

pub use compressed::Compression;
pub use decode::{Contents, PackError, check, decode, decode_into};
pub use encode::{EncodeError, Packed, encode};
pub use header::is_pack;
pub use open::{Access, Form, OpenError, OpenOptions, Opened};
