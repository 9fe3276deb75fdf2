//! `thin_replay`: what would other locks, batches and throttles have done to a pool's I/O?

mod scenario;

use super::context::Context;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options::{self, value};
use super::registry::Tool;
use crate::replay::costs::Costs;
use crate::replay::engine::Flavour;
use anyhow::{Context as _, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool = Tool {
    name: "thin_replay",
    about: "Replay a pool's I/O under other locking policies, on a virtual clock",
    arguments,
    run,
    manual,
};

const NAME: &str = "name";

fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new(options::INPUT)
                .value_name("COMMAND|METADATA")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("scenario, costs, or metadata of any form"),
        )
        .arg(Arg::new(NAME).value_name("NAME").help("What a command is about: a scenario or 'all', a cost profile"))
        .arg(options::quiet())
        .arg(options::flag("json", "Print the result as JSON"))
        .arg(value("costs", "PROFILE", value_parser!(String), "Use this cost profile, by name or from a file"))
        .arg(
            value("lock", "FLAVOUR", Flavour::ALL.map(Flavour::name), "What a lock's release does with those who wait")
                .default_value("rwsem-2016"),
        )
        .arg(value("scale", "N", value_parser!(u64).range(1..=1024), "Make images N times smaller").default_value("16"))
        .arg(
            value("leaf-fill", "PERCENT", value_parser!(u64).range(34..=100), "How full the leaves of made images are")
                .default_value("50"),
        )
        .arg(value("kappa", "RATIO", value_parser!(f64), "A turn of the resync in normal requests").default_value("28"))
        .arg(options::threads())
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    options::use_threads(matches)?;
    let input = options::get_input(matches)?;
    let name = matches.get_one::<String>(NAME).map(String::as_str);
    match (input.to_str().unwrap_or(""), name) {
        ("scenario", Some(name)) => scenario::run(name, matches, context),
        ("scenario", None) => bail!("which scenario? delete, cache, barrier, groups, stripe or all"),
        ("costs", name) => costs(name, context),
        (_, Some(extra)) => {
            bail!("'{extra}' is one argument too many after metadata\n\n'thin_replay --help' explains the options.")
        }
        (_, None) => {
            options::open_input(matches)?;
            bail!("a trace is wanted; 'thin_replay --help' explains the options")
        }
    }
}

/// Prints a profile, or the names of all.
fn costs(name: Option<&str>, context: &Context) -> anyhow::Result<Outcome> {
    match name {
        None => context.print(format!("{}\n", Costs::names().join("\n")))?,
        Some(name) => context.print(find_costs(name)?.text())?,
    }
    Ok(Outcome::Success)
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

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_replay runs the operations of a pool on a copy of its real trees, under locks and policies of \
                     your choice, and says what each would have done to the I/O. The metadata is only read. The clock is \
                     virtual: the same input gives the same output, byte for byte, on every machine.",
                ),
                Part::entry(
                    "scenario NAME",
                    "Runs a published case and holds it against the published figures: delete, cache, barrier, groups, stripe, or all.",
                ),
                Part::entry(
                    "costs [PROFILE]",
                    "Prints a cost profile with the origin of every value, or the names of all profiles.",
                ),
            ],
        },
        exit_status(vec![Part::text("A scenario in which a judged check does not hold fails.")]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("The whole acceptance table:"),
                Part::example("thin_replay scenario all"),
                Part::text("The same with leaves that are full; some checks must fail then:"),
                Part::example("thin_replay scenario delete --leaf-fill 100"),
            ],
        },
    ]
}
