//! Standard output, standard error, and the file that `-o` names.

use super::destination::beside;
use crate::base::BlockNr;
use crate::block::{BlockSource, scarce};
use crate::format::BLOCK_SIZE;
use anyhow::{Context as _, bail};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Enough that a dump is written in few system calls, little enough not to matter.
const BUFFER: usize = 256 * 1024;

/// Writes to standard output at once.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    if scarce::stdout_was_closed() {
        bail!("cannot write standard output: it is closed");
    }
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.context("cannot write standard output")
}

/// Writes to standard error. If nobody can hear it, there is nobody to tell so.
pub(super) fn complain(text: &str) {
    let _unheard = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a file that must not exist yet, and makes it durable.
///
/// # Errors
/// Where it exists, or cannot be written; then it is taken away again.
pub(super) fn save_new(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("cannot save '{}', nothing was changed", path.display());
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).with_context(cannot)?;
    let saved = file.write_all(bytes).and_then(|()| file.sync_all());
    if saved.is_err() {
        let _stays = std::fs::remove_file(path);
    }
    saved.with_context(cannot)
}

/// Blocks that are copied at once: 1 MiB.
const COPY_BLOCKS: u64 = 256;

/// Copies all of `source` to a new file, and makes it durable. Returns how many blocks could not be read; these, like
/// those of zeros, are left out of the file, which reads as zeros there.
///
/// # Errors
/// Where the file exists, or cannot be written; then it is taken away again.
pub(super) fn save_copy(path: &Path, source: &dyn BlockSource) -> anyhow::Result<u64> {
    let cannot = || format!("cannot save '{}', nothing was changed", path.display());
    let file = OpenOptions::new().write(true).create_new(true).open(path).with_context(cannot)?;
    let saved = copy_blocks(&file, source).and_then(|unreadable| file.sync_all().map(|()| unreadable));
    if saved.is_err() {
        let _stays = fs::remove_file(path);
    }
    saved.with_context(cannot)
}

fn copy_blocks(file: &File, source: &dyn BlockSource) -> io::Result<u64> {
    let size = BLOCK_SIZE as u64;
    file.set_len(source.nr_blocks() * size)?;
    let (mut unreadable, mut written) = (0, Ok(()));
    for begin in (0..source.nr_blocks()).step_by(COPY_BLOCKS as usize) {
        let blocks: Vec<BlockNr> = (begin..source.nr_blocks().min(begin + COPY_BLOCKS)).map(BlockNr).collect();
        source.read_many(&blocks, &mut |location, block| {
            match block {
                Ok(block) if block.iter().any(|byte| *byte != 0) => {
                    written = file.write_all_at(block, location.0 * size);
                }
                Ok(_) => {}
                Err(_) => unreadable += 1,
            }
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        std::mem::replace(&mut written, Ok(()))?;
    }
    Ok(unreadable)
}

/// Where a tool writes its result: buffered, and opened only when the first byte comes.
///
/// A regular file is written beside its name, and takes its place only when it is whole: a run that fails leaves what
/// was there as it was. Devices and pipes are written directly.
#[derive(Debug)]
pub struct Output {
    /// `None` is standard output.
    path: Option<PathBuf>,
    open: Option<BufWriter<File>>,
    beside: Option<Beside>,
    /// All of it is where it should be.
    whole: bool,
}

/// A file on its way to its place.
#[derive(Debug)]
struct Beside {
    part: PathBuf,
    target: PathBuf,
}

impl Output {
    /// To the file that `-o` names, or to standard output where that is missing or `-`.
    ///
    /// # Errors
    /// When `path` is the tool's own `input`, under whatever name, or a directory.
    pub fn new(path: Option<&Path>, input: &Path) -> anyhow::Result<Self> {
        Output::apart(path, &[input])
    }

    /// The same for a tool with several inputs.
    ///
    /// # Errors
    /// When `path` is one of `inputs`, under whatever name, or a directory.
    pub fn apart(path: Option<&Path>, inputs: &[&Path]) -> anyhow::Result<Self> {
        let path = path.filter(|path| *path != Path::new("-"));
        if let Some(path) = path
            && let Ok(target) = path.metadata()
        {
            if target.is_dir() {
                bail!("output '{}' is a directory", path.display());
            }
            let is_it = |input: &&Path| input.metadata().is_ok_and(|source| is_same(&source, &target));
            if inputs.iter().any(is_it) {
                bail!("output '{}' is the input; give another file", path.display());
            }
        }
        Ok(Output { path: path.map(Path::to_path_buf), open: None, beside: None, whole: false })
    }

    /// Whether the result goes to standard output.
    pub fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// Writes out what is buffered, and puts the file in its place: all that was said is there.
    ///
    /// # Errors
    /// When it can't be written; then what was there before still is.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let done = self.flush().and_then(|()| self.put_in_place());
        done.with_context(|| format!("cannot write {}", self.name()))
    }

    fn put_in_place(&mut self) -> io::Result<()> {
        if let (Some(beside), Some(writer)) = (&self.beside, &self.open) {
            if let Ok(found) = fs::metadata(&beside.target) {
                writer.get_ref().set_permissions(found.permissions())?;
            }
            writer.get_ref().sync_all()?;
            fs::rename(&beside.part, &beside.target)?;
            self.beside = None;
        }
        self.whole = true;
        Ok(())
    }

    /// What it is called in a message.
    pub fn name(&self) -> String {
        match &self.path {
            Some(path) => format!("'{}'", path.display()),
            None => "standard output".to_string(),
        }
    }

    fn writer(&mut self) -> io::Result<&mut BufWriter<File>> {
        if self.open.is_none() {
            let file = match self.path.clone() {
                Some(path) => self.open_file(&path)?,
                None if scarce::stdout_was_closed() => return Err(io::Error::other("it is closed")),
                None => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            };
            self.open = Some(BufWriter::with_capacity(BUFFER, file));
        }
        self.open.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open_file(&mut self, path: &Path) -> io::Result<File> {
        // What has a name below these is somebody's open file, a device or a pipe.
        let elsewhere = path.starts_with("/dev") || path.starts_with("/proc");
        if !elsewhere && fs::metadata(path).map_or(true, |found| found.is_file()) {
            // A link stays, and what it leads to is replaced.
            let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
            let part = beside(&target);
            match OpenOptions::new().write(true).create_new(true).open(&part) {
                Ok(file) => {
                    self.beside = Some(Beside { part, target });
                    return Ok(file);
                }
                // The file may be written to although its folder may not.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }
}

impl Drop for Output {
    /// Half a result is taken back.
    fn drop(&mut self) {
        if let Some(writer) = self.open.take() {
            let (file, _buffered) = writer.into_parts();
            match &self.beside {
                Some(beside) => {
                    let _stays = fs::remove_file(&beside.part);
                }
                // Nobody should mistake half a result for a whole one.
                None if self.path.is_some() && file.metadata().is_ok_and(|found| found.is_file()) && !self.whole => {
                    let _stays = file.set_len(0);
                }
                None => {}
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer()?.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer()?.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer()?.flush()
    }
}

/// The same file, or two nodes of the same block device.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let same_file = one.dev() == other.dev() && one.ino() == other.ino();
    let both_devices = one.file_type().is_block_device() && other.file_type().is_block_device();
    same_file || (both_devices && one.rdev() == other.rdev())
}

#[cfg(test)]
mod tests {
    use super::Output;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_output_that_gets_nothing_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (input, path) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::write(&path, "before").unwrap();
        drop(Output::new(Some(&path), &input).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
    }

    fn names(folder: &std::path::Path) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_by_a_whole_result_and_never_by_half_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out"), folder.path().join("to"));
        for (name, before) in [(&path, None), (&path, Some("before")), (&link, Some("before"))] {
            if let Some(before) = before {
                std::fs::write(&path, before).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
            }
            for whole in [false, true] {
                let there = names(folder.path());
                let mut output = Output::new(Some(name), &folder.path().join("in")).unwrap();
                output.write_all(b"half").unwrap();
                output.flush().unwrap();
                assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), before);
                output.write_all(b" and half").unwrap();
                if !whole {
                    drop(output);
                    assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), before);
                    assert_eq!(names(folder.path()), there);
                    continue;
                }
                output.finish().unwrap();
                assert_eq!(std::fs::read_to_string(name).unwrap(), "half and half");
                if before.is_some() {
                    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
                }
            }
            if !link.exists() {
                std::os::unix::fs::symlink("out", &link).unwrap();
            }
        }
        assert!(link.is_symlink());
        assert_eq!(names(folder.path()), ["out", "to"]);
    }

    #[test]
    fn the_input_is_never_the_output() {
        let folder = tempfile::tempdir().unwrap();
        let (input, link) = (folder.path().join("in"), folder.path().join("link"));
        std::fs::write(&input, "metadata").unwrap();
        std::os::unix::fs::symlink(&input, &link).unwrap();
        assert!(Output::new(Some(&link), &input).is_err());
        assert!(Output::new(Some(folder.path()), &input).is_err());
        assert!(Output::new(Some("-".as_ref()), &input).unwrap().is_stdout());
    }
}
