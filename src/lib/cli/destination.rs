//! Files that a tool makes whole or not at all: packed images and images unfolded from them.

use super::context::Context;
use super::output;
use crate::block::is_same_file;
use crate::format::block::{self, BLOCK_SIZE, Block, BlockKind};
use anyhow::{Context as _, bail};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Makes sure that `path` may be overwritten: it is not the input, and holds no metadata unless that is wanted.
///
/// # Errors
/// Where it may not.
pub(super) fn may_overwrite(path: &Path, input: &Path, force: bool, context: &Context) -> anyhow::Result<()> {
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    if found.is_dir() {
        bail!("output '{}' is a directory", path.display());
    }
    if fs::metadata(input).is_ok_and(|input| is_same_file(&input, &found)) {
        bail!("output '{}' is the input; give another file", path.display());
    }
    let may_hold = found.is_file() || found.file_type().is_block_device();
    if force || !may_hold || !holds_metadata(path) {
        return Ok(());
    }
    if !context.is_quiet() {
        output::complain(&format!("'{}' holds metadata, which would be lost. Are you sure? [y/n]: ", path.display()));
    }
    let mut answer = String::new();
    let _no = io::stdin().lock().take(100).read_line(&mut answer);
    match answer.trim() {
        "y" | "yes" => Ok(()),
        _ => bail!("output file '{}' not overwritten; --force does it without a question", path.display()),
    }
}

fn holds_metadata(path: &Path) -> bool {
    let mut head: Block = [0; BLOCK_SIZE];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    let kinds = [BlockKind::ThinSuperblock, BlockKind::CacheSuperblock, BlockKind::EraSuperblock];
    read.is_ok() && block::identify(&head).is_some_and(|kind| kinds.contains(&kind))
}

/// Lets `write` fill a file that takes the place of `path` when all went well. After a failure `path` is as it was.
///
/// What is no regular file is written directly.
///
/// # Errors
/// Those of `write`, and of making the file.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut File) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let cannot = || format!("cannot write '{}'", path.display());
    let existing = fs::metadata(path).ok();
    if existing.as_ref().is_some_and(|found| !found.is_file()) {
        return write(&mut OpenOptions::new().write(true).open(path).with_context(cannot)?);
    }
    // A link stays, and what it leads to is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let beside = beside(&target);
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&beside).with_context(cannot)?;
    let done = write(&mut file)
        .and_then(|()| {
            if let Some(found) = &existing {
                file.set_permissions(found.permissions())?;
            }
            file.sync_all()?;
            Ok(fs::rename(&beside, &target)?)
        })
        .with_context(cannot);
    if done.is_err() {
        let _stays = fs::remove_file(&beside);
    }
    done
}

/// A name in the same folder that nobody uses.
pub(super) fn beside(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    target.with_file_name(name)
}

/// Standard output, for a stream.
///
/// # Errors
/// When it can't be written.
pub(super) fn to_stdout(write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut stdout = io::stdout();
    write(&mut stdout)?;
    stdout.flush().context("cannot write standard output")
}
