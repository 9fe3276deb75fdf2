//! What the documents say is there.

use dmeta::cli::registry::{TOOLS, find};
use std::fs;
use std::path::PathBuf;

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<(PathBuf, String)> {
    let folders = [top(), top().join("docs"), top().join("benches"), top().join("fuzz")];
    let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let paths = files.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "md"));
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The targets of links, without those that leave the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|link| !link.contains("://"))
}

/// The name that a heading has in links.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() >= 5);
    for (path, text) in &documents {
        for link in links(text) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", path.display());
            if !place.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let found = text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == place);
                assert!(found, "{}: {link}", path.display());
            }
        }
    }
}

#[test]
fn readme_begins_with_commands_that_need_nothing_but_the_toolchain() {
    let readme = fs::read_to_string(top().join("README.md")).unwrap();
    let block = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let lines: Vec<&str> = block.lines().collect();
    assert!(lines[0].starts_with("cargo run") && lines.contains(&"cargo test"), "{block}");
    let images = block.split_whitespace().filter(|word| word.starts_with("testdata/"));
    assert!(images.inspect(|image| assert!(top().join(image).is_file(), "{image}")).count() > 0);
}

#[test]
fn readme_shows_every_tool_and_no_other() {
    let readme = fs::read_to_string(top().join("README.md")).unwrap();
    for tool in TOOLS {
        assert!(readme.contains(&format!("| `{}` |", tool.name)), "{} is missing", tool.name);
    }
    for block in readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        let commands = block.lines().filter_map(|line| line.split(' ').next());
        for command in commands.filter(|word| ["thin_", "cache_", "era_"].iter().any(|kind| word.starts_with(kind))) {
            assert!(find(command).is_some(), "there is no {command}");
        }
    }
}

/// The tools of the package that callers may look for.
const PACKAGE: [&str; 21] = [
    "thin_check",
    "thin_dump",
    "thin_restore",
    "thin_repair",
    "thin_ls",
    "thin_rmap",
    "thin_trim",
    "thin_delta",
    "thin_metadata_size",
    "thin_metadata_pack",
    "thin_metadata_unpack",
    "thin_shrink",
    "thin_migrate",
    "cache_check",
    "cache_dump",
    "cache_restore",
    "cache_repair",
    "cache_metadata_size",
    "cache_writeback",
    "era_check",
    "era_dump",
];
const PACKAGE_ERA: [&str; 3] = ["era_restore", "era_repair", "era_invalidate"];

#[test]
fn readme_lists_what_is_not_there_yet_and_nothing_else() {
    let readme = fs::read_to_string(top().join("README.md")).unwrap();
    let section = readme.split("### What is not there yet\n").nth(1).unwrap().split("\nSo leave").next().unwrap();
    for tool in PACKAGE.iter().chain(&PACKAGE_ERA) {
        assert_eq!(section.contains(&format!("`{tool}`")), find(tool).is_none(), "{tool}");
    }
}

/// Paths such as `cli/exit` and `src/lib/cli/exit.rs`.
fn is_source(word: &str) -> bool {
    let file = word.strip_prefix("src/lib/").unwrap_or(word);
    let layers = ["base/", "format/", "block/", "pack/", "pdata/", "thin/", "cli/", "bin/"];
    layers.iter().any(|layer| file.starts_with(layer)) && !file.contains(' ') && file.len() > 8
        || word.starts_with("src/")
}

#[test]
fn files_that_are_named_exist() {
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(top().join(name)).unwrap();
        let words: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|word| is_source(word)).collect();
        assert!(!words.is_empty());
        for word in words.iter().filter(|word| !word.contains("foo")) {
            let inside = word.strip_prefix("src/lib/").unwrap_or(word);
            let candidates = [
                word.to_string(),
                format!("src/lib/{inside}"),
                format!("src/lib/{inside}.rs"),
                format!("src/{inside}.rs"),
            ];
            assert!(candidates.iter().any(|path| top().join(path).exists()), "{name}: there is no {word}");
        }
    }
}

#[test]
fn anchors_are_made_as_usual() {
    assert_eq!(anchor("## 10. Packed images"), "10-packed-images");
    assert_eq!(links("[a](b.md#c) and [d](https://e) [f](g)").collect::<Vec<_>>(), ["b.md#c", "g"]);
}
