//! Offline metadata toolkit for the Linux device-mapper targets thin, cache and era.
//!
//! The modules are listed in layer order, lowest first; each may use only those above it in this list.
//! ARCHITECTURE.md says what each layer knows, and `tests/tidy.rs` holds the code to it.

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod base;
#[allow(unsafe_code)]
pub mod block;
pub mod cli;
pub mod format;
pub mod pack;
pub mod pdata;
pub mod replay;
pub mod thin;
