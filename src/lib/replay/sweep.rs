//! How much the order of policies and the headline figure hang on what is only assumed.

use super::calibration::{ELASTICITY_MAX, elasticity};
use super::costs::{Costs, Origin};
use super::engine::{Flavour, Ns};
use super::scenario::check::number;
use super::scenario::delete::{self, Load};
use super::scenario::{ScenarioError, Settings, columns};
use crate::thin::live::{Base, LiveError};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::fmt::Write as _;

/// Policies in the order in which their writes are expected to be, fastest first.
const ORDER: [Option<&str>; 6] =
    [None, Some("batch(256)+sleep(100ms)"), Some("batch(1)"), Some("batch(16)"), Some("batch(256)"), Some("coarse")];

/// One set of parameters.
struct Cell {
    name: String,
    costs: Costs,
    depth: u64,
    leaf_fill: u64,
    flavour: Flavour,
}

/// What came of it: ratios to the load alone, and the delete time with sleeps over that without.
struct Shown {
    rates: Vec<f64>,
    slow: f64,
}

fn cells(costs: &Costs) -> Vec<Cell> {
    let cell = |name: String, costs: &Costs| Cell {
        name,
        costs: costs.clone(),
        depth: 8,
        leaf_fill: 50,
        flavour: Flavour::default(),
    };
    let mut cells = vec![cell("as it is".into(), costs)];
    let mut vary = |name: &str, ns: Ns, what: String| {
        if let Ok(costs) = costs.clone().with(name, ns) {
            cells.push(cell(what, &costs));
        }
    };
    for price in costs.prices.iter().filter(|price| price.origin == Origin::Assumed) {
        vary(&price.name, price.ns / 2, format!("{} x 1/2", price.name));
        vary(&price.name, price.ns * 2, format!("{} x 2", price.name));
    }
    for wake in [1, 20, 50] {
        vary("wake", wake * 1000, format!("wake {wake} us"));
    }
    for depth in [1, 32, 128] {
        cells.push(Cell { depth, ..cell(format!("depth {depth}"), costs) });
    }
    for (leaf_fill, entries) in [(67, 168), (100, 252)] {
        cells.push(Cell { leaf_fill, ..cell(format!("leaf {entries}"), costs) });
    }
    for flavour in [Flavour::RwsemHandoff, Flavour::Fifo, Flavour::Barge] {
        cells.push(Cell { flavour, ..cell(format!("lock {}", flavour.name()), costs) });
    }
    cells
}

fn show(cell: &Cell, bases: &[(u64, &Base<'_>)]) -> Result<Shown, LiveError> {
    let settings =
        Settings { costs: cell.costs.clone(), flavour: cell.flavour, leaf_fill: cell.leaf_fill, ..Settings::default() };
    let Some((_, base)) = bases.iter().find(|(fill, _)| *fill == cell.leaf_fill) else {
        return Err(LiveError::Damaged);
    };
    let rows: Result<Vec<delete::Row>, LiveError> =
        ORDER.iter().map(|policy| delete::measure(base, &settings, *policy, Load::Write, cell.depth)).collect();
    let rows = rows?;
    let alone = rows.first().map_or(1.0, |row| row.rate.max(1.0));
    let slow = rows.get(1).zip(rows.last()).map_or(0.0, |(slow, coarse)| slow.delete / coarse.delete.max(1e-9));
    Ok(Shown { rates: rows.iter().map(|row| row.rate / alone).collect(), slow })
}

/// Runs all cells and gives the report. `scale` is how many times the image is smaller than the reported one.
///
/// # Errors
/// Where an image can't be made or a pool fails.
pub fn sweep(costs: &Costs, scale: u64) -> Result<String, ScenarioError> {
    let images: Result<Vec<_>, ScenarioError> =
        [50, 67, 100].into_iter().map(|fill| Ok((fill, delete::image(scale, fill, 0)?))).collect();
    let images = images?;
    let bases: Result<Vec<_>, LiveError> = images.iter().map(|(fill, image)| Ok((*fill, Base::open(image)?))).collect();
    let bases = bases?;
    let bases: Vec<(u64, &Base<'_>)> = bases.iter().map(|(fill, base)| (*fill, base)).collect();
    let cells = cells(costs);
    let shown: Result<Vec<Shown>, LiveError> = cells.par_iter().map(|cell| show(cell, &bases)).collect();
    Ok(report(costs, &cells, &shown?))
}

/// Whether each is above the next; the last two may both be nothing.
fn in_order(rates: &[f64]) -> bool {
    let last = rates.len().saturating_sub(2);
    let strict = |(at, pair): (usize, &[f64])| pair[0] > pair[1] || (at == last && pair[0] == pair[1]);
    rates.windows(2).enumerate().all(strict)
}

fn report(costs: &Costs, cells: &[Cell], shown: &[Shown]) -> String {
    let mut table = vec![
        ["cell", "sleep(100ms)", "batch 1", "batch 16", "batch 256", "coarse", "delete, sleep/coarse", "order"]
            .map(String::from)
            .to_vec(),
    ];
    for (cell, shown) in cells.iter().zip(shown) {
        let mut row = vec![cell.name.clone()];
        row.extend(shown.rates.iter().skip(1).map(|rate| number(*rate)));
        row.extend([number(shown.slow), if in_order(&shown.rates) { "holds" } else { "LOST" }.into()]);
        table.push(row);
    }
    let mut text = columns(&table);
    let stable = shown.iter().filter(|shown| in_order(&shown.rates)).count();
    let headline = |shown: &Shown| shown.rates.get(2).copied().unwrap_or(0.0);
    let values = || shown.iter().map(headline);
    let _infallible = writeln!(
        text,
        "order stable in {stable} of {} cells; batch(1)/base from {} to {}",
        shown.len(),
        number(values().fold(f64::INFINITY, f64::min)),
        number(values().fold(0.0, f64::max))
    );
    let value = |name: String| cells.iter().position(|cell| cell.name == name).map(|at| headline(&shown[at]));
    let mut heavy = Vec::new();
    for name in costs.assumed() {
        if let (Some(half), Some(double)) = (value(format!("{name} x 1/2")), value(format!("{name} x 2"))) {
            let elasticity = elasticity(half, double);
            if elasticity.abs() > ELASTICITY_MAX {
                heavy.push(format!("{name} ({elasticity:.2})"));
            }
        }
    }
    let _infallible = match heavy.as_slice() {
        [] => writeln!(text, "no assumed value has an elasticity above {ELASTICITY_MAX} on batch(1)/base"),
        _ => writeln!(text, "not calibrated: assumed and heavy on batch(1)/base: {}", heavy.join(", ")),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_assumed_value_is_varied() {
        let costs = Costs::standard();
        let cells = cells(&costs);
        assert_eq!(cells.len(), 1 + 2 * costs.assumed().len() + 3 + 3 + 2 + 3);
        assert!(
            in_order(&[3.0, 2.0, 0.0, 0.0][..3])
                && in_order(&[3.0, 0.0, 0.0])
                && !in_order(&[3.0, 0.0, 0.0, 0.0])
                && !in_order(&[1.0, 2.0])
                && !in_order(&[1.0, 1.0, 0.5])
        );
        let flat = |rates: [f64; 6]| Shown { rates: rates.to_vec(), slow: 1.0 };
        let shown: Vec<Shown> = cells
            .iter()
            .map(|cell| flat([1.0, 0.7, if cell.name == "alloc x 2" { 0.1 } else { 0.3 }, 0.02, 0.001, 0.0]))
            .collect();
        let text = report(&costs, &cells, &shown);
        assert!(text.contains("not calibrated") && text.contains("alloc (-0.79)"), "{text}");
    }
}
