//! What a running tool may say, and to whom.

use super::output;
use super::progress::Reporter;
use crate::base::{NoProgress, Progress};
use clap::ArgMatches;
use std::fmt::Display;
use std::io;

/// The tool's name and whether it has been told to be silent.
#[derive(Debug)]
pub struct Context {
    tool: &'static str,
    quiet: bool,
}

impl Context {
    /// From the command line: `-q` where the tool has it.
    pub(super) fn new(tool: &'static str, matches: &ArgMatches) -> Self {
        let quiet = matches.try_get_one::<bool>("quiet").ok().flatten().copied().unwrap_or(false);
        Context { tool, quiet }
    }

    /// One that speaks.
    pub(super) fn plain(tool: &'static str) -> Self {
        Context { tool, quiet: false }
    }

    /// Whether `-q` was given.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// A result, on standard output; nothing under `-q`. The text brings its own newlines.
    ///
    /// # Errors
    /// When standard output can't be written.
    pub fn print(&self, text: impl AsRef<str>) -> anyhow::Result<()> {
        if self.quiet { Ok(()) } else { output::print(text.as_ref()) }
    }

    /// A line on standard error; nothing under `-q`. That it can't be written is no failure.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            output::complain(&format!("{text}\n"));
        }
    }

    /// A line on standard error that begins with `warning:`.
    pub fn warning(&self, text: impl Display) {
        self.note(format_args!("{}: warning: {text}", self.tool));
    }

    /// A line on standard error that begins with the tool's name.
    pub fn error(&self, text: impl Display) {
        self.note(format_args!("{}: {text}", self.tool));
    }

    /// Where the course of the work is told. Drop it before anything else is printed.
    ///
    /// `writes_stdout` tells that the tool's result goes to standard output: no bar is drawn
    /// into it when that is a terminal.
    pub fn progress(&self, writes_stdout: bool) -> Box<dyn Progress> {
        if self.quiet || (writes_stdout && io::IsTerminal::is_terminal(&io::stdout())) {
            Box::new(NoProgress)
        } else {
            Box::new(Reporter::stderr())
        }
    }
}
