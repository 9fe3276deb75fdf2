//! Turning a dump into text on all threads, and writing it in order.
//!
//! The document is cut into batches of about equal work. Runs of mappings go on from one batch to the next, so the
//! run at either end of a batch is kept apart and joined afterwards: the bytes do not depend on the cuts.

use super::document::{Document, DocumentDevice, Piece};
use super::dump::DumpError;
use super::model::Run;
use super::text::Writer;
use crate::base::{BlockNr, Progress, ThinBlock};
use crate::block::{BlockSource, ReadError};
use crate::format::mapping;
use crate::format::node::Node;
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

/// Leaves of one batch: about 1 MiB of text where every mapping stands alone.
const BATCH_LEAVES: usize = 64;
/// References that weigh as much as a leaf.
const REFERENCES_PER_LEAF: usize = 256;
/// References of one batch.
const BATCH_REFERENCES: usize = BATCH_LEAVES * REFERENCES_PER_LEAF;
/// Batches per thread that are done together before their text is written.
const BATCHES_PER_THREAD: usize = 4;

/// A piece of the document, in the order in which it is written.
enum Unit {
    /// Text that opens an item with a list of its own.
    Open(Vec<u8>),
    /// Text that closes something.
    Close(Vec<u8>),
    /// Text after which a new outer list begins.
    NewList(Vec<u8>),
    /// Mappings of leaves that follow each other; none of them is empty.
    Leaves(Vec<BlockNr>),
    /// References by number.
    References(Vec<u32>),
}

/// Whether the next item is the first of its list.
#[derive(Clone, Copy, Debug)]
struct Lists {
    outer_begins: bool,
    inner_begins: bool,
}

impl Lists {
    fn after(self, unit: &Unit) -> Lists {
        match unit {
            Unit::Open(_) => Lists { outer_begins: false, inner_begins: true },
            Unit::Close(_) => self,
            Unit::NewList(_) => Lists { outer_begins: true, ..self },
            Unit::Leaves(items) => Lists { inner_begins: self.inner_begins && items.is_empty(), ..self },
            Unit::References(items) => Lists { inner_begins: self.inner_begins && items.is_empty(), ..self },
        }
    }
}

/// Units that one thread turns into text, and the state of the lists before them.
struct Batch {
    lists: Lists,
    units: Vec<Unit>,
}

/// A run that is not written yet, and whether it is the first item of its list.
type OpenRun = (Run, bool);

/// The text of a batch. A run at its beginning or end that may go on beyond it is kept apart.
struct Text {
    first: Option<OpenRun>,
    middle: Vec<u8>,
    /// Only set where something stands before it.
    last: Option<OpenRun>,
}

/// Collects units and writes their text.
pub(super) struct Emitter<'a> {
    source: &'a dyn BlockSource,
    limits: Option<(u64, u32)>,
    writer: Writer,
    out: &'a mut dyn Write,
    progress: &'a dyn Progress,
    batches: Vec<Batch>,
    open: Batch,
    lists: Lists,
    weight: usize,
    /// What the batches weigh that are not written yet.
    weight_of_batches: usize,
    /// A run that may go on in the next batch.
    open_run: Option<OpenRun>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        source: &'a dyn BlockSource,
        writer: Writer,
        out: &'a mut dyn Write,
        progress: &'a dyn Progress,
    ) -> Self {
        let lists = Lists { outer_begins: true, inner_begins: true };
        Emitter {
            source,
            limits: None,
            writer,
            out,
            progress,
            batches: Vec::new(),
            open: Batch { lists, units: Vec::new() },
            lists,
            weight: 0,
            weight_of_batches: 0,
            open_run: None,
            buffers: Mutex::default(),
        }
    }

    fn writer(&self) -> Writer {
        self.writer
    }

    /// Adds a unit; writes what has gathered when it is enough.
    fn push(&mut self, unit: Unit) -> Result<(), DumpError> {
        self.weight += match &unit {
            Unit::Leaves(leaves) => leaves.len(),
            Unit::References(references) => references.len().div_ceil(REFERENCES_PER_LEAF),
            Unit::Open(_) | Unit::Close(_) | Unit::NewList(_) => 1,
        };
        self.lists = self.lists.after(&unit);
        self.open.units.push(unit);
        if self.weight >= BATCH_LEAVES {
            self.end_batch();
            if is_enough(self.batches.len()) {
                return self.write_batches();
            }
        }
        Ok(())
    }

    /// Adds text that closes something.
    fn close(&mut self, write: impl Fn(Writer, &mut Vec<u8>)) -> Result<(), DumpError> {
        let mut text = Vec::new();
        write(self.writer, &mut text);
        self.push(Unit::Close(text))
    }

    /// Writes all that was added, and flushes it.
    fn flush(&mut self) -> Result<(), DumpError> {
        self.end_batch();
        self.write_batches()?;
        self.end_run()?;
        Ok(self.out.flush()?)
    }

    fn end_batch(&mut self) {
        let next = Batch { lists: self.lists, units: Vec::new() };
        let full = std::mem::replace(&mut self.open, next);
        self.weight_of_batches += std::mem::take(&mut self.weight);
        if !full.units.is_empty() {
            self.batches.push(full);
        }
    }

    fn write_batches(&mut self) -> Result<(), DumpError> {
        let batches = std::mem::take(&mut self.batches);
        let (source, limits, writer, buffers) = (self.source, self.limits, self.writer, &self.buffers);
        let render = |batch: Batch| {
            let mut middle = buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
            middle.clear();
            let first = None;
            Renderer { source, limits, writer, lists: batch.lists, at_start: true, open: None, first, text: middle }
                .render(batch.units)
        };
        let texts: Result<Vec<Text>, DumpError> = if batches.len() > 1 {
            batches.into_par_iter().with_max_len(1).map(render).collect()
        } else {
            batches.into_iter().map(render).collect()
        };
        texts?.into_iter().try_for_each(|text| self.write_text(text))?;
        self.progress.advance(std::mem::take(&mut self.weight_of_batches) as u64);
        Ok(())
    }

    fn write_text(&mut self, text: Text) -> Result<(), DumpError> {
        if let Some((first, begins)) = text.first {
            match &mut self.open_run {
                Some((open, _)) if open.continues_with(&first) => open.length += first.length,
                _ => {
                    self.end_run()?;
                    self.open_run = Some((first, begins));
                }
            }
        }
        if !text.middle.is_empty() || text.last.is_some() {
            self.end_run()?;
            self.out.write_all(&text.middle)?;
            self.open_run = text.last;
        }
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(text.middle);
        Ok(())
    }

    fn end_run(&mut self) -> Result<(), DumpError> {
        if let Some(run) = self.open_run.take() {
            let mut text = Vec::with_capacity(128);
            write_run(self.writer, &mut text, &run);
            self.out.write_all(&text)?;
        }
        Ok(())
    }
}

/// Whether so many batches are enough work for all threads.
fn is_enough(batches: usize) -> bool {
    // Asking rayon starts its threads, which a small dump does not need.
    batches >= BATCHES_PER_THREAD && batches >= BATCHES_PER_THREAD * rayon::current_num_threads()
}

/// The name of a shared run: people count from 1.
fn name(number: u32) -> u64 {
    u64::from(number) + 1
}

/// Writes a whole document. The first line is flushed at once.
pub(super) fn emit(emitter: &mut Emitter<'_>, document: &Document) -> Result<(), DumpError> {
    emitter.limits = document.limits;
    let mut text = Vec::new();
    emitter.writer().pool(&mut text, &document.pool);
    emitter.push(Unit::NewList(text))?;
    // A volume manager reads the first line only, and closes the pipe.
    emitter.flush()?;
    for (number, head) in document.shared_runs().iter().enumerate() {
        let mut text = Vec::new();
        emitter.writer().def(&mut text, name(number as u32));
        emitter.push(Unit::Open(text))?;
        for chunk in document.shared_run(*head).chunks(BATCH_LEAVES) {
            emitter.push(Unit::Leaves(chunk.to_vec()))?;
        }
        emitter.close(|writer, text| writer.def_end(text))?;
    }
    let mut text = Vec::new();
    emitter.writer().devices(&mut text);
    emitter.push(Unit::NewList(text))?;
    for device in &document.devices {
        let mut text = Vec::new();
        emitter.writer().device(&mut text, &device.device);
        emitter.push(Unit::Open(text))?;
        emit_mappings(emitter, document, device)?;
        emitter.close(|writer, text| writer.device_end(text))?;
    }
    emitter.close(|writer, text| writer.pool_end(text))?;
    emitter.flush()
}

/// Writes the mappings of a device: leaves of its own, and references to shared runs.
fn emit_mappings(emitter: &mut Emitter<'_>, document: &Document, device: &DocumentDevice) -> Result<(), DumpError> {
    let mut result = Ok(());
    let mut open = Unit::Leaves(Vec::new());
    document.pieces(emitter.source, device, &mut |piece| {
        let full = match (&mut open, piece) {
            (Unit::Leaves(leaves), Piece::Leaf(leaf)) if leaves.len() < BATCH_LEAVES => {
                leaves.push(leaf);
                return ControlFlow::Continue(());
            }
            (Unit::References(references), Piece::Shared(number)) if references.len() < BATCH_REFERENCES => {
                references.push(number);
                return ControlFlow::Continue(());
            }
            (_, Piece::Leaf(leaf)) => std::mem::replace(&mut open, Unit::Leaves(vec![leaf])),
            (_, Piece::Shared(number)) => std::mem::replace(&mut open, Unit::References(vec![number])),
        };
        result = emitter.push(full);
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    result?;
    emitter.push(open)
}

fn write_run(writer: Writer, text: &mut Vec<u8>, (run, begins): &OpenRun) {
    let from = text.len();
    writer.run(text, run);
    if *begins {
        writer.begin_list(text, from);
    }
}

/// Turns one batch into text.
struct Renderer<'a> {
    source: &'a dyn BlockSource,
    limits: Option<(u64, u32)>,
    writer: Writer,
    lists: Lists,
    /// Nothing stands before the open run.
    at_start: bool,
    open: Option<OpenRun>,
    first: Option<OpenRun>,
    text: Vec<u8>,
}

impl Renderer<'_> {
    fn render(mut self, units: Vec<Unit>) -> Result<Text, DumpError> {
        for unit in units {
            let after = self.lists.after(&unit);
            match unit {
                Unit::Open(opening) => {
                    self.end_run();
                    let from = self.text.len();
                    self.text.extend_from_slice(&opening);
                    if self.lists.outer_begins {
                        self.writer.begin_list(&mut self.text, from);
                    }
                }
                Unit::Close(closing) | Unit::NewList(closing) => {
                    self.end_run();
                    self.text.extend_from_slice(&closing);
                }
                Unit::References(numbers) => self.references(&numbers),
                Unit::Leaves(blocks) => self.leaves(&blocks)?,
            }
            self.lists = after;
        }
        let (first, last) = if self.at_start { (self.open, None) } else { (self.first, self.open) };
        Ok(Text { first, middle: self.text, last })
    }

    /// Ends the open run; something else comes behind it.
    fn end_run(&mut self) {
        match self.open.take() {
            Some(run) if self.at_start => self.first = Some(run),
            Some(run) => write_run(self.writer, &mut self.text, &run),
            None => {}
        }
        self.at_start = false;
    }

    fn references(&mut self, numbers: &[u32]) {
        if numbers.is_empty() {
            return;
        }
        self.end_run();
        let from = self.text.len();
        numbers.iter().for_each(|number| self.writer.reference(&mut self.text, name(*number)));
        if self.lists.inner_begins {
            self.writer.begin_list(&mut self.text, from);
        }
    }

    fn leaves(&mut self, blocks: &[BlockNr]) -> Result<(), DumpError> {
        let mut failed = None;
        let mut begins = self.lists.inner_begins;
        let limits = self.limits;
        self.source.read_many(blocks, &mut |location, block| {
            let node = match block.map(|block| Node::trusting_checksum(block, 8)) {
                Ok(Ok(node)) => node,
                Ok(Err(fault)) => {
                    failed = Some((location, ReadError::Io(fault.to_string())));
                    return ControlFlow::Break(());
                }
                Err(error) => {
                    failed = Some((location, error));
                    return ControlFlow::Break(());
                }
            };
            for (key, value) in node.keys().iter().zip(node.values_u64()) {
                let (data_begin, mut time) = mapping::unpack(value.get());
                if let Some((nr_data_blocks, latest)) = limits {
                    if data_begin.0 >= nr_data_blocks {
                        continue;
                    }
                    time = time.min(latest);
                }
                let one = Run { thin_begin: ThinBlock(key.get()), data_begin, length: 1, time };
                match &mut self.open {
                    Some((run, _)) if run.continues_with(&one) => run.length += 1,
                    None => self.open = Some((one, std::mem::take(&mut begins))),
                    Some(_) => {
                        self.end_run();
                        self.open = Some((one, false));
                    }
                }
            }
            ControlFlow::Continue(())
        });
        failed.map_or(Ok(()), |(location, error)| Err(DumpError::Vanished(location, error)))
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCHES_PER_THREAD, is_enough};

    #[test]
    fn what_is_kept_in_memory_grows_with_the_threads_that_were_asked_for() {
        for threads in [1, 2, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let enough = pool.install(|| (1..100).find(|batches| is_enough(*batches)));
            assert_eq!(enough, Some(threads * BATCHES_PER_THREAD));
        }
    }
}
