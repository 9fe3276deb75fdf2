//! `thin_restore`: metadata from XML.

use super::context::Context;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options::{self, INPUT, OUTPUT, flag, value};
use super::registry::Tool;
use crate::block::FileOutput;
use crate::pack::text::{Text, open_text};
use crate::thin::restore::{RestoreError, RestoreOptions, RestoreOutcome, XmlInput, restore};
use crate::thin::xml::XmlOptions;
use clap::{ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool =
    Tool { name: "thin_restore", about: "Write the metadata of a thin pool from XML", arguments, run, manual };

/// Recounts that are told one by one.
const TOLD_RECOUNTS: usize = 20;

fn arguments(command: Command) -> Command {
    let path = || value_parser!(PathBuf);
    command
        .arg(
            value(INPUT, "FILE", path(), "XML, plain or compressed (gzip, xz, zstd); - is standard input")
                .short('i')
                .required(true),
        )
        .arg(options::target().required(true))
        .arg(options::quiet())
        .args(options::overrides())
        .arg(flag("lenient", "Ignore unknown attributes, and text between elements"))
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let path = |id: &str| options::path(matches, id);
    let (input, output) = (path(INPUT), path(OUTPUT));
    let restore_options = RestoreOptions {
        transaction_id: matches.get_one("transaction-id").copied(),
        data_block_size: matches.get_one("data-block-size").copied(),
        nr_data_blocks: matches.get_one("nr-data-blocks").copied(),
        xml: XmlOptions { lenient: matches.get_flag("lenient") },
    };
    let text = open_text(input)?;
    // What standard input is, is no business of the output.
    let input_file = std::fs::metadata(input).ok();
    let mut file = FileOutput::open(output, input_file.as_ref())?;
    let progress = context.progress(false);
    let xml = match text {
        Text::Plain(ref file) => XmlInput::File(file),
        Text::Stream(stream) => XmlInput::Stream(stream),
    };
    let result = restore(xml, &mut file, &restore_options, progress.as_ref());
    drop(progress);
    let outcome = result.map_err(|error| explain(error, input, output))?;
    warn(&outcome, context);
    Ok(Outcome::Success)
}

fn explain(error: RestoreError, input: &Path, output: &Path) -> anyhow::Error {
    let whose = match &error {
        RestoreError::Input(_) | RestoreError::Changed | RestoreError::TooLargeForMemory { .. } => {
            format!("cannot read '{}'", input.display())
        }
        RestoreError::TooSmall { .. } => format!("cannot write '{}'", output.display()),
        RestoreError::Unsound(_) | RestoreError::Build(_) | RestoreError::Commit(_) => {
            format!("cannot write '{}', which holds no valid metadata now", output.display())
        }
    };
    anyhow::Error::new(error).context(whose)
}

fn warn(outcome: &RestoreOutcome, context: &Context) {
    if outcome.needs_check_dropped {
        context.warning("the input has needs_check set; what was written is whole, so it is not set there");
    }
    if outcome.uuid_dropped {
        context.warning("the uuid is not written: a superblock has room for 16 bytes, as a text or a UUID");
    }
    if outcome.empty_runs > 0 {
        let (count, s) =
            (outcome.empty_runs, if outcome.empty_runs == 1 { " of length 0 is" } else { "s of length 0 are" });
        context.warning(format_args!("{count} range{s} left out: what wrote the input may be at fault"));
    }
    for recount in outcome.recounts.iter().take(TOLD_RECOUNTS) {
        context.warning(format_args!(
            "device {} says that it has {} mappings, and has {}, which was written",
            recount.device, recount.claimed, recount.counted
        ));
    }
    if outcome.recounts.len() > TOLD_RECOUNTS {
        let more = outcome.recounts.len() - TOLD_RECOUNTS;
        context
            .warning(format_args!("{more} more devices say that they have another number of mappings than they have"));
    }
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_restore writes the metadata that an XML file describes, as thin_dump writes it. The output \
                     must not be in use: a block device is opened exclusively, a file is locked. Mappings that the XML \
                     shares between devices (<def> and <ref>) are shared in the metadata.",
                ),
                Part::text(
                    "The XML is read twice, first only to verify it: whatever is wrong is said, with line and column, \
                     before anything is written, and so is the number of metadata blocks that are needed where there \
                     are too few. Standard input and compressed files are read once, and take memory: some 10 bytes for \
                     each mapping or range.",
                ),
                Part::text(
                    "The old superblock is overwritten first and the new one is written last. When the run ends too \
                     early, whatever the reason, the output holds no valid metadata: never a mixture.",
                ),
            ],
        },
        Section {
            title: "INPUT",
            parts: vec![
                Part::text(
                    "The order of attributes, indentation, comments and an XML declaration don't matter. Unknown \
                     elements and attributes, duplicate devices, mappings that overlap or are not in order, and \
                     numbers that the pool can't have are refused.",
                ),
                Part::text(
                    "The number of mapped blocks of each device is counted; where it is not the one in the XML, that is \
                     said. The flag needs_check is never written: what was restored is whole.",
                ),
            ],
        },
        exit_status(vec![]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("Restore a dump to a device that is large enough:"),
                Part::example("thin_restore -i pool.xml -o /dev/vg/pool_meta_new"),
                Part::text("Restore a compressed dump that arrives through a pipe:"),
                Part::example("ssh host cat pool.xml.xz | thin_restore -i - -o /dev/vg/pool_meta_new"),
            ],
        },
    ]
}
