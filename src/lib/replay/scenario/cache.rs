//! How large the cache of metadata blocks has to be: every size at once, from the real uses of blocks.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings};
use crate::base::{Random, ThinId};
use crate::block::memory::MemorySource;
use crate::pdata::overlay::{How, Used};
use crate::replay::policy::Policy;
use crate::replay::pool::verb::List;
use crate::replay::pool::{self, Event, Outcome, RunOptions, StreamStart, Verb, When};
use crate::thin::generate::{GenerateOptions, generate};
use crate::thin::live::Base;
use std::collections::HashSet;

/// Sectors of a block: 64 KiB.
const BLOCK: u64 = 128;
/// Data moves at this rate, in MB/s.
const DATA: f64 = 75.0;
/// Cache sizes that are shown, in blocks.
const SIZES: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];

/// Misses of a least-recently-used cache of every size, from one pass.
#[derive(Clone, Debug, Default)]
pub struct MissCurve {
    /// How often a block was used again with so many others between; the last is for everything beyond.
    distances: Vec<u64>,
    /// First uses of blocks that had to be read.
    cold: u64,
    /// Distinct blocks.
    pub distinct: u64,
    /// The most blocks in use since the last time they were all written out.
    pub peak: u64,
}

/// Distances beyond this are not told apart.
const FAR: usize = 4096;

impl MissCurve {
    /// From uses in order. A block that is made is in the cache without being read; one that is freed leaves it.
    pub fn of(log: &[(Used, How)]) -> MissCurve {
        let mut curve = MissCurve { distances: vec![0; FAR + 1], ..MissCurve::default() };
        // The most recent last. Only its last FAR entries are looked at.
        let mut recent: Vec<Used> = Vec::new();
        let mut seen: HashSet<Used> = HashSet::new();
        for (used, how) in log.iter().filter(|(_, how)| *how != How::Ahead) {
            let found = recent.iter().rev().take(FAR).position(|other| other == used);
            if let Some(distance) = found {
                recent.remove(recent.len() - 1 - distance);
            }
            if *how == How::Free {
                seen.remove(used);
                continue;
            }
            match (found, how) {
                (_, How::New) => {}
                (Some(distance), _) => curve.distances[distance] += 1,
                (None, _) if seen.contains(used) => curve.distances[FAR] += 1,
                (None, _) => curve.cold += 1,
            }
            seen.insert(*used);
            curve.distinct = curve.distinct.max(seen.len() as u64);
            recent.push(*used);
            if recent.len() > 2 * FAR {
                recent.drain(..FAR);
            }
        }
        curve.peak = curve.distinct;
        curve
    }

    /// Misses with room for so many blocks.
    pub fn misses(&self, blocks: u64) -> u64 {
        let again: u64 = self.distances.iter().skip(usize::try_from(blocks).unwrap_or(FAR).min(FAR)).sum();
        again + self.cold
    }

    /// The smallest cache that misses at most so many times more than an unbounded one.
    fn live(&self, more: u64) -> u64 {
        let all = self.cold + self.distances[FAR];
        (1..FAR as u64).find(|blocks| self.misses(*blocks) <= all + more).unwrap_or(FAR as u64)
    }
}

/// A load: what is made ready, and what is measured.
struct Load {
    name: &'static str,
    mappings: u64,
    snapshot: bool,
    random: bool,
    device: ThinId,
}

const LOADS: [Load; 5] = [
    Load { name: "unprovisioned", mappings: 0, snapshot: false, random: false, device: ThinId(9) },
    Load { name: "provisioned", mappings: 16_384, snapshot: false, random: false, device: ThinId(1) },
    Load { name: "new snapshot, all shared", mappings: 16_384, snapshot: true, random: false, device: ThinId(9) },
    Load { name: "old snapshot, none shared", mappings: 16_384, snapshot: false, random: false, device: ThinId(2) },
    Load { name: "several devices, random", mappings: 16_384, snapshot: true, random: true, device: ThinId(9) },
];

/// Requests of a load: 1 GiB in blocks of 64 KiB.
const REQUESTS: u64 = 16_384;

fn image(load: &Load) -> Result<MemorySource, ScenarioError> {
    let mut image = MemorySource::new(20_000);
    let options = GenerateOptions {
        data_block_size: BLOCK as u32,
        nr_data_blocks: Some(400_000),
        devices: if load.mappings == 0 { 0 } else { 4 },
        mappings: load.mappings,
        run_length: 256,
        leaf_fill: 50..=50,
        ..GenerateOptions::default()
    };
    generate(&mut image, &options)?;
    Ok(image)
}

/// Runs a load and gives the uses of metadata blocks during it.
fn uses(base: &Base<'_>, load: &Load, settings: &Settings) -> Result<Vec<(Used, How)>, ScenarioError> {
    let event = |verb| Event { when: When::Asap, verb };
    let mut events = Vec::new();
    if load.device == ThinId(9) {
        events.push(event(match load.snapshot {
            true => Verb::Snap { dev: ThinId(9), origin: ThinId(1) },
            false => Verb::Create { dev: ThinId(9) },
        }));
    }
    let mut random = Random::new(7);
    for index in 0..REQUESTS {
        let block = if load.random { random.below(REQUESTS) } else { index };
        let dev = if load.random {
            [ThinId(9), ThinId(2), ThinId(3), ThinId(4)][random.below(4) as usize]
        } else {
            load.device
        };
        events.push(event(Verb::Write { dev, off: block * BLOCK, len: BLOCK, fua: false }));
    }
    let options = RunOptions { log_touches: true, ..RunOptions::new(Policy::coarse(), settings.costs.clone()) };
    let feed = Box::new(List::new(events));
    let start = StreamStart { name: "load".into(), depth: Some(8), feed, foreground: true };
    let outcome: Outcome<'_> = pool::run(base, vec![start], &options)?;
    Ok(outcome.touches.log.unwrap_or_default())
}

fn rate(misses: u64, miss: u64) -> f64 {
    let data = REQUESTS as f64 * BLOCK as f64 * 512.0 / 1e6 / DATA;
    let all = REQUESTS as f64 * BLOCK as f64 * 512.0 / 1e6;
    all / (data + misses as f64 * miss as f64 / 1e9)
}

/// The whole scenario.
///
/// # Errors
/// Where an image can't be made or the pool fails.
pub fn run(settings: &Settings) -> Result<Report, ScenarioError> {
    let mut head = vec!["load".to_string()];
    head.extend(SIZES.map(|size| format!("{size}")));
    head.extend(["peak".to_string(), "MB/s at 64".to_string(), "at 512".to_string()]);
    let mut table = vec![head];
    let mut curves = Vec::new();
    for load in &LOADS {
        let source = image(load)?;
        let base = Base::open(&source)?;
        let curve = MissCurve::of(&uses(&base, load, settings)?);
        let per_request = |size: u64| number(curve.misses(size) as f64 / REQUESTS as f64);
        let mut row = vec![load.name.to_string()];
        row.extend(SIZES.map(per_request));
        row.push(curve.live(REQUESTS / 100).to_string());
        row.extend([64, 512].map(|size| number(rate(curve.misses(size), settings.costs.miss))));
        table.push(row);
        curves.push(curve);
    }
    let speed = |curve: &MissCurve, size| rate(curve.misses(size), settings.costs.miss);
    let same: Vec<f64> = curves[..4].iter().map(|curve| speed(curve, 512) / speed(curve, 64)).collect();
    let live: Vec<u64> = curves.iter().map(|curve| curve.live(REQUESTS / 100)).collect();
    let sequential = live[..4].iter().copied().max().unwrap_or(1);
    let random = &curves[4];
    let knee = speed(random, 8) / speed(random, 64);
    let checks = vec![
        Check::ratios("C1", "2 MiB / 256 KiB, sequential, 4 cases", "0.997-1.008", Kind::Ratio, &same, (0.98, 1.02)),
        Check::holds(
            "C2",
            "peak of the cache, random / sequential",
            "1.22",
            number(live[4] as f64 / sequential as f64),
            "> 1.05",
            live[4] as f64 > 1.05 * sequential as f64,
        ),
        Check::holds("C3", "32 KiB / 256 KiB, random", "from memory", number(knee), "< 1", knee < 1.0),
    ];
    let notes = vec![
        "columns: misses per request with so many blocks of cache, least recently used first out".into(),
        "peak: blocks at which misses are within 1 in 100 requests of an unbounded cache".into(),
        format!("64 KiB blocks, leaves of 126, {DATA} MB/s of data, {} us for a miss", settings.costs.miss / 1000),
    ];
    Ok(Report { name: "cache", table, notes, checks })
}
