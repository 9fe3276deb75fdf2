//! The one place that opens metadata, whatever its form.

use crate::block::BlockSource;
use crate::block::mapped::MappedSource;
use crate::block::open::{FileError, FileKind, OpenFile};
use crate::format::BLOCK_SIZE;
use std::path::{Path, PathBuf};

pub use crate::block::open::Access;

/// How metadata is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether others may be using it.
    pub access: Access,
    /// Read past the page cache even where nobody else is using it.
    pub direct: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { access: Access::Exclusive, direct: false }
    }
}

/// The form in which metadata was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A regular file that holds the blocks as they are.
    RawFile,
    /// A block device.
    BlockDevice,
    /// A packed image.
    Pack,
    /// A compressed file.
    Compressed {
        /// How it is compressed.
        compression: Compression,
        /// Whether a packed image is inside, not a raw one.
        pack: bool,
    },
}

/// Ways of compression that are seen through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// zstd.
    Zstd,
}

/// Metadata that is open for reading.
pub struct Opened {
    /// Its blocks.
    pub source: Box<dyn BlockSource>,
    /// The form it had.
    pub form: Form,
    /// Bytes after the last whole block. They are not used.
    pub trailing_bytes: u64,
    /// Whether blocks are read through the page cache although direct reads were wanted, because the file system
    /// has none.
    pub cached: bool,
}

/// Why metadata could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or device itself.
    #[error(transparent)]
    File(#[from] FileError),
    /// Less than a superblock.
    #[error("'{path}' is too small to hold metadata: it has {len} bytes, a superblock alone has 4096")]
    TooSmall {
        /// The path.
        path: PathBuf,
        /// Bytes that it has.
        len: u64,
    },
}

/// Opens metadata of any form for reading. `path` is always a path: `-` has no meaning here.
///
/// # Errors
/// Where it cannot be read, or cannot be metadata. Damage inside is not looked for.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, OpenError> {
    let OpenFile { file, kind, len } = crate::block::open::open(path, options.access)?;
    let nr_blocks = len / BLOCK_SIZE as u64;
    if nr_blocks == 0 {
        return Err(OpenError::TooSmall { path: path.into(), len });
    }
    let source = MappedSource::new(file, nr_blocks).map_err(|source| FileError::Io {
        path: path.into(),
        doing: "map",
        source,
    })?;
    let form = match kind {
        FileKind::Regular => Form::RawFile,
        FileKind::BlockDevice => Form::BlockDevice,
    };
    Ok(Opened { source: Box::new(source), form, trailing_bytes: len % BLOCK_SIZE as u64, cached: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BlockNr;
    use crate::block::ReadError;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn refusal(path: impl AsRef<Path>) -> String {
        match open(path.as_ref(), &OpenOptions::default()) {
            Ok(_) => panic!("{} was opened", path.as_ref().display()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_cannot_be_metadata_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(refusal(dir.path()).contains("is a directory"));
        let small = dir.path().join("small");
        std::fs::write(&small, [1; 4095]).unwrap();
        assert!(refusal(&small).contains("too small to hold metadata: it has 4095 bytes"));
    }

    #[test]
    fn a_file_being_written_is_refused_and_one_being_read_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let first = open(file.path(), &OpenOptions::default()).unwrap();
        let second = open(file.path(), &OpenOptions::default()).unwrap();
        drop((first, second));
        let writer = File::open(file.path()).unwrap();
        writer.lock().unwrap();
        assert!(refusal(file.path()).contains("being written by another process"));
    }

    #[test]
    fn an_unlinked_file_is_read_through_its_descriptor() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * 4096 + 5).unwrap();
        for process in ["self".to_string(), std::process::id().to_string()] {
            let path = format!("/proc/{process}/fd/{}", file.as_raw_fd());
            let opened = open(Path::new(&path), &OpenOptions::default()).unwrap();
            assert_eq!((opened.form, opened.trailing_bytes), (Form::RawFile, 5));
            assert_eq!(opened.source.read(BlockNr(2)).unwrap()[..], [0; 4096]);
            assert_eq!(opened.source.read(BlockNr(3)).err(), Some(ReadError::OutOfRange { nr_blocks: 3 }));
        }
    }
}
