//! `thin_generate_metadata`: pools for tests.

use super::context::Context;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options::{self, OUTPUT, flag, value};
use super::registry::Tool;
use crate::block::FileOutput;
use crate::thin::generate::{GenerateOptions, Generated, format, generate, set_needs_check};
use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool = Tool {
    name: "thin_generate_metadata",
    about: "Write the metadata of a new or a made-up thin pool, for tests",
    arguments,
    run,
    manual,
};

const FORMAT: &str = "format";
const SET_NEEDS_CHECK: &str = "set-needs-check";
/// Options that say what a made-up pool is like.
const SHAPE: [&str; 9] = [
    "seed",
    "devices",
    "snapshots",
    "mappings",
    "run-length",
    "leaf-fill",
    "change",
    "metadata-snapshot",
    "needs-check",
];

fn arguments(command: Command) -> Command {
    let number = |name, value_name, default: &'static str, help| {
        value(name, value_name, value_parser!(u64), help).default_value(default)
    };
    command
        .arg(
            value(OUTPUT, "FILE", value_parser!(PathBuf), "The device or file to write, which must exist")
                .short('o')
                .required(true),
        )
        .arg(options::quiet())
        .arg(flag(FORMAT, "Write a pool without devices").conflicts_with(SET_NEEDS_CHECK))
        .arg(
            Arg::new(SET_NEEDS_CHECK)
                .long(SET_NEEDS_CHECK)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_name("BOOL")
                .value_parser(value_parser!(bool))
                .help("Only set or clear the flag of the pool that is there"),
        )
        .arg(value("block-size", "SECTORS", value_parser!(u32), "Sectors of a data block").default_value("128"))
        .arg(value(
            "nr-data-blocks",
            "N",
            value_parser!(u64),
            "Blocks of the data device (default: 10240 with --format, else as many as are used)",
        ))
        .arg(value("transaction-id", "N", value_parser!(u64), "The transaction id").default_value("0"))
        .arg(number("seed", "N", "0", "Another number makes another pool"))
        .arg(number("devices", "N", "1", "Devices that are no snapshots"))
        .arg(number("snapshots", "N", "0", "Snapshots of each device, one after the other"))
        .arg(number("mappings", "N", "10000", "Mappings of each device"))
        .arg(number("run-length", "N", "8", "How many mappings continue each other, on average"))
        .arg(
            value("leaf-fill", "PERCENT", parse_fill, "How full leaves are: a number, or two, as in 50-90")
                .default_value("100"),
        )
        .arg(number("change", "PERCENT", "5", "How many leaves are overwritten in part after a snapshot"))
        .arg(flag("metadata-snapshot", "Hold a metadata snapshot, and change every device after it"))
        .arg(flag("needs-check", "Set the flag needs_check"))
        .mut_args(|arg| {
            if SHAPE.contains(&arg.get_id().as_str()) { arg.conflicts_with_all([FORMAT, SET_NEEDS_CHECK]) } else { arg }
        })
}

fn parse_fill(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) => Ok(least..=most),
        _ => Err("a percentage is wanted, or two, as in 50-90".into()),
    }
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let path = matches.get_one::<PathBuf>(OUTPUT).map_or(Path::new(""), PathBuf::as_path);
    let mut output = FileOutput::open(path, None)?;
    let number = |name: &str| matches.get_one::<u64>(name).copied();
    let data_block_size = matches.get_one::<u32>("block-size").copied().unwrap_or(128);
    let doing = || format!("cannot write '{}'", path.display());
    if let Some(needs_check) = matches.get_one::<bool>(SET_NEEDS_CHECK) {
        set_needs_check(&mut output, *needs_check).with_context(doing)?;
        return Ok(Outcome::Success);
    }
    if matches.get_flag(FORMAT) {
        format(&mut output, data_block_size, number("nr-data-blocks").unwrap_or(10_240)).with_context(doing)?;
        return Ok(Outcome::Success);
    }
    let generate_options = GenerateOptions {
        seed: number("seed").unwrap_or_default(),
        data_block_size,
        nr_data_blocks: number("nr-data-blocks"),
        devices: number("devices").unwrap_or_default(),
        snapshots: number("snapshots").unwrap_or_default(),
        mappings: number("mappings").unwrap_or_default(),
        run_length: number("run-length").unwrap_or_default(),
        leaf_fill: matches.get_one::<RangeInclusive<u64>>("leaf-fill").cloned().unwrap_or(100..=100),
        change: number("change").unwrap_or_default(),
        metadata_snapshot: matches.get_flag("metadata-snapshot"),
        needs_check: matches.get_flag("needs-check"),
        transaction: number("transaction-id").unwrap_or_default(),
    };
    let made = generate(&mut output, &generate_options).with_context(doing)?;
    let Generated { devices, mappings, data_blocks, metadata_blocks } = made;
    context.print(format!(
        "{devices} devices, {mappings} mappings, {data_blocks} data blocks, {metadata_blocks} metadata blocks\n"
    ))?;
    Ok(Outcome::Success)
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_generate_metadata writes metadata to a device or file that exists: with --format that of a \
                     new pool, else that of a made-up one, which is sound and the same for the same options. \
                     thin_generate_damage can damage it.",
                ),
                Part::text(
                    "Devices have the ids from 1 on, snapshots come behind the others. A snapshot shares all with its \
                     origin, of which --change percent of the leaves are then overwritten in part, as the kernel does \
                     it: with copies of the leaves and of the nodes above them.",
                ),
                Part::text("With --set-needs-check nothing but the flag of an existing pool changes."),
            ],
        },
        exit_status(vec![]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("A pool of 20 devices with 5 snapshots each:"),
                Part::example(
                    "truncate -s 64M pool.img\n\
                     thin_generate_metadata -o pool.img --devices 20 --snapshots 5 --mappings 20000 --leaf-fill 50-90",
                ),
            ],
        },
    ]
}
