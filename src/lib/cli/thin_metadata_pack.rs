//! `thin_metadata_pack`: metadata as a small file, for a bug report.

use super::context::Context;
use super::destination;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options::{self, INPUT, OUTPUT, flag, value};
use super::registry::Tool;
use crate::block::scarce::default_threads;
use crate::pack::{Packed, encode};
use clap::{ArgMatches, Command, value_parser};
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool = Tool {
    name: "thin_metadata_pack",
    about: "Pack metadata into a small file, as for a bug report",
    arguments,
    run,
    manual,
};

/// Unreadable blocks that are told one by one.
const TOLD_BLOCKS: usize = 20;

fn arguments(command: Command) -> Command {
    let path = || value_parser!(PathBuf);
    command
        .arg(
            value(INPUT, "FILE", path(), "The metadata of a thin pool, a cache or an era device")
                .short('i')
                .required(true),
        )
        .arg(value(OUTPUT, "FILE", path(), "The file to make; - is standard output").short('o').required(true))
        .arg(flag("force", "Overwrite a file that holds metadata without asking").short('f'))
        .arg(options::metadata_snap())
        .arg(options::quiet())
        .arg(options::threads())
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let path = |id: &str| options::path(matches, id);
    let (input, output) = (path(INPUT), path(OUTPUT));
    let opened = options::open_input(matches)?;
    let source = opened.source.as_ref();
    let mut packed = None;
    let mut pack = |out: &mut (dyn Write + Send)| {
        packed = Some(encode(source, out, threads(matches))?);
        Ok(())
    };
    if output == Path::new("-") {
        destination::to_stdout(&mut pack)?;
    } else {
        destination::may_overwrite(output, input, matches.get_flag("force"), context)?;
        destination::replace(output, |file| pack(file))?;
    }
    if let Some(packed) = packed {
        tell(&packed, context);
    }
    Ok(Outcome::Success)
}

/// The number of threads: as asked for, or one for each processor.
pub(super) fn threads(matches: &ArgMatches) -> usize {
    options::get_threads(matches).unwrap_or_else(default_threads)
}

fn tell(packed: &Packed, context: &Context) {
    for (block, error) in packed.unreadable.iter().take(TOLD_BLOCKS) {
        context.warning(format_args!("block {block} is left out, it can't be read: {error}"));
    }
    if packed.nr_unreadable > TOLD_BLOCKS as u64 {
        context.warning(format_args!("{} blocks in all are left out", packed.nr_unreadable));
    }
    if packed.nr_packed == 0 {
        context.warning("there is no metadata in the input: the packed image holds no block");
    }
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![Part::text(
                "thin_metadata_pack takes every block that is recognised as metadata, in use or not, and packs it so \
                 that little is left. The data on the pool is not in it, only where it lies. Every tool that reads \
                 metadata takes the packed file as it is; thin_metadata_unpack makes an image of it again.",
            )],
        },
        exit_status(vec![]),
        Section {
            title: "EXAMPLES",
            parts: vec![Part::example("thin_metadata_pack -i /dev/vg/pool_tmeta -o pool.pack")],
        },
    ]
}
