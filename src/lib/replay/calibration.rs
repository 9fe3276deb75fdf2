//! Whether a run may be called calibrated: not while its result hangs on a price that is only assumed.

use super::costs::Costs;
use super::engine::Ns;
use super::pool::{self, Outcome, RunOptions};
use super::trace::Trace;
use crate::thin::live::{Base, LiveError};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde::Serialize;

/// An assumed value that moves the headline figure by more than this is in the way of calling a run calibrated: the
/// figure's relative change over the value's.
pub const ELASTICITY_MAX: f64 = 0.2;

/// An assumed price, and what hangs on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Weight {
    /// Its name in the profile.
    pub name: String,
    /// The headline figure's relative change over its own.
    pub elasticity: f64,
}

/// What is known of the prices that are only assumed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Whether no assumed price matters.
    pub calibrated: bool,
    /// Names of prices that are only assumed.
    pub assumed: Vec<String>,
    /// How much hangs on each, heaviest first; none where that was not tried.
    pub weights: Option<Vec<Weight>>,
}

/// The figure that a run is judged by: what the foreground moved beside the deletes, else how long they took, else what
/// it moved.
pub fn headline(outcome: &Outcome<'_>) -> f64 {
    let rate = outcome.rate();
    match outcome.delete_time() {
        Some(time) if outcome.measured.window_bytes == 0 => time as f64,
        _ => rate,
    }
}

/// The elasticity between a figure at half of a price and at twice of it. Without any change it is 0; where one of the
/// two figures is nothing, everything hangs on the price.
pub fn elasticity(half: f64, double: f64) -> f64 {
    match (half > 0.0, double > 0.0) {
        (true, true) => (double / half).ln() / 4f64.ln(),
        (false, false) => 0.0,
        _ => f64::from(f32::MAX),
    }
}

/// What to try: each assumed price that is not nothing, at a half and at twice.
pub fn trials(costs: &Costs) -> Vec<(String, Costs, Costs)> {
    let with = |name: &str, ns: Ns| costs.clone().with(name, ns).ok();
    let prices = costs.prices.iter().filter(|price| costs.assumed().contains(&price.name.as_str()) && price.ns > 1);
    prices
        .filter_map(|price| {
            Some((price.name.clone(), with(&price.name, price.ns / 2)?, with(&price.name, price.ns * 2)?))
        })
        .collect()
}

/// Runs a trace again and again to see what hangs on each assumed price.
///
/// # Errors
/// Where a run fails.
pub fn weigh(base: &Base<'_>, trace: &Trace, options: &RunOptions) -> Result<Vec<Weight>, LiveError> {
    let figure = |costs: Costs| {
        let options = RunOptions { costs, log_touches: false, timeline: false, ..options.clone() };
        pool::run(base, trace.starts(), &options).map(|outcome| headline(&outcome))
    };
    let weigh = |(name, half, double): (String, Costs, Costs)| {
        Ok(Weight { name, elasticity: elasticity(figure(half)?, figure(double)?) })
    };
    trials(&options.costs).into_par_iter().map(weigh).collect()
}

impl Calibration {
    /// From what was tried; without trials only a profile without assumed prices is calibrated.
    pub fn new(costs: &Costs, weights: Option<Vec<Weight>>) -> Calibration {
        let assumed: Vec<String> = costs.assumed().into_iter().map(String::from).collect();
        let weights = weights.map(|mut weights| {
            weights.sort_by(|left, right| right.elasticity.abs().total_cmp(&left.elasticity.abs()));
            weights
        });
        let light = |weight: &Weight| weight.elasticity.abs() <= ELASTICITY_MAX;
        let calibrated = assumed.is_empty() || weights.as_ref().is_some_and(|weights| weights.iter().all(light));
        Calibration { calibrated, assumed, weights }
    }

    /// The label of a run, for people.
    pub fn text(&self) -> String {
        let heavy = |weights: &[Weight]| {
            let heavy = weights.iter().filter(|weight| weight.elasticity.abs() > ELASTICITY_MAX);
            heavy.map(|weight| format!("{} ({:.2})", weight.name, weight.elasticity)).collect::<Vec<_>>().join(", ")
        };
        match (&self.weights, self.calibrated) {
            (_, true) if self.assumed.is_empty() => "calibrated: no price is only assumed\n".into(),
            (_, true) => format!("calibrated: no assumed price has an elasticity above {ELASTICITY_MAX}\n"),
            (Some(weights), false) => {
                format!("uncalibrated: assumed, and the result hangs on it: {}\n", heavy(weights))
            }
            (None, false) => format!("uncalibrated: assumed are {}\n", self.assumed.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_calibrated_only_if_nothing_assumed_matters() {
        let costs = Costs::standard();
        let weights = |elasticity| {
            Some(vec![Weight { name: "wake".into(), elasticity: 0.01 }, Weight { name: "insert".into(), elasticity }])
        };
        assert!(Calibration::new(&costs, None).text().starts_with("uncalibrated: assumed are free_node"));
        assert!(Calibration::new(&costs, weights(-0.19)).calibrated);
        let heavy = Calibration::new(&costs, weights(-0.21));
        assert!(!heavy.calibrated && heavy.text().ends_with(": insert (-0.21)\n"), "{}", heavy.text());
        assert!((elasticity(1.0, 4.0) - 1.0).abs() < 1e-9 && (elasticity(2.0, 1.0) + 0.5).abs() < 1e-9);
        assert_eq!((elasticity(0.0, 0.0), elasticity(0.0, 1.0) > ELASTICITY_MAX), (0.0, true));
        let trials = trials(&costs);
        assert!(trials.iter().all(|(name, half, double)| {
            let of = |costs: &Costs| costs.prices.iter().find(|price| price.name == *name).unwrap().ns;
            of(double).abs_diff(4 * of(half)) <= 2
        }));
        assert_eq!(trials.len(), costs.assumed().len());
    }
}
