//! The cases of `testdata/kernel`: images that a kernel wrote, and what the kernel said of them.

use super::raw_image;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A case: a folder with `image.img.xz` and `about.txt`, which is text and then lines of `key=value`.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of its folder.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    facts: BTreeMap<String, String>,
}

/// What the kernel said of a thin device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinFacts {
    /// Sectors of all its mappings.
    pub mapped_sectors: u64,
    /// The last mapped sector.
    pub highest_sector: Option<u64>,
}

impl Case {
    fn read(folder: PathBuf) -> Case {
        let text = fs::read_to_string(folder.join("about.txt")).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let facts = pairs.map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let name = folder.file_name().unwrap().to_str().unwrap().to_string();
        Case { name, folder, facts }
    }

    /// What `about.txt` says of `key`.
    #[track_caller]
    pub fn fact(&self, key: &str) -> &str {
        self.facts.get(key).unwrap_or_else(|| panic!("{}: about.txt does not say {key}", self.name))
    }

    /// The same as a number.
    #[track_caller]
    pub fn number(&self, key: &str) -> u64 {
        self.fact(key).parse().unwrap_or_else(|error| panic!("{}: {key}: {error}", self.name))
    }

    /// The block of the metadata snapshot.
    pub fn held_root(&self) -> Option<u64> {
        (self.fact("held_root") != "-").then(|| self.number("held_root"))
    }

    /// Metadata blocks in use. The kernel counts its reserve, a tenth of the device up to 1024 blocks, as used.
    pub fn metadata_in_use(&self) -> u64 {
        self.number("metadata_used") - 1024.min(self.number("metadata_total") / 10)
    }

    /// Whether it is a pool's metadata, not a cache's or an era device's.
    pub fn is_pool(&self) -> bool {
        self.fact("kind") == "thin"
    }

    /// The thin devices, by id.
    pub fn thins(&self) -> BTreeMap<u64, ThinFacts> {
        let lines = self.facts.iter().filter_map(|(key, value)| Some((key.strip_prefix("thin ")?, value)));
        lines
            .map(|(id, value)| {
                let (mapped, highest) = value.split_once(" highest ").unwrap();
                let facts = ThinFacts { mapped_sectors: mapped.parse().unwrap(), highest_sector: highest.parse().ok() };
                (id.parse().unwrap(), facts)
            })
            .collect()
    }

    /// The raw image, in `folder`.
    pub fn image(&self, folder: &Path) -> PathBuf {
        raw_image(&format!("kernel/{}", self.name), folder)
    }
}

/// All cases, by name.
pub fn all() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/kernel");
    let mut folders: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let cases: Vec<Case> = folders.into_iter().map(Case::read).collect();
    assert!(cases.len() >= 20, "most cases are missing");
    cases
}

/// Those that are pools.
pub fn pools() -> impl Iterator<Item = Case> {
    all().into_iter().filter(Case::is_pool)
}
