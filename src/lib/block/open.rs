//! Opens files and devices for reading, and says in plain words why not.
//!
//! Knows kinds of files; the forms of metadata inside are the business of `pack`.

use rustix::fs::{FlockOperation, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How a file or device is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nobody else may change it: devices are opened exclusively, files are locked against our own writers.
    Exclusive,
    /// A live pool writes to it, and its metadata snapshot is read. Never through the page cache.
    Live,
}

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    BlockDevice,
}

/// Why a path could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Nothing is there.
    #[error("cannot find '{path}': there is no such file or device; is the device active?")]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The user may not read it.
    #[error("no permission to open '{path}': devices are opened by root")]
    Permission {
        /// The path.
        path: PathBuf,
    },
    /// It is neither a regular file nor a block device.
    #[error("'{path}' is a {found}: give a block device or a regular file")]
    Kind {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// It has no bytes.
    #[error("'{path}' is empty: what wrote it was stopped, or failed; make it again")]
    Empty {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else has the device.
    #[error(
        "'{path}' is in use: deactivate the pool or whatever holds it, or, to read a live pool, reserve a metadata \
         snapshot (dmsetup message POOL 0 reserve_metadata_snap) and use --metadata-snap"
    )]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// Another process writes to the file.
    #[error("'{path}' is being written by another process: wait until it has finished")]
    Locked {
        /// The path.
        path: PathBuf,
    },
    /// Anything else that the system says.
    #[error("cannot {doing} '{path}': {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl FileError {
    pub(crate) fn io(path: &Path, doing: &'static str, source: impl Into<io::Error>) -> Self {
        let path = path.to_path_buf();
        let source = source.into();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileError::Missing { path },
            io::ErrorKind::PermissionDenied => FileError::Permission { path },
            io::ErrorKind::ResourceBusy => FileError::Busy { path },
            _ => FileError::Io { path, doing, source },
        }
    }
}

/// A file or device, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    /// It. A shared lock on a regular file goes when it is closed.
    pub file: File,
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes, not 0.
    pub len: u64,
}

/// Opens a regular file or block device for reading.
///
/// # Errors
/// Anything that is no such thing, is empty, or is in use where it must not be.
pub fn open(path: &Path, access: Access) -> Result<OpenFile, FileError> {
    // Looked at before it is opened: to open a FIFO would wait, to open a character device may do anything.
    let metadata = std::fs::metadata(path).map_err(|error| FileError::io(path, "look at", error))?;
    let kind = kind_of(&metadata, path)?;
    let file = match kind {
        FileKind::Regular => open_with(path, OFlags::NONBLOCK)?,
        FileKind::BlockDevice if access == Access::Exclusive => open_with(path, OFlags::EXCL)?,
        FileKind::BlockDevice => open_with(path, OFlags::empty())?,
    };
    let opened = file.metadata().map_err(|error| FileError::io(path, "look at", error))?;
    if kind_of(&opened, path)? != kind || (opened.dev(), opened.ino()) != (metadata.dev(), metadata.ino()) {
        let source = io::Error::other("it was replaced by something else while it was opened");
        return Err(FileError::io(path, "open", source));
    }
    if kind == FileKind::Regular && access == Access::Exclusive {
        lock_shared(&file, path)?;
    }
    if kind == FileKind::BlockDevice && access == Access::Exclusive {
        // Until a moment ago the kernel may have written underneath the page cache, which somebody who still has the
        // device open may have kept alive. Without the right to drop it there is nothing that could be done.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
    let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
        .and_then(|len| rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map(|_| len))
        .map_err(|error| FileError::io(path, "find the size of", error))?;
    if len == 0 {
        return Err(FileError::Empty { path: path.into() });
    }
    Ok(OpenFile { file, kind, len })
}

fn open_with(path: &Path, flags: OFlags) -> Result<File, FileError> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .map(File::from)
        .map_err(|error| FileError::io(path, "open", error))
}

fn kind_of(metadata: &std::fs::Metadata, path: &Path) -> Result<FileKind, FileError> {
    let kind = metadata.file_type();
    let found = if kind.is_file() {
        return Ok(FileKind::Regular);
    } else if kind.is_block_device() {
        return Ok(FileKind::BlockDevice);
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_char_device() {
        "character device"
    } else if kind.is_fifo() {
        "pipe"
    } else {
        "socket"
    };
    Err(FileError::Kind { path: path.into(), found })
}

/// Writers of this package hold an exclusive lock. File systems without locks are no obstacle.
fn lock_shared(file: &File, path: &Path) -> Result<(), FileError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Err(FileError::Locked { path: path.into() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn refusal(path: impl AsRef<Path>) -> String {
        open(path.as_ref(), Access::Exclusive).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_file_or_device_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert!(refusal(at("none")).contains("no such file"));
        assert!(refusal(dir.path()).contains("is a directory"));
        assert!(refusal("/dev/null").contains("is a character device"));
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
        assert!(refusal(at("fifo")).contains("is a pipe"));
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(refusal(at("socket")).contains("is a socket"));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(refusal(format!("/proc/self/fd/{}", reader.as_raw_fd())).contains("is a pipe"));
        std::fs::write(at("empty"), []).unwrap();
        assert!(refusal(at("empty")).contains("is empty"));
        assert!(refusal(at("empty").join("below")).contains("no such file"));
    }
}
