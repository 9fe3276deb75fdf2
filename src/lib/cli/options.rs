//! Options that several tools share, so that they are spelt and explained alike.

use super::VERSION;
use crate::base::{BlockNr, NoProgress};
use crate::block::scarce::default_threads;
use crate::format::superblock::data_block_size_is_valid;
use crate::pack;
use crate::pack::open::{Access, Form, OpenError, OpenOptions, Opened};
use crate::pack::text::{Text, open_text};
use crate::thin::load::Snapshot;
use crate::thin::restore::{RestoreOptions, XmlInput, restore_in_memory};
use crate::thin::xml::XmlOptions;
use anyhow::Context as _;
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};

/// The id of `-m`.
pub const METADATA_SNAP: &str = "metadata-snap";
/// The id of the positional that names the metadata to read.
pub const INPUT: &str = "input";
/// The id of `-o`.
pub const OUTPUT: &str = "output";
/// The id of `-q`.
pub const QUIET: &str = "quiet";
/// The id of `--threads`.
pub const THREADS: &str = "threads";

/// Adds what every tool has, seen or hidden, and the rule that a repeated option counts once, the last.
pub(super) fn common(command: Command) -> Command {
    let flag = |name: &'static str, short| Arg::new(name).long(name).short(short).action(ArgAction::SetTrue);
    command
        .version(VERSION)
        .args_override_self(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(flag("help", 'h').help("Print this help"))
        .arg(flag("version", 'V').help("Print the version"))
        .arg(
            value("exit-codes", "SCHEME", ["plain", "fsck"], "Exit with 0 or 1 (plain), or as fsck does")
                .default_value("plain"),
        )
        .arg(Arg::new("verbosity").short('v').action(ArgAction::Count).hide(true))
        .arg(Arg::new("io-engine").long("io-engine").value_parser(["sync", "async", "spindle"]).hide(true))
}

/// Whether `--exit-codes=fsck` is given.
pub(super) fn wants_fsck(matches: &ArgMatches) -> bool {
    matches.get_one::<String>("exit-codes").is_some_and(|scheme| scheme == "fsck")
}

/// A long flag without a short form.
pub fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// A long option with a value.
pub fn value(name: &'static str, value_name: &'static str, parser: impl Into<ValueParser>, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value_name).value_parser(parser.into()).help(help)
}

/// `-q`.
pub fn quiet() -> Arg {
    flag(QUIET, "Print nothing on either stream; only the exit status speaks").short('q')
}

/// The metadata to read, as the only positional.
pub fn input() -> Arg {
    Arg::new(INPUT)
        .value_name("INPUT")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("Metadata: a block device, an image of one, a packed image, or XML")
}

/// `-o FILE` for tools that write text.
pub fn output() -> Arg {
    value(OUTPUT, "FILE", value_parser!(PathBuf), "Write to FILE instead of standard output").short('o')
}

/// `-o FILE` for tools that write metadata to what is there already.
pub fn target() -> Arg {
    let help = "The device or file to write, which must exist; all of it is overwritten";
    value(OUTPUT, "FILE", value_parser!(PathBuf), help).short('o')
}

/// `--transaction-id N`.
pub fn transaction_id() -> Arg {
    value("transaction-id", "N", value_parser!(u64), "Write this transaction id")
}

fn data_block_size(text: &str) -> anyhow::Result<u32> {
    let sectors: u32 = text.parse()?;
    let wanted = "a pool's is a multiple of 128 sectors (64 KiB), up to 2097152 (1 GiB)";
    anyhow::ensure!(data_block_size_is_valid(sectors), wanted);
    Ok(sectors)
}

/// What may be written in place of the pool's own: `--transaction-id`, `--data-block-size`, `--nr-data-blocks`.
pub fn overrides() -> [Arg; 3] {
    [
        transaction_id(),
        value("data-block-size", "SECTORS", data_block_size, "Write this size of data blocks"),
        value("nr-data-blocks", "N", value_parser!(u64), "Write this number of data blocks"),
    ]
}

/// `--threads N`.
pub fn threads() -> Arg {
    let parser = value_parser!(u16).range(1..=1024);
    value(THREADS, "N", parser, "Use N threads instead of one for each processor; the output is the same")
}

/// The number that `--threads` gives, if it is given.
pub fn get_threads(matches: &ArgMatches) -> Option<usize> {
    matches.get_one::<u16>(THREADS).map(|number| usize::from(*number))
}

const HELD: &str = "held";

/// `-m`, `-mN`, `-m=N`, `-m N`, `--metadata-snap[=N]`, `--metadata-snapshot[=N]`.
pub fn metadata_snap() -> Arg {
    let parser = |text: &str| match text {
        HELD => Ok(Snapshot::Held),
        _ => text.parse().map(|block| Snapshot::At(BlockNr(block))),
    };
    Arg::new(METADATA_SNAP)
        .long("metadata-snap")
        .alias("metadata-snapshot")
        .short('m')
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value(HELD)
        .value_name("BLOCK")
        .value_parser(parser)
        .help("Read the metadata snapshot of a live pool; BLOCK, if given, must be where it is")
}

/// What `-m` asks for, if it is given.
pub fn get_metadata_snap(matches: &ArgMatches) -> Option<Snapshot> {
    matches.get_one::<Snapshot>(METADATA_SNAP).copied()
}

/// The positional that [`input`] defines.
///
/// # Errors
/// Never after a successful parse: clap has seen to it that it is there.
pub fn get_input(matches: &ArgMatches) -> anyhow::Result<&Path> {
    matches.get_one::<PathBuf>(INPUT).map(PathBuf::as_path).ok_or_else(|| anyhow::anyhow!("no input was given"))
}

/// The path that a required option or positional gives.
pub fn path<'a>(matches: &'a ArgMatches, id: &str) -> &'a Path {
    // Clap has seen to it that it is there.
    matches.get_one::<PathBuf>(id).map_or(Path::new(""), PathBuf::as_path)
}

/// The file that [`output`] names, if it is given.
pub fn get_output(matches: &ArgMatches) -> Option<&Path> {
    matches.get_one::<PathBuf>(OUTPUT).map(PathBuf::as_path)
}

/// Uses the number of threads that `--threads` gives.
///
/// # Errors
/// When the threads can't be had.
pub fn use_threads(matches: &ArgMatches) -> anyhow::Result<()> {
    match get_threads(matches) {
        Some(threads) => rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()
            .with_context(|| format!("cannot start {threads} threads")),
        // Rayon's own threads fail late, and with a panic.
        None if default_threads() == 1 => {
            let one = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
            one.build_global().context("cannot work with one thread")
        }
        None => Ok(()),
    }
}

/// Opens the metadata that [`input`] names: live where `-m` is given, else for us alone.
///
/// # Errors
/// With a message that names the file, what is wrong with it, and the next step.
pub fn open_input(matches: &ArgMatches) -> anyhow::Result<Opened> {
    let live = matches.try_contains_id(METADATA_SNAP).is_ok() && get_metadata_snap(matches).is_some();
    let access = if live { Access::Live } else { Access::Exclusive };
    let path = get_input(matches)?;
    match pack::open::open(path, &OpenOptions { access, direct: live }) {
        Err(OpenError::Xml { .. }) if !live => {
            from_xml(path).with_context(|| format!("cannot read '{}'", path.display()))
        }
        opened => Ok(opened?),
    }
}

/// Metadata built in memory from a dump, as it comes with a bug report: attributes that are not known don't matter.
fn from_xml(path: &Path) -> anyhow::Result<Opened> {
    let text = open_text(path)?;
    let input = match text {
        Text::Plain(ref file) => XmlInput::File(file),
        Text::Stream(stream) => XmlInput::Stream(stream),
    };
    let options = RestoreOptions { xml: XmlOptions { lenient: true }, ..RestoreOptions::default() };
    let source = restore_in_memory(input, &options, &NoProgress)?;
    Ok(Opened { source: Box::new(source), form: Form::Xml, trailing_bytes: 0, cached: false })
}
