//! The elements that make up nearly all of a dump, in the very form in which a dump has them.
//!
//! What is not exactly in this form is left to the general reader, so nothing here reports errors.

use crate::base::{DataBlock, ThinBlock};
use crate::thin::model::Run;

/// No element in dump form is longer than this, in bytes.
pub(super) const LONGEST: usize = 256;

/// An element in dump form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Canonical {
    /// `single_mapping` or `range_mapping`.
    Run(Run),
    /// A `ref` with a number for its name.
    Reference(u64),
    /// A `def` begins, with a number for its name.
    BeginDefinition(u64),
    /// A `def` ends.
    EndDefinition,
}

/// The length of the white space that `text` begins with.
#[inline]
pub(super) fn blanks(text: &[u8]) -> usize {
    const NEXT_LINE: &[u8] = b"\n    <";
    if text.starts_with(NEXT_LINE) {
        return NEXT_LINE.len() - 1;
    }
    text.iter().take_while(|byte| matches!(byte, b'\n' | b' ' | b'\t' | b'\r')).count()
}

/// The element that `text` begins with, and its length in bytes.
// Inlined: to hand the result over in memory takes as long as to read a number.
#[inline(always)]
pub(super) fn element(text: &[u8]) -> Option<(Canonical, usize)> {
    let mut cursor = Cursor { text, at: 0 };
    let element = match text.get(1)? {
        b's' => cursor.single()?,
        b'r' if text.get(2) == Some(&b'a') => cursor.range()?,
        b'r' => Canonical::Reference(cursor.name(b"<ref name=\"", b"\"/>")?),
        b'd' => Canonical::BeginDefinition(cursor.name(b"<def name=\"", b"\">")?),
        b'/' => {
            cursor.literal(b"</def>")?;
            Canonical::EndDefinition
        }
        _ => return None,
    };
    Some((element, cursor.at))
}

/// The name of the `ref` that `text` begins with, where it is a number, and the element's length in bytes.
#[inline(always)]
pub(super) fn reference(text: &[u8]) -> Option<(u64, usize)> {
    let mut cursor = Cursor { text, at: 0 };
    let name = cursor.name(b"<ref name=\"", b"\"/>")?;
    Some((name, cursor.at))
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline(always)]
    fn literal<const N: usize>(&mut self, literal: &[u8; N]) -> Option<()> {
        let found = self.text.get(self.at..self.at + N)?;
        if found != literal {
            return None;
        }
        self.at += N;
        Some(())
    }

    /// A decimal number of 1 to 16 digits.
    #[inline(always)]
    fn number(&mut self) -> Option<u64> {
        let (mut number, digits) = self.up_to_eight_digits()?;
        self.at += digits;
        if digits == 0 {
            return None;
        }
        if digits == 8 && self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            let (low, digits) = self.up_to_eight_digits()?;
            const POWERS: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
            number = number * POWERS[digits] + low;
            self.at += digits;
        }
        Some(number)
    }

    /// The number that the next digits make, at most 8, and how many there are.
    #[inline(always)]
    fn up_to_eight_digits(&self) -> Option<(u64, usize)> {
        let bytes = self.text.get(self.at..)?.first_chunk::<8>()?;
        let word = u64::from_le_bytes(*bytes);
        // The high half of each byte that is no digit becomes different from 0.
        let digits = word ^ 0x3030_3030_3030_3030;
        let others = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080;
        let count = others.trailing_zeros() as usize / 8;
        if count == 0 {
            return Some((0, 0));
        }
        // Digits to the top, zeros below them: the first digit is in the lowest byte.
        let digits = digits << (64 - 8 * count);
        let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
        let upper = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
        let lower = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
        Some((upper.wrapping_add(lower) >> 32, count))
    }

    /// A time; most have one digit.
    #[inline(always)]
    fn time(&mut self) -> Option<u32> {
        if let Some([digit @ b'0'..=b'9', b'"', ..]) = self.text.get(self.at..) {
            self.at += 1;
            return Some(u32::from(digit - b'0'));
        }
        u32::try_from(self.number()?).ok()
    }

    #[inline(always)]
    fn single(&mut self) -> Option<Canonical> {
        self.literal(b"<single_mapping origin_block=\"")?;
        let thin_begin = ThinBlock(self.number()?);
        self.literal(b"\" data_block=\"")?;
        let data_begin = DataBlock(self.number()?);
        self.literal(b"\" time=\"")?;
        let time = self.time()?;
        self.literal(b"\"/>")?;
        Some(Canonical::Run(Run { thin_begin, data_begin, length: 1, time }))
    }

    #[inline(always)]
    fn range(&mut self) -> Option<Canonical> {
        self.literal(b"<range_mapping origin_begin=\"")?;
        let thin_begin = ThinBlock(self.number()?);
        self.literal(b"\" data_begin=\"")?;
        let data_begin = DataBlock(self.number()?);
        self.literal(b"\" length=\"")?;
        let length = self.number()?;
        self.literal(b"\" time=\"")?;
        let time = self.time()?;
        self.literal(b"\"/>")?;
        Some(Canonical::Run(Run { thin_begin, data_begin, length, time }))
    }

    /// A name that is a number as it would be printed: no zeros before it.
    #[inline(always)]
    fn name<const N: usize, const M: usize>(&mut self, before: &[u8; N], behind: &[u8; M]) -> Option<u64> {
        self.literal(before)?;
        let begin = self.at;
        let number = self.number()?;
        if self.text[begin] == b'0' && self.at > begin + 1 {
            return None;
        }
        self.literal(behind)?;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(thin: u64, data: u64, length: u64, time: u32) -> Canonical {
        Canonical::Run(Run { thin_begin: ThinBlock(thin), data_begin: DataBlock(data), length, time })
    }

    proptest! {
        #[test]
        fn numbers_of_up_to_sixteen_digits(
            digits in 1u32..17, thin in any::<u64>(), data in 0u64..10_000_000_000_000_000, length: u32, time: u32,
        ) {
            let thin = thin % 10u64.pow(digits);
            let text = format!("<single_mapping origin_block=\"{thin}\" data_block=\"{data}\" time=\"{time}\"/>\n              ");
            prop_assert_eq!(element(text.as_bytes()), Some((run(thin, data, 1, time), text.len() - 15)));
            let text = format!(
                "<range_mapping origin_begin=\"{thin}\" data_begin=\"{data}\" length=\"{length}\" time=\"{time}\"/>\n              "
            );
            prop_assert_eq!(element(text.as_bytes()), Some((run(thin, data, length.into(), time), text.len() - 15)));
            let text = format!("<ref name=\"{thin}\"/>\n              ");
            prop_assert_eq!(element(text.as_bytes()), Some((Canonical::Reference(thin), text.len() - 15)));
        }
    }

    #[test]
    fn other_forms_are_left_alone() {
        for text in [
            "<single_mapping origin_block=\"\" data_block=\"1\" time=\"0\"/>        ",
            "<single_mapping origin_block=\"+1\" data_block=\"1\" time=\"0\"/>        ",
            "<single_mapping origin_block=\"12345678901234567\" data_block=\"1\" time=\"0\"/>        ",
            "<single_mapping origin_block=\"1\" data_block=\"1\" time=\"4294967296\"/>        ",
            "<single_mapping origin_block='1' data_block=\"1\" time=\"0\"/>        ",
            "<single_mapping origin_block=\"1\" data_block=\"1\" time=\"0\" />        ",
            "<single_mapping data_block=\"1\" origin_block=\"1\" time=\"0\"/>        ",
            "<single_mapping origin_block=\"1\" data_block=\"1\" time=\"0\"",
            "<ref name=\"007\"/>        ",
            "<ref name=\"x7\"/>        ",
            "<ref name=\"7:\"/>        ",
            "<def name=\"7\"/>        ",
            "</device>       ",
            "<",
        ] {
            assert_eq!(element(text.as_bytes()), None, "{text}");
        }
        assert_eq!(element(b"<def name=\"0\">        "), Some((Canonical::BeginDefinition(0), 14)));
        assert_eq!(element(b"</def>"), Some((Canonical::EndDefinition, 6)));
    }
}
