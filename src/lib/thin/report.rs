//! The outcome of a check, as text and as JSON. docs/thin_check.json.md describes the latter.

use crate::base::{Area, Code, Cure, Finding, Findings, KeyRange, Severity, ThinId};
use crate::format::superblock::ThinSuperblock;
use crate::pdata::space_map::SpaceMapTotals;
use serde_json::{Value, json};
use std::fmt::Write;

/// Findings of one code that the text shows; the others are only counted.
const SHOWN_PER_CODE: usize = 10;

/// What was found of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Its id.
    pub id: ThinId,
    /// Whether it is the device as the metadata snapshot has it.
    pub snapshot: bool,
    /// Mappings that its details promise.
    pub expected: Option<u64>,
    /// Mappings that can be read; `None` where they were not looked at.
    pub found: Option<u64>,
    /// Whether its tree could be read whole.
    pub whole: bool,
    /// Virtual blocks whose mappings cannot be read.
    pub lost_ranges: Vec<KeyRange>,
    /// Whether there are more ranges than are listed.
    pub more_ranges: bool,
}

impl DeviceReport {
    /// Mappings that are missing, where both numbers are known.
    pub fn lost(&self) -> Option<u64> {
        Some(self.expected?.saturating_sub(self.found?))
    }

    /// Whether something of the device is missing or contradicts itself.
    pub fn is_damaged(&self) -> bool {
        !self.whole || self.expected.is_none() || self.found.is_some_and(|found| Some(found) != self.expected)
    }
}

/// One word on the state of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    Clean,
    /// No mapping is lost; leaks, stale hints or a flag should be tidied.
    Tidy,
    /// Some mappings are lost or in doubt, others can be read.
    Loss,
    /// Nothing can be used as it is.
    Broken,
}

impl Verdict {
    /// The name in text and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Clean => "clean",
            Verdict::Tidy => "tidy-able",
            Verdict::Loss => "usable with loss",
            Verdict::Broken => "broken",
        }
    }
}

/// The outcome of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pool's transaction id, time, flags, block size and number of data blocks, where there is a superblock.
    pub superblock: Option<ThinSuperblock>,
    /// What was found wrong.
    pub findings: Findings,
    /// Every device, by id; those of a metadata snapshot behind.
    pub devices: Vec<DeviceReport>,
    /// The data space map, where it was compared.
    pub data: Option<SpaceMapTotals>,
    /// The metadata space map, where it was compared.
    pub metadata: Option<SpaceMapTotals>,
    /// Whether the upper mapping tree could be read whole.
    pub top_level_whole: bool,
    /// Whether roots were given instead of those in the superblock.
    pub overridden: bool,
}

impl Report {
    /// A report on metadata whose superblock was read.
    pub fn new(superblock: &ThinSuperblock) -> Self {
        Report {
            superblock: Some(superblock.clone()),
            findings: Findings::new(),
            devices: Vec::new(),
            data: None,
            metadata: None,
            top_level_whole: true,
            overridden: false,
        }
    }

    /// A report on something without a usable superblock.
    pub fn without_superblock(findings: Findings) -> Self {
        Report {
            superblock: None,
            findings,
            devices: Vec::new(),
            data: None,
            metadata: None,
            top_level_whole: false,
            overridden: false,
        }
    }

    /// Takes the findings in.
    pub fn finish(&mut self, findings: Findings) {
        self.findings = findings;
    }

    /// The class of the whole.
    pub fn verdict(&self) -> Verdict {
        match self.findings.worst() {
            None => Verdict::Clean,
            Some(Severity::Note) if self.findings.counts().keys().all(|code| *code == Code::DeviceLarger) => {
                Verdict::Clean
            }
            Some(Severity::Note | Severity::NonFatal) => Verdict::Tidy,
            Some(Severity::Fatal) => {
                // Wrong counts cost no mapping, but writing to such a pool would.
                let fatal = self.findings.counts().keys().map(|code| code.problem());
                let fatal = fatal.filter(|problem| problem.severity == Severity::Fatal);
                let mut cures = fatal.map(|problem| problem.cure);
                let usable = cures.any(|cure| matches!(cure, Cure::Repair | Cure::ReleaseSnapshot))
                    && self.superblock.is_some()
                    && self.findings.count(Code::SuperblockVersion) == 0
                    && self.findings.count(Code::SuperblockFeatures) == 0
                    && self.findings.count(Code::DeviceTooShort) == 0
                    && self.something_can_be_read();
                if usable { Verdict::Loss } else { Verdict::Broken }
            }
        }
    }

    /// Whether any device can be read, or it is known that there is none.
    fn something_can_be_read(&self) -> bool {
        let can_be_read = |device: &DeviceReport| device.whole || device.found.is_some_and(|found| found > 0);
        if self.devices.is_empty() { self.top_level_whole } else { self.devices.iter().any(can_be_read) }
    }

    /// What cures everything of this kind: what is broken in space maps alone can be counted anew.
    pub fn cure(&self, code: Code) -> Cure {
        let cure = code.problem().cure;
        let in_maps = |finding: &&Finding| matches!(finding.place.area, Area::DataSpaceMap | Area::MetadataSpaceMap);
        let found = self.findings.iter().filter(|finding| finding.code == code).filter(in_maps).count() as u64;
        if cure == Cure::Repair && found == self.findings.count(code) { Cure::RepairSpaceMaps } else { cure }
    }

    /// The command that helps, in words that fit behind the verdict.
    pub fn advice(&self) -> &'static str {
        let fatal = self.findings.counts().keys().filter(|code| code.problem().severity == Severity::Fatal);
        let cures: Vec<Cure> = fatal.map(|code| self.cure(*code)).collect();
        let any = |cure| self.findings.counts().keys().any(|code| code.problem().cure == cure);
        if cures.contains(&Cure::Repair) {
            "thin_repair writes what can be read to another device"
        } else if cures.contains(&Cure::Device) {
            "put the device or file right first, then check again"
        } else if cures.contains(&Cure::RepairSpaceMaps) {
            "no mapping is lost: thin_check --repair-space-maps counts anew"
        } else if cures.contains(&Cure::ReleaseSnapshot) {
            "the pool itself is not touched: release the metadata snapshot"
        } else if !cures.is_empty() {
            "this is not metadata that can be used here"
        } else if any(Cure::Repair) {
            "nothing is lost; thin_dump and thin_restore write it anew"
        } else if any(Cure::RepairSpaceMaps) {
            "nothing is lost: thin_check --repair-space-maps counts anew"
        } else if any(Cure::AutoRepair) {
            "nothing is lost: thin_check --auto-repair puts it right"
        } else if any(Cure::ClearFlag) {
            "thin_check --clear-needs-check-flag clears the flag"
        } else if self.findings.count(Code::DeviceTransaction) > 0 {
            "nothing is lost; transaction ids are for the volume manager to put right"
        } else {
            "nothing to do"
        }
    }

    /// The report as lines for a person: findings, damaged devices, the verdict.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (code, count) in self.findings.counts() {
            let shown = self.findings.iter().filter(|finding| finding.code == *code).take(SHOWN_PER_CODE);
            let mut lines = 0;
            for finding in shown {
                let _ = writeln!(text, "{}: {finding}", code.problem().severity.word());
                lines += 1;
            }
            if *count > lines {
                let name = code.problem().name;
                let _ = writeln!(text, "{}: {} more like this [{name}]", code.problem().severity.word(), count - lines);
            }
        }
        self.leaks(&mut text);
        for device in self.devices.iter().filter(|device| device.is_damaged()) {
            let _ = writeln!(text, "{}", device_line(device));
        }
        let _ = writeln!(text, "verdict: {}: {}", self.verdict().word(), self.advice());
        text
    }

    fn leaks(&self, text: &mut String) {
        for (name, totals) in [("data", &self.data), ("metadata", &self.metadata)] {
            if let Some(totals) = totals {
                if totals.leaked > 0 {
                    let _ = writeln!(text, "{} {name} blocks have leaked", totals.leaked);
                }
                if totals.counted_low > 0 {
                    let _ = writeln!(text, "{} {name} blocks are used more often than counted", totals.counted_low);
                }
            }
        }
    }

    /// The report as one JSON object.
    pub fn json(&self) -> Value {
        let superblock = self.superblock.as_ref().map(|superblock| {
            json!({
                "transaction_id": superblock.transaction_id.get(),
                "time": superblock.time.get(),
                "version": superblock.version.get(),
                "needs_check": superblock.needs_check(),
                "metadata_snapshot": superblock.held_root().map(|block| block.0),
                "data_block_size_sectors": superblock.data_block_size.get(),
                "nr_data_blocks": superblock.data_space_map.nr_blocks.get(),
                "data_blocks_allocated": superblock.data_space_map.nr_allocated.get(),
                "nr_metadata_blocks": superblock.metadata_space_map.nr_blocks.get(),
                "metadata_blocks_allocated": superblock.metadata_space_map.nr_allocated.get(),
            })
        });
        let counts: serde_json::Map<String, Value> =
            self.findings.counts().iter().map(|(code, count)| (code.problem().name.into(), json!(count))).collect();
        json!({
            "schema": 1,
            "verdict": self.verdict().word(),
            "advice": self.advice(),
            "superblock": superblock,
            "finding_counts": counts,
            "findings": self.findings.iter().map(finding_json).collect::<Vec<_>>(),
            "devices": self.devices.iter().map(device_json).collect::<Vec<_>>(),
            "data_space_map": self.data.as_ref().map(totals_json),
            "metadata_space_map": self.metadata.as_ref().map(totals_json),
        })
    }
}

fn ranges_text(device: &DeviceReport) -> String {
    let mut ranges: Vec<String> = device.lost_ranges.iter().map(KeyRange::to_string).collect();
    if device.more_ranges {
        ranges.push("and more".into());
    }
    ranges.join(", ")
}

fn device_line(device: &DeviceReport) -> String {
    let mut line = format!("device {}", device.id);
    if device.snapshot {
        line.push_str(" of the metadata snapshot");
    }
    let _ = match (device.found, device.expected) {
        (Some(found), Some(expected)) if found > expected => {
            write!(line, ": {found} mappings found, {expected} expected")
        }
        (Some(found), Some(expected)) => {
            write!(line, ": {found} of {expected} mappings found, {} lost", expected - found)
        }
        (Some(found), None) => write!(line, ": {found} mappings found, no details"),
        (None, Some(expected)) => write!(line, ": {expected} mappings expected, no mapping tree"),
        (None, None) => write!(line, ": nothing is known"),
    };
    if !device.lost_ranges.is_empty() {
        let _ = write!(line, ", virtual blocks {}", ranges_text(device));
    }
    line
}

fn range_json(range: &KeyRange) -> Value {
    json!({ "begin": range.begin, "end": range.end })
}

fn finding_json(finding: &Finding) -> Value {
    let problem = finding.code.problem();
    let place = &finding.place;
    json!({
        "code": problem.name,
        "severity": problem.severity.word(),
        "wording": problem.wording,
        "detail": finding.detail,
        "cure": problem.cure.word(),
        "area": Area::word(place.area),
        "block": place.block.map(|block| block.0),
        "device": place.device.map(|device| device.0),
        "level": place.level,
        "keys": place.keys.as_ref().map(range_json),
    })
}

fn device_json(device: &DeviceReport) -> Value {
    json!({
        "id": device.id.0,
        "metadata_snapshot": device.snapshot,
        "damaged": device.is_damaged(),
        "mappings_expected": device.expected,
        "mappings_found": device.found,
        "mappings_lost": device.lost(),
        "lost_ranges": device.lost_ranges.iter().map(range_json).collect::<Vec<_>>(),
        "more_lost_ranges": device.more_ranges,
    })
}

fn totals_json(totals: &SpaceMapTotals) -> Value {
    json!({
        "nr_blocks": totals.nr_blocks,
        "allocated": totals.allocated,
        "free": totals.nr_blocks.saturating_sub(totals.allocated),
        "leaked": totals.leaked,
        "counted_low": totals.counted_low,
        "complete": totals.complete,
    })
}
