//! What is counted, and the table of it.

use super::process::{End, Ran};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The runs of one form of one tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub runs: u64,
    pub successes: u64,
    pub failures: u64,
    pub crashes: u64,
    pub hangs: u64,
    pub memory: u64,
    /// It said that all was well, and it was not; or the other way round.
    pub wrong: u64,
    /// It changed what it may not change, or left something that is not sound and said nothing.
    pub spoiled: u64,
}

/// What repairs brought back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    pub images: u64,
    pub refused: u64,
    pub devices: u64,
    pub devices_lost: u64,
    pub mappings: u64,
    pub mappings_lost: u64,
    /// Mappings that the pool did not have before it was damaged.
    pub mappings_foreign: u64,
}

/// All that is counted for one set of tools.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub forms: BTreeMap<&'static str, Counts>,
    pub losses: BTreeMap<&'static str, Loss>,
    /// What went wrong, in words.
    pub faults: Vec<String>,
    /// Where our repair gave nothing, and why.
    pub refusals: Vec<String>,
}

impl Tally {
    /// Counts a run; what went wrong is put down with `context`.
    pub fn count(&mut self, form: &'static str, ran: &Ran, context: &str) {
        let counts = self.forms.entry(form).or_default();
        counts.runs += 1;
        match ran.end {
            End::Success => counts.successes += 1,
            End::Failure => counts.failures += 1,
            End::Crash => counts.crashes += 1,
            End::Hang => counts.hangs += 1,
            End::Memory => counts.memory += 1,
        }
        if !matches!(ran.end, End::Success | End::Failure) {
            let last = ran.stderr.lines().last().unwrap_or("");
            self.faults.push(format!("{context}: {form}: {:?}: {last}", ran.end));
        }
    }

    pub fn wrong(&mut self, form: &'static str, context: &str, what: &str) {
        self.forms.entry(form).or_default().wrong += 1;
        self.faults.push(format!("{context}: {form}: {what}"));
    }

    pub fn spoiled(&mut self, form: &'static str, context: &str, what: &str) {
        self.forms.entry(form).or_default().spoiled += 1;
        self.faults.push(format!("{context}: {form}: {what}"));
    }

    pub fn add(&mut self, other: Tally) {
        for (form, more) in other.forms {
            let own = self.forms.entry(form).or_default();
            own.runs += more.runs;
            own.successes += more.successes;
            own.failures += more.failures;
            own.crashes += more.crashes;
            own.hangs += more.hangs;
            own.memory += more.memory;
            own.wrong += more.wrong;
            own.spoiled += more.spoiled;
        }
        for (form, more) in other.losses {
            let own = self.losses.entry(form).or_default();
            own.images += more.images;
            own.refused += more.refused;
            own.devices += more.devices;
            own.devices_lost += more.devices_lost;
            own.mappings += more.mappings;
            own.mappings_lost += more.mappings_lost;
            own.mappings_foreign += more.mappings_foreign;
        }
        self.faults.extend(other.faults);
        self.refusals.extend(other.refusals);
    }

    /// The tables as they stand in docs/damage.md.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "| form | runs | status 0 | status 1 | crashes | time-outs | out of memory | wrong verdicts | spoiled |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for (form, c) in &self.forms {
            let _ = writeln!(
                text,
                "| {form} | {} | {} | {} | {} | {} | {} | {} | {} |",
                c.runs, c.successes, c.failures, c.crashes, c.hangs, c.memory, c.wrong, c.spoiled
            );
        }
        text.push_str(
            "\n| what brings back | images | gave nothing | devices | lost | mappings | lost | never there |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for (form, l) in &self.losses {
            let _ = writeln!(
                text,
                "| {form} | {} | {} | {} | {} | {} | {} | {} |",
                l.images, l.refused, l.devices, l.devices_lost, l.mappings, l.mappings_lost, l.mappings_foreign
            );
        }
        text
    }
}
