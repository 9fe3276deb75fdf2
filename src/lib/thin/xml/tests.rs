//! Documents of every form, and what is wrong with others.

use super::reader::Reader;
use super::window::Window;
use super::{FileRuns, XmlError, XmlOptions, read};
use crate::thin::items::{PoolSink, Position, Runs};
use crate::thin::model::{Device, Pool, Run};
use crate::thin::recording::{Recorder, Recording};
use proptest::prelude::*;
use std::io::{self, Read, Write};

/// Takes items down as lines.
#[derive(Debug, Default, PartialEq)]
struct Notes {
    lines: Vec<String>,
    positions: Vec<Position>,
    refuse: Option<&'static str>,
}

#[derive(Debug, thiserror::Error)]
#[error("refused")]
struct Refused;

impl Notes {
    fn note(&mut self, line: String) -> Result<(), Refused> {
        let refused = self.refuse == Some(line.as_str());
        self.lines.push(line);
        if refused { Err(Refused) } else { Ok(()) }
    }
}

impl PoolSink for Notes {
    type Error = Refused;

    fn pool(&mut self, pool: &Pool) -> Result<(), Refused> {
        self.note(format!("{pool:?}"))
    }

    fn begin_definition(&mut self) -> Result<(), Refused> {
        self.note("def".into())
    }

    fn end_definition(&mut self) -> Result<(), Refused> {
        self.note("/def".into())
    }

    fn begin_device(&mut self, device: &Device) -> Result<(), Refused> {
        self.note(format!("{device:?}"))
    }

    fn end_device(&mut self) -> Result<(), Refused> {
        self.note("/device".into())
    }

    fn run(&mut self, run: &Run, at: Position) -> Result<(), Refused> {
        self.positions.push(at);
        self.note(show(run))
    }

    fn reference(&mut self, definition: u32) -> Result<(), Refused> {
        self.note(format!("ref {definition}"))
    }

    fn end(&mut self) -> Result<(), Refused> {
        self.note("end".into())
    }
}

fn show(run: &Run) -> String {
    format!("{} {} {} {}", run.thin_begin, run.data_begin, run.length, run.time)
}

const HEAD: &str = r#"<superblock uuid="" time="3" transaction="7" flags="1" version="2" data_block_size="128" nr_data_blocks="1000">
"#;

const DUMP: &str = r#"<superblock uuid="" time="3" transaction="7" flags="1" version="2" data_block_size="128" nr_data_blocks="1000">
  <def name="17">
    <range_mapping origin_begin="0" data_begin="200" length="150" time="0"/>
    <single_mapping origin_block="150" data_block="12345678901" time="2"/>
  </def>
  <def name="99">
  </def>
  <device dev_id="1" mapped_blocks="281" transaction="0" creation_time="0" snap_time="2">
    <ref name="17"/>
    <range_mapping origin_begin="500" data_begin="400" length="130" time="3"/>
    <ref name="99"/>
  </device>
  <device dev_id="2" mapped_blocks="0" transaction="4" creation_time="2" snap_time="2">
  </device>
</superblock>
"#;

fn items(text: &str, options: XmlOptions) -> Result<Notes, XmlError<Refused>> {
    let mut notes = Notes::default();
    read(text.as_bytes(), options, &mut notes).map(|()| notes)
}

fn lines(text: &str) -> Vec<String> {
    match items(text, XmlOptions::default()) {
        Ok(notes) => notes.lines,
        Err(error) => panic!("{error}\n{text}"),
    }
}

#[test]
fn a_dump_gives_its_items() {
    let pool = "Pool { uuid: \"\", time: 3, transaction: 7, flags: 1, version: 2, data_block_size: 128, nr_data_blocks: 1000 }";
    let first = "Device { id: ThinId(1), mapped_blocks: 281, transaction: 0, creation_time: 0, snapshotted_time: 2 }";
    let second = "Device { id: ThinId(2), mapped_blocks: 0, transaction: 4, creation_time: 2, snapshotted_time: 2 }";
    let expected = [
        pool,
        "def",
        "0 200 150 0",
        "150 12345678901 1 2",
        "/def",
        "def",
        "/def",
        first,
        "ref 0",
        "500 400 130 3",
        "ref 1",
        "/device",
        second,
        "/device",
        "end",
    ];
    assert_eq!(lines(DUMP), expected);
}

/// A hang is a failure too: white space of any length, in every place of the text where there may be some.
#[test]
fn blanks_of_any_length_say_nothing() {
    let expected = lines(DUMP);
    for length in [255, 256, 257, 511, 512, 513, 5000, 600_000] {
        for (place, _) in DUMP.match_indices('\n') {
            let text = format!("{}{}{}", &DUMP[..place], " ".repeat(length), &DUMP[place..]);
            assert_eq!(lines(&text), expected, "{length} blanks at {place}");
        }
    }
}

#[test]
fn other_forms_say_the_same() {
    let expected = lines(DUMP);
    let forms = [
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a\n comment -->\n{DUMP}\n<!-- - -- > the end -->\n"),
        format!("\u{feff}{}", DUMP.trim_end()),
        DUMP.replace('"', "'"),
        DUMP.replace("\n", "\r\n").replace("  ", "\t"),
        DUMP.replace(['\n'], "").replace("  ", ""),
        DUMP.replace("/>", " />").replace("<ref name", "<!--->--><ref\n   name"),
        DUMP.replace("<ref name=\"17\"/>", "<ref name=\"17\"></ref >")
            .replace("\"3\"/>", "\"3\"> <!-- --></range_mapping>"),
        DUMP.replace(" time=\"2\"/>", " time = \"2\"/>").replace("\"17\"", "\"&#49;7\""),
        DUMP.replace("\"17\"", "\"&lt;a&gt; &amp; b\"").replace("uuid=\"\" ", "metadata_snap=\"4\"\nuuid='' "),
        DUMP.replace("  <def name=\"99\">\n  </def>", "<def name=\"99\"/>"),
        DUMP.replace("snap_time=\"2\">\n  </device>", "snap_time=\"+2\"/>"),
        DUMP.replace("creation_time=\"0\" snap_time=\"2\"", "snap_time=\"2\" creation_time=\"000\""),
        DUMP.replace(
            "<ref name=\"99\"/>",
            "<range_mapping origin_begin=\"0\" data_begin=\"0\" length=\"0\" time=\"9\"/><ref name=\"99\"/>",
        ),
        DUMP.replace("name=\"17\"", "name=\"017\"").replace("name=\"99\"", "name=\"17\""),
    ];
    for form in forms {
        assert_eq!(lines(&form), expected, "{form}");
    }
    let without = DUMP.replace(" flags=\"1\" version=\"2\"", "");
    assert!(lines(&without)[0].contains("flags: 0, version: 1"));
    let empty = HEAD.replace(">\n", "/>");
    assert_eq!(lines(&empty).len(), 2);
}

#[test]
fn lenient_reading_looks_past_what_it_does_not_know() {
    let strange = DUMP
        .replace("dev_id=\"1\"", "colour=\"red\" dev_id=\"1\"")
        .replace("time=\"2\"/>", "time=\"2\" x=\"\"/>")
        .replace("  </def>", "  hello </def> world");
    assert!(items(&strange, XmlOptions::default()).is_err());
    assert_eq!(items(&strange, XmlOptions { lenient: true }).unwrap().lines, lines(DUMP));
}

/// Each text ends where `@` is, so that is where the error has to be.
#[test]
fn faults_are_named_with_line_and_column() {
    let device = "<device dev_id=\"1\" mapped_blocks=\"0\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">";
    let inside = |text: &str| format!("{HEAD}{device}\n{text}");
    let single = "<single_mapping origin_block=\"1\" data_block=\"2\" time=\"3\"/>";
    let cases = [
        (String::new() + "@", "the document is empty"),
        ("  \n@".into(), "the document is empty"),
        ("@hello".into(), "this is not XML"),
        ("@\0\0\0".into(), "binary data"),
        ("@<!DOCTYPE x>".into(), "document types"),
        ("@<superblock>".into(), "missing attribute 'uuid' of 'superblock'"),
        ("@<device dev_id=\"1\"/>".into(), "'device' does not belong in the document"),
        ("@</superblock>".into(), "'</superblock>' inside the document"),
        (format!("{HEAD}@"), "inside 'superblock': it is incomplete"),
        (format!("{HEAD}<def name=\"1\">@"), "inside 'def': it is incomplete"),
        (inside("@"), "inside 'device': it is incomplete"),
        (inside("\n  @<ref name=\"1"), "inside a tag: it is incomplete"),
        (inside("  @<ref name=\"1\"/>"), "no def '1' comes before this ref"),
        (inside("  @<ref name=\"x\"/>"), "no def 'x' comes before this ref"),
        (inside("@<def name=\"1\">"), "'def' does not belong in device"),
        (inside("@<device/>"), "'device' does not belong in device"),
        (inside("@<thing/>"), "unknown element 'thing' in device"),
        (inside("@</superblock>"), "'</superblock>' inside device"),
        (inside(&format!("{single}\n {single} @x")), "text where an element should be"),
        (format!("{HEAD}<def name=\"1\">@<ref name=\"1\"/>"), "'ref' does not belong in def"),
        (format!("{HEAD}<def name=\"1\">@<def name=\"1\">"), "'def' does not belong in def"),
        (format!("{HEAD}<def name=\"1\">\n</def>\n @<def name=\"1\">"), "there is a def '1' already"),
        (format!("{HEAD}<def name='a'/>\n @<def name='a'/>"), "there is a def 'a' already"),
        (format!("{HEAD}@{single}"), "'single_mapping' does not belong in superblock"),
        (format!("{HEAD}@<def nam='a'/>"), "missing attribute 'name' of 'def'"),
        (format!("{HEAD}<def name='a'/>@<def name='b' x='1'/>"), "unknown attribute 'x' of 'def'"),
        (
            inside(&format!("@{}", single.replace("/>", " time=\"4\"/>"))),
            "attribute 'time' of 'single_mapping' is given twice",
        ),
        (inside(&format!("@{}", single.replace("\"3\"", "\"x\""))), "'x' is not a number"),
        (inside(&format!("@{}", single.replace("\"3\"", "\"\""))), "'' is not a number"),
        (inside(&format!("@{}", single.replace("\"3\"", "\" 3\""))), "' 3' is not a number"),
        (inside(&format!("@{}", single.replace("\"3\"", "\"-3\""))), "'-3' is not a number"),
        (inside(&format!("@{}", single.replace("\"3\"", "\"4294967296\""))), "is above 4294967295"),
        (inside(&format!("@{}", single.replace("\"2\"", "\"18446744073709551616\""))), "is above 18446744073709551615"),
        (inside(&format!("@{}", single.replace(" data_block=\"2\"", ""))), "missing attribute 'data_block'"),
        (inside(&format!("@{}", single.replace("\"2\"", "2"))), "has no quotes"),
        (inside(&format!("@{}", single.replace("=\"2\"", ""))), "has no '='"),
        (inside(&format!("@{}", single.replace("\"2\"", "\"&nbsp;\""))), "attribute 'data_block'"),
        (inside(&single.replace("/>", ">@<ref/>")), "'ref' does not belong in 'single_mapping'"),
        (inside(&single.replace("/>", ">@</device>")), "'</device>' inside single_mapping"),
        (inside(" @<!-- \n "), "the comment does not end"),
        (format!("{HEAD}</superblock>\n@<superblock/>"), "'superblock' behind the end"),
        (format!("{HEAD}</superblock>\n@text"), "text where an element should be"),
        (inside(&format!("@<ref {}", "x".repeat(70_000))), "does not end, or is too long"),
    ];
    for (text, message) in cases {
        let at = text.find('@').unwrap();
        let before = &text[..at];
        let place =
            (before.matches('\n').count() as u64 + 1, (at - before.rfind('\n').map_or(0, |nl| nl + 1)) as u64 + 1);
        let text = text.replacen('@', "", 1);
        let error = items(&text, XmlOptions::default()).unwrap_err();
        assert!(error.to_string().contains(message), "{error}\nshould say: {message}");
        assert_eq!((error.line, error.column), place, "{error}\n{text:.300}");
    }
}

#[test]
fn what_the_sink_refuses_has_a_place() {
    for (refused, line, column) in [("ref 0", 9, 5), ("500 400 130 3", 10, 5), ("def", 2, 3), ("/def", 5, 3)] {
        for text in [DUMP.to_string(), DUMP.replace("/>", " />").replace("\">", "\" >").replace("</def>", "</def >")] {
            let mut notes = Notes { refuse: Some(refused), ..Notes::default() };
            let error = read(text.as_bytes(), XmlOptions::default(), &mut notes).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{refused}");
            assert_eq!(notes.lines.last().map(String::as_str), Some(refused));
        }
    }
}

/// Gives a few bytes at a time.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(buffer.len());
        self.0.read(&mut buffer[..length])
    }
}

#[derive(Clone, Debug)]
struct Style {
    seed: u64,
    canonical_in_ten: u64,
}

impl Style {
    fn next(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    /// An element in dump form or in another that says the same.
    fn element(&mut self, name: &str, attributes: &[(&str, u64)]) -> String {
        let plain = self.next(10) < self.canonical_in_ten;
        let mut attributes: Vec<String> = attributes.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        if !plain {
            let at = self.next(attributes.len() as u64) as usize;
            attributes.rotate_left(at);
        }
        let end = if plain || self.next(2) == 0 { "/>".into() } else { format!("></{name}>") };
        format!("{}<{name} {}{end}", ["    ", "\n", "", " \t"][self.next(4) as usize], attributes.join(" "))
    }
}

proptest! {
    #[test]
    fn every_mixture_of_forms_in_any_portions_reads_the_same(
        runs in prop::collection::vec((any::<u64>(), any::<u64>(), 1u64..400, 0u64..1 << 24), 0..60),
        seed: u64, canonical_in_ten in 0u64..11, portion in 1usize..5000,
    ) {
        let mut style = Style { seed, canonical_in_ten };
        let mut text = format!("{HEAD}  <def name=\"1\">\n");
        let mut expected = vec![];
        for (thin, data, length, time) in &runs {
            text += &if *length == 1 || *length > 300 {
                expected.push(format!("{thin} {data} 1 {time}"));
                style.element("single_mapping", &[("origin_block", *thin), ("data_block", *data), ("time", *time)])
            } else {
                expected.push(format!("{thin} {data} {length} {time}"));
                let attributes =
                    [("origin_begin", *thin), ("data_begin", *data), ("length", *length), ("time", *time)];
                style.element("range_mapping", &attributes)
            };
        }
        text += "\n  </def>\n</superblock>";
        let mut notes = Notes::default();
        let window = Window::with_chunk(Dribble(text.as_bytes(), portion), 0, portion.max(16));
        Reader::new(window, XmlOptions::default(), &mut notes).document().unwrap();
        prop_assert_eq!(&notes.lines[2..notes.lines.len() - 2], &expected[..]);

        // From every run on, the rest can be read again, from the file and from a recording.
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let recording = Recording::new();
        let mut recorded = Notes::default();
        read(text.as_bytes(), XmlOptions::default(), &mut Recorder::new(&recording, &mut recorded)).unwrap();
        let mut replayed = Notes::default();
        recording.replay(&mut replayed).unwrap();
        prop_assert_eq!(&replayed, &recorded);
        prop_assert_eq!(&recorded.lines, &notes.lines);
        let from_file = FileRuns::new(&file, XmlOptions::default());
        for (index, (at, in_recording)) in notes.positions.iter().zip(&recorded.positions).enumerate() {
            let mut again = vec![];
            from_file.runs_from(*at, &mut |run| { again.push(show(run)); true }).unwrap();
            prop_assert_eq!(&again[..], &expected[index..]);
            let mut first = vec![];
            recording.runs_from(*in_recording, &mut |run| { first.push(show(run)); first.len() < 3 }).unwrap();
            prop_assert_eq!(&first[..], &expected[index..expected.len().min(index + 3)]);
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(
        cuts in prop::collection::vec((0usize..DUMP.len(), 0usize..DUMP.len(), any::<u8>()), 0..8),
    ) {
        let mut text = DUMP.as_bytes().to_vec();
        for (from, to, byte) in cuts {
            let (from, to) = (from.min(to) % text.len(), to.max(from) % text.len());
            match byte % 3 {
                0 => text[from] = byte,
                1 => text.copy_within(from.min(to)..from.max(to), 0),
                _ => { text.drain(from.min(to)..from.max(to)); }
            }
            if text.is_empty() { text.push(byte); }
        }
        let _ = read(text.as_slice(), XmlOptions::default(), &mut Notes::default());
    }
}
