//! What a delete would do to a pool, from its metadata alone: no trace is needed.

use super::calibration::Calibration;
use super::costs::Costs;
use super::engine::Flavour;
use super::policy::Policy;
use super::pool::verb::{List, Sequential};
use super::pool::{self, Event, Feed, RunOptions, StreamStart, Verb, When};
use super::scenario::check::number;
use super::scenario::columns;
use crate::base::ThinId;
use crate::pdata::overlay::{DeleteWalk, Released, SplitRule};
use crate::thin::live::{Base, LiveError};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use serde::Serialize;

/// What has to be released for one device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Work {
    /// The device.
    pub device: u64,
    /// Mappings that it has.
    pub mapped: u64,
    /// References to data blocks that are taken away: those in leaves that nothing else has.
    pub entries: u64,
    /// Runs of neighbouring data blocks that they make.
    pub runs: u64,
    /// Nodes that are freed.
    pub nodes: u64,
    /// Shared nodes, which only lose a reference.
    pub shared: u64,
    /// Nodes of the index tree for bitmaps whose index entry is not at hand: many where data blocks are spread widely.
    pub index: u64,
    /// Counts above 3 that are taken down.
    pub overflow: u64,
    /// Nodes of the tree of high counts for those of 3 that are taken down.
    pub settle: u64,
}

/// One policy's prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The policy.
    pub policy: String,
    /// How long the deletes take beside a load, in seconds.
    pub delete: f64,
    /// The longest time in which no write to a new block is completed, in seconds.
    pub stall: f64,
    /// What is left of the throughput of such writes.
    pub rate: f64,
    /// What a crash in the middle leaves.
    pub crash: &'static str,
}

/// A prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Device by device, in the order of the deletes.
    pub work: Vec<Work>,
    /// Policy by policy.
    pub rows: Vec<Row>,
    /// What the load is.
    pub load: &'static str,
    /// The cost profile.
    pub profile: String,
    /// Whether no assumed price matters; nothing is tried here.
    pub calibration: Calibration,
}

/// Policies that are compared where none is asked for.
pub const POLICIES: [&str; 8] = [
    "coarse",
    "coarse+coalesce",
    "batch(16)",
    "batch(1)",
    "subleaf(31)",
    "batch(1)+coalesce",
    "batch(256)+sleep(100ms)",
    "offline",
];

/// Predicts the deletes of devices, one after the other.
///
/// # Errors
/// Where there is no such device, or the pool runs full.
pub fn predict(
    base: &Base<'_>,
    devices: &[ThinId],
    policies: &[Policy],
    flavour: Flavour,
    costs: &Costs,
) -> Result<Prediction, LiveError> {
    let work = work(base, devices)?;
    let pool = base.pool(SplitRule::ShareFirst);
    let data = &pool.overlay.data;
    let write = data.nr_used() < data.nr_blocks();
    let new = (0..).map(ThinId).find(|id| !pool.has_device(*id)).unwrap_or_default();
    drop(pool);
    let options = |policy: Policy| RunOptions {
        flavour,
        until_deletes: devices.len() as u64,
        split: SplitRule::ShareFirst,
        ..RunOptions::new(policy, costs.clone())
    };
    let size = base.block_sectors();
    let base_rate = {
        let options = RunOptions { limit: 1_000_000_000, ..options(Policy::coarse()) };
        pool::run(base, streams(new, &[], write, size), &options)?.rate()
    };
    let rows: Result<Vec<Row>, LiveError> = policies
        .par_iter()
        .map(|policy| {
            let offline = policy.kind == super::policy::Kind::Offline;
            let streams = if offline { deletes(new, devices) } else { streams(new, devices, write, size) };
            let outcome = pool::run(base, streams, &options(policy.clone()))?;
            let stall = outcome.longest_stall().map_or(0, |stall| stall.length);
            Ok(Row {
                policy: policy.name.clone(),
                delete: outcome.delete_time().unwrap_or(0) as f64 / 1e9,
                stall: if offline { 0.0 } else { stall as f64 / 1e9 },
                rate: if offline { 0.0 } else { outcome.rate() / base_rate.max(1.0) },
                crash: outcome.crash,
            })
        })
        .collect();
    Ok(Prediction {
        work,
        rows: rows?,
        load: if write { "writes to new blocks, one after the other, 8 at once" } else { "reads: the pool is full" },
        profile: costs.profile.clone(),
        calibration: Calibration::new(costs, None),
    })
}

/// What each delete has to release, on a copy of the trees.
fn work(base: &Base<'_>, devices: &[ThinId]) -> Result<Vec<Work>, LiveError> {
    let mut pool = base.pool(SplitRule::ShareFirst);
    let mut all = Vec::new();
    for id in devices {
        let mapped = pool.devices().find(|(own, _)| own == id).map(|(_, mapped)| mapped);
        let mut work = Work { device: id.0, mapped: mapped.ok_or(LiveError::NoDevice(*id))?, ..Work::default() };
        let mut walk = DeleteWalk::new(pool.unlink(*id)?);
        loop {
            match walk.step(&mut pool.overlay, usize::MAX)? {
                Released::Entries { entries, runs, .. } => {
                    let beyond = walk.beyond();
                    work.entries += entries;
                    work.runs += runs;
                    work.index += beyond.index;
                    work.overflow += beyond.overflow;
                    work.settle += beyond.settle;
                }
                Released::Node { block, shared, .. } => {
                    pool.overlay.release(block);
                    if shared { work.shared += 1 } else { work.nodes += 1 }
                }
                Released::End => break,
            }
        }
        all.push(work);
    }
    Ok(all)
}

fn stream<'a>(name: &str, feed: Box<dyn Feed + 'a>, foreground: bool) -> StreamStart<'a> {
    StreamStart { name: name.into(), depth: Some(8), feed, foreground }
}

fn deletes<'a>(new: ThinId, devices: &[ThinId]) -> Vec<StreamStart<'a>> {
    let mut events = vec![Event { when: When::Asap, verb: Verb::Create { dev: new } }];
    // One message holds the window open until the last one is done.
    let delete = |dev: &ThinId| Event { when: When::At(200_000_000), verb: Verb::Delete { dev: *dev, policy: None } };
    events.extend(devices.iter().map(delete));
    vec![stream("messages", Box::new(List::new(events)), false)]
}

fn streams<'a>(new: ThinId, devices: &[ThinId], write: bool, size: u64) -> Vec<StreamStart<'a>> {
    let mut streams = deletes(new, devices);
    let load = Sequential { dev: new, len: size, write, at: 0 };
    streams.push(stream("load", Box::new(load), true));
    streams
}

impl Prediction {
    /// The prediction for people.
    pub fn text(&self) -> String {
        let head = ["device", "mapped", "own counts", "in runs", "own nodes", "shared nodes"];
        let mut table = vec![head.map(String::from).to_vec()];
        table.extend(self.work.iter().map(|work| {
            [work.device, work.mapped, work.entries, work.runs, work.nodes, work.shared].map(|n| n.to_string()).to_vec()
        }));
        let mut text = columns(&table);
        text.push('\n');
        let head = ["policy", "delete s", "new writes stop s", "left of their rate", "after a crash"];
        let mut table = vec![head.map(String::from).to_vec()];
        table.extend(self.rows.iter().map(|row| {
            let offline = row.policy == "offline";
            let number = |value| if offline { "-".to_string() } else { number(value) };
            let delete = super::scenario::check::number(row.delete);
            vec![row.policy.clone(), delete, number(row.stall), number(row.rate), row.crash.into()]
        }));
        text.push_str(&columns(&table));
        text.push_str(&format!(
            "load: {}\ncosts: {}: compare the lines with each other rather than with a clock\n{}\
             offline: the same work without a pool in service, at the profile's prices and with runs taken together\n",
            self.load,
            self.profile,
            self.calibration.text()
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::scenario::delete;

    #[test]
    fn sharing_makes_a_delete_short() {
        let source = delete::image(512, 50, 1).unwrap();
        let base = Base::open(&source).unwrap();
        let policies: Vec<Policy> = POLICIES.iter().map(|policy| Policy::parse(policy).unwrap()).collect();
        let predict = |ids: &[u64]| {
            let ids: Vec<ThinId> = ids.iter().copied().map(ThinId).collect();
            predict(&base, &ids, &policies, Flavour::default(), &Costs::standard()).unwrap()
        };
        let (one, both) = (predict(&[1]), predict(&[1, 2]));
        assert!(one.work[0].shared > 100 && one.work[0].entries < one.work[0].mapped / 10, "{:?}", one.work);
        assert!(both.work[1].shared == 0 && both.work[1].entries == both.work[1].mapped, "{:?}", both.work);
        assert!(one.rows[0].delete * 5.0 < both.rows[0].delete, "{} {}", one.text(), both.text());
        let of = |policy: &str| both.rows.iter().find(|row| row.policy == policy).unwrap();
        assert!(of("coarse").stall > 0.09 && of("batch(1)").stall < 0.01, "{}", both.text());
        assert!(of("coarse+coalesce").delete < of("coarse").delete);
        let missing = super::predict(&base, &[ThinId(7)], &policies, Flavour::default(), &Costs::standard());
        assert!(matches!(missing, Err(LiveError::NoDevice(_))));
    }
}
