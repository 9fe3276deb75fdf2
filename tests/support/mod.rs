//! Runs the built tools: with a time limit, and with everything that happened in the message when a test fails.

#![allow(dead_code, reason = "every test binary uses its own part of this")]

pub mod cases;
pub mod json_document;
pub mod pool_text;

use dmeta::base::BlockNr;
use dmeta::block::memory::MemorySource;
use dmeta::format::BLOCK_SIZE;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The multi-call binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_pdata_tools");

/// Only a tool that hangs needs this long.
const LIMIT: Duration = Duration::from_secs(120);

/// What came of a run.
pub struct Run {
    line: String,
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.line)?;
        writeln!(f, "exit code {:?}, signal {:?}", self.code, self.signal)?;
        writeln!(f, "--- stdout\n{}--- stderr\n{}---", self.stdout, self.stderr)
    }
}

impl Run {
    /// Fails the test, with everything, unless the exit code is this one.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "\n{self}");
        assert!(!self.stderr.contains("internal error"), "\n{self}");
        self
    }

    /// Fails the test, with everything, unless `condition` holds.
    #[track_caller]
    pub fn expect(&self, what: &str, condition: impl FnOnce(&Self) -> bool) -> &Self {
        assert!(condition(self), "expected: {what}\n{self}");
        self
    }
}

/// A command that runs `tool` as `pdata_tools TOOL`.
pub fn tool(tool: &str) -> Command {
    let mut command = Command::new(BINARY);
    command.arg(tool);
    command
}

/// Runs `tool` with `arguments`.
pub fn run<I: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = I>) -> Run {
    finish(tool(name).args(arguments))
}

/// Runs a command to its end and takes down what it printed.
pub fn finish(command: &mut Command) -> Run {
    let line = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
    let stdout = gather(child.stdout.take());
    let stderr = gather(child.stderr.take());
    let status = wait(&mut child, &line);
    Run {
        line,
        code: status.code(),
        signal: status.signal(),
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

/// Waits for the end of a child; one that hangs is killed and fails the test.
pub fn wait(child: &mut Child, line: &str) -> std::process::ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("hangs: {line}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn gather(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).unwrap();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The raw image of a case in `testdata`, in `folder`.
pub fn raw_image(case: &str, folder: &Path) -> PathBuf {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(case).join("image.img.xz");
    let compressed = File::open(&packed).unwrap_or_else(|error| panic!("{}: {error}", packed.display()));
    let path = folder.join(format!("{}.img", case.replace('/', "-")));
    std::io::copy(&mut lzma_rust2::XzReader::new(compressed, false), &mut File::create(&path).unwrap()).unwrap();
    path
}

/// The blocks of a raw image, in memory. Blocks of zeros take none.
pub fn memory_image(path: &Path) -> MemorySource {
    let bytes = fs::read(path).unwrap();
    let (blocks, _) = bytes.as_chunks::<BLOCK_SIZE>();
    let mut image = MemorySource::new(blocks.len() as u64);
    for (location, block) in (0..).zip(blocks).filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
        image.put(BlockNr(location), block).unwrap();
    }
    image
}

/// The distribution's own tool of that name, to compare with.
///
/// `None` where it isn't installed, except under `CI`, where no comparison may be left out.
pub fn peer(name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/sbin").join(name);
    assert!(path.exists() || std::env::var_os("CI").is_none(), "{} has to be installed", path.display());
    path.exists().then_some(path)
}

/// The words of a command line.
pub fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// Makes a FIFO.
pub fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}
