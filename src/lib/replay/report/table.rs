//! The table of a replay.

use super::PolicyReport;
use crate::replay::calibration::Calibration;
use crate::replay::costs::Costs;
use crate::replay::scenario::check::number;
use crate::replay::scenario::columns;
use std::fmt::Write as _;

/// All runs as a table, with what is needed to read it; `clock` is the name of the clock that they ran on.
pub fn table(reports: &[PolicyReport], costs: &Costs, calibration: &Calibration, clock: &str) -> String {
    let head = [
        "policy",
        "lock",
        "fg MB/s",
        "beside delete",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "longest ms",
        "at s",
        "held by",
        "waited",
        "delete s",
        "X-hold p99 us",
        "X-wait p99 us",
        "commits",
        "after a crash",
        "state",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(reports.iter().map(row));
    let mut text = columns(&rows);
    text.push_str(&order(reports));
    let _infallible = write!(text, "costs: {}  clock: {clock}\n{}", costs.profile, calibration.text());
    for (report, ratios) in reports.iter().filter_map(|report| report.ratios.map(|ratios| (report, ratios))) {
        let _infallible = writeln!(
            text,
            "{} ({}): r1={} r2={} r3={} r4={} leaf-fill={:.0}",
            report.policy,
            report.lock,
            number(ratios.hold),
            number(ratios.wake),
            ratios.boundaries,
            number(ratios.duty),
            ratios.leaf_fill
        );
    }
    for report in reports.iter().filter(|report| report.failed > 0) {
        let _infallible = writeln!(text, "{}: {} requests were refused by the pool", report.policy, report.failed);
    }
    for report in reports.iter().filter(|report| report.unfinished > 0) {
        let _infallible = writeln!(
            text,
            "{}: {} streams have not come to their end: they wait for what never comes, or go on for more than a day",
            report.policy, report.unfinished
        );
    }
    for (report, stripes) in reports.iter().filter_map(|report| report.alloc.stripes.map(|stripes| (report, stripes))) {
        let _infallible = writeln!(
            text,
            "{}: {} stripes written whole, {} in parts; {} chunks read and {} written",
            report.policy,
            stripes.full,
            stripes.partial,
            number(stripes.reads),
            number(stripes.writes)
        );
    }
    for (report, cache) in reports.iter().filter_map(|report| report.cache.map(|cache| (report, cache))) {
        let _infallible = writeln!(
            text,
            "{}: metadata cache: {} hits, {} misses, {} read ahead, {} written early, peak {} blocks, mean {}",
            report.policy,
            cache.hits,
            cache.misses,
            cache.prefetched,
            cache.written_early,
            cache.peak,
            number(cache.mean)
        );
    }
    if let Some(first) = reports.first() {
        for (dev, count) in first.alloc.fragments.iter().take(10) {
            let _infallible = writeln!(text, "device {dev}: new blocks in {count} fragments");
        }
    }
    text
}

/// Policies by what they leave of the throughput, for each flavour of the lock; and whether the flavour decides it.
fn order(reports: &[PolicyReport]) -> String {
    let (mut text, mut orders) = (String::new(), Vec::new());
    let mut flavours: Vec<&str> = Vec::new();
    for report in reports {
        if !flavours.contains(&report.lock) {
            flavours.push(report.lock);
        }
    }
    for flavour in &flavours {
        let mut own: Vec<&PolicyReport> = reports.iter().filter(|report| report.lock == *flavour).collect();
        let is_noise = |report: &&PolicyReport| report.ratios.is_some_and(|ratios| ratios.is_noise());
        let noise: Vec<&str> = own.iter().copied().filter(is_noise).map(|report| report.policy.as_str()).collect();
        own.retain(|report| !is_noise(report));
        own.sort_by(|left, right| right.rate.total_cmp(&left.rate));
        let names: Vec<&str> = own.iter().map(|report| report.policy.as_str()).collect();
        let name = if flavours.len() > 1 { format!(" ({flavour})") } else { String::new() };
        let _infallible = writeln!(text, "order{name}: {}", ranked(&own));
        if !noise.is_empty() {
            let _infallible =
                writeln!(text, "not in the order{name}, with fewer than 20 boundaries: {}", noise.join(", "));
        }
        orders.push(names);
    }
    if orders.windows(2).any(|pair| pair[0] != pair[1]) {
        text.push_str("the order of the policies depends on the flavour of the lock\n");
    }
    text
}

/// Names in order; what is equal is said to be.
fn ranked(reports: &[&PolicyReport]) -> String {
    let mut text = String::new();
    for (index, report) in reports.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| reports.get(before));
        text.push_str(match before {
            None => "",
            Some(before) if before.rate == report.rate => " = ",
            Some(_) => " > ",
        });
        text.push_str(&report.policy);
    }
    text
}

fn row(report: &PolicyReport) -> Vec<String> {
    let stall = report.longest_stall();
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    // Beside a delete its own window counts, else the verb with the most requests.
    let latency = if report.background.begin.is_some() {
        Some(&report.window_latency)
    } else {
        report.latency.values().max_by_key(|summary| summary.count)
    };
    let latency = latency.filter(|summary| summary.count > 0);
    let us = |ns: u64| (ns / 1000).to_string();
    let root = report.locks.first();
    vec![
        report.policy.clone(),
        report.lock.into(),
        number(report.rate_all / 1e6),
        dash(report.delete_time.map(|_| number(report.rate / 1e6))),
        dash(latency.map(|summary| us(summary.p50_ns))),
        dash(latency.map(|summary| us(summary.p99_ns))),
        dash(latency.map(|summary| us(summary.p999_ns))),
        dash(stall.map(|stall| number(stall.length as f64 / 1e6))),
        dash(stall.map(|stall| format!("{:.3}", stall.begin as f64 / 1e9))),
        dash(stall.map(|stall| match stall.step.as_str() {
            "" => stall.holder.clone(),
            step => format!("{}: {step}", stall.holder),
        })),
        dash(stall.map(|stall| stall.waiter.clone())),
        dash(report.delete_time.map(|time| number(time as f64 / 1e9))),
        dash(root.map(|lock| us(lock.hold_exclusive.p99_ns))),
        dash(root.map(|lock| us(lock.wait_exclusive.p99_ns))),
        report.commits.to_string(),
        if report.background.begin.is_some() { report.crash.into() } else { "-".into() },
        match (report.sound, report.state.leaked_metadata, report.state.leaked_data) {
            (false, ..) => "DAMAGED".into(),
            (true, 0, 0) => "sound".into(),
            (true, metadata, data) => format!("leaks {metadata} metadata and {data} data blocks"),
        },
    ]
}
