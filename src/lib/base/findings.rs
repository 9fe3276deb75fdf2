//! Damage as a value: what was found, where, and what it costs.

use super::problems::{Code, Severity};
use super::units::{BlockNr, ThinId};
use std::collections::BTreeMap;
use std::fmt;

/// The structure that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// Block 0.
    Superblock,
    /// The tree of device details.
    Details,
    /// The upper mapping tree: device id to root.
    TopLevel,
    /// A device's mapping tree.
    Mappings,
    /// The superblock that a metadata snapshot keeps.
    SnapshotSuperblock,
    /// The metadata snapshot's tree of device details.
    SnapshotDetails,
    /// The metadata snapshot's upper mapping tree.
    SnapshotTopLevel,
    /// A device's mapping tree in the metadata snapshot.
    SnapshotMappings,
    /// The space map of the data device.
    DataSpaceMap,
    /// The space map of the metadata device.
    MetadataSpaceMap,
}

impl Area {
    /// The name in text and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Area::Superblock => "superblock",
            Area::Details => "details tree",
            Area::TopLevel => "top-level mapping tree",
            Area::Mappings => "mapping tree",
            Area::SnapshotSuperblock => "metadata snapshot superblock",
            Area::SnapshotDetails => "metadata snapshot details tree",
            Area::SnapshotTopLevel => "metadata snapshot top-level mapping tree",
            Area::SnapshotMappings => "metadata snapshot mapping tree",
            Area::DataSpaceMap => "data space map",
            Area::MetadataSpaceMap => "metadata space map",
        }
    }
}

/// Keys `begin..end` of a tree; `end` is `None` where the tree has no upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// The first key.
    pub begin: u64,
    /// The first key past the range.
    pub end: Option<u64>,
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            Some(end) => write!(f, "{}..{}", self.begin, end),
            None => write!(f, "{}..", self.begin),
        }
    }
}

/// Where a finding was made: as much of it as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The structure.
    pub area: Area,
    /// The metadata block.
    pub block: Option<BlockNr>,
    /// The thin device; for a block that several share, one of them.
    pub device: Option<ThinId>,
    /// The level below the tree's root, which is 0.
    pub level: Option<u8>,
    /// The keys that the block answers for, so those that are lost with it.
    pub keys: Option<KeyRange>,
}

impl Place {
    /// Somewhere in `area`.
    pub fn area(area: Area) -> Self {
        Place { area, block: None, device: None, level: None, keys: None }
    }

    /// The given block of `area`.
    pub fn block(area: Area, block: BlockNr) -> Self {
        Place { block: Some(block), ..Place::area(area) }
    }

    /// The given device in `area`.
    pub fn device(area: Area, device: ThinId) -> Self {
        Place { device: Some(device), ..Place::area(area) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.area.word())?;
        if let Some(device) = self.device {
            write!(f, ", device {device}")?;
        }
        if let Some(level) = self.level {
            write!(f, ", level {level}")?;
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        if let Some(keys) = self.keys {
            write!(f, ", keys {keys}")?;
        }
        Ok(())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub code: Code,
    /// The numbers: what was found, what should be there.
    pub detail: String,
}

impl Finding {
    /// A finding without further detail.
    pub fn new(code: Code, place: Place) -> Self {
        Finding { place, code, detail: String::new() }
    }

    /// The same with its numbers.
    pub fn with(code: Code, place: Place, detail: impl Into<String>) -> Self {
        Finding { place, code, detail: detail.into() }
    }

    /// The severity that the table gives its code.
    pub fn severity(&self) -> Severity {
        self.code.problem().severity
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = self.code.problem();
        write!(f, "{}: {}", self.place, problem.wording)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        write!(f, " [{}]", problem.name)
    }
}

/// How many findings of one code are kept whole; the others are only counted.
pub const KEPT_PER_CODE: u64 = 1000;

/// A bounded collection of findings: at most [`KEPT_PER_CODE`] of each code, and the number of all.
///
/// Appending in a fixed order keeps the same findings whatever the number of threads.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    counts: BTreeMap<Code, u64>,
}

impl Findings {
    /// None so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(&mut self, finding: Finding) {
        let count = self.counts.entry(finding.code).or_insert(0);
        *count += 1;
        if *count <= KEPT_PER_CODE {
            self.kept.push(finding);
        }
    }

    /// Adds all of `other`, behind those that are here.
    pub fn append(&mut self, other: Findings) {
        let mut room: BTreeMap<Code, u64> = BTreeMap::new();
        for (code, count) in &other.counts {
            let here = self.counts.entry(*code).or_insert(0);
            room.insert(*code, KEPT_PER_CODE.saturating_sub(*here));
            *here += count;
        }
        for finding in other.kept {
            if let Some(left) = room.get_mut(&finding.code)
                && *left > 0
            {
                *left -= 1;
                self.kept.push(finding);
            }
        }
    }

    /// Whether nothing was found, not even a note.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// How many there were of `code`.
    pub fn count(&self, code: Code) -> u64 {
        self.counts.get(&code).copied().unwrap_or(0)
    }

    /// The worst severity among all.
    pub fn worst(&self) -> Option<Severity> {
        self.counts.keys().map(|code| code.problem().severity).max()
    }

    /// The first finding of at least this severity.
    pub fn first_at_least(&self, severity: Severity) -> Option<&Finding> {
        self.kept.iter().find(|finding| finding.severity() >= severity)
    }

    /// Changes the places of those that were kept.
    pub fn relocate(&mut self, locate: &mut dyn FnMut(&mut Place)) {
        self.kept.iter_mut().for_each(|finding| locate(&mut finding.place));
    }

    /// Those that were kept.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.kept.iter()
    }

    /// How many there were of each code.
    pub fn counts(&self) -> &BTreeMap<Code, u64> {
        &self.counts
    }
}
