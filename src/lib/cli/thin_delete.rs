//! `thin_delete`: devices taken out of a pool that is not active.

use super::context::Context;
use super::exit::Outcome;
use super::id_list::IdList;
use super::manual::{Part, Section, exit_status};
use super::options::{self, flag, value};
use super::output;
use super::registry::Tool;
use crate::base::{BlockNr, Findings, ThinId};
use crate::block::{BlockSource, FileOutput};
use crate::format::Block;
use crate::pack::Form;
use crate::pdata::commit::Undo;
use crate::thin::delete::{DeleteError, DeleteOptions, Figures, Precheck, Target, Wanted, plan, precheck};
use anyhow::{Context as _, bail};
use clap::{ArgAction, ArgMatches, Command, value_parser};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool =
    Tool { name: "thin_delete", about: "Delete devices of a thin pool that is not active", arguments, run, manual };

/// Findings that are shown; `thin_check` shows more.
const SHOWN_FINDINGS: usize = 20;
/// More than any list of devices has.
const LIST_BYTES_MAX: u64 = 1 << 30;

fn arguments(command: Command) -> Command {
    let path = || value_parser!(PathBuf);
    let list = |name, help| value(name, "LIST", IdList::parse, help).action(ArgAction::Append);
    command
        .arg(options::input().value_name("METADATA"))
        .arg(options::quiet())
        .arg(list("dev-id", "Delete these devices: ids and ranges, as in 1,5,10-20; repeatable"))
        .arg(list("keep", "Delete all devices but these; repeatable").conflicts_with_all(["dev-id", "from"]))
        .arg(value("from", "FILE", path(), "Delete the devices that FILE lists: ids and ranges, and comments after #"))
        .arg(flag("ignore-missing", "Pass over ids that no device has"))
        .arg(flag("no-check", "Do not check the metadata first").conflicts_with("quick-check"))
        .arg(flag("quick-check", "Check first only the superblock and the devices, without their mappings"))
        .arg(value("transaction-id", "N", value_parser!(u64), "Write this transaction id"))
        .arg(value(
            "undo",
            "FILE",
            path(),
            "Before anything is changed, save what will be overwritten to this new file",
        ))
        .arg(options::threads())
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    options::use_threads(matches)?;
    let opened = options::open_input(matches)?;
    let source = opened.source.as_ref();
    let progress = context.progress(false);
    let target = Target::read(source, progress.as_ref()).map_err(|error| explain(error, context))?;
    let Some(wanted) = wanted(matches)? else { bail!("nothing is to be deleted: give --dev-id, --keep or --from") };
    let victims =
        target.select(&wanted, matches.get_flag("ignore-missing")).map_err(|error| explain(error, context))?;
    if victims.is_empty() {
        context.note("no device is to be deleted");
        return Ok(Outcome::Success);
    }
    if !matches!(opened.form, Form::RawFile | Form::BlockDevice) {
        bail!("this is not the metadata itself: unpack it first");
    }
    if !matches.get_flag("no-check") {
        let how = if matches.get_flag("quick-check") { Precheck::Quick } else { Precheck::Full };
        precheck(source, how, progress.as_ref()).map_err(|error| explain(error, context))?;
    }
    drop(progress);
    let before = source.read(BlockNr(0))?;
    drop(opened);
    let figures = delete_in_place(matches, &victims, &before, context)?;
    context.note(told(&figures));
    Ok(Outcome::Success)
}

/// Which devices the command line names.
fn wanted(matches: &ArgMatches) -> anyhow::Result<Option<Wanted>> {
    let lists = |name: &str| matches.get_many::<IdList>(name).map(|lists| lists.cloned().collect::<Vec<_>>());
    if let Some(keep) = lists("keep") {
        return Ok(Some(Wanted::Keep(IdList::union(&keep).into_items())));
    }
    let mut all = lists("dev-id").unwrap_or_default();
    let file = matches.get_one::<PathBuf>("from");
    if let Some(file) = file {
        all.push(read_list(file)?);
    }
    let given = !all.is_empty() || file.is_some();
    Ok(given.then(|| Wanted::Delete(IdList::union(&all).into_items())))
}

/// Reads ids and ranges that stand apart by commas, blanks or lines.
fn read_list(path: &Path) -> anyhow::Result<IdList> {
    let cannot = || format!("cannot read the list '{}'", path.display());
    let found = std::fs::metadata(path).with_context(cannot)?;
    anyhow::ensure!(found.len() <= LIST_BYTES_MAX, "'{}' is too large for a list of devices", path.display());
    let text = std::fs::read_to_string(path).with_context(cannot)?;
    let mut lists = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let items = line.split('#').next().unwrap_or("");
        for item in items.split([',', ' ', '\t', '\r']).filter(|item| !item.is_empty()) {
            let list = IdList::parse(item).with_context(|| format!("'{}', line {number}", path.display()))?;
            lists.push(list);
        }
    }
    Ok(IdList::union(&lists))
}

/// Opens the metadata for writing, makes sure that it is what was looked at, and writes.
fn delete_in_place(
    matches: &ArgMatches,
    victims: &BTreeSet<ThinId>,
    before: &Block,
    context: &Context,
) -> anyhow::Result<Figures> {
    let path = options::get_input(matches)?;
    let mut output = FileOutput::open(path, None).context("the metadata cannot be changed")?;
    let source = output.source().context("the metadata cannot be read again")?;
    if source.read(BlockNr(0))?.as_ref() != before {
        bail!("the metadata changed while it was looked at: nothing was changed");
    }
    let delete_options =
        DeleteOptions { transaction_id: matches.get_one("transaction-id").copied(), ..DeleteOptions::default() };
    let progress = context.progress(false);
    let result = Target::read(&source, progress.as_ref())
        .and_then(|target| plan(&target, victims, delete_options, progress.as_ref()));
    drop(progress);
    let deletion = result.map_err(|error| explain(error, context))?;
    anyhow::ensure!(source.nr_faults() == 0, "the metadata failed while it was read: nothing was changed");
    if let Some(file) = matches.get_one::<PathBuf>("undo") {
        let undo = Undo::of(&source, deletion.locations(), deletion.superblock())?;
        output::save_new(file, &undo.to_bytes())?;
    }
    drop(source);
    let figures = deletion.figures();
    deletion.commit(&mut output)?;
    Ok(figures)
}

/// Shows the damage that keeps from deleting.
fn explain(error: DeleteError, context: &Context) -> anyhow::Error {
    if let DeleteError::Damaged { findings, .. } = &error {
        show(findings, context);
    }
    error.into()
}

fn show(findings: &Findings, context: &Context) {
    findings.iter().take(SHOWN_FINDINGS).for_each(|finding| context.error(finding));
}

fn told(figures: &Figures) -> String {
    let Figures { devices, data_before, data_after, metadata_before, metadata_after } = *figures;
    format!(
        "{devices} {} deleted: {} data blocks and {} metadata blocks are free again; \
         {data_after} data blocks and {metadata_after} metadata blocks are in use",
        if devices == 1 { "device" } else { "devices" },
        data_before.saturating_sub(data_after),
        metadata_before.saturating_sub(metadata_after),
    )
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_delete takes devices out of the metadata of a pool that is not active: any number of them in \
                     one transaction, in a moment. METADATA must not be in use: a block device is opened exclusively. \
                     The data blocks that only the deleted devices used are free afterwards; the data device is not \
                     touched.",
                ),
                Part::text(
                    "The metadata is checked first. Nothing is written where anything is damaged, where needs_check is \
                     set, or where data blocks are counted too low; thin_check tells what helps. Leaks are no obstacle.",
                ),
                Part::text(
                    "The change is written into free metadata blocks, and the superblock comes last: a machine that \
                     stops on the way leaves the pool as it was, or as it should be. What a metadata snapshot holds \
                     stays in use. The transaction id stays as it is unless --transaction-id is given.",
                ),
            ],
        },
        exit_status(vec![Part::text(
            "An id, or a range, that no device has is an error unless --ignore-missing is given.",
        )]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("Delete a device and a range of snapshots:"),
                Part::example("thin_delete --dev-id 7,100-163 /dev/vg/pool_tmeta"),
                Part::text("Delete all but two, and be able to take it back:"),
                Part::example(
                    "thin_delete --keep 1,2 --undo pool.undo /dev/vg/pool_tmeta\nthin_undo pool.undo /dev/vg/pool_tmeta",
                ),
            ],
        },
    ]
}
