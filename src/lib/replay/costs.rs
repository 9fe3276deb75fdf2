//! What steps cost, from small text files in which every value has its origin.

use super::engine::Ns;
use crate::pdata::overlay::Beyond;
use serde::Serialize;
use std::fmt::Write as _;

/// The profiles that come with the program.
const PROFILES: [&str; 2] = [include_str!("profiles/ssd-2016.txt"), include_str!("profiles/kernel-6.1-emulated.txt")];

/// No step takes longer than a minute.
const MOST: Ns = 60_000_000_000;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Set so that a published figure comes out.
    Fit,
    /// Read in source.
    Code,
    /// Measured.
    Measured,
    /// Nobody knows.
    Assumed,
}

/// One value with its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Price {
    /// Its name.
    pub name: String,
    /// Nanoseconds.
    pub ns: Ns,
    /// Where it comes from.
    pub origin: Origin,
    /// What it is.
    pub note: String,
}

macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The costs of all steps, in nanoseconds.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Costs {
            /// The profile's name.
            pub profile: String,
            /// Every value as it was given.
            pub prices: Vec<Price>,
            $($(#[$doc])* pub $name: Ns,)*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];

        impl Costs {
            fn slot(&mut self, name: &str) -> Option<&mut Ns> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }

            fn empty() -> Costs {
                Costs { profile: String::new(), prices: Vec::new(), $($name: 0,)* }
            }
        }
    };
}

costs! {
    /// A data block's count taken down.
    dec,
    /// A tree node released.
    free_node,
    /// A lookup.
    lookup,
    /// Asking for the number of free blocks.
    count,
    /// Taking a data block.
    alloc,
    /// Inserting a mapping.
    insert,
    /// Removing a mapping.
    remove,
    /// Submitting a write of 512 KiB.
    submit_w,
    /// Submitting a read of 512 KiB.
    submit_r,
    /// Submitting anything.
    submit_min,
    /// From being woken to running.
    wake,
    /// A commit without blocks.
    commit,
    /// A metadata block that a commit writes.
    write,
    /// Time between commits.
    period,
    /// Moving 512 KiB to or from the data device.
    data,
    /// Reading a metadata block that is not cached, from asking to having it.
    miss,
    /// Reading a metadata block among many: a device reads one after the other.
    read,
    /// Getting a buffer of the metadata's cache, under the lock that it is in.
    get,
    /// Taking down a run of neighbouring counts.
    run,
    /// Each count of such a run.
    bulk,
    /// Looking at a node.
    visit,
    /// A node of the index tree, where the index entry of a bitmap is not at hand and is fetched and put back.
    index,
    /// Taking down a count above 3, which is in a tree and stays there.
    overflow,
    /// A node of that tree, where a count of 3 is taken down and leaves it.
    settle,
}

/// What is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cost profile, line {line}: {what}")]
pub struct CostError {
    line: usize,
    what: String,
}

impl Costs {
    /// Reads a profile: `profile NAME`, then lines of name, nanoseconds, origin and a note. `#` begins a comment.
    ///
    /// # Errors
    /// Says which line is wrong, or which value is missing.
    pub fn parse(text: &str) -> Result<Costs, CostError> {
        let mut costs = Costs::empty();
        let mut line_number = 0;
        for (line, text) in (1..).zip(text.lines()) {
            line_number = line;
            let wrong = |what: &str| CostError { line, what: what.to_string() };
            let text = text.split('#').next().unwrap_or("").trim();
            let words: Vec<&str> = text.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                ["profile", name] => costs.profile = name.to_string(),
                [name, ns, origin, note @ ..] => {
                    let ns = ns.parse().ok().filter(|ns| *ns <= MOST).ok_or_else(|| wrong("nanoseconds are wanted"))?;
                    let origin = match *origin {
                        "fit" => Origin::Fit,
                        "code" => Origin::Code,
                        "measured" => Origin::Measured,
                        "assumed" => Origin::Assumed,
                        _ => return Err(wrong("the origin is fit, code, measured or assumed")),
                    };
                    *costs.slot(name).ok_or_else(|| wrong("there is no such cost"))? = ns;
                    costs.prices.push(Price { name: name.to_string(), ns, origin, note: note.join(" ") });
                }
                _ => return Err(wrong("name, nanoseconds and origin are wanted")),
            }
        }
        let missing = NAMES.iter().find(|name| costs.prices.iter().all(|price| price.name != **name));
        match missing {
            Some(name) => Err(CostError { line: line_number, what: format!("'{name}' is missing") }),
            None => Ok(costs),
        }
    }

    /// The names of the profiles that come with the program.
    pub fn names() -> Vec<String> {
        PROFILES.iter().filter_map(|text| Costs::parse(text).ok()).map(|costs| costs.profile).collect()
    }

    /// One of the profiles that come with the program.
    pub fn named(name: &str) -> Option<Costs> {
        PROFILES.iter().filter_map(|text| Costs::parse(text).ok()).find(|costs| costs.profile == name)
    }

    /// The default profile.
    pub fn standard() -> Costs {
        Costs::named("ssd-2016").unwrap_or_else(Costs::empty)
    }

    /// The same with another value.
    ///
    /// # Errors
    /// Where there is no such cost.
    pub fn with(mut self, name: &str, ns: Ns) -> Result<Costs, CostError> {
        let what = || CostError { line: 0, what: format!("there is no cost '{name}'") };
        *self.slot(name).ok_or_else(what)? = ns;
        for price in self.prices.iter_mut().filter(|price| price.name == name) {
            price.ns = ns;
            price.note = "changed for this run".to_string();
        }
        Ok(self)
    }

    /// Names of the values that are only assumed.
    pub fn assumed(&self) -> Vec<&str> {
        let assumed = self.prices.iter().filter(|price| price.origin == Origin::Assumed);
        assumed.map(|price| price.name.as_str()).collect()
    }

    /// The profile as text, which [`Costs::parse`] reads.
    pub fn text(&self) -> String {
        let mut text = format!("profile {}\n", self.profile);
        for Price { name, ns, origin, note } in &self.prices {
            let origin = format!("{origin:?}").to_lowercase();
            let _infallible = writeln!(text, "{name:12} {ns:<10} {origin:8} {note}");
        }
        text
    }

    /// Submitting a request of so many bytes.
    pub fn submit(&self, bytes: u64, write: bool) -> Ns {
        let whole = if write { self.submit_w } else { self.submit_r };
        scaled(whole, bytes).saturating_sub(self.lookup).max(self.submit_min)
    }

    /// Moving so many bytes.
    pub fn transfer(&self, bytes: u64) -> Ns {
        scaled(self.data, bytes)
    }

    /// Taking down the counts of `entries` data blocks in `runs` runs.
    pub fn release(&self, entries: u64, runs: u64, coalesce: bool) -> Ns {
        if coalesce { self.run * runs + self.bulk * entries } else { self.dec * entries }
    }

    /// What comes on top of that.
    pub fn beyond(&self, beyond: Beyond) -> Ns {
        self.index * beyond.index + self.overflow * beyond.overflow + self.settle * beyond.settle
    }
}

fn scaled(whole: Ns, bytes: u64) -> Ns {
    (u128::from(whole) * u128::from(bytes) / (512 << 10)) as Ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_whole_and_read_back() {
        assert_eq!(Costs::names()[0], "ssd-2016");
        for name in Costs::names() {
            let costs = Costs::named(&name).unwrap();
            assert_eq!(Costs::parse(&costs.text()).unwrap(), costs);
            assert!(costs.prices.iter().all(|price| !price.note.is_empty()));
        }
        let costs = Costs::standard();
        assert_eq!(costs.submit(512 << 10, true) + costs.lookup, 163_840);
        assert_eq!(costs.with("wake", 7).unwrap().wake, 7);
        let costs = Costs::named("kernel-6.1-emulated").unwrap();
        let beyond = Beyond { index: 2, overflow: 3, settle: 4 };
        assert_eq!(costs.beyond(beyond), 2 * costs.index + 3 * costs.overflow + 4 * costs.settle);
        assert!(costs.index > costs.run && costs.settle > costs.index, "what the measurements showed");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let text = Costs::standard().text();
        for (bad, what) in [
            (text.replace("dec  ", "dek  "), "there is no such cost"),
            (text.replace("fit", "guess"), "origin"),
            (text.replace("2270", "x"), "nanoseconds"),
            (text.replace("2270", "99999999999999999"), "nanoseconds"),
            (text.lines().filter(|line| !line.starts_with("wake")).collect::<Vec<_>>().join("\n"), "'wake' is missing"),
            (format!("{text}\nwake\n"), "wanted"),
        ] {
            let error = Costs::parse(&bad).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(Costs::standard().with("nothing", 1).is_err());
    }
}
