//! A real kernel in the tests: Linux, booted in an emulated machine, takes what the tools wrote, and writes what they read.
//!
//! These tests run with `KERNEL_TESTS=1`, and under `CI`, where a kernel that does not boot is a failure. CONTRIBUTING.md says
//! what they need.

mod accept;
mod bad_sectors;
#[path = "guest/blocks.rs"]
#[allow(dead_code, reason = "a program for the guest; here it is only known by its stamps")]
mod blocks;
mod changed;
mod cpio;
mod guest;
mod lab;
mod live;
mod lvm;
mod power;
#[path = "../support/mod.rs"]
mod support;
