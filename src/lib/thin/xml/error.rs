//! What can be wrong with a text, and where.

use std::fmt;
use std::io;

/// Why a text could not be read, with the place.
#[derive(Debug)]
pub struct XmlError<E> {
    /// The line, from 1 on.
    pub line: u64,
    /// The column in bytes, from 1 on: where the element begins that is at fault.
    pub column: u64,
    /// What is wrong.
    pub fault: XmlFault<E>,
}

/// What is wrong with a text.
#[derive(Debug)]
pub enum XmlFault<E> {
    /// The input gave an error.
    Io(io::Error),
    /// The text is not well-formed, or has elements that don't belong there.
    Text(String),
    /// The text is well-formed, but what it says was refused.
    Refused(E),
}

impl<E: fmt::Display> fmt::Display for XmlError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            XmlFault::Io(error) => {
                write!(f, "line {}, column {}: reading the input failed: {error}", self.line, self.column)
            }
            XmlFault::Text(what) => write!(f, "line {}, column {}: {what}", self.line, self.column),
            XmlFault::Refused(error) => write!(f, "line {}, column {}: {error}", self.line, self.column),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for XmlError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            XmlFault::Io(error) => Some(error),
            XmlFault::Text(_) => None,
            XmlFault::Refused(error) => error.source(),
        }
    }
}
