//! How large the cache of metadata blocks has to be: every size at once, from the real uses of blocks.

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings, columns};
use crate::base::{Random, ThinId};
use crate::block::memory::MemorySource;
use crate::pdata::overlay::{How, Used};
use crate::replay::cache::{CacheRules, CacheStats};
use crate::replay::policy::Policy;
use crate::replay::pool::verb::List;
use crate::replay::pool::{self, Event, Outcome, RunOptions, StreamStart, Verb, When};
use crate::thin::generate::{GenerateOptions, generate};
use crate::thin::live::Base;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
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

/// Rules that are run on the clock, and the pools that the devices are spread over.
const RULES: [(&str, &str); 12] = [
    ("unbounded", "coarse"),
    ("cap(2MiB)", "coarse"),
    ("cap(256KiB)", "coarse"),
    ("cap(128KiB)", "coarse"),
    ("cap(32KiB)", "coarse"),
    ("cap(2MiB)+age(1s)", "coarse"),
    ("cap(2MiB)+age(1s)+retain(256KiB)", "coarse"),
    ("cap(2MiB)+flush(half)", "coarse"),
    ("cap(2MiB)+flush", "coarse"),
    ("cap(256KiB)+forget", "coarse"),
    ("cap(256KiB)+prefetch-hint", "coarse"),
    ("cap(256KiB)+shards(8)", "coarse"),
];
/// The same with two pools, each with half of the room, or with all of it together.
const SHARING: [(&str, &str); 2] =
    [("cap(128KiB)", "coarse+split-pools(2)"), ("cap(256KiB)+share", "coarse+split-pools(2)")];

/// The devices that are overwritten together.
const SEVERAL: [ThinId; 4] = [ThinId(1), ThinId(2), ThinId(3), ThinId(4)];

/// Overwrites several devices which a snapshot has just been taken of each, so that every write breaks sharing.
fn several(random: bool) -> Vec<Event> {
    let event = |verb| Event { when: When::Asap, verb };
    let mut events: Vec<Event> =
        SEVERAL.iter().map(|dev| event(Verb::Snap { dev: ThinId(dev.0 + 10), origin: *dev })).collect();
    let mut seed = Random::new(7);
    for index in 0..REQUESTS {
        let (dev, block) = match random {
            true => (SEVERAL[seed.below(4) as usize], seed.below(REQUESTS)),
            false => (SEVERAL[(index % 4) as usize], index / 4),
        };
        events.push(event(Verb::Write { dev, off: block * BLOCK, len: BLOCK, fua: false }));
    }
    events
}

/// Runs rules on the clock: MB/s, and what the cache did.
fn on_the_clock(
    base: &Base<'_>,
    (rules, policy): (&str, &str),
    random: bool,
    settings: &Settings,
) -> Result<(f64, CacheStats), ScenarioError> {
    let data = (512 << 10) as f64 / (DATA * 1e6) * 1e9;
    let costs = settings.costs.clone().with("data", data as u64).unwrap_or_else(|_| settings.costs.clone());
    let policy = Policy::parse(policy).unwrap_or_else(|_| Policy::coarse());
    let options = RunOptions { cache: CacheRules::parse(rules).ok(), ..RunOptions::new(policy, costs) };
    let feed = Box::new(List::new(several(random)));
    let start = StreamStart { name: "load".into(), depth: Some(8), feed, foreground: true };
    let outcome: Outcome<'_> = pool::run(base, vec![start], &options)?;
    Ok((outcome.rate() / 1e6, outcome.cache.unwrap_or_default()))
}

/// Every rule on the clock, with several devices overwritten in order and at random.
fn rules(settings: &Settings) -> Result<Vec<(&'static str, [(f64, CacheStats); 2])>, ScenarioError> {
    let source = image(&LOADS[4])?;
    let base = Base::open(&source)?;
    let all: Vec<(&str, &str)> = RULES.into_iter().chain(SHARING).collect();
    let run = |(rules, policy): (&'static str, &str)| {
        let [sequential, random] = [false, true].map(|random| on_the_clock(&base, (rules, policy), random, settings));
        Ok((rules, [sequential?, random?]))
    };
    all.into_par_iter().map(run).collect()
}

fn rows_of_rules(all: &[(&'static str, [(f64, CacheStats); 2])], table: &mut Vec<Vec<String>>) {
    for (index, (rules, runs)) in all.iter().enumerate() {
        for ((rate, stats), order) in runs.iter().zip(["in order", "at random"]) {
            let pools = if index < RULES.len() { "" } else { ", two pools" };
            let per_request = |count: u64| number(count as f64 / REQUESTS as f64);
            let mut row = vec![format!("{rules}{pools}, {order}")];
            row.extend([
                number(*rate),
                per_request(stats.misses + stats.prefetched),
                per_request(stats.written_early),
                stats.peak.to_string(),
                number(stats.mean),
            ]);
            table.push(row);
        }
    }
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
    head.extend(["knee".to_string(), "MB/s at 64".to_string(), "at 512".to_string()]);
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
    let clock = rules(settings)?;
    let peaks = clock.first().map_or([0, 0], |(_, runs)| [runs[0].1.peak, runs[1].1.peak]);
    let random = &curves[4];
    let knee = speed(random, 8) / speed(random, 64);
    let checks = vec![
        Check::ratios("C1", "2 MiB / 256 KiB, sequential, 4 cases", "0.997-1.008", Kind::Ratio, &same, (0.98, 1.02)),
        Check::holds(
            "C2",
            "peak of the cache, random / sequential",
            "1.22",
            format!("{} ({} / {} blocks)", number(peaks[1] as f64 / peaks[0].max(1) as f64), peaks[1], peaks[0]),
            "> 1.05",
            peaks[1] as f64 > 1.05 * peaks[0] as f64,
        ),
        Check::holds("C3", "32 KiB / 256 KiB, random", "from memory", number(knee), "< 1", knee < 1.0),
    ];
    let head = ["on the clock", "MB/s", "reads a request", "written early", "peak blocks", "mean"];
    let mut of_rules = vec![head.map(String::from).to_vec()];
    rows_of_rules(&clock, &mut of_rules);
    let mut notes: Vec<String> = vec![
        "columns: misses per request with so many blocks of cache, least recently used first out".into(),
        "knee: blocks at which misses are within 1 in 100 requests of an unbounded cache".into(),
        format!("64 KiB blocks, leaves of 126, {DATA} MB/s of data, {} us for a miss", settings.costs.miss / 1000),
        String::new(),
    ];
    notes.push(
        "four devices of 1 GiB are overwritten together, each with a new snapshot; reads of metadata hide behind"
            .into(),
    );
    notes.push(
        "those of data until the worker has no time left, so that the rate does not tell the rules apart:".into(),
    );
    notes.extend(columns(&of_rules).lines().map(String::from));
    Ok(Report { name: "cache", table, notes, checks })
}
