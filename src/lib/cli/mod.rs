//! The command layer: command lines, terminals, exit statuses. The only layer that prints.
//!
//! Knows every tool; no other layer knows this one. A tool is one file here and one line in [`registry`].

pub mod arguments;
pub mod context;
mod destination;
mod dispatch;
pub mod exit;
pub mod id_list;
mod install;
pub mod manual;
pub mod options;
pub mod output;
pub mod progress;
pub mod registry;
mod thin_check;
mod thin_delete;
mod thin_dump;
mod thin_generate_damage;
mod thin_generate_metadata;
mod thin_metadata_pack;
mod thin_metadata_unpack;
mod thin_repair;
mod thin_replay;
mod thin_restore;
mod thin_undo;

pub use context::Context;
pub use dispatch::main;
pub use exit::Outcome;

/// What `--version` prints: three numbers, because volume managers read it with `%u.%u.%u`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
