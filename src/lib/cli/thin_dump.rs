//! `thin_dump`: the mappings of a pool as text.

use super::context::Context;
use super::exit::Outcome;
use super::id_list::IdList;
use super::manual::{Part, Section, exit_status};
use super::options::{self, METADATA_SNAP, flag, value};
use super::output::Output;
use super::registry::Tool;
use crate::thin::dump::{DumpError, DumpOptions, dump, dump_salvaged};
use crate::thin::text::Format;
use anyhow::Context as _;
use clap::{ArgAction, ArgMatches, Command};
use std::ops::RangeInclusive;

pub(super) const TOOL: Tool =
    Tool { name: "thin_dump", about: "Write the mappings of a thin pool as XML or text", arguments, run, manual };

/// Findings that are shown; `thin_check` shows more.
const SHOWN_FINDINGS: usize = 20;

fn arguments(command: Command) -> Command {
    command
        .arg(options::input())
        .arg(options::quiet().help("Say nothing on standard error"))
        .arg(options::output())
        .arg(
            value("format", "FORMAT", ["xml", "human_readable", "json"], "The form of the output")
                .short('f')
                .default_value("xml"),
        )
        .arg(options::metadata_snap())
        .arg(flag("repair", "Read what can be read of damaged metadata").short('r').conflicts_with(METADATA_SNAP))
        .arg(flag("skip-mappings", "Write the devices without their mappings"))
        .arg(flag("flat", "Repeat shared mappings for every device instead of referring to them"))
        .arg(
            value(
                "dev-id",
                "LIST",
                IdList::parse,
                "Write only these devices: ids and ranges, as in 1,5,10-20; repeatable",
            )
            .action(ArgAction::Append),
        )
        .args(options::overrides())
        .arg(options::threads())
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    options::use_threads(matches)?;
    let devices = matches.get_many::<IdList>("dev-id").map(|lists| IdList::union(lists).into_items());
    let dump_options = DumpOptions {
        format: match matches.get_one::<String>("format").map(String::as_str) {
            Some("human_readable") => Format::HumanReadable,
            Some("json") => Format::Json,
            _ => Format::Xml,
        },
        metadata_snapshot: options::get_metadata_snap(matches),
        devices,
        skip_mappings: matches.get_flag("skip-mappings"),
        flat: matches.get_flag("flat"),
        transaction_id: matches.get_one("transaction-id").copied(),
        data_block_size: matches.get_one("data-block-size").copied(),
        nr_data_blocks: matches.get_one("nr-data-blocks").copied(),
    };
    let mut output = Output::new(options::get_output(matches), options::get_input(matches)?)?;
    let opened = options::open_input(matches)?;
    let progress = context.progress(output.is_stdout());
    let source = opened.source.as_ref();
    let result = if matches.get_flag("repair") {
        dump_salvaged(source, &dump_options, None, &mut output, progress.as_ref()).map(|salvaged| {
            (salvaged.findings, salvaged.missing, salvaged.account.lowered.clone(), Some(salvaged.account))
        })
    } else {
        dump(source, &dump_options, &mut output, progress.as_ref())
            .map(|outcome| (outcome.findings, outcome.missing, outcome.lowered, None))
    };
    drop(progress);
    match result {
        Ok((findings, in_vain, lowered, account)) => {
            output.finish()?;
            findings.iter().take(SHOWN_FINDINGS).for_each(|finding| context.warning(finding));
            in_vain.iter().for_each(|range| context.warning(missing(range)));
            lowered.iter().for_each(|lowered| context.warning(lowered));
            if let Some(account) = account {
                context.note(account.text().trim_end());
            }
            Ok(Outcome::Success)
        }
        Err(DumpError::Damaged(findings)) => {
            findings.iter().take(SHOWN_FINDINGS).for_each(|finding| context.error(finding));
            context.error(
                "the metadata is damaged, nothing was written; thin_check tells what is lost, --repair dumps what can be read",
            );
            Ok(Outcome::Failure)
        }
        Err(DumpError::Write(error)) => {
            let message = format!("cannot write {}", output.name());
            Err(error).context(message)
        }
        Err(error) => Err(error.into()),
    }
}

fn missing(range: &RangeInclusive<u64>) -> String {
    if range.start() == range.end() {
        format!("there is no device {}", range.start())
    } else {
        format!("there is no device in {}-{}", range.start(), range.end())
    }
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_dump writes the devices of a pool and their mappings, in a form that thin_restore reads (xml), \
                     people read (human_readable) or programs read (json). INPUT must not be in use, unless -m reads \
                     the metadata snapshot of an active pool.",
                ),
                Part::text(
                    "Mappings that several devices share are written once, as a <def>, and referred to by <ref>. With \
                     --flat or --dev-id they are repeated for every device. The output is the same for any number of \
                     threads.",
                ),
            ],
        },
        Section {
            title: "OUTPUT",
            parts: vec![
                Part::text(
                    "One element is on each line; the attributes have a fixed order. Blocks are counted in data blocks.",
                ),
                Part::example(
                    "<superblock uuid=\"\" time=\"1\" transaction=\"7\" flags=\"0\" version=\"2\" data_block_size=\"128\" nr_data_blocks=\"1000\">\n\
                     \x20 <device dev_id=\"1\" mapped_blocks=\"9\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">\n\
                     \x20   <range_mapping origin_begin=\"0\" data_begin=\"20\" length=\"8\" time=\"0\"/>\n\
                     \x20   <single_mapping origin_block=\"100\" data_block=\"3\" time=\"1\"/>\n\
                     \x20 </device>\n\
                     </superblock>",
                ),
                Part::text(
                    "Where the metadata is damaged nothing is written that is not true: the run stops with what was found, \
                     and a file named by -o is left as it was. Such a file is replaced only when the dump is whole.",
                ),
            ],
        },
        exit_status(vec![]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("Keep the mappings of a pool in a file:"),
                Part::example("thin_dump -o pool.xml /dev/vg/pool_tmeta"),
                Part::text("Show some devices of an active pool:"),
                Part::example("thin_dump -m --dev-id 1,5,10-20 -f human_readable /dev/mapper/vg-pool_tmeta"),
            ],
        },
    ]
}
