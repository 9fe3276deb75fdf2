//! What the distribution's thin_check and thin_dump 0.9.0 say of the same images, held against what ours say.
//!
//! Every difference that is allowed is listed here with its reason.

mod support;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::cases::{self, Case};
use support::{Run, finish, peer, run};

/// Pools on which the checks may differ: our exit code, theirs, and why.
const CHECK_DIFFERS: &[(&str, i32, i32, &str)] = &[(
    "thin-meta-full",
    1,
    0,
    "0.9.0 holds the counts of metadata blocks against the trees, but not those of data blocks: it misses the leak",
)];

/// The peer's tool, where it is the version that the differences are known of.
fn version_0_9_0(name: &str) -> Option<PathBuf> {
    let program = peer(name)?;
    let version = finish(Command::new(&program).arg("-V"));
    if version.stdout.trim() != "0.9.0" {
        eprintln!("skipped: {} is not version 0.9.0", program.display());
        return None;
    }
    Some(program)
}

fn both(program: &Path, name: &str, ours: &[&str], theirs: &[&str], image: &Path) -> (Run, Run) {
    let arguments = |words: &[&str]| -> Vec<_> {
        words.iter().map(OsStr::new).chain([image.as_os_str()]).map(OsStr::to_os_string).collect()
    };
    (run(name, arguments(ours)), finish(Command::new(program).args(arguments(theirs))))
}

#[test]
fn checks_agree() {
    let Some(program) = version_0_9_0("thin_check") else { return };
    for case in cases::all() {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        let (ours, theirs) = both(&program, "thin_check", &[], &[], &image);
        let allowed = CHECK_DIFFERS.iter().find(|(name, ..)| *name == case.name);
        let wanted = allowed.map(|(_, ours, theirs, _)| (Some(*ours), Some(*theirs)));
        match wanted {
            Some(codes) => assert_eq!((ours.code, theirs.code), codes, "the difference is gone\n{ours}\n{theirs}"),
            None => assert_eq!(ours.code, theirs.code, "{}\n{ours}\n{theirs}", case.name),
        }
    }
}

#[test]
fn dumps_are_the_same_bytes() {
    let Some(program) = version_0_9_0("thin_dump") else { return };
    for case in cases::pools() {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        same_dump(&case, &both(&program, "thin_dump", &["--flat"], &[], &image));
        let human = ["--flat", "-f", "human_readable"];
        let (mut ours, theirs) = both(&program, "thin_dump", &human, &human[1..], &image);
        // 0.9.0 writes a single block as `7 -> 9`, later versions as a range of one.
        ours.stdout = ours.stdout.lines().map(|line| single_block(line) + "\n").collect();
        same_dump(&case, &(ours, theirs));
        if case.held_root().is_some() {
            same_dump(&case, &both(&program, "thin_dump", &["--flat", "-m"], &["-m"], &image));
        }
        if let Some(id) = case.thins().into_keys().next() {
            let one = ["--dev-id", &id.to_string()];
            same_dump(&case, &both(&program, "thin_dump", &one, &one, &image));
        }
    }
}

/// `(7..7) -> (9..9), 0` as `7 -> 9, 0`; other lines as they are.
fn single_block(line: &str) -> String {
    let one = |range: &str| {
        let (begin, end) = range.strip_prefix('(')?.strip_suffix(')')?.split_once("..")?;
        (begin == end).then(|| begin.to_string())
    };
    let words: Vec<&str> = line.split(' ').collect();
    let parts: Vec<String> = words
        .iter()
        .map(|word| {
            let (range, comma) = word.strip_suffix(',').map_or((*word, ""), |range| (range, ","));
            one(range).map_or(word.to_string(), |block| block + comma)
        })
        .collect();
    parts.join(" ")
}

#[track_caller]
fn same_dump(case: &Case, (ours, theirs): &(Run, Run)) {
    ours.expect_code(0);
    theirs.expect_code(0);
    let mut lines = ours.stdout.lines().zip(theirs.stdout.lines());
    if let Some((ours, theirs)) = lines.find(|(ours, theirs)| ours != theirs) {
        panic!("{}: we write\n{ours}\nthey write\n{theirs}", case.name);
    }
    assert_eq!(ours.stdout.len(), theirs.stdout.len(), "{}", case.name);
}
