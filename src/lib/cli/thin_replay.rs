//! `thin_replay`: what would other locks, batches and throttles have done to a pool's I/O?

mod manual;
mod models;
mod replay;
mod scenario;
mod traces;

use super::context::Context;
use super::exit::Outcome;
use super::id_list::IdList;
use super::options::{self, flag, value};
use super::output::Output;
use super::registry::Tool;
use crate::replay::cache::CacheRules;
use crate::replay::costs::Costs;
use crate::replay::engine::Flavour;
use crate::replay::policy::Policy;
use crate::replay::pool::SHARDS_MAX;
use crate::replay::scenario::stripe::Layout;
use crate::replay::trace::Mapping;
use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool = Tool {
    name: "thin_replay",
    about: "Replay a pool's I/O under other locking policies, on a virtual clock",
    arguments,
    run,
    manual: manual::manual,
};

const NAME: &str = "name";

fn arguments(command: Command) -> Command {
    let file = || value_parser!(PathBuf);
    let number = |name, value_name, help| value(name, value_name, value_parser!(u64), help);
    let within = |name, value_name, range: RangeInclusive<u64>, help| {
        value(name, value_name, value_parser!(u64).range(range), help)
    };
    command
        .arg(
            Arg::new(options::INPUT)
                .value_name("COMMAND|METADATA")
                .required(true)
                .value_parser(file())
                .help("Metadata of any form; or scenario, predict, sweep, costs, import or generate"),
        )
        .arg(Arg::new(NAME).value_name("NAME").value_parser(file()).help("What a command is about"))
        .arg(options::quiet())
        .arg(options::output())
        .arg(flag("json", "Print the result as JSON"))
        .arg(
            value(
                "trace",
                "FILE",
                file(),
                "What to replay: a trace, an I/O log of fio, text of blkparse, or a log of pool messages",
            )
            .short('t'),
        )
        .arg(value("side", "FILE", file(), "A second trace, or a log of pool messages, merged by time"))
        .arg(
            value(
                "policy",
                "POLICY",
                Policy::parse,
                "How deletes go about it, as in 'batch(16)+sleep(1ms)'; repeatable",
            )
            .short('p')
            .action(ArgAction::Append),
        )
        .arg(
            value("lock", "FLAVOUR", FLAVOURS, "What a lock's release does with those who wait")
                .default_value("rwsem-2016"),
        )
        .arg(value("costs", "PROFILE", value_parser!(String), "Use this cost profile, by name or from a file"))
        .arg(value("split", "RULE", ["half", "share"], "What becomes of full nodes").default_value("share"))
        .arg(
            value(
                "allocation",
                "RULE",
                value_parser!(String),
                "Where data blocks come from: cursor, goal, thread, shared, aligned(N)",
            )
            .default_value("cursor"),
        )
        .arg(flag("skip-block-zeroing", "New blocks are not zeroed where a write fills only a part of them"))
        .arg(
            value(
                "buffer-locks",
                "N",
                value_parser!(u64).range(0..=SHARDS_MAX),
                "Get metadata buffers under so many locks: 1 as Linux up to 6.3, more as later; 0 is none",
            )
            .default_value("0"),
        )
        .arg(value(
            "cache",
            "RULES",
            CacheRules::parse,
            "What is kept in memory of the metadata, as in 'cap(256KiB)+age(300s)'; without it all of it is",
        ))
        .arg(flag("elasticity", "Run the first policy with each assumed price halved and doubled"))
        .arg(value(
            "stripe",
            "DISKS:KIB",
            Layout::parse,
            "Count how new blocks fall on a RAID6 of so many data disks and chunks",
        ))
        .arg(value("svg", "FILE", file(), "Write a timeline"))
        .arg(value("zoom", "FROM..TO", value_parser!(String), "The seconds that the timeline shows"))
        .arg(value("save-overlay", "FILE", file(), "Write the metadata after the first policy's run to a new file"))
        .arg(number("crash-at", "N", "Stop right after the N-th commit, as a crash would, and say what is leaked"))
        .arg(
            value("clock", "CLOCK", ["virtual", "real"], "Run on a virtual clock, or on threads")
                .default_value("virtual"),
        )
        .arg(flag("bare", "On threads: do the work only, and do not spin for what it costs"))
        .arg(
            value(
                "map",
                "NAME:DEVICE",
                Mapping::parse,
                "Where a recorded file or device went, as in 253,4:6, or - to leave it out; repeatable",
            )
            .action(ArgAction::Append),
        )
        .arg(within("depth", "N", 1..=1 << 20, "Requests at once, where a recording has no times").default_value("8"))
        .arg(value(
            "iolog-unit",
            "UNIT",
            ["us", "ms"],
            "The unit of times and waits in an I/O log, if it is not to be guessed",
        ))
        .arg(
            value(
                "action",
                "ACTION",
                ["Q", "D", "I", "A"],
                "The events of a block trace that count; A: of the devices above",
            )
            .default_value("Q"),
        )
        .arg(flag("by-process", "Make a stream of each process of a block trace"))
        .arg(flag("lenient", "Pass over verbs that are not known"))
        .arg(
            value("delete", "LIST", IdList::parse, "Predict the deletes of these devices: 1,5,10-20; repeatable")
                .action(ArgAction::Append),
        )
        .arg(flag("measure", "In JSON: also how long thin_delete would take here, which differs from run to run"))
        .arg(within("scale", "N", 1..=1024, "Make images N times smaller (default: 16; 64 for a sweep)"))
        .arg(
            value("leaf-fill", "PERCENT", value_parser!(u64).range(34..=100), "How full the leaves of made images are")
                .default_value("50"),
        )
        .arg(value("kappa", "RATIO", kappa, "A turn of the resync in normal requests: 0.1 to 1000").default_value("28"))
        .arg(number("seed", "N", "Another number makes another trace").default_value("1"))
        .arg(within("requests", "N", 1..=10_000_000, "Requests of a made trace").default_value("10000"))
        .arg(
            within("block-size", "SECTORS", 1..=1 << 22, "Sectors of a data block, for a made trace")
                .default_value("1024"),
        )
        .arg(options::threads())
}

fn kappa(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.1..=1000.0).contains(ratio));
    ratio.ok_or_else(|| format!("'{text}' is no ratio from 0.1 to 1000"))
}

/// `--lock all` is for replays.
const FLAVOURS: [&str; 5] = ["rwsem-2016", "rwsem-handoff", "fifo", "barge", "all"];

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    options::use_threads(matches)?;
    let input = options::get_input(matches)?;
    let name = matches.get_one::<PathBuf>(NAME).map(PathBuf::as_path);
    let word = |path: Option<&Path>| path.and_then(Path::to_str).unwrap_or("").to_string();
    match (input.to_str().unwrap_or(""), name) {
        ("scenario", Some(_)) => scenario::run(&word(name), matches, context),
        ("scenario", None) => bail!("which scenario? delete, cache, barrier, groups, stripe or all"),
        ("predict", Some(metadata)) => models::predict(metadata, matches, context),
        ("import", Some(file)) => traces::import(file, matches, context),
        ("generate", Some(_)) => traces::generate(&word(name), matches, context),
        ("predict" | "import" | "generate", None) => bail!("'{}' wants to know of what", input.display()),
        ("sweep", None) => models::sweep(matches, context),
        ("costs", None) => put(&format!("{}\n", Costs::names().join("\n")), &[], matches, context),
        ("costs", Some(path)) => put(&find_costs(&word(name))?.text(), &[path], matches, context),
        (_, Some(extra)) => {
            bail!("'{}' is one argument too many\n\n'thin_replay --help' explains the options.", extra.display())
        }
        (_, None) => replay::run(input, matches, context),
    }
}

/// Prints a result, or writes it to the file that `-o` names, which is none of the `inputs`.
fn put(text: &str, inputs: &[&Path], matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    match options::get_output(matches) {
        None => context.print(text)?,
        path => write_whole(path, text, inputs)?,
    }
    Ok(Outcome::Success)
}

/// Writes a file, which is there whole or not at all, and is none of the `inputs`.
fn write_whole(path: Option<&Path>, text: &str, inputs: &[&Path]) -> anyhow::Result<()> {
    let mut output = Output::apart(path, inputs)?;
    let written = output.write_all(text.as_bytes());
    written.with_context(|| format!("can't write {}", output.name()))?;
    output.finish()
}

/// A profile that comes with the program, or one in a file.
fn find_costs(name: &str) -> anyhow::Result<Costs> {
    if let Some(costs) = Costs::named(name) {
        return Ok(costs);
    }
    let text = std::fs::read_to_string(Path::new(name))
        .with_context(|| format!("there is no cost profile '{name}', and no such file can be read"))?;
    Costs::parse(&text).with_context(|| format!("'{name}' can't be used"))
}

fn get_costs(matches: &ArgMatches) -> anyhow::Result<Costs> {
    matches.get_one::<String>("costs").map_or_else(|| Ok(Costs::standard()), |name| find_costs(name))
}

fn get_flavour(matches: &ArgMatches) -> Flavour {
    matches.get_one::<String>("lock").and_then(|name| Flavour::named(name)).unwrap_or_default()
}

/// The policies that are asked for, or these.
fn get_policies(matches: &ArgMatches, default: &[&str]) -> Vec<Policy> {
    match matches.get_many::<Policy>("policy") {
        Some(policies) => policies.cloned().collect(),
        None => default.iter().filter_map(|policy| Policy::parse(policy).ok()).collect(),
    }
}
