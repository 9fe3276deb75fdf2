//! The table of a replay.

use super::PolicyReport;
use crate::replay::costs::Costs;
use crate::replay::scenario::check::number;
use crate::replay::scenario::columns;
use std::fmt::Write as _;

/// All runs as a table, with what is needed to read it; `clock` is the name of the clock that they ran on.
pub fn table(reports: &[PolicyReport], costs: &Costs, clock: &str) -> String {
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
    let mut order: Vec<&PolicyReport> = reports.iter().collect();
    order.sort_by(|left, right| right.rate.total_cmp(&left.rate));
    let names: Vec<&str> = order.iter().map(|report| report.policy.as_str()).collect();
    let _infallible = writeln!(text, "order: {}", names.join(" > "));
    let _infallible =
        writeln!(text, "costs: {} (assumed: {})  clock: {clock}", costs.profile, costs.assumed().join(" "));
    for report in reports.iter().filter(|report| report.failed > 0) {
        let _infallible = writeln!(text, "{}: {} requests were refused by the pool", report.policy, report.failed);
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
    if let Some(first) = reports.first() {
        for (dev, count) in first.alloc.fragments.iter().take(10) {
            let _infallible = writeln!(text, "device {dev}: new blocks in {count} fragments");
        }
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
        dash(stall.map(|stall| stall.holder.clone())),
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
