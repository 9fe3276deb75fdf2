//! The kernel takes what was changed in place: pools without some devices, and pools that were mended.

use crate::accept::{Pool, accepted, make_file, openable, stamped, succeeds};
use crate::lab::lab;
use crate::support::cases;
use std::fs;

#[test]
fn what_delete_left() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut pools = Vec::new();
    let alike = |name: &str| name.starts_with("crash-thin-0") && name != "crash-thin-09";
    for case in openable().filter(|case| case.fact("verdict") == "clean" && !alike(&case.name)) {
        // Every other device.
        let ids: Vec<String> = case.thins().keys().step_by(2).map(u64::to_string).collect();
        if ids.is_empty() {
            continue;
        }
        let image = case.image(folder.path());
        let (kept, strategy) =
            (case.thins().len() - ids.len(), if ids.len().is_multiple_of(2) { "drop" } else { "recount" });
        succeeds(&format!("thin_delete -q --strategy {strategy} --dev-id {} $1", ids.join(",")), &[&image]);
        let pool = Pool::as_checked(case.name.clone(), image);
        assert_eq!(pool.devices.len(), kept, "{}", case.name);
        pools.push(pool);
    }
    assert!(pools.len() >= 10);

    let case = cases::pools().find(|case| case.name == "thin-stamped").unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    let mut pool = stamped("stamped-deleted", case.image(&own));
    let gone = *pool.devices.keys().next().unwrap();
    succeeds(&format!("thin_delete -q --dev-id {gone} $1"), &[&pool.metadata]);
    pool.devices.remove(&gone);
    pool.data.as_mut().unwrap().1.remove(&gone);
    assert!(!pool.devices.is_empty());
    pools.push(pool);
    accepted(lab, &pools);
}

#[test]
fn what_was_mended() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut pools = Vec::new();
    for (name, damage, mend) in [
        ("leaks", "--create-metadata-leaks --expected 0 --actual 1 --nr-blocks 16", "thin_check -q --auto-repair $1"),
        ("counts", "--kind wrong-count --target data-bitmap --reseal", "thin_check -q --repair-space-maps $1"),
        ("bitmap", "--kind noise --target metadata-bitmap", "thin_check -q --repair-space-maps $1"),
    ] {
        let metadata = folder.path().join(name);
        make_file(&metadata, 16 << 20);
        succeeds("thin_generate_metadata -q --devices 3 --snapshots 2 --mappings 20000 -o $1", &[&metadata]);
        succeeds(&format!("thin_generate_damage {damage} -o $1"), &[&metadata]);
        succeeds(mend, &[&metadata]);
        pools.push(Pool::as_checked(name.into(), metadata));
    }
    accepted(lab, &pools);
}
