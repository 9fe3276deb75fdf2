//! A timeline as SVG: lanes of each policy under each other, all on the same scales. No script, no fonts of its own.

use super::PolicyReport;
use crate::replay::engine::{Hold, Mode, Ns};
use crate::replay::pool::Outcome;
use crate::replay::pool::measured::SERIES;
use crate::replay::scenario::check::number;
use std::fmt::Write as _;

/// Columns in which holds are gathered: less than one would not be seen.
const COLUMNS: usize = 1000;
const LEFT: f64 = 150.0;
const WIDTH: f64 = 1000.0;
const PANEL: f64 = 218.0;
const TOP: f64 = 64.0;

/// What the picture needs of a run, gathered to columns.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    end: Ns,
    /// By column: the share of time that the lock was held, shared and alone.
    held: Vec<[f64; 2]>,
    /// The most requests under way, by 100 ms.
    depth: Vec<u64>,
    progress: Vec<(Ns, u64)>,
    commits: Vec<Ns>,
}

impl Lanes {
    pub(super) fn of(outcome: &Outcome<'_>) -> Lanes {
        let log = outcome.lock("root").and_then(|stats| stats.log.as_deref()).unwrap_or_default();
        Lanes {
            end: outcome.end,
            held: gather(log, outcome.end),
            depth: outcome.measured.depth.clone(),
            progress: outcome.background.progress.iter().map(|at| (at.time, at.entries)).collect(),
            commits: outcome.measured.commit_times.clone(),
        }
    }
}

fn gather(log: &[Hold], end: Ns) -> Vec<[f64; 2]> {
    let mut columns = vec![[0.0; 2]; COLUMNS];
    let width = end.max(1) as f64 / COLUMNS as f64;
    for hold in log {
        let kind = usize::from(hold.mode == Mode::Exclusive);
        let (begin, end) = (hold.begin as f64 / width, hold.end as f64 / width);
        for (at, column) in columns.iter_mut().enumerate().take(end.ceil() as usize).skip(begin as usize) {
            column[kind] += (end.min(at as f64 + 1.0) - begin.max(at as f64)).max(0.0);
        }
    }
    columns
}

/// What the axes show.
struct Scale {
    from: f64,
    to: f64,
    rate: f64,
    depth: f64,
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

/// All runs under each other. `zoom` is the time to show, in seconds.
pub fn svg(title: &str, reports: &[PolicyReport], zoom: Option<(f64, f64)>) -> String {
    let end = reports.iter().map(|report| report.lanes.end).max().unwrap_or(0) as f64 / 1e9;
    let (from, to) = zoom.filter(|(from, to)| from < to).unwrap_or((0.0, end.max(0.001)));
    let most = |values: &mut dyn Iterator<Item = u64>| values.max().unwrap_or(0).max(1) as f64;
    let scale = Scale {
        from,
        to,
        rate: most(&mut reports.iter().flat_map(|report| report.series.iter().copied())),
        depth: most(&mut reports.iter().flat_map(|report| report.lanes.depth.iter().copied())),
    };
    let height = TOP + PANEL * reports.len() as f64 + 46.0;
    let mut out = String::new();
    let _infallible = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1250\" height=\"{height:.0}\" viewBox=\"0 0 1250 {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(&mut out, 20.0, 26.0, "font-size=\"18\" font-weight=\"bold\"", title);
    legend(&mut out);
    for (index, report) in reports.iter().enumerate() {
        panel(&mut out, TOP + PANEL * index as f64, report, &scale);
    }
    time_axis(&mut out, height - 40.0, &scale);
    out.push_str("</svg>\n");
    out
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
const STALL: &str = "fill=\"#f2b632\" fill-opacity=\"0.35\"";

fn legend(out: &mut String) {
    let items = [
        ("throughput", RATE.to_string()),
        ("requests under way", DEPTH.to_string()),
        ("lock held shared", format!("fill=\"{SHARED}\"")),
        ("lock held alone", format!("fill=\"{ALONE}\"")),
        ("nothing completed", STALL.to_string()),
    ];
    for (index, (words, style)) in items.iter().enumerate() {
        let x = LEFT + 160.0 * index as f64;
        rect(out, (x, 38.0), (12.0, 12.0), style);
        text(out, x + 18.0, 49.0, "fill=\"#333333\"", words);
    }
    text(out, LEFT + 800.0, 49.0, "fill=\"#333333\"", "| commit; line: share of the delete that is done");
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
    let floors = [top + 84.0, top + 116.0, top + 148.0, top + 180.0];
    stalls(out, top, report, scale, false);
    bars(out, floors[0], 58.0, &report.series, scale.rate, scale, RATE);
    let rate = scale.rate / 1e6 / (SERIES as f64 / 1e9);
    lane(out, floors[0], "throughput", &format!("max {} MB/s", number(rate)));
    bars(out, floors[1], 24.0, &lanes.depth, scale.depth, scale, DEPTH);
    lane(out, floors[1], "under way", &format!("max {}", scale.depth));
    holds(out, floors[2], lanes, scale);
    lane(out, floors[2], "pool lock", "share of time");
    progress(out, floors[3], report, scale);
    lane(out, floors[3], "delete, commits", "");
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
            rect(out, (begin, top + 24.0), (end - begin, 156.0), STALL);
            continue;
        }
        // Labels that would lie on each other are left out: the longest stall comes first.
        let (x, half) = ((begin + end) / 2.0, 70.0);
        if taken.iter().all(|(left, right)| x + half < *left || x - half > *right) && x + half < LEFT + WIDTH + 90.0 {
            let words = format!("{} ms: {}", number(stall.length as f64 / 1e6), stall.holder);
            text(out, x, top + 38.0, "text-anchor=\"middle\" font-size=\"11\" fill=\"#7a4b00\"", &words);
            taken.push((x - half, x + half));
        }
    }
}

/// Bars of 100 ms.
fn bars(out: &mut String, floor: f64, height: f64, values: &[u64], most: f64, scale: &Scale, style: &str) {
    for (index, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
        let begin = index as Ns * SERIES;
        let (left, right) = (scale.x(begin), scale.x(begin + SERIES));
        if right > left {
            let tall = height * *value as f64 / most;
            rect(out, (left, floor - tall), ((right - left).max(0.6), tall), style);
        }
    }
}

fn holds(out: &mut String, floor: f64, lanes: &Lanes, scale: &Scale) {
    let width = lanes.end / COLUMNS as Ns;
    for (index, [shared, alone]) in lanes.held.iter().enumerate() {
        let begin = index as Ns * width;
        let (left, right) = (scale.x(begin), scale.x(begin + width));
        for (share, colour) in [(shared + alone, SHARED), (*alone, ALONE)] {
            let tall = 24.0 * share.min(1.0);
            if tall > 0.1 && right > left {
                rect(out, (left, floor - tall), (right - left + 0.3, tall), &format!("fill=\"{colour}\""));
            }
        }
    }
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
