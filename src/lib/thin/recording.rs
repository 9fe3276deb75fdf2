//! Items kept in memory, for input that can be read only once.

use super::items::{PoolSink, Position, RereadError, Runs};
use super::model::{Device, Pool, Run};
use crate::base::{DataBlock, ThinBlock};
use std::cell::RefCell;

const RUN: u8 = 0;
const SINGLE: u8 = 1;
const REFERENCE: u8 = 2;
const BEGIN_DEFINITION: u8 = 3;
const END_DEFINITION: u8 = 4;
const BEGIN_DEVICE: u8 = 5;
const END_DEVICE: u8 = 6;
const END: u8 = 7;

/// Items as a row of bytes: a tag, then numbers of 7 bits a byte. A typical mapping takes 10 bytes.
///
/// Runs can be read again while the recording goes on.
#[derive(Debug, Default)]
pub struct Recording {
    items: RefCell<Items>,
}

#[derive(Debug, Default)]
struct Items {
    pool: Option<Pool>,
    devices: Vec<Device>,
    bytes: Vec<u8>,
}

impl Items {
    fn put(&mut self, tag: u8, numbers: &[u64]) -> Position {
        let at = Position(self.bytes.len() as u64);
        self.bytes.push(tag);
        for number in numbers {
            let mut rest = *number;
            while rest >= 0x80 {
                self.bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            self.bytes.push(rest as u8);
        }
        at
    }

    fn put_run(&mut self, run: &Run) -> Position {
        let (thin, data, time) = (run.thin_begin.0, run.data_begin.0, u64::from(run.time));
        match run.length {
            1 => self.put(SINGLE, &[thin, data, time]),
            length => self.put(RUN, &[thin, data, time, length]),
        }
    }
}

/// Reads what was recorded. What is missing reads as 0 and the end.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte().unwrap_or(0);
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    fn run(&mut self, tag: u8) -> Run {
        let (thin, data, time) = (self.number(), self.number(), self.number());
        let length = if tag == RUN { self.number() } else { 1 };
        Run { thin_begin: ThinBlock(thin), data_begin: DataBlock(data), length, time: time as u32 }
    }
}

impl Recording {
    /// Nothing recorded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives all items to `sink`.
    ///
    /// # Errors
    /// What the sink gives.
    pub fn replay<S: PoolSink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let items = self.items.borrow();
        if let Some(pool) = &items.pool {
            sink.pool(pool)?;
        }
        let mut devices = items.devices.iter();
        let mut cursor = Cursor { bytes: &items.bytes, at: 0 };
        loop {
            let at = Position(cursor.at as u64);
            match cursor.byte().unwrap_or(END) {
                tag @ (RUN | SINGLE) => sink.run(&cursor.run(tag), at)?,
                REFERENCE => sink.reference(cursor.number() as u32)?,
                BEGIN_DEFINITION => sink.begin_definition()?,
                END_DEFINITION => sink.end_definition()?,
                BEGIN_DEVICE => devices.next().map_or(Ok(()), |device| sink.begin_device(device))?,
                END_DEVICE => sink.end_device()?,
                _ => return sink.end(),
            }
        }
    }
}

impl Runs for Recording {
    fn runs_from(&self, at: Position, each: &mut dyn FnMut(&Run) -> bool) -> Result<(), RereadError> {
        let items = self.items.borrow();
        let mut cursor = Cursor { bytes: &items.bytes, at: usize::try_from(at.0).unwrap_or(usize::MAX) };
        while let Some(tag @ (RUN | SINGLE)) = cursor.byte() {
            if !each(&cursor.run(tag)) {
                break;
            }
        }
        Ok(())
    }
}

/// Records items on their way to a sink, which gets positions in the recording.
#[derive(Debug)]
pub struct Recorder<'a, S> {
    recording: &'a Recording,
    sink: &'a mut S,
}

impl<'a, S: PoolSink> Recorder<'a, S> {
    /// Records into `recording`, behind what is there.
    pub fn new(recording: &'a Recording, sink: &'a mut S) -> Self {
        Recorder { recording, sink }
    }

    fn put(&self, tag: u8, numbers: &[u64]) -> Position {
        self.recording.items.borrow_mut().put(tag, numbers)
    }
}

impl<S: PoolSink> PoolSink for Recorder<'_, S> {
    type Error = S::Error;

    fn pool(&mut self, pool: &Pool) -> Result<(), S::Error> {
        self.recording.items.borrow_mut().pool = Some(pool.clone());
        self.sink.pool(pool)
    }

    fn begin_definition(&mut self) -> Result<(), S::Error> {
        self.put(BEGIN_DEFINITION, &[]);
        self.sink.begin_definition()
    }

    fn end_definition(&mut self) -> Result<(), S::Error> {
        self.put(END_DEFINITION, &[]);
        self.sink.end_definition()
    }

    fn begin_device(&mut self, device: &Device) -> Result<(), S::Error> {
        self.put(BEGIN_DEVICE, &[]);
        self.recording.items.borrow_mut().devices.push(*device);
        self.sink.begin_device(device)
    }

    fn end_device(&mut self) -> Result<(), S::Error> {
        self.put(END_DEVICE, &[]);
        self.sink.end_device()
    }

    fn run(&mut self, run: &Run, _at: Position) -> Result<(), S::Error> {
        let at = self.recording.items.borrow_mut().put_run(run);
        self.sink.run(run, at)
    }

    fn reference(&mut self, definition: u32) -> Result<(), S::Error> {
        self.put(REFERENCE, &[u64::from(definition)]);
        self.sink.reference(definition)
    }

    fn upcoming(&mut self, definitions: &[u32]) {
        self.sink.upcoming(definitions);
    }

    fn empty_run(&mut self) {
        self.sink.empty_run();
    }

    fn end(&mut self) -> Result<(), S::Error> {
        self.put(END, &[]);
        self.sink.end()
    }
}
