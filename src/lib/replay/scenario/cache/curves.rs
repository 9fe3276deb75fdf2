//! Misses of every size of cache, from the uses of blocks that loads really make.

use super::super::check::number;
use super::super::{ScenarioError, Settings};
use super::{BLOCK, DATA, Images, MissCurve, REQUESTS, SIZES, costs, event, load, write};
use crate::base::{Random, ThinId};
use crate::replay::policy::Policy;
use crate::replay::pool::{self, Outcome, RunOptions, Verb};
use crate::thin::live::Base;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

/// A load: what is made ready, and what is written.
pub(super) struct Load {
    name: &'static str,
    /// The pool that it runs on.
    on: On,
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

/// A pool of [`Images`].
#[derive(Clone, Copy, PartialEq)]
enum On {
    Empty,
    Several,
    Large,
}

const fn of(name: &'static str, on: On, to: To, random: u64, said: Option<[f64; 7]>) -> Load {
    Load { name, on, to, random, said }
}

/// What was said of random writes over 10 GiB.
const FAR_SAID: [f64; 7] = [2.97, 1.66, 1.65, 1.63, 1.60, 1.54, 1.44];

const LOADS: [Load; 9] = [
    of("unprovisioned", On::Empty, To::New, 0, None),
    of("provisioned", On::Several, To::Mapped(1), 0, None),
    of("new snapshot, all shared", On::Several, To::Snapshot, 0, None),
    of("old snapshot, none shared", On::Several, To::Mapped(2), 0, None),
    of("several devices, random", On::Several, To::Several, GIB, None),
    of("new snapshot of 1 GiB", On::Several, To::Snapshot, 0, Some([0.031, 0.025, 0.025, 0.023, 0.023, 0.023, 0.017])),
    of("of 10 GiB", On::Large, To::Snapshot, 0, Some([0.031, 0.024, 0.024, 0.023, 0.023, 0.023, 0.023])),
    of("of 1 GiB, random", On::Several, To::Snapshot, GIB, Some([1.32, 1.04, 0.93, 0.71, 0.31, 0.13, 0.12])),
    of("of 10 GiB, random", On::Large, To::Snapshot, 10 * GIB, Some(FAR_SAID)),
];

/// The load over several devices, in the list of them.
pub(super) const SEVERAL: usize = 4;

/// A new device or snapshot.
const NEW: ThinId = ThinId(9);

impl Load {
    /// Runs it and gives the curve of the metadata blocks that it used.
    fn curve(&self, images: &Images, settings: &Settings) -> Result<MissCurve, ScenarioError> {
        let source = match self.on {
            On::Empty => &images.empty,
            On::Several => &images.several,
            On::Large => &images.large,
        };
        let base = Base::open(source)?;
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
        let outcome: Outcome<'_> = pool::run(&base, vec![load(events)], &options)?;
        Ok(MissCurve::of(&outcome.touches.log.unwrap_or_default()))
    }
}

/// The curves of all loads.
pub(super) fn all(images: &Images, settings: &Settings) -> Result<Vec<(&'static Load, MissCurve)>, ScenarioError> {
    LOADS.par_iter().map(|load| Ok((load, load.curve(images, settings)?))).collect()
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
