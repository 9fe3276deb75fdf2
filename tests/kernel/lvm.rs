//! LVM on top of the tools: it runs thin_check and thin_repair itself, and goes on with a pool that thin_delete changed as
//! docs/thin_delete.md says.

use crate::accept::make_file;
use crate::guest::Guest;
use crate::lab::lab;

#[test]
fn lvm_goes_on_with_what_the_tools_did() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    make_file(&disk, 256 << 20);
    let mut guest = Guest::new(lab, "lvm");
    guest.disk(&disk);
    let outcome = guest.run_to_end();
    let steps: Vec<&str> = outcome.lines("step").collect();
    let wanted = [
        "snapshots made",
        "activated with thin_check",
        "deleted",
        "activated without the deleted",
        "the survivors read as before",
        "a new snapshot, and one removed",
        "refused with damage",
        "repaired",
        "activated after the repair",
        "read-only while a check is asked for",
        "cleared by the check of the activation",
        "cleared by the repair",
    ];
    assert_eq!(steps, wanted, "\n{outcome}");
}
