//! Runs a tool as a process of its own, with a bound on memory and on time.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Address space that a tool may take, in KiB: program, threads' stacks, and an image of at most 16 MiB.
const MEMORY_KIB: u64 = 512 << 10;
/// Seconds after which a tool hangs.
const SECONDS: u64 = 30;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Exit status 0.
    Success,
    /// Exit status 1.
    Failure,
    /// A panic, a signal, or another status.
    Crash,
    /// It was killed for its time.
    Hang,
    /// It ran against its bound of memory.
    Memory,
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    pub end: End,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// Whose tools are run.
#[derive(Clone, Debug)]
pub enum Tools {
    /// This project's, as `pdata_tools TOOL`.
    Ours,
    /// Others, by name in a folder.
    Peer(PathBuf),
}

impl Tools {
    /// Runs `tool`; `extra` are paths that follow `words`.
    pub fn run(&self, tool: &str, words: &[&str], extra: &[&Path]) -> Ran {
        let program: Vec<OsString> = match self {
            Tools::Ours => vec![super::support::BINARY.into(), tool.into()],
            Tools::Peer(folder) => vec![folder.join(tool).into()],
        };
        let mut command = Command::new("sh");
        let script = format!("ulimit -v {MEMORY_KIB}; exec timeout -k 1 {SECONDS} \"$0\" \"$@\"");
        command.args([OsStr::new("-c"), OsStr::new(&script)]).args(program).args(words).args(extra);
        // A pool of memory for each thread, as glibc has it, would be most of what is counted.
        command.env("MALLOC_ARENA_MAX", "1").env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let says = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
        let end = match output.status.code() {
            Some(124) => End::Hang,
            _ if says(&["memory allocation of", "out of memory", "Cannot allocate", "bad_alloc"]) => End::Memory,
            _ if says(&["panicked at", "internal error", "stack overflow"]) => End::Crash,
            Some(0) => End::Success,
            Some(1) => End::Failure,
            _ => End::Crash,
        };
        Ran { end, stdout: output.stdout, stderr }
    }
}
