//! The house rules that a machine can hold the code to. ARCHITECTURE.md says why they are there.
//!
//! Each rule is a function from a source file to what it breaks, and has a test of its own which shows that it fires.

#[path = "tidy/source.rs"]
mod source;

use source::{Source, find_words, is_word};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, lowest first. A file may use its own layer and those on lower rows, but not others on its own row.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["format"],
    &["block"],
    &["pack"],
    &["pdata"],
    &["thin", "cache", "era"],
    &["replay"],
    &["cli"],
    &["bin"],
];

/// The layers in which each package may be used. `+` after the last means "and all above".
const PACKAGES: &[(&str, &str)] = &[
    ("anyhow", "cli"),
    ("clap", "cli"),
    ("clap_complete", "cli"),
    ("clap_mangen", "cli"),
    ("crc32c", "format"),
    ("flate2", "pack"),
    ("simd_adler32", "pack"),
    ("indicatif", "cli"),
    ("itoa", "thin cache era replay+"),
    ("libc", "block"),
    ("lzma_rust2", "pack"),
    ("memchr", "pack+"),
    ("quick_xml", "thin cache era"),
    ("rayon", "pdata+"),
    ("rustix", "block"),
    ("ruzstd", "pack"),
    ("serde", "base+"),
    ("serde_json", "thin cache era replay+"),
    ("thiserror", "base+"),
    ("zerocopy", "format+"),
];

/// Files above this are split.
const MAX_LINES: usize = 500;

fn all_of(source: &Source, code: &str, words: &[&str], what: &str) -> Vec<String> {
    words
        .iter()
        .flat_map(|word| find_words(code, word).map(move |at| source.at(at, &format!("{what}: {word}"))))
        .collect()
}

fn rank(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&layer))
}

/// Imports point down only.
fn upward_imports(source: &Source) -> Vec<String> {
    let Some(layer) = source.layer() else { return Vec::new() };
    let mut broken = Vec::new();
    for (at, target) in imports(source) {
        let allowed = match (rank(layer), rank(target)) {
            (Some(from), Some(to)) => to < from || target == layer,
            (None, _) => false,
            (_, None) => true,
        };
        if !allowed {
            broken.push(source.at(at, &format!("{layer} must not use {target}")));
        }
    }
    broken
}

/// Every path that leaves from the top of the library, with the module it leads to.
fn imports(source: &Source) -> Vec<(usize, &str)> {
    let code = source.code.as_str();
    // The module `lib::a::b` (src/lib/a/b.rs or src/lib/a/b/mod.rs) is two levels below the top.
    let depth = source.path.matches('/').count() - usize::from(source.path.ends_with("/mod.rs"));
    let to_top = "super::".repeat(depth.saturating_sub(1));
    let mut starts = vec!["crate::", "dmeta::"];
    if depth > 1 && source.layer() != Some("bin") {
        starts.push(&to_top);
    }
    let mut found = Vec::new();
    for start in starts {
        for at in find_words(code, start) {
            let rest = &code[at + start.len()..];
            found.extend(first_segments(rest).map(|segment| (at, segment)));
        }
    }
    found
}

/// `base::units` gives `base`; `{base::units, format}` gives both.
fn first_segments(path: &str) -> impl Iterator<Item = &str> {
    let group = path.strip_prefix('{').map(group_items);
    let alone = if group.is_none() { Some(path) } else { None };
    group.into_iter().flatten().chain(alone).map(|item| {
        let item = item.trim_start();
        &item[..item.bytes().position(|byte| !is_word(byte)).unwrap_or(item.len())]
    })
}

fn group_items(inside: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut items) = (0, 0, Vec::new());
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b',' | b'}' if depth == 0 => {
                items.push(&inside[begin..at]);
                begin = at + 1;
                if byte == b'}' {
                    break;
                }
            }
            _ => {}
        }
    }
    items
}

/// Each package stays in its layers.
fn packages_outside_their_layer(source: &Source) -> Vec<String> {
    let Some(layer) = source.layer() else { return Vec::new() };
    let mut broken = Vec::new();
    for (package, layers) in PACKAGES {
        if is_allowed(layer, layers) && (*package != "quick_xml" || source.path.contains("xml")) {
            continue;
        }
        let path = format!("{package}::");
        let used = find_words(&source.shipped, &path).filter(|at| !source.shipped[..*at].ends_with("::"));
        broken.extend(used.map(|at| source.at(at, &format!("{package} is not for this file"))));
    }
    broken
}

fn is_allowed(layer: &str, layers: &str) -> bool {
    let top = layers.strip_suffix('+').and_then(|list| list.split(' ').next_back()).and_then(rank);
    layers.trim_end_matches('+').split(' ').any(|allowed| allowed == layer)
        || top.is_some_and(|top| rank(layer).is_some_and(|rank| rank > top))
}

/// `unsafe` is for `block/`, and there it says why it is sound.
fn unsafe_code(source: &Source) -> Vec<String> {
    let mut broken = Vec::new();
    for at in find_words(&source.code, "unsafe") {
        if source.layer() != Some("block") {
            broken.push(source.at(at, "unsafe outside block/"));
        } else if !is_justified(&source.text[..at]) {
            broken.push(source.at(at, "unsafe without its contract (SAFETY: or # Safety)"));
        }
    }
    broken
}

/// The contract stands in the comment right above, or a few lines further up in the same passage.
fn is_justified(before: &str) -> bool {
    before.lines().rev().take(12).any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
}

/// Only `cli/` prints.
fn printing(source: &Source) -> Vec<String> {
    if matches!(source.layer(), Some("cli") | None) {
        return Vec::new();
    }
    let words =
        ["print!", "println!", "eprint!", "eprintln!", "dbg!", "stdout()", "stderr()", "io::stdout", "io::stderr"];
    all_of(source, &source.shipped, &words, "printing outside cli/")
}

/// Names are imported one by one; test modules may take all of what they test.
fn glob_imports(source: &Source) -> Vec<String> {
    source.shipped.match_indices("::*").map(|(at, _)| source.at(at, "glob import")).collect()
}

/// What can fail is handled.
fn shortcuts(source: &Source) -> Vec<String> {
    let words = [".unwrap()", ".unwrap_err()", ".expect(", ".expect_err(", "todo!", "unimplemented!", "panic!"];
    all_of(source, &source.shipped, &words, "a shortcut outside tests")
}

/// Every test runs.
fn ignored_tests(source: &Source) -> Vec<String> {
    let mark = ["#[", "ignore"].concat();
    source.code.match_indices(&mark).map(|(at, _)| source.at(at, "a test that is not run")).collect()
}

/// A file that can be read in one sitting.
fn long_files(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    if source.layer().is_none() || lines <= MAX_LINES {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines, more than {MAX_LINES}", source.path)]
}

/// What is on disk is little endian on every machine.
fn native_endian(source: &Source) -> Vec<String> {
    if source.layer().is_none() {
        return Vec::new();
    }
    let words = ["from_ne_bytes", "to_ne_bytes", "NativeEndian"];
    let mut broken = all_of(source, &source.code, &words, "the machine's own byte order");
    // Types that may be unaligned can't have the machine's own integers in them; `block` only moves bytes.
    let list = |at: usize| source.code[at..].split(')').next().unwrap_or_default();
    let aligned = find_words(&source.code, "derive(").filter(|at| list(*at).contains("FromBytes"));
    let aligned = aligned.filter(|at| !list(*at).contains("Unaligned") && source.layer() != Some("block"));
    broken.extend(aligned.map(|at| source.at(at, "FromBytes without Unaligned")));
    broken
}

/// The repository stands alone: nothing in it points to where it was made.
fn foreign_places(source: &Source) -> Vec<String> {
    let words = [["/wo", "rk/"], ["/tmp", "/wt"], ["../sha", "red"], ["/tmp", "/lab"]];
    let mut broken = Vec::new();
    for word in words.map(|halves| halves.concat()) {
        let found = source.text.match_indices(&word).map(|(at, _)| source.at(at, "a place outside the repository"));
        broken.extend(found);
    }
    broken
}

/// The sections of docs/format.md, as "3" and "3.2".
fn sections(document: &str) -> Vec<&str> {
    let headings = document.lines().filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")));
    headings.filter_map(|heading| heading.split(' ').next()).map(|number| number.trim_end_matches('.')).collect()
}

/// Citations such as "docs/format.md 3.2, 3.3" lead somewhere.
fn dead_citations(source: &Source, sections: &[&str]) -> Vec<String> {
    let mut broken = Vec::new();
    for (at, name) in source.text.match_indices("format.md ") {
        let rest = &source.text[at + name.len()..];
        let list = rest.split(|c: char| !(c.is_ascii_digit() || ".,- ".contains(c))).next().unwrap_or("");
        let numbers = list.split([',', ' ', '-']).map(|number| number.trim_matches('.')).filter(|n| !n.is_empty());
        let dead = numbers.filter(|number| !sections.contains(number));
        broken.extend(dead.map(|number| source.at(at, &format!("docs/format.md has no section {number}"))));
    }
    broken
}

type Rule = fn(&Source) -> Vec<String>;

const CODE_RULES: &[Rule] = &[
    upward_imports,
    packages_outside_their_layer,
    unsafe_code,
    printing,
    glob_imports,
    shortcuts,
    ignored_tests,
    long_files,
    native_endian,
];

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != ".git" {
            files_below(&path, found);
        } else if path.is_file() && name != "Cargo.lock" && name != ".git" {
            found.push(path);
        }
    }
}

/// Every text file of the repository.
fn sources() -> Vec<Source> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    files_below(top, &mut paths);
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        if let Ok(text) = fs::read_to_string(&path) {
            let inside = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
            sources.push(Source::new(&inside, &text));
        }
    }
    sources
}

#[test]
fn the_house_is_tidy() {
    let sources = sources();
    assert!(sources.iter().any(|source| source.path == "src/lib/lib.rs"));
    let mut broken: Vec<String> = sources.iter().flat_map(foreign_places).collect();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        broken.extend(CODE_RULES.iter().flat_map(|rule| rule(source)));
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn cited_sections_exist() {
    let document = include_str!("../docs/format.md");
    let sections = sections(document);
    assert!(sections.contains(&"3.2") && sections.contains(&"10"));
    let sources = sources();
    let code = sources.iter().filter(|source| source.path.starts_with("src/"));
    let broken: Vec<String> = code.flat_map(|source| dead_citations(source, &sections)).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn dead_citations_are_found() {
    let sections = sections("## 1. A\n### 1.2 B\n## 3. C\n");
    let dead = |text: &str| dead_citations(&Source::new("src/lib/base/a.rs", text), &sections).len();
    assert_eq!(dead("// docs/format.md 1.2 and (format.md 3), see format.md 1, 1.2."), 0);
    assert_eq!(dead("// docs/format.md 1.3"), 1);
    assert_eq!(dead("// docs/format.md 1.2, 4.1 and docs/format.md 2"), 2);
}

#[test]
fn every_package_has_its_layer() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names = section.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim().replace('-', "_"));
    let unknown: Vec<String> = names.filter(|name| PACKAGES.iter().all(|(package, _)| package != name)).collect();
    assert!(unknown.is_empty(), "say in PACKAGES where these may be used: {unknown:?}");
}

#[test]
fn every_layer_is_known() {
    for source in sources() {
        if let Some(layer) = source.layer() {
            assert!(rank(layer).is_some(), "{}: '{layer}' is not in LAYERS", source.path);
        }
    }
}

/// Each rule fires on each of its samples, and on none of the good ones.
#[track_caller]
fn proves(rule: Rule, path: &str, bad: &[&str], good: &[&str]) {
    for text in bad {
        assert!(!rule(&Source::new(path, text)).is_empty(), "passes: {text}");
    }
    for text in good {
        let broken = rule(&Source::new(path, text));
        assert!(broken.is_empty(), "{broken:?}");
    }
}

#[test]
fn upward_imports_are_found() {
    proves(
        upward_imports,
        "src/lib/pdata/walk/node.rs",
        &[
            "use crate::thin::model;",
            "fn f() { crate::cli::main() }",
            "use crate::{base::X, cli};",
            "use super::super::super::thin::X;",
        ],
        &[
            "use crate::base::X;",
            "use crate::{base::{X, Y}, format::Z};",
            "use super::super::thin::X;",
            "// crate::cli",
            "use crate::pdata::X;",
        ],
    );
    proves(
        upward_imports,
        "src/lib/thin/check.rs",
        &["use crate::cache::X;", "use super::super::era::X;"],
        &["use super::era::X;"],
    );
    proves(upward_imports, "src/lib/pack/mod.rs", &["use super::thin::X;"], &["use super::block::X;"]);
    proves(upward_imports, "src/lib/unknown/mod.rs", &["use crate::base::X;"], &[]);
}

#[test]
fn packages_outside_their_layer_are_found() {
    let rule = packages_outside_their_layer;
    proves(
        rule,
        "src/lib/thin/check.rs",
        &["use anyhow::Result;", "fn f() { clap::x() }", "use quick_xml::X;"],
        &["use rayon::X;", "my_clap::x()", "use self::clap::x;"],
    );
    proves(rule, "src/lib/thin/xml/read.rs", &["use libc::c_int;"], &["use quick_xml::X;"]);
    proves(
        rule,
        "src/lib/base/units.rs",
        &["use rayon::X;", "use zerocopy::X;"],
        &["use serde::X;", "#[cfg(test)] mod t { use rayon::X; }"],
    );
}

#[test]
fn unsafe_code_is_found() {
    proves(
        unsafe_code,
        "src/lib/thin/a.rs",
        &["unsafe { x() }", "// SAFETY: no\nunsafe fn f() {}"],
        &["#![deny(unsafe_code)]", "\"unsafe\""],
    );
    proves(unsafe_code, "src/lib/block/a.rs", &["unsafe { x() }"], &["// SAFETY: it is.\nunsafe { x() }"]);
}

#[test]
fn printing_is_found() {
    let bad = ["println!()", "std::io::stdout().lock()", "io::stderr()", "dbg!(1)", "use std::io::{stdout}; stdout();"];
    proves(
        printing,
        "src/lib/thin/a.rs",
        &bad,
        &["write!(out, \"println!\")", "#[cfg(test)]\nmod tests { fn f() { println!() } }"],
    );
    proves(printing, "src/lib/cli/a.rs", &[], &["println!()"]);
}

#[test]
fn glob_imports_are_found() {
    proves(
        glob_imports,
        "src/lib/thin/a.rs",
        &["use a::*;", "use a::{b::*, c};"],
        &["// a::*", "a * b", "#[cfg(test)]\nmod t { use super::*; }"],
    );
}

#[test]
fn shortcuts_are_found() {
    let good = [
        "x.unwrap_or(1)",
        "x.expect_code(1)",
        "#[cfg(test)]\nmod t { fn f() { x.unwrap() } }",
        "// x.unwrap()",
        "'\"'; r\"todo!\"",
    ];
    proves(
        shortcuts,
        "src/lib/thin/a.rs",
        &["x.unwrap();", "x.expect(\"y\")", "todo!()", "unimplemented!()", "panic!(\"x\")"],
        &good,
    );
    proves(
        shortcuts,
        "src/lib/thin/a.rs",
        &["#[cfg(test)] mod t { fn f() {} }\nfn g() { x.unwrap() }", "#[cfg(test)] use a;\nx.unwrap()"],
        &[],
    );
    proves(
        shortcuts,
        "src/lib/thin/a.rs",
        &[
            "let c = '\"'; x.unwrap()",
            "fn f<'a>() { x.unwrap() }",
            "let c = '\\''; x.unwrap()",
            "let c = 'ä'; x.unwrap()",
        ],
        &[],
    );
    proves(shortcuts, "src/lib/block/testing.rs", &[], &["x.unwrap()"]);
}

#[test]
fn ignored_tests_are_found() {
    proves(
        ignored_tests,
        "tests/a.rs",
        &[&["#[", "ignore] fn f() {}"].concat(), &["#[", "ignore = \"slow\"]"].concat()],
        &["#[test] fn f() {}"],
    );
}

#[test]
fn long_files_are_found() {
    proves(long_files, "src/lib/thin/a.rs", &[&"x\n".repeat(MAX_LINES + 1)], &[&"x\n".repeat(MAX_LINES)]);
}

#[test]
fn native_endian_is_found() {
    proves(
        native_endian,
        "src/lib/format/a.rs",
        &["u32::from_ne_bytes(x)", "x.to_ne_bytes()", "#[derive(FromBytes)]"],
        &["u32::from_le_bytes(x)", "#[derive(FromBytes, Unaligned)]"],
    );
}

#[test]
fn foreign_places_are_found() {
    let bad = [["see /wo", "rk/x"], ["../sha", "red/x"], ["in /tmp", "/wt/x"]].map(|word| word.concat());
    proves(foreign_places, "README.md", &[&bad[0], &bad[1], &bad[2]], &["how it works", "shared blocks", "/tmp/x"]);
}
