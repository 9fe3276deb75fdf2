//! The general reader: which element may be where.

use super::XmlOptions;
use super::attributes::Attributes;
use super::error::{XmlError, XmlFault};
use super::fast::{self, Canonical};
use super::names::Names;
use super::window::{LONGEST, Window};
use crate::thin::items::{PoolSink, Position};
use crate::thin::model::Run;
use std::io::Read;

/// The element that the reader is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the root.
    Start,
    Pool,
    Definition,
    Device,
    /// Behind the root.
    End,
}

impl Place {
    fn word(self) -> &'static str {
        match self {
            Place::Start | Place::End => "the document",
            Place::Pool => "superblock",
            Place::Definition => "def",
            Place::Device => "device",
        }
    }
}

/// Elements without content.
const LEAVES: [&str; 3] = ["single_mapping", "range_mapping", "ref"];
const CONTAINERS: [&str; 3] = ["superblock", "def", "device"];

type Fault<S> = XmlFault<<S as PoolSink>::Error>;

/// Reads one document.
pub(super) struct Reader<'a, R, S> {
    window: Window<R>,
    options: XmlOptions,
    sink: &'a mut S,
    names: Names,
    place: Place,
    /// An element without content that was opened and has to be closed.
    open_leaf: Option<&'static str>,
    /// Line and column of a fault that began before what is being read.
    fault_at: Option<(u64, u64)>,
}

fn text<T, E>(what: impl Into<String>) -> Result<T, XmlFault<E>> {
    Err(XmlFault::Text(what.into()))
}

impl<'a, R: Read, S: PoolSink> Reader<'a, R, S> {
    pub(super) fn new(window: Window<R>, options: XmlOptions, sink: &'a mut S) -> Self {
        Reader { window, options, sink, names: Names::default(), place: Place::Start, open_leaf: None, fault_at: None }
    }

    /// A reader that begins inside a definition.
    pub(super) fn in_definition(window: Window<R>, options: XmlOptions, sink: &'a mut S) -> Self {
        Reader { place: Place::Definition, ..Reader::new(window, options, sink) }
    }

    /// Reads to the end of the text.
    pub(super) fn document(mut self) -> Result<(), XmlError<S::Error>> {
        self.read_all().map_err(|fault| {
            let (line, column) = self.fault_at.unwrap_or(self.window.line_and_column());
            XmlError { line, column, fault }
        })
    }

    fn read_all(&mut self) -> Result<(), Fault<S>> {
        self.window.ensure(3).map_err(XmlFault::Io)?;
        if self.window.rest().starts_with(b"\xef\xbb\xbf") {
            self.window.consume(3);
        }
        loop {
            if self.open_leaf.is_none() && !matches!(self.place, Place::Start | Place::End) {
                self.canonical_elements()?;
            }
            if !self.anything()? {
                return self.sink.end().map_err(XmlFault::Refused);
            }
        }
    }

    /// Reads elements as long as they are in dump form.
    fn canonical_elements(&mut self) -> Result<(), Fault<S>> {
        loop {
            self.window.ensure(2 * fast::LONGEST).map_err(XmlFault::Io)?;
            let (length, result) = self.canonical_stretch();
            self.window.consume(length);
            if !result? {
                return Ok(());
            }
        }
    }

    /// Reads what is in memory of such elements. Returns how many bytes these are, and whether it stopped only
    /// because more has to be read. An error is about what comes behind these bytes.
    fn canonical_stretch(&mut self) -> (usize, Result<bool, Fault<S>>) {
        let (rest, begin) = (self.window.rest(), self.window.offset());
        let mut done = 0;
        loop {
            let at = done + fast::blanks(&rest[done..]);
            if rest.len() - at < fast::LONGEST && !self.window.has_ended() {
                // Blanks are consumed: however many there are, the next stretch begins further on.
                return (at, Ok(true));
            }
            let Some((element, length)) = fast::element(&rest[at..]) else { return (at, Ok(false)) };
            let result = match (self.place, element) {
                (Place::Definition | Place::Device, Canonical::Run(run)) => {
                    if run.length == 0 {
                        self.sink.empty_run();
                        Ok(())
                    } else {
                        self.sink.run(&run, Position(begin + at as u64))
                    }
                }
                (Place::Device, Canonical::Reference(_)) => {
                    let next = Group::read(rest, at, &self.names);
                    if next.count == 0 {
                        return (at, Ok(false));
                    }
                    match next.give(self.sink) {
                        Ok(()) => done = next.ends[next.count - 1],
                        Err((at, error)) => return (at, Err(XmlFault::Refused(error))),
                    }
                    continue;
                }
                (Place::Pool, Canonical::BeginDefinition(name)) => match self.names.add_number(name) {
                    Some(_) => {
                        self.place = Place::Definition;
                        self.sink.begin_definition()
                    }
                    None => return (at, Ok(false)),
                },
                (Place::Definition, Canonical::EndDefinition) => {
                    self.place = Place::Pool;
                    self.sink.end_definition()
                }
                // Whatever is wrong here, the general reader finds the words for it.
                _ => return (at, Ok(false)),
            };
            if let Err(error) = result {
                return (at, Err(XmlFault::Refused(error)));
            }
            done = at + length;
        }
    }

    fn run(&mut self, run: &Run, at: Position) -> Result<(), Fault<S>> {
        if run.length == 0 {
            self.sink.empty_run();
            return Ok(());
        }
        self.sink.run(run, at).map_err(XmlFault::Refused)
    }

    /// Skips white space.
    fn skip_blanks(&mut self) -> Result<(), Fault<S>> {
        loop {
            let rest = self.window.rest();
            let (length, all) = (fast::blanks(rest), rest.len());
            self.window.consume(length);
            if length < all || !self.window.refill().map_err(XmlFault::Io)? {
                return Ok(());
            }
        }
    }

    /// Reads whatever comes next; `false` at the end of the document.
    fn anything(&mut self) -> Result<bool, Fault<S>> {
        self.skip_blanks()?;
        self.window.ensure(4).map_err(XmlFault::Io)?;
        let rest = self.window.rest();
        match rest {
            [] => return self.end_of_text(),
            [b'<', b'!', b'-', b'-', ..] => self.comment()?,
            [b'<', b'!', ..] => return text("document types and CDATA sections are not accepted"),
            [b'<', b'?', ..] => {
                let length = self.find_end(|rest| memchr::memmem::find(rest, b"?>").map(|at| at + 2))?;
                self.window.consume(length);
            }
            [b'<', ..] => self.tag()?,
            _ => self.stray_text()?,
        }
        Ok(true)
    }

    fn end_of_text(&self) -> Result<bool, Fault<S>> {
        match self.place {
            Place::End => Ok(false),
            Place::Start => text("the document is empty: what wrote it was stopped, or failed; make the dump again"),
            place => text(format!("the document ends inside '{}': it is incomplete", place.word())),
        }
    }

    fn stray_text(&mut self) -> Result<(), Fault<S>> {
        let rest = self.window.rest();
        if self.place == Place::Start {
            let binary = rest.iter().take(LONGEST).any(|byte| *byte == 0);
            return text(if binary { "this is not XML but binary data" } else { "this is not XML" });
        }
        if !self.options.lenient {
            return text("text where an element should be");
        }
        let length = memchr::memchr(b'<', rest).unwrap_or(rest.len());
        self.window.consume(length);
        Ok(())
    }

    fn comment(&mut self) -> Result<(), Fault<S>> {
        let begin = self.window.line_and_column();
        self.window.consume(4);
        loop {
            let rest = self.window.rest();
            if let Some(at) = memchr::memmem::find(rest, b"-->") {
                self.window.consume(at + 3);
                return Ok(());
            }
            self.window.consume(rest.len().saturating_sub(2));
            if !self.window.refill().map_err(XmlFault::Io)? {
                self.fault_at = Some(begin);
                return text("the comment does not end");
            }
        }
    }

    /// The length of the piece of markup that begins here, which `find` knows when it sees all of it.
    fn find_end(&mut self, find: impl Fn(&[u8]) -> Option<usize>) -> Result<usize, Fault<S>> {
        loop {
            let rest = self.window.rest();
            if let Some(length) = find(rest) {
                return Ok(length);
            }
            if rest.len() > LONGEST {
                return text("a tag that does not end, or is too long");
            }
            if !self.window.refill().map_err(XmlFault::Io)? {
                return text("the document ends inside a tag: it is incomplete");
            }
        }
    }

    fn tag(&mut self) -> Result<(), Fault<S>> {
        let length = self.find_end(tag_length)?;
        // What is consumed at the end is what an error refers to until then.
        let inside = self.window.rest()[1..length - 1].to_vec();
        let Ok(inside) = std::str::from_utf8(&inside) else { return text("a tag that is not UTF-8") };
        if let Some(name) = inside.strip_prefix('/') {
            self.end_tag(name.trim_end())?;
        } else {
            let (inside, empty) = match inside.strip_suffix('/') {
                Some(inside) => (inside, true),
                None => (inside, false),
            };
            let name = inside.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
            self.start_tag(inside, name, empty)?;
        }
        self.window.consume(length);
        Ok(())
    }

    fn start_tag(&mut self, inside: &str, name: &str, empty: bool) -> Result<(), Fault<S>> {
        if let Some(leaf) = self.open_leaf {
            return text(format!("'{name}' does not belong in '{leaf}'"));
        }
        if !LEAVES.contains(&name) && !CONTAINERS.contains(&name) {
            return text(format!("unknown element '{name}' in {}", self.place.word()));
        }
        let mut attributes = Attributes::parse(inside, name).map_err(XmlFault::Text)?;
        let container = self.begin_element(name, &mut attributes)?;
        attributes.finish(self.options.lenient).map_err(XmlFault::Text)?;
        match (container, empty) {
            (true, true) => self.end_container(),
            (false, false) => {
                self.open_leaf = LEAVES.into_iter().find(|leaf| *leaf == name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Begins the element; whether it is one with content.
    fn begin_element(&mut self, name: &str, attributes: &mut Attributes<'_>) -> Result<bool, Fault<S>> {
        let at = Position(self.window.offset());
        match (self.place, name) {
            (Place::Start, "superblock") => {
                let pool = attributes.pool().map_err(XmlFault::Text)?;
                self.sink.pool(&pool).map_err(XmlFault::Refused)?;
                self.place = Place::Pool;
                Ok(true)
            }
            (Place::Pool, "def") => {
                let name = attributes.name().map_err(XmlFault::Text)?;
                let added = self.names.add(&name);
                self.begin_definition(added, &name)?;
                Ok(true)
            }
            (Place::Pool, "device") => {
                let device = attributes.device().map_err(XmlFault::Text)?;
                self.sink.begin_device(&device).map_err(XmlFault::Refused)?;
                self.place = Place::Device;
                Ok(true)
            }
            (Place::Definition | Place::Device, "single_mapping") => {
                let run = attributes.single().map_err(XmlFault::Text)?;
                self.run(&run, at)?;
                Ok(false)
            }
            (Place::Definition | Place::Device, "range_mapping") => {
                let run = attributes.range().map_err(XmlFault::Text)?;
                self.run(&run, at)?;
                Ok(false)
            }
            (Place::Device, "ref") => {
                let name = attributes.name().map_err(XmlFault::Text)?;
                let Some(number) = self.names.find(&name) else { return unknown_reference(&name) };
                self.sink.reference(number).map_err(XmlFault::Refused)?;
                Ok(false)
            }
            (Place::End, _) => text(format!("'{name}' behind the end of the superblock")),
            (place, _) => text(format!("'{name}' does not belong in {}", place.word())),
        }
    }

    fn begin_definition(&mut self, added: Option<u32>, name: &str) -> Result<(), Fault<S>> {
        if added.is_none() {
            return text(format!("there is a def '{name}' already"));
        }
        self.place = Place::Definition;
        self.sink.begin_definition().map_err(XmlFault::Refused)
    }

    fn end_tag(&mut self, name: &str) -> Result<(), Fault<S>> {
        let expected = self.open_leaf.unwrap_or(self.place.word());
        if matches!(self.place, Place::Start | Place::End) || name != expected {
            return text(format!("'</{name}>' inside {expected}"));
        }
        if self.open_leaf.take().is_some() {
            return Ok(());
        }
        self.end_container()
    }

    fn end_container(&mut self) -> Result<(), Fault<S>> {
        match self.place {
            Place::Device => {
                self.place = Place::Pool;
                self.sink.end_device().map_err(XmlFault::Refused)
            }
            Place::Definition => {
                self.place = Place::Pool;
                self.sink.end_definition().map_err(XmlFault::Refused)
            }
            _ => {
                self.place = Place::End;
                Ok(())
            }
        }
    }
}

/// References in dump form that follow each other. They are looked up together, so that the processor waits for
/// all of them at once.
struct Group {
    count: usize,
    numbers: [u32; Group::SIZE],
    begins: [usize; Group::SIZE],
    ends: [usize; Group::SIZE],
}

impl Group {
    const SIZE: usize = 32;

    /// Those that begin at `at`, as far as their definitions are known and all is in memory.
    fn read(text: &[u8], mut at: usize, names: &Names) -> Group {
        let mut group = Group { count: 0, numbers: [0; Group::SIZE], begins: [0; Group::SIZE], ends: [0; Group::SIZE] };
        while group.count < Group::SIZE {
            at += fast::blanks(&text[at..]);
            let Some((name, length)) = fast::reference(&text[at..]) else { break };
            let Some(number) = names.find_number(name) else { break };
            group.numbers[group.count] = number;
            group.begins[group.count] = at;
            at += length;
            group.ends[group.count] = at;
            group.count += 1;
        }
        group
    }

    /// Gives them to `sink`. An error comes with the place of its reference.
    fn give<S: PoolSink>(&self, sink: &mut S) -> Result<(), (usize, S::Error)> {
        let numbers = &self.numbers[..self.count];
        sink.upcoming(numbers);
        for (number, begin) in numbers.iter().zip(&self.begins) {
            sink.reference(*number).map_err(|error| (*begin, error))?;
        }
        Ok(())
    }
}

fn unknown_reference<T, E>(name: &str) -> Result<T, XmlFault<E>> {
    text(format!("no def '{name}' comes before this ref"))
}

/// The length of a tag up to its `>`; those in quotes don't count.
fn tag_length(text: &[u8]) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.iter().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(*byte),
            (Some(open), byte) if open == *byte => quote = None,
            _ => {}
        }
    }
    None
}
