//! Signals whose default action has to come back.

/// Ends the process by SIGPIPE, which the Rust runtime ignores from the start; returns only if that fails.
///
/// Tools keep ignoring it until the very end, so that a reader of our messages that goes away can't stop a writer of
/// metadata halfway.
pub fn die_of_closed_pipe() {
    // SAFETY: both calls are async-signal-safe C functions without pointers to our memory; SIG_DFL is a valid
    // disposition for SIGPIPE, and no other thread relies on the one it replaces, since the process is ending.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
}
