//! What is restored is checked, dumped and compared; what is refused must not be written.

use super::{RestoreError, RestoreFault, RestoreOptions, RestoreOutcome, XmlInput, restore, restore_in_memory};
use crate::base::{BlockNr, NoProgress, ThinId};
use crate::block::memory::MemorySource;
use crate::block::testing::{Applied, CrashingOutput, FailingOutput, Operation};
use crate::block::{BlockOutput, BlockSource};
use crate::format::block::{self, BlockKind};
use crate::thin::check::{CheckOptions, check};
use crate::thin::dump::{DumpOptions, dump};
use crate::thin::report::Verdict;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

fn head(nr_data_blocks: u64) -> String {
    format!(
        "<superblock uuid=\"\" time=\"9\" transaction=\"7\" flags=\"0\" version=\"2\" data_block_size=\"128\" \
         nr_data_blocks=\"{nr_data_blocks}\">\n"
    )
}

fn device(id: u64, mapped: u64) -> String {
    format!(
        "  <device dev_id=\"{id}\" mapped_blocks=\"{mapped}\" transaction=\"1\" creation_time=\"2\" snap_time=\"5\">\n"
    )
}

fn try_restore(text: &str, output: &mut dyn BlockOutput) -> Result<RestoreOutcome, RestoreError> {
    let options = RestoreOptions::default();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    restore(XmlInput::File(&file), output, &options, &NoProgress)
}

fn blank(nr_blocks: u64) -> MemorySource {
    let mut image = MemorySource::new(nr_blocks);
    for block in 0..nr_blocks.min(5) {
        image.put(BlockNr(block), &[0xee; 4096]).unwrap();
    }
    image
}

#[track_caller]
fn expect_clean(image: &MemorySource) {
    let report = check(image, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.verdict() == Verdict::Clean && findings.is_empty(), "{findings:#?}");
}

fn dumped(image: &MemorySource, flat: bool) -> String {
    let mut text = vec![];
    let options = DumpOptions { flat, ..DumpOptions::default() };
    dump(image, &options, &mut text, &NoProgress).unwrap();
    String::from_utf8(text).unwrap()
}

/// A pool in plain tables, and its XML.
struct Model {
    text: String,
    devices: BTreeMap<u64, BTreeMap<u64, (u64, u64)>>,
}

#[derive(Clone, Debug)]
enum Piece {
    Own(u64),
    Shared(usize),
}

/// Each device is a row of pieces; piece i has the virtual blocks from i * 1000 on. There is a definition of each size
/// for each place.
fn model(sizes: &[u64], devices: &[Vec<Piece>], step: u64, nr_data_blocks: u64) -> Model {
    let mut text = head(nr_data_blocks);
    let mut next = 0;
    let mut runs = |text: &mut String, begin: u64, size: u64| {
        let mut entries = vec![];
        let mut done = 0;
        while done < size {
            let length = (1 + (done * 7 + begin) % step).min(size - done);
            let (data, time) = ((next * 977) % (nr_data_blocks - length), next % 6);
            next += 1;
            writeln!(
                text,
                "    <range_mapping origin_begin=\"{}\" data_begin=\"{data}\" length=\"{length}\" time=\"{time}\"/>",
                begin + done
            )
            .unwrap();
            entries.extend((0..length).map(|index| (begin + done + index, (data + index, time))));
            done += length;
        }
        entries
    };
    let mut defined = BTreeMap::new();
    for place in 0..6 {
        for (number, size) in sizes.iter().enumerate() {
            writeln!(text, "  <def name=\"{}\">", place * 10 + number).unwrap();
            defined.insert((place, number), runs(&mut text, place as u64 * 1000, *size));
            text += "  </def>\n";
        }
    }
    let mut tables = BTreeMap::new();
    for (id, pieces) in devices.iter().enumerate() {
        let mut body = String::new();
        let mut table = BTreeMap::new();
        for (place, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Own(size) => table.extend(runs(&mut body, place as u64 * 1000, *size)),
                Piece::Shared(number) => {
                    writeln!(body, "    <ref name=\"{}\"/>", place * 10 + number).unwrap();
                    table.extend(defined[&(place, *number)].iter().copied());
                }
            }
        }
        text += &device(id as u64, table.len() as u64);
        text += &body;
        text += "  </device>\n";
        tables.insert(id as u64, table);
    }
    text += "</superblock>\n";
    Model { text, devices: tables }
}

/// The mappings in a flat dump.
fn tables(text: &str) -> BTreeMap<u64, BTreeMap<u64, (u64, u64)>> {
    let numbers = |line: &str| -> Vec<u64> { line.split('"').skip(1).step_by(2).map(|n| n.parse().unwrap()).collect() };
    let mut devices: BTreeMap<u64, BTreeMap<u64, (u64, u64)>> = BTreeMap::new();
    let mut id = 0;
    for line in text.lines().map(str::trim_start) {
        match line.split(' ').next().unwrap() {
            "<device" => {
                id = numbers(line)[0];
                devices.insert(id, BTreeMap::new());
            }
            "<single_mapping" => {
                let [thin, data, time] = numbers(line)[..] else { panic!() };
                devices.get_mut(&id).unwrap().insert(thin, (data, time));
            }
            "<range_mapping" => {
                let [thin, data, length, time] = numbers(line)[..] else { panic!() };
                devices.get_mut(&id).unwrap().extend((0..length).map(|i| (thin + i, (data + i, time))));
            }
            _ => {}
        }
    }
    devices
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        prop_oneof![1u64..10, 70u64..100, 1u64..800].prop_map(Piece::Own),
        (0usize..4).prop_map(Piece::Shared),
        (0usize..4).prop_map(Piece::Shared),
    ];
    prop::collection::vec(piece, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn pools_come_back_as_they_were(
        sizes in prop::collection::vec(prop_oneof![0u64..4, 60u64..140, 200u64..900], 4),
        devices in prop::collection::vec(pieces(), 0..6),
        step in 1u64..90, slack in 0u64..3,
    ) {
        let model = model(&sizes, &devices, step, 20_000);
        let needed = match try_restore(&model.text, &mut blank(3)) {
            Err(RestoreError::TooSmall { needed, present: 3 }) => needed,
            other => panic!("{other:?}"),
        };
        let short = try_restore(&model.text, &mut blank(needed - 1));
        let is_short = matches!(short, Err(RestoreError::TooSmall { needed: again, .. }) if again == needed);
        prop_assert!(is_short);
        let mut image = blank(needed + slack);
        let outcome = try_restore(&model.text, &mut image).unwrap();
        prop_assert_eq!(outcome, RestoreOutcome { nr_used: needed, ..RestoreOutcome::default() });
        expect_clean(&image);
        prop_assert_eq!(&tables(&dumped(&image, true)), &model.devices);

        // A dump of this, which shares less, gives the same again.
        let text = dumped(&image, false);
        let mut second = blank(needed + slack);
        try_restore(&text, &mut second).unwrap();
        expect_clean(&second);
        prop_assert_eq!(dumped(&second, true), dumped(&image, true));
        prop_assert_eq!(text.matches("<def").count(), dumped(&second, false).matches("<def").count());

        // From a stream the very same image comes.
        let mut streamed = blank(needed + slack);
        let input = XmlInput::Stream(Box::new(model.text.as_bytes()));
        restore(input, &mut streamed, &RestoreOptions::default(), &NoProgress).unwrap();
        for location in (0..needed + slack).map(BlockNr) {
            prop_assert_eq!(image.get(location), streamed.get(location));
        }
    }
}

/// The blocks that devices of one model take.
fn blocks_of(devices: &[Vec<Piece>], sizes: &[u64]) -> u64 {
    let mut image = blank(2000);
    let outcome = try_restore(&model(sizes, devices, 1, 20_000).text, &mut image).unwrap();
    expect_clean(&image);
    outcome.nr_used
}

#[test]
fn sharing_is_kept() {
    use Piece::{Own, Shared};
    let sizes = [50, 100, 252, 900];
    let one = blocks_of(&[vec![Shared(3)]], &sizes);
    // All of a tree is shared, so a snapshot takes no block.
    assert_eq!(blocks_of(&[vec![Shared(3)], vec![Shared(3)], vec![Shared(3)]], &sizes), one);
    assert_eq!(blocks_of(&[vec![Shared(0)], vec![Shared(0)]], &sizes), blocks_of(&[vec![Shared(0)]], &sizes));
    // With something beside it only the leaves are shared: a root and a leaf more.
    assert_eq!(blocks_of(&[vec![Shared(3)], vec![Shared(3), Own(84)]], &sizes), one + 2);
    // Too few mappings for a leaf are put together with a copy of the next leaf or the last.
    assert_eq!(blocks_of(&[vec![Shared(3)], vec![Shared(3), Own(83)]], &sizes), one + 3);
    assert_eq!(blocks_of(&[vec![Shared(2)], vec![Own(50), Shared(3)]], &sizes), one + 2);
    // The first leaf was copied by all, so it is not there on its own.
    // What is defined and not used takes no blocks.
    assert_eq!(blocks_of(&[vec![Own(1)]], &[0, 0, 0, 0]), blocks_of(&[vec![Own(1)]], &sizes));
}

#[test]
fn what_does_not_fit_together_is_refused_before_anything_is_written() {
    type Expected = fn(&RestoreFault) -> bool;
    let range = |begin: u64, data: u64, length: u64, time: u64| {
        format!("<range_mapping origin_begin=\"{begin}\" data_begin=\"{data}\" length=\"{length}\" time=\"{time}\"/>\n")
    };
    let dev = |body: &str| format!("{}{}@{body}</device></superblock>", head(1000), device(1, 0));
    let after = |body: &str, fault: &str| dev(&format!("{body}@{fault}")).replacen('@', "", 1);
    let def = |size: u64, body: &str, fault: &str| {
        let def = format!("<def name=\"1\">{}</def>", range(100, 0, size, 0));
        format!("{}{def}{}{body}@{fault}</device></superblock>", head(1000), device(1, 0))
    };
    let other = |from: &str, to: &str| format!("@{}</superblock>", head(1000).replace(from, to));
    let bad_device = |from: &str, to: &str| format!("{}  @{}", head(1000), device(1, 0).trim_start().replace(from, to));
    let reference = "<ref name=\"1\"/>";
    let cases: Vec<(String, Expected)> = vec![
        (other("\"128\"", "\"100\""), |f| matches!(f, RestoreFault::DataBlockSize(100))),
        (other("\"128\"", "\"0\""), |f| matches!(f, RestoreFault::DataBlockSize(0))),
        (other("time=\"9\"", "time=\"16777216\""), |f| matches!(f, RestoreFault::PoolTime(0x100_0000))),
        (other("\"1000\"", "\"1099511627777\""), |f| matches!(f, RestoreFault::Commit(_))),
        (other("\"1000\"", "\"99999999999\""), |f| matches!(f, RestoreFault::Commit(_))),
        (other("\"1000\"", "\"1632001\""), |f| matches!(f, RestoreFault::DataDevice { bitmaps: 101, .. })),
        (bad_device("dev_id=\"1\"", "dev_id=\"16777216\""), |f| matches!(f, RestoreFault::DeviceId(_))),
        (bad_device("snap_time=\"5\"", "snap_time=\"10\""), |f| matches!(f, RestoreFault::DeviceTime { time: 10, .. })),
        (bad_device("snap_time=\"5\"", "snap_time=\"1\""), |f| matches!(f, RestoreFault::DeviceTimes { .. })),
        (format!("{}{}</device>  @{}", head(1000), device(1, 0), device(1, 0).trim_start()), |f| {
            matches!(f, RestoreFault::DuplicateDevice(ThinId(1)))
        }),
        (dev(&range(0, 0, 1, 10)), |f| matches!(f, RestoreFault::MappingTime { time: 10, pool: 9, .. })),
        (
            dev(&range(5, 990, 11, 0)),
            |f| matches!(f, RestoreFault::BeyondData { begin, data, device: Some(ThinId(1)), .. } if begin.0 == 15 && data.0 == 1000),
        ),
        (dev(&range(5, u64::MAX, 1, 0)), |f| matches!(f, RestoreFault::BeyondData { data, .. } if data.0 == u64::MAX)),
        (dev(&range(5, 0, u64::MAX, 0)), |f| matches!(f, RestoreFault::BeyondData { .. })),
        (dev(&range(u64::MAX, 0, 2, 0)), |f| matches!(f, RestoreFault::Length { .. })),
        (after(&range(5, 0, 2, 0), &range(6, 9, 2, 0)), |f| matches!(f, RestoreFault::Order { .. })),
        (after(&range(5, 0, 2, 0), &range(0, 9, 1, 0)), |f| matches!(f, RestoreFault::Order { .. })),
        (after(&range(u64::MAX, 0, 1, 0), &range(0, 9, 1, 0)), |f| matches!(f, RestoreFault::Order { .. })),
        // The last mapping of a definition counts, not the first of its last leaf.
        (def(300, reference, &range(399, 0, 1, 0)), |f| matches!(f, RestoreFault::Order { last, .. } if last.0 == 399)),
        (def(300, &range(100, 0, 1, 0), reference), |f| matches!(f, RestoreFault::Order { .. })),
        (def(300, reference, reference), |f| matches!(f, RestoreFault::Order { .. })),
        (format!("{}<def name=\"1\">{}@{}", head(1000), range(5, 0, 2, 0), range(6, 0, 2, 0)), |f| {
            matches!(f, RestoreFault::Order { device: None, .. })
        }),
    ];
    for (text, expected) in cases {
        let at = text.find('@').unwrap();
        let before = &text[..at];
        let column = (at - before.rfind('\n').map_or(0, |newline| newline + 1)) as u64 + 1;
        let place = (before.matches('\n').count() as u64 + 1, column);
        let text = text.replacen('@', "", 1);
        for stream in [false, true] {
            let mut output = CrashingOutput::new(blank(100));
            let result = match stream {
                false => try_restore(&text, &mut output),
                true => restore(
                    XmlInput::Stream(Box::new(text.as_bytes())),
                    &mut output,
                    &RestoreOptions::default(),
                    &NoProgress,
                ),
            };
            let Err(RestoreError::Input(error)) = result else { panic!("{result:?}\n{text}") };
            assert_eq!((error.line, error.column), place, "{error}\n{text}");
            let crate::thin::xml::XmlFault::Refused(fault) = &error.fault else { panic!("{error}\n{text}") };
            assert!(expected(fault), "{error}\n{text}");
            assert!(output.log().is_empty());
        }
    }
}

#[test]
fn absurd_sizes_are_refused_quickly() {
    let all = (1u64 << 40) - 1;
    let text = format!(
        "{}{}<range_mapping origin_begin=\"0\" data_begin=\"0\" length=\"{}\" time=\"0\"/></device></superblock>",
        head(60_000_000_000),
        device(1, 0),
        60_000_000_000u64,
    );
    let error = try_restore(&text, &mut MemorySource::new(1 << 22)).unwrap_err();
    assert!(error.to_string().contains("4161600"), "{error}");
    let error = try_restore(&format!("{}</superblock>", head(all)), &mut blank(100)).unwrap_err();
    assert!(error.to_string().contains("4161600"), "{error}");
}

/// A line of text may describe any device; in memory that is kept only in proportion.
#[test]
fn in_memory_nothing_is_built_out_of_proportion() {
    let in_memory = |nr_data_blocks: u64, padding: usize| {
        let text = format!("{}{}</superblock>", head(nr_data_blocks), " ".repeat(padding));
        let input = XmlInput::Stream(Box::new(text.as_bytes()));
        restore_in_memory(input, &RestoreOptions::default(), &NoProgress).map(|image| image.nr_present())
    };
    assert!(in_memory(16_320 * 5000, 0).unwrap() > 5000);
    // 1 GiB is 2^18 blocks, about as many bitmaps. A fourth of the text's bytes may come on top.
    for padding in [0, 4000] {
        let error = in_memory(16_320 * ((1 << 18) + 500), padding).unwrap_err();
        let RestoreError::TooLargeForMemory { needed, limit } = error else { panic!("{error}") };
        assert!(needed > limit && (limit - (1 << 18)).abs_diff(padding as u64 / 4) < 100, "{limit}");
    }
}

#[test]
fn counts_and_flags_are_put_right_with_a_word() {
    let text = head(1000).replace("flags=\"0\"", "flags=\"1\"")
        + &device(3, 77)
        + "<single_mapping origin_block=\"5\" data_block=\"6\" time=\"1\"/></device></superblock>";
    let mut image = blank(20);
    let outcome = try_restore(&text, &mut image).unwrap();
    assert!(outcome.needs_check_dropped);
    assert_eq!(outcome.recounts.len(), 1);
    let recount = outcome.recounts[0];
    assert_eq!((recount.device, recount.claimed, recount.counted), (ThinId(3), 77, 1));
    expect_clean(&image);
    assert!(dumped(&image, true).contains("flags=\"0\""));
}

#[test]
fn overrides_are_written() {
    let text = head(0)
        + &device(3, 1)
        + "<single_mapping origin_block=\"5\" data_block=\"6\" time=\"1\"/></device></superblock>";
    let error = try_restore(&text, &mut blank(20)).unwrap_err();
    assert!(error.to_string().contains("--nr-data-blocks"), "{error}");
    let options = RestoreOptions {
        transaction_id: Some(u64::MAX),
        data_block_size: Some(256),
        nr_data_blocks: Some(7),
        ..RestoreOptions::default()
    };
    let mut image = blank(20);
    restore(XmlInput::Stream(Box::new(text.as_bytes())), &mut image, &options, &NoProgress).unwrap();
    expect_clean(&image);
    let text = dumped(&image, true);
    assert!(text.contains(
        "transaction=\"18446744073709551615\" flags=\"0\" version=\"2\" data_block_size=\"256\" nr_data_blocks=\"7\""
    ));
}

fn small_pool() -> String {
    model(&[50, 100, 252, 600], &[vec![Piece::Own(300), Piece::Shared(2)], vec![Piece::Shared(3)], vec![]], 3, 20_000)
        .text
}

fn is_new(image: &MemorySource) -> bool {
    block::verify(&image.read(BlockNr(0)).unwrap(), BlockKind::ThinSuperblock, BlockNr(0)).is_ok()
}

#[test]
fn after_a_crash_there_is_no_metadata_or_the_new() {
    // What was there before is valid as well.
    let mut before = blank(100);
    try_restore(&(head(10) + &device(1, 0) + "</device></superblock>"), &mut before).unwrap();
    let old = *before.read(BlockNr(0)).unwrap();
    let mut output = CrashingOutput::new(before);
    try_restore(&small_pool(), &mut output).unwrap();
    let nr_operations = output.log().len();
    let fates: [fn(usize, usize) -> Applied; 6] = [
        |_, _| Applied::Not,
        |_, _| Applied::Whole,
        |index, _| if index % 2 == 0 { Applied::Whole } else { Applied::Not },
        |index, stop| if index + 1 == stop { Applied::Whole } else { Applied::Not },
        |index, stop| if (index * 7919 + stop) % 5 < 2 { Applied::Whole } else { Applied::Not },
        // The superblock fits in the first sector, so it is there or it isn't.
        |index, stop| Applied::Torn(1 + (index * 31 + stop) % 8),
    ];
    for stop in 0..=nr_operations {
        for fate in fates {
            let image = output.image_after(stop, |index| fate(index, stop));
            if is_new(&image) && *image.read(BlockNr(0)).unwrap() != old {
                assert!(stop + 1 >= nr_operations, "the superblock is there after {stop} of {nr_operations}");
                expect_clean(&image);
            } else if is_new(&image) {
                // The old one is as it was: nothing else can have been written.
                assert!(stop < 2, "the old superblock is there after {stop} operations");
                expect_clean(&image);
            }
        }
    }
    assert!(matches!(output.log()[1], Operation::Flush));
    expect_clean(&output.image_after(nr_operations, |_| unreachable!()));
}

#[test]
fn when_writing_fails_the_output_is_invalid() {
    let text = small_pool();
    let mut counting = FailingOutput::new(blank(100), u64::MAX);
    try_restore(&text, &mut counting).unwrap();
    let operations = counting.operations();
    for fail_at in 0..operations {
        let mut output = FailingOutput::new(blank(100), fail_at);
        let error = try_restore(&text, &mut output).unwrap_err();
        assert!(matches!(error, RestoreError::Commit(_) | RestoreError::Input(_) | RestoreError::Build(_)), "{error}");
        assert_eq!(output.operations(), fail_at + 1, "it stops at once");
        let image = output.into_inner();
        assert!(!is_new(&image) || fail_at + 1 == operations, "operation {fail_at} of {operations}");
    }
}

#[test]
fn a_text_that_changes_is_noticed() {
    struct Changing<'a> {
        inner: MemorySource,
        file: &'a std::fs::File,
    }
    impl BlockOutput for Changing<'_> {
        fn nr_blocks(&self) -> u64 {
            BlockOutput::nr_blocks(&self.inner)
        }
        fn write(&mut self, location: BlockNr, block: &crate::format::Block) -> Result<(), crate::block::WriteError> {
            if location.0 == 0 {
                let mut file = self.file;
                file.set_len(0)?;
                std::io::Seek::rewind(&mut file)?;
                file.write_all((head(1000) + "</superblock>").as_bytes())?;
            }
            self.inner.write(location, block)
        }
        fn read_back(&mut self, location: BlockNr) -> Result<Box<crate::format::Block>, crate::block::WriteError> {
            self.inner.read_back(location)
        }
        fn written(&mut self) -> Result<Box<dyn crate::block::BlockSource + '_>, crate::block::WriteError> {
            self.inner.written()
        }
        fn flush(&mut self) -> Result<(), crate::block::WriteError> {
            self.inner.flush()
        }
    }
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(small_pool().as_bytes()).unwrap();
    let mut output = Changing { inner: blank(100), file: &file };
    let result = restore(XmlInput::File(&file), &mut output, &RestoreOptions::default(), &NoProgress);
    assert!(matches!(result, Err(RestoreError::Changed)), "{result:?}");
    assert!(!is_new(&output.inner));
}
