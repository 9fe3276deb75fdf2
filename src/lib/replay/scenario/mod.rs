//! The published figures as scenarios: each runs a model, prints what came out beside what was reported, and says
//! which checks hold. Excluded rows are shown and never judged.

pub mod barrier;
pub mod cache;
pub mod check;
pub mod delete;
pub mod groups;
pub mod stripe;
#[cfg(test)]
mod tests;

pub use check::{Check, Kind};

use super::costs::Costs;
use super::engine::Flavour;
use super::save::SaveError;
use crate::thin::generate::GenerateError;
use crate::thin::live::LiveError;
use serde::Serialize;
use std::fmt::Write as _;

/// What a scenario may be asked to do differently.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The image is this many times smaller than the reported one.
    pub scale: u64,
    /// How full leaves are, in percent.
    pub leaf_fill: u64,
    /// The flavour of the locks.
    pub flavour: Flavour,
    /// What steps cost.
    pub costs: Costs,
    /// The price of a turn of the resync in requests.
    pub kappa: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { scale: 16, leaf_fill: 50, flavour: Flavour::default(), costs: Costs::standard(), kappa: 28.0 }
    }
}

/// Why a scenario could not run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The image could not be made.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The pool failed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A pool that was filled could not be written.
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// What came of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name.
    pub name: &'static str,
    /// Lines of a table: what the columns are, then rows.
    pub table: Vec<Vec<String>>,
    /// What has to be known to read the table.
    pub notes: Vec<String>,
    /// The checks.
    pub checks: Vec<Check>,
}

/// A scenario.
type Run = fn(&Settings) -> Result<Report, ScenarioError>;

/// Names of all scenarios.
pub const ALL: [(&str, Run); 5] = [
    ("delete", delete::run),
    ("cache", cache::run),
    ("barrier", barrier::run),
    ("groups", groups::run),
    ("stripe", stripe::run),
];

impl Report {
    /// Whether no judged check has failed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.pass != Some(false))
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = format!("scenario {}\n\n{}", self.name, columns(&self.table));
        for note in &self.notes {
            let _infallible = writeln!(text, "{note}");
        }
        let head = ["id", "check", "reported", "got", "band", "kind", "verdict"].map(String::from).to_vec();
        let rows = self.checks.iter().map(Check::row);
        text.push('\n');
        text.push_str(&columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
        let judged = self.checks.iter().filter(|check| check.pass.is_some());
        let held = judged.clone().filter(|check| check.pass == Some(true)).count();
        let excluded = self.checks.len() - judged.clone().count();
        let _infallible = writeln!(text, "{held} of {} checks hold, {excluded} are not judged\n", judged.count());
        text
    }
}

/// Rows as columns: the first to the left, the others to the right if they are numbers.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let is_number =
        |cell: &str| cell.bytes().next().is_none_or(|first| first.is_ascii_digit() || b"-.".contains(&first));
    let numeric: Vec<bool> = (0..count)
        .map(|column| column > 0 && rows.iter().skip(1).all(|row| row.get(column).is_none_or(|cell| is_number(cell))))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            let (left, right) = if numeric[column] { (pad.as_str(), "") } else { ("", pad.as_str()) };
            let _infallible = write!(line, "{left}{cell}{right}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
