//! `thin_dump`: the mappings of a pool as text.

use super::context::Context;
use super::exit::Outcome;
use super::id_list::IdList;
use super::options::{self, METADATA_SNAP, flag, value};
use super::output::Output;
use super::registry::Tool;
use anyhow::bail;
use clap::{ArgAction, ArgMatches, Command, value_parser};

pub(super) const TOOL: Tool =
    Tool { name: "thin_dump", about: "Write the mappings of a thin pool as XML or text", arguments, run };

fn arguments(command: Command) -> Command {
    command
        .arg(options::input())
        .arg(options::quiet())
        .arg(options::output())
        .arg(
            value("format", "FORMAT", ["xml", "human_readable", "json"], "The form of the output")
                .short('f')
                .default_value("xml"),
        )
        .arg(options::metadata_snap())
        .arg(
            flag("repair", "Read what can be read of damaged metadata")
                .short('r')
                .conflicts_with(METADATA_SNAP)
                .hide(true),
        )
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
        .arg(value("transaction-id", "N", value_parser!(u64), "Write this transaction id"))
        .arg(value("data-block-size", "SECTORS", value_parser!(u32), "Write this size of data blocks"))
        .arg(value("nr-data-blocks", "N", value_parser!(u64), "Write this number of data blocks"))
        .arg(options::threads())
}

fn run(matches: &ArgMatches, _context: &Context) -> anyhow::Result<Outcome> {
    let _output = Output::new(options::get_output(matches), options::get_input(matches)?)?;
    let _devices = matches.get_many::<IdList>("dev-id").map(IdList::union);
    bail!("dumping is not available in this build")
}
