//! How a long operation tells what it does. The command layer decides what a person sees of it.

/// Receives the course of an operation. Called from several threads.
pub trait Progress: Sync {
    /// A new section begins: its title, and how many units of work it has (0 where unknown).
    fn section(&self, title: &str, total: u64);
    /// So many units more are done.
    fn advance(&self, units: u64);
}

/// Says nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn section(&self, _title: &str, _total: u64) {}
    fn advance(&self, _units: u64) {}
}
