//! A dump is the same whatever the form of the metadata and the number of threads, and says the same in all its forms.

mod support;

use dmeta::base::NoProgress;
use dmeta::pack;
use dmeta::thin::dump::{DumpOptions, dump};
use flate2::write::GzEncoder;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
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

/// The same metadata in every form that a tool takes.
fn all_forms(raw: &Path) -> Vec<PathBuf> {
    let image = memory_image(raw);
    let mut packed = Vec::new();
    pack::encode(&image, &mut packed, 2).unwrap();
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let (packed_gzip, raw_gzip) = (gzip(&packed), gzip(&fs::read(raw).unwrap()));
    let form = |extension: &str, bytes: Vec<u8>| {
        let path = raw.with_extension(extension);
        fs::write(&path, bytes).unwrap();
        path
    };
    vec![raw.into(), form("pack", packed), form("pack.gz", packed_gzip), form("img.gz", raw_gzip)]
}

#[test]
fn the_form_of_the_metadata_does_not_show() {
    for case in cases::pools() {
        let folder = tempfile::tempdir().unwrap();
        let raw = case.image(folder.path());
        let mut from_memory = Vec::new();
        dump(&memory_image(&raw), &DumpOptions::default(), &mut from_memory, &NoProgress).unwrap();
        let mut forms = all_forms(&raw);
        forms.push(case.folder.join("image.img.xz"));
        // Small images show as well as large ones that compressed data are seen through.
        forms.retain(|form| {
            form.extension().is_some_and(|name| name == "pack") || case.number("metadata_total") <= 1024
        });
        let check = |form: &Path| {
            let run = run("thin_check", [form]);
            (run.code, run.stdout, run.stderr)
        };
        let checked = check(&raw);
        for form in &forms {
            assert!(dump_of(form, &[]).as_bytes() == from_memory, "{}", form.display());
            assert_eq!(check(form), checked, "{}", form.display());
        }
    }
}

/// A pool that is large enough for work to be shared out: two thousand leaves, of which several devices share some.
fn large_pool(folder: &Path) -> PathBuf {
    let mut xml = String::from(
        "<superblock uuid=\"\" time=\"3\" transaction=\"7\" flags=\"0\" version=\"2\" data_block_size=\"128\" \
         nr_data_blocks=\"1000000\">\n<def name=\"9\">\n",
    );
    let mappings = |xml: &mut String, range: Range<u64>| {
        for at in range {
            let (thin, data, time) = (at * 3 / 2, at * 7 % 999_983, at % 4);
            let _ = writeln!(xml, "<single_mapping origin_block=\"{thin}\" data_block=\"{data}\" time=\"{time}\"/>");
        }
    };
    mappings(&mut xml, 100_000..200_000);
    xml.push_str("</def>\n");
    for (id, before, behind) in [(0, 0..100_000, 200_000..300_000), (1, 0..3, 200_000..300_000), (7, 0..0, 0..0)] {
        let mapped = before.end - before.start + 100_000 + behind.end - behind.start;
        let _ = writeln!(
            xml,
            "<device dev_id=\"{id}\" mapped_blocks=\"{mapped}\" transaction=\"0\" creation_time=\"0\" snap_time=\"3\">"
        );
        mappings(&mut xml, before);
        xml.push_str("<ref name=\"9\"/>\n");
        mappings(&mut xml, behind);
        xml.push_str("</device>\n");
    }
    xml.push_str("</superblock>\n");
    let (source, image) = (folder.join("pool.xml"), folder.join("pool.img"));
    fs::write(&source, xml).unwrap();
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    run("thin_restore", ["-i".as_ref(), source.as_os_str(), "-o".as_ref(), image.as_os_str()]).expect_code(0);
    image
}

#[test]
fn many_threads_share_the_work_on_a_large_pool_and_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let image = large_pool(folder.path());
    let source = PoolText::from_xml(&fs::read_to_string(folder.path().join("pool.xml")).unwrap());
    for options in [&[][..], &["--flat"], &["-f", "json"], &["-f", "human_readable"], &["--dev-id", "0,7"]] {
        let one = dump_of(&image, &[options, &["--threads", "1"]].concat());
        for threads in ["2", "7"] {
            assert!(one == dump_of(&image, &[options, &["--threads", threads]].concat()), "{options:?} {threads}");
        }
        let pool = match options {
            ["-f", "json"] => PoolText::from_json(&one),
            ["-f", "human_readable"] => PoolText::from_human_readable(&one),
            _ => PoolText::from_xml(&one),
        };
        for device in &pool.devices {
            let origin = source.devices.iter().find(|origin| origin.id() == device.id()).unwrap();
            assert!(pool.mappings(device) == source.mappings(origin), "{options:?}, device {}", device.id());
        }
    }
    let check = |threads: &str| run("thin_check", ["--threads".as_ref(), threads.as_ref(), image.as_os_str()]);
    let one = check("1");
    for threads in ["2", "7"] {
        check(threads).expect_code(0).expect("the same", |run| run.stderr == one.stderr);
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

#[test]
fn a_dump_is_read_as_the_metadata_it_is_of() {
    for case in cases::pools() {
        let folder = tempfile::tempdir().unwrap();
        let image = case.image(folder.path());
        let text = dump_of(&image, &["--flat"]);
        let xml = folder.path().join("pool.xml");
        fs::write(&xml, &text).unwrap();
        let compressed = folder.path().join("pool.xml.gz");
        let mut encoder = flate2::write::GzEncoder::new(fs::File::create(&compressed).unwrap(), Default::default());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        for form in [&xml, &compressed] {
            assert_eq!(dump_of(form, &["--flat"]), text.replace(" flags=\"1\"", " flags=\"0\""), "{}", case.name);
            let checked = run("thin_check", [form]);
            let id = format!("TRANSACTION_ID={}\nMETADATA_FREE_BLOCKS=0\n", case.number("transaction_id"));
            checked.expect_code(0).expect("the transaction id", |run| run.stdout == id);
            run("thin_check", [Path::new("--auto-repair"), form]).expect_code(0);
        }
        assert_eq!(fs::read_to_string(&xml).unwrap(), text);
    }
    let folder = tempfile::tempdir().unwrap();
    let xml = folder.path().join("broken.xml");
    fs::write(&xml, "<superblock uuid=\"\" time=\"0\">\n<devices/>").unwrap();
    for tool in ["thin_check", "thin_dump"] {
        run(tool, [&xml]).expect_code(1).expect("a place", |run| run.stderr.contains("broken.xml': line 1"));
    }
}
