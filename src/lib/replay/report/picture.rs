//! A timeline as SVG: lanes of each policy under each other, all on the same scales. No script, no fonts of its own.

use super::PolicyReport;
use super::lanes::{BARS, COLUMNS, LockLane};
use crate::replay::engine::Ns;
use crate::replay::scenario::check::number;
use std::fmt::Write as _;

const LEFT: f64 = 150.0;
const WIDTH: f64 = 1000.0;
const TOP: f64 = 64.0;
/// Head, throughput, requests under way, and the delete with its commits.
const PANEL: f64 = 178.0;
/// A lock's lane: holds below, waiters above.
const LOCK: f64 = 44.0;
const HELD: f64 = 20.0;
const WAITING: f64 = 14.0;

/// What the axes show.
struct Scale {
    from: f64,
    to: f64,
    rate: f64,
    depth: f64,
    waiting: f64,
}

impl Scale {
    fn x(&self, time: Ns) -> f64 {
        let seconds = time as f64 / 1e9;
        LEFT + WIDTH * ((seconds - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    fn shows(&self, time: Ns) -> bool {
        (self.from..=self.to).contains(&(time as f64 / 1e9))
    }
}

/// All runs under each other, on the same scales.
pub fn svg(title: &str, reports: &[PolicyReport]) -> String {
    let lanes = || reports.iter().map(|report| &report.lanes);
    let from = lanes().map(|lanes| lanes.shown.0).min().unwrap_or(0) as f64 / 1e9;
    let to = (lanes().map(|lanes| lanes.shown.1).max().unwrap_or(0) as f64 / 1e9).max(from + 1e-6);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max).max(1.0);
    let columns = || lanes().flat_map(|lanes| &lanes.locks).flat_map(|lock| &lock.columns);
    let scale = Scale {
        from,
        to,
        rate: most(&mut lanes().flat_map(|lanes| lanes.rate.iter().copied())),
        depth: most(&mut lanes().flat_map(|lanes| lanes.depth.iter().map(|depth| *depth as f64))),
        waiting: most(&mut columns().map(|column| column[2])),
    };
    let panels: f64 = reports.iter().map(height_of).sum();
    let height = TOP + panels + 46.0;
    let mut out = String::new();
    let _infallible = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1250\" height=\"{height:.0}\" viewBox=\"0 0 1250 {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(&mut out, 20.0, 26.0, "font-size=\"18\" font-weight=\"bold\"", title);
    legend(&mut out);
    time_axis(&mut out, height - 40.0, &scale);
    let mut top = TOP;
    for report in reports {
        panel(&mut out, top, report, &scale);
        top += height_of(report);
    }
    out.push_str("</svg>\n");
    out
}

fn height_of(report: &PolicyReport) -> f64 {
    PANEL + LOCK * report.lanes.locks.len() as f64
}

fn text(out: &mut String, x: f64, y: f64, style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _infallible = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{words}</text>");
}

fn rect(out: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), style: &str) {
    let _infallible =
        writeln!(out, "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" {style}/>");
}

const RATE: &str = "fill=\"#3b78b5\"";
const DEPTH: &str = "fill=\"#8a8a8a\"";
const SHARED: &str = "#9fd0a5";
const ALONE: &str = "#a3333d";
const WAITER: &str = "#c9751b";
const STALL: &str = "fill=\"#f2b632\" fill-opacity=\"0.35\"";

fn legend(out: &mut String) {
    let items = [
        ("throughput", RATE.to_string()),
        ("requests under way", DEPTH.to_string()),
        ("lock held shared", format!("fill=\"{SHARED}\"")),
        ("lock held alone", format!("fill=\"{ALONE}\"")),
        ("waiting for it", format!("fill=\"{WAITER}\"")),
        ("nothing completed", STALL.to_string()),
    ];
    for (index, (words, style)) in items.iter().enumerate() {
        let x = LEFT + 137.0 * index as f64;
        rect(out, (x, 38.0), (12.0, 12.0), style);
        text(out, x + 18.0, 49.0, "fill=\"#333333\"", words);
    }
    text(out, LEFT + 830.0, 49.0, "fill=\"#333333\"", "| commit; line: share of the delete done");
}

/// A lane: its name at the left, its floor, and what it reaches to.
fn lane(out: &mut String, floor: f64, name: &str, most: &str) {
    let _infallible = writeln!(
        out,
        "<line x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\" stroke=\"#bbbbbb\"/>",
        LEFT + WIDTH
    );
    text(out, LEFT - 8.0, floor - 3.0, "text-anchor=\"end\" fill=\"#333333\"", name);
    text(out, LEFT + WIDTH + 6.0, floor - 3.0, "font-size=\"10\" fill=\"#666666\"", most);
}

fn panel(out: &mut String, top: f64, report: &PolicyReport, scale: &Scale) {
    let delete = report.delete_time.map_or(String::new(), |time| format!(", delete {} s", number(time as f64 / 1e9)));
    let head = format!("{} ({}): {} MB/s{delete}", report.policy, report.lock, number(report.rate_all / 1e6));
    text(out, 20.0, top + 16.0, "font-size=\"14\" font-weight=\"bold\"", &head);
    let lanes = &report.lanes;
    stalls(out, top, report, scale, false);
    let mut floor = top + 84.0;
    bars(out, floor, 58.0, &lanes.rate, scale.rate, (report, scale), RATE);
    lane(out, floor, "throughput", &format!("max {} MB/s", number(scale.rate / 1e6)));
    floor += 32.0;
    let depth: Vec<f64> = lanes.depth.iter().map(|depth| *depth as f64).collect();
    bars(out, floor, 24.0, &depth, scale.depth, (report, scale), DEPTH);
    lane(out, floor, "under way", &format!("max {}", scale.depth));
    for lock in &lanes.locks {
        floor += LOCK;
        holds(out, floor, lock, (report, scale));
        let name = if lock.name == "root" { "pool lock" } else { &lock.name };
        lane(out, floor, name, &format!("waiting: max {}", number(scale.waiting)));
    }
    floor += 32.0;
    progress(out, floor, report, scale);
    lane(out, floor, "delete, commits", "");
    stalls(out, top, report, scale, true);
}

/// Shades stalls behind all lanes, or says in front of them how long they were.
fn stalls(out: &mut String, top: f64, report: &PolicyReport, scale: &Scale, labels: bool) {
    let worth = |length: Ns| length as f64 / 1e9 > (scale.to - scale.from) / 200.0;
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for stall in report.stalls.iter().filter(|stall| worth(stall.length)) {
        let (begin, end) = (scale.x(stall.begin), scale.x(stall.begin + stall.length));
        if end - begin < 1.0 {
            continue;
        }
        if !labels {
            rect(out, (begin, top + 24.0), (end - begin, height_of(report) - 54.0), STALL);
            continue;
        }
        // Labels that would lie on each other are left out: the longest stall comes first.
        let (x, half) = ((begin + end) / 2.0, 70.0);
        if taken.iter().all(|(left, right)| x + half < *left || x - half > *right) && x + half < LEFT + WIDTH + 90.0 {
            let who = if stall.step.is_empty() { "" } else { ": " };
            let words = format!("{} ms, {}{who}{}", number(stall.length as f64 / 1e6), stall.holder, stall.step);
            text(out, x, top + 38.0, "text-anchor=\"middle\" font-size=\"11\" fill=\"#7a4b00\"", &words);
            taken.push((x - half, x + half));
        }
    }
}

fn bars(
    out: &mut String,
    floor: f64,
    height: f64,
    values: &[f64],
    most: f64,
    (report, scale): (&PolicyReport, &Scale),
    style: &str,
) {
    let (from, to) = report.lanes.shown;
    let at = |bar: usize| from + (to - from) * bar as Ns / BARS as Ns;
    for (index, value) in values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
        let (left, right) = (scale.x(at(index)), scale.x(at(index + 1)));
        let tall = height * *value / most;
        rect(out, (left, floor - tall), ((right - left).max(0.6) + 0.2, tall), style);
    }
}

/// Holds as bars, whose height is the share of time, and waiters as a line above.
fn holds(out: &mut String, floor: f64, lock: &LockLane, (report, scale): (&PolicyReport, &Scale)) {
    let (from, to) = report.lanes.shown;
    let at = |column: usize| from + (to - from) * column as Ns / COLUMNS as Ns;
    let mut line = String::new();
    for (index, [shared, alone, waiting]) in lock.columns.iter().enumerate() {
        let (left, right) = (scale.x(at(index)), scale.x(at(index + 1)));
        for (share, colour) in [(shared.min(1.0) + alone, SHARED), (*alone, ALONE)] {
            let tall = HELD * share.min(1.0);
            if tall > 0.1 {
                rect(out, (left, floor - tall), (right - left + 0.3, tall), &format!("fill=\"{colour}\""));
            }
        }
        if at(index) <= report.lanes.end {
            let _infallible = write!(line, "{left:.1},{:.1} ", floor - HELD - 2.0 - WAITING * waiting / scale.waiting);
        }
    }
    let _infallible = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{WAITER}\" stroke-width=\"1.2\"/>",
        line.trim_end()
    );
}

fn progress(out: &mut String, floor: f64, report: &PolicyReport, scale: &Scale) {
    let lanes = &report.lanes;
    let all = report.background.entries.max(1) as f64;
    let points: Vec<String> = lanes
        .progress
        .iter()
        .filter(|(time, _)| scale.shows(*time))
        .map(|(time, done)| format!("{:.1},{:.1}", scale.x(*time), floor - 24.0 * *done as f64 / all))
        .collect();
    if !points.is_empty() {
        let points = points.join(" ");
        let _infallible =
            writeln!(out, "<polyline points=\"{points}\" fill=\"none\" stroke=\"#5b3a8c\" stroke-width=\"2\"/>");
    }
    for time in lanes.commits.iter().filter(|time| scale.shows(**time)) {
        let x = scale.x(*time);
        let (low, high) = (floor, floor - 8.0);
        let _infallible =
            writeln!(out, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"#222222\"/>");
    }
    for (time, name) in report
        .phases
        .iter()
        .skip_while(|phase| phase.name.is_empty())
        .map(|phase| (&phase.begin, &phase.name))
        .filter(|(time, _)| scale.shows(**time))
    {
        text(out, scale.x(*time), floor + 12.0, "font-size=\"10\" fill=\"#222222\"", &format!("^ {name}"));
    }
}

fn time_axis(out: &mut String, y: f64, scale: &Scale) {
    let span = scale.to - scale.from;
    let rough = span / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(power * 10.0);
    let mut at = (scale.from / step).ceil() * step;
    while at <= scale.to + step / 1000.0 {
        let x = LEFT + WIDTH * (at - scale.from) / span;
        let _infallible = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{y:.1}\" stroke=\"#dddddd\" stroke-dasharray=\"2 4\"/>"
        );
        let label = if step >= 1.0 { format!("{at:.0} s") } else { format!("{:.0} ms", at * 1000.0) };
        text(out, x, y + 16.0, "text-anchor=\"middle\" fill=\"#333333\"", &label);
        at += step;
    }
}
