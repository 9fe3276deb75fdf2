//! The superblock's `uuid` as text. Kernels leave it zero (docs/format.md 4.1); what somebody else wrote is kept.

/// Bytes of the field.
pub const UUID_SIZE: usize = 16;

/// Where the hyphens of the usual form stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Nothing for zeros; the text that is in the field where it holds one; else the usual form of a UUID.
pub fn to_text(uuid: &[u8; UUID_SIZE]) -> String {
    let length = uuid.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match std::str::from_utf8(&uuid[..length]) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_string(),
        _ => {
            let mut text: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
            HYPHENS.iter().for_each(|at| text.insert(*at, '-'));
            text
        }
    }
}

/// The field that [`to_text`] gives this text of; `None` where there is no room for it.
pub fn from_text(text: &str) -> Option<[u8; UUID_SIZE]> {
    let mut uuid = [0; UUID_SIZE];
    if text.len() <= UUID_SIZE {
        uuid[..text.len()].copy_from_slice(text.as_bytes());
        return Some(uuid);
    }
    let bytes = text.as_bytes();
    if bytes.len() != 36 || HYPHENS.iter().any(|at| bytes[*at] != b'-') {
        return None;
    }
    let mut digits = bytes.iter().enumerate().filter(|(at, _)| !HYPHENS.contains(at)).map(|(_, digit)| digit);
    for byte in &mut uuid {
        let mut digit = || char::from(*digits.next()?).to_digit(16);
        *byte = (digit()? << 4 | digit()?) as u8;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::{from_text, to_text};
    use proptest::prelude::{any, prop_assert_eq, proptest};

    #[test]
    fn known_forms() {
        assert_eq!(to_text(&[0; 16]), "");
        assert_eq!(from_text(""), Some([0; 16]));
        assert_eq!(to_text(b"pool of the nas\0"), "pool of the nas");
        let uuid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0, 1, 2, 3, 4, 5, 6, 0xff];
        assert_eq!(to_text(&uuid), "12345678-9abc-def0-0001-0203040506ff");
        assert_eq!(from_text("12345678-9ABC-def0-0001-0203040506ff"), Some(uuid));
        for other in
            ["seventeen letters", "12345678-9abc-def0-0001-0203040506f", "12345678-9abc-def0-0001+0203040506ff"]
        {
            assert_eq!(from_text(other), None, "{other}");
        }
        assert_eq!(from_text("12345678-9abc-def0-0001-0203040506fg"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(uuid in any::<[u8; 16]>(), length in 0usize..=16, text in any::<bool>()) {
            let mut uuid = uuid;
            if text {
                uuid.iter_mut().for_each(|byte| *byte = 32 + *byte % 95);
            }
            uuid[length..].fill(0);
            prop_assert_eq!(from_text(&to_text(&uuid)), Some(uuid));
        }
    }
}
