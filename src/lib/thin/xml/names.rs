//! The names of definitions.

use std::collections::HashMap;

/// Numbers below this are looked up in a table: no pool has a metadata block beyond, and dumps name definitions
/// after blocks.
const TABLE: u64 = 1 << 22;
const NONE: u32 = u32::MAX;

/// Names and the numbers of the definitions that have them. Takes 4 bytes per block of the pool that was dumped.
#[derive(Debug, Default)]
pub(super) struct Names {
    table: Vec<u32>,
    others: HashMap<Box<str>, u32>,
    count: u32,
}

impl Names {
    /// Gives the next number to `name`; `None` where the name is taken, or there are too many.
    pub(super) fn add(&mut self, name: &str) -> Option<u32> {
        match as_printed(name) {
            Some(number) => self.add_number(number),
            None => self.add_other(name.into()),
        }
    }

    /// The same for a name that is a number.
    pub(super) fn add_number(&mut self, number: u64) -> Option<u32> {
        if number >= TABLE {
            return self.add_other(number.to_string().into());
        }
        let index = number as usize;
        if self.table.len() <= index {
            self.table.resize(index + 1, NONE);
        }
        if self.table[index] != NONE || self.count == NONE {
            return None;
        }
        self.table[index] = self.count;
        self.count += 1;
        Some(self.table[index])
    }

    fn add_other(&mut self, name: Box<str>) -> Option<u32> {
        if self.count == NONE || self.others.contains_key(&name) {
            return None;
        }
        self.others.insert(name, self.count);
        self.count += 1;
        Some(self.count - 1)
    }

    /// The number of the definition with that name.
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        match as_printed(name) {
            Some(number) => self.find_number(number),
            None => self.others.get(name).copied(),
        }
    }

    /// The same for a name that is a number.
    #[inline]
    pub(super) fn find_number(&self, number: u64) -> Option<u32> {
        if number >= TABLE {
            return self.others.get(number.to_string().as_str()).copied();
        }
        self.table.get(number as usize).copied().filter(|found| *found != NONE)
    }
}

/// The number that is printed as `name`.
fn as_printed(name: &str) -> Option<u64> {
    let plain = name == "0" || name.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with('0');
    if plain { name.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_are_kept_apart() {
        let mut names = Names::default();
        let all = ["17", "017", "0", "00", "x", "", "4194303", "4194304", "18446744073709551616", "+17"];
        for (index, name) in all.iter().enumerate() {
            assert_eq!(names.find(name), None, "{name}");
            assert_eq!(names.add(name), Some(index as u32), "{name}");
        }
        for (index, name) in all.iter().enumerate() {
            assert_eq!(names.find(name), Some(index as u32), "{name}");
            assert_eq!(names.add(name), None, "{name}");
        }
        assert_eq!(names.find_number(17), Some(0));
        assert_eq!(names.find_number(4_194_304), Some(7));
        assert_eq!(names.add_number(17), None);
        assert_eq!(names.add_number(4_194_304), None);
        assert_eq!(names.find_number(18), None);
    }
}
