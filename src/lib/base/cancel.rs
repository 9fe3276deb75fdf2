//! A flag that a signal handler sets and long loops look at.

use std::sync::atomic::{AtomicBool, Ordering};

/// Set once, never cleared: the user wants the run to end.
#[derive(Debug, Default)]
pub struct Cancel(AtomicBool);

impl Cancel {
    /// A flag that is not set.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Asks the run to end. Safe to call from a signal handler.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the run should end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
