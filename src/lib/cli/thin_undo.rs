//! `thin_undo`: takes back what a tool has changed in place.

use super::context::Context;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options;
use super::registry::Tool;
use crate::block::FileOutput;
use crate::pdata::commit::Undo;
use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;

pub(super) const TOOL: Tool =
    Tool { name: "thin_undo", about: "Take back a change that was made in place", arguments, run, manual };

/// More than any change of metadata can overwrite.
const UNDO_BYTES_MAX: u64 = 20 << 30;

fn arguments(command: Command) -> Command {
    let positional = |id: &'static str, name: &'static str, help: &'static str| {
        Arg::new(id).value_name(name).required(true).value_parser(value_parser!(PathBuf)).help(help)
    };
    command
        .arg(positional("undo", "FILE", "What was saved with --undo before the change"))
        .arg(positional("device", "METADATA", "The device or image that was changed"))
        .arg(options::quiet())
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let path = |id: &str| options::path(matches, id);
    let (file, device) = (path("undo"), path("device"));
    let cannot_read = || format!("cannot read '{}'", file.display());
    let found = std::fs::metadata(file).with_context(cannot_read)?;
    anyhow::ensure!(found.is_file() && found.len() <= UNDO_BYTES_MAX, "'{}' is no undo file", file.display());
    let undo = Undo::from_bytes(&std::fs::read(file).with_context(cannot_read)?).with_context(cannot_read)?;
    let mut output = FileOutput::open(device, Some(&found))?;
    let source = output.source().with_context(|| format!("cannot read '{}'", device.display()))?;
    undo.apply(&source, &mut output).with_context(|| format!("cannot change '{}'", device.display()))?;
    context.note(format_args!("{} blocks were put back", undo.len()));
    Ok(Outcome::Success)
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![Part::text(
                "Tools that change metadata in place can save what they will overwrite, with --undo FILE. thin_undo puts \
                 that back. It makes sure first that METADATA is what was changed, and that it has not been changed \
                 since: a pool that was active in between is refused.",
            )],
        },
        exit_status(vec![]),
        Section {
            title: "EXAMPLES",
            parts: vec![Part::example(
                "thin_check --auto-repair --undo pool.undo /dev/vg/pool_tmeta\nthin_undo pool.undo /dev/vg/pool_tmeta",
            )],
        },
    ]
}
