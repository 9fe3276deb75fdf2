//! Misses of every size of cache, from the uses of blocks that loads really make.

use super::super::check::number;
use super::super::{ScenarioError, Settings};
use super::{BLOCK, DATA, MissCurve, REQUESTS, SIZES, costs, event, image, write};
use crate::base::{Random, ThinId};
use crate::replay::policy::Policy;
use crate::replay::pool::verb::List;
use crate::replay::pool::{self, Outcome, RunOptions, StreamStart, Verb};
use crate::thin::live::Base;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

/// A load: what is made ready, and what is written.
pub(super) struct Load {
    name: &'static str,
    /// Devices that there are, and blocks of each.
    devices: u64,
    mappings: u64,
    /// What is written to: a new device, one that is there, a new snapshot of one, or that and three others.
    to: To,
    /// Blocks are taken at random out of so many; 0 takes them in order.
    random: u64,
    /// What was said of such a load, for every size.
    said: Option<[f64; 7]>,
}

#[derive(Clone, Copy, PartialEq)]
enum To {
    New,
    Mapped(u64),
    Snapshot,
    Several,
}

const GIB: u64 = 16_384;

const fn load(name: &'static str, mappings: u64, to: To, random: u64, said: Option<[f64; 7]>) -> Load {
    Load { name, devices: if mappings == 0 { 0 } else { 4 }, mappings, to, random, said }
}

/// What was said of random writes over 10 GiB.
const FAR_SAID: [f64; 7] = [2.97, 1.66, 1.65, 1.63, 1.60, 1.54, 1.44];

const LOADS: [Load; 9] = [
    load("unprovisioned", 0, To::New, 0, None),
    load("provisioned", GIB, To::Mapped(1), 0, None),
    load("new snapshot, all shared", GIB, To::Snapshot, 0, None),
    load("old snapshot, none shared", GIB, To::Mapped(2), 0, None),
    load("several devices, random", GIB, To::Several, GIB, None),
    load("new snapshot of 1 GiB", GIB, To::Snapshot, 0, Some([0.031, 0.025, 0.025, 0.023, 0.023, 0.023, 0.017])),
    Load {
        devices: 1,
        ..load("of 10 GiB", 10 * GIB, To::Snapshot, 0, Some([0.031, 0.024, 0.024, 0.023, 0.023, 0.023, 0.023]))
    },
    load("of 1 GiB, random", GIB, To::Snapshot, GIB, Some([1.32, 1.04, 0.93, 0.71, 0.31, 0.13, 0.12])),
    Load { devices: 1, ..load("of 10 GiB, random", 10 * GIB, To::Snapshot, 10 * GIB, Some(FAR_SAID)) },
];

/// The load over several devices, in the list of them.
pub(super) const SEVERAL: usize = 4;

/// A new device or snapshot.
const NEW: ThinId = ThinId(9);

impl Load {
    /// Runs it and gives the curve of the metadata blocks that it used.
    fn curve(&self, settings: &Settings) -> Result<MissCurve, ScenarioError> {
        let source = image(self.devices, self.mappings)?;
        let base = Base::open(&source)?;
        let mut events = Vec::new();
        match self.to {
            To::New => events.push(event(Verb::Create { dev: NEW })),
            To::Snapshot | To::Several => events.push(event(Verb::Snap { dev: NEW, origin: ThinId(1) })),
            To::Mapped(_) => {}
        }
        let mut random = Random::new(7);
        for index in 0..REQUESTS {
            let block = if self.random > 0 { random.below(self.random) } else { index };
            let dev = match self.to {
                To::New | To::Snapshot => NEW,
                To::Mapped(dev) => ThinId(dev),
                To::Several => [NEW, ThinId(2), ThinId(3), ThinId(4)][random.below(4) as usize],
            };
            events.push(write(dev, block));
        }
        let options = RunOptions { log_touches: true, ..RunOptions::new(Policy::coarse(), costs(settings)) };
        let feed = Box::new(List::new(events));
        let start = StreamStart { name: "load".into(), depth: Some(8), feed, foreground: true };
        let outcome: Outcome<'_> = pool::run(&base, vec![start], &options)?;
        Ok(MissCurve::of(&outcome.touches.log.unwrap_or_default()))
    }
}

/// The curves of all loads.
pub(super) fn all(settings: &Settings) -> Result<Vec<(&'static Load, MissCurve)>, ScenarioError> {
    LOADS.par_iter().map(|load| Ok((load, load.curve(settings)?))).collect()
}

/// MB/s with so many misses.
pub(super) fn rate(misses: u64, miss: u64) -> f64 {
    with_misses(misses as f64 / REQUESTS as f64, miss)
}

/// MB/s with so many misses per request.
pub(super) fn with_misses(misses: f64, miss: u64) -> f64 {
    let request = BLOCK as f64 * 512.0 / 1e6;
    request / (request / DATA + misses * miss as f64 / 1e9)
}

pub(super) fn table(curves: &[(&Load, MissCurve)], miss: u64) -> Vec<Vec<String>> {
    let mut head = vec!["load".to_string()];
    head.extend(SIZES.map(|size| format!("{size}")));
    head.extend(["knee", "MB/s at 8", "at 64", "at 512"].map(String::from));
    let mut table = vec![head];
    let shown = [8, 64, 512];
    for (load, curve) in curves {
        let mut row = vec![load.name.to_string()];
        row.extend(SIZES.map(|size| number(curve.misses(size) as f64 / REQUESTS as f64)));
        row.push(curve.live(REQUESTS / 100).to_string());
        row.extend(shown.map(|size| number(rate(curve.misses(size), miss))));
        table.push(row);
        if let Some(said) = load.said {
            let mut row = vec!["  said".to_string()];
            row.extend(said.map(number));
            row.push("-".into());
            row.extend([said[0], said[3], said[6]].map(|misses| number(with_misses(misses, 100_000))));
            table.push(row);
        }
    }
    table
}
