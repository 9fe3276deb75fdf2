//! Sectors that cannot be read or written, below a device-mapper device: findings or errors, and nothing half done.

use crate::accept::{make_file, succeeds};
use crate::guest::Guest;
use crate::lab::lab;
use crate::support::cases;
use crate::support::run;
use dmeta::base::random::Random;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

#[test]
fn are_findings_or_errors() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let case = cases::pools().find(|case| case.name == "thin-snaps").unwrap();
    let metadata = case.image(folder.path());
    let (spare, xml, copy) = (folder.path().join("spare"), folder.path().join("xml"), folder.path().join("copy"));
    make_file(&spare, fs::metadata(&metadata).unwrap().len());
    succeeds("thin_dump -o $1 $2", &[&xml, &metadata]);
    let nr_used = case.metadata_in_use();
    let mut random = Random::new(6);
    let blocks: BTreeSet<u64> = (0..3).chain((0..9).map(|_| random.below(nr_used + 20))).collect();
    let devices: Vec<u64> = case.thins().into_keys().collect();

    let mut guest = Guest::new(lab, "bad_sectors");
    guest.disk(&metadata);
    guest.disk(&spare);
    guest.set("BLOCKS", blocks.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    // No such device: the tool has to read everything, and must not change anything.
    guest.set("DEVICE", devices.last().unwrap() + 1);
    guest.set("LAST", devices.last().unwrap());
    guest.file("xml", &fs::read(&xml).unwrap());
    let outcome = guest.run_to_end();

    let status = |line: String| outcome.lines(&line).next().unwrap_or_else(|| panic!("{line}?\n{outcome}")).to_string();
    for block in &blocks {
        fs::copy(&metadata, &copy).unwrap();
        File::options().write(true).open(&copy).unwrap().write_all_at(&[0x5a; 4096], block * 4096).unwrap();
        let matters = run("thin_check", ["-q".as_ref(), copy.as_os_str()]).code.unwrap().to_string();
        assert_eq!(status(format!("read {block} thin_check")), matters, "block {block}\n{outcome}");
        let dumped =
            run("thin_dump", ["-o".as_ref(), "/dev/null".as_ref(), copy.as_os_str()]).code.unwrap().to_string();
        assert_eq!(status(format!("read {block} thin_dump")), dumped, "block {block}\n{outcome}");
        for tool in ["thin_repair", "thin_metadata_pack"] {
            assert!(["0", "1"].contains(&&*status(format!("read {block} {tool}"))), "block {block}\n{outcome}");
        }
        assert_eq!(status(format!("read {block} thin_delete")), "1");
        assert_eq!(status(format!("check {block}")), "0", "\n{outcome}");
    }
    for what in ["write all thin_delete", "write all thin_restore", "read none thin_check", "read none thin_dump"] {
        assert_eq!(status(what.into()), "1", "{what}\n{outcome}");
    }
    for tool in ["thin_delete", "thin_restore"] {
        assert_eq!(status(format!("write readonly {tool}")), "1");
    }
    assert_eq!(status("check all".into()), "0", "\n{outcome}");
    let dump = run("thin_dump", [metadata.as_os_str()]);
    assert!(dump.stdout == fs::read_to_string(&xml).unwrap(), "the metadata is not what it was\n{outcome}");
}
