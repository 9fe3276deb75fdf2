//! What every layer speaks: units, findings, progress, cancellation.
//!
//! Knows nothing of devices, files or terminals.

pub mod cancel;
pub mod findings;
pub mod problems;
pub mod progress;
pub mod random;
pub mod units;

pub use findings::{Area, Finding, Findings, KeyRange, Place};
pub use problems::{Code, Cure, Severity};
pub use progress::{NoProgress, Progress};
pub use random::Random;
pub use units::{BlockNr, DataBlock, Sectors, ThinBlock, ThinId};
