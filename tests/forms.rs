//! A dump is the same whatever the form of the metadata and the number of threads, and says the same in all its forms.

mod support;

use dmeta::base::NoProgress;
use dmeta::thin::dump::{DumpOptions, dump};
use std::ffi::OsStr;
use std::path::Path;
use support::pool_text::PoolText;
use support::{cases, memory_image, run};

/// Standard output of thin_dump, which must succeed.
#[track_caller]
fn dump_of(image: &Path, options: &[&str]) -> String {
    let run = run("thin_dump", options.iter().map(OsStr::new).chain([image.as_os_str()]));
    run.expect_code(0);
    run.stdout
}

#[test]
fn the_number_of_threads_does_not_show() {
    for case in cases::pools() {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        for options in [&[][..], &["--flat"], &["-f", "json"], &["-f", "human_readable", "--dev-id", "0-3"]] {
            if options.contains(&"--dev-id") && !(0..=3).any(|id| case.thins().contains_key(&id)) {
                continue;
            }
            let one = dump_of(&image, &[options, &["--threads", "1"]].concat());
            for threads in ["2", "7"] {
                let more = dump_of(&image, &[options, &["--threads", threads]].concat());
                assert!(one == more, "{}: {options:?} with {threads} threads", case.name);
            }
        }
    }
}

#[test]
fn checks_say_the_same_with_any_number_of_threads() {
    for case in cases::pools() {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        let reports = ["1", "2", "7"].map(|threads| {
            run("thin_check", ["--json", "--threads", threads].map(OsStr::new).into_iter().chain([image.as_os_str()]))
        });
        assert!(!reports[0].stdout.is_empty());
        for report in &reports[1..] {
            assert_eq!((&report.stdout, report.code), (&reports[0].stdout, reports[0].code), "{}", case.name);
        }
    }
}

#[test]
fn the_form_of_the_metadata_does_not_show() {
    for case in cases::pools() {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        let raw = dump_of(&image, &[]);
        let mut from_memory = Vec::new();
        dump(&memory_image(&image), &DumpOptions::default(), &mut from_memory, &NoProgress).unwrap();
        assert!(raw.as_bytes() == from_memory, "{}", case.name);
    }
}

#[test]
fn all_forms_of_a_dump_say_the_same() {
    for case in cases::pools() {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        let mut variants = vec![&[][..], &["--flat"], &["--skip-mappings"]];
        variants.extend(case.held_root().map(|_| &["-m"][..]));
        for options in variants {
            let xml = PoolText::from_xml(&dump_of(&image, options));
            let human = PoolText::from_human_readable(&dump_of(&image, &[options, &["-f", "human_readable"]].concat()));
            let json = PoolText::from_json(&dump_of(&image, &[options, &["-f", "json"]].concat()));
            assert!(xml == human, "{}: {options:?}, human_readable", case.name);
            assert!(xml == json, "{}: {options:?}, json", case.name);
            assert!(!xml.devices.is_empty() || case.thins().is_empty(), "{}", case.name);
        }
        let flat = PoolText::from_xml(&dump_of(&image, &["--flat"]));
        let shared = PoolText::from_xml(&dump_of(&image, &[]));
        assert!(flat.defs.is_empty());
        for (flat_device, device) in flat.devices.iter().zip(&shared.devices) {
            assert_eq!(flat_device.details, device.details);
            assert!(flat.mappings(flat_device) == shared.mappings(device), "{}: {}", case.name, device.id());
        }
    }
}

#[test]
fn sharing_is_kept() {
    let case = cases::pools().find(|case| case.name == "thin-snaps").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = case.image(folder.path());
    let shared = PoolText::from_xml(&dump_of(&image, &[]));
    // Devices 1, 20, 21 and 22 share one whole tree: each is one reference to the same run.
    let items = |id| &shared.devices.iter().find(|device| device.id() == id).unwrap().items;
    assert_eq!(items(1).len(), 1);
    for id in [20, 21, 22] {
        assert_eq!(items(id), items(1));
    }
    let names: Vec<u64> = shared.defs.iter().map(|(name, _)| name.parse().unwrap()).collect();
    assert!(names.len() > 1 && names.is_sorted());
}
