//! Traces: events of streams as text, importers for what other programs record, and generators.
//!
//! A trace is UTF-8, one event a line: `time stream verb key=value...`. The first line is `thin-trace 1`; `H` lines
//! hold what is known of the trace, `S` lines declare streams, `#` begins a comment. Times are microseconds from the
//! start, `+t` after the event before, or `-` for as soon as possible. Offsets and lengths are sectors.

mod blkparse;
mod fio;
pub mod generate;
mod import;
mod messages;
mod parse;
#[cfg(test)]
mod tests;

pub use import::{Account, ImportOptions, Mapping, read_any};
pub use parse::parse;

use super::engine::Ns;
use super::pool::verb::List;
use super::pool::{Event, StreamStart, Verb, When};
use crate::base::ThinId;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

/// The first line of a trace.
pub const MAGIC: &str = "thin-trace 1";

/// No device has as many sectors: its bytes would have more than 64 bits.
const SECTOR_LIMIT: u64 = 1 << 55;
/// Times are below this, in nanoseconds: more than two years.
const TIME_LIMIT: Ns = 1 << 56;

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("trace, line {line}: {what}")]
pub struct TraceError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// A stream of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// Requests under way at once; `None` where each comes at its own time.
    pub depth: Option<u64>,
    /// The device of events that don't say it.
    pub dev: Option<ThinId>,
    /// Its events, in order.
    pub events: Vec<Event>,
}

/// A trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What is known of it.
    pub header: BTreeMap<String, String>,
    /// Its streams.
    pub streams: Vec<Stream>,
}

impl Trace {
    /// The streams, ready to run. Those that move data are the foreground.
    pub fn starts<'a>(&self) -> Vec<StreamStart<'a>> {
        let moves = |event: &Event| matches!(event.verb, Verb::Read { .. } | Verb::Write { .. });
        let starts = self.streams.iter().map(|stream| StreamStart {
            name: stream.name.clone(),
            depth: stream.depth,
            foreground: stream.events.iter().any(moves),
            feed: Box::new(List::new(stream.events.clone())),
        });
        starts.collect()
    }

    /// Devices that are used and not made by the trace itself.
    pub fn devices(&self) -> BTreeSet<ThinId> {
        let (mut used, mut made) = (BTreeSet::new(), BTreeSet::new());
        for event in self.streams.iter().flat_map(|stream| &stream.events) {
            match &event.verb {
                Verb::Create { dev } => _ = made.insert(*dev),
                Verb::Snap { dev, origin } => {
                    made.insert(*dev);
                    used.insert(*origin);
                }
                Verb::Delete { dev, .. } | Verb::Flush { dev } => _ = used.insert(*dev),
                verb => used.extend(verb.extent().map(|(dev, _, _)| dev)),
            }
        }
        used.difference(&made).copied().collect()
    }

    /// Events in all streams.
    pub fn nr_events(&self) -> usize {
        self.streams.iter().map(|stream| stream.events.len()).sum()
    }

    /// Adds the streams of another trace.
    pub fn merge(&mut self, other: Trace) {
        let mut names: HashSet<String> = self.streams.iter().map(|own| own.name.clone()).collect();
        for mut stream in other.streams {
            while !names.insert(stream.name.clone()) {
                stream.name.push('\'');
            }
            self.streams.push(stream);
        }
    }

    /// The trace as text, which [`parse`] reads.
    pub fn text(&self) -> String {
        let mut text = format!("{MAGIC}\n");
        for (key, value) in &self.header {
            let _infallible = writeln!(text, "H {key}={value}");
        }
        for stream in &self.streams {
            let _infallible = match stream.depth {
                Some(depth) => write!(text, "S {} mode=closed depth={depth}", stream.name),
                None => write!(text, "S {} mode=open", stream.name),
            };
            if let Some(dev) = stream.dev {
                let _infallible = write!(text, " dev={dev}");
            }
            text.push('\n');
        }
        for stream in &self.streams {
            for event in &stream.events {
                let _infallible = writeln!(text, "{} {} {}", when(event.when), stream.name, verb(&event.verb));
            }
        }
        text
    }
}

fn micros(time: Ns) -> String {
    match time % 1000 {
        0 => (time / 1000).to_string(),
        rest => format!("{}.{rest:03}", time / 1000),
    }
}

fn when(when: When) -> String {
    match when {
        When::Asap => "-".into(),
        When::After(time) => format!("+{}", micros(time)),
        When::At(time) => micros(time),
    }
}

fn verb(verb: &Verb) -> String {
    let word = verb.word();
    match verb {
        Verb::Read { dev, off, len } | Verb::Discard { dev, off, len } => {
            format!("{word} dev={dev} off={off} len={len}")
        }
        Verb::Write { dev, off, len, fua } => {
            format!("{word} dev={dev} off={off} len={len}{}", if *fua { " flags=fua" } else { "" })
        }
        Verb::Flush { dev } | Verb::Create { dev } => format!("{word} dev={dev}"),
        Verb::Snap { dev, origin } => format!("{word} dev={dev} origin={origin}"),
        Verb::Delete { dev, policy: None } => format!("{word} dev={dev}"),
        Verb::Delete { dev, policy: Some(policy) } => format!("{word} dev={dev} policy={}", policy.name),
        Verb::Lookup { dev, off } => format!("{word} dev={dev} off={off}"),
        Verb::Sleep(time) => format!("{word} us={}", micros(*time)),
        Verb::Mark(name) | Verb::Wait(name) => format!("{word} name={name}"),
        Verb::Expect(time) => format!("{word} lat={}", micros(*time)),
        Verb::Commit | Verb::TrimPool | Verb::Hold | Verb::ReleaseHeld => word.into(),
    }
}

/// Whether a request of `len` sectors from `off` on is one: not empty, and its end is within what a device can have.
fn is_extent(off: u64, len: u64) -> bool {
    len > 0 && off.checked_add(len).is_some_and(|end| end < SECTOR_LIMIT)
}

/// Streams while a recording is read: found by name, however many there are.
#[derive(Debug, Default)]
struct Streams {
    list: Vec<Stream>,
    by_name: HashMap<String, usize>,
}

impl Streams {
    fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn add(&mut self, stream: Stream) -> usize {
        self.by_name.insert(stream.name.clone(), self.list.len());
        self.list.push(stream);
        self.list.len() - 1
    }

    /// The stream of that name, which is added where it is not there. In text `#` would begin a comment.
    fn named(&mut self, name: &str, depth: Option<u64>) -> usize {
        let name = name.replace('#', "_");
        self.find(&name).unwrap_or_else(|| self.add(Stream { name, depth, ..Stream::default() }))
    }
}
