//! The details of a thin device (docs/format.md 4.3).

use std::mem::size_of;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A value of the details tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeviceDetails {
    /// Entries of the device's mapping tree.
    pub mapped_blocks: U64,
    /// The pool's transaction id when the device was made.
    pub transaction_id: U64,
    /// The pool's time when the device was made.
    pub creation_time: U32,
    /// The pool's time at the last snapshot that the device took part in.
    pub snapshotted_time: U32,
}

/// Bytes of a value of the details tree.
pub const DETAILS_SIZE: usize = size_of::<DeviceDetails>();

const _: () = assert!(DETAILS_SIZE == 24);
