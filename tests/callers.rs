//! The programs that call the tools, with the very command lines that they use, on metadata that a kernel wrote.
//!
//! Each is run as they run it: by the name of a link, without an environment, and judged by what they look at.

mod support;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{BINARY, Run, finish, raw_image};
use tempfile::TempDir;

const SIGPIPE: i32 = 13;

/// A folder for one test, in which the words META, SPARE and XML of its lines are files.
struct Place(TempDir);

impl Place {
    /// META is the image of a case.
    fn of(case: &str) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        let image = raw_image(&format!("kernel/{case}"), place.0.path());
        fs::rename(image, place.path("META")).unwrap();
        place
    }

    /// The same, with a block of the data space map that cannot be read.
    fn damaged(case: &str) -> Place {
        let place = Place::of(case);
        place.call("thin_generate_damage --kind noise --target data-bitmap -o META").expect_code(0);
        place
    }

    /// SPARE becomes a volume of zeros, as large as META.
    fn make_spare(&self) {
        let length = fs::metadata(self.path("META")).unwrap().len();
        fs::File::create(self.path("SPARE")).unwrap().set_len(length).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The command of a line, in which '' is an empty argument.
    fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = Command::new(BINARY);
        command.arg0(Path::new("/usr/sbin").join(words.next().unwrap())).env_clear().current_dir("/");
        command.args(words.map(|word| match word {
            "META" | "SPARE" | "XML" => self.path(word).into_os_string(),
            "''" => OsString::new(),
            _ => word.into(),
        }));
        command
    }

    fn call(&self, line: &str) -> Run {
        finish(&mut self.command(line))
    }
}

#[track_caller]
fn silent(run: &Run) {
    run.expect("silence", |run| run.stdout.is_empty() && run.stderr.is_empty());
}

const ACTIVATION: &str = "thin_check -q --clear-needs-check-flag META";

#[test]
fn lvm_activates_a_sound_pool() {
    for case in
        ["thin-empty", "thin-one", "thin-snaps", "thin-metasnap", "thin-data-full", "thin-huge", "crash-thin-01"]
    {
        let place = Place::of(case);
        let before = place.bytes("META");
        silent(place.call(ACTIVATION).expect_code(0));
        assert!(place.bytes("META") == before, "{case}");
    }
}

#[test]
fn lvm_has_the_flag_cleared() {
    let place = Place::of("thin-needs-check");
    let before = place.bytes("META");
    silent(place.call(ACTIVATION).expect_code(0));
    let after = place.bytes("META");
    assert_eq!((before[4], after[4]), (1, 0));
    assert!(before[5..] == after[5..], "only the flag, and the checksum before it");
    // The check after deactivation finds nothing to do.
    silent(place.call(ACTIVATION).expect_code(0));
    assert!(place.bytes("META") == after);
}

#[test]
fn lvm_does_not_activate_a_damaged_pool() {
    let place = Place::damaged("thin-snaps");
    let before = place.bytes("META");
    // Status 2 would let it go on, as if there were no tool.
    silent(place.call(ACTIVATION).expect_code(1));
    place.call("thin_check -q --an-option-of-tomorrow META").expect_code(1);
    place.call("thin_check -q --clear-needs-check-flag /dev/mapper/no-such-pool_tmeta").expect_code(1);
    assert!(place.bytes("META") == before);
}

/// What `sscanf("%u.%u.%u")` makes of the first line.
fn version(text: &str) -> Vec<u32> {
    text.lines().next().unwrap().split('.').map(|number| number.parse().unwrap()).collect()
}

#[test]
fn lvm_asks_for_the_version() {
    let place = Place::of("thin-empty");
    for tool in dmeta::cli::registry::TOOLS {
        let run = place.call(&format!("{} -V", tool.name));
        run.expect_code(0).expect("nothing else", |run| run.stderr.is_empty() && run.stdout.lines().count() == 1);
        let version = version(&run.stdout);
        assert!(version.len() == 3 && version >= vec![1, 0, 0], "{run}");
    }
}

/// The transaction id as LVM reads it: from one line, after which it closes the pipe.
fn transaction_id(place: &Place, line: &str) -> (u64, std::process::ExitStatus) {
    let mut child = place.command(line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut reader = BufReader::with_capacity(64, child.stdout.take().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    drop(reader);
    let (_, behind) = first.split_once("transaction=\"").unwrap_or_else(|| panic!("no transaction id in {first}"));
    let id = behind.split('"').next().unwrap().parse().unwrap();
    (id, support::wait(&mut child, line))
}

#[test]
fn lvm_repairs_a_pool_and_reads_its_transaction_id() {
    for (case, options, id) in [("thin-needs-check", "''", 7), ("thin-snaps", "''", 0), ("thin-snaps", "", 0)] {
        let place = Place::damaged(case);
        place.make_spare();
        let before = place.bytes("META");
        place.call(ACTIVATION).expect_code(1);
        let repair = place.call(&format!("thin_repair {options} -i META -o SPARE"));
        repair.expect_code(0).expect("nothing on stdout", |run| run.stdout.is_empty());
        assert!(place.bytes("META") == before, "{case}");
        let (found, status) = transaction_id(&place, "thin_dump SPARE");
        assert_eq!(found, id, "{case}");
        assert!(status.success() || status.signal() == Some(SIGPIPE), "{case}: {status}");
        silent(place.call(ACTIVATION.replace("META", "SPARE").as_str()).expect_code(0));
        let sound = Place::of(case).call("thin_dump --flat META").stdout;
        let repaired = place.call("thin_dump --flat SPARE").stdout;
        assert!(mappings(&repaired) == mappings(&sound), "{case}");
        assert!(!mappings(&repaired).is_empty());
    }
}

/// Everything but the superblock.
fn mappings(dump: &str) -> Vec<&str> {
    dump.lines().skip(1).collect()
}

#[test]
fn lvm_makes_a_thin_volume_of_a_thick_one() {
    let place = Place::of("thin-empty");
    // As LVM writes it: indented by one, with no flags and no last newline, to a file that has no name any more.
    let xml = "<superblock uuid=\"\" time=\"1\" transaction=\"2\" version=\"2\" data_block_size=\"128\" nr_data_blocks=\"64\">\n \
               <device dev_id=\"1\" mapped_blocks=\"64\" transaction=\"1\" creation_time=\"0\" snap_time=\"1\">\n  \
               <range_mapping origin_begin=\"0\" data_begin=\"0\" length=\"64\" time=\"1\"/>\n </device>\n</superblock>";
    let mut unlinked = tempfile::tempfile().unwrap();
    unlinked.write_all(xml.as_bytes()).unwrap();
    let source = format!("/proc/{}/fd/{}", std::process::id(), unlinked.as_raw_fd());
    place.make_spare();
    silent(place.call(&format!("thin_restore -i {source} -o SPARE")).expect_code(0));
    silent(place.call("thin_check -q --clear-needs-check-flag SPARE").expect_code(0));
    assert_eq!(transaction_id(&place, "thin_dump SPARE").0, 2);
    let dump = place.call("thin_dump SPARE");
    let wanted = "<range_mapping origin_begin=\"0\" data_begin=\"0\" length=\"64\" time=\"1\"/>";
    dump.expect_code(0).expect(wanted, |run| run.stdout.contains(wanted));
}

#[test]
fn stratisd_checks_and_repairs_to_a_spare() {
    let sound = Place::of("thin-snaps");
    sound.call("thin_check META").expect_code(0);
    let place = Place::damaged("thin-snaps");
    place.make_spare();
    // What is printed goes to its log.
    place.call("thin_check META").expect_code(1).expect("a reason", |run| !run.stderr.is_empty());
    place.call("thin_repair -i META -o SPARE").expect_code(0);
    place.call("thin_check SPARE").expect_code(0);
}

#[test]
fn stratisd_lets_the_check_repair() {
    let place = Place::of("thin-snaps");
    let before = place.bytes("META");
    place
        .call("thin_generate_damage --create-metadata-leaks --expected 0 --actual 1 --nr-blocks 5 -o META")
        .expect_code(0);
    place.call("thin_check META").expect_code(1);
    place.call("thin_check --auto-repair META").expect_code(0);
    place.call("thin_check META").expect_code(0);
    assert_eq!(place.bytes("META").len(), before.len());
    let damaged = Place::damaged("thin-snaps");
    let before = damaged.bytes("META");
    damaged.call("thin_check --auto-repair META").expect_code(1).expect("a reason", |run| !run.stderr.is_empty());
    assert!(damaged.bytes("META") == before);
}

#[test]
fn an_initramfs_gets_one_file_and_links_to_it() {
    let place = Place::of("thin-needs-check");
    let tools = place.path("usr/sbin");
    fs::create_dir_all(&tools).unwrap();
    fs::copy(BINARY, tools.join("pdata_tools")).unwrap();
    for name in ["thin_check", "thin_dump", "thin_repair", "thin_restore"] {
        symlink("pdata_tools", tools.join(name)).unwrap();
    }
    // No environment, and nothing to write to but the metadata.
    let call = |name: &str, arguments: &[&OsStr]| {
        let mut command = Command::new(tools.join(name));
        finish(command.env_clear().current_dir("/proc").args(arguments)).expect_code(0);
    };
    let meta = place.path("META");
    call("thin_check", &["-q".as_ref(), "--clear-needs-check-flag".as_ref(), meta.as_ref()]);
    call("pdata_tools", &["thin_check".as_ref(), meta.as_ref()]);
    for name in ["thin_dump", "thin_repair", "thin_restore"] {
        call(name, &["--help".as_ref()]);
    }
    assert_eq!(place.bytes("META")[4], 0);
}

/// The tag of a line and the names of its attributes, in their order.
fn tokens(line: &str) -> (&str, Vec<&str>) {
    let inner = line.trim_start().strip_prefix('<').unwrap().trim_end_matches(['>', '/']);
    let (tag, attributes) = inner.split_once(' ').unwrap_or((inner, ""));
    (tag, attributes.split_whitespace().map(|word| word.split_once("=\"").unwrap().0).collect())
}

#[test]
fn thin_send_recv_reads_one_device_token_by_token() {
    let place = Place::of("thin-metasnap");
    let run = place.call("thin_dump -m --dev-id 1 META");
    run.expect_code(0).expect("no word", |run| run.stderr.is_empty());
    let mut lines = run.stdout.lines().filter(|line| !line.trim_start().starts_with("</"));
    let superblock = "uuid time transaction flags version data_block_size nr_data_blocks";
    assert_eq!(tokens(lines.next().unwrap()), ("superblock", superblock.split(' ').collect()));
    let device = "dev_id mapped_blocks transaction creation_time snap_time";
    assert_eq!(tokens(lines.next().unwrap()), ("device", device.split(' ').collect()));
    let mut blocks = 0;
    for line in lines {
        blocks += 1;
        assert!(line.ends_with("/>"), "{line}");
        let wanted = match tokens(line).0 {
            "single_mapping" => "origin_block data_block time",
            "range_mapping" => "origin_begin data_begin length time",
            other => panic!("<{other}>"),
        };
        assert_eq!(tokens(line).1, wanted.split(' ').collect::<Vec<_>>());
    }
    assert!(blocks >= 900, "{run}");
}

#[test]
fn backups_read_the_held_snapshot() {
    let place = Place::of("thin-metasnap");
    let snapshot = place.call("thin_dump -f xml META -m 183");
    snapshot.expect_code(0).expect("the number is 0 there", |run| run.stdout.contains(" nr_data_blocks=\"0\">"));
    let plain = place.call("thin_dump -m META");
    assert!(plain.stdout == snapshot.stdout);
    assert!(place.call("thin_dump META").stdout != snapshot.stdout);
    // A device that the snapshot does not have is only left out, as it always was.
    let none = place.call("thin_dump -m --dev-id 4711 META");
    none.expect_code(0).expect("no device", |run| !run.stdout.contains("<device"));
    let without = Place::of("thin-snaps");
    without.call("thin_dump -m --dev-id 1 META").expect_code(1).expect("nothing to read", |run| run.stdout.is_empty());
}

#[test]
fn people_dump_repair_and_restore_by_hand() {
    let place = Place::damaged("thin-snaps");
    let sound = Place::of("thin-snaps").call("thin_dump --flat META").stdout;
    place.call("thin_check META").expect_code(1);
    let dump = place.call("thin_dump --repair META");
    dump.expect_code(0);
    fs::write(place.path("XML"), &dump.stdout).unwrap();
    place.call("thin_dump --repair META -o SPARE").expect_code(0);
    assert!(place.bytes("SPARE") == dump.stdout.as_bytes());
    // Back to where the damage is, as the guides say.
    place.call("thin_restore -i XML -o META").expect_code(0);
    silent(place.call(ACTIVATION).expect_code(0));
    assert!(place.call("thin_dump --flat META").stdout == sound);
}
