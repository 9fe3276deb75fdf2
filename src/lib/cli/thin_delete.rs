//! `thin_delete`: devices taken out of a pool that is not active.

use super::context::Context;
use super::exit::Outcome;
use super::id_list::IdList;
use super::manual::{Part, Section, exit_status};
use super::options::{self, OUTPUT, flag, value};
use super::output::{self, Output};
use super::registry::Tool;
use crate::base::{BlockNr, Findings, Progress, Sectors, ThinId};
use crate::block::{BlockSource, FileOutput};
use crate::format::Block;
use crate::format::superblock::ThinSuperblock;
use crate::pack::Form;
use crate::pdata::commit::{CommitError, Undo};
use crate::thin::delete::{
    DeleteError, DeleteOptions, Figures, ImageError, Precheck, Strategy, Target, Wanted, no_room_text, plan_part,
    precheck, predict, ranges_json, ranges_text, write_image,
};
use anyhow::{Context as _, bail};
use clap::{ArgAction, ArgMatches, Command, value_parser};
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
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
        .arg(
            flag("dry-run", "Only tell what would come back, for each device and for all of them")
                .conflicts_with_all([OUTPUT, "undo", "freed-ranges"]),
        )
        .arg(flag("json", "Give the account of --dry-run, and the ranges of --freed-ranges, as JSON"))
        .arg(
            value(
                OUTPUT,
                "OUT",
                path(),
                "Write the pool without the devices to another device or file, which must exist",
            )
            .short('o')
            .conflicts_with("undo"),
        )
        .arg(
            value("freed-ranges", "FILE", path(), "Write the ranges of the data device that became free to FILE")
                .conflicts_with(OUTPUT),
        )
        .arg(flag("no-check", "Do not check the metadata first").conflicts_with("quick-check"))
        .arg(flag(
            "allow-damaged",
            "Delete damaged devices too, as long as all others are sound; both space maps are counted anew",
        ))
        .arg(flag("quick-check", "Check first only the superblock and the devices, without their mappings"))
        .arg(
            value("strategy", "STRATEGY", ["auto", "drop", "recount"], "How the new reference counts are found")
                .default_value("auto"),
        )
        .arg(options::transaction_id())
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
    let target = read_target(matches, source, progress.as_ref()).map_err(|error| explain(error, context))?;
    let Some(wanted) = wanted(matches)? else { bail!("nothing is to be deleted: give --dev-id, --keep or --from") };
    let victims =
        target.select(&wanted, matches.get_flag("ignore-missing")).map_err(|error| explain(error, context))?;
    if victims.is_empty() {
        context.note("no device is to be deleted");
    }
    let in_place = !matches.get_flag("dry-run") && options::get_output(matches).is_none();
    if in_place && !matches!(opened.form, Form::RawFile | Form::BlockDevice) {
        bail!("this is not the metadata itself: unpack it first, or write another image with -o");
    }
    let mut leaks = None;
    if !matches.get_flag("no-check") {
        let how = if matches.get_flag("quick-check") { Precheck::Quick } else { Precheck::Full };
        match precheck(source, how, progress.as_ref()) {
            Err(DeleteError::Damaged { findings, .. }) if allows_damaged(matches) => {
                findings.iter().take(SHOWN_FINDINGS).for_each(|finding| context.warning(finding));
            }
            Err(DeleteError::NeedsCheck) if allows_damaged(matches) => {}
            result => leaks = result.map_err(|error| explain(error, context))?,
        }
    }
    if matches.get_flag("dry-run") {
        let account = predict(&target, &victims, delete_options(matches), leaks, progress.as_ref());
        drop(progress);
        let account = account.map_err(|error| explain(error, context))?;
        let text = if matches.get_flag("json") { format!("{:#}\n", account.json()) } else { account.text() };
        context.print(text)?;
        return Ok(Outcome::Success);
    }
    drop(progress);
    if let Some(path) = options::get_output(matches) {
        write_elsewhere(matches, &target, &victims, path, context)?;
        return Ok(Outcome::Success);
    }
    // Without victims nothing changes, unless something else was asked for.
    if victims.is_empty() && !["freed-ranges", "transaction-id"].iter().any(|name| matches.contains_id(name)) {
        return Ok(Outcome::Success);
    }
    drop(target);
    let before = source.read(BlockNr(0))?;
    drop(opened);
    let figures = delete_in_place(matches, &victims, &before, context)?;
    context.note(told(&figures));
    if allows_damaged(matches) {
        context.note("both space maps were counted anew: what was damaged below the deleted devices is gone with them");
        if ThinSuperblock::view(&before).needs_check() {
            context.note("needs_check is still set: thin_check --clear-needs-check-flag clears it");
        }
    }
    Ok(Outcome::Success)
}

fn allows_damaged(matches: &ArgMatches) -> bool {
    matches.get_flag("allow-damaged")
}

fn read_target<'a>(
    matches: &ArgMatches,
    source: &'a dyn BlockSource,
    progress: &dyn Progress,
) -> Result<Target<'a>, DeleteError> {
    if allows_damaged(matches) { Target::read_damaged(source, progress) } else { Target::read(source, progress) }
}

fn delete_options(matches: &ArgMatches) -> DeleteOptions {
    DeleteOptions {
        strategy: match matches.get_one::<String>("strategy").map(String::as_str) {
            _ if allows_damaged(matches) => Strategy::Recount,
            Some("drop") => Strategy::Drop,
            Some("recount") => Strategy::Recount,
            _ => Strategy::Auto,
        },
        transaction_id: matches.get_one("transaction-id").copied(),
        note_freed: matches.contains_id("freed-ranges"),
    }
}

/// Writes the pool without the victims to `path`.
fn write_elsewhere(
    matches: &ArgMatches,
    target: &Target<'_>,
    victims: &BTreeSet<ThinId>,
    path: &Path,
    context: &Context,
) -> anyhow::Result<()> {
    let input = std::fs::metadata(options::get_input(matches)?).ok();
    let mut file = FileOutput::open(path, input.as_ref())?;
    let progress = context.progress(false);
    let transaction_id = matches.get_one("transaction-id").copied();
    let written = write_image(target, victims, transaction_id, &mut file, progress.as_ref());
    drop(progress);
    let written = written.map_err(|error| match error {
        ImageError::Delete(error) => explain(error, context),
        other => anyhow::Error::new(other).context(format!("cannot write '{}'", path.display())),
    })?;
    if target.superblock().held_root().is_some() {
        context.warning("the metadata snapshot was left out");
    }
    let (left_out, path) = (victims.len(), path.display());
    context.note(format_args!(
        "written to '{path}' without {}: {} metadata blocks are in use",
        devices(left_out as u64),
        written.nr_used
    ));
    Ok(())
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

/// Opens the metadata for writing, makes sure that it is what was looked at, and writes: once, or where there is room
/// for a part of the victims only, several times.
fn delete_in_place(
    matches: &ArgMatches,
    victims: &BTreeSet<ThinId>,
    before: &Block,
    context: &Context,
) -> anyhow::Result<Figures> {
    let path = options::get_input(matches)?;
    let mut output = FileOutput::open(path, None).context("the metadata cannot be changed")?;
    let ranges = freed_ranges(matches)?;
    let mut done: Option<Figures> = None;
    let mut freed: Vec<Range<u64>> = Vec::new();
    let mut left = victims.clone();
    while !left.is_empty() {
        let step = delete_some(matches, &left, done.is_none().then_some(before), &mut output, context);
        let (figures, rest, more) = step.with_context(|| match &done {
            Some(figures) => format!("{} are deleted, the others are still there", devices(figures.devices)),
            None => "cannot delete".to_string(),
        })?;
        done = Some(done.map_or(figures, |done| done.with(figures)));
        freed.extend(more);
        left = rest;
    }
    if let Some(mut file) = ranges {
        let size = Sectors(u64::from(ThinSuperblock::view(before).data_block_size.get()));
        freed.sort_unstable_by_key(|range| range.start);
        let text = match matches.get_flag("json") {
            true => format!("{:#}\n", ranges_json(&freed, size)),
            false => ranges_text(&freed, size),
        };
        file.write_all(text.as_bytes()).context(AFTERWARDS)?;
        file.finish().context(AFTERWARDS)?;
    }
    Ok(done.unwrap_or_default())
}

const AFTERWARDS: &str = "the devices are deleted, but the ranges that became free could not be written";

/// One transaction. Returns what it gave back, the victims that are left, and the data blocks that became free.
fn delete_some(
    matches: &ArgMatches,
    victims: &BTreeSet<ThinId>,
    before: Option<&Block>,
    output: &mut FileOutput,
    context: &Context,
) -> anyhow::Result<(Figures, BTreeSet<ThinId>, Vec<Range<u64>>)> {
    let source = output.source().context("the metadata cannot be read again")?;
    let found = source.read(BlockNr(0))?;
    if before.is_some_and(|before| *found != *before) {
        bail!("the metadata changed while it was looked at");
    }
    let progress = context.progress(false);
    let result = read_target(matches, &source, progress.as_ref())
        .and_then(|target| plan_part(&target, victims, delete_options(matches), progress.as_ref()));
    drop(progress);
    let (deletion, rest) = result.map_err(|error| explain(error, context))?;
    anyhow::ensure!(source.nr_faults() == 0, "the metadata failed while it was read");
    if let Some(file) = matches.get_one::<PathBuf>("undo") {
        anyhow::ensure!(
            rest.is_empty(),
            "there is not room enough to delete all of them at once, and what is done in steps cannot be taken back: \
             delete fewer, or leave out --undo, or write another image with -o"
        );
        let undo = Undo::of(&source, deletion.locations(), deletion.superblock())?;
        output::save_new(file, &undo.to_bytes())?;
    }
    drop(source);
    let (figures, freed) = (deletion.figures(), deletion.freed().to_vec());
    deletion.commit(output)?;
    Ok((figures, rest, freed))
}

/// The file that is wanted for the ranges that become free, opened before anything is changed.
fn freed_ranges(matches: &ArgMatches) -> anyhow::Result<Option<Output>> {
    let Some(path) = matches.get_one::<PathBuf>("freed-ranges") else { return Ok(None) };
    let mut file = Output::new(Some(path), options::get_input(matches)?)?;
    file.flush().with_context(|| format!("cannot write {}, nothing was changed", file.name()))?;
    Ok(Some(file))
}

/// Shows the damage that keeps from deleting.
fn explain(error: DeleteError, context: &Context) -> anyhow::Error {
    if let DeleteError::Damaged { findings, .. } = &error {
        show(findings, context);
    }
    match &error {
        DeleteError::Commit(CommitError::NoFreeBlocks { needed, free }) => {
            anyhow::anyhow!(no_room_text(*needed, *free))
        }
        _ => error.into(),
    }
}

fn show(findings: &Findings, context: &Context) {
    findings.iter().take(SHOWN_FINDINGS).for_each(|finding| context.error(finding));
}

fn told(figures: &Figures) -> String {
    let Figures { devices: count, data_before, data_after, metadata_before, metadata_after } = *figures;
    format!(
        "{} deleted: {} data blocks and {} metadata blocks are free again; \
         {data_after} data blocks and {metadata_after} metadata blocks are in use",
        devices(count),
        data_before.saturating_sub(data_after),
        metadata_before.saturating_sub(metadata_after),
    )
}

fn devices(count: u64) -> String {
    if count == 1 { "1 device".to_string() } else { format!("{count} devices") }
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
                Part::text(
                    "Where free metadata blocks don't suffice for all devices at once, they are deleted in several \
                     transactions, each of which leaves a sound pool. Where they don't suffice for one device, nothing \
                     is written; -o needs none.",
                ),
                Part::text(
                    "Only a device or a plain image can be changed in place. Packed and compressed images and XML are \
                     for --dry-run and -o.",
                ),
                Part::text(
                    "With --allow-damaged, damage below the devices that are deleted is no obstacle, and so the others \
                     are saved; damage that touches these still is. needs_check stays as it is.",
                ),
                Part::text(
                    "With -o nothing is changed: the pool without the devices is written to another device or file, \
                     which needs no free metadata blocks. A metadata snapshot is left out then.",
                ),
                Part::text(
                    "The new reference counts are found in one of two ways, whichever should cost less; the result is \
                     the same. drop takes away what the devices refer to, recount counts what the others refer to.",
                ),
            ],
        },
        Section {
            title: "OUTPUT",
            parts: vec![
                Part::text(
                    "--dry-run prints a line for each device: its MAPPED blocks; those SHARED with devices that stay, or \
                     with the metadata snapshot; those FREED; the METADATA blocks freed; and the BYTES of data. A block \
                     that several of the devices share is in FREED of each, and once in the line of all. What had \
                     leaked before, and comes back as well where all is counted anew, has a line of its own. A dash \
                     stands for what was not looked at. --json prints the same as an object; docs/thin_delete.json.md \
                     describes it.",
                ),
                Part::text(
                    "--freed-ranges writes a line for each range of the data device that became free, ascending: where \
                     it begins and how long it is, two decimal numbers in bytes with a blank between. With --json it \
                     is an object, in data blocks.",
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
                Part::text("See first what that would give back:"),
                Part::example("thin_delete --dry-run --dev-id 7,100-163 /dev/vg/pool_tmeta"),
                Part::text("Discard what became free, while the pool is still inactive:"),
                Part::example(
                    "thin_delete --dev-id 7 --freed-ranges freed /dev/vg/pool_tmeta\n\
                     while read offset length; do\n    \
                     blkdiscard --offset \"$offset\" --length \"$length\" /dev/vg/pool_tdata\ndone < freed",
                ),
                Part::text("Delete all but two, and be able to take it back:"),
                Part::example(
                    "thin_delete --keep 1,2 --undo pool.undo /dev/vg/pool_tmeta\nthin_undo pool.undo /dev/vg/pool_tmeta",
                ),
            ],
        },
    ]
}
