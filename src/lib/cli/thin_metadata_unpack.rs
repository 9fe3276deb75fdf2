//! `thin_metadata_unpack`: the image that a packed file was made of.

use super::context::Context;
use super::destination;
use super::exit::Outcome;
use super::manual::{Part, Section, exit_status};
use super::options::{self, INPUT, OUTPUT, flag, value};
use super::registry::Tool;
use super::thin_metadata_pack::threads;
use crate::base::BlockNr;
use crate::block::{FileOutput, spool};
use crate::format::{BLOCK_SIZE, Block};
use crate::pack;
use crate::pdata::commit::write_whole;
use anyhow::{Context as _, bail};
use clap::{ArgMatches, Command, value_parser};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

pub(super) const TOOL: Tool =
    Tool { name: "thin_metadata_unpack", about: "Unpack a packed image of metadata", arguments, run, manual };

/// More than any packed image has.
const INPUT_BYTES_MAX: u64 = 20 << 30;

fn arguments(command: Command) -> Command {
    let path = || value_parser!(PathBuf);
    command
        .arg(value(INPUT, "FILE", path(), "The packed image; - is standard input").short('i').required(true))
        .arg(
            value(OUTPUT, "FILE", path(), "The file to make, or a device that is large enough")
                .short('o')
                .required_unless_present("check"),
        )
        .arg(flag("check", "Only verify the packed image; write nothing").conflicts_with(OUTPUT))
        .arg(flag("force", "Overwrite a file that holds metadata without asking").short('f'))
        .arg(options::quiet())
        .arg(options::threads())
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let path = |id: &str| options::path(matches, id);
    let (input, output) = (path(INPUT), path(OUTPUT));
    let cannot = || format!("cannot unpack '{}'", input.display());
    let file = open(input).with_context(cannot)?;
    let (len, threads) = (file.metadata().with_context(cannot)?.len(), threads(matches));
    if matches.get_flag("check") {
        let found = pack::check(&file, len, threads).with_context(cannot)?;
        context.note(format_args!("{} of {} blocks are packed, all are good", found.nr_packed, found.nr_blocks));
        return Ok(Outcome::Success);
    }
    destination::may_overwrite(output, input, matches.get_flag("force"), context)?;
    if std::fs::metadata(output).is_ok_and(|found| found.file_type().is_block_device()) {
        // Verified as a whole before anything is written.
        let image = pack::decode(&file, len, threads).with_context(cannot)?;
        write_whole(&image, &mut FileOutput::open(output, None)?)
            .with_context(|| format!("cannot write '{}'", output.display()))?;
        return Ok(Outcome::Success);
    }
    destination::replace(output, |image| {
        let write = |location: BlockNr, block: &Block| image.write_all_at(block, location.0 * BLOCK_SIZE as u64);
        let found = pack::decode_into(&file, len, threads, &write).with_context(cannot)?;
        // Blocks of zeros take no room.
        Ok(image.set_len(found.nr_blocks.saturating_mul(BLOCK_SIZE as u64))?)
    })?;
    Ok(Outcome::Success)
}

fn open(input: &Path) -> anyhow::Result<File> {
    if input == Path::new("-") {
        return Ok(spool::to_memory(&mut io::stdin().lock(), INPUT_BYTES_MAX)?);
    }
    if !std::fs::metadata(input)?.is_file() {
        bail!("it is not a regular file; - reads standard input");
    }
    Ok(File::open(input)?)
}

fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![Part::text(
                "thin_metadata_unpack makes the image again from which a packed file was made. Blocks that are not in the \
                 packed file are zeros. The packed file is verified whole before anything is written; after a failure \
                 the output is as it was.",
            )],
        },
        exit_status(vec![]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::example("thin_metadata_unpack -i pool.pack -o pool.img"),
                Part::text("Verify a packed file without unpacking it:"),
                Part::example("thin_metadata_unpack --check -i pool.pack"),
            ],
        },
    ]
}
