//! The manual pages and completions in `man/` are those that the registry gives.
//!
//! `BLESS=1 cargo test --test pages` writes them anew.

use dmeta::cli::manual::pages;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man")
}

fn files_below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { assert!(found.insert(path)) }
    }
}

#[test]
fn pages_are_up_to_date() {
    let pages = pages().unwrap();
    if std::env::var_os("BLESS").is_some() {
        let _old = fs::remove_dir_all(folder());
        for page in &pages {
            let path = folder().join(&page.source);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &page.text).unwrap();
        }
    }
    let mut there = BTreeSet::new();
    files_below(&folder(), &mut there);
    let wanted: BTreeSet<PathBuf> = pages.iter().map(|page| folder().join(&page.source)).collect();
    assert_eq!(there, wanted, "BLESS=1 cargo test --test pages makes them anew");
    for page in &pages {
        let text = fs::read_to_string(folder().join(&page.source)).unwrap();
        assert!(text == page.text, "man/{} is out of date: BLESS=1 cargo test --test pages makes it anew", page.source);
    }
}
