//! `thin_replay predict METADATA` and `thin_replay sweep`.

use super::super::context::Context;
use super::super::exit::Outcome;
use super::super::id_list::IdList;
use super::{get_costs, get_flavour, get_policies, put};
use crate::base::ThinId;
use crate::block::BlockSource;
use crate::pack;
use crate::replay::offline;
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
    let json = matches.get_flag("json");
    let text = if json {
        let mut value = serde_json::to_value(&prediction)?;
        value["version"] = 1.into();
        if matches.get_flag("measure") {
            value["offline"] = serde_json::to_value(offline::measure(opened.source.as_ref(), &devices)?)?;
        }
        format!("{value:#}\n")
    } else {
        prediction.text()
    };
    put(&text, &[metadata], matches, context)?;
    // Beside the output, which is the same on every machine.
    if !json && !context.is_quiet() {
        tell_offline(opened.source.as_ref(), &devices, context);
    }
    Ok(Outcome::Success)
}

fn tell_offline(source: &dyn BlockSource, devices: &[ThinId], context: &Context) {
    match offline::measure(source, devices) {
        Ok(offline) => context.note(format!(
            "thin_delete would take {:.3} s here (check {:.3}, reading and work {:.3}, handing over {} blocks {:.3}; {} threads), \
             and what the device takes to write and flush twice{}",
            offline.total(),
            offline.check,
            offline.plan,
            offline.blocks,
            offline.commit,
            offline.threads,
            if offline.changes > 1 { "; for the first of several changes, as there is little room" } else { "" }
        )),
        Err(error) => context.note(format!("thin_delete would not do it: {error}")),
    }
}

/// How much hangs on what is assumed?
pub(super) fn sweep(matches: &ArgMatches, context: &Context) -> anyhow::Result<Outcome> {
    let scale = matches.get_one::<u64>("scale").copied().unwrap_or(64);
    put(&sweep::sweep(&get_costs(matches)?, scale)?, &[], matches, context)
}
