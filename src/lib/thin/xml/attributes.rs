//! The attributes of each element (docs/format.md 9.2).

use crate::base::{DataBlock, ThinBlock, ThinId};
use crate::thin::model::{Device, Pool, Run};
use quick_xml::XmlVersion;
use quick_xml::events::attributes::{AttrError, Attributes as XmlAttributes};
use std::borrow::Cow;

/// An element's attributes, which are taken out one by one.
pub(super) struct Attributes<'a> {
    element: &'a str,
    left: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> Attributes<'a> {
    /// The attributes of `tag`, which is the inside of a start tag beginning with the name `element`.
    pub(super) fn parse(tag: &'a str, element: &'a str) -> Result<Self, String> {
        let mut left = Vec::new();
        for attribute in XmlAttributes::new(tag, element.len()) {
            let attribute = attribute.map_err(|error| explain(&error, tag, element))?;
            let name = attribute.key.into_inner();
            // Both have to be written otherwise in XML; other readers refuse them.
            let forbidden = attribute.value.bytes().find(|byte| matches!(byte, 0 | b'<'));
            if let Some(byte) = forbidden {
                let what = if byte == 0 { "a NUL byte" } else { "'<', which is written as &lt;" };
                return Err(format!("attribute '{name}' of '{element}' holds {what}"));
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|error| format!("attribute '{name}' of '{element}': {error}"))?;
            left.push((name, value));
        }
        Ok(Attributes { element, left })
    }

    fn take(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let at = self.left.iter().position(|(found, _)| *found == name)?;
        Some(self.left.swap_remove(at).1)
    }

    fn text(&mut self, name: &str) -> Result<Cow<'a, str>, String> {
        self.take(name).ok_or_else(|| format!("missing attribute '{name}' of '{}'", self.element))
    }

    fn optional(&mut self, name: &str, most: u64) -> Result<Option<u64>, String> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let wrong = |what: &str| format!("attribute '{name}' of '{}': '{text}' {what}", self.element);
        let digits = text.strip_prefix('+').unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong("is not a number"));
        }
        match digits.parse() {
            Ok(number) if number <= most => Ok(Some(number)),
            _ => Err(wrong(&format!("is above {most}"))),
        }
    }

    fn number(&mut self, name: &str) -> Result<u64, String> {
        let missing = format!("missing attribute '{name}' of '{}'", self.element);
        self.optional(name, u64::MAX)?.ok_or(missing)
    }

    fn number32(&mut self, name: &str) -> Result<u32, String> {
        let missing = format!("missing attribute '{name}' of '{}'", self.element);
        Ok(self.optional(name, u32::MAX.into())?.ok_or(missing)? as u32)
    }

    /// Nothing must be left, unless that is of no interest.
    pub(super) fn finish(self, lenient: bool) -> Result<(), String> {
        match self.left.first() {
            Some((name, _)) if !lenient => Err(format!("unknown attribute '{name}' of '{}'", self.element)),
            _ => Ok(()),
        }
    }

    pub(super) fn pool(&mut self) -> Result<Pool, String> {
        // A block of the image that the dump was made from, which means nothing in another.
        self.optional("metadata_snap", u64::MAX)?;
        Ok(Pool {
            uuid: self.text("uuid")?.into_owned(),
            time: self.number32("time")?,
            transaction: self.number("transaction")?,
            flags: self.optional("flags", u32::MAX.into())?.unwrap_or(0) as u32,
            version: self.optional("version", u32::MAX.into())?.unwrap_or(1) as u32,
            data_block_size: self.number32("data_block_size")?,
            nr_data_blocks: self.number("nr_data_blocks")?,
        })
    }

    pub(super) fn device(&mut self) -> Result<Device, String> {
        Ok(Device {
            id: ThinId(self.number("dev_id")?),
            mapped_blocks: self.number("mapped_blocks")?,
            transaction: self.number("transaction")?,
            creation_time: self.number32("creation_time")?,
            snapshotted_time: self.number32("snap_time")?,
        })
    }

    pub(super) fn single(&mut self) -> Result<Run, String> {
        Ok(Run {
            thin_begin: ThinBlock(self.number("origin_block")?),
            data_begin: DataBlock(self.number("data_block")?),
            length: 1,
            time: self.number32("time")?,
        })
    }

    pub(super) fn range(&mut self) -> Result<Run, String> {
        Ok(Run {
            thin_begin: ThinBlock(self.number("origin_begin")?),
            data_begin: DataBlock(self.number("data_begin")?),
            length: self.number("length")?,
            time: self.number32("time")?,
        })
    }

    pub(super) fn name(&mut self) -> Result<Cow<'a, str>, String> {
        self.text("name")
    }
}

fn explain(error: &AttrError, tag: &str, element: &str) -> String {
    match error {
        AttrError::Duplicated(at, _) => {
            let rest = tag.get(*at..).unwrap_or_default();
            let name = rest.split(|c: char| c == '=' || c.is_ascii_whitespace()).next().unwrap_or_default();
            format!("attribute '{name}' of '{element}' is given twice")
        }
        AttrError::ExpectedEq(_) => format!("an attribute of '{element}' has no '='"),
        AttrError::ExpectedValue(_) => format!("an attribute of '{element}' has no value"),
        AttrError::UnquotedValue(_) => format!("an attribute of '{element}' has no quotes"),
        AttrError::ExpectedQuote(..) => format!("an attribute of '{element}' has no closing quote"),
    }
}
