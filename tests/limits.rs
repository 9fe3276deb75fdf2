//! The largest and the scarcest: sizes up to what the format knows, and little of memory, room and streams.

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{BINARY, Run, finish, raw_image, run, tool};

/// Blocks of the largest metadata: 255 bitmaps.
const LARGEST: u64 = 255 * 16_320;

/// A file of holes.
fn sparse(folder: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn tool_on(name: &str, path: &Path, more: &[&str]) -> Run {
    finish(tool(name).arg(path).args(more))
}

fn restore(xml: &Path, image: &Path) -> Run {
    finish(tool("thin_restore").args([Path::new("-i"), xml, Path::new("-o"), image]))
}

fn dump(image: &Path) -> String {
    let run = tool_on("thin_dump", image, &[]);
    run.expect_code(0);
    run.stdout
}

/// Everything that there is is done to the pool in `image`, whose dump is `text`; `victim` is a device of it.
fn works(folder: &Path, image: &Path, text: &str, victim: &str) {
    let clean = |image: &Path| {
        tool_on("thin_check", image, &[]).expect_code(0).expect("clean", |run| run.stderr.contains("verdict: clean"));
    };
    clean(image);
    assert!(dump(image) == text);
    let (packed, other) = (folder.join("image.pack"), sparse(folder, "other", fs::metadata(image).unwrap().len()));
    finish(tool("thin_metadata_pack").args([Path::new("-i"), image, Path::new("-o"), &packed])).expect_code(0);
    assert!(dump(&packed) == text);
    finish(tool("thin_repair").args([Path::new("-i"), image, Path::new("-o"), &other])).expect_code(0);
    clean(&other);
    assert!(dump(&other) == text);
    tool_on("thin_delete", &other, &["--dev-id", victim]).expect_code(0);
    clean(&other);
    let left = dump(&other);
    assert!(!left.contains(&format!("dev_id=\"{victim}\"")));
    assert_eq!(left.matches("<device ").count() + 1, text.matches("<device ").count());
}

fn pool_xml(nr_data_blocks: u64, data_block: u64, dev_id: u64) -> String {
    format!(
        "<superblock uuid=\"\" time=\"0\" transaction=\"0\" flags=\"0\" version=\"2\" data_block_size=\"128\" \
         nr_data_blocks=\"{nr_data_blocks}\">\n\
         \x20 <device dev_id=\"1\" mapped_blocks=\"1\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">\n\
         \x20   <single_mapping origin_block=\"0\" data_block=\"0\" time=\"0\"/>\n\
         \x20 </device>\n\
         \x20 <device dev_id=\"{dev_id}\" mapped_blocks=\"2\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">\n\
         \x20   <single_mapping origin_block=\"5\" data_block=\"{data_block}\" time=\"0\"/>\n\
         \x20   <single_mapping origin_block=\"18446744073709551615\" data_block=\"7\" time=\"0\"/>\n\
         \x20 </device>\n\
         </superblock>\n"
    )
}

#[test]
fn the_largest_metadata_and_what_lies_beyond() {
    // What is past the largest size is not used: 16 GiB are 32,704 blocks more.
    for bytes in [LARGEST * 4096, (16 << 30) + 4096] {
        let folder = tempfile::tempdir().unwrap();
        let (image, xml) = (sparse(folder.path(), "image", bytes), folder.path().join("xml"));
        let text = pool_xml(1000, 999, 2);
        fs::write(&xml, &text).unwrap();
        restore(&xml, &image).expect_code(0);
        let superblock = read_block(&image);
        // The metadata space map's size, docs/format.md 4.1.
        assert_eq!(u64::from_le_bytes(superblock[192..200].try_into().unwrap()), LARGEST);
        works(folder.path(), &image, &text, "2");
    }
}

fn read_block(image: &Path) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut block = vec![0; 4096];
    File::open(image).unwrap().read_exact_at(&mut block, 0).unwrap();
    block
}

#[test]
fn a_large_data_device_and_the_highest_device_id() {
    // 6.4 PiB in blocks of 64 KiB, whose counts alone take 6,434 metadata blocks.
    let nr_data_blocks = 105_000_000;
    let folder = tempfile::tempdir().unwrap();
    let (image, xml) = (sparse(folder.path(), "image", 8000 * 4096), folder.path().join("xml"));
    let text = pool_xml(nr_data_blocks, nr_data_blocks - 1, (1 << 24) - 1);
    fs::write(&xml, &text).unwrap();
    restore(&xml, &image).expect_code(0);
    works(folder.path(), &image, &text, "16777215");
    // One more of either is too much.
    let before = fs::read(&image).unwrap();
    for wrong in [pool_xml(nr_data_blocks, 1, 1 << 24), pool_xml(nr_data_blocks, nr_data_blocks, 2)] {
        fs::write(&xml, wrong).unwrap();
        restore(&xml, &image)
            .expect_code(1)
            .expect("a place", |run| run.stderr.contains("line 5") || run.stderr.contains("line 6"));
        assert!(fs::read(&image).unwrap() == before);
    }
    // More data blocks than the metadata has room to count.
    fs::write(&xml, pool_xml(1 << 40, 1, 2)).unwrap();
    restore(&xml, &image).expect_code(1);
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn ten_thousand_devices() {
    let folder = tempfile::tempdir().unwrap();
    let image = sparse(folder.path(), "image", 40_000 * 4096);
    finish(tool("thin_generate_metadata").arg("-o").arg(&image).args(["--devices=10000", "--mappings=30"]))
        .expect_code(0);
    let text = dump(&image);
    assert_eq!(text.matches("<device ").count(), 10_000);
    works(folder.path(), &image, &text, "9999");
    // All but three.
    tool_on("thin_delete", &image, &["--keep", "1,5000,10000"]).expect_code(0);
    tool_on("thin_check", &image, &[]).expect_code(0);
    assert_eq!(dump(&image).matches("<device ").count(), 3);
}

/// Whatever is refused for want of memory is refused in words, and nothing ends by a signal.
#[test]
fn little_memory_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let image = sparse(folder.path(), "image", 3000 * 4096);
    let made = ["--devices=4", "--snapshots=3", "--mappings=60000"];
    finish(tool("thin_generate_metadata").arg("-o").arg(&image).args(made)).expect_code(0);
    let packed = folder.path().join("image.pack");
    finish(tool("thin_metadata_pack").args([Path::new("-i"), &image, Path::new("-o"), &packed])).expect_code(0);
    let (image, packed) = (image.display().to_string(), packed.display().to_string());
    let out = sparse(folder.path(), "out", 3000 * 4096).display().to_string();
    let lines = [
        format!("thin_check {image}"),
        format!("thin_check {packed}"),
        format!("thin_dump {image} -o /dev/null"),
        format!("thin_dump -r {image} -o /dev/null"),
        format!("thin_repair -i {image} -o {out}"),
        format!("thin_delete --dry-run --dev-id 1-3 {image}"),
        format!("thin_metadata_pack -f -i {image} -o {out}.pack"),
        format!("thin_metadata_unpack -f -i {packed} -o {out}.raw"),
        format!("thin_dump {image} | {BINARY} thin_restore -i - -o {out}"),
    ];
    let (mut done, mut refused) = (0, 0);
    for line in &lines {
        for kilobytes in [9000, 12_000, 16_000, 24_000, 40_000, 100_000] {
            let script = format!("ulimit -v {kilobytes}; {BINARY} {line}");
            let run = finish(Command::new("sh").args(["-c", &script]));
            // Where not even the libraries find room, the loader says it.
            let in_words = run.stderr.contains("memory") || run.stderr.contains("error while loading");
            run.expect("words, or all well", |run| {
                let well = run.code == Some(0);
                (well || in_words) && !run.stderr.contains("internal error")
            });
            if run.code == Some(0) { done += 1 } else { refused += 1 }
        }
    }
    assert!(done > 10 && refused > 5, "{done} and {refused}");
}

#[test]
fn a_closed_or_full_standard_output_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let image = raw_image("kernel/thin-snaps", folder.path()).display().to_string();
    let shell = |line: &str| finish(Command::new("sh").args(["-c", &format!("{BINARY} {line}")]));
    for line in ["thin_dump", "thin_dump -r", "thin_check --json", "thin_delete --dry-run --json --dev-id 1"] {
        for (stream, told) in [(">&-", "closed"), (">/dev/full", "No space left")] {
            let run = shell(&format!("{line} {image} {stream}"));
            run.expect_code(1).expect("why", |run| run.stderr.contains(told));
        }
        shell(&format!("{line} {image} >/dev/null")).expect_code(0);
    }
    // What is asked is the exit status: the two lines may get lost.
    for line in ["thin_check", "thin_check -q", "thin_check -q --clear-needs-check-flag"] {
        shell(&format!("{line} {image} >&-")).expect_code(0);
        shell(&format!("{line} {image} <&- >&- 2>&-")).expect_code(0);
    }
    // An error that nobody hears is one all the same.
    shell(&format!("thin_check {image}x >&- 2>&-")).expect_code(1);
}

#[test]
fn an_empty_environment_does() {
    let folder = tempfile::tempdir().unwrap();
    let image = raw_image("kernel/thin-snaps", folder.path());
    let bare = |name: &str| {
        let mut command = tool(name);
        command.env_clear().env("TMPDIR", "/nonexistent").current_dir("/");
        command
    };
    finish(bare("thin_check").arg(&image)).expect_code(0);
    let text = finish(bare("thin_dump").arg(&image));
    text.expect_code(0);
    let (xml, out) = (folder.path().join("xml"), sparse(folder.path(), "out", fs::metadata(&image).unwrap().len()));
    fs::write(&xml, &text.stdout).unwrap();
    finish(bare("thin_restore").args([Path::new("-i"), &xml, Path::new("-o"), &out])).expect_code(0);
    assert_eq!(dump(&out), text.stdout);
    finish(bare("thin_repair").args([Path::new("-i"), &image, Path::new("-o"), &out])).expect_code(0);
    finish(bare("thin_delete").args(["--dev-id", "1"]).arg(&out)).expect_code(0);
}

/// A file system of one MiB, where that is allowed.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Small> {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(folder.path()).output();
        if mount.is_ok_and(|done| done.status.success()) {
            return Some(Small(folder));
        }
        eprintln!("a small file system can't be mounted here: that part is left out");
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_file_system_is_told_and_leaves_nothing_that_looks_valid() {
    let Some(small) = Small::mount() else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = sparse(folder.path(), "image", 3000 * 4096);
    finish(tool("thin_generate_metadata").arg("-o").arg(&image).args(["--devices=2", "--mappings=100000"]))
        .expect_code(0);
    let (xml, packed) = (folder.path().join("xml"), folder.path().join("pack"));
    fs::write(&xml, dump(&image)).unwrap();
    finish(tool("thin_metadata_pack").args([Path::new("-i"), &image, Path::new("-o"), &packed])).expect_code(0);
    // Three MiB of nodes for a file that has no room for its holes.
    let full = |run: Run| {
        run.expect_code(1).expect("why", |run| run.stderr.contains("No space left"));
    };
    let out = sparse(small.0.path(), "out", 3000 * 4096);
    full(restore(&xml, &out));
    tool_on("thin_check", &out, &[]).expect_code(1);
    let out = sparse(small.0.path(), "out", 3000 * 4096);
    full(finish(tool("thin_repair").args([Path::new("-i"), &image, Path::new("-o"), &out])));
    tool_on("thin_check", &out, &[]).expect_code(1);
    fs::remove_file(&out).unwrap();
    full(finish(tool("thin_metadata_unpack").args([Path::new("-i"), &packed, Path::new("-o"), &out])));
    assert!(!out.exists(), "nothing is left");
    full(tool_on("thin_dump", &image, &["-o", &out.display().to_string()]));
    assert!(!out.exists() || fs::metadata(&out).unwrap().len() == 0);
    // The undo file does not fit: then nothing is changed.
    let before = fs::read(&image).unwrap();
    fs::write(small.0.path().join("ballast"), vec![1; 2 << 20]).unwrap_err();
    let undo = small.0.path().join("undo").display().to_string();
    full(tool_on("thin_delete", &image, &["--dev-id", "1", "--undo", &undo]));
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn what_may_not_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let image = raw_image("kernel/thin-snaps", folder.path());
    let loop_device = Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(&image).output();
    let Some(device) = loop_device.ok().filter(|done| done.status.success()) else {
        eprintln!("a read-only device can't be made here: left out");
        return;
    };
    let device = PathBuf::from(String::from_utf8(device.stdout).unwrap().trim());
    let before = fs::read(&image).unwrap();
    run("thin_check", [&device]).expect_code(0);
    let named = |run: &Run| run.stderr.contains(&device.display().to_string());
    tool_on("thin_delete", &device, &["--dev-id", "1"]).expect_code(1).expect("its name", named);
    finish(tool("thin_repair").args([Path::new("-i"), &image, Path::new("-o"), &device])).expect_code(1);
    let other = raw_image("kernel/thin-one", folder.path());
    finish(tool("thin_repair").args([Path::new("-i"), &other, Path::new("-o"), &device]))
        .expect_code(1)
        .expect("why", |run| run.stderr.contains("is read-only"));
    finish(tool("thin_generate_metadata").arg("--format").arg("-o").arg(&device))
        .expect_code(1)
        .expect("its name", named);
    assert!(fs::read(&image).unwrap() == before);
    Command::new("losetup").arg("--detach").arg(&device).status().unwrap();
}
