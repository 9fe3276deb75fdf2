//! `thin_generate_damage`: damage on purpose.

use super::context::Context;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options::{self, OUTPUT, flag, value};
use super::registry::Tool;
use crate::base::BlockNr;
use crate::block::{BlockSource, FileOutput};
use crate::thin::damage::{self, BlockDamage, Damage, Kind, Leaks, Override, Target};
use anyhow::{Context as _, bail};
use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool = Tool {
    name: "thin_generate_damage",
    about: "Damage the metadata of a thin pool on purpose, for tests",
    arguments,
    run,
    manual,
};

const LEAKS: &str = "create-metadata-leaks";
const OVERRIDE: &str = "override";
const KIND: &str = "kind";

fn arguments(command: Command) -> Command {
    let number = |name, help| value(name, "N", value_parser!(u64), help);
    let count = |name, help| value(name, "RC", value_parser!(u32), help);
    command
        .arg(value(OUTPUT, "FILE", value_parser!(PathBuf), "The device or file to damage").short('o').required(true))
        .arg(options::quiet())
        .arg(flag(LEAKS, "Store other counts for some metadata blocks").requires_all([
            "expected",
            "actual",
            "nr-blocks",
        ]))
        .arg(count("expected", "Pick blocks with this count").requires(LEAKS))
        .arg(count("actual", "Store this count for them").requires(LEAKS))
        .arg(number("nr-blocks", "How many blocks").requires(LEAKS))
        .arg(flag(OVERRIDE, "Write other roots into the superblock"))
        .arg(number("mapping-root", "This root of the upper mapping tree").requires(OVERRIDE))
        .arg(number("details-root", "This root of the details tree").requires(OVERRIDE))
        .arg(number("metadata-snap", "This block of the metadata snapshot").requires(OVERRIDE))
        .arg(value(KIND, "KIND", names(&Kind::ALL), "What happens to blocks"))
        .arg(
            value("target", "TARGET", names(&Target::ALL), "Which blocks it happens to (default: any)")
                .requires(KIND)
                .conflicts_with("block"),
        )
        .arg(number("block", "It happens to this block").requires(KIND))
        .arg(number("count", "How many blocks it happens to (default: 1)").requires(KIND).conflicts_with("block"))
        .arg(flag("reseal", "Make checksums and block numbers good again").requires(KIND))
        .arg(number("seed", "Another number picks other blocks").default_value("0"))
        .group(ArgGroup::new("damage").args([LEAKS, OVERRIDE, KIND]).required(true))
}

fn names<T>(all: &[(&'static str, T)]) -> PossibleValuesParser {
    PossibleValuesParser::new(all.iter().map(|(name, _)| *name).collect::<Vec<_>>())
}

/// What a name that was given stands for.
fn named<T: Copy>(matches: &ArgMatches, id: &str, all: &[(&'static str, T)]) -> Option<T> {
    let given = matches.get_one::<String>(id)?;
    all.iter().find(|(name, _)| name == given).map(|(_, value)| *value)
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let path = matches.get_one::<PathBuf>(OUTPUT).map_or(Path::new(""), PathBuf::as_path);
    let mut output = FileOutput::open(path, None)?;
    let source = output.source().with_context(|| format!("cannot read '{}'", path.display()))?;
    let planned = plan(matches, &source).with_context(|| format!("cannot damage '{}'", path.display()))?;
    drop(source);
    damage::write(&mut output, &planned).with_context(|| format!("cannot write '{}'", path.display()))?;
    for Damage { location, what, .. } in &planned {
        context.print(format!("block {location}: {what}\n"))?;
    }
    Ok(Outcome::Success)
}

fn plan(matches: &ArgMatches, source: &dyn BlockSource) -> anyhow::Result<Vec<Damage>> {
    let number = |name: &str| matches.get_one::<u64>(name).copied();
    let count = |name: &str| matches.get_one::<u32>(name).copied().unwrap_or_default();
    let seed = number("seed").unwrap_or_default();
    if matches.get_flag(LEAKS) {
        let nr_blocks = number("nr-blocks").unwrap_or_default();
        let leaks = Leaks { expected: count("expected"), actual: count("actual"), nr_blocks, seed };
        return Ok(damage::create_leaks(source, &leaks)?);
    }
    if matches.get_flag(OVERRIDE) {
        let roots = Override {
            mapping_root: number("mapping-root"),
            details_root: number("details-root"),
            metadata_snapshot: number("metadata-snap"),
        };
        if [roots.mapping_root, roots.details_root, roots.metadata_snapshot] == [None; 3] {
            bail!("--override wants --mapping-root, --details-root or --metadata-snap");
        }
        return Ok(damage::override_roots(source, &roots)?);
    }
    let Some(kind) = named(matches, KIND, &Kind::ALL) else { bail!("no damage was asked for") };
    let target = match number("block") {
        Some(block) => Target::Block(BlockNr(block)),
        None => named(matches, "target", &Target::ALL).unwrap_or(Target::Any),
    };
    let wanted =
        BlockDamage { kind, target, count: number("count").unwrap_or(1), reseal: matches.get_flag("reseal"), seed };
    Ok(damage::damage_blocks(source, &wanted)?)
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_generate_damage damages metadata in place and says what it did. The same seed does the same \
                     to the same metadata. It is for testing tools that check and repair: the metadata is broken \
                     afterwards.",
                ),
                Part::text(
                    "With --create-metadata-leaks the reference counts of some metadata blocks are wrong, with \
                     --override the superblock leads elsewhere, with --kind blocks are damaged. Which blocks are of \
                     which kind is only known while the metadata is sound; --block names one in any case.",
                ),
                Part::text(
                    "Damage makes a block's checksum wrong, as it does on a disk. With --reseal the checksum and the \
                     block's own number are good again, as after a fault of software.",
                ),
            ],
        },
        exit_status(vec![]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("Three leaves of mapping trees go bad:"),
                Part::example(
                    "thin_generate_damage -o pool.img --kind bit-rot --target mapping-leaf --count 3 --seed 7",
                ),
                Part::text("Twenty metadata blocks leak:"),
                Part::example(
                    "thin_generate_damage -o pool.img --create-metadata-leaks --expected 0 --actual 1 --nr-blocks 20",
                ),
            ],
        },
    ]
}
