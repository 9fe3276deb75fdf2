//! `thin_replay import FILE` and `thin_replay generate NAME`, and reading traces.

use super::super::context::Context;
use super::super::exit::Outcome;
use super::super::options;
use super::write_whole;
use crate::replay::trace::{Account, ImportOptions, Mapping, Trace, generate as generators, read_any};
use anyhow::{Context as _, bail};
use clap::ArgMatches;
use std::path::Path;

/// A trace of any form, by content; says what was not taken.
pub(super) fn read(path: &Path, matches: &ArgMatches, context: &Context) -> anyhow::Result<Trace> {
    let text = text(path)?;
    let import_options = ImportOptions {
        map: matches.get_many::<Mapping>("map").map(|maps| maps.cloned().collect()).unwrap_or_default(),
        depth: matches.get_one::<u64>("depth").copied().unwrap_or(8),
        unit: matches.get_one::<String>("iolog-unit").map(|unit| if unit == "ms" { 1_000_000 } else { 1_000 }),
        action: matches.get_one::<String>("action").and_then(|action| action.chars().next()).unwrap_or('Q'),
        by_process: matches.get_flag("by-process"),
        lenient: matches.get_flag("lenient"),
    };
    let (trace, account) = read_any(&text, &import_options).with_context(|| format!("'{}'", path.display()))?;
    tell(path, &trace, &account, context);
    Ok(trace)
}

/// The beginning of a binary trace, as blktrace writes it.
const BLKTRACE: [u8; 3] = *b"tae";

/// Names in recordings may be in any encoding; nothing else is.
fn text(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("can't read the trace '{}'", path.display()))?;
    if bytes.get(1..4) == Some(&BLKTRACE) || bytes.first_chunk() == Some(b"eat") {
        bail!("'{0}': this is a binary trace; 'blkparse -i {0}' prints it as text", path.display());
    }
    if bytes.contains(&0) {
        bail!("'{}': this is no text: it has zero bytes; import the text that blkparse or fio wrote", path.display());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tell(path: &Path, trace: &Trace, account: &Account, context: &Context) {
    if account.dropped.is_empty() && account.noticed.is_empty() {
        return;
    }
    let (lines, taken, events) = (account.lines(), account.taken, trace.nr_events());
    context.note(format!(
        "'{}': {lines} lines, of which {taken} are taken, as {events} events, and not taken:",
        path.display()
    ));
    for (what, count) in &account.dropped {
        context.note(format!("  {count:8} {what}"));
    }
    for (what, count) in &account.noticed {
        context.note(format!("  {count:8} noticed: {what}"));
    }
    if let Some(unit) = trace.header.get("unit") {
        context.note(format!("  times are taken as {unit}; --iolog-unit says otherwise"));
    }
}

/// A trace is a result that -q does not silence.
fn write(trace: &Trace, inputs: &[&Path], matches: &ArgMatches) -> anyhow::Result<Outcome> {
    write_whole(options::get_output(matches), &trace.text(), inputs)?;
    Ok(Outcome::Success)
}

/// Prints a recording as a trace.
pub(super) fn import(file: &Path, matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    write(&read(file, matches, context)?, &[file], matches)
}

/// Prints a made trace.
pub(super) fn generate(name: &str, matches: &ArgMatches, _: &Context) -> anyhow::Result<Outcome> {
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or(1);
    match generators::generate(name, number("seed"), number("block-size"), number("requests")) {
        Some(trace) => write(&trace, &[], matches),
        None => {
            let names: Vec<String> = generators::NAMES.iter().map(|(name, what)| format!("{name}: {what}")).collect();
            bail!("there is no generator '{name}':\n{}", names.join("\n"))
        }
    }
}
