//! Writes packed images (docs/format.md 10).

use super::deflate::Deflater;
use super::header::{RECORDS_PER_FRAME, header};
use super::words::pack_block;
use crate::base::BlockNr;
use crate::block::{BlockSource, ReadError};
use crate::format::block;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, PoisonError};

/// Unreadable blocks that are named; all are counted.
const NAMED_UNREADABLE: usize = 1000;

/// What was packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Blocks that the image has.
    pub nr_blocks: u64,
    /// Metadata blocks that were packed.
    pub nr_packed: u64,
    /// Blocks of which nothing was packed because they are no metadata, zeros or other.
    pub nr_skipped: u64,
    /// Blocks that could not be read, so that nothing of them was packed.
    pub nr_unreadable: u64,
    /// The first of these with their errors, at most 1000.
    pub unreadable: Vec<(BlockNr, ReadError)>,
}

/// Why an image could not be packed.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The output gave an error.
    #[error("cannot write the packed image: {0}")]
    Write(#[from] io::Error),
    /// Blocks went away while they were packed.
    #[error("{0} blocks could not be read any more while they were packed: the input was cut or its device is failing")]
    Fault(u64),
}

/// Packs every block of `source` that has the checksum of a metadata block, whether in use or not.
///
/// The output is the same for any number of threads. Each thread takes about 10 MiB. A block that cannot be read is
/// left out and listed in the result.
///
/// # Errors
/// Where the output cannot be written, or blocks fail after they have been read.
pub fn encode(source: &dyn BlockSource, out: &mut (dyn Write + Send), threads: usize) -> Result<Packed, EncodeError> {
    let nr_blocks = source.nr_blocks();
    let nr_faults = source.nr_faults();
    out.write_all(&header(nr_blocks))?;
    let nr_frames = nr_blocks.div_ceil(RECORDS_PER_FRAME);
    let threads = (threads.max(1) as u64).min(nr_frames);
    let turn = Turn::new(out, nr_frames);
    if threads <= 1 {
        encode_some(source, &turn);
    } else {
        std::thread::scope(|scope| {
            // This thread is one of them; where others can't be started, it does their work.
            for _ in 1..threads {
                let _fewer = std::thread::Builder::new().spawn_scoped(scope, || encode_some(source, &turn));
            }
            encode_some(source, &turn);
        });
    }
    let mut packed = turn.finish()?;
    packed.nr_blocks = nr_blocks;
    match source.nr_faults() - nr_faults {
        0 => Ok(packed),
        late => Err(EncodeError::Fault(late)),
    }
}

/// Takes one frame after the other until there are no more.
fn encode_some(source: &dyn BlockSource, turn: &Turn<'_>) {
    let mut encoder = Encoder::new();
    while let Some(frame) = turn.take() {
        let packed = encoder.frame(source, frame);
        turn.write(frame, &encoder.compressed, packed);
    }
}

/// Room for the frames that one thread makes.
struct Encoder {
    deflater: Deflater,
    locations: Vec<BlockNr>,
    numbers: Vec<u64>,
    plain: Vec<u8>,
    compressed: Vec<u8>,
}

impl Encoder {
    fn new() -> Self {
        Encoder {
            deflater: Deflater::new(),
            locations: Vec::new(),
            numbers: Vec::new(),
            plain: Vec::new(),
            compressed: Vec::new(),
        }
    }

    /// Makes the frame of the blocks `frame * 1024 ..`, with its length field; nothing where there is nothing to pack.
    fn frame(&mut self, source: &dyn BlockSource, frame: u64) -> Packed {
        let begin = frame * RECORDS_PER_FRAME;
        let end = (begin + RECORDS_PER_FRAME).min(source.nr_blocks());
        self.locations.clear();
        self.locations.extend((begin..end).map(BlockNr));
        self.plain.clear();
        self.compressed.clear();
        let mut packed = Packed::default();
        if source.skip_holes(BlockNr(begin)).0 >= end {
            packed.nr_skipped = end - begin;
            return packed;
        }
        let (plain, numbers) = (&mut self.plain, &mut self.numbers);
        source.read_many(&self.locations, &mut |location, result| {
            match result.map(|block| (block, block::identify(block))) {
                Ok((block, Some(kind))) => {
                    plain.extend_from_slice(&location.0.to_le_bytes());
                    pack_block(block, kind, numbers, plain);
                    packed.nr_packed += 1;
                }
                Ok((_, None)) => packed.nr_skipped += 1,
                Err(error) => packed.unreadable.push((location, error)),
            }
            ControlFlow::Continue(())
        });
        packed.nr_unreadable = packed.unreadable.len() as u64;
        if packed.nr_packed > 0 {
            self.compress();
        }
        packed
    }

    fn compress(&mut self) {
        self.compressed.extend_from_slice(&[0; 8]);
        self.deflater.write(&self.plain, &mut self.compressed);
        let length = self.compressed.len() as u64 - 8;
        self.compressed[..8].copy_from_slice(&length.to_le_bytes());
    }
}

/// Hands out frames and has them written in order.
struct Turn<'a> {
    state: Mutex<TurnState<'a>>,
    changed: Condvar,
    nr_frames: u64,
}

struct TurnState<'a> {
    out: &'a mut (dyn Write + Send),
    next_to_take: u64,
    next_to_write: u64,
    packed: Packed,
    error: Option<io::Error>,
}

impl<'a> Turn<'a> {
    fn new(out: &'a mut (dyn Write + Send), nr_frames: u64) -> Self {
        let state = TurnState { out, next_to_take: 0, next_to_write: 0, packed: Packed::default(), error: None };
        Turn { state: Mutex::new(state), changed: Condvar::new(), nr_frames }
    }

    fn take(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = state.next_to_take;
        if frame >= self.nr_frames || state.error.is_some() {
            return None;
        }
        state.next_to_take += 1;
        Some(frame)
    }

    /// Waits until all frames before this one are written.
    fn write(&self, frame: u64, bytes: &[u8], packed: Packed) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.next_to_write != frame {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.error.is_none()
            && let Err(error) = state.out.write_all(bytes)
        {
            state.error = Some(error);
        }
        state.packed.nr_packed += packed.nr_packed;
        state.packed.nr_skipped += packed.nr_skipped;
        state.packed.nr_unreadable += packed.nr_unreadable;
        let room = NAMED_UNREADABLE - state.packed.unreadable.len();
        state.packed.unreadable.extend(packed.unreadable.into_iter().take(room));
        state.next_to_write += 1;
        self.changed.notify_all();
    }

    fn finish(self) -> io::Result<Packed> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match state.error {
            Some(error) => Err(error),
            None => {
                state.out.flush()?;
                Ok(state.packed)
            }
        }
    }
}
