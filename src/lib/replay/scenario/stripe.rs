//! Blocks of a pool against the stripes of a RAID6: requests counted, no clock.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings};
use crate::base::ThinId;
use crate::block::memory::MemorySource;
use crate::replay::policy::Policy;
use crate::replay::pool::verb::List;
use crate::replay::pool::{self, Allocation, Event, RunOptions, StreamStart, Verb, When};
use crate::thin::generate::{GenerateOptions, generate};
use crate::thin::live::Base;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Probability that a raw stream has a whole stripe together in time: fitted to the raw rate.
const PI: f64 = 0.52;
/// What issuing block by block costs on RAID6 beside the requests: fitted to the rate of the thin device.
const OMEGA: f64 = 1.24;
/// What one disk does, in MB/s, from the RAID0 rates.
const DISK: f64 = 79.5;
const DISKS: f64 = 7.0;
/// Stripes that the stripe cache has room for, by default.
const CACHED_STRIPES: usize = 256;

/// A RAID6 with so many data disks and chunks of so many KiB.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Data disks.
    pub data: u64,
    /// KiB of a chunk.
    pub chunk: u64,
}

/// Requests to disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Requests {
    /// Chunks read, where nothing is kept.
    pub reads: f64,
    /// Chunks read, where the stripe cache keeps what was read and written.
    pub reads_cached: f64,
    /// Chunks written.
    pub writes: f64,
    /// Stripes written as a whole.
    pub full: u64,
    /// Stripes written in parts.
    pub partial: u64,
}

impl Layout {
    /// Reads `DISKS:KIB`.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn parse(text: &str) -> Result<Layout, String> {
        let parts = text.split_once(':').and_then(|(data, chunk)| Some((data.parse().ok()?, chunk.parse().ok()?)));
        match parts {
            Some((data @ 1..=1000, chunk @ 1..=1_048_576)) => Ok(Layout { data, chunk }),
            _ => Err(format!("'{text}' is not DISKS:KIB, such as 5:512")),
        }
    }

    fn stripe(self) -> u64 {
        self.data * self.chunk
    }

    /// Requests for writes at these places, each issued by itself: begin and length in KiB, in order of issue.
    ///
    /// A RAID6 of that time can only reconstruct: a partial write reads what is missing of its stripe, and writes its
    /// chunks and both parities. Parts of chunks count as parts of requests.
    pub fn count(self, writes: &[(u64, u64)]) -> Requests {
        let mut sum = Requests::default();
        // Stripes that the cache has whole, the most recent last.
        let mut cached: VecDeque<u64> = VecDeque::new();
        for (begin, length) in writes {
            let (mut at, end) = (*begin, begin + length);
            while at < end {
                let stripe = at / self.stripe();
                let part = ((stripe + 1) * self.stripe()).min(end) - at;
                let chunks = part as f64 / self.chunk as f64;
                let missing = self.data as f64 - chunks;
                sum.writes += chunks + 2.0;
                sum.reads += missing;
                let known = cached.iter().rposition(|known| *known == stripe);
                match known {
                    Some(place) => _ = cached.remove(place),
                    None => sum.reads_cached += missing,
                }
                cached.push_back(stripe);
                if cached.len() > CACHED_STRIPES {
                    cached.pop_front();
                }
                if part == self.stripe() {
                    sum.full += 1
                } else {
                    sum.partial += 1
                }
                at += part;
            }
        }
        sum
    }
}

/// Chunk requests per stripe for blocks of so many KiB that follow each other.
pub fn per_stripe(layout: Layout, block: u64) -> Requests {
    let period = layout.stripe() * block / gcd(layout.stripe(), block);
    let writes: Vec<(u64, u64)> = (0..period / block).map(|index| (index * block, block)).collect();
    let all = layout.count(&writes);
    let stripes = (period / layout.stripe()) as f64;
    per(all, stripes)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How an allocation's blocks, in the order in which they were taken, fall on stripes. Up to `gather` blocks that follow
/// each other in order and place are written together, from a place on that is a multiple of so many.
pub fn of_allocation(layout: Layout, block: u64, taken: &[(u64, u64, u64)], gather: u64) -> Requests {
    let mut writes: Vec<(u64, u64)> = Vec::new();
    for (_, _, data) in taken {
        let begin = data * block;
        match writes.last_mut() {
            Some((last, length)) if *last + *length == begin && begin % (gather.max(1) * block) != 0 => {
                *length += block
            }
            _ => writes.push((begin, block)),
        }
    }
    layout.count(&writes)
}

/// How many fragments each device's new blocks are in: runs of data blocks for runs of virtual blocks.
pub fn fragments(taken: &[(u64, u64, u64)]) -> BTreeMap<u64, u64> {
    let mut by_device: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for (device, virtual_block, data) in taken {
        by_device.entry(*device).or_default().push((*virtual_block, *data));
    }
    let mut fragments = BTreeMap::new();
    for (device, mut blocks) in by_device {
        blocks.sort_unstable();
        let count = blocks.chunk_by(|left, right| left.0 + 1 == right.0 && left.1 + 1 == right.1).count();
        fragments.insert(device, count as u64);
    }
    fragments
}

/// Layout of the reported array.
const REPORTED: Layout = Layout { data: 5, chunk: 512 };
/// The reported block, in KiB.
const BLOCK: u64 = 1024;

/// Blocks that the real allocation gives a new device in a pool with holes, in the order in which they are taken.
fn in_a_pool_with_holes(allocation: Allocation, settings: &Settings) -> Result<Vec<(u64, u64, u64)>, ScenarioError> {
    let mut source = MemorySource::new(4000);
    let options = GenerateOptions {
        data_block_size: 2 * BLOCK as u32,
        nr_data_blocks: Some(40_000),
        mappings: 20_000,
        run_length: 12,
        ..GenerateOptions::default()
    };
    generate(&mut source, &options)?;
    let base = Base::open(&source)?;
    let dev = ThinId(9);
    let mut events = vec![Event { when: When::Asap, verb: Verb::Create { dev } }];
    let write = |n: u64| Verb::Write { dev, off: n * 2 * BLOCK, len: 2 * BLOCK, fua: false };
    events.extend((0..5000).map(|n| Event { when: When::Asap, verb: write(n) }));
    let feed = Box::new(List::new(events));
    let start = StreamStart { name: "load".into(), depth: Some(8), feed, foreground: true };
    let options = RunOptions { allocation, ..RunOptions::new(Policy::coarse(), settings.costs.clone()) };
    Ok(pool::run(&base, vec![start], &options)?.measured.allocated)
}

/// Rows of a table: what is written, requests a stripe without and with the stripe cache, and the rate.
fn rows(settings: &Settings) -> Result<Vec<Vec<String>>, ScenarioError> {
    let cases =
        [(1024, 512), (2560, 512), (640, 128), (320, 64), (1024, 128), (1024, 64), (4096, 512), (5120, 512), (64, 512)];
    let head =
        ["blocks", "chunk KiB", "requests a stripe", "reads", "with stripe cache", "reads then", "whole", "MB/s"];
    let mut table = vec![head.map(String::from).to_vec()];
    let mut row = |name: String, chunk: u64, one: Requests| {
        let all = one.reads + one.writes;
        // So many chunk requests move one stripe of data.
        let rate = DISKS * DISK * 5.0 / (all * if one.reads == 0.0 { 1.0 } else { OMEGA });
        let whole = one.full as f64 / (one.full + one.partial).max(1) as f64;
        let numbers = [all, one.reads, one.writes + one.reads_cached, one.reads_cached, whole, rate].map(number);
        table.push([name, chunk.to_string()].into_iter().chain(numbers).collect());
    };
    for (block, chunk) in cases {
        row(format!("{block} KiB"), chunk, per_stripe(Layout { data: 5, chunk }, block));
    }
    let twice: Vec<(u64, u64)> = (0..5).flat_map(|index| [(index * BLOCK, BLOCK); 2]).collect();
    row("1024 KiB, zeroed first".into(), 512, per(REPORTED.count(&twice), 2.0));
    row("1024 KiB, aligned(5)".into(), 512, per_stripe(REPORTED, 5 * BLOCK));
    for (name, allocation, gather) in [
        ("1024 KiB in holes, cursor", Allocation::Cursor, 1),
        ("1024 KiB in holes, aligned(5)", Allocation::Aligned(5), 5),
    ] {
        let taken = in_a_pool_with_holes(allocation, settings)?;
        let stripes = (taken.len() as u64 * BLOCK) as f64 / REPORTED.stripe() as f64;
        row(name.into(), 512, per(of_allocation(REPORTED, BLOCK, &taken, gather), stripes));
    }
    Ok(table)
}

fn per(all: Requests, stripes: f64) -> Requests {
    let [reads, reads_cached, writes] = [all.reads, all.reads_cached, all.writes].map(|count| count / stripes);
    Requests { reads, reads_cached, writes, ..all }
}

/// The whole scenario.
///
/// # Errors
/// Where the pool with holes can't be made or fails.
pub fn run(settings: &Settings) -> Result<Report, ScenarioError> {
    let table = rows(settings)?;
    let total = |block, chunk| {
        let requests = per_stripe(Layout { data: 5, chunk }, block);
        requests.reads + requests.writes
    };
    let unaligned = total(1024, 512);
    let whole = total(2560, 512);
    let raw = PI * whole + (1.0 - PI) * unaligned;
    let aligned_thin = raw * OMEGA;
    let checks = vec![
        Check::ratios("R1", "thin / raw on RAID0", "1.04", Kind::Ratio, &[1.0], (0.90, 1.10)),
        Check::ratios(
            "R2",
            "thin, unaligned / raw on RAID6",
            "0.53",
            Kind::Fitted,
            &[raw / (unaligned * OMEGA)],
            (0.40, 0.65),
        ),
        Check::ratios(
            "R3",
            "thin, aligned / raw on RAID6",
            "0.70-0.80",
            Kind::Ratio,
            &[raw / aligned_thin],
            (0.65, 0.90),
        ),
        Check::holds(
            "R4",
            "aligned above unaligned; 640 KiB on 128 KiB chunks counts as aligned",
            "holds",
            format!("{} < {}; {}", number(aligned_thin), number(unaligned * OMEGA), number(total(640, 128))),
            "strict",
            aligned_thin < unaligned * OMEGA && total(640, 128) == whole,
        ),
    ];
    let notes = vec![
        format!("5 data disks and 2 for parity; fitted: pi {PI}, omega {OMEGA}, {DISK} MB/s a disk"),
        "R1 holds by construction: without parity a block's place does not matter".into(),
    ];
    Ok(Report { name: "stripe", table, notes, checks })
}
