//! A pool as a stream of items: what a dump writes and a restore reads, whatever the form.

use crate::base::{DataBlock, ThinBlock, ThinId};
use crate::format::superblock::ThinSuperblock;
use crate::format::uuid;
use std::fmt;

/// What holds for the whole pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The superblock's uuid as text (`format::uuid`): empty, where a kernel made the pool.
    pub uuid: String,
    /// The snapshot clock.
    pub time: u32,
    /// The counter that belongs to userspace.
    pub transaction: u64,
    /// The superblock's flags: bit 0 is needs_check.
    pub flags: u32,
    /// The metadata version.
    pub version: u32,
    /// Sectors of a data block.
    pub data_block_size: u32,
    /// Blocks of the data device; 0 in the dump of a metadata snapshot.
    pub nr_data_blocks: u64,
}

impl Pool {
    /// What a superblock says.
    pub fn of(superblock: &ThinSuperblock) -> Pool {
        Pool {
            uuid: uuid::to_text(&superblock.uuid),
            time: superblock.time.get(),
            transaction: superblock.transaction_id.get(),
            flags: superblock.flags.get(),
            version: superblock.version.get(),
            data_block_size: superblock.data_block_size.get(),
            nr_data_blocks: superblock.data_space_map.nr_blocks.get(),
        }
    }
}

/// A number that was written as it was given, lower than the pool has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// What it is.
    pub name: &'static str,
    /// What the pool has.
    pub own: u64,
    /// What was written.
    pub written: u64,
}

impl fmt::Display for Lowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool's {} is {}; {} was written, as given, which is lower", self.name, self.own, self.written)
    }
}

/// The numbers of `own` that callers can change, and that are lower in `written`.
pub fn lowered(own: &Pool, written: &Pool) -> Vec<Lowered> {
    let numbers = [
        ("transaction id", own.transaction, written.transaction),
        ("data block size", own.data_block_size.into(), written.data_block_size.into()),
        ("number of data blocks", own.nr_data_blocks, written.nr_data_blocks),
    ];
    let lower = numbers.into_iter().filter(|(_, own, written)| written < own);
    lower.map(|(name, own, written)| Lowered { name, own, written }).collect()
}

/// What holds for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its id.
    pub id: ThinId,
    /// How many mappings it says it has.
    pub mapped_blocks: u64,
    /// The pool's transaction id when it was made.
    pub transaction: u64,
    /// The pool's time when it was made.
    pub creation_time: u32,
    /// The pool's time at the last snapshot that it took part in.
    pub snapshotted_time: u32,
}

/// Mappings that continue each other: virtual and data block both by one, all of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first virtual block.
    pub thin_begin: ThinBlock,
    /// The first data block.
    pub data_begin: DataBlock,
    /// How many mappings, at least 1.
    pub length: u64,
    /// The pool's time when the mappings were made.
    pub time: u32,
}

impl Run {
    /// The `length` mappings after the first `skipped`; both lie within the run.
    pub fn part(&self, skipped: u64, length: u64) -> Run {
        let (thin_begin, data_begin) = (ThinBlock(self.thin_begin.0 + skipped), DataBlock(self.data_begin.0 + skipped));
        Run { thin_begin, data_begin, length, time: self.time }
    }

    /// Whether `next` continues this run, so that both can be one.
    #[inline]
    pub fn continues_with(&self, next: &Run) -> bool {
        self.thin_begin.0.wrapping_add(self.length) == next.thin_begin.0
            && self.data_begin.0.wrapping_add(self.length) == next.data_begin.0
            && self.time == next.time
    }
}
