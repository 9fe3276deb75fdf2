//! The persistent data structures, for any value: walking and building btrees, counting, space maps, committing.
//!
//! Knows trees and reference counts; does not know what a mapping or a device is.

pub mod build;
pub mod commit;
pub mod counts;
pub mod edit;
pub mod forest;
pub mod ledger;
pub mod overlay;
pub mod space_map;
pub mod space_map_write;
pub mod stored;
pub mod walk;
