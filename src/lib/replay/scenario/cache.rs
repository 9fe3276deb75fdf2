//! How large the cache of metadata blocks has to be: every size at once, from the real uses of blocks, and every rule on
//! the clock.

mod curves;
mod rules;

use super::check::{Check, Kind, number};
use super::{Report, ScenarioError, Settings};
use crate::base::{Random, ThinId};
use crate::block::memory::MemorySource;
use crate::pdata::overlay::{How, Used};
use crate::replay::costs::Costs;
use crate::replay::policy::Policy;
use crate::replay::pool::verb::List;
use crate::replay::pool::{self, Event, RunOptions, StreamStart, Verb, When};
use crate::replay::save::save;
use crate::thin::generate::{GenerateOptions, generate};
use crate::thin::live::Base;
use std::collections::HashSet;

/// Sectors of a block: 64 KiB.
const BLOCK: u64 = 128;
/// Data moves at this rate, in MB/s.
const DATA: f64 = 75.0;
/// Cache sizes that are shown, in blocks.
const SIZES: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];
/// Requests of a load: 1 GiB in blocks of 64 KiB.
const REQUESTS: u64 = 16_384;
/// Blocks of the metadata devices.
const IMAGE_BLOCKS: u64 = 20_000;

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

/// Devices with so many blocks each, all mapped, as filling them in order leaves them: leaves are half full.
fn image(devices: u64, mappings: u64, settings: &Settings) -> Result<MemorySource, ScenarioError> {
    let mut empty = MemorySource::new(IMAGE_BLOCKS);
    let options = GenerateOptions {
        data_block_size: BLOCK as u32,
        nr_data_blocks: Some(400_000),
        devices: 0,
        mappings: 0,
        ..GenerateOptions::default()
    };
    generate(&mut empty, &options)?;
    if devices == 0 {
        return Ok(empty);
    }
    let base = Base::open(&empty)?;
    let fill = |dev: u64| {
        let writes = (0..mappings).map(move |block| write(ThinId(dev), block));
        std::iter::once(event(Verb::Create { dev: ThinId(dev) })).chain(writes)
    };
    let options = RunOptions::new(Policy::coarse(), settings.costs.clone());
    let mut outcome = pool::run(&base, vec![load((1..=devices).flat_map(fill).collect())], &options)?;
    let mut filled = MemorySource::new(IMAGE_BLOCKS);
    save(&mut outcome.pool, &mut filled)?;
    Ok(filled)
}

/// The requests of a load, eight at once.
fn load<'a>(events: Vec<Event>) -> StreamStart<'a> {
    StreamStart { name: "load".into(), depth: Some(8), feed: Box::new(List::new(events)), foreground: true }
}

/// The pools that the loads run on.
struct Images {
    empty: MemorySource,
    /// Four devices of 1 GiB.
    several: MemorySource,
    /// One of 10 GiB.
    large: MemorySource,
}

impl Images {
    fn new(settings: &Settings) -> Result<Images, ScenarioError> {
        let (several, large) = rayon::join(|| image(4, REQUESTS, settings), || image(1, 10 * REQUESTS, settings));
        Ok(Images { empty: image(0, 0, settings)?, several: several?, large: large? })
    }
}

fn event(verb: Verb) -> Event {
    Event { when: When::Asap, verb }
}

fn write(dev: ThinId, block: u64) -> Event {
    event(Verb::Write { dev, off: block * BLOCK, len: BLOCK, fua: false })
}

/// The profile with data at the scenario's rate, so that a commit comes every 1200 requests or so.
fn costs(settings: &Settings) -> Costs {
    let data = (512 << 10) as f64 / (DATA * 1e6) * 1e9;
    settings.costs.clone().with("data", data as u64).unwrap_or_else(|_| settings.costs.clone())
}

/// Numbers below a limit, each once, in some order.
fn shuffled(limit: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..limit).collect();
    let mut random = Random::new(7);
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last as u64 + 1) as usize);
    }
    all
}

/// The whole scenario.
///
/// # Errors
/// Where an image can't be made or the pool fails.
pub fn run(settings: &Settings) -> Result<Report, ScenarioError> {
    let images = Images::new(settings)?;
    let curves = curves::all(&images, settings)?;
    let rules = rules::all(&images, settings)?;
    let miss = settings.costs.miss;
    let speed = |curve: &MissCurve, size| curves::rate(curve.misses(size), miss);
    let same: Vec<f64> = curves[..4].iter().map(|(_, curve)| speed(curve, 512) / speed(curve, 64)).collect();
    let random = &curves[curves::SEVERAL].1;
    let knee = speed(random, 8) / speed(random, 64);
    let checks = vec![
        Check::ratios("C1", "2 MiB / 256 KiB, sequential, 4 cases", "0.997-1.008", Kind::Ratio, &same, (0.98, 1.02)),
        rules::peak_check(&rules),
        Check::holds("C3", "32 KiB / 256 KiB, random", "from memory", number(knee), "< 1", knee < 1.0),
    ];
    let mut notes: Vec<String> = vec![
        "columns: misses per request with so many blocks of cache, least recently used first out".into(),
        "knee: blocks at which misses are within 1 in 100 requests of an unbounded cache".into(),
        format!("64 KiB blocks, leaves of 126, {DATA} MB/s of data, {} us for a miss", miss / 1000),
        "said: of a made-up stream of the same kind, 0.1 ms for a miss".into(),
    ];
    notes.extend(rules::notes(&rules, miss));
    Ok(Report { name: "cache", table: curves::table(&curves, miss), notes, checks })
}
