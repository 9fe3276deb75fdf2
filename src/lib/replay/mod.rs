//! What would locks, batches and throttles have done to the I/O of a pool: traces replayed on the real trees under
//! different policies, on a virtual clock.
//!
//! [`engine`] knows time and locks, [`pool`] what a pool does with them, [`scenario`] the published figures, [`trace`]
//! where requests come from. Knows `thin`; prints nothing.

pub mod cache;
pub mod calibration;
pub mod costs;
pub mod engine;
pub mod machine;
pub mod offline;
pub mod policy;
pub mod pool;
pub mod predict;
pub mod report;
pub mod save;
pub mod scenario;
pub mod sweep;
pub mod threads;
pub mod trace;
