//! `pdata_tools install`: puts this binary, a link for each tool, the manual pages and the completions in place.
//!
//! First everything is looked at, then everything is written; a file of somebody else's stops it before the first
//! write, unless `--force` is given. Doing it again changes nothing.

use super::context::Context;
use super::exit::Outcome;
use super::manual::{MARK, Part, Section, pages};
use super::options::{flag, value};
use super::registry::{TOOLS, Tool};
use anyhow::{Context as _, bail};
use clap::{ArgMatches, Command, value_parser};
use memchr::memmem;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub(super) const COMMAND: Tool = Tool {
    name: "install",
    about: "Put the binary, its links, manual pages and completions in place",
    arguments,
    run,
    manual,
};

/// The name that initramfs hooks look for.
const BINARY: &str = "pdata_tools";

fn arguments(command: Command) -> Command {
    let folder = value_parser!(PathBuf);
    command
        .arg(value("prefix", "DIR", folder.clone(), "Install below DIR, such as /usr/local").required(true))
        .arg(value("sbindir", "DIR", folder, "Put the binary and its links into DIR [default: PREFIX/sbin]"))
        .arg(flag("dry-run", "Only say what would be done").short('n'))
        .arg(flag("force", "Overwrite files of others"))
}

fn manual() -> Vec<Section> {
    vec![Section {
        title: "INSTALLING",
        parts: vec![
            Part::text(
                "pdata_tools install --prefix DIR puts this binary into DIR/sbin, or where --sbindir says, makes a link to it \
                 for each tool, and puts manual pages and completions for bash, zsh and fish below DIR/share. What is \
                 there already and the same is kept; what an earlier version put there is replaced. If any other file \
                 is in the way, nothing is written at all, unless --force is given. With --dry-run it only says what \
                 it would do.",
            ),
            Part::example("pdata_tools install --prefix /usr/local"),
        ],
    }]
}

/// What is to be at a place.
enum Content {
    File { bytes: Vec<u8>, mode: u32 },
    Link(&'static str),
}

struct Item {
    path: PathBuf,
    content: Content,
}

/// What has to be done to get there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Replace,
    Keep,
    /// It is somebody else's.
    Foreign,
}

fn run(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let prefix = matches.get_one::<PathBuf>("prefix").context("no prefix was given")?;
    let sbindir = matches.get_one::<PathBuf>("sbindir").cloned().unwrap_or_else(|| prefix.join("sbin"));
    let items = wanted(prefix, &sbindir)?;
    let steps = items.iter().map(step).collect::<anyhow::Result<Vec<Step>>>()?;
    if !matches.get_flag("force") {
        refuse_foreign(&items, &steps)?;
    }
    for (item, step) in items.iter().zip(&steps) {
        let word = match step {
            Step::Create => "create",
            Step::Replace | Step::Foreign => "replace",
            Step::Keep => "keep",
        };
        context.print(format!("{word} {}\n", item.path.display()))?;
        if *step != Step::Keep && !matches.get_flag("dry-run") {
            put(item).with_context(|| format!("cannot install '{}'", item.path.display()))?;
        }
    }
    Ok(Outcome::Success)
}

fn wanted(prefix: &Path, sbindir: &Path) -> anyhow::Result<Vec<Item>> {
    let own = std::env::current_exe().and_then(fs::read).context("cannot read the running binary")?;
    let mut items = vec![Item { path: sbindir.join(BINARY), content: Content::File { bytes: own, mode: 0o755 } }];
    items.extend(TOOLS.iter().map(|tool| Item { path: sbindir.join(tool.name), content: Content::Link(BINARY) }));
    for page in pages()? {
        let content = Content::File { bytes: page.text.into_bytes(), mode: 0o644 };
        items.push(Item { path: prefix.join(page.installed), content });
    }
    Ok(items)
}

fn step(item: &Item) -> anyhow::Result<Step> {
    let path = &item.path;
    let there = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Step::Create),
        other => other.with_context(|| format!("cannot look at '{}'", path.display()))?,
    };
    Ok(match &item.content {
        Content::Link(target) if there.is_symlink() && fs::read_link(path)? == Path::new(target) => Step::Keep,
        Content::File { bytes, mode } if there.is_file() => {
            let found = fs::read(path).with_context(|| format!("cannot read '{}'", path.display()))?;
            if found == *bytes && there.permissions().mode() & 0o777 == *mode {
                Step::Keep
            } else if memmem::find(&found, MARK.as_bytes()).is_some() {
                Step::Replace
            } else {
                Step::Foreign
            }
        }
        _ => Step::Foreign,
    })
}

fn refuse_foreign(items: &[Item], steps: &[Step]) -> anyhow::Result<()> {
    let foreign: Vec<String> = items
        .iter()
        .zip(steps)
        .filter(|(_, step)| **step == Step::Foreign)
        .map(|(item, _)| format!("\n  {}", item.path.display()))
        .collect();
    if !foreign.is_empty() {
        bail!("nothing was installed; these are not dmeta's (--force overwrites them):{}", foreign.concat());
    }
    Ok(())
}

/// Makes the new one beside the old one and renames it, so that a tool in use is never half there.
fn put(item: &Item) -> anyhow::Result<()> {
    let folder = item.path.parent().context("it has no folder")?;
    let name = item.path.file_name().context("it has no name")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder '{}'", folder.display()))?;
    let new = folder.join(format!(".{}.{}.new", name.to_string_lossy(), std::process::id()));
    let made = make(&new, &item.content).and_then(|()| fs::rename(&new, &item.path).map_err(Into::into));
    if made.is_err() {
        let _gone = fs::remove_file(&new);
    }
    made
}

fn make(path: &Path, content: &Content) -> anyhow::Result<()> {
    match content {
        Content::Link(target) => symlink(target, path)?,
        Content::File { bytes, mode } => {
            let mut file = fs::File::create_new(path)?;
            file.write_all(bytes)?;
            file.set_permissions(Permissions::from_mode(*mode))?;
            file.sync_all()?;
        }
    }
    Ok(())
}
