//! The one way to write blocks, and its form for files and devices.
//!
//! An output is opened, never created: a mistyped path must fail, not make a file. Devices are opened
//! exclusively, files are locked, so that two writers can't meet.

use super::mapped::MappedSource;
use super::source::BlockSource;
use crate::base::BlockNr;
use crate::format::{BLOCK_SIZE, Block};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The smallest output that is taken, in blocks.
pub const OUTPUT_BLOCKS_MIN: u64 = 10;
/// Contiguous blocks are gathered up to this many bytes before they are written.
const BATCH_BYTES: usize = 1 << 20;

/// Why blocks could not be written or made durable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The block is past the end.
    #[error("block {block} is past the end of the output, which has {nr_blocks} blocks")]
    OutOfRange {
        /// The block that was to be written.
        block: BlockNr,
        /// Blocks that there are.
        nr_blocks: u64,
    },
    /// The device or file gave an error.
    #[error("writing failed: {0}")]
    Io(#[from] io::Error),
}

/// Blocks that can be written.
pub trait BlockOutput: Send {
    /// Whole blocks that there are.
    fn nr_blocks(&self) -> u64;

    /// Writes one block. It may be kept back until the next [`BlockOutput::flush`].
    ///
    /// # Errors
    /// Where the block is past the end, or writing this or an earlier block failed.
    fn write(&mut self, location: BlockNr, block: &Block) -> Result<(), WriteError>;

    /// A block as it is now: what was written is read back.
    ///
    /// # Errors
    /// Where the block is past the end, or writing what was kept back or reading it failed.
    fn read_back(&mut self, location: BlockNr) -> Result<Box<Block>, WriteError>;

    /// All blocks as they were at the last flush, to be read by several threads.
    ///
    /// # Errors
    /// Where they can't be made readable.
    fn written(&mut self) -> Result<Box<dyn BlockSource + '_>, WriteError>;

    /// Makes everything written so far durable. What is written later reaches the medium after it.
    ///
    /// # Errors
    /// Where writing or syncing failed; then nothing is known about the blocks since the last flush.
    fn flush(&mut self) -> Result<(), WriteError>;
}

/// Why an output could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenOutputError {
    /// There is no such file.
    #[error(
        "couldn't find output file '{}': the output must be an existing device, or a file of sufficient size", .0.display()
    )]
    Missing(PathBuf),
    /// It is a directory, a pipe or a character device.
    #[error("invalid output file '{}': not a block device or regular file", .0.display())]
    WrongType(PathBuf),
    /// It has less than [`OUTPUT_BLOCKS_MIN`] blocks.
    #[error("output file too small: '{}' has {bytes} bytes, at least {} are needed", .path.display(), OUTPUT_BLOCKS_MIN * BLOCK_SIZE as u64)]
    TooSmall {
        /// The output.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// It is the input as well.
    #[error("input and output are the same: '{}'", .0.display())]
    SameAsInput(PathBuf),
    /// Somebody else holds the device or has locked the file.
    #[error("'{}' is in use: a mounted file system, an active device-mapper table or another tool holds it", .0.display())]
    Busy(PathBuf),
    /// The device can only be read. Some kernels let it be opened all the same, and refuse every write.
    #[error("'{}' is read-only: make it writable first (blockdev --setrw, or the table of its device-mapper device)", .0.display())]
    ReadOnly(PathBuf),
    /// Anything else that the system says.
    #[error("can't open output '{}': {error}", .path.display())]
    Io {
        /// The output.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// Whether two files are the same: one file under two names, or two nodes of one device.
pub fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    let same_device = a.file_type().is_block_device() && b.file_type().is_block_device() && a.rdev() == b.rdev();
    same_device || (a.dev() == b.dev() && a.ino() == b.ino())
}

/// Whether the kernel refuses to write to a block device.
fn is_read_only(device: &File) -> bool {
    /// `BLKROGET` of linux/fs.h: `_IO(0x12, 94)`.
    const BLKROGET: u16 = 0x125e;
    let mut read_only: libc::c_int = 0;
    // SAFETY: the request stores one int at the pointer, which is one of ours.
    let told = unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET.into(), &raw mut read_only) };
    told == 0 && read_only != 0
}

/// A regular file or a block device that is written to.
#[derive(Debug)]
pub struct FileOutput {
    file: File,
    nr_blocks: u64,
    batch: Vec<u8>,
    batch_begin: u64,
}

impl FileOutput {
    /// Opens an existing file or device for writing, for nobody else to open or lock.
    ///
    /// `input` is what is read meanwhile, which must be another file.
    ///
    /// # Errors
    /// As [`OpenOutputError`] says. Nothing is changed.
    pub fn open(path: &Path, input: Option<&Metadata>) -> Result<FileOutput, OpenOutputError> {
        let io_error = |error: io::Error| match error.raw_os_error() {
            Some(libc::ENOENT) => OpenOutputError::Missing(path.into()),
            Some(libc::EBUSY | libc::EAGAIN) => OpenOutputError::Busy(path.into()),
            _ => OpenOutputError::Io { path: path.into(), error },
        };
        let found = std::fs::metadata(path).map_err(io_error)?;
        let is_device = found.file_type().is_block_device();
        if !is_device && !found.is_file() {
            return Err(OpenOutputError::WrongType(path.into()));
        }
        if input.is_some_and(|input| is_same_file(input, &found)) {
            return Err(OpenOutputError::SameAsInput(path.into()));
        }
        let flags = if is_device { libc::O_EXCL } else { 0 };
        let mut file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map_err(io_error)?;
        let opened = file.metadata().map_err(io_error)?;
        if !is_same_file(&opened, &found) {
            return Err(OpenOutputError::Busy(path.into()));
        }
        if is_device && is_read_only(&file) {
            return Err(OpenOutputError::ReadOnly(path.into()));
        }
        if !is_device {
            flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| io_error(error.into()))?;
        }
        // For a block device, too, the end is where the device ends.
        let bytes = file.seek(SeekFrom::End(0)).map_err(io_error)?;
        let nr_blocks = bytes / BLOCK_SIZE as u64;
        if nr_blocks < OUTPUT_BLOCKS_MIN {
            return Err(OpenOutputError::TooSmall { path: path.into(), bytes });
        }
        Ok(FileOutput { file, nr_blocks, batch: Vec::new(), batch_begin: 0 })
    }

    /// The same blocks to read, for looking at what is there before it is changed.
    ///
    /// What was written shows only after a flush.
    ///
    /// # Errors
    /// Where it cannot be mapped.
    pub fn source(&self) -> io::Result<MappedSource> {
        MappedSource::new(self.file.try_clone()?, self.nr_blocks)
    }

    fn write_batch(&mut self) -> io::Result<()> {
        let result = self.file.write_all_at(&self.batch, self.batch_begin * BLOCK_SIZE as u64);
        self.batch.clear();
        result
    }
}

impl BlockOutput for FileOutput {
    fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    fn write(&mut self, location: BlockNr, block: &Block) -> Result<(), WriteError> {
        if location.0 >= self.nr_blocks {
            return Err(WriteError::OutOfRange { block: location, nr_blocks: self.nr_blocks });
        }
        let next = self.batch_begin + (self.batch.len() / BLOCK_SIZE) as u64;
        if location.0 != next || self.batch.len() >= BATCH_BYTES {
            self.write_batch()?;
        }
        if self.batch.is_empty() {
            self.batch_begin = location.0;
        }
        self.batch.extend_from_slice(block);
        Ok(())
    }

    fn read_back(&mut self, location: BlockNr) -> Result<Box<Block>, WriteError> {
        if location.0 >= self.nr_blocks {
            return Err(WriteError::OutOfRange { block: location, nr_blocks: self.nr_blocks });
        }
        self.write_batch()?;
        let mut block = Box::new([0; BLOCK_SIZE]);
        self.file.read_exact_at(&mut block[..], location.0 * BLOCK_SIZE as u64)?;
        Ok(block)
    }

    fn written(&mut self) -> Result<Box<dyn BlockSource + '_>, WriteError> {
        Ok(Box::new(self.source()?))
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.write_batch()?;
        self.file.sync_data()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn image(blocks: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![0xee; blocks * BLOCK_SIZE]).unwrap();
        file
    }

    #[test]
    fn blocks_end_up_where_they_belong() {
        let file = image(600);
        let mut output = FileOutput::open(file.path(), None).unwrap();
        assert_eq!(output.nr_blocks(), 600);
        let order: Vec<u64> = (10..400).chain([5, 399, 0]).chain(401..450).collect();
        for (index, location) in order.iter().enumerate() {
            output.write(BlockNr(*location), &[index as u8; BLOCK_SIZE]).unwrap();
        }
        assert_eq!(*output.read_back(BlockNr(449)).unwrap(), [(order.len() - 1) as u8; BLOCK_SIZE]);
        assert_eq!(*output.read_back(BlockNr(1)).unwrap(), [0xee; BLOCK_SIZE]);
        output.flush().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        let mut expected = vec![0xee; bytes.len()];
        for (index, location) in order.iter().enumerate() {
            expected[*location as usize * BLOCK_SIZE..][..BLOCK_SIZE].fill(index as u8);
        }
        assert!(bytes == expected);
        let error = output.write(BlockNr(600), &[0; BLOCK_SIZE]).unwrap_err();
        assert!(matches!(error, WriteError::OutOfRange { nr_blocks: 600, .. }));
    }

    #[test]
    fn unsuitable_outputs_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        assert!(matches!(FileOutput::open(&absent, None), Err(OpenOutputError::Missing(_))));
        assert!(!absent.exists());
        assert!(matches!(FileOutput::open(dir.path(), None), Err(OpenOutputError::WrongType(_))));
        assert!(matches!(FileOutput::open(Path::new("/dev/null"), None), Err(OpenOutputError::WrongType(_))));
        let small = image(9);
        assert!(matches!(FileOutput::open(small.path(), None), Err(OpenOutputError::TooSmall { bytes: 36_864, .. })));
        let file = image(10);
        let held = FileOutput::open(file.path(), None).unwrap();
        assert!(matches!(FileOutput::open(file.path(), None), Err(OpenOutputError::Busy(_))));
        drop(held);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(file.path(), &link).unwrap();
        let input = std::fs::metadata(&link).unwrap();
        assert!(matches!(FileOutput::open(file.path(), Some(&input)), Err(OpenOutputError::SameAsInput(_))));
        assert!(FileOutput::open(file.path(), None).is_ok());
    }
}
