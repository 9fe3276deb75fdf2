//! Blocks of a file or an exclusively opened device, mapped into memory.

use super::direct::DirectSource;
use super::guard::Watch;
use super::open::FileKind;
use super::runs::{self, Run};
use super::source::{BlockSource, ReadError, Visit};
use crate::base::BlockNr;
use crate::format::{BLOCK_SIZE, Block};
use rustix::fs::SeekFrom;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::ptr;
use std::sync::OnceLock;

/// Blocks further apart than this are fetched one by one: to map a page that is not wanted costs less than
/// another system call only for a few.
const GAP: u64 = 4;
/// Blocks that are mapped ahead of the one visited, at most: 1 MiB.
const WINDOW: u64 = 256;

/// A mapping of whole pages, taken away when it is dropped.
struct Mapping {
    address: *mut c_void,
    len: usize,
}

impl Mapping {
    fn new(file: &File, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { address, len })
    }

    /// The pages of a run: where they begin in the mapping, and their bytes, the last page in part.
    fn span(&self, run: Run) -> (usize, usize) {
        let page = rustix::param::page_size();
        let begin = run.first as usize * BLOCK_SIZE / page * page;
        let end = (run.past as usize * BLOCK_SIZE).min(self.len);
        (begin, end - begin)
    }

    fn advise(&self, run: Run, advice: Advice) -> rustix::io::Result<()> {
        let (begin, len) = self.span(run);
        // SAFETY: inside the mapping. None of the advices used changes what a reader sees.
        unsafe { rustix::mm::madvise(self.address.byte_add(begin), len, advice) }
    }

    /// Whether all pages of a run, which has no more than a window has, are in memory.
    fn is_resident(&self, run: Run) -> bool {
        let (begin, len) = self.span(run);
        let mut pages = [0; WINDOW as usize];
        let nr_pages = len.div_ceil(rustix::param::page_size());
        let Some(pages) = pages.get_mut(..nr_pages) else { return false };
        // SAFETY: inside the mapping, and there is room for one byte for each page.
        let told = unsafe { libc::mincore(self.address.byte_add(begin), len, pages.as_mut_ptr()) };
        told == 0 && pages.iter().all(|page| page & 1 == 1)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nobody borrows from it any more. A failure leaves it mapped.
        let _ = unsafe { rustix::mm::munmap(self.address, self.len) };
    }
}

/// A memory-mapped file or device.
///
/// The caller has made sure that nobody writes to it: a device by an exclusive open, a file by a lock, as far as the
/// others take part. Where a file is changed all the same, readers see the change; where it is cut, they
/// get errors or, for blocks lent before, zeros and [`BlockSource::nr_faults`].
pub struct MappedSource {
    // Fields are dropped in order: the watch before the mapping.
    watch: Watch,
    mapping: Mapping,
    file: File,
    direct: OnceLock<Result<DirectSource, ReadError>>,
    nr_blocks: u64,
    /// Whether the system tells us which pages are in memory; to others it says of all that they are.
    tells_residence: bool,
}

// SAFETY: the mapping is only read, and only unmapped by `drop`.
unsafe impl Send for MappedSource {}
// SAFETY: as above; the watch is made of atomics.
unsafe impl Sync for MappedSource {}

impl MappedSource {
    /// Maps the first `nr_blocks` blocks of `file`, which has as many. `nr_blocks` is not 0.
    ///
    /// # Errors
    /// Where the file cannot be mapped, or is larger than the address space.
    pub fn new(file: File, nr_blocks: u64) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, "it does not fit in the address space");
        let count = usize::try_from(nr_blocks).map_err(|_| too_large())?;
        let len = count.checked_mul(BLOCK_SIZE).ok_or_else(too_large)?;
        let mapping = Mapping::new(&file, len)?;
        // SAFETY: the mapping is ours, of these blocks, and outlives the watch.
        let watch = unsafe { Watch::new(mapping.address.cast(), count) }?;
        let user = rustix::process::geteuid().as_raw();
        let tells_residence = user == 0 || user == file.metadata()?.uid();
        Ok(MappedSource { watch, mapping, file, direct: OnceLock::new(), nr_blocks, tells_residence })
    }

    fn pointer(&self, block: usize) -> *const Block {
        // Below nr_blocks, so inside the mapping.
        self.mapping.address.cast_const().cast::<Block>().wrapping_add(block)
    }

    /// Makes ready for a run: maps what is in memory in one go, and has the rest read.
    ///
    /// One call would do for both, but there is no way out of it where a sector is bad: Linux 5.14 to 6.8 try to read it
    /// again and again.
    fn prepare(&self, run: Run) {
        let resident = self.tells_residence && self.mapping.is_resident(run);
        let advice = if resident { Advice::LinuxPopulateRead } else { Advice::WillNeed };
        // Not before Linux 5.14: there the pages come by the dozen when they are touched.
        let _ = self.mapping.advise(run, advice);
    }

    /// Lends one block that there is.
    fn lend(&self, location: BlockNr) -> Option<&Block> {
        let block = location.0 as usize;
        let pointer = self.pointer(block);
        // Only one page fault handler runs per page: with larger pages, a neighbour's fault shows here too.
        if self.watch.is_faulted(block) {
            return None;
        }
        // SAFETY: inside the mapping, and any byte is a value.
        unsafe { ptr::read_volatile(pointer.cast::<u8>()) };
        // SAFETY: inside the mapping, which lives as long as `self`; bytes have no alignment.
        self.watch.lend(block).then(|| unsafe { &*pointer })
    }

    /// Reads a block that could not be mapped. The page cache reads, and fails, by the dozen of pages; past it only the
    /// blocks that are bad themselves are lost.
    #[cold]
    fn read_faulted(&self, location: BlockNr, visit: &mut Visit<'_>) -> ControlFlow<()> {
        match self.direct.get_or_init(|| self.open_direct()) {
            Ok(direct) => match direct.read(location) {
                Ok(block) => visit(location, Ok(&block)),
                Err(error) => visit(location, Err(error)),
            },
            Err(error) => visit(location, Err(error.clone())),
        }
    }

    fn open_direct(&self) -> Result<DirectSource, ReadError> {
        let open = || {
            let kind = if self.file.metadata()?.file_type().is_block_device() {
                FileKind::BlockDevice
            } else {
                FileKind::Regular
            };
            DirectSource::new(self.file.try_clone()?, kind, self.nr_blocks)
        };
        open().map_err(|error| runs::read_error(&error))
    }
}

impl BlockSource for MappedSource {
    fn nr_blocks(&self) -> u64 {
        self.nr_blocks
    }

    fn read_many(&self, blocks: &[BlockNr], visit: &mut Visit<'_>) {
        for run in runs::split(blocks, self.nr_blocks, GAP, WINDOW) {
            if run.past - run.first > 1 {
                self.prepare(run);
            }
            for location in run.blocks {
                let stop = if location.0 >= self.nr_blocks {
                    visit(*location, Err(ReadError::OutOfRange { nr_blocks: self.nr_blocks }))
                } else if let Some(block) = self.lend(*location) {
                    visit(*location, Ok(block))
                } else {
                    self.read_faulted(*location, visit)
                };
                if stop.is_break() {
                    return;
                }
            }
        }
    }

    fn skip_holes(&self, from: BlockNr) -> BlockNr {
        let Some(begin) = from.0.checked_mul(BLOCK_SIZE as u64).filter(|_| from.0 < self.nr_blocks) else {
            return from;
        };
        // Asked each time: what was a hole may be written to meanwhile. Devices and some file systems don't tell.
        match rustix::fs::seek(&self.file, SeekFrom::Data(begin)) {
            Ok(data) => BlockNr((data / BLOCK_SIZE as u64).max(from.0)),
            Err(rustix::io::Errno::NXIO) => BlockNr(self.nr_blocks),
            Err(_) => from,
        }
    }

    fn nr_faults(&self) -> u64 {
        self.watch.nr_late()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;

    /// A file of so many blocks, each filled with its number plus 1.
    fn sample(nr_blocks: u8) -> File {
        let mut file = tempfile::tempfile().unwrap();
        for block in 0..nr_blocks {
            file.write_all(&[block + 1; BLOCK_SIZE]).unwrap();
        }
        file
    }

    fn read(source: &MappedSource, blocks: &[u64]) -> Vec<(u64, Result<u8, ReadError>)> {
        let blocks: Vec<_> = blocks.iter().map(|block| BlockNr(*block)).collect();
        let mut seen = Vec::new();
        source.read_many(&blocks, &mut |block, result| {
            seen.push((block.0, result.map(|bytes| bytes[77])));
            ControlFlow::Continue(())
        });
        seen
    }

    #[test]
    fn holes_are_known_as_long_as_they_are_there() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1000 * BLOCK_SIZE as u64).unwrap();
        file.write_all_at(&[1; BLOCK_SIZE], 500 * BLOCK_SIZE as u64).unwrap();
        let source = MappedSource::new(file.try_clone().unwrap(), 1000).unwrap();
        let skipped = |from| source.skip_holes(BlockNr(from)).0;
        // Some file systems keep larger pieces, or don't tell.
        assert!(skipped(0) <= 500 && skipped(500) == 500 && skipped(501) <= 1000);
        assert_eq!(skipped(1000), 1000);
        assert_eq!(skipped(u64::MAX), u64::MAX);
        file.write_all_at(&[1; BLOCK_SIZE], 20 * BLOCK_SIZE as u64).unwrap();
        assert!(skipped(0) <= 20);
    }

    #[test]
    fn blocks_come_in_the_order_asked_for() {
        let source = MappedSource::new(sample(9), 8).unwrap();
        let wanted = [3, 4, 5, 0, 7, 8, 4, u64::MAX];
        let past = Err(ReadError::OutOfRange { nr_blocks: 8 });
        let expected = [Ok(4), Ok(5), Ok(6), Ok(1), Ok(8), past.clone(), Ok(5), past];
        assert_eq!(read(&source, &wanted), wanted.into_iter().zip(expected).collect::<Vec<_>>());
        let mut nr_seen = 0;
        source.read_many(&[BlockNr(1), BlockNr(2), BlockNr(3)], &mut |block, _| {
            nr_seen += 1;
            if block == BlockNr(2) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(nr_seen, 2);
    }

    #[test]
    fn a_file_cut_under_the_mapping_gives_errors() {
        let file = sample(64);
        let source = MappedSource::new(file.try_clone().unwrap(), 64).unwrap();
        file.set_len(16 * BLOCK_SIZE as u64).unwrap();
        let seen = read(&source, &(0..64).collect::<Vec<_>>());
        for (block, result) in seen {
            match result {
                Ok(byte) => assert!(block < 16 && u64::from(byte) == block + 1),
                Err(error) => assert!(block >= 16 && error.to_string().contains("cut"), "{block}: {error}"),
            }
        }
        assert_eq!(source.nr_faults(), 0, "none of them had been lent before");
        assert_eq!(source.read(BlockNr(15)).unwrap()[0], 16);
        assert!(source.read(BlockNr(16)).is_err());
    }

    #[test]
    fn a_block_that_goes_while_it_is_lent_is_counted() {
        let file = sample(64);
        let source = MappedSource::new(file.try_clone().unwrap(), 64).unwrap();
        let mut sum = 0;
        source.read_many(&[BlockNr(40)], &mut |_, result| {
            file.set_len(0).unwrap();
            sum = result.unwrap().iter().map(|byte| u64::from(*byte)).sum();
            ControlFlow::Continue(())
        });
        assert_eq!(sum, 0);
        assert!(source.nr_faults() >= 1);
        assert!(source.read(BlockNr(40)).is_err());
    }

    #[test]
    fn many_threads_fault_at_once() {
        let file = sample(250);
        let source = MappedSource::new(file.try_clone().unwrap(), 250).unwrap();
        file.set_len(0).unwrap();
        let all: Vec<u64> = (0..250).collect();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(read(&source, &all).iter().all(|(_, result)| result.is_err())));
            }
        });
        assert_eq!(source.nr_faults(), 0);
    }

    #[test]
    fn the_table_of_a_mapping_goes_with_it() {
        for _ in 0..100 {
            let file = sample(2);
            let source = MappedSource::new(file.try_clone().unwrap(), 2).unwrap();
            file.set_len(0).unwrap();
            assert!(source.read(BlockNr(1)).is_err());
            drop(source);
            let source = MappedSource::new(sample(2), 2).unwrap();
            assert_eq!(source.read(BlockNr(1)).unwrap()[0], 2);
        }
    }

    const CHILD: &str = "DMETA_TEST_SIGBUS";

    /// What the next test runs in a process of its own: a fault outside any mapping that is watched.
    #[test]
    fn sigbus_elsewhere_in_a_child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let file = sample(2);
        let watched = MappedSource::new(file.try_clone().unwrap(), 2).unwrap();
        let unwatched = Mapping::new(&file, 2 * BLOCK_SIZE).unwrap();
        file.set_len(0).unwrap();
        assert!(watched.read(BlockNr(1)).is_err());
        println!("watched is well");
        // SAFETY: inside the mapping; the fault is what is wanted.
        let byte = unsafe { ptr::read_volatile(unwatched.address.cast::<u8>()) };
        panic!("still alive, read {byte}");
    }

    #[test]
    fn sigbus_elsewhere_still_kills() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "block::mapped::tests::sigbus_elsewhere_in_a_child", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("watched is well"), "{text}");
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{text}");
    }
}
