//! Lists of device ids as `--dev-id` takes them: `1,5,10-20`.

use std::ops::RangeInclusive;

/// Ids, as sorted ranges that neither overlap nor touch.
///
/// Kept as ranges, so that `0-18446744073709551615` costs no more than `1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdList {
    /// As they were given: a word about an unknown id is due only for what was asked for.
    items: Vec<RangeInclusive<u64>>,
    merged: Vec<RangeInclusive<u64>>,
}

/// Why a list can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdListError {
    /// Two commas in a row, or one at an end.
    #[error("there is an empty item in the list")]
    Empty,
    /// An item that is no number.
    #[error("'{0}' is neither a device id nor a range like 10-20")]
    Malformed(String),
    /// A range that ends before it begins.
    #[error("the range {0} ends before it begins")]
    Reversed(String),
    /// A number above 2^64 - 1.
    #[error("'{0}' does not fit in 64 bits")]
    TooLarge(String),
}

impl IdList {
    /// Reads a list of ids and inclusive ranges, separated by commas.
    ///
    /// # Errors
    /// Says which item is wrong.
    pub fn parse(text: &str) -> Result<Self, IdListError> {
        text.split(',').map(parse_item).collect::<Result<Vec<_>, _>>().map(Self::of)
    }

    /// The ids of all the lists.
    pub fn union<'a>(lists: impl IntoIterator<Item = &'a IdList>) -> Self {
        Self::of(lists.into_iter().flat_map(|list| list.items.iter().cloned()).collect())
    }

    fn of(items: Vec<RangeInclusive<u64>>) -> Self {
        let mut ranges = items.clone();
        ranges.sort_unstable_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        IdList { items, merged }
    }

    /// The ids and ranges as they were given.
    pub fn into_items(self) -> Vec<RangeInclusive<u64>> {
        self.items
    }

    /// Whether `id` is in the list.
    pub fn contains(&self, id: u64) -> bool {
        let after = self.merged.partition_point(|range| *range.start() <= id);
        after.checked_sub(1).and_then(|last| self.merged.get(last)).is_some_and(|range| range.contains(&id))
    }

    /// The ids, as ascending ranges.
    pub fn ranges(&self) -> &[RangeInclusive<u64>] {
        &self.merged
    }
}

fn parse_item(item: &str) -> Result<RangeInclusive<u64>, IdListError> {
    let item = item.trim();
    if item.is_empty() {
        return Err(IdListError::Empty);
    }
    match item.split_once('-') {
        None => parse_id(item, item).map(|id| id..=id),
        Some((begin, end)) => {
            let (begin, end) = (parse_id(begin, item)?, parse_id(end, item)?);
            if begin > end { Err(IdListError::Reversed(item.to_string())) } else { Ok(begin..=end) }
        }
    }
}

fn parse_id(text: &str, item: &str) -> Result<u64, IdListError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(IdListError::Malformed(item.to_string()));
    }
    text.parse().map_err(|_| IdListError::TooLarge(text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{IdList, IdListError};

    #[test]
    fn ids_and_ranges() {
        let list = IdList::parse("1,5,10-20").unwrap();
        for (id, there) in
            [(0, false), (1, true), (2, false), (5, true), (9, false), (10, true), (20, true), (21, false)]
        {
            assert_eq!(list.contains(id), there, "{id}");
        }
    }

    #[test]
    fn ranges_are_merged() {
        let list = IdList::parse("7-9,1,2,3, 8-12 ,1").unwrap();
        assert_eq!(list.ranges(), [1..=3, 7..=12]);
        let all = IdList::parse("0-18446744073709551615,5").unwrap();
        assert_eq!(all.ranges(), [0..=u64::MAX]);
        assert!(all.contains(u64::MAX));
        assert_eq!(IdList::union([&list, &IdList::parse("4-6").unwrap()]).ranges(), [1..=12]);
    }

    #[test]
    fn nothing_is_in_an_empty_list() {
        assert!(!IdList::default().contains(0));
        assert!(!IdList::union([]).contains(u64::MAX));
    }

    #[test]
    fn errors_name_the_item() {
        assert_eq!(IdList::parse(""), Err(IdListError::Empty));
        assert_eq!(IdList::parse("1,,2"), Err(IdListError::Empty));
        assert_eq!(IdList::parse("1,x"), Err(IdListError::Malformed("x".into())));
        assert_eq!(IdList::parse("1-2-3"), Err(IdListError::Malformed("1-2-3".into())));
        assert_eq!(IdList::parse("-3"), Err(IdListError::Malformed("-3".into())));
        assert_eq!(IdList::parse("+3"), Err(IdListError::Malformed("+3".into())));
        assert_eq!(IdList::parse("5-4"), Err(IdListError::Reversed("5-4".into())));
        assert_eq!(IdList::parse("18446744073709551616"), Err(IdListError::TooLarge("18446744073709551616".into())));
    }
}
