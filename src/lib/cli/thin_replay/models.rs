//! `thin_replay predict METADATA` and `thin_replay sweep`.

use super::super::context::Context;
use super::super::exit::Outcome;
use super::super::id_list::IdList;
use super::{get_costs, get_flavour, get_policies};
use crate::base::ThinId;
use crate::pack;
use crate::replay::predict::{self, POLICIES};
use crate::replay::sweep;
use crate::thin::live::Base;
use anyhow::{Context as _, bail};
use clap::ArgMatches;
use std::path::Path;

/// What would these deletes do?
pub(super) fn predict(metadata: &Path, matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let Some(lists) = matches.get_many::<IdList>("delete") else { bail!("which devices? --delete 1,5,10-20") };
    let items = IdList::union(lists).into_items();
    let opened = pack::open::open(metadata, &pack::OpenOptions::default())?;
    let base = Base::open(opened.source.as_ref()).with_context(|| format!("'{}'", metadata.display()))?;
    let wanted = |id: &ThinId| items.iter().any(|range| range.contains(&id.0));
    let devices: Vec<ThinId> = base.devices().map(|(id, _)| id).filter(wanted).collect();
    let single = items.iter().filter(|range| range.start() == range.end()).map(|range| ThinId(*range.start()));
    if let Some(missing) = single.into_iter().find(|id| !devices.contains(id)) {
        bail!("there is no device {missing} in '{}'", metadata.display());
    }
    if devices.is_empty() {
        bail!("there is no such device in '{}'", metadata.display());
    }
    let policies = get_policies(matches, &POLICIES);
    let prediction = predict::predict(&base, &devices, &policies, get_flavour(matches), &get_costs(matches)?)?;
    if matches.get_flag("json") {
        context.print(format!("{:#}\n", serde_json::to_value(&prediction)?))?;
    } else {
        context.print(prediction.text())?;
    }
    Ok(Outcome::Success)
}

/// How much hangs on what is assumed?
pub(super) fn sweep(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let scale = matches.get_one::<u64>("scale").copied().unwrap_or(64).clamp(1, 1024);
    context.print(sweep::sweep(&get_costs(matches)?, scale)?)?;
    Ok(Outcome::Success)
}
