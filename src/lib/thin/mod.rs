//! Thin pools: loading, checking, dumping, and everything that is known about mappings.
//!
//! Knows the two-level mapping tree, the details and both space maps; does not know cache or era, prints nothing.

pub mod check;
pub mod damage;
pub mod delete;
pub mod document;
pub mod dump;
mod emit;
pub mod fix;
pub mod generate;
pub mod items;
pub mod judge;
pub mod live;
pub mod load;
pub mod model;
pub mod recording;
pub mod repair;
pub mod report;
pub mod restore;
pub mod salvage;
pub mod sharing;
pub mod text;
pub mod xml;
