//! Blocks read past the page cache, into buffers of our own.
//!
//! The kernel writes a live pool's metadata underneath the page cache of the device, which may hold what was there
//! long ago. Nothing is kept here between two calls either, so a block that is read again is what it is then.

use super::open::FileKind;
use super::runs::{self, Run};
use super::source::{BlockSource, ReadError, Visit};
use crate::base::BlockNr;
use crate::format::{BLOCK_SIZE, Block};
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Blocks further apart than this are read one by one.
const GAP: u64 = 8;
/// Blocks of one read, at most: 1 MiB.
const WINDOW: u64 = 256;

/// Memory as direct reads want it: 4096 is enough for every device whose sectors are not larger.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page(Block);

/// A file or device that is read by system calls.
///
/// Takes as much memory for each thread that reads as its longest run of blocks has, at most 1 MiB.
pub struct DirectSource {
    file: File,
    nr_blocks: u64,
    /// Bytes that each read begins at and is long a multiple of.
    unit: u64,
    is_cached: bool,
    buffers: Mutex<Vec<Vec<Page>>>,
}

impl DirectSource {
    /// Reads the first `nr_blocks` blocks of `file` past the page cache.
    ///
    /// Where the file system of a regular file cannot do that, as some that live in memory, reads go through the page
    /// cache; [`DirectSource::is_cached`] tells. On a device they never do.
    ///
    /// # Errors
    /// Where a device does not take direct reads.
    pub fn new(file: File, kind: FileKind, nr_blocks: u64) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&file)?;
        let mut source = Self::cached(file, nr_blocks);
        if kind == FileKind::BlockDevice {
            let sector = rustix::fs::ioctl_blksszget(&source.file)?;
            source.unit = source.unit.max(u64::from(sector));
        }
        let set = rustix::fs::fcntl_setfl(&source.file, flags | OFlags::DIRECT);
        // Some file systems take the flag and then refuse the reads.
        let refused = match set {
            Ok(()) => source.read(BlockNr(0)).is_err() && kind == FileKind::Regular,
            Err(error) if kind == FileKind::BlockDevice => return Err(error.into()),
            Err(_) => true,
        };
        source.is_cached = refused;
        if refused {
            rustix::fs::fcntl_setfl(&source.file, flags)?;
        }
        Ok(source)
    }

    /// Reads the first `nr_blocks` blocks of `file` through the page cache: for what cannot be mapped.
    pub fn cached(file: File, nr_blocks: u64) -> Self {
        let unit = BLOCK_SIZE as u64;
        DirectSource { file, nr_blocks, unit, is_cached: true, buffers: Mutex::default() }
    }

    /// Whether reads go through the page cache all the same.
    pub fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// Reads `run` into `buffer`; gives the place of its first block there.
    fn fetch(&self, first: u64, past: u64, buffer: &mut Vec<Page>) -> io::Result<usize> {
        let begin = first * BLOCK_SIZE as u64 / self.unit * self.unit;
        let end = (past * BLOCK_SIZE as u64).next_multiple_of(self.unit);
        let len = ((end - begin) as usize).div_ceil(BLOCK_SIZE);
        if buffer.len() < len {
            buffer.resize(len, Page([0; BLOCK_SIZE]));
        }
        let bytes = &mut buffer[..len].as_mut_bytes()[..(end - begin) as usize];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], begin + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // A device that ends within a unit of ours would go on unaligned.
                Ok(len) if !(len as u64).is_multiple_of(512) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((first - begin / BLOCK_SIZE as u64) as usize)
    }

    fn read_run(&self, run: &Run<'_>, buffer: &mut Vec<Page>, visit: &mut Visit<'_>) -> std::ops::ControlFlow<()> {
        if run.past == run.first {
            return run
                .blocks
                .iter()
                .try_for_each(|location| visit(*location, Err(ReadError::OutOfRange { nr_blocks: self.nr_blocks })));
        }
        if let Ok(place) = self.fetch(run.first, run.past, buffer) {
            return run
                .blocks
                .iter()
                .try_for_each(|location| visit(*location, Ok(&buffer[place + (location.0 - run.first) as usize].0)));
        }
        // Something in the run cannot be read: which block it is, and why, single reads tell.
        run.blocks.iter().try_for_each(|location| match self.fetch(location.0, location.0 + 1, buffer) {
            Ok(place) => visit(*location, Ok(&buffer[place].0)),
            Err(error) => visit(*location, Err(runs::read_error(&error))),
        })
    }
}

impl BlockSource for DirectSource {
    fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    fn read_many(&self, blocks: &[BlockNr], visit: &mut Visit<'_>) {
        let buffers = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = buffers().pop().unwrap_or_default();
        for run in runs::split(blocks, self.nr_blocks, GAP, WINDOW) {
            if self.read_run(&run, &mut buffer, visit).is_break() {
                break;
            }
        }
        buffers().push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::ops::ControlFlow;

    fn sample(nr_blocks: u8) -> File {
        let mut file = tempfile::tempfile().unwrap();
        for block in 0..nr_blocks {
            file.write_all(&[block + 1; BLOCK_SIZE]).unwrap();
        }
        file
    }

    fn read(source: &DirectSource, blocks: &[u64]) -> Vec<Result<u8, String>> {
        let blocks: Vec<_> = blocks.iter().map(|block| BlockNr(*block)).collect();
        let mut seen = Vec::new();
        source.read_many(&blocks, &mut |block, result| {
            assert_eq!(block, blocks[seen.len()]);
            seen.push(result.map(|bytes| bytes[4095]).map_err(|error| error.to_string()));
            ControlFlow::Continue(())
        });
        seen
    }

    #[test]
    fn blocks_come_in_the_order_asked_for_by_any_unit() {
        for unit in [4096, 16384] {
            let mut source = DirectSource::new(sample(200), FileKind::Regular, 200).unwrap();
            source.unit = unit;
            let seen = read(&source, &[7, 8, 9, 15, 3, 199, 40, 200, 0]);
            let past = "past the end of the metadata, which has 200 blocks".to_string();
            let expected = [Ok(8), Ok(9), Ok(10), Ok(16), Ok(4), Ok(200), Ok(41), Err(past), Ok(1)];
            assert_eq!(seen, expected);
        }
        let source = DirectSource::cached(sample(3), 3);
        assert!(source.is_cached());
        assert_eq!(read(&source, &[1]), [Ok(2)]);
    }

    #[test]
    fn reading_stops_when_told() {
        let source = DirectSource::new(sample(20), FileKind::Regular, 20).unwrap();
        let mut nr_seen = 0;
        source.read_many(&[BlockNr(1), BlockNr(2), BlockNr(18)], &mut |block, _| {
            nr_seen += 1;
            if block == BlockNr(2) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(nr_seen, 2);
    }

    #[test]
    fn only_the_blocks_that_went_are_errors_and_changes_are_seen() {
        let file = sample(100);
        // With a description, and so flags, of its own.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let source = DirectSource::new(File::open(path).unwrap(), FileKind::Regular, 100).unwrap();
        assert_eq!(read(&source, &[5, 60]), [Ok(6), Ok(61)]);
        file.write_all_at(&[0xee; BLOCK_SIZE], 5 * BLOCK_SIZE as u64).unwrap();
        file.set_len(50 * BLOCK_SIZE as u64).unwrap();
        let seen = read(&source, &(0..100).collect::<Vec<_>>());
        assert_eq!(seen[5], Ok(0xee));
        assert_eq!(seen[49], Ok(50));
        assert!(seen[..50].iter().all(Result::is_ok));
        assert!(seen[50..].iter().all(|error| error.as_ref().is_err_and(|error| error.contains("was cut"))));
    }
}
