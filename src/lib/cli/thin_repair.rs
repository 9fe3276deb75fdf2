//! `thin_repair`: what can be read of damaged metadata, written to another device.

mod in_place;

use super::context::Context;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options::{self, INPUT, OUTPUT, flag, value};
use super::registry::Tool;
use crate::base::BlockNr;
use crate::block::{FileOutput, OpenOutputError};
use crate::pack::{self, Access, OpenOptions};
use crate::thin::repair::{RepairError, Repaired, repair};
use crate::thin::restore::RestoreError;
use crate::thin::salvage::{self, SalvageOptions};
use anyhow::Context as _;
use clap::{ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool = Tool {
    name: "thin_repair",
    about: "Write what can be read of damaged metadata to another device",
    arguments,
    run,
    manual,
};

const IN_PLACE: &str = "in-place";
const BACKUP: &str = "backup";
/// Findings that are shown; `thin_check` shows more.
const SHOWN_FINDINGS: usize = 20;

fn arguments(command: Command) -> Command {
    let path = || value_parser!(PathBuf);
    command
        .arg(
            value(INPUT, "FILE", path(), "The damaged metadata: a device, an image or a packed image; only read")
                .short('i')
                .required(true),
        )
        .arg(options::target().required_unless_present_any(["list-roots", IN_PLACE]))
        .arg(
            flag(IN_PLACE, "Repair the input itself, after saving all of it with --backup")
                .conflicts_with_all([OUTPUT, "list-roots"])
                .requires(BACKUP),
        )
        .arg(value(BACKUP, "FILE", path(), "The new file for a copy of the damaged metadata").requires(IN_PLACE))
        .arg(options::quiet())
        .arg(flag("list-roots", "Only list the pairs of roots that the metadata may have had, the best first"))
        .arg(
            value("root", "MAPPING,DETAILS", parse_roots, "Take these roots instead of those in the superblock")
                .conflicts_with("list-roots"),
        )
        .args(options::overrides())
        .arg(flag("fail-on-loss", "Fail where anything is lost, although all else was written"))
        .arg(flag("json", "Print the account, or the list of roots, as JSON on standard output"))
        .arg(options::threads())
}

fn parse_roots(text: &str) -> Result<(BlockNr, BlockNr), String> {
    let numbers = text.split_once(',').and_then(|(mapping, details)| {
        Some((BlockNr(mapping.trim().parse().ok()?), BlockNr(details.trim().parse().ok()?)))
    });
    numbers.ok_or_else(|| "two block numbers are wanted, as in 335,340; --list-roots shows them".to_string())
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    options::use_threads(matches)?;
    let path = |id: &str| options::path(matches, id);
    let (input, output) = (path(INPUT), path(OUTPUT));
    let opened = pack::open::open(input, &OpenOptions { access: Access::Exclusive, direct: false })?;
    let json = matches.get_flag("json");
    if matches.get_flag("list-roots") {
        let progress = context.progress(true);
        let found = salvage::list_roots(opened.source.as_ref(), progress.as_ref());
        drop(progress);
        if found.is_empty() {
            context.warning(salvage::no_roots(opened.source.as_ref()));
        }
        let text =
            if json { format!("{:#}\n", salvage::candidates_json(&found)) } else { salvage::candidates_table(&found) };
        context.print(text)?;
        return Ok(Outcome::Success);
    }
    let salvage_options = SalvageOptions {
        roots: matches.get_one("root").copied(),
        transaction_id: matches.get_one("transaction-id").copied(),
        data_block_size: matches.get_one("data-block-size").copied(),
        nr_data_blocks: matches.get_one("nr-data-blocks").copied(),
    };
    let repaired = if matches.get_flag(IN_PLACE) {
        in_place::repair_in_place(opened, input, options::path(matches, BACKUP), &salvage_options, context)?
    } else {
        let input_file = std::fs::metadata(input).ok();
        let mut file = FileOutput::open(output, input_file.as_ref()).map_err(offer_in_place)?;
        let progress = context.progress(false);
        let result = repair(opened.source.as_ref(), &mut file, &salvage_options, progress.as_ref());
        drop(progress);
        result.map_err(|error| explain(error, output))?
    };
    tell(&repaired, json, context)?;
    let failed = matches.get_flag("fail-on-loss") && repaired.account.anything_lost();
    Ok(match (failed, matches.get_flag(IN_PLACE)) {
        (true, _) => Outcome::Failure,
        (false, true) => Outcome::Mended,
        (false, false) => Outcome::Success,
    })
}

fn offer_in_place(error: OpenOutputError) -> anyhow::Error {
    match error {
        OpenOutputError::SameAsInput(_) => {
            anyhow::anyhow!("{error}; --in-place --backup FILE saves the input to FILE and repairs it")
        }
        _ => error.into(),
    }
}

fn explain(error: RepairError, output: &Path) -> anyhow::Error {
    let whose = match &error {
        RepairError::Salvage(_) => "nothing was written".to_string(),
        RepairError::Restore(RestoreError::TooSmall { .. }) => format!("cannot write '{}'", output.display()),
        RepairError::Restore(_) => format!("cannot repair into '{}'", output.display()),
    };
    anyhow::Error::new(error).context(whose)
}

/// Says what was found and lost; nothing where all is as it was, for volume managers log what is said.
fn tell(repaired: &Repaired, json: bool, context: &Context) -> anyhow::Result<()> {
    if json {
        context.print(format!("{:#}\n", repaired.account.json())).context("the repair is done, but")?;
    }
    repaired.account.lowered.iter().for_each(|lowered| context.warning(lowered));
    if !repaired.findings.is_empty() || repaired.account.anything_lost() {
        repaired.findings.iter().take(SHOWN_FINDINGS).for_each(|finding| context.warning(finding));
        context.note(repaired.account.text().trim_end());
    }
    Ok(())
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_repair reads damaged metadata, finds what can be found, and writes it as whole metadata to \
                     another device. The input is never written to. Check the result with thin_check before the pool \
                     is swapped over to it, and keep the damaged metadata until the data has been looked at.",
                ),
                Part::text(
                    "While the superblock is good, its trees are taken as they are: damage in one device changes no \
                     other. Below a damaged node, leaves that nothing leads to any more are given back to the device \
                     where their keys and the space map leave no doubt. No device is dropped: one of which nothing is \
                     left is written without mappings, and the account says so.",
                ),
                Part::text(
                    "Without a superblock the newest pair of roots that fits together is taken; only the size of a data \
                     block cannot be found then and has to be given. The transaction id and the number of data blocks are \
                     guessed from the devices, and said, unless they are given. --list-roots shows all pairs, --root \
                     takes one.",
                ),
            ],
        },
        Section {
            title: "REPAIR IN PLACE",
            parts: vec![Part::text(
                "Where there is no room for another device, --in-place repairs the input itself. All of it is copied to \
                 the file that --backup names first, which must not exist yet and should be on another disk; blocks that \
                 cannot be read are zeros there. If the run ends too early, the input holds no valid metadata: run \
                 thin_repair again with the copy as input and the device as output. The result is put together in \
                 memory.",
            )],
        },
        Section {
            title: "OUTPUT",
            parts: vec![Part::text(
                "Where something was damaged, standard error tells what, and for every device that is not as it was \
                 the number of mappings found, expected, taken from orphaned leaves and lost, and the virtual blocks \
                 that are lost. --json prints an object instead, and so it does for --list-roots; \
                 docs/thin_repair.json.md describes both.",
            )],
        },
        exit_status(vec![]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("Repair into a device that is large enough:"),
                Part::example("thin_repair -i /dev/vg/pool_tmeta -o /dev/vg/spare"),
                Part::text("See which older states there are, and take one of them:"),
                Part::example(
                    "thin_repair -i pool.img --list-roots\nthin_repair -i pool.img -o spare.img --root 335,340",
                ),
            ],
        },
    ]
}
