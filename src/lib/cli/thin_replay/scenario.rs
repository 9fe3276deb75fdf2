//! `thin_replay scenario NAME`.

use super::super::context::Context;
use super::super::exit::Outcome;
use crate::replay::scenario::{ALL, Report, Settings};
use anyhow::bail;
use clap::ArgMatches;

/// Runs one scenario, or all.
///
/// # Errors
/// Where there is no such scenario, or it can't run.
pub(super) fn run(name: &str, matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let number = |name: &str| matches.get_one::<u64>(name).copied();
    let defaults = Settings::default();
    let settings = Settings {
        scale: number("scale").unwrap_or(defaults.scale),
        leaf_fill: number("leaf-fill").unwrap_or(defaults.leaf_fill),
        kappa: matches.get_one::<f64>("kappa").copied().unwrap_or(defaults.kappa),
        flavour: super::get_flavour(matches),
        costs: super::get_costs(matches)?,
    };
    let wanted: Vec<_> = ALL.into_iter().filter(|(own, _)| name == "all" || *own == name).collect();
    if wanted.is_empty() {
        bail!("there is no scenario '{name}': delete, cache, barrier, groups, stripe or all");
    }
    let reports: Result<Vec<Report>, _> = wanted.into_iter().map(|(_, run)| run(&settings)).collect();
    let reports = reports?;
    let text = if matches.get_flag("json") {
        format!("{:#}\n", serde_json::json!({ "version": 1, "scenarios": reports }))
    } else {
        reports.iter().map(Report::text).collect()
    };
    super::put(&text, &[], matches, context)?;
    let passed = reports.iter().all(Report::passed);
    Ok(if passed { Outcome::Success } else { Outcome::Failure })
}
