//! Reads packed images (docs/format.md 10).
//!
//! Nothing in a file is believed: lengths are held against the file, block numbers against the image, checksums
//! against the blocks, and the whole of what comes out against the size of what went in.

use super::bound;
use super::header::{self, HEADER_SIZE};
use super::inflate::Inflater;
use super::machine;
use crate::base::BlockNr;
use crate::block::memory::MemorySource;
use crate::format::{BLOCK_SIZE, Block, block};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// Packs smaller than this are read by one thread.
const PARALLEL_BYTES: u64 = 256 << 10;

/// What is wrong inside a frame.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The length field says 0.
    #[error("it is empty")]
    Empty,
    /// The length field says more than the file has.
    #[error("it should have {length} bytes, but only {left} are left: the file was cut")]
    Cut {
        /// What the length field says.
        length: u64,
        /// Bytes that follow it in the file.
        left: u64,
    },
    /// The file ends within the length field.
    #[error("the file ends in its length field: it was cut")]
    CutLength,
    /// The compressed data end before their end mark.
    #[error("its compressed data are not complete")]
    Unfinished,
    /// Something follows the compressed data.
    #[error("{0} bytes follow its compressed data")]
    Surplus(u64),
    /// The compressed data are damaged.
    #[error("its compressed data are damaged: {0}")]
    Corrupt(String),
    /// The file gave an error.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// A record is not complete.
    #[error("it ends within a block")]
    Ended,
    /// There is no such instruction.
    #[error("there is no instruction {0}")]
    Tag(u8),
    /// An instruction has an operand of a width that there is not.
    #[error("an operand has {0} bytes")]
    Width(u8),
    /// A repeat count stands before an instruction that has none.
    #[error("a count stands before instruction {0}")]
    Count(u8),
    /// An instruction gives more than a block has room for.
    #[error("an instruction goes past the end of the block")]
    Overshoot,
    /// A block has more instructions than any needs.
    #[error("a block has more than {0} bytes of instructions")]
    Long(u64),
    /// A block has a number that the image does not have.
    #[error("block {block} is past the end of the image, which has {nr_blocks} blocks")]
    OutOfRange {
        /// The block.
        block: u64,
        /// Blocks of the image.
        nr_blocks: u64,
    },
    /// A block comes again.
    #[error("block {0} is there twice")]
    Twice(u64),
    /// A block is not one of metadata.
    #[error("block {0} has the checksum of no kind of metadata block")]
    Unknown(u64),
    /// More comes out than any image of this size could give.
    #[error("it unfolds to more than {0} blocks, which no image packed to this size has")]
    Bomb(u64),
    /// What is done with the blocks failed.
    #[error("{0}")]
    Sink(io::Error),
}

/// Why a packed image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It cannot be read at all.
    #[error("cannot read the packed image: {0}")]
    Io(#[from] io::Error),
    /// It is shorter than a header.
    #[error("it is too short for a packed image")]
    Short,
    /// It is something else.
    #[error("it is not a packed image")]
    Magic,
    /// Its version is not known.
    #[error("it is a packed image of version {0}, only version 3 is known")]
    Version(u64),
    /// Its blocks have another size.
    #[error("its blocks have {0} bytes, metadata blocks have 4096")]
    BlockSize(u64),
    /// A frame is damaged.
    #[error("frame {frame} at byte {offset} of the packed image, byte {at} unpacked: {fault}")]
    Frame {
        /// Which one, counted from 0.
        frame: u64,
        /// Where its length field is in the file.
        offset: u64,
        /// How far it could be unpacked.
        at: u64,
        /// What is wrong.
        fault: Fault,
    },
}

/// The blocks that were seen. One bit for each up to the highest, but for those so high that no metadata has them.
#[derive(Default)]
struct Seen {
    near: Vec<u64>,
    far: BTreeSet<u64>,
    count: u64,
}

impl Seen {
    const NEAR: u64 = 1 << 23;

    /// Whether the block is new.
    fn insert(&mut self, block: u64) -> bool {
        let is_new = if block >= Self::NEAR {
            self.far.insert(block)
        } else {
            let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
            if word >= self.near.len() {
                self.near.resize(word + 1, 0);
            }
            let is_new = self.near[word] & bit == 0;
            self.near[word] |= bit;
            is_new
        };
        self.count += u64::from(is_new);
        is_new
    }
}

/// What is done with each block, from several threads at once.
pub type Sink<'a> = &'a (dyn Fn(BlockNr, &Block) -> io::Result<()> + Sync);

/// What all frames have in common.
struct Image<'a> {
    nr_blocks: u64,
    max_blocks: u64,
    seen: Mutex<Seen>,
    sink: Sink<'a>,
}

impl<'a> Image<'a> {
    fn new(nr_blocks: u64, input_bytes: u64, sink: Sink<'a>) -> Self {
        Image { nr_blocks, max_blocks: bound::max_blocks(input_bytes), seen: Mutex::default(), sink }
    }

    fn nr_seen(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Unfolds the frame that `input` has begun.
    fn frame<R: Read>(&self, input: &mut Inflater<R>, scratch: &mut Block) -> Result<(), Fault> {
        while !input.at_end()? {
            let location = input.number(8)?;
            machine::run(input, scratch)?;
            if location >= self.nr_blocks {
                return Err(Fault::OutOfRange { block: location, nr_blocks: self.nr_blocks });
            }
            if block::identify(scratch).is_none() {
                return Err(Fault::Unknown(location));
            }
            let (is_new, count) = {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                (seen.insert(location), seen.count)
            };
            if !is_new {
                return Err(Fault::Twice(location));
            }
            if count > self.max_blocks {
                return Err(Fault::Bomb(self.max_blocks));
            }
            (self.sink)(BlockNr(location), scratch).map_err(Fault::Sink)?;
        }
        Ok(())
    }
}

/// A part of a file.
struct Part<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(out, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Where a frame lies in a file.
#[derive(Clone, Copy)]
struct Frame {
    index: u64,
    offset: u64,
    length: u64,
}

impl Frame {
    fn error(self, at: u64, fault: Fault) -> PackError {
        PackError::Frame { frame: self.index, offset: self.offset, at, fault }
    }
}

/// Hands out the frames of a file, in order.
struct Frames<'a> {
    file: &'a File,
    len: u64,
    next: Frame,
}

impl Frames<'_> {
    fn stop(&mut self) {
        self.next.offset = self.len;
    }

    fn next(&mut self) -> Option<Result<Frame, PackError>> {
        let left = self.len.saturating_sub(self.next.offset);
        if left == 0 {
            return None;
        }
        let mut length = [0; 8];
        let mut frame = self.next;
        if left < 8 {
            return Some(Err(frame.error(0, Fault::CutLength)));
        }
        if let Err(error) = self.file.read_exact_at(&mut length, frame.offset) {
            return Some(Err(frame.error(0, Fault::Read(error))));
        }
        frame.length = u64::from_le_bytes(length);
        if frame.length == 0 {
            return Some(Err(frame.error(0, Fault::Empty)));
        }
        if frame.length > left - 8 {
            return Some(Err(frame.error(0, Fault::Cut { length: frame.length, left: left - 8 })));
        }
        self.next = Frame { index: frame.index + 1, offset: frame.offset + 8 + frame.length, length: 0 };
        Some(Ok(frame))
    }
}

/// What a packed image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Blocks of the image.
    pub nr_blocks: u64,
    /// Blocks that are packed; all others are zeros.
    pub nr_packed: u64,
}

/// Passes every block of the packed image in `file`, of `len` bytes, to `sink`, in any order and from up to `threads`
/// threads at once.
///
/// Each thread takes about 300 KiB, and every block of the image a bit. When an error is found, some blocks may have been
/// passed on already.
///
/// # Errors
/// Anything that is not as docs/format.md 10 has it; the first fault in the file is named. Those of `sink`.
pub fn decode_into(file: &File, len: u64, threads: usize, sink: Sink<'_>) -> Result<Contents, PackError> {
    let nr_blocks = read_header(file, len)?;
    let threads = if len < PARALLEL_BYTES { 1 } else { threads.max(1) };
    let image = Image::new(nr_blocks, len, sink);
    match decode_frames(file, len, threads, &image) {
        Ok(()) => Ok(Contents { nr_blocks, nr_packed: image.nr_seen() }),
        // Which of several faults is met first is a matter of chance with many threads, but not with one.
        Err(PackError::Frame { fault, .. }) if threads > 1 && !matches!(fault, Fault::Sink(_)) => {
            decode_frames(file, len, 1, &Image::new(nr_blocks, len, &|_, _| Ok(())))?;
            Err(PackError::Io(io::Error::other("it changed while it was read")))
        }
        Err(error) => Err(error),
    }
}

/// Verifies the packed image in `file`, of `len` bytes, as [`decode_into`] does, and keeps no block.
///
/// # Errors
/// As for [`decode_into`].
pub fn check(file: &File, len: u64, threads: usize) -> Result<Contents, PackError> {
    decode_into(file, len, threads, &|_, _| Ok(()))
}

fn read_header(file: &File, len: u64) -> Result<u64, PackError> {
    let mut bytes = [0; HEADER_SIZE];
    if len < HEADER_SIZE as u64 {
        return Err(PackError::Short);
    }
    file.read_exact_at(&mut bytes, 0)?;
    header::parse(&bytes)
}

fn decode_frames(file: &File, len: u64, threads: usize, image: &Image<'_>) -> Result<(), PackError> {
    let first = Frame { index: 0, offset: HEADER_SIZE as u64, length: 0 };
    let frames = Mutex::new(Frames { file, len, next: first });
    let work = || decode_some(&frames, image);
    if threads == 1 {
        return work();
    }
    std::thread::scope(|scope| {
        // This thread is one of them; where others can't be started, it does their work.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let workers: Vec<_> = (1..threads).filter_map(start).collect();
        let own = work();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let results = std::iter::once(own).chain(workers.into_iter().map(join));
        // All are waited for before the first error is given.
        results.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Unfolds frames until there are no more, or something is wrong in one: then the others stop as well.
fn decode_some(frames: &Mutex<Frames<'_>>, image: &Image<'_>) -> Result<(), PackError> {
    let lock = || frames.lock().unwrap_or_else(PoisonError::into_inner);
    let mut inflater = Inflater::new(Part { file: lock().file, at: 0 });
    let mut scratch: Box<Block> = Box::new([0; BLOCK_SIZE]);
    loop {
        let Some(frame) = lock().next() else { return Ok(()) };
        let result = frame.and_then(|frame| {
            inflater.input().at = frame.offset + 8;
            inflater.start(frame.length);
            image.frame(&mut inflater, &mut scratch).map_err(|fault| frame.error(inflater.offset(), fault))
        });
        if result.is_err() {
            lock().stop();
            return result;
        }
    }
}

/// Unfolds the packed image in `file`, of `len` bytes.
///
/// The blocks take at most 64 MiB and 1024 bytes for each byte of the file; more is taken for an attack.
///
/// # Errors
/// Anything that is not as docs/format.md 10 has it; the first fault in the file is named.
pub fn decode(file: &File, len: u64, threads: usize) -> Result<MemorySource, PackError> {
    let nr_blocks = read_header(file, len)?;
    let image = Mutex::new(MemorySource::new(nr_blocks));
    decode_into(file, len, threads, &|location, block| put(&image, location, block))?;
    Ok(image.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn put(image: &Mutex<MemorySource>, location: BlockNr, block: &Block) -> io::Result<()> {
    let mut image = image.lock().unwrap_or_else(PoisonError::into_inner);
    image.put(location, block).map_err(io::Error::other)
}

/// Unfolds a packed image that comes as a stream, made from an input of `input_bytes` bytes; otherwise like [`decode`].
///
/// # Errors
/// As for [`decode`].
pub(super) fn decode_stream(mut stream: &mut dyn Read, input_bytes: u64) -> Result<MemorySource, PackError> {
    let mut bytes = [0; HEADER_SIZE];
    if bound::read_full(&mut stream, &mut bytes)? < HEADER_SIZE {
        return Err(PackError::Short);
    }
    let nr_blocks = header::parse(&bytes)?;
    let memory = Mutex::new(MemorySource::new(nr_blocks));
    let sink = |location, block: &Block| put(&memory, location, block);
    let image = Image::new(nr_blocks, input_bytes, &sink);
    let mut scratch: Box<Block> = Box::new([0; BLOCK_SIZE]);
    let mut frame = Frame { index: 0, offset: HEADER_SIZE as u64, length: 0 };
    let mut inflater = Inflater::new(stream);
    loop {
        let mut length = [0; 8];
        match bound::read_full(inflater.input(), &mut length)? {
            0 => break,
            8 => frame.length = u64::from_le_bytes(length),
            _ => return Err(frame.error(0, Fault::CutLength)),
        }
        if frame.length == 0 {
            return Err(frame.error(0, Fault::Empty));
        }
        inflater.start(frame.length);
        image.frame(&mut inflater, &mut scratch).map_err(|fault| frame.error(inflater.offset(), fault))?;
        let offset = frame.offset.saturating_add(8).saturating_add(frame.length);
        frame = Frame { index: frame.index + 1, offset, length: 0 };
    }
    Ok(memory.into_inner().unwrap_or_else(PoisonError::into_inner))
}
