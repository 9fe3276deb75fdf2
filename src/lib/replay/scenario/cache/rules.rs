//! Every rule of the cache on the clock, with several devices that are overwritten in order and at random.

use super::super::check::{Check, number};
use super::super::{ScenarioError, Settings, columns};
use super::curves::with_misses;
use super::{Images, REQUESTS, costs, event, load, shuffled, write};
use crate::base::ThinId;
use crate::replay::cache::{CacheRules, CacheStats};
use crate::replay::policy::Policy;
use crate::replay::pool::{self, Event, Outcome, RunOptions, Verb};
use crate::thin::live::Base;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// Rules, and the pools that the devices are spread over. First what the thread had.
const RULES: [(&str, &str); 18] = [
    ("cap(7300KiB)", "coarse"),
    ("cap(7300KiB)+age(1s)", "coarse"),
    ("cap(7300KiB)+forget", "coarse"),
    ("cap(7300KiB)+age(1s)+forget", "coarse"),
    ("unbounded", "coarse"),
    ("cap(2MiB)", "coarse"),
    ("cap(256KiB)", "coarse"),
    ("cap(128KiB)", "coarse"),
    ("cap(32KiB)", "coarse"),
    ("cap(2MiB)+age(1s)+retain(256KiB)", "coarse"),
    ("cap(256KiB)+flush(half)", "coarse"),
    ("cap(256KiB)+flush", "coarse"),
    ("cap(256KiB)+forget", "coarse"),
    ("cap(256KiB)+prefetch-hint", "coarse"),
    ("cap(256KiB)+shards(8)", "coarse"),
    ("cap(256KiB)", "coarse+split-pools(2)"),
    // The same room for two pools, half for each, or all of it together.
    ("cap(128KiB)", "coarse+split-pools(2)"),
    ("cap(256KiB)+share", "coarse+split-pools(2)"),
];

/// The rules under which peaks are compared: those of the thread.
const PEAKS: usize = 4;

/// The devices that are overwritten together.
const DEVICES: [ThinId; 4] = [ThinId(1), ThinId(2), ThinId(3), ThinId(4)];

/// A rule's runs: in order, and at random.
pub(super) struct Row {
    rules: &'static str,
    policy: &'static str,
    rates: [f64; 2],
    stats: [CacheStats; 2],
}

/// Overwrites the first 256 MiB of several devices, each with a snapshot that has just been taken, so that every write
/// breaks sharing. Both orders write the same blocks, each once.
fn several(random: bool) -> Vec<Event> {
    let snapshot = |dev: &ThinId| event(Verb::Snap { dev: ThinId(dev.0 + 10), origin: *dev });
    let mut events: Vec<Event> = DEVICES.iter().map(snapshot).collect();
    let order: Vec<u64> = if random { shuffled(REQUESTS) } else { (0..REQUESTS).collect() };
    let devices = DEVICES.len() as u64;
    events.extend(order.iter().map(|index| write(DEVICES[(index % devices) as usize], index / devices)));
    events
}

fn on_the_clock(
    base: &Base<'_>,
    (rules, policy): (&str, &str),
    random: bool,
    settings: &Settings,
) -> Result<(f64, CacheStats), ScenarioError> {
    let policy = Policy::parse(policy).unwrap_or_else(|_| Policy::coarse());
    let options = RunOptions { cache: CacheRules::parse(rules).ok(), ..RunOptions::new(policy, costs(settings)) };
    let outcome: Outcome<'_> = pool::run(base, vec![load(several(random))], &options)?;
    Ok((outcome.rate() / 1e6, outcome.cache.unwrap_or_default()))
}

/// Every rule, in order and at random.
pub(super) fn all(images: &Images, settings: &Settings) -> Result<Vec<Row>, ScenarioError> {
    let base = Base::open(&images.several)?;
    let run = |(rules, policy): (&'static str, &'static str)| {
        let ordered = on_the_clock(&base, (rules, policy), false, settings)?;
        let mixed = on_the_clock(&base, (rules, policy), true, settings)?;
        Ok(Row { rules, policy, rates: [ordered.0, mixed.0], stats: [ordered.1, mixed.1] })
    };
    RULES.into_par_iter().map(run).collect()
}

impl Row {
    fn ratio(&self) -> f64 {
        self.stats[1].peak as f64 / self.stats[0].peak.max(1) as f64
    }

    fn name(&self) -> String {
        let pools = if self.policy == "coarse" { "" } else { ", two pools" };
        format!("{}{pools}", self.rules)
    }

    fn cells(&self, index: usize, miss: u64) -> Vec<String> {
        let stats = &self.stats[index];
        let per_request = |count: u64| number(count as f64 / REQUESTS as f64);
        vec![
            format!("{}, {}", self.name(), ["in order", "at random"][index]),
            number(self.rates[index]),
            number(with_misses(stats.misses as f64 / REQUESTS as f64, miss)),
            per_request(stats.misses + stats.prefetched),
            per_request(stats.written_early),
            per_request(stats.written_by_commits),
            stats.flushes.to_string(),
            stats.peak.to_string(),
            number(stats.mean),
        ]
    }
}

/// Peaks under the rule of the thread that is nearest to what it says it ran: with its bound and nothing else.
pub(super) fn peak_check(rows: &[Row]) -> Check {
    let row = &rows[0];
    let got = format!("{} ({} / {} blocks)", number(row.ratio()), row.stats[1].peak, row.stats[0].peak);
    let what = "peak of the cache, random / sequential";
    Check::holds("C2", what, "1.22", got, "> 1.05", row.ratio() > 1.05)
}

pub(super) fn notes(rows: &[Row], miss: u64) -> Vec<String> {
    let head = [
        "on the clock",
        "MB/s",
        "one by one",
        "reads a request",
        "written early",
        "by commits",
        "commits",
        "peak blocks",
        "mean",
    ];
    let mut table = vec![head.map(String::from).to_vec()];
    table.extend(rows.iter().flat_map(|row| [row.cells(0, miss), row.cells(1, miss)]));
    let mut lines: Vec<String> = vec![
        String::new(),
        "256 MiB of each of four devices are overwritten together, each with a new snapshot; reads of metadata hide"
            .into(),
        "behind those of data until the worker has no time left, so that the rate hardly tells the rules apart; one by"
            .into(),
        "one: the rate if data had to wait for every miss:".into(),
    ];
    lines.extend(columns(&table).lines().map(String::from));
    for row in &rows[..PEAKS] {
        lines.push(format!(
            "peak, random / sequential, {}: {} ({} / {} blocks); reported 1.22 (275 / 225), with a bound of 7300 KiB",
            row.name(),
            number(row.ratio()),
            row.stats[1].peak,
            row.stats[0].peak
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only so are the peaks of both orders those of the same blocks.
    #[test]
    fn both_orders_write_the_same_blocks() {
        let [mut ordered, mut mixed] = [false, true].map(|random| {
            let written = several(random).into_iter().filter_map(|event| match event.verb {
                Verb::Write { dev, off, .. } => Some((dev, off)),
                _ => None,
            });
            written.collect::<Vec<_>>()
        });
        assert!(ordered != mixed && ordered.len() as u64 == REQUESTS);
        ordered.sort_unstable();
        mixed.sort_unstable();
        assert_eq!(ordered, mixed);
        ordered.dedup();
        assert_eq!(ordered.len() as u64, REQUESTS);
    }

    #[test]
    fn every_rule_can_be_read() {
        for (rules, policy) in RULES {
            assert!(CacheRules::parse(rules).is_ok() && Policy::parse(policy).is_ok(), "{rules} {policy}");
        }
    }
}
