//! The one place that opens metadata, whatever its form.

use super::bound;
use super::compressed::{Compression, StreamError, read_image};
use super::decode::{PackError, decode_stream};
use super::header::is_pack;
use crate::block::direct::DirectSource;
use crate::block::mapped::MappedSource;
use crate::block::memory::MemorySource;
use crate::block::open::{FileError, FileKind, OpenFile};
use crate::block::scarce::default_threads;
use crate::block::{self, BlockSource};
use crate::format::BLOCK_SIZE;
use crate::format::foreign::{self, Foreign};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
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
    /// XML, plain or compressed, from which metadata was built in memory. It is not opened here.
    Xml,
    /// A compressed file.
    Compressed {
        /// How it is compressed.
        compression: Compression,
        /// Whether a packed image is inside, not a raw one.
        pack: bool,
    },
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
        /// Bytes that it has, decompressed.
        len: u64,
    },
    /// A dump, plain or compressed.
    #[error("'{path}' is XML, not binary metadata: write it to a device or file with thin_restore, and give that")]
    Xml {
        /// The path.
        path: PathBuf,
    },
    /// A compression that is not seen through.
    #[error("'{path}' is compressed with bzip2: decompress it first")]
    Bzip2 {
        /// The path.
        path: PathBuf,
    },
    /// A packed image that is damaged.
    #[error("'{path}' is a packed image that cannot be used: {source}")]
    Pack {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        source: PackError,
    },
    /// Compressed data that are damaged, or more than metadata can be.
    #[error("'{path}' is compressed with {compression}: {source}")]
    Compressed {
        /// The path.
        path: PathBuf,
        /// How it is compressed.
        compression: Compression,
        /// What is wrong with it.
        source: StreamError,
    },
}

/// Opens metadata of any form for reading. `path` is always a path: `-` has no meaning here.
///
/// A packed or compressed image is unfolded into memory: at most 64 MiB and 1024 bytes for each byte of the file, and while
/// it is decompressed, up to 136 MiB more. A device always holds the blocks as they are.
///
/// # Errors
/// Where it cannot be read, or cannot be metadata. Damage inside is not looked for.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, OpenError> {
    let opened = block::open::open(path, options.access)?;
    let path = path.to_path_buf();
    let direct = options.direct || options.access == Access::Live;
    if direct && opened.kind == FileKind::BlockDevice {
        return open_raw(path, opened, direct);
    }
    let head = read_head(&opened, &path)?;
    if foreign::recognise(&head) == Some(Foreign::Xml) {
        return Err(OpenError::Xml { path });
    }
    if opened.kind == FileKind::Regular {
        let threads = default_threads();
        if is_pack(&head) {
            let source = super::decode(&opened.file, opened.len, threads);
            return in_memory(source.map_err(|source| OpenError::Pack { path, source })?, Form::Pack, 0);
        }
        if let Some(compression) = Compression::recognise(&head) {
            return open_compressed(path, &opened, compression);
        }
        if foreign::recognise(&head) == Some(Foreign::Bzip2) {
            return Err(OpenError::Bzip2 { path });
        }
    }
    open_raw(path, opened, direct)
}

fn open_raw(path: PathBuf, opened: OpenFile, direct: bool) -> Result<Opened, OpenError> {
    let OpenFile { file, kind, len } = opened;
    let nr_blocks = len / BLOCK_SIZE as u64;
    if nr_blocks == 0 {
        return Err(OpenError::TooSmall { path, len });
    }
    let (source, cached): (Box<dyn BlockSource>, bool) = if direct {
        let source = DirectSource::new(file, kind, nr_blocks).map_err(|error| FileError::io(&path, "read", error))?;
        let cached = source.is_cached();
        (Box::new(source), cached)
    } else {
        (map(file, nr_blocks).map_err(|error| FileError::io(&path, "map", error))?, false)
    };
    let form = match kind {
        FileKind::Regular => Form::RawFile,
        FileKind::BlockDevice => Form::BlockDevice,
    };
    Ok(Opened { source, form, trailing_bytes: len % BLOCK_SIZE as u64, cached })
}

/// Maps a file, or reads it where its file system has no mappings or the address space is too small.
fn map(file: File, nr_blocks: u64) -> io::Result<Box<dyn BlockSource>> {
    let reserve = file.try_clone()?;
    match MappedSource::new(file, nr_blocks) {
        Ok(source) => Ok(Box::new(source)),
        Err(_) => Ok(Box::new(DirectSource::cached(reserve, nr_blocks))),
    }
}

fn read_head(opened: &OpenFile, path: &Path) -> Result<Vec<u8>, FileError> {
    let mut head = vec![0; opened.len.min(BLOCK_SIZE as u64) as usize];
    // A sector that cannot be read is damage, and not for us to judge.
    match opened.file.read_exact_at(&mut head, 0) {
        Err(error) if opened.kind == FileKind::Regular => Err(FileError::io(path, "read", error)),
        _ => Ok(head),
    }
}

fn in_memory(source: MemorySource, form: Form, trailing_bytes: u64) -> Result<Opened, OpenError> {
    Ok(Opened { source: Box::new(source), form, trailing_bytes, cached: false })
}

fn open_compressed(path: PathBuf, opened: &OpenFile, compression: Compression) -> Result<Opened, OpenError> {
    let failed = |source| OpenError::Compressed { path: path.clone(), compression, source };
    let mut stream = compression.reader(BufReader::with_capacity(64 << 10, &opened.file));
    let mut head = [0; BLOCK_SIZE];
    let len = bound::read_full(&mut stream, &mut head).map_err(|error| failed(error.into()))?;
    let head = &head[..len];
    if foreign::recognise(head) == Some(Foreign::Xml) {
        return Err(OpenError::Xml { path });
    }
    let mut whole = head.chain(stream);
    if is_pack(head) {
        let source = decode_stream(&mut whole, opened.len).map_err(|source| OpenError::Pack { path, source })?;
        return in_memory(source, Form::Compressed { compression, pack: true }, 0);
    }
    let (source, trailing_bytes) = read_image(&mut whole, opened.len).map_err(failed)?;
    if source.nr_blocks() == 0 {
        return Err(OpenError::TooSmall { path, len: trailing_bytes });
    }
    in_memory(source, Form::Compressed { compression, pack: false }, trailing_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BlockNr;
    use crate::block::ReadError;
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
