//! Importing what blkparse prints in its default form.

use super::import::{Account, ImportOptions, Mapping, Recorded, Recording, unknown_form};
use super::{TIME_LIMIT, Trace, TraceError, is_extent};
use crate::base::ThinId;
use crate::replay::engine::Ns;
use crate::replay::pool::Verb;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A line of an event.
struct Line<'t> {
    device: &'t str,
    time: Ns,
    process: &'t str,
    action: &'t str,
    flags: &'t str,
    extent: Option<(u64, u64)>,
    /// In remap lines, the device above and its sector.
    above: Option<(&'t str, u64)>,
}

/// A request that was sent and is not complete: its stream, the number of its event, and what is still to be done.
struct Sent {
    stream: usize,
    event: usize,
    len: u64,
    left: u64,
}

/// What a request that is under way is found by: device, whether it is read, first sector.
type Key<'t> = (&'t str, bool, u64);

struct Reader<'t, 'o> {
    options: &'o ImportOptions,
    account: Account,
    recording: Recording,
    open: BTreeMap<Key<'t>, VecDeque<Sent>>,
    /// Flushes without sectors, by device.
    flushes: BTreeMap<&'t str, VecDeque<Sent>>,
    is_event: bool,
}

/// Reads the text. Lines that are no events, such as the summary, are counted.
///
/// # Errors
/// Where a device has no mapping, or no line is an event.
pub(super) fn import(text: &str, options: &ImportOptions) -> Result<(Trace, Account), TraceError> {
    let (account, recording) = (Account::default(), Recording::default());
    let (open, flushes) = (BTreeMap::new(), BTreeMap::new());
    let mut reader = Reader { options, account, recording, open, flushes, is_event: false };
    for (number, line) in (1..).zip(text.lines()) {
        reader.line(line).map_err(|device| TraceError { line: number, what: unmapped(device, text) })?;
    }
    if !reader.is_event {
        let line = text.lines().position(|line| !line.trim().is_empty()).unwrap_or(0) + 1;
        return Err(TraceError { line, what: unknown_form() });
    }
    let Reader { mut account, recording, open, flushes, .. } = reader;
    for _ in open.values().chain(flushes.values()).flatten() {
        account.notice("requests without a completion");
    }
    let mut trace = Trace::default();
    trace.header.insert("clock".into(), "us".into());
    trace.header.insert("source".into(), "blkparse".into());
    trace.streams = recording.finish(&mut account);
    Ok((trace, account))
}

impl<'t> Reader<'t, '_> {
    /// Takes a line in. An error is the device that has no mapping.
    fn line(&mut self, text: &'t str) -> Result<(), &'t str> {
        let Some(line) = read(text) else {
            self.account.drop(match text.trim() {
                "" => "blank lines",
                text if has_device(text) => "lines that begin as events do and can't be read",
                _ => "lines that are no events",
            });
            return Ok(());
        };
        self.is_event = true;
        if line.action == "A"
            && let Some((above, _)) = line.above
        {
            self.account.notice(format!("remap lines: {above} lies on {}", line.device));
        }
        if line.action == "C" {
            let done = self.complete(&line);
            if done {
                self.account.taken += 1
            } else {
                self.account.drop("completions without a request")
            }
            return Ok(());
        }
        if line.action.strip_prefix(self.options.action) != Some("") {
            self.account.drop(format!("action {} (not asked for)", line.action));
            return Ok(());
        }
        // With remap lines, a request is one of the device above.
        let (name, first) = match (self.options.action, line.above, line.extent) {
            ('A', Some((above, sector)), _) => (above, sector),
            (_, _, extent) => (line.device, extent.map_or(0, |(sector, _)| sector)),
        };
        match self.options.target(name) {
            None => Err(name),
            Some(Mapping { dev: None, .. }) => {
                self.account.drop(format!("requests of {name} (left out)"));
                Ok(())
            }
            Some(Mapping { dev: Some(dev), start, .. }) => {
                self.request(&line, name, *dev, first.saturating_add(*start));
                Ok(())
            }
        }
    }

    fn request(&mut self, line: &Line<'t>, name: &str, dev: ThinId, first: u64) {
        let len = line.extent.map(|(_, len)| len);
        let verbs = match verbs(line.flags, dev, len.map(|len| (first, len))) {
            Ok(verbs) => verbs,
            Err(why) => return self.account.drop(why),
        };
        let name = if self.options.by_process { format!("{name}/{}", line.process) } else { name.to_string() };
        let stream = self.recording.stream(&name);
        let requests = &mut self.recording.requests[stream];
        requests.extend(verbs.into_iter().map(|verb| Recorded { time: line.time, verb, took: None }));
        let sent = Sent { stream, event: requests.len() - 1, len: len.unwrap_or(0), left: len.unwrap_or(0) };
        self.account.taken += 1;
        match line.extent {
            Some((sector, 1..)) => {
                self.open.entry((line.device, is_read(line.flags), sector)).or_default().push_back(sent)
            }
            _ => self.flushes.entry(line.device).or_default().push_back(sent),
        }
    }

    /// Notes when requests were complete; says whether there was any. It is the same request, or one that was split,
    /// or some that were merged.
    fn complete(&mut self, line: &Line<'t>) -> bool {
        let (device, read) = (line.device, is_read(line.flags));
        let Some((sector, len @ 1..)) = line.extent else {
            let sent = self.flushes.get_mut(device).and_then(VecDeque::pop_front);
            return sent.is_some_and(|sent| self.took(&sent, line.time));
        };
        let whole = |sent: &Sent| sent.len == len && sent.left == len;
        if let Some(list) = self.open.get_mut(&(device, read, sector))
            && let Some(at) = list.iter().take(SAME).position(whole)
        {
            let sent = list.remove(at);
            self.tidy((device, read, sector));
            return sent.is_some_and(|sent| self.took(&sent, line.time));
        }
        // A part of one that began at this sector or before.
        let end = sector.saturating_add(len);
        let before = self.open.range_mut((device, read, 0)..=(device, read, sector)).next_back();
        if let Some((key, list)) = before
            && let Some(sent) = list.front_mut().filter(|sent| key.2.saturating_add(sent.len) >= end && sent.len > len)
        {
            sent.left = sent.left.saturating_sub(len);
            let (key, done) = (*key, sent.left == 0);
            let sent = if done { list.pop_front() } else { None };
            self.tidy(key);
            return sent.is_none_or(|sent| self.took(&sent, line.time));
        }
        // All that lie within it.
        let keys: Vec<Key<'t>> =
            self.open.range((device, read, sector)..(device, read, end)).map(|(key, _)| *key).collect();
        let mut any = false;
        for key in keys {
            let Some(list) = self.open.get_mut(&key) else { continue };
            let within = list.front().is_some_and(|sent| key.2.saturating_add(sent.len) <= end);
            if let Some(sent) = within.then(|| list.pop_front()).flatten() {
                any = true;
                self.took(&sent, line.time);
            }
            self.tidy(key);
        }
        any
    }

    fn tidy(&mut self, key: Key<'t>) {
        if self.open.get(&key).is_some_and(VecDeque::is_empty) {
            self.open.remove(&key);
        }
    }

    fn took(&mut self, sent: &Sent, now: Ns) -> bool {
        if let Some(request) = self.recording.requests.get_mut(sent.stream).and_then(|list| list.get_mut(sent.event)) {
            request.took = Some(now.saturating_sub(request.time));
        }
        true
    }
}

/// Of requests under way for the same sector, so many are looked at.
const SAME: usize = 64;

/// What a request asks for: a flush before, and a read, write or discard. An error says why it is not taken.
fn verbs(flags: &str, dev: ThinId, extent: Option<(u64, u64)>) -> Result<Vec<Verb>, String> {
    let mut verbs = Vec::new();
    let operation = flags.find(['R', 'W', 'D']);
    let (before, after) = flags.split_at(operation.unwrap_or(flags.len()));
    if before.contains('F') {
        verbs.push(Verb::Flush { dev });
    }
    let is_flush = !verbs.is_empty();
    match (extent, after.chars().next()) {
        (None | Some((_, 0)), _) if is_flush => {}
        (None, _) => return Err("requests without sectors".into()),
        (Some((off, len)), _) if !is_extent(off, len) => return Err("requests of a length that can't be".into()),
        (Some((off, len)), Some('R')) => verbs.push(Verb::Read { dev, off, len }),
        (Some((off, len)), Some('D')) => verbs.push(Verb::Discard { dev, off, len }),
        (Some((off, len)), Some('W')) => verbs.push(Verb::Write { dev, off, len, fua: after.contains('F') }),
        _ if is_flush => {}
        _ => return Err(format!("flags {flags} (neither read, write, discard nor flush)")),
    }
    Ok(verbs)
}

fn is_read(flags: &str) -> bool {
    flags.contains('R')
}

fn has_device(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(is_device)
}

/// `major,minor`.
fn is_device(word: &str) -> bool {
    word.split_once(',').is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok())
}

/// `maj,min cpu seq seconds pid action flags [sector + count] [<- (maj,min) sector] [process]`.
fn read(text: &str) -> Option<Line<'_>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [device, cpu, sequence, time, process, action, flags, rest @ ..] = words.as_slice() else { return None };
    let is_event = is_device(device) && cpu.parse::<u32>().is_ok() && sequence.parse::<u64>().is_ok();
    let (seconds, part) = time.split_once('.').filter(|_| is_event)?;
    let digits = (1..=9).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let part: Ns = digits.then(|| format!("{part:0<9}"))?.parse().ok()?;
    let time = seconds.parse::<Ns>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)?;
    let (extent, rest) = match rest {
        [sector, "+", count, rest @ ..] => (Some((sector.parse().ok()?, count.parse().ok()?)), rest),
        rest => (None, rest),
    };
    let above = match rest {
        ["<-", device, sector, ..] => {
            let device = device.trim_matches(['(', ')']);
            is_device(device).then_some((device, sector.parse().ok()?))
        }
        _ => None,
    };
    (time < TIME_LIMIT).then_some(Line { device, time, process, action, flags, extent, above })
}

/// What is said of a device without a mapping.
fn unmapped(device: &str, text: &str) -> String {
    let lines = text.lines().filter_map(read);
    let above: BTreeSet<&str> =
        lines.filter(|line| line.device == device).filter_map(|line| Some(line.above?.0)).collect();
    let mut what =
        format!("device {device} has no mapping: --map {device}:DEVICE, or --map {device}:- to leave it out");
    if !above.is_empty() {
        let above: Vec<&str> = above.into_iter().collect();
        what.push_str(&format!(
            "; by its remap lines it lies below {}, so that it may be the pool and no thin device: --action A takes \
             its requests as those of the devices above",
            above.join(" and ")
        ));
    }
    what
}
