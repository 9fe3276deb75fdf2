//! The one place that turns an outcome into an exit status.
//!
//! 0 is success and 1 is every kind of failure: damage, bad input, a wrong command line, a bug. Only who asks for it with
//! `--exit-codes=fsck` gets the statuses of fsck(8). 2 must never be used: LVM takes it for ENOENT, "the tool is not
//! installed", and activates the pool unchecked. A reader that closes our output ends us by SIGPIPE, like any filter.

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
    /// All is well now: damage was found and put right.
    Mended,
    /// It failed, and the tool has said why: a check that found damage, say.
    Failure,
}

/// How the whole run ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Success,
    Mended,
    /// Damage was found, and is still there.
    Damage,
    /// The tool could not do what it is for.
    Error,
    /// The command line is wrong.
    Usage,
    ClosedPipe,
}

impl Ending {
    /// A wrong command line: always said, also under `-q`.
    pub(super) fn usage(text: impl AsRef<str>) -> Ending {
        output::complain(text.as_ref());
        Ending::Usage
    }

    /// The end of a tool's run; prints the error if there is one.
    pub(super) fn of(result: anyhow::Result<Outcome>, context: &Context) -> Ending {
        match result {
            Ok(Outcome::Success) => Ending::Success,
            Ok(Outcome::Mended) => Ending::Mended,
            Ok(Outcome::Failure) => Ending::Damage,
            Err(error) if is_closed_pipe(&error) => Ending::ClosedPipe,
            Err(error) => {
                context.error(describe(&error));
                Ending::Error
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

static FSCK: AtomicBool = AtomicBool::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Under `-q` not even a bug is reported in words.
pub(super) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether the statuses of fsck(8) are asked for.
pub(super) fn set_fsck(fsck: bool) {
    FSCK.store(fsck, Ordering::Relaxed);
}

/// The number for an ending. The numbers of fsck(8) that tell of a restart (2) or a signal are not used.
fn status(ending: &Ending, fsck: bool) -> u8 {
    match (ending, fsck) {
        (Ending::Success, _) | (Ending::Mended, false) => 0,
        (Ending::Mended, true) => 1,
        (Ending::Damage, true) => 4,
        (Ending::Error | Ending::ClosedPipe, true) => 8,
        (Ending::Usage, true) => 16,
        (_, false) => 1,
    }
}

/// Runs the program and gives its exit status, also when it panics.
pub(super) fn guard(run: impl FnOnce() -> Ending) -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        let mut first = PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        first.get_or_insert_with(|| info.to_string());
    }));
    let ending = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        report_bug();
        Ending::Error
    });
    if ending == Ending::ClosedPipe {
        signals::die_of_closed_pipe();
    }
    ExitCode::from(status(&ending, FSCK.load(Ordering::Relaxed)))
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
    use super::{Ending, Outcome, describe, guard, is_closed_pipe, set_quiet, status};
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
        assert_eq!(Ending::of(Ok(Outcome::Failure), &context), Ending::Damage);
        let endings =
            [Ending::Success, Ending::Mended, Ending::Damage, Ending::Error, Ending::Usage, Ending::ClosedPipe];
        assert_eq!(endings.each_ref().map(|ending| status(ending, false)), [0, 0, 1, 1, 1, 1]);
        assert_eq!(endings.each_ref().map(|ending| status(ending, true)), [0, 1, 4, 8, 16, 8]);
    }
}
