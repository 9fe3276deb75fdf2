//! Reading the text form.

use super::import::Account;
use super::{MAGIC, Stream, Streams, TIME_LIMIT, Trace, TraceError, is_extent};
use crate::base::ThinId;
use crate::replay::engine::Ns;
use crate::replay::policy::Policy;
use crate::replay::pool::{Event, Verb, When};
use std::collections::BTreeMap;

/// Keys and values of a line.
type Keys<'t> = BTreeMap<&'t str, &'t str>;

/// Reads a trace. Unknown keys are ignored; unknown verbs are, too, where `lenient` is set.
///
/// # Errors
/// Says which line is wrong.
pub fn parse(text: &str, lenient: bool) -> Result<Trace, TraceError> {
    parse_counted(text, lenient).map(|(trace, _)| trace)
}

/// The same, and what became of every line.
pub(super) fn parse_counted(text: &str, lenient: bool) -> Result<(Trace, Account), TraceError> {
    let mut lines = (1..).zip(text.lines());
    let first = lines.next().map_or("", |(_, line)| line.trim());
    if first != MAGIC {
        let what = match first.strip_prefix("thin-trace ") {
            Some(version) => format!("version '{version}' is not known, only 1"),
            None => format!("the first line is not '{MAGIC}'"),
        };
        return Err(TraceError { line: 1, what });
    }
    let mut reader = Reader {
        header: BTreeMap::new(),
        streams: Streams::default(),
        clocks: Vec::new(),
        lenient,
        account: Account::default(),
    };
    reader.account.taken = 1;
    for (line, text) in lines {
        let text = text.split('#').next().unwrap_or("");
        let words: Vec<&str> = text.split_whitespace().collect();
        reader.line(&words).map_err(|what| TraceError { line, what })?;
    }
    Ok((Trace { header: reader.header, streams: reader.streams.list }, reader.account))
}

struct Reader {
    header: BTreeMap<String, String>,
    streams: Streams,
    /// The last absolute time of each stream.
    clocks: Vec<Ns>,
    lenient: bool,
    account: Account,
}

impl Reader {
    fn line(&mut self, words: &[&str]) -> Result<(), String> {
        self.account.taken += 1;
        match words {
            [] => Ok(()),
            ["H", rest @ ..] => {
                let keys = keys(rest)?;
                self.header.extend(keys.into_iter().map(|(key, value)| (key.to_string(), value.to_string())));
                match self.header.get("clock").map(String::as_str) {
                    None | Some("us") => Ok(()),
                    Some(other) => Err(format!("the clock '{other}' is not known, only us")),
                }
            }
            ["S", name, rest @ ..] => self.stream(name, &keys(rest)?),
            [time, stream, verb, rest @ ..] => self.event(time, stream, verb, &keys(rest)?),
            _ => Err("time, stream and verb are wanted".into()),
        }
    }

    fn stream(&mut self, name: &str, keys: &Keys<'_>) -> Result<(), String> {
        if self.streams.find(name).is_some() {
            return Err(format!("there is a stream '{name}' already"));
        }
        let depth = number(keys, "depth")?;
        let depth = match keys.get("mode").copied() {
            Some("closed") | None => Some(depth.unwrap_or(1)),
            Some("open") => None,
            Some(other) => return Err(format!("a stream is open or closed, not '{other}'")),
        };
        let dev = number(keys, "dev")?.map(ThinId);
        self.streams.add(Stream { name: name.into(), depth, dev, events: Vec::new() });
        self.clocks.push(0);
        Ok(())
    }

    /// A stream that was not declared is open.
    fn find(&mut self, name: &str) -> usize {
        self.streams.find(name).unwrap_or_else(|| {
            self.clocks.push(0);
            self.streams.add(Stream { name: name.into(), ..Stream::default() })
        })
    }

    fn event(&mut self, time: &str, stream: &str, verb: &str, keys: &Keys<'_>) -> Result<(), String> {
        let when = match time.strip_prefix('+') {
            _ if time == "-" => When::Asap,
            Some(after) => When::After(micros(after)?),
            None => When::At(micros(time)?),
        };
        let index = self.find(stream);
        if let When::At(time) = when {
            if time < self.clocks[index] {
                return Err("the time is before that of the stream's last event".into());
            }
            self.clocks[index] = time;
        }
        let dev = self.streams.list[index].dev;
        match self::verb(verb, keys, dev)? {
            Some(verb) => self.streams.list[index].events.push(Event { when, verb }),
            None if self.lenient => {
                self.account.drop(format!("verb {verb} (not known)"));
                self.account.taken -= 1;
            }
            None => return Err(format!("there is no verb '{verb}'")),
        }
        Ok(())
    }
}

fn keys<'t>(words: &[&'t str]) -> Result<Keys<'t>, String> {
    words.iter().map(|word| word.split_once('=').ok_or_else(|| format!("'{word}' is not key=value"))).collect()
}

fn number(keys: &Keys<'_>, key: &str) -> Result<Option<u64>, String> {
    let read = |text: &&str| text.parse().map_err(|_| format!("{key}={text} is no number"));
    keys.get(key).map(read).transpose()
}

/// Microseconds, with up to three digits behind a point.
fn micros(text: &str) -> Result<Ns, String> {
    let wrong = || format!("'{text}' is no time in microseconds");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 3 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let part: Ns = format!("{part:0<3}").parse().map_err(|_| wrong())?;
    let whole: Ns = whole.parse().map_err(|_| wrong())?;
    whole
        .checked_mul(1000)
        .and_then(|whole| whole.checked_add(part))
        .filter(|time| *time < TIME_LIMIT)
        .ok_or_else(wrong)
}

fn verb(word: &str, keys: &Keys<'_>, default: Option<ThinId>) -> Result<Option<Verb>, String> {
    let need = |key: &str| number(keys, key)?.ok_or_else(|| format!("{word} wants {key}="));
    let dev = || number(keys, "dev")?.map(ThinId).or(default).ok_or_else(|| format!("{word} wants dev="));
    let text = |key: &str| keys.get(key).map(ToString::to_string).ok_or_else(|| format!("{word} wants {key}="));
    let extent = || {
        let (dev, off, len) = (dev()?, need("off")?, need("len")?);
        if is_extent(off, len) {
            Ok((dev, off, len))
        } else {
            Err(format!("{word} can't be of {len} sectors from {off} on"))
        }
    };
    let fua = keys.get("flags").is_some_and(|flags| flags.split(',').any(|flag| flag == "fua"));
    Ok(Some(match word {
        "read" => extent().map(|(dev, off, len)| Verb::Read { dev, off, len })?,
        "write" => extent().map(|(dev, off, len)| Verb::Write { dev, off, len, fua })?,
        "discard" => extent().map(|(dev, off, len)| Verb::Discard { dev, off, len })?,
        "flush" => Verb::Flush { dev: dev()? },
        "commit" => Verb::Commit,
        "create" => Verb::Create { dev: dev()? },
        "snap" => Verb::Snap { dev: dev()?, origin: ThinId(need("origin")?) },
        "delete" => {
            let policy = keys.get("policy").map(|policy| Policy::parse(policy)).transpose()?;
            Verb::Delete { dev: dev()?, policy }
        }
        "trim-pool" => Verb::TrimPool,
        "msnap" => Verb::Hold,
        "mrelease" => Verb::ReleaseHeld,
        "lookup" => Verb::Lookup { dev: dev()?, off: need("off")? },
        "sleep" => Verb::Sleep(micros(&text("us")?)?),
        "mark" => Verb::Mark(text("name")?),
        "wait" => Verb::Wait(text("name")?),
        "expect" => Verb::Expect(micros(&text("lat")?)?),
        _ => return Ok(None),
    }))
}
