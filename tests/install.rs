//! `pdata_tools install`: everything in its place, twice the same, nothing of others touched.

mod support;

use dmeta::cli::manual::pages;
use dmeta::cli::registry::TOOLS;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{BINARY, Run, finish};

fn install(prefix: &Path, more: &[&str]) -> Run {
    finish(Command::new(BINARY).args(["install", "--prefix"]).arg(prefix).args(more))
}

/// Every file, with what is in it or where it leads.
fn contents(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            let target = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
            found.insert(path, target);
        } else if path.is_dir() {
            contents(&path, found);
        } else {
            let bytes = fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
}

fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    contents(folder, &mut found);
    found
}

#[test]
fn puts_everything_in_place_and_then_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), &[]).expect_code(0).expect("silence on standard error", |run| run.stderr.is_empty());
    let first = tree(folder.path());
    assert_eq!(first.len(), 1 + TOOLS.len() + pages().unwrap().len());
    for tool in TOOLS {
        let run = finish(Command::new(folder.path().join("sbin").join(tool.name)).arg("--help"));
        run.expect_code(0).expect("the tool's own help", |run| run.stdout.contains(tool.about));
    }
    let again = install(folder.path(), &[]);
    again.expect_code(0).expect("all kept", |run| run.stdout.lines().all(|line| line.starts_with("keep ")));
    assert!(tree(folder.path()) == first);
}

#[test]
fn replaces_its_own_earlier_version() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), &[]).expect_code(0);
    let first = tree(folder.path());
    let (binary, page) = (folder.path().join("sbin/pdata_tools"), folder.path().join("share/man/man8/thin_check.8"));
    let mut older = fs::read(&binary).unwrap();
    older.extend_from_slice(b"older");
    fs::write(&binary, older).unwrap();
    let text = fs::read_to_string(&page).unwrap();
    fs::write(&page, text.replace("EXAMPLES", "SAMPLES")).unwrap();
    install(folder.path(), &[]).expect_code(0);
    assert!(tree(folder.path()) == first);
    assert_eq!(fs::metadata(&binary).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn does_nothing_when_a_file_of_others_is_in_the_way() {
    for place in ["sbin/pdata_tools", "sbin/thin_check", "share/man/man8/thin_dump.8"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        let before = tree(folder.path());
        let run = install(folder.path(), &[]);
        run.expect_code(1).expect("the file's name", |run| run.stderr.contains(place));
        assert!(tree(folder.path()) == before, "{run}");
        install(folder.path(), &["--force"]).expect_code(0);
        assert!(fs::read(&path).unwrap() != b"somebody else's");
    }
}

#[test]
fn a_link_that_leads_elsewhere_is_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("precious"), folder.path().join("sbin/thin_check"));
    fs::create_dir(folder.path().join("sbin")).unwrap();
    fs::write(&target, "precious").unwrap();
    symlink(&target, &link).unwrap();
    install(folder.path(), &[]).expect_code(1);
    install(folder.path(), &["--force"]).expect_code(0);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("pdata_tools"));
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = install(folder.path(), &["-n"]);
    run.expect_code(0).expect("what would be made", |run| run.stdout.contains("create "));
    assert!(tree(folder.path()).is_empty());
}

#[test]
fn the_binary_may_go_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let sbindir = folder.path().join("usr/bin");
    finish(
        Command::new(BINARY)
            .args(["install", "--prefix"])
            .arg(folder.path().join("usr"))
            .arg("--sbindir")
            .arg(&sbindir),
    )
    .expect_code(0);
    assert!(sbindir.join("pdata_tools").is_file());
    assert!(!folder.path().join("usr/sbin").exists());
}
