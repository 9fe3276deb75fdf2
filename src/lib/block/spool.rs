//! A stream kept in memory as a file, for what has to be read more than once or out of order.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read};

/// Reads `stream` to its end into a file that lies in memory and has no name.
///
/// # Errors
/// Where the stream fails, memory runs out, or there are more than `most` bytes.
pub fn to_memory(stream: &mut dyn Read, most: u64) -> io::Result<File> {
    let mut file = File::from(memfd_create("spool", MemfdFlags::CLOEXEC)?);
    let copied = io::copy(&mut stream.take(most.saturating_add(1)), &mut file)?;
    if copied > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {most} bytes")));
    }
    Ok(file)
}
