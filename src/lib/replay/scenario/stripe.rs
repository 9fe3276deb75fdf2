//! Blocks of a pool against the stripes of a RAID6: requests counted, no clock.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings};
use serde::Serialize;
use std::collections::BTreeMap;

/// Probability that a raw stream has a whole stripe together in time: fitted to the raw rate.
const PI: f64 = 0.52;
/// What issuing block by block costs on RAID6 beside the requests: fitted to the rate of the thin device.
const OMEGA: f64 = 1.24;
/// What one disk does, in MB/s, from the RAID0 rates.
const DISK: f64 = 79.5;
const DISKS: f64 = 7.0;

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
    /// Chunks read.
    pub reads: f64,
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
    /// A partial write reads what is missing of its stripe and writes its chunks and both parities. Parts of chunks
    /// count as parts of requests.
    pub fn count(self, writes: &[(u64, u64)]) -> Requests {
        let mut sum = Requests::default();
        for (begin, length) in writes {
            let (mut at, end) = (*begin, begin + length);
            while at < end {
                let next = (at / self.stripe() + 1) * self.stripe();
                let part = next.min(end) - at;
                let chunks = part as f64 / self.chunk as f64;
                if part == self.stripe() {
                    sum.writes += self.data as f64 + 2.0;
                    sum.full += 1;
                } else {
                    let width = (part as f64 / self.chunk as f64).min(1.0);
                    sum.writes += chunks + 2.0 * width;
                    sum.reads += (self.data as f64 - chunks.max(1.0)) * width;
                    sum.partial += 1;
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
    Requests { reads: all.reads / stripes, writes: all.writes / stripes, ..all }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How an allocation's blocks, in the order in which they were taken, fall on stripes. Blocks that follow each other
/// in order and place are written together where `gather` is set.
pub fn of_allocation(layout: Layout, block: u64, taken: &[(u64, u64, u64)], gather: bool) -> Requests {
    let mut writes: Vec<(u64, u64)> = Vec::new();
    for (_, _, data) in taken {
        let begin = data * block;
        match writes.last_mut() {
            Some((last, length)) if gather && *last + *length == begin && *length < layout.stripe() => *length += block,
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

/// The whole scenario.
///
/// # Errors
/// Never.
pub fn run(_: &Settings) -> Result<Report, ScenarioError> {
    let cases =
        [(1024, 512), (2560, 512), (640, 128), (320, 64), (1024, 128), (1024, 64), (4096, 512), (5120, 512), (64, 512)];
    let mut table = vec![["block KiB", "chunk KiB", "requests per stripe", "reads", "MB/s"].map(String::from).to_vec()];
    let rate = |requests: f64, issue: f64| {
        // So many chunk requests move one stripe of data.
        DISKS * DISK * 5.0 / (requests * issue)
    };
    for (block, chunk) in cases {
        let requests = per_stripe(Layout { data: 5, chunk }, block);
        let all = requests.reads + requests.writes;
        let issue = if requests.reads == 0.0 { 1.0 } else { OMEGA };
        table.push(vec![
            block.to_string(),
            chunk.to_string(),
            number(all),
            number(requests.reads),
            number(rate(all, issue)),
        ]);
    }
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
