//! Reading a pool from XML (docs/format.md 9.2), element by element, in bounded memory.
//!
//! Takes more than a dump writes: a prolog, comments, any indentation, any order of attributes, either quote,
//! entities, empty containers, mappings as open and close tags. Everything else is an error with line and column.
//!
//! Knows the text's form; what the numbers mean for a pool is the sink's business.

mod attributes;
mod error;
mod fast;
mod names;
mod reader;
mod reread;
mod window;

pub use error::{XmlError, XmlFault};
pub use reread::{FileRuns, ReadAt};

use super::items::PoolSink;
use std::borrow::Cow;
use std::io::Read;

/// How strict to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XmlOptions {
    /// Ignore unknown attributes, and text between elements.
    pub lenient: bool,
}

/// Reads a whole document and gives its items to `sink`. A run's position is its element's offset in the text.
///
/// # Errors
/// The first thing that is wrong, or that the sink refuses.
pub fn read<S: PoolSink>(input: impl Read, options: XmlOptions, sink: &mut S) -> Result<(), XmlError<S::Error>> {
    reader::Reader::new(window::Window::new(input, 0), options, sink).document()
}

/// A text as the value of an attribute.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    quick_xml::escape::escape(text)
}

#[cfg(test)]
mod tests;
