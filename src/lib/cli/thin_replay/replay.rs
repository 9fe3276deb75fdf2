//! `thin_replay METADATA --trace FILE`.

use super::super::context::Context;
use super::super::exit::Outcome;
use super::super::options;
use super::super::output::Output;
use super::{get_costs, get_policies, put, traces, write_whole};
use crate::base::BlockNr;
use crate::block::{BlockSource, FileOutput};
use crate::format::BLOCK_SIZE;
use crate::format::block::crc32c;
use crate::pack;
use crate::pdata::overlay::SplitRule;
use crate::replay::cache::CacheRules;
use crate::replay::calibration::{self, Calibration};
use crate::replay::costs::Costs;
use crate::replay::engine::{Flavour, Ns};
use crate::replay::policy::{Kind, Policy};
use crate::replay::pool::{self, Allocation, Event, RunOptions, Verb};
use crate::replay::report::{self, PolicyReport};
use crate::replay::save;
use crate::replay::scenario::delete::soundness;
use crate::replay::scenario::stripe::Layout;
use crate::replay::threads::PROCESSORS_MIN;
use crate::replay::trace::Trace;
use crate::thin::live::{Base, LivePool};
use anyhow::{Context as _, bail};
use clap::ArgMatches;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Policies that are compared where none is asked for.
const POLICIES: [&str; 5] = ["coarse", "batch(16)", "batch(1)", "subleaf(31)", "batch(1)+coalesce"];
/// On threads a run ends after this long.
const REAL_LIMIT: Duration = Duration::from_secs(600);

/// Replays a trace on metadata of any form.
pub(super) fn run(input: &Path, matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let file = |name: &str| matches.get_one::<PathBuf>(name).map(PathBuf::as_path);
    let opened = pack::open::open(input, &pack::OpenOptions::default())?;
    let base = Base::open(opened.source.as_ref()).with_context(|| format!("'{}'", input.display()))?;
    let Some(path) = file("trace") else { bail!("a trace is wanted: --trace FILE, or one of the commands") };
    let read = |path: &Path| {
        let trace = traces::read(path, matches, context)?;
        if trace.nr_events() == 0 {
            bail!("there is no event in '{}': is it a trace, an I/O log of fio, or text of blkparse?", path.display());
        }
        Ok(trace)
    };
    let mut trace = read(path)?;
    if let Some(side) = file("side") {
        trace.merge(read(side)?);
    }
    fits(&trace, &base, &get_policies(matches, &POLICIES))?;
    let costs = get_costs(matches)?;
    let real = matches.get_one::<String>("clock").is_some_and(|clock| clock == "real");
    let layout = matches.get_one::<Layout>("stripe").copied();
    let all = all_options(matches, &costs)?;
    let inputs: Vec<&Path> = [Some(input), Some(path), file("side")].into_iter().flatten().collect();
    // Said before the runs, which may take long.
    for path in [file("svg"), options::get_output(matches)].into_iter().flatten() {
        Output::apart(Some(path), &inputs)?;
    }
    let weights = match all.first().filter(|_| matches.get_flag("elasticity")) {
        Some(first) => Some(calibration::weigh(&base, &trace, first).context("trying the assumed prices")?),
        None => None,
    };
    let calibration = Calibration::new(&costs, weights);
    let mut reports = Vec::new();
    for (index, options) in all.into_iter().enumerate() {
        let mut outcome = match real {
            true => pool::run_on_threads(&base, trace.starts(), &options, !matches.get_flag("bare"), REAL_LIMIT),
            false => pool::run(&base, trace.starts(), &options),
        }
        .with_context(|| format!("replaying with '{}'", options.policy.name))?;
        let state = soundness(&mut outcome)?;
        reports.push(PolicyReport::of(&mut outcome, &options, state, layout));
        if let Some(path) = file("save-overlay").filter(|_| index == 0) {
            save_overlay(&mut outcome.pool, path)?;
        }
    }
    if let Some(path) = file("svg") {
        let title = format!("{} on {}", path_name(file("trace")), path_name(Some(input)));
        let picture = report::svg(&title, &reports);
        let others: Vec<&Path> = inputs.iter().copied().chain(file("save-overlay")).collect();
        write_whole(Some(path), &picture, &others)?;
    }
    if matches.get_flag("json") {
        let text = json(&base, &reports, &trace, (&costs, &calibration), matches)?;
        write_whole(options::get_output(matches), &text, &inputs)?;
    } else {
        let clock = matches.get_one::<String>("clock").map_or("virtual", String::as_str);
        put(&report::table(&reports, &costs, &calibration, clock), &inputs, matches, context)?;
    }
    if real {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let spun = if matches.get_flag("bare") { "this program, not the kernel" } else { "costs were spun for" };
        context.note(format!("on threads: {spun}; {processors} processors"));
        if processors < PROCESSORS_MIN {
            context.warning(format!(
                "with fewer than {PROCESSORS_MIN} processors this says nothing of the order of policies"
            ));
        }
    }
    let sound = reports.iter().all(|report| report.sound);
    Ok(if sound { Outcome::Success } else { Outcome::Failure })
}

fn path_name(path: Option<&Path>) -> String {
    path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The devices and the block size that the trace was made for are there.
fn fits(trace: &Trace, base: &Base<'_>, policies: &[Policy]) -> anyhow::Result<()> {
    let there: Vec<_> = base.devices().map(|(id, _)| id).collect();
    if let Some(missing) = trace.devices().into_iter().find(|id| !there.contains(id)) {
        bail!(
            "the trace uses device {missing}, which is not in the metadata: create it in the trace, or map to another"
        );
    }
    let kinds = |policy: &Policy| policy.kind == Kind::Rolling;
    let run_rolls: Vec<bool> = policies.iter().map(kinds).collect();
    let of_event = |event: &Event| match &event.verb {
        Verb::Delete { policy: Some(policy), .. } => Some(policy.clone()),
        _ => None,
    };
    let own = trace.streams.iter().flat_map(|stream| &stream.events).filter_map(of_event);
    if let Some(policy) = own.into_iter().find(|policy| run_rolls.iter().any(|rolls| *rolls != kinds(policy))) {
        bail!(
            "the trace deletes with '{}': with and without 'rolling' every operation takes other locks, \
             so that all deletes of a run have to agree on it",
            policy.name
        );
    }
    match trace.header.get("pool_block").and_then(|size| size.parse::<u64>().ok()) {
        Some(size) if size != base.block_sectors() => {
            bail!("the trace is for blocks of {size} sectors, the pool's have {}", base.block_sectors())
        }
        _ => Ok(()),
    }
}

/// One run for each policy and flavour.
fn all_options(matches: &ArgMatches, costs: &Costs) -> anyhow::Result<Vec<RunOptions>> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let split = if text("split") == "half" { SplitRule::Half } else { SplitRule::ShareFirst };
    let allocation = match text("allocation") {
        "cursor" | "" => Allocation::Cursor,
        "goal" => Allocation::Goal,
        "thread" => Allocation::Apart,
        "shared" => Allocation::Shared,
        other => {
            let number = other.strip_prefix("aligned(").and_then(|rest| rest.strip_suffix(')'));
            let number = number.and_then(|number| number.parse::<u64>().ok()).filter(|number| *number > 0);
            Allocation::Aligned(number.with_context(|| format!("there is no allocation rule '{other}'"))?)
        }
    };
    let flavours = match text("lock") {
        "all" => Flavour::ALL.to_vec(),
        name => vec![Flavour::named(name).unwrap_or_default()],
    };
    let zoom = zoom(matches)?;
    let mut all = Vec::new();
    for flavour in flavours {
        for policy in get_policies(matches, &POLICIES) {
            all.push(RunOptions {
                flavour,
                split,
                allocation,
                cache: matches.get_one::<CacheRules>("cache").cloned(),
                zero: !matches.get_flag("skip-block-zeroing"),
                shards: matches.get_one::<u64>("buffer-locks").copied().unwrap_or(0),
                crash_after: matches.get_one::<u64>("crash-at").copied().unwrap_or(0),
                zoom,
                timeline: matches.contains_id("svg"),
                log_touches: matches.get_flag("json"),
                ..RunOptions::new(policy, costs.clone())
            });
        }
    }
    Ok(all)
}

/// Seconds, as nanoseconds.
fn zoom(matches: &ArgMatches) -> anyhow::Result<Option<(Ns, Ns)>> {
    let Some(text) = matches.get_one::<String>("zoom") else { return Ok(None) };
    let seconds = |text: &str| text.parse().ok().filter(|seconds: &f64| (0.0..1e8).contains(seconds));
    let ends = text.split_once("..").and_then(|(from, to)| Some((seconds(from)?, seconds(to)?)));
    match ends.map(|(from, to)| ((from * 1e9) as Ns, (to * 1e9) as Ns)) {
        Some((from, to)) if from < to => Ok(Some((from, to))),
        _ => bail!("'{text}' is not FROM..TO in seconds"),
    }
}

/// A new file as large as the image, sparse where nothing is in use.
fn save_overlay(pool: &mut LivePool<'_>, path: &Path) -> anyhow::Result<()> {
    let cannot = || format!("can't save the overlay to '{}'", path.display());
    let file = OpenOptions::new().write(true).create_new(true).open(path).with_context(cannot)?;
    file.set_len(pool.overlay.nr_blocks().max(16) * BLOCK_SIZE as u64).with_context(cannot)?;
    drop(file);
    save::save(pool, &mut FileOutput::open(path, None)?).with_context(cannot)
}

fn json(
    base: &Base<'_>,
    reports: &[PolicyReport],
    trace: &Trace,
    (costs, calibration): (&Costs, &Calibration),
    matches: &ArgMatches,
) -> anyhow::Result<String> {
    let inputs = serde_json::json!({
        "image_checksum": image_checksum(base)?,
        "trace_checksum": crc32c(trace.text().as_bytes()),
        "trace_events": trace.nr_events(),
        "trace_header": trace.header,
        "costs": costs.prices,
        "profile": costs.profile,
        "clock": matches.get_one::<String>("clock"),
        "seed": matches.get_one::<u64>("seed"),
    });
    Ok(format!(
        "{:#}\n",
        serde_json::json!({
            "version": 1,
            "inputs": inputs,
            "calibration": calibration,
            "policies": reports,
        })
    ))
}

/// A checksum of the checksums of all blocks in use: the same for an image and for its pack.
fn image_checksum(base: &Base<'_>) -> anyhow::Result<u32> {
    let pool = base.pool(SplitRule::default());
    let mut all = Vec::new();
    for block in (0..pool.overlay.nr_blocks()).filter(|block| pool.overlay.metadata.get(*block) > 0) {
        all.extend(crc32c(&pool.overlay.read(BlockNr(block))?[..]).to_le_bytes());
    }
    Ok(crc32c(&all))
}
