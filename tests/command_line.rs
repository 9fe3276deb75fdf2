//! The command lines that callers of the older tools use, on metadata that a kernel wrote.

mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Run, finish, raw_image, run, tool, words};
use tempfile::TempDir;

const HELD_ROOT: &str = "183";
const SIGPIPE: i32 = 13;

/// A pool with a metadata snapshot in block 183.
fn metasnap() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let image = raw_image("kernel/thin-metasnap", folder.path());
    (folder, image)
}

/// Runs a line in which IMAGE stands for the image, and '' for an empty argument.
fn run_line(line: &str, image: &Path) -> Run {
    let mut words = words(line).into_iter().map(|word| match word.to_str() {
        Some("IMAGE") => image.as_os_str().to_os_string(),
        Some("''") => OsString::new(),
        _ => word,
    });
    let name = words.next().unwrap();
    run(name.to_str().unwrap(), words)
}

#[track_caller]
fn all_alike(image: &Path, lines: &[&str]) {
    let first = run_line(lines[0], image);
    first.expect_code(0).expect("a result", |run| !run.stdout.is_empty());
    for line in &lines[1..] {
        let other = run_line(line, image);
        other.expect_code(0).expect(lines[0], |run| run.stdout == first.stdout && run.stderr == first.stderr);
    }
}

#[test]
fn every_spelling_of_thin_check_gives_the_same() {
    let (_folder, image) = metasnap();
    all_alike(
        &image,
        &[
            "thin_check IMAGE",
            "thin_check '' IMAGE ''",
            "thin_check -- IMAGE",
            "thin_check --io-engine sync -v IMAGE",
            "thin_check IMAGE --ignore-non-fatal-errors",
            "thin_check --ignore IMAGE --ignore",
            "thin_check --clear-needs-check-flag IMAGE",
            "thin_check --clear IMAGE --ignore-non-fatal-errors",
            "thin_check --auto-repair IMAGE",
            "thin_check --threads 1 IMAGE --threads=7",
        ],
    );
    all_alike(
        &image,
        &[
            "thin_check -m IMAGE",
            "thin_check IMAGE -m",
            "thin_check -m183 IMAGE",
            "thin_check -m=183 IMAGE",
            "thin_check --metadata-snap IMAGE",
            "thin_check --metadata-snap=183 IMAGE",
            "thin_check --metadata-snapshot IMAGE",
            "thin_check --metadata-snapshot=183 IMAGE",
            "thin_check --metadata IMAGE -m 183",
        ],
    );
}

#[test]
fn every_spelling_of_thin_dump_gives_the_same() {
    let (_folder, image) = metasnap();
    all_alike(
        &image,
        &[
            "thin_dump IMAGE",
            "thin_dump -f xml IMAGE",
            "thin_dump -fxml IMAGE",
            "thin_dump --format=human_readable IMAGE --format xml",
            "thin_dump '' IMAGE",
            "thin_dump -o - IMAGE",
            "thin_dump --threads 3 IMAGE",
        ],
    );
    all_alike(
        &image,
        &[
            "thin_dump -m IMAGE",
            "thin_dump -f xml IMAGE -m 183",
            "thin_dump -m 183 IMAGE",
            "thin_dump -m183 -fxml IMAGE",
            "thin_dump --metadata-snap=183 IMAGE",
            "thin_dump IMAGE --metadata-snapshot",
        ],
    );
    all_alike(
        &image,
        &[
            "thin_dump --dev-id 0-2 IMAGE",
            "thin_dump --dev-id 0 --dev-id 2 IMAGE",
            "thin_dump --dev-id 2,0 IMAGE",
            "thin_dump --dev 0,2-2,0 IMAGE",
        ],
    );
}

#[test]
fn what_thin_check_prints() {
    let (_folder, image) = metasnap();
    let run = run_line("thin_check IMAGE", &image);
    run.expect_code(0);
    assert_eq!(run.stdout, "TRANSACTION_ID=0\nMETADATA_FREE_BLOCKS=1861\n");
    for line in ["thin_check -q IMAGE", "thin_check -qm IMAGE", "thin_check --json -q IMAGE"] {
        run_line(line, &image).expect_code(0).expect("silence", |run| run.stdout.is_empty() && run.stderr.is_empty());
    }
}

#[test]
fn combinations_that_are_refused() {
    let (_folder, image) = metasnap();
    for line in [
        "thin_check --clear-needs-check-flag -m IMAGE",
        "thin_check --clear-needs-check-flag --override-mapping-root 5 IMAGE",
        "thin_check --clear-needs-check-flag --override-details-root 5 IMAGE",
        "thin_check --auto-repair --skip-mappings IMAGE",
        "thin_check --auto-repair --super-block-only IMAGE",
        "thin_check --auto-repair --ignore-non-fatal-errors IMAGE",
        "thin_check --auto-repair -m IMAGE",
        "thin_check --override-mapping-root x IMAGE",
        "thin_check --threads 0 IMAGE",
        "thin_check IMAGE IMAGE",
        "thin_check IMAGE 183",
        "thin_check",
        "thin_dump --repair -m IMAGE",
        "thin_dump --format yaml IMAGE",
        "thin_dump --dev-id 3-1 IMAGE",
        "thin_dump --dev-id 1,,2 IMAGE",
        "thin_dump -o",
        "thin_dump -mx IMAGE",
    ] {
        let run = run_line(line, &image);
        run.expect_code(1).expect("the next step", |run| run.stderr.contains("--help' explains"));
        run.expect("nothing on standard output", |run| run.stdout.is_empty());
        let silent = run_line(&format!("{line} -q"), &image);
        silent.expect_code(1).expect("a wrong command line is said also under -q", |run| !run.stderr.is_empty());
    }
}

#[test]
fn a_snapshot_that_is_not_there_is_an_error() {
    let (_folder, image) = metasnap();
    for line in ["thin_check -m184 IMAGE", "thin_dump -m184 IMAGE"] {
        run_line(line, &image).expect_code(1).expect("where it is", |run| run.stderr.contains(HELD_ROOT));
    }
    let folder = tempfile::tempdir().unwrap();
    let none = raw_image("kernel/thin-snaps", folder.path());
    for line in ["thin_check -m IMAGE", "thin_dump -m IMAGE"] {
        let run = run_line(line, &none);
        run.expect_code(1).expect("what is missing", |run| run.stderr.contains("no metadata snapshot"));
    }
}

#[test]
fn a_flag_that_has_to_be_cleared_is_not_taken_for_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let image = raw_image("kernel/thin-needs-check", folder.path());
    run_line("thin_check IMAGE", &image).expect_code(0).expect("a word", |run| run.stderr.contains("[needs-check]"));
    let before = fs::read(&image).unwrap();
    for line in ["thin_check --clear-needs-check-flag IMAGE", "thin_check --auto-repair IMAGE"] {
        let run = run_line(line, &image);
        let cleared = run_line("thin_dump IMAGE", &image).stdout.contains("flags=\"0\"");
        assert_eq!(run.code == Some(0), cleared, "{run}");
        fs::write(&image, &before).unwrap();
    }
}

#[test]
fn the_first_line_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let image = raw_image("kernel/thin-snaps", folder.path());
    let mut child = tool("thin_dump").arg(&image).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::with_capacity(64, child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    assert!(line.starts_with("<superblock ") && line.contains(" transaction=\"0\" "), "{line}");
    let status = support::wait(&mut child, "thin_dump");
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((status.signal(), stderr.as_str()), (Some(SIGPIPE), ""));
}

#[test]
fn an_output_file_holds_what_standard_output_would() {
    let (folder, image) = metasnap();
    let output = folder.path().join("out");
    fs::write(&output, "old".repeat(100_000)).unwrap();
    finish(tool("thin_dump").arg(&image).arg("-o").arg(&output)).expect_code(0);
    assert_eq!(fs::read_to_string(&output).unwrap(), run_line("thin_dump IMAGE", &image).stdout);
}

#[test]
fn a_dump_that_fails_leaves_the_last_good_one() {
    let (folder, image) = metasnap();
    let output = folder.path().join("pool.xml");
    let dump = || finish(tool("thin_dump").arg(&image).arg("-o").arg(&output));
    dump().expect_code(0);
    let good = fs::read(&output).unwrap();
    let mut bytes = fs::read(&image).unwrap();
    // Every block but the superblock, as a disk that dies would leave it.
    bytes[4096..].fill(0x5a);
    fs::write(&image, bytes).unwrap();
    dump().expect_code(1);
    assert!(fs::read(&output).unwrap() == good);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // A pipe is no file: what comes through it is written as before.
    let fifo = folder.path().join("fifo");
    support::make_fifo(&fifo);
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    let (_other, sound) = metasnap();
    finish(tool("thin_dump").arg(&sound).arg("-o").arg(&fifo)).expect_code(0);
    assert!(reader.join().unwrap() == good);
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let (folder, image) = metasnap();
    for output in ["/dev/full", "/missing/out", folder.path().to_str().unwrap()] {
        let run = finish(tool("thin_dump").arg(&image).args(["-o", output]));
        run.expect_code(1).expect("the output's name", |run| run.stderr.contains(output));
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = tool("thin_dump").arg(&image).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"));
}

#[test]
fn the_input_is_never_overwritten() {
    let (folder, image) = metasnap();
    let before = fs::read(&image).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    for output in [&image, &link] {
        finish(tool("thin_dump").arg(&image).arg("-o").arg(output)).expect_code(1);
    }
    for line in ["thin_check IMAGE", "thin_check -m IMAGE", "thin_check --auto-repair IMAGE", "thin_dump IMAGE"] {
        run_line(line, &image).expect_code(0);
    }
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn a_read_only_image_with_nothing_to_clear_passes() {
    let (_folder, image) = metasnap();
    let mut permissions = fs::metadata(&image).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&image, permissions).unwrap();
    run_line("thin_check -q --clear-needs-check-flag IMAGE", &image).expect_code(0);
}

#[test]
fn paths_need_not_be_text() {
    let (folder, image) = metasnap();
    let odd = folder.path().join(OsString::from_vec(b"odd \xff\xfe".to_vec()));
    fs::copy(&image, &odd).unwrap();
    let output = folder.path().join(OsString::from_vec(b"out\xff".to_vec()));
    run("thin_check", [&odd]).expect_code(0);
    finish(tool("thin_dump").arg(&odd).arg("-o").arg(&output)).expect_code(0);
    assert!(output.exists());
}

#[test]
fn dash_is_a_file_for_binary_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tool("thin_check");
    finish(command.current_dir(folder.path()).arg("-")).expect_code(1);
}

#[test]
fn works_in_an_initramfs() {
    let (_folder, image) = metasnap();
    let mut command = Command::new(support::BINARY);
    command.env_clear().current_dir("/").args(["thin_check", "-q", "--clear-needs-check-flag"]).arg(&image);
    finish(&mut command).expect_code(0).expect("silence", |run| run.stderr.is_empty());
}

/// Every name of a member, at any depth.
fn member_names(value: &serde_json::Value, names: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, member) in members {
                names.insert(name.clone());
                // The members of this one are codes.
                if name != "finding_counts" {
                    member_names(member, names);
                }
            }
        }
        serde_json::Value::Array(members) => members.iter().for_each(|member| member_names(member, names)),
        _ => {}
    }
}

#[test]
fn json_is_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = raw_image("kernel/thin-snaps", folder.path());
    let shared = folder.path().join("shared");
    fs::copy(&damaged, &shared).unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[48 * 4096 + 100] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let (_folder, sound) = metasnap();
    for (run, document) in [
        (run_line("thin_check --json IMAGE", &damaged), include_str!("../docs/thin_check.json.md")),
        (run_line("thin_check --json IMAGE", &sound), include_str!("../docs/thin_check.json.md")),
        (run_line("thin_dump -f json IMAGE", &shared), include_str!("../docs/thin_dump.json.md")),
    ] {
        let value: serde_json::Value =
            serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}\n{run}"));
        let mut names = BTreeSet::new();
        member_names(&value, &mut names);
        let missing: Vec<_> = names.iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "not in the document: {missing:?}");
    }
}
