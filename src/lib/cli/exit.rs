//! The one place that turns an outcome into an exit status.
//!
//! 0 is success and 1 is every kind of failure: damage, bad input, a wrong command line, a bug. No other number is
//! used. 2 in particular must never be: LVM takes it for ENOENT, "the tool is not installed", and activates the pool
//! unchecked. A reader that closes our output ends us by SIGPIPE, like any filter.

use super::context::Context;
use super::output;
use crate::block::signals;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a tool's work ended, when it could be done at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Success,
    /// It failed, and the tool has said why: a check that found damage, say.
    Failure,
}

/// How the whole run ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Success,
    Failure,
    ClosedPipe,
}

impl Ending {
    /// A wrong command line: always said, also under `-q`.
    pub(super) fn usage(text: impl AsRef<str>) -> Ending {
        output::complain(text.as_ref());
        Ending::Failure
    }

    /// The end of a tool's run; prints the error if there is one.
    pub(super) fn of(result: anyhow::Result<Outcome>, context: &Context) -> Ending {
        match result {
            Ok(Outcome::Success) => Ending::Success,
            Ok(Outcome::Failure) => Ending::Failure,
            Err(error) if is_closed_pipe(&error) => Ending::ClosedPipe,
            Err(error) => {
                context.error(describe(&error));
                Ending::Failure
            }
        }
    }
}

/// The error and its causes, without those that already end the sentence.
fn describe(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        if text.is_empty() {
            cause
        } else if text.ends_with(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

static QUIET: AtomicBool = AtomicBool::new(false);
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Under `-q` not even a bug is reported in words.
pub(super) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Runs the program and gives its exit status, also when it panics.
pub(super) fn guard(run: impl FnOnce() -> Ending) -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        let mut first = PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        first.get_or_insert_with(|| info.to_string());
    }));
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ending::Success) => ExitCode::SUCCESS,
        Ok(Ending::Failure) => ExitCode::FAILURE,
        Ok(Ending::ClosedPipe) => {
            signals::die_of_closed_pipe();
            ExitCode::FAILURE
        }
        Err(_) => {
            report_bug();
            ExitCode::FAILURE
        }
    }
}

fn report_bug() {
    if QUIET.load(Ordering::Relaxed) {
        return;
    }
    let what = PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take().unwrap_or_default();
    output::complain(&format!(
        "internal error: {what}\nThis is a bug in dmeta {}. Please report it, with a packed image of the metadata if you can.\n",
        super::VERSION
    ));
}

#[cfg(test)]
mod tests {
    use super::{Ending, Outcome, describe, guard, is_closed_pipe, set_quiet};
    use crate::cli::Context;
    use anyhow::Context as _;
    use std::io;
    use std::process::ExitCode;

    #[test]
    fn a_panic_is_a_failure_like_any_other() {
        let hook = std::panic::take_hook();
        set_quiet(true);
        let status = guard(|| std::thread::scope(|scope| scope.spawn(|| panic!("in a thread")).join().unwrap()));
        std::panic::set_hook(hook);
        set_quiet(false);
        assert_eq!(format!("{status:?}"), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn a_closed_pipe_is_recognised_below_other_errors() {
        let pipe: io::Result<()> = Err(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_closed_pipe(&pipe.context("cannot write").context("cannot dump").unwrap_err()));
        let full: io::Result<()> = Err(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!is_closed_pipe(&full.context("cannot write").unwrap_err()));
    }

    #[test]
    fn a_cause_is_said_once() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let twice = anyhow::Error::new(full()).context(format!("cannot write: {}", full())).context("cannot dump");
        assert_eq!(describe(&twice), format!("cannot dump: cannot write: {}", full()));
    }

    #[test]
    fn outcomes() {
        let context = Context::plain("test");
        assert_eq!(Ending::of(Ok(Outcome::Success), &context), Ending::Success);
        assert_eq!(Ending::of(Ok(Outcome::Failure), &context), Ending::Failure);
    }
}
