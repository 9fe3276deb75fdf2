//! `thin_check`: is this pool's metadata sound?

use super::context::Context;
use super::exit::Outcome;
use super::options::{self, METADATA_SNAP, flag, value};
use super::registry::Tool;
use anyhow::bail;
use clap::{ArgMatches, Command, value_parser};

pub(super) const TOOL: Tool = Tool { name: "thin_check", about: "Check the metadata of a thin pool", arguments, run };

fn arguments(command: Command) -> Command {
    let writes_main_tree = [METADATA_SNAP, "override-mapping-root", "override-details-root"];
    let writes_after_full_check = ["skip-mappings", "super-block-only", "ignore-non-fatal-errors"];
    let block = value_parser!(u64);
    command
        .arg(options::input())
        .arg(options::quiet())
        .arg(options::metadata_snap())
        .arg(flag("super-block-only", "Check only the superblock"))
        .arg(flag("skip-mappings", "Check only the devices' details and the top of the mapping tree"))
        .arg(flag("ignore-non-fatal-errors", "Let leaks and the like pass"))
        .arg(
            flag("clear-needs-check-flag", "After a clean check, mend leaks and clear the flag that asks for a check")
                .conflicts_with_all(writes_main_tree),
        )
        .arg(
            flag("auto-repair", "Mend leaks and clear the flag that asks for a check")
                .conflicts_with_all(writes_main_tree)
                .conflicts_with_all(writes_after_full_check),
        )
        .arg(value("override-mapping-root", "BLOCK", block, "Use this root of the mapping tree"))
        .arg(value("override-details-root", "BLOCK", block, "Use this root of the details tree"))
        .arg(flag("json", "Print the report as JSON on standard output"))
        .arg(options::threads())
}

fn run(_matches: &ArgMatches, _context: &Context) -> anyhow::Result<Outcome> {
    bail!("checking is not available in this build")
}
