//! Importing I/O logs of fio, versions 2 and 3.
//!
//! A log is of one job, or of several that were given the same file: then each has a header of its own, and becomes a
//! stream of its own.

use super::import::{Account, ImportOptions, Recorded, in_order};
use super::{Stream, TIME_LIMIT, Trace, TraceError, is_extent};
use crate::replay::engine::Ns;
use crate::replay::pool::{Event, Verb, When};

const MICRO: Ns = 1_000;
const MILLI: Ns = 1_000_000;

/// Whether a line begins the log of a job, and whether that has times.
fn header(line: &str) -> Option<bool> {
    match line.trim() {
        "fio version 2 iolog" => Some(false),
        "fio version 3 iolog" => Some(true),
        _ => None,
    }
}

/// Reads a log. Version 2 has no times: its streams are closed.
///
/// # Errors
/// Says which line is wrong, or which file has no mapping.
pub(super) fn import(text: &str, options: &ImportOptions) -> Result<(Trace, Account), TraceError> {
    let Some(timed) = text.lines().next().and_then(header) else {
        let what =
            "neither 'fio version 2 iolog' nor 'fio version 3 iolog': record it with a fio that writes one of them";
        return Err(TraceError { line: 1, what: what.into() });
    };
    let unit = options.unit.unwrap_or_else(|| if timed { find_unit(text) } else { MICRO });
    let mut log = Log { options, timed, unit, account: Account::default(), jobs: Vec::new() };
    let (nr_lines, whole) = (text.lines().count(), text.ends_with('\n'));
    for (line, text) in (1..).zip(text.lines()) {
        match log.line(text) {
            Err(_) if line == nr_lines && !whole && line > 1 => log.account.drop("the last line, which is cut short"),
            result => result.map_err(|what| TraceError { line, what })?,
        }
    }
    let mut trace = Trace::default();
    trace.header.insert("clock".into(), "us".into());
    trace.header.insert("source".into(), "fio-iolog".into());
    if timed {
        trace.header.insert("unit".into(), if unit == MILLI { "ms" } else { "us" }.into());
    }
    let (streams, account) = log.finish();
    trace.streams = streams;
    Ok((trace, account))
}

/// What one job did.
#[derive(Default)]
struct Job {
    /// With times.
    requests: Vec<Recorded>,
    /// Without.
    events: Vec<Event>,
    /// Before the next of them.
    wait: Option<Ns>,
}

struct Log<'o> {
    options: &'o ImportOptions,
    timed: bool,
    unit: Ns,
    account: Account,
    jobs: Vec<Job>,
}

/// A line without its time. File names may have blanks: it is read from its end.
struct Entry<'t> {
    file: &'t str,
    action: &'t str,
    numbers: Vec<&'t str>,
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

fn last_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_end();
    let at = text.rfind(char::is_whitespace).map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    (!text.is_empty()).then(|| text.split_at(at))
}

fn entry(text: &str) -> Option<Entry<'_>> {
    let mut numbers = Vec::new();
    let (mut rest, mut word) = last_word(text)?;
    while is_number(word) && numbers.len() < 2 {
        numbers.insert(0, word);
        (rest, word) = last_word(rest)?;
    }
    let file = rest.trim();
    (!file.is_empty()).then_some(Entry { file, action: word, numbers })
}

impl Log<'_> {
    fn line(&mut self, text: &str) -> Result<(), String> {
        if let Some(timed) = header(text) {
            if timed != self.timed {
                return Err("versions 2 and 3 are mixed: take each job's log by itself".into());
            }
            self.jobs.push(Job::default());
            self.account.taken += 1;
            return Ok(());
        }
        let text = text.trim();
        if text.is_empty() {
            self.account.drop("blank lines");
            return Ok(());
        }
        let (time, text) = match self.timed {
            true => self.time(text)?,
            false => (0, text),
        };
        let entry = entry(text).ok_or("file and action are wanted")?;
        match (entry.action, entry.numbers.len()) {
            ("add" | "open" | "close", 0) => self.account.drop(format!("{} (nothing to do)", entry.action)),
            ("sync_file_range", _) => self.account.drop("sync_file_range (flushes no device)"),
            ("wait", _) if self.timed => self.account.drop("wait (has no meaning in version 3, and fio ignores it)"),
            ("wait", 1..) => self.wait(&entry)?,
            ("read" | "write" | "trim", 2) | ("sync" | "datasync", _) => self.request(time, &entry)?,
            ("read" | "write" | "trim" | "wait", _) => return Err(format!("{} wants numbers behind it", entry.action)),
            (_, 0 | 2) => self.account.drop(format!("{} (not known)", entry.action)),
            _ => return Err("file, action, offset and length are wanted".into()),
        }
        Ok(())
    }

    fn time<'t>(&self, text: &'t str) -> Result<(Ns, &'t str), String> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let time = word.parse::<Ns>().ok().and_then(|time| time.checked_mul(self.unit));
        let wrong = || format!("'{word}' is no time since the beginning: version 3 has one before each file");
        Ok((time.filter(|time| *time < TIME_LIMIT).ok_or_else(wrong)?, rest))
    }

    fn wait(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        let time = number(entry.numbers[0])?.checked_mul(self.unit).filter(|time| *time < TIME_LIMIT);
        let time = time.ok_or("a wait is not that long")?;
        let Some(job) = self.jobs.last_mut() else { return Ok(()) };
        job.wait = Some(job.wait.unwrap_or(0).saturating_add(time).min(TIME_LIMIT - 1));
        self.account.taken += 1;
        self.account.notice(
            "wait, taken as fio's manual has it: microseconds after the request before (--iolog-unit ms: milliseconds)",
        );
        Ok(())
    }

    fn request(&mut self, time: Ns, entry: &Entry<'_>) -> Result<(), String> {
        let file = entry.file;
        let target = self.options.target(file).ok_or_else(|| {
            format!("'{file}' has no mapping to a device: --map '{file}:DEVICE', or --map '{file}:-' to leave it out")
        })?;
        let Some(dev) = target.dev else {
            self.account.drop(format!("requests of {file} (left out)"));
            return Ok(());
        };
        let extent = || match entry.numbers.as_slice() {
            [off, len] => sectors(number(off)?, number(len)?, target.start),
            _ => Err("offset and length are wanted".into()),
        };
        let verb = match entry.action {
            "read" => extent().map(|(off, len)| Verb::Read { dev, off, len })?,
            "write" => extent().map(|(off, len)| Verb::Write { dev, off, len, fua: false })?,
            "trim" => extent().map(|(off, len)| Verb::Discard { dev, off, len })?,
            _ => Verb::Flush { dev },
        };
        let Some(job) = self.jobs.last_mut() else { return Ok(()) };
        if self.timed {
            job.requests.push(Recorded { time, verb, took: None });
        } else {
            let when = job.wait.take().map_or(When::Asap, When::After);
            job.events.push(Event { when, verb });
        }
        self.account.taken += 1;
        Ok(())
    }

    fn finish(mut self) -> (Vec<Stream>, Account) {
        let mut streams = Vec::new();
        for (number, job) in (1..).zip(self.jobs) {
            if job.wait.is_some() {
                self.account.notice("wait with nothing behind it");
            }
            let name = if number == 1 { "fio".to_string() } else { format!("fio-{number}") };
            let depth = (!self.timed).then_some(self.options.depth);
            let mut events = in_order(job.requests, &mut self.account);
            events.extend(job.events);
            let only =
                events.first().and_then(device).filter(|dev| events.iter().all(|event| device(event) == Some(*dev)));
            streams.push(Stream { name, depth, dev: only, events });
        }
        (streams, self.account)
    }
}

fn device(event: &Event) -> Option<crate::base::ThinId> {
    match event.verb {
        Verb::Flush { dev } => Some(dev),
        ref verb => verb.extent().map(|(dev, _, _)| dev),
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("'{word}' is no number below 2^64"))
}

/// Bytes as sectors.
fn sectors(off: u64, len: u64, start: u64) -> Result<(u64, u64), String> {
    if !off.is_multiple_of(512) || !len.is_multiple_of(512) {
        return Err(format!(
            "{len} bytes from {off} on are not in whole sectors of 512 bytes, as a thin device wants them: record with \
             direct=1, or with sizes that are multiples of 512"
        ));
    }
    let (off, len) = ((off / 512).saturating_add(start), len / 512);
    if is_extent(off, len) { Ok((off, len)) } else { Err(format!("no device has {len} sectors from sector {off} on")) }
}

/// Milliseconds where more requests than two share a time, on average; else microseconds.
fn find_unit(text: &str) -> Ns {
    let (mut requests, mut span) = (0_u64, 0_u64);
    let (mut first, mut last) = (None, 0);
    for line in text.lines() {
        if header(line).is_some() {
            span += last - first.take().unwrap_or(last);
            continue;
        }
        let Some((time, rest)) = line.trim().split_once(char::is_whitespace) else { continue };
        let is_request = entry(rest).is_some_and(|entry| ["read", "write", "trim"].contains(&entry.action));
        if let (true, Ok(time)) = (is_request, time.parse::<u64>()) {
            requests += 1;
            let begin = *first.get_or_insert(time);
            last = time.max(begin);
        }
    }
    span = span.saturating_add(last - first.unwrap_or(last));
    if requests > span.saturating_mul(2).max(1) { MILLI } else { MICRO }
}
