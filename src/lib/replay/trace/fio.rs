//! Importing I/O logs of fio, versions 2 and 3.

use super::{Dropped, ImportOptions, Streams, TIME_LIMIT, Trace, TraceError, drop_one, is_extent, put_in_order};
use crate::replay::engine::Ns;
use crate::replay::pool::{Event, Verb, When};

const MICRO: Ns = 1_000;
const MILLI: Ns = 1_000_000;

/// Reads a log. Version 2 has no times: its streams are closed.
///
/// # Errors
/// Says which line is wrong, or which file has no mapping.
pub fn import(text: &str, options: &ImportOptions) -> Result<(Trace, Dropped), TraceError> {
    let timed = match text.lines().next().map(str::trim) {
        Some("fio version 2 iolog") => false,
        Some("fio version 3 iolog") => true,
        _ => {
            return Err(TraceError { line: 1, what: "neither 'fio version 2 iolog' nor 'fio version 3 iolog'".into() });
        }
    };
    let unit = options.unit.unwrap_or_else(|| if timed { find_unit(text) } else { MICRO });
    let (mut trace, mut streams, mut dropped) = (Trace::default(), Streams::default(), Dropped::new());
    trace.header.insert("clock".into(), "us".into());
    trace.header.insert("source".into(), "fio-iolog".into());
    if timed {
        trace.header.insert("unit".into(), if unit == MILLI { "ms" } else { "us" }.into());
    }
    for (line, text) in (1..).zip(text.lines()).skip(1) {
        let wrong = |what: String| TraceError { line, what };
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let when = if timed {
            let time = words.remove(0).parse::<Ns>().ok().and_then(|time| time.checked_mul(unit));
            When::At(time.filter(|time| *time < TIME_LIMIT).ok_or_else(|| wrong("a time is wanted".into()))?)
        } else {
            When::Asap
        };
        let [name, action, rest @ ..] = words.as_slice() else {
            return Err(wrong("file and action are wanted".into()));
        };
        if ["add", "open", "close"].contains(action) {
            drop_one(&mut dropped, format!("{action} (nothing to do)"));
            continue;
        }
        if *action == "wait" {
            let time = rest.first().and_then(|word| word.parse::<Ns>().ok()).and_then(|time| time.checked_mul(MICRO));
            let time = time.filter(|time| *time < TIME_LIMIT).ok_or_else(|| wrong("wait wants microseconds".into()))?;
            let depth = (!timed).then_some(options.depth);
            let index = streams.named(name, depth);
            streams.list[index].events.push(Event { when, verb: Verb::Sleep(time) });
            continue;
        }
        let Some(target) = options.target(name) else {
            return Err(wrong(format!("'{name}' has no mapping to a device: --map {name}:DEVICE")));
        };
        let (dev, start) = (target.dev, target.start);
        let number = |at: usize| rest.get(at).and_then(|word| word.parse::<u64>().ok());
        let extent = || match (number(0), number(1)) {
            (Some(off), Some(len)) if off % 512 == 0 && len % 512 == 0 => {
                let (off, len) = ((off / 512).saturating_add(start), len / 512);
                is_extent(off, len).then_some((off, len)).ok_or_else(|| wrong(format!("{len} sectors from {off} on")))
            }
            (Some(_), Some(_)) => Err(wrong("offset and length are not in whole sectors".into())),
            _ => Err(wrong("offset and length are wanted".into())),
        };
        let verb = match *action {
            "read" => extent().map(|(off, len)| Verb::Read { dev, off, len })?,
            "write" => extent().map(|(off, len)| Verb::Write { dev, off, len, fua: false })?,
            "trim" => extent().map(|(off, len)| Verb::Discard { dev, off, len })?,
            "sync" | "datasync" => Verb::Flush { dev },
            _ => {
                drop_one(&mut dropped, format!("{action} (not known)"));
                continue;
            }
        };
        let depth = (!timed).then_some(options.depth);
        let index = streams.named(name, depth);
        let stream = &mut streams.list[index];
        stream.dev = Some(dev);
        stream.events.push(Event { when, verb });
    }
    trace.streams = streams.list;
    trace.streams.iter_mut().for_each(|stream| put_in_order(stream, &mut dropped));
    Ok((trace, dropped))
}

/// Milliseconds where many events share a time, else microseconds.
fn find_unit(text: &str) -> Ns {
    let times: Vec<u64> = text
        .lines()
        .skip(1)
        .filter(|line| ["read", "write", "trim"].iter().any(|action| line.split_whitespace().nth(2) == Some(*action)))
        .filter_map(|line| line.split_whitespace().next().and_then(|time| time.parse().ok()))
        .collect();
    let span = match (times.first(), times.last()) {
        (Some(first), Some(last)) => last.saturating_sub(*first),
        _ => return MICRO,
    };
    if (times.len() as u64) > span.saturating_mul(2).max(1) { MILLI } else { MICRO }
}
