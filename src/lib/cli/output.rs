//! Standard output, standard error, and the file that `-o` names.

use crate::block::scarce;
use anyhow::{Context as _, bail};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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

/// Where a tool writes its result: buffered, and opened only when the first byte comes.
///
/// So a run that fails before it has a result leaves an existing file as it was.
#[derive(Debug)]
pub struct Output {
    /// `None` is standard output.
    path: Option<PathBuf>,
    open: Option<BufWriter<File>>,
}

impl Output {
    /// To the file that `-o` names, or to standard output where that is missing or `-`.
    ///
    /// # Errors
    /// When `path` is the tool's own `input`, under whatever name, or a directory.
    pub fn new(path: Option<&Path>, input: &Path) -> anyhow::Result<Self> {
        let path = path.filter(|path| *path != Path::new("-"));
        if let Some(path) = path
            && let Ok(target) = path.metadata()
        {
            if target.is_dir() {
                bail!("output '{}' is a directory", path.display());
            }
            if input.metadata().is_ok_and(|source| is_same(&source, &target)) {
                bail!("output '{}' is the input; give another file", path.display());
            }
        }
        Ok(Output { path: path.map(Path::to_path_buf), open: None })
    }

    /// Whether the result goes to standard output.
    pub fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// Writes out what is buffered: all that was said is there.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.flush().with_context(|| format!("cannot write {}", self.name()))
    }

    /// Takes back what can be taken back: a regular file is left empty, so that nobody mistakes half a result
    /// for a whole one.
    pub fn abandon(self) {
        if let Some(writer) = self.open {
            let (file, _buffered) = writer.into_parts();
            if self.path.is_some() && file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                let _stays = file.set_len(0);
            }
        }
    }

    /// What it is called in a message.
    pub fn name(&self) -> String {
        match &self.path {
            Some(path) => format!("'{}'", path.display()),
            None => "standard output".to_string(),
        }
    }

    fn writer(&mut self) -> io::Result<&mut BufWriter<File>> {
        let file = match (&self.open, &self.path) {
            (Some(_), _) => None,
            (None, Some(path)) => Some(OpenOptions::new().write(true).create(true).truncate(true).open(path)?),
            (None, None) if scarce::stdout_was_closed() => return Err(io::Error::other("it is closed")),
            (None, None) => Some(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
        };
        if let Some(file) = file {
            self.open = Some(BufWriter::with_capacity(BUFFER, file));
        }
        self.open.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
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

    #[test]
    fn an_output_that_gets_nothing_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (input, path) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::write(&path, "before").unwrap();
        drop(Output::new(Some(&path), &input).unwrap());
        Output::new(Some(&path), &input).unwrap().abandon();
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
    }

    #[test]
    fn half_a_result_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut output = Output::new(Some(&path), &folder.path().join("in")).unwrap();
        output.write_all(b"half").unwrap();
        output.flush().unwrap();
        output.write_all(b"more").unwrap();
        output.abandon();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
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
