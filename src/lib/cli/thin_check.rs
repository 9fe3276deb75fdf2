//! `thin_check`: is this pool's metadata sound?

use super::context::Context;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options::{self, METADATA_SNAP, flag, value};
use super::output;
use super::registry::Tool;
use crate::base::BlockNr;
use crate::base::problems::{Cure, Problem};
use crate::base::{Code, Severity};
use crate::block::scarce::stdout_was_closed;
use crate::block::{BlockSource, FileOutput};
use crate::format::Block;
use crate::format::superblock::ThinSuperblock;
use crate::pack::Form;
use crate::pdata::commit::Undo;
use crate::thin::check::{CheckOptions, check_and_count, fails};
use crate::thin::fix::{self, Fix, FixError, FixOptions};
use anyhow::{Context as _, bail};
use clap::{ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool =
    Tool { name: "thin_check", about: "Check the metadata of a thin pool", arguments, run, manual };

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
        .arg(
            flag("repair-space-maps", "Count all references anew and rebuild both space maps, if the trees are sound")
                .conflicts_with_all(writes_main_tree)
                .conflicts_with_all(writes_after_full_check),
        )
        .arg(value(
            "undo",
            "FILE",
            value_parser!(PathBuf),
            "Before mending, save what will be overwritten to this new file",
        ))
        .arg(flag("json", "Print the report as JSON on standard output"))
        .arg(options::threads())
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    options::use_threads(matches)?;
    let block = |name| matches.get_one::<u64>(name).map(|block| BlockNr(*block));
    let check_options = CheckOptions {
        metadata_snapshot: options::get_metadata_snap(matches),
        superblock_only: matches.get_flag("super-block-only"),
        skip_mappings: matches.get_flag("skip-mappings"),
        mapping_root: block("override-mapping-root"),
        details_root: block("override-details-root"),
    };
    let opened = options::open_input(matches)?;
    let json = matches.get_flag("json");
    let mut printed = Ok(());
    let mut on_superblock = |superblock: &ThinSuperblock| {
        let map = &superblock.metadata_space_map;
        let free = map.nr_blocks.get().saturating_sub(map.nr_allocated.get());
        // A script that closes standard output wants no lines; it is no reason to keep a pool from being activated.
        if !json && !stdout_was_closed() {
            let transaction = superblock.transaction_id.get();
            printed = context.print(format!("TRANSACTION_ID={transaction}\nMETADATA_FREE_BLOCKS={free}\n"));
        }
    };
    let progress = context.progress(false);
    if opened.form == Form::Xml {
        context.note("note: this is XML: what is checked are its mappings; metadata blocks were counted as a restore would use them");
    }
    let source = opened.source.as_ref();
    let (report, counted) = check_and_count(source, &check_options, progress.as_ref(), &mut on_superblock)?;
    drop(progress);
    printed?;
    if json {
        context.print(format!("{:#}\n", report.json()))?;
    } else {
        context.note(report.text().trim_end());
    }
    let ignore = matches.get_flag("ignore-non-fatal-errors");
    let Some(fix_options) = fix_options(matches) else {
        return Ok(outcome(fails(report.findings.worst(), ignore)));
    };
    let fix = match fix::plan(source, &report, counted.as_ref(), fix_options) {
        Ok(Some(fix)) => fix,
        Ok(None) => return Ok(outcome(fails(report.findings.worst(), ignore))),
        // What the damage is has been told.
        Err(error @ FixError::OtherDamage) => {
            context.note(error);
            return Ok(Outcome::Failure);
        }
        Err(error) => return Err(error.into()),
    };
    if !matches!(opened.form, Form::RawFile | Form::BlockDevice) {
        bail!("there is something to mend, but this is not the metadata itself: unpack it first");
    }
    let left = report.findings.counts().keys().filter(|code| !fix.cures(**code)).map(|code| code.problem().severity);
    let left = left.max();
    let told = fix.told();
    let before = source.read(BlockNr(0))?;
    drop(opened);
    let undo = matches.get_one::<PathBuf>("undo").map(PathBuf::as_path);
    mend(options::get_input(matches)?, fix, &before, undo)?;
    context.note(told);
    Ok(if fails(left, ignore) { Outcome::Failure } else { Outcome::Mended })
}

fn outcome(failed: bool) -> Outcome {
    if failed { Outcome::Failure } else { Outcome::Success }
}

/// What may be put right; `None` where nothing may.
fn fix_options(matches: &ArgMatches) -> Option<FixOptions> {
    let (clear, auto) = (matches.get_flag("clear-needs-check-flag"), matches.get_flag("auto-repair"));
    let space_maps = matches.get_flag("repair-space-maps");
    (clear || auto || space_maps).then_some(FixOptions { leaks: clear || auto, space_maps, needs_check: clear || auto })
}

/// Opens the metadata for writing, makes sure that it is what was checked, and writes.
fn mend(path: &Path, fix: Fix, before: &Block, undo: Option<&Path>) -> anyhow::Result<()> {
    let mut output = FileOutput::open(path, None).context("the metadata cannot be mended")?;
    let source = output.source().context("the metadata cannot be read again")?;
    if source.read(BlockNr(0))?.as_ref() != before {
        bail!("the metadata changed while it was checked: nothing was changed");
    }
    if let Some(file) = undo {
        let undo = Undo::of(&source, fix.locations(), fix.superblock())?;
        output::save_new(file, &undo.to_bytes())?;
    }
    drop(source);
    Ok(fix.commit(&mut output)?)
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_check reads all of a pool's metadata, counts what refers to each block, and compares that with \
                     the space maps. INPUT must not be in use: a block device is opened exclusively. The metadata of an \
                     active pool can only be read through its metadata snapshot, with -m.",
                ),
                Part::text(
                    "It writes nothing, unless --clear-needs-check-flag, --auto-repair or --repair-space-maps finds something \
                     to mend.",
                ),
            ],
        },
        Section {
            title: "OUTPUT",
            parts: vec![
                Part::text("As soon as the superblock has been read, two lines are written to standard output:"),
                Part::example("TRANSACTION_ID=7\nMETADATA_FREE_BLOCKS=4068"),
                Part::text(
                    "The report goes to standard error: what was found, with a code in brackets at the end of each line; \
                     then, for each damaged device, how many mappings are left; and a verdict:",
                ),
                Part::entry("clean", "There is nothing to do."),
                Part::entry("tidy-able", "No mapping is lost; leaks, stale counts or a flag should be put right."),
                Part::entry("usable with loss", "Some mappings are lost or in doubt; the others can be read."),
                Part::entry("broken", "Nothing can be used as it is."),
                Part::text(
                    "With --json the report is one JSON object on standard output, in place of all this; \
                     docs/thin_check.json.md describes it.",
                ),
            ],
        },
        exit_status(vec![Part::text(
            "Notes never fail a check. Non-fatal problems fail it unless --ignore-non-fatal-errors is given. \
             Fatal problems always do.",
        )]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("Check the metadata of a pool that is not active:"),
                Part::example("thin_check /dev/vg/pool_tmeta"),
                Part::text("Check an active pool through its metadata snapshot:"),
                Part::example(
                    "dmsetup message vg-pool-tpool 0 reserve_metadata_snap\n\
                     thin_check -m /dev/mapper/vg-pool_tmeta\n\
                     dmsetup message vg-pool-tpool 0 release_metadata_snap",
                ),
                Part::text("What a volume manager runs before it activates a pool:"),
                Part::example("thin_check -q --clear-needs-check-flag /dev/mapper/vg-pool_tmeta"),
            ],
        },
        Section { title: "PROBLEMS", parts: problems() },
    ]
}

/// The table of problems, as scripts find them in the report.
fn problems() -> Vec<Part> {
    let mut parts = vec![Part::text("The codes are stable: scripts may match on them.")];
    for severity in [Severity::Fatal, Severity::NonFatal, Severity::Note] {
        let of_severity = Code::ALL.iter().map(|code| code.problem()).filter(|problem| problem.severity == severity);
        parts.extend(of_severity.map(|problem| Part::entry(problem.name, problem_text(problem))));
    }
    parts
}

fn problem_text(problem: &Problem) -> String {
    let help = match problem.cure {
        Cure::None => "",
        Cure::ClearFlag => " --clear-needs-check-flag clears it.",
        Cure::AutoRepair => " --auto-repair puts it right.",
        Cure::RepairSpaceMaps => " The space maps have to be built again.",
        Cure::Repair => " What can be read has to be written to another device.",
        Cure::Device => " The device or file has to be put right first.",
        Cure::ReleaseSnapshot => " The metadata snapshot has to be released.",
    };
    format!("({}) {}.{help}", problem.severity.word(), capital(problem.wording))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
