//! Importing logs of pool messages: lines of a time and what `dmsetup message POOL 0` was told.
//!
//! A time with a fraction is in seconds, one without is in microseconds, and a whole log is of one kind. The line
//! `TIME start` says when the recording beside it began; what comes before is not taken.

use super::import::{Account, Recorded, in_order};
use super::{Stream, TIME_LIMIT, Trace, TraceError};
use crate::base::ThinId;
use crate::replay::engine::Ns;
use crate::replay::pool::Verb;

const WORDS: [&str; 7] = [
    "start",
    "create_thin",
    "create_snap",
    "delete",
    "reserve_metadata_snap",
    "release_metadata_snap",
    "set_transaction_id",
];

/// A time, whether it has a fraction, and the words of the message.
fn split(text: &str) -> Option<(Ns, bool, Vec<&str>)> {
    // What was typed may have been logged whole: `dmsetup message POOL 0 "delete 5"`.
    let mut words = text.split(|c: char| c.is_whitespace() || c == '"' || c == '\'').filter(|word| !word.is_empty());
    let (time, fraction) = time(words.next()?)?;
    let mut words: Vec<&str> = words.collect();
    if let ["dmsetup", "message", _, _, rest @ ..] = words.as_slice() {
        words = rest.to_vec();
    }
    Some((time, fraction, words))
}

/// `SECONDS.FRACTION` with up to nine digits, or microseconds.
fn time(word: &str) -> Option<(Ns, bool)> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match word.split_once('.') {
        Some((seconds, part)) if digits(seconds) && digits(part) && part.len() <= 9 => {
            let part: Ns = format!("{part:0<9}").parse().ok()?;
            Some((seconds.parse::<Ns>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)?, true))
        }
        None if digits(word) => Some((word.parse::<Ns>().ok()?.checked_mul(1_000)?, false)),
        _ => None,
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty() || text.trim_start().starts_with('#')
}

/// Whether the first line that says something is a time and a message.
pub(super) fn is_log(text: &str) -> bool {
    let first = text.lines().find(|line| !is_blank(line)).and_then(split);
    first.is_some_and(|(_, _, words)| words.first().is_some_and(|word| WORDS.contains(word)))
}

/// Reads a log.
///
/// # Errors
/// Says which line is wrong.
pub(super) fn import(text: &str) -> Result<(Trace, Account), TraceError> {
    let mut account = Account::default();
    let is_start =
        |line: &str| split(line).filter(|(_, _, words)| words.as_slice() == ["start"]).map(|(time, ..)| time);
    let start = text.lines().find_map(is_start);
    let (mut form, mut started) = (None, false);
    let mut requests: Vec<Recorded> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let wrong = |what: String| TraceError { line, what };
        if is_blank(text) {
            account.drop("blank lines and comments");
            continue;
        }
        let (time, fraction, words) = split(text).ok_or_else(|| {
            wrong("a time is wanted, as seconds with a fraction or as microseconds, and a message behind it".into())
        })?;
        if *form.get_or_insert(fraction) != fraction {
            return Err(wrong(
                "seconds with a fraction and microseconds are mixed: write all times in one form".into(),
            ));
        }
        if words.as_slice() == ["start"] {
            if std::mem::replace(&mut started, true) {
                return Err(wrong("the recording has started already: one line says so".into()));
            }
            account.taken += 1;
            continue;
        }
        let Some(time) = time.checked_sub(start.unwrap_or(0)) else {
            account.drop("messages before the start");
            continue;
        };
        if time >= TIME_LIMIT {
            let what =
                "this is a time of the calendar: write a line 'TIME start' with the time at which the recording began";
            return Err(wrong(what.into()));
        }
        match verb(&words).map_err(wrong)? {
            Some(verb) => {
                account.taken += 1;
                requests.push(Recorded { time, verb, took: None });
            }
            None => account.drop("set_transaction_id (changes nothing here)"),
        }
    }
    let events = in_order(requests, &mut account);
    let mut trace = Trace::default();
    trace.header.insert("clock".into(), "us".into());
    trace.header.insert("source".into(), "messages".into());
    trace.streams.push(Stream { name: "messages".into(), depth: None, dev: None, events });
    Ok((trace, account))
}

fn verb(words: &[&str]) -> Result<Option<Verb>, String> {
    let id = |word: &str| word.parse().map(ThinId).map_err(|_| format!("'{word}' is no device id: a number is wanted"));
    Ok(Some(match words {
        ["create_thin", dev] => Verb::Create { dev: id(dev)? },
        ["create_snap", dev, origin] => Verb::Snap { dev: id(dev)?, origin: id(origin)? },
        ["delete", dev] => Verb::Delete { dev: id(dev)?, policy: None },
        ["reserve_metadata_snap"] => Verb::Hold,
        ["release_metadata_snap"] => Verb::ReleaseHeld,
        ["set_transaction_id", ..] => return Ok(None),
        _ => {
            return Err(format!(
                "'{}' is no message of a pool with what it needs: create_thin ID, create_snap ID ORIGIN, delete ID, \
                 reserve_metadata_snap, release_metadata_snap, set_transaction_id OLD NEW, or start",
                words.join(" ")
            ));
        }
    }))
}
