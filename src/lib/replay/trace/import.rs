//! What importers have in common: where recorded names went, what became of every line, and which form a file has.

use super::{MAGIC, Stream, Streams, Trace, TraceError, blkparse, fio, messages, parse};
use crate::base::ThinId;
use crate::replay::engine::Ns;
use crate::replay::pool::{Event, Verb, When};
use std::collections::BTreeMap;

/// Where a recorded file or device went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The name in the recording.
    pub name: String,
    /// The thin device; `None` where its requests are left out.
    pub dev: Option<ThinId>,
    /// What is added to every offset, in sectors.
    pub start: u64,
}

impl Mapping {
    /// Reads `NAME:DEV`, `NAME:DEV:START`, or `NAME:-` for what is to be left out. A name may have colons itself: the
    /// numbers are what stands last, so that `x:5` for device 6 is `x:5:6:0`.
    ///
    /// # Errors
    /// Where it is none of them.
    pub fn parse(text: &str) -> Result<Mapping, String> {
        let wrong = || format!("'{text}' is not NAME:DEVICE, NAME:DEVICE:SECTOR or NAME:-");
        let number = |text: &str| text.parse::<u64>().ok();
        let (head, last) = text.rsplit_once(':').ok_or_else(wrong)?;
        let longer = head.rsplit_once(':').and_then(|(name, dev)| Some((name, number(dev)?, number(last)?)));
        let (name, dev, start) = match longer {
            Some((name, dev, start)) => (name, Some(dev), start),
            None if last == "-" => (head, None, 0),
            None => (head, Some(number(last).ok_or_else(wrong)?), 0),
        };
        if name.is_empty() {
            return Err(wrong());
        }
        Ok(Mapping { name: name.into(), dev: dev.map(ThinId), start })
    }
}

/// How recordings are taken in.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Where files and devices of a recording went.
    pub map: Vec<Mapping>,
    /// Requests under way at once, where a recording has no times.
    pub depth: u64,
    /// The unit of times in an iolog; found from the spread where it is not given.
    pub unit: Option<Ns>,
    /// The action of block traces that counts: Q, D or I, or A for requests of the devices above.
    pub action: char,
    /// A stream for each process, not only for each device.
    pub by_process: bool,
    /// Unknown verbs are counted, not refused.
    pub lenient: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions { map: Vec::new(), depth: 8, unit: None, action: 'Q', by_process: false, lenient: false }
    }
}

impl ImportOptions {
    /// Where a name went. With one mapping of the name `*`, everything.
    pub(super) fn target(&self, name: &str) -> Option<&Mapping> {
        let is_it = |mapping: &&Mapping| mapping.name == name || name.rsplit('/').next() == Some(&mapping.name);
        self.map.iter().find(is_it).or_else(|| self.map.iter().find(|mapping| mapping.name == "*"))
    }
}

/// What became of the lines of a recording: each is taken or dropped, and none is both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Lines that say something in the trace: requests, completions, messages, headers.
    pub taken: u64,
    /// Lines that don't, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// What else was noticed. These lines are among those above.
    pub noticed: BTreeMap<String, u64>,
}

impl Account {
    /// A line is not in the trace.
    pub(super) fn drop(&mut self, why: impl Into<String>) {
        *self.dropped.entry(why.into()).or_default() += 1;
    }

    /// Something is worth telling.
    pub(super) fn notice(&mut self, what: impl Into<String>) {
        *self.noticed.entry(what.into()).or_default() += 1;
    }

    /// All lines.
    pub fn lines(&self) -> u64 {
        self.taken + self.dropped.values().sum::<u64>()
    }
}

/// A request of a recording.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) time: Ns,
    pub(super) verb: Verb,
    /// How long it took.
    pub(super) took: Option<Ns>,
}

/// Requests with times as events. Lines of several processors or jobs are not always in order; they are put in order.
pub(super) fn in_order(mut requests: Vec<Recorded>, account: &mut Account) -> Vec<Event> {
    for pair in requests.windows(2) {
        if let [before, after] = pair
            && after.time < before.time
        {
            account.notice("times that went back (put in order)");
        }
    }
    requests.sort_by_key(|request| request.time);
    let mut events = Vec::new();
    for Recorded { time, verb, took } in requests {
        events.push(Event { when: When::At(time), verb });
        events.extend(took.map(|took| Event { when: When::Asap, verb: Verb::Expect(took) }));
    }
    events
}

/// Streams of a recording with their requests, in the order in which they came up.
#[derive(Debug, Default)]
pub(super) struct Recording {
    streams: Streams,
    pub(super) requests: Vec<Vec<Recorded>>,
}

impl Recording {
    /// The number of the stream of that name.
    pub(super) fn stream(&mut self, name: &str) -> usize {
        let index = self.streams.named(name, None);
        self.requests.resize_with(self.streams.list.len(), Vec::new);
        index
    }

    /// The streams with their events.
    pub(super) fn finish(self, account: &mut Account) -> Vec<Stream> {
        let mut streams = self.streams.list;
        for (stream, requests) in streams.iter_mut().zip(self.requests) {
            stream.events = in_order(requests, account);
        }
        streams
    }
}

/// A trace in any form that is known: by its first lines. The account has every line.
///
/// # Errors
/// Says which line is wrong, and what to do.
pub fn read_any(text: &str, options: &ImportOptions) -> Result<(Trace, Account), TraceError> {
    let first = text.lines().next().unwrap_or("");
    let (trace, mut account) = if text.trim().is_empty() {
        let what = "there is nothing in it: was the recording stopped properly, and blkparse run on it?".into();
        return Err(TraceError { line: 1, what });
    } else if first.starts_with("thin-trace") {
        parse::parse_counted(text, options.lenient)?
    } else if first.starts_with("fio version") {
        fio::import(text, options)?
    } else if messages::is_log(text) {
        messages::import(text)?
    } else {
        blkparse::import(text, options)?
    };
    if !text.ends_with('\n') {
        account.notice("the last line has no end: the file may be cut short");
    }
    Ok((trace, account))
}

/// What is said of a file in no known form.
pub(super) fn unknown_form() -> String {
    format!(
        "this is no trace ('{MAGIC}'), no I/O log of fio ('fio version 2 iolog' or 3: --write_iolog), no log of pool \
         messages, and not what blkparse prints without -f, -F or -O: convert it to one of these"
    )
}

#[cfg(test)]
mod tests;
