//! `thin_restore` from the command line, and that what it writes is what was dumped.

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Run, cases, finish, peer, run, tool};

/// A file of so many blocks, full of bytes that mean nothing.
fn output(folder: &Path, blocks: usize) -> PathBuf {
    let path = folder.join("out.img");
    fs::write(&path, vec![0xa5; blocks * 4096]).unwrap();
    path
}

fn restore(input: &Path, output: &Path, more: &[&str]) -> Run {
    let words = [Path::new("-i"), input, Path::new("-o"), output];
    finish(tool("thin_restore").args(words).args(more))
}

fn dump(image: &Path, more: &[&str]) -> String {
    let run = finish(tool("thin_dump").arg(image).args(more));
    run.expect_code(0);
    run.stdout
}

/// What is restored needs no check.
fn without_flag(text: &str) -> String {
    text.replacen(" flags=\"1\"", " flags=\"0\"", 1)
}

#[test]
fn what_a_kernel_wrote_comes_back() {
    let theirs = peer("thin_check");
    if theirs.is_none() {
        eprintln!("the distribution's thin_check is not installed: its opinion is left out");
    }
    for case in cases::pools() {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        let blocks = fs::metadata(&image).unwrap().len() as usize / 4096;
        let xml = folder.path().join("dump.xml");
        let text = dump(&image, &[]);
        fs::write(&xml, &text).unwrap();
        let out = output(folder.path(), blocks);
        let restored = restore(&xml, &out, &[]);
        restored.expect_code(0).expect("no words on standard output", |run| run.stdout.is_empty());
        let flagged = text.contains(" flags=\"1\"");
        restored.expect("a word on needs_check, and no other", |run| {
            run.stderr.contains("needs_check") == flagged && run.stderr.contains("warning") == flagged
        });
        run("thin_check", [&out]).expect_code(0).expect("a clean pool", |run| run.stderr.contains("clean"));
        assert!(dump(&out, &[]) == without_flag(&text), "{}", case.name);
        if let Some(program) = &theirs {
            finish(Command::new(program).arg(&out)).expect_code(0);
        }
    }
}

#[test]
fn what_was_made_up_comes_back() {
    let snapshots = ["--devices=3", "--snapshots=6", "--mappings=3000"];
    let forms: [&[&str]; 6] = [
        &["--run-length=1", "--leaf-fill=100"],
        &["--run-length=40", "--leaf-fill=51"],
        &["--run-length=3", "--leaf-fill=34-90", "--change=20"],
        &["--run-length=2", "--leaf-fill=50-100", "--change=1"],
        &["--run-length=500", "--change=50"],
        &["--leaf-fill=60", "--change=30", "--metadata-snapshot"],
    ];
    for (seed, form) in (1..).zip(forms) {
        let folder = tempfile::tempdir().unwrap();
        let image = output(folder.path(), 1500);
        let made = [Path::new("-o"), &image];
        finish(tool("thin_generate_metadata").args(made).args(snapshots).args(form).arg(format!("--seed={seed}")))
            .expect_code(0);
        let (xml, text) = (folder.path().join("dump.xml"), dump(&image, &[]));
        assert!(text.contains("<ref"), "{form:?}");
        fs::write(&xml, &text).unwrap();
        // In place of the pool that it was made from.
        restore(&xml, &image, &[]).expect_code(0);
        let again = dump(&image, &[]);
        assert!(again == text, "{form:?}\n{}", first_difference(&again, &text));
        run("thin_check", [&image]).expect_code(0);
    }
}

fn first_difference(left: &str, right: &str) -> String {
    let mut pairs = left.lines().zip(right.lines()).enumerate();
    pairs.find(|(_, (left, right))| left != right).map_or("another length".into(), |pair| format!("{pair:?}"))
}

#[test]
fn a_uuid_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (xml, image) = (folder.path().join("in.xml"), output(folder.path(), 20));
    for uuid in ["pool &lt;1&gt; &amp; 2", "12345678-9abc-def0-0001-0203040506ff", ""] {
        let text = POOL.replacen("uuid=\"\"", &format!("uuid=\"{uuid}\""), 1);
        fs::write(&xml, &text).unwrap();
        restore(&xml, &image, &[]).expect_code(0).expect("no warning", |run| run.stderr.is_empty());
        let first = |text: &str| text.lines().next().unwrap_or_default().replace(" flags=\"0\"", "");
        assert_eq!(first(&dump(&image, &[])), first(&text));
        // A repair keeps it too.
        let repaired = folder.path().join("repaired.img");
        fs::write(&repaired, vec![0; 20 * 4096]).unwrap();
        finish(tool("thin_repair").args([Path::new("-i"), &image, Path::new("-o"), &repaired])).expect_code(0);
        assert_eq!(first(&dump(&repaired, &[])), first(&text));
    }
    fs::write(&xml, POOL.replacen("uuid=\"\"", "uuid=\"too long for a superblock\"", 1)).unwrap();
    restore(&xml, &image, &[]).expect_code(0).expect("a warning", |run| run.stderr.contains("the uuid is not written"));
    assert!(dump(&image, &[]).starts_with("<superblock uuid=\"\""));
}

const POOL: &str = r#"<superblock uuid="" time="1" transaction="5" version="2" data_block_size="128" nr_data_blocks="400">
 <device dev_id="1" mapped_blocks="3" transaction="0" creation_time="0" snap_time="0">
  <range_mapping origin_begin="0" data_begin="0" length="2" time="0"/>
  <single_mapping origin_block="7" data_block="9" time="1"/>
 </device>
</superblock>"#;

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_way_in_gives_the_same_image() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("pool.xml");
    fs::write(&plain, POOL).unwrap();
    let out = output(folder.path(), 20);
    restore(&plain, &out, &[]).expect_code(0).expect("silence", |run| run.stderr.is_empty() && run.stdout.is_empty());
    let image = fs::read(&out).unwrap();

    let compressed = folder.path().join("pool.xml.gz");
    fs::write(&compressed, gzip(POOL)).unwrap();
    output(folder.path(), 20);
    restore(&compressed, &out, &["-q"]).expect_code(0);
    assert!(fs::read(&out).unwrap() == image);

    // As a volume manager does it: an unlinked file, by its descriptor.
    let mut unlinked = tempfile::tempfile().unwrap();
    unlinked.write_all(POOL.as_bytes()).unwrap();
    output(folder.path(), 20);
    let descriptor = format!("/proc/{}/fd/{}", std::process::id(), unlinked.as_raw_fd());
    restore(Path::new(&descriptor), &out, &[]).expect_code(0);
    assert!(fs::read(&out).unwrap() == image);

    for text in [POOL.as_bytes().to_vec(), gzip(POOL)] {
        output(folder.path(), 20);
        let mut command = tool("thin_restore");
        let mut child = command.args(["-i", "-", "-o"]).arg(&out).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&text).unwrap();
        assert!(support::wait(&mut child, "thin_restore -i -").success());
        assert!(fs::read(&out).unwrap() == image);
    }
    output(folder.path(), 20);
    let mut command = tool("thin_restore");
    let mut child = command.args(["-i", "-", "-o"]).arg(&out).stdin(File::open(&plain).unwrap()).spawn().unwrap();
    assert!(support::wait(&mut child, "thin_restore -i - < file").success());
    assert!(fs::read(&out).unwrap() == image);
}

#[test]
fn an_output_that_will_not_do_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let xml = folder.path().join("pool.xml");
    fs::write(&xml, POOL).unwrap();
    let refused = |output: &Path, words: &str| {
        restore(&xml, output, &[]).expect_code(1).expect(words, |run| run.stderr.contains(words));
    };
    let absent = folder.path().join("absent");
    refused(&absent, "couldn't find output file");
    assert!(!absent.exists());
    refused(folder.path(), "invalid output file");
    refused(Path::new("/dev/null"), "invalid output file");
    refused(&output(folder.path(), 9), "output file too small");
    // Three data bitmaps more than fit.
    let large = folder.path().join("large.xml");
    fs::write(&large, POOL.replace("\"400\"", "\"65000\"")).unwrap();
    let out = output(folder.path(), 11);
    let run = restore(&large, &out, &[]);
    run.expect_code(1)
        .expect("how many blocks", |run| run.stderr.contains("13 metadata blocks are needed, there are 11"));
    assert!(fs::read(&out).unwrap().iter().all(|byte| *byte == 0xa5));

    let padded = folder.path().join("padded.xml");
    fs::write(&padded, format!("{POOL}{}", " ".repeat(50_000))).unwrap();
    restore(&padded, &padded, &[]).expect_code(1).expect("why", |run| run.stderr.contains("the same"));
    let locked = output(folder.path(), 20);
    let file = File::open(&locked).unwrap();
    file.lock().unwrap();
    refused(&locked, "in use");
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let xml = folder.path().join("pool.xml");
    for (from, to, words) in [
        ("\"9\"", "\"400\"", "line 4, column 3: virtual block 7 of device 1 is mapped to data block 400"),
        ("\"7\"", "\"1\"", "line 4, column 3: virtual block 1 comes after block 1 of device 1"),
        ("time=\"1\"/>", "time=\"1\" colour=\"red\"/>", "line 4, column 3: unknown attribute 'colour'"),
        (" </device>\n</superblock>", "", "line 5, column 1: the document ends inside"),
        ("dev_id=\"1\"", "dev_id=\"16777216\"", "line 2, column 2: device id 16777216"),
        ("\"128\"", "\"100\"", "line 1, column 1: invalid data block size 100"),
        ("version=\"2\"", "version=\"3\"", "line 1, column 1: metadata version 3 is not supported"),
    ] {
        fs::write(&xml, POOL.replace(from, to)).unwrap();
        let out = output(folder.path(), 20);
        restore(&xml, &out, &[]).expect_code(1).expect(words, |run| run.stderr.contains(words));
        restore(&xml, &out, &["-q"]).expect_code(1).expect("silence", |run| run.stderr.is_empty());
        assert!(fs::read(&out).unwrap().iter().all(|byte| *byte == 0xa5));
    }
    let image = folder.path().join("pool.img");
    fs::write(&image, vec![0; 50_000]).unwrap();
    let binary = restore(&image, &output(folder.path(), 20), &[]);
    binary.expect_code(1).expect("what it is", |run| run.stderr.contains("not XML but binary data"));
}

#[test]
fn options_change_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let xml = folder.path().join("pool.xml");
    fs::write(
        &xml,
        POOL.replace("dev_id", "colour=\"red\" dev_id").replace("mapped_blocks=\"3\"", "mapped_blocks=\"4\""),
    )
    .unwrap();
    let out = output(folder.path(), 20);
    let options =
        ["--lenient", "--transaction-id", "77", "--data-block-size=1024", "--nr-data-blocks", "10", "-v", "-v"];
    let run = restore(&xml, &out, &options);
    run.expect_code(0)
        .expect("the recount", |run| run.stderr.contains("device 1 says that it has 4 mappings, and has 3"));
    let first = dump(&out, &[]);
    let line = "<superblock uuid=\"\" time=\"1\" transaction=\"77\" flags=\"0\" version=\"2\" data_block_size=\"1024\" \
                nr_data_blocks=\"10\">\n";
    assert!(first.starts_with(line), "{first}");
    assert!(first.contains("mapped_blocks=\"3\""));
}

const HEAD: &str = "<superblock uuid=\"\" time=\"0\" transaction=\"0\" version=\"2\" data_block_size=\"128\" nr_data_blocks=\"100\">\n";

/// A document with one device, of these mappings.
fn one_device(attributes: &str, mappings: &str) -> String {
    format!(
        "{HEAD}<device {attributes} mapped_blocks=\"1\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">\n\
         {mappings}</device>\n</superblock>\n"
    )
}

#[test]
fn what_other_tools_tolerate_is_taken_and_what_is_no_xml_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (xml, out) = (folder.path().join("in.xml"), output(folder.path(), 100));
    let single = "<single_mapping origin_block=\"3\" data_block=\"7\" time=\"0\"/>\n";
    let empty = "<range_mapping origin_begin=\"1\" data_begin=\"1\" length=\"0\" time=\"0\"/>\n";
    let odd_empty = "<range_mapping length='0' origin_begin='1' data_begin='1' time='0'/>\n";
    let plain = one_device("dev_id=\"1\"", single);
    for (text, warning) in [
        (plain.clone(), None),
        (one_device("dev_id=\"+1\"", single), None),
        (one_device("dev_id=\"1\"", &format!("{empty}{single}")), Some("1 range of length 0 is left out")),
        (one_device("dev_id=\"1\"", &format!("{odd_empty}{single}{empty}")), Some("2 ranges of length 0 are left out")),
    ] {
        for piped in [false, true] {
            fs::write(&xml, &text).unwrap();
            let restored = if piped { restore_piped(&text, &out) } else { restore(&xml, &out, &[]) };
            restored.expect_code(0).expect("a warning or none", |run| match warning {
                Some(warning) => run.stderr.contains(warning),
                None => run.stderr.is_empty(),
            });
            let expected = single.trim_end();
            let dumped = dump(&out, &[]);
            assert!(
                dumped.contains("<device dev_id=\"1\" mapped_blocks=\"1\"") && dumped.contains(expected),
                "{dumped}"
            );
        }
    }
    let before = fs::read(&out).unwrap();
    for (text, words) in [
        (plain.replace("uuid=\"\"", "uuid=\"a<b\""), "attribute 'uuid' of 'superblock' holds '<'"),
        (plain.replace("uuid=\"\"", "uuid=\"a\0b\""), "attribute 'uuid' of 'superblock' holds a NUL"),
        (one_device("dev_id=\"1\" x=\"<\"", single), "attribute 'x' of 'device' holds '<'"),
    ] {
        for more in [&[][..], &["--lenient"]] {
            fs::write(&xml, &text).unwrap();
            restore(&xml, &out, more).expect_code(1).expect(words, |run| run.stderr.contains(words));
        }
    }
    assert!(fs::read(&out).unwrap() == before);
}

fn restore_piped(text: &str, output: &Path) -> Run {
    let input = output.with_extension("piped");
    fs::write(&input, text).unwrap();
    let (input, binary, output) = (input.display(), support::BINARY, output.display());
    finish(Command::new("sh").arg("-c").arg(format!("cat '{input}' | '{binary}' thin_restore -i - -o '{output}'")))
}

#[test]
fn an_input_that_is_cut_off_is_told_with_the_place_and_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let out = output(folder.path(), 100);
    let before = fs::read(&out).unwrap();
    let mappings: String = (0..3000u64)
        .map(|at| format!("<single_mapping origin_block=\"{at}\" data_block=\"{}\" time=\"0\"/>\n", at * 7919 % 100))
        .collect();
    let xml = folder.path().join("whole.xml");
    fs::write(&xml, one_device("dev_id=\"1\"", &mappings)).unwrap();
    let cut = |command: &str, keep: u64| {
        let path = folder.path().join("cut.xml.gz");
        let script = format!("{command} < '{}' > '{}'", xml.display(), path.display());
        let made = Command::new("sh").arg("-c").arg(script).status().is_ok_and(|status| status.success());
        let length = fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(length * keep / 100).unwrap();
        made.then_some(path)
    };
    for command in ["gzip -c", "xz -c", "zstd -c"] {
        for keep in [30, 60, 99] {
            let Some(path) = cut(command, keep) else { continue };
            restore(&path, &out, &[])
                .expect_code(1)
                .expect("place and next step", |run| run.stderr.contains("line ") && run.stderr.contains("cut off"));
        }
    }
    let empty = folder.path().join("empty.xml");
    fs::write(&empty, "").unwrap();
    restore(&empty, &out, &[]).expect_code(1).expect("the next step", |run| {
        run.stderr.contains("is empty") && run.stderr.contains("again") && !run.stderr.contains("superblock of 4096")
    });
    restore_piped("", &out).expect_code(1).expect("the next step", |run| run.stderr.contains("make the dump again"));
    assert!(fs::read(&out).unwrap() == before);
}
