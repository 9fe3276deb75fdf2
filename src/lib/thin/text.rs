//! The forms in which a pool is written: XML, text for people, JSON (docs/format.md 9.2, 9.3).

use super::model::{Device, Pool, Run};
use super::xml::escape;
use std::io::Write;

/// A form of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// What `thin_restore` reads.
    #[default]
    Xml,
    /// For people.
    HumanReadable,
    /// One object.
    Json,
}

/// Writes items in one of the forms. Appends to memory only.
///
/// In JSON every item of a list begins with a comma; [`Writer::begin_list`] takes it off the first one.
#[derive(Clone, Copy, Debug)]
pub struct Writer(pub Format);

impl Writer {
    /// The beginning, up to where defs and devices come.
    pub fn pool(self, out: &mut Vec<u8>, pool: &Pool) {
        let Pool { uuid, time, transaction, flags, version, data_block_size, nr_data_blocks } = pool;
        let _ = match self.0 {
            Format::Xml => writeln!(
                out,
                "<superblock uuid=\"{}\" time=\"{time}\" transaction=\"{transaction}\" flags=\"{flags}\" \
                 version=\"{version}\" data_block_size=\"{data_block_size}\" nr_data_blocks=\"{nr_data_blocks}\">",
                escape(uuid)
            ),
            Format::HumanReadable => writeln!(
                out,
                "begin superblock: \"{uuid}\", {time}, {transaction}, {flags}, {version}, {data_block_size}, {nr_data_blocks}"
            ),
            Format::Json => write!(
                out,
                "{{\"superblock\":{{\"uuid\":{},\"time\":{time},\"transaction\":{transaction},\"flags\":{flags},\
                 \"version\":{version},\"data_block_size\":{data_block_size},\"nr_data_blocks\":{nr_data_blocks}}},\n\
                 \"defs\":[",
                serde_json::Value::from(uuid.as_str())
            ),
        };
    }

    /// Between the last def and the first device.
    pub fn devices(self, out: &mut Vec<u8>) {
        if self.0 == Format::Json {
            out.extend_from_slice(b"],\n\"devices\":[");
        }
    }

    /// The end.
    pub fn pool_end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.0 {
            Format::Xml => b"</superblock>\n".as_slice(),
            Format::HumanReadable => b"end superblock\n",
            Format::Json => b"]}\n",
        });
    }

    /// The beginning of a def.
    pub fn def(self, out: &mut Vec<u8>, name: u64) {
        let _ = match self.0 {
            Format::Xml => writeln!(out, "  <def name=\"{name}\">"),
            Format::HumanReadable => writeln!(out, "def: {name}"),
            Format::Json => write!(out, ",\n{{\"name\":\"{name}\",\"mappings\":["),
        };
    }

    /// The end of a def.
    pub fn def_end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.0 {
            Format::Xml => b"  </def>\n".as_slice(),
            Format::HumanReadable => b"\n",
            Format::Json => b"]}",
        });
    }

    /// The beginning of a device.
    pub fn device(self, out: &mut Vec<u8>, device: &Device) {
        let Device { id, mapped_blocks, transaction, creation_time, snapshotted_time } = device;
        let _ = match self.0 {
            Format::Xml => writeln!(
                out,
                "  <device dev_id=\"{id}\" mapped_blocks=\"{mapped_blocks}\" transaction=\"{transaction}\" \
                 creation_time=\"{creation_time}\" snap_time=\"{snapshotted_time}\">"
            ),
            Format::HumanReadable => writeln!(
                out,
                "device: {id}\nmapped_blocks: {mapped_blocks}\ntransaction: {transaction}\n\
                 creation time: {creation_time}\nsnap time: {snapshotted_time}"
            ),
            Format::Json => write!(
                out,
                ",\n{{\"dev_id\":{id},\"mapped_blocks\":{mapped_blocks},\"transaction\":{transaction},\
                 \"creation_time\":{creation_time},\"snap_time\":{snapshotted_time},\"mappings\":["
            ),
        };
    }

    /// The end of a device.
    pub fn device_end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.0 {
            Format::Xml => b"  </device>\n".as_slice(),
            Format::HumanReadable => b"\n",
            Format::Json => b"]}",
        });
    }

    /// The place of a def's mappings in a device.
    pub fn reference(self, out: &mut Vec<u8>, name: u64) {
        let [before, after]: [&[u8]; 2] = match self.0 {
            Format::Xml => [b"    <ref name=\"", b"\"/>\n"],
            Format::HumanReadable => [b"    ref: ", b"\n"],
            Format::Json => [b",{\"ref\":\"", b"\"}"],
        };
        out.extend_from_slice(before);
        number(out, name);
        out.extend_from_slice(after);
    }

    /// A run of mappings. The hot path of a dump.
    #[inline]
    pub fn run(self, out: &mut Vec<u8>, run: &Run) {
        match self.0 {
            Format::Xml => xml_run(out, run),
            Format::HumanReadable => human_run(out, run),
            Format::Json => json_run(out, run),
        }
    }

    /// Takes the comma off the first item of a list, which begins at `from`.
    pub fn begin_list(self, out: &mut Vec<u8>, from: usize) {
        if self.0 == Format::Json && out.get(from) == Some(&b',') {
            out.remove(from);
        }
    }
}

#[inline]
fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Texts and numbers in turn.
#[inline]
fn pieces<const N: usize>(out: &mut Vec<u8>, texts: [&[u8]; N], numbers: [u64; N], end: &[u8]) {
    for (text, value) in texts.into_iter().zip(numbers) {
        out.extend_from_slice(text);
        number(out, value);
    }
    out.extend_from_slice(end);
}

fn xml_run(out: &mut Vec<u8>, run: &Run) {
    let (thin, data, time) = (run.thin_begin.0, run.data_begin.0, u64::from(run.time));
    if run.length == 1 {
        let texts: [&[u8]; 3] = [b"    <single_mapping origin_block=\"", b"\" data_block=\"", b"\" time=\""];
        pieces(out, texts, [thin, data, time], b"\"/>\n");
    } else {
        let texts: [&[u8]; 4] =
            [b"    <range_mapping origin_begin=\"", b"\" data_begin=\"", b"\" length=\"", b"\" time=\""];
        pieces(out, texts, [thin, data, run.length, time], b"\"/>\n");
    }
}

fn human_run(out: &mut Vec<u8>, run: &Run) {
    let (thin, data) = (run.thin_begin.0, run.data_begin.0);
    let (thin_last, data_last) = (thin.saturating_add(run.length - 1), data.saturating_add(run.length - 1));
    let texts: [&[u8]; 5] = [b"    (", b"..", b") -> (", b"..", b"), "];
    pieces(out, texts, [thin, thin_last, data, data_last, u64::from(run.time)], b"\n");
}

fn json_run(out: &mut Vec<u8>, run: &Run) {
    let texts: [&[u8]; 4] = [b",{\"origin_begin\":", b",\"data_begin\":", b",\"length\":", b",\"time\":"];
    let numbers = [run.thin_begin.0, run.data_begin.0, run.length, u64::from(run.time)];
    pieces(out, texts, numbers, b"}");
}
