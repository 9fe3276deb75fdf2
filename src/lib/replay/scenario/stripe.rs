//! Blocks of a pool against the stripes of a RAID6: requests counted, no clock.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings, columns};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Probability that a raw stream has a whole stripe together in time: fitted to the raw rate.
const PI: f64 = 0.52;
/// What issuing block by block costs on RAID6 beside the requests: fitted to the rate of the thin device.
const OMEGA: f64 = 1.24;
/// What one disk does, in MB/s, from the RAID0 rates.
const DISK: f64 = 79.5;
const DISKS: f64 = 7.0;
/// What the stripe cache knows of each disk, in KiB: 256 entries of 4 KiB, the default of that time.
const STRIPE_CACHE: u64 = 1024;
/// Chunks of parity in a stripe.
const PARITY: f64 = 2.0;

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
    /// Writes of a part of a stripe: one for each part, so that a stripe may count more than once.
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
    /// count as parts of requests; parities are written whole. Of a stripe among the last `kept` that were written
    /// everything is known, and nothing is read.
    pub fn count(self, writes: &[(u64, u64)], kept: usize) -> Requests {
        let mut sum = Requests::default();
        // The stripes whose chunks are known, the most recent last.
        let mut known: VecDeque<u64> = VecDeque::new();
        for (begin, length) in writes {
            let (mut at, end) = (*begin, begin + length);
            while at < end {
                let stripe = at / self.stripe();
                let part = ((stripe + 1) * self.stripe()).min(end) - at;
                let chunks = part as f64 / self.chunk as f64;
                let found = known.iter().position(|other| *other == stripe);
                if part == self.stripe() {
                    sum.full += 1;
                } else {
                    sum.partial += 1;
                    sum.reads += if found.is_none() { self.data as f64 - chunks } else { 0.0 };
                }
                sum.writes += chunks + PARITY;
                if let Some(index) = found {
                    known.remove(index);
                }
                known.push_back(stripe);
                if known.len() > kept {
                    known.pop_front();
                }
                at += part;
            }
        }
        sum
    }
}

/// How blocks are written.
#[derive(Clone, Copy, Debug)]
pub struct Issue {
    /// KiB of a block.
    pub block: u64,
    /// So many blocks are taken and written together.
    pub together: u64,
    /// New blocks are zeroed before they are written.
    pub zero: bool,
    /// Stripes of which everything stays known.
    pub kept: usize,
}

impl Issue {
    /// Blocks of so many KiB, each by itself, of which nothing is known afterwards.
    pub fn alone(block: u64) -> Issue {
        Issue { block, together: 1, zero: false, kept: 0 }
    }
}

/// Chunk requests per stripe for blocks that follow each other.
pub fn per_stripe(layout: Layout, issue: Issue) -> Requests {
    let step = issue.block * issue.together.max(1);
    let period = layout.stripe() * step / gcd(layout.stripe(), step);
    let times = if issue.zero { 2 } else { 1 };
    let steps = (0..period / step).map(|index| (index * step, step));
    let writes: Vec<(u64, u64)> = steps.flat_map(|write| std::iter::repeat_n(write, times)).collect();
    let all = layout.count(&writes, issue.kept);
    let stripes = (period / layout.stripe()) as f64;
    Requests { reads: all.reads / stripes, writes: all.writes / stripes, ..all }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How an allocation's blocks, in the order in which they were taken, fall on stripes, each written by itself. With
/// `gather` blocks that follow each other in order and place are written together up to the end of a stripe.
pub fn of_allocation(layout: Layout, block: u64, taken: &[(u64, u64, u64)], gather: bool) -> Requests {
    let mut writes: Vec<(u64, u64)> = Vec::new();
    for (_, _, data) in taken {
        let begin = data * block;
        match writes.last_mut() {
            Some((last, length)) if gather && *last + *length == begin && !begin.is_multiple_of(layout.stripe()) => {
                *length += block;
            }
            _ => writes.push((begin, block)),
        }
    }
    layout.count(&writes, 0)
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

/// Blocks and chunks in KiB whose requests are counted.
const CASES: [(u64, u64); 9] =
    [(1024, 512), (2560, 512), (640, 128), (320, 64), (1024, 128), (1024, 64), (4096, 512), (5120, 512), (64, 512)];

impl Requests {
    /// Reads and writes.
    pub fn all(&self) -> f64 {
        self.reads + self.writes
    }
}

/// MB/s of data with so many chunk requests per stripe, each at `issue` times the price of a raw one.
fn rate(requests: f64, issue: f64) -> f64 {
    DISKS * DISK * 5.0 / (requests * issue)
}

fn row(name: String, chunk: u64, issue: Issue) -> Vec<String> {
    let layout = Layout { data: 5, chunk };
    let kept = (STRIPE_CACHE / chunk) as usize;
    let (alone, known) = (per_stripe(layout, issue), per_stripe(layout, Issue { kept, ..issue }));
    vec![
        name,
        chunk.to_string(),
        number(alone.all()),
        number(alone.reads),
        number(known.all()),
        number(known.reads),
        format!("{} / {}", alone.full, alone.partial),
        number(rate(alone.all(), OMEGA)),
    ]
}

/// Requests per stripe: every case, and what zeroing and writing together do to the reported one.
fn table() -> Vec<Vec<String>> {
    let head =
        ["written at once", "chunk KiB", "requests", "reads", "kept: requests", "reads", "full / partial", "MB/s"];
    let mut table = vec![head.map(String::from).to_vec()];
    table.extend(CASES.iter().map(|(block, chunk)| row(format!("{block} KiB"), *chunk, Issue::alone(*block))));
    let zeroed = Issue { zero: true, ..Issue::alone(1024) };
    table.push(row("1024 KiB, zero on".into(), 512, zeroed));
    for together in [2, 5] {
        table.push(row(format!("1024 KiB, aligned({together})"), 512, Issue { together, ..Issue::alone(1024) }));
    }
    table.push(row("1024 KiB, aligned(5), zero on".into(), 512, Issue { together: 5, ..zeroed }));
    table
}

/// Chunk requests per stripe of the reported set-ups: of the thin device on blocks that do not fit, of the raw one, and
/// of the thin device on blocks that fit. A raw stream has a whole stripe together or issues parts as the first does.
struct Reported {
    unaligned: f64,
    raw: f64,
    aligned: f64,
}

impl Reported {
    fn new() -> Reported {
        let layout = Layout { data: 5, chunk: 512 };
        let parts = per_stripe(layout, Issue::alone(1024)).all();
        let raw = PI * per_stripe(layout, Issue::alone(2560)).all() + (1.0 - PI) * parts;
        // A thin device has a whole stripe together as often as the raw one: what is left is the price of issuing.
        Reported { unaligned: parts * OMEGA, raw, aligned: raw * OMEGA }
    }

    /// Beside what was reported.
    fn lines(&self) -> Vec<Vec<String>> {
        let rate = |requests| number(rate(requests, 1.0));
        let raid0 = number(DISKS * DISK);
        let rows = [
            ["set-up", "requests per stripe", "MB/s", "reported MB/s"].map(String::from),
            ["thin on RAID6".into(), number(self.unaligned), rate(self.unaligned), "107 (fitted)".into()],
            ["ext4 on RAID6".into(), number(self.raw), rate(self.raw), "202 (fitted)".into()],
            ["thin on RAID0".into(), "7 of 7 chunks".into(), raid0.clone(), "568 (fitted)".into()],
            ["ext4 on RAID0".into(), "7 of 7 chunks".into(), raid0, "545 (fitted)".into()],
            ["thin on RAID6, fitting".into(), number(self.aligned), rate(self.aligned), "141-162".into()],
        ];
        rows.map(Vec::from).to_vec()
    }
}

/// The whole scenario.
///
/// # Errors
/// Never.
pub fn run(_: &Settings) -> Result<Report, ScenarioError> {
    let found = Reported::new();
    let fits = per_stripe(Layout { data: 5, chunk: 128 }, Issue::alone(640)).all();
    let whole = per_stripe(Layout { data: 5, chunk: 512 }, Issue::alone(2560)).all();
    let ratio = |id: &str, what: &str, reported: &str, kind, value, band| {
        Check::ratios(id, what, reported, kind, &[value], band)
    };
    let checks = vec![
        ratio("R1", "thin / raw on RAID0", "1.04", Kind::Ratio, 1.0, (0.90, 1.10)),
        ratio("R2", "thin, unaligned / raw on RAID6", "0.53", Kind::Fitted, found.raw / found.unaligned, (0.40, 0.65)),
        ratio("R3", "thin, aligned / raw on RAID6", "0.70-0.80", Kind::Ratio, found.raw / found.aligned, (0.65, 0.90)),
        Check::holds(
            "R4",
            "aligned above unaligned; 640 KiB on 128 KiB chunks counts as aligned",
            "holds",
            format!("{} < {}; {}", number(found.aligned), number(found.unaligned), number(fits)),
            "strict",
            found.aligned < found.unaligned && fits == whole,
        ),
    ];
    let mut notes = vec![
        format!("5 data disks and 2 for parity; fitted: pi {PI}, omega {OMEGA}, {DISK} MB/s a disk"),
        "requests and reads of chunks per stripe; kept: with a stripe cache of 1 MiB a disk".into(),
        "full / partial: writes of whole stripes and of parts of one, until blocks and stripes begin together again"
            .into(),
        "MB/s: each written by itself, at the price of issuing by blocks".into(),
        String::new(),
    ];
    notes.extend(columns(&found.lines()).lines().map(String::from));
    notes.push("R1 holds by construction: without parity a block's place does not matter".into());
    Ok(Report { name: "stripe", table: table(), notes, checks })
}
