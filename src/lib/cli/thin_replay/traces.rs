//! `thin_replay import FILE` and `thin_replay generate NAME`, and reading traces.

use super::super::context::Context;
use super::super::exit::Outcome;
use super::super::options;
use super::super::output::Output;
use crate::replay::trace::{Dropped, ImportOptions, Mapping, Trace, generate as generators, read_any};
use anyhow::{Context as _, bail};
use clap::ArgMatches;
use std::io::Write;
use std::path::Path;

/// A trace of any form, by content; says what was not taken.
pub(super) fn read(path: &Path, matches: &ArgMatches, context: &Context) -> anyhow::Result<Trace> {
    let text = std::fs::read_to_string(path).with_context(|| format!("can't read the trace '{}'", path.display()))?;
    let import_options = ImportOptions {
        map: matches.get_many::<Mapping>("map").map(|maps| maps.cloned().collect()).unwrap_or_default(),
        depth: matches.get_one::<u64>("depth").copied().unwrap_or(8).clamp(1, 1 << 20),
        unit: matches.get_one::<String>("iolog-unit").map(|unit| if unit == "ms" { 1_000_000 } else { 1_000 }),
        action: matches.get_one::<String>("action").and_then(|action| action.chars().next()).unwrap_or('Q'),
        by_process: matches.get_flag("by-process"),
        lenient: matches.get_flag("lenient"),
    };
    let (trace, dropped) = read_any(&text, &import_options).with_context(|| format!("'{}'", path.display()))?;
    tell(path, &trace, &dropped, context);
    Ok(trace)
}

fn tell(path: &Path, trace: &Trace, dropped: &Dropped, context: &Context) {
    if dropped.is_empty() {
        return;
    }
    context.note(format!("'{}': {} events taken, and not taken:", path.display(), trace.nr_events()));
    for (what, count) in dropped {
        context.note(format!("  {count:8} {what}"));
    }
    if let Some(unit) = trace.header.get("unit") {
        context.note(format!("  times are taken as {unit}; --iolog-unit says otherwise"));
    }
}

fn write(trace: &Trace, input: &Path, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let mut output = Output::new(options::get_output(matches), input)?;
    output.write_all(trace.text().as_bytes()).context("can't write the trace")?;
    output.finish()?;
    Ok(Outcome::Success)
}

/// Prints a recording as a trace.
pub(super) fn import(file: &Path, matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    write(&read(file, matches, context)?, file, matches)
}

/// Prints a made trace.
pub(super) fn generate(name: &str, matches: &ArgMatches, _: &Context) -> anyhow::Result<Outcome> {
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or(1);
    let (block, requests) = (number("block-size").clamp(1, 1 << 22), number("requests").min(10_000_000));
    match generators::generate(name, number("seed"), block, requests) {
        Some(trace) => write(&trace, Path::new(""), matches),
        None => {
            let names: Vec<String> = generators::NAMES.iter().map(|(name, what)| format!("{name}: {what}")).collect();
            bail!("there is no generator '{name}':\n{}", names.join("\n"))
        }
    }
}
