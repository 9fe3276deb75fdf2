//! Importing what blkparse prints in its default form.

use super::{Dropped, ImportOptions, Streams, TIME_LIMIT, Trace, TraceError, drop_one, is_extent, put_in_order};
use crate::replay::engine::Ns;
use crate::replay::pool::{Event, Verb, When};
use std::collections::{BTreeMap, VecDeque};

/// A request that was sent: its stream, the number of its event, and when.
type Sent = (usize, usize, Ns);

/// A line: device, time, process, action, flags, sector and count.
struct Line<'t> {
    device: &'t str,
    time: Ns,
    process: &'t str,
    action: &'t str,
    flags: &'t str,
    extent: Option<(u64, u64)>,
}

/// Reads the text. Lines that are no events, such as the summary, are counted.
///
/// # Errors
/// Where a device has no mapping.
pub fn import(text: &str, options: &ImportOptions) -> Result<(Trace, Dropped), TraceError> {
    let (mut trace, mut streams, mut dropped) = (Trace::default(), Streams::default(), Dropped::new());
    trace.header.insert("clock".into(), "us".into());
    trace.header.insert("source".into(), "blkparse".into());
    // Where a request is, until it completes: stream, number of its event, time.
    let mut open: BTreeMap<(String, u64, u64), VecDeque<Sent>> = BTreeMap::new();
    let mut expected: Vec<BTreeMap<usize, Ns>> = Vec::new();
    for (number, text) in (1..).zip(text.lines()) {
        let Some(line) = read(text) else {
            if !text.trim().is_empty() {
                drop_one(&mut dropped, "lines that are no events");
            }
            continue;
        };
        let key = line.extent.map(|(off, len)| (line.device.to_string(), off, len));
        if line.action == "C" {
            match key.and_then(|key| open.get_mut(&key)).and_then(VecDeque::pop_front) {
                Some((stream, event, time)) => _ = expected[stream].insert(event, line.time.saturating_sub(time)),
                None => drop_one(&mut dropped, "completions without a request"),
            }
            continue;
        }
        if line.action != options.action.to_string() {
            drop_one(&mut dropped, format!("action {} (not asked for)", line.action));
            continue;
        }
        let Some(target) = options.target(line.device) else {
            let what = format!("device {0} has no mapping: --map {0}:DEVICE", line.device);
            return Err(TraceError { line: number, what });
        };
        let verbs = verbs(&line, target.dev, target.start, &mut dropped);
        if verbs.is_empty() {
            continue;
        }
        let name =
            if options.by_process { format!("{}/{}", line.device, line.process) } else { line.device.to_string() };
        let index = streams.named(&name, None);
        let stream = &mut streams.list[index];
        stream.dev = Some(target.dev);
        for verb in verbs {
            stream.events.push(Event { when: When::At(line.time), verb });
        }
        let event = stream.events.len() - 1;
        expected.resize(streams.list.len(), BTreeMap::new());
        if let Some(key) = key {
            open.entry(key).or_default().push_back((index, event, line.time));
        }
    }
    for (stream, expected) in streams.list.iter_mut().zip(expected) {
        let events = std::mem::take(&mut stream.events);
        for (index, event) in events.into_iter().enumerate() {
            stream.events.push(event);
            let expect = expected.get(&index).map(|time| Event { when: When::Asap, verb: Verb::Expect(*time) });
            stream.events.extend(expect);
        }
        put_in_order(stream, &mut dropped);
    }
    trace.streams = streams.list;
    Ok((trace, dropped))
}

/// What a line asks for: a flush before, and a read, write or discard.
fn verbs(line: &Line<'_>, dev: crate::base::ThinId, start: u64, dropped: &mut Dropped) -> Vec<Verb> {
    let mut verbs = Vec::new();
    let operation = line.flags.find(['R', 'W', 'D']);
    let (before, after) = line.flags.split_at(operation.unwrap_or(line.flags.len()));
    if before.contains('F') {
        verbs.push(Verb::Flush { dev });
    }
    let Some((off, len)) = line.extent else {
        if verbs.is_empty() {
            drop_one(dropped, format!("{} without sectors", line.action));
        }
        return verbs;
    };
    let off = off.saturating_add(start);
    match after.chars().next() {
        _ if !is_extent(off, len) => drop_one(dropped, "requests without a sensible length"),
        Some('R') => verbs.push(Verb::Read { dev, off, len }),
        Some('D') => verbs.push(Verb::Discard { dev, off, len }),
        Some('W') => verbs.push(Verb::Write { dev, off, len, fua: after.contains('F') }),
        _ if verbs.is_empty() => drop_one(dropped, format!("flags {} (neither read, write nor discard)", line.flags)),
        _ => {}
    }
    verbs
}

/// `maj,min cpu seq seconds pid action flags [sector + count] [process]`.
fn read(text: &str) -> Option<Line<'_>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [device, _cpu, _sequence, time, process, action, flags, rest @ ..] = words.as_slice() else { return None };
    let (major, minor) = device.split_once(',')?;
    (major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok()).then_some(())?;
    let (seconds, part) = time.split_once('.')?;
    let part: Ns = format!("{part:0<9}").get(..9)?.parse().ok()?;
    let time = seconds.parse::<Ns>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)?;
    let extent = match rest {
        [sector, "+", count, ..] => Some((sector.parse().ok()?, count.parse().ok()?)),
        _ => None,
    };
    (time < TIME_LIMIT).then_some(Line { device, time, process, action, flags, extent })
}
