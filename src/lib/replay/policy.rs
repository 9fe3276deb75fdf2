//! How a delete goes about it: what is held, where it may stop, and when it goes on.

use super::engine::Ns;
use super::pool::POOLS_MAX;

/// When background work takes its next turn, given who waits. Used for deletes and for the resync alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// At once.
    #[default]
    AtOnce,
    /// Only where somebody waits is the lock given up at all.
    IfWaiting,
    /// After so long, always.
    Sleep(Ns),
    /// After so long, where somebody waits.
    SleepIfWaiting(Ns),
    /// At the next tick of so many nanoseconds, where somebody waits.
    Tick(Ns),
}

impl Turn {
    /// How long to stay away, given how many wait.
    pub fn pause(self, waiting: usize, now: Ns) -> Ns {
        match self {
            Turn::AtOnce | Turn::IfWaiting => 0,
            Turn::Sleep(time) => time,
            Turn::SleepIfWaiting(time) if waiting > 0 => time,
            Turn::Tick(tick) if waiting > 0 => tick - now % tick,
            Turn::SleepIfWaiting(_) | Turn::Tick(_) => 0,
        }
    }

    /// Whether a boundary is passed over where nobody waits.
    pub fn skips(self) -> bool {
        matches!(self, Turn::IfWaiting | Turn::SleepIfWaiting(_) | Turn::Tick(_))
    }
}

/// Where a walk may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// When so many nodes wait to be released.
    Nodes(u64),
    /// After so many entries, also inside a leaf.
    Entries(u64),
    /// When the lock was held for so long.
    Held(Ns),
}

/// What is locked, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The pool's lock for the whole delete.
    Coarse,
    /// Unlinked first; walked with the lock shared; nodes released with the lock alone.
    Walk(Boundary),
    /// No pool lock: the space map locks itself, and only a commit keeps others out.
    Rolling,
    /// Mappings are removed region by region, so many at a time, each a whole change.
    Background(u64),
    /// All mappings are discarded by requests, then the empty device is deleted.
    DiscardFirst,
    /// The pool is out of service meanwhile.
    Offline,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// As it was given.
    pub name: String,
    /// What is locked.
    pub kind: Kind,
    /// When it goes on.
    pub turn: Turn,
    /// Neighbouring counts are taken down together.
    pub coalesce: bool,
    /// Whoever runs may take the space map's own lock before those who wait.
    pub steal: bool,
    /// What becomes of discards.
    pub discards: Discards,
    /// A walk asks for all children of a node before it looks at the first.
    pub prefetch: bool,
    /// The devices are spread over so many pools, each with a lock and a worker of its own.
    pub pools: u64,
}

/// What a pool does with discards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discards {
    /// Unmapped, and passed down to the data device.
    #[default]
    PassedDown,
    /// Unmapped only.
    Unmapped,
    /// Nothing: the blocks stay mapped.
    Ignored,
}

/// A timer tick at 250 Hz.
pub const TICK: Ns = 4_000_000;

impl Policy {
    /// One that has no parameters, as the pool of today has it.
    pub fn coarse() -> Policy {
        Policy::of("coarse", Kind::Coarse)
    }

    fn of(name: &str, kind: Kind) -> Policy {
        let (turn, discards) = (Turn::AtOnce, Discards::PassedDown);
        let (coalesce, steal, prefetch, pools) = (false, false, false, 1);
        Policy { name: name.into(), kind, turn, coalesce, steal, discards, prefetch, pools }
    }

    /// Reads a policy: `coarse`, `batch(N)`, `subleaf(N)`, `budget(T)`, `rolling`, `background[(N)]`, `discard-first` or
    /// `offline`, then any of `+sleep(T)`, `+yield`, `+tick`, `+window(T)`, `+coalesce`, `+prefetch`, `+split-pools(N)`,
    /// `+nopassdown`, `+ignore` (of discards; `discard-first` can't ignore them); `rolling+steal` lets a runner go
    /// first. Times are like `100ms`.
    ///
    /// # Errors
    /// Says what is not understood.
    pub fn parse(text: &str) -> Result<Policy, String> {
        let mut parts = text.split('+').map(str::trim);
        let (head, argument) = call(parts.next().unwrap_or(""))?;
        let number = |least: u64| match argument.map(str::parse::<u64>) {
            Some(Ok(number)) if number >= least => Ok(number),
            _ => Err(format!("'{head}' wants a number in parentheses")),
        };
        let kind = match (head, argument) {
            ("coarse", None) => Kind::Coarse,
            ("batch", _) => Kind::Walk(Boundary::Nodes(number(1)?)),
            ("subleaf", _) => Kind::Walk(Boundary::Entries(number(1)?)),
            ("budget", Some(time)) => Kind::Walk(Boundary::Held(duration(time)?)),
            ("rolling", None) => Kind::Rolling,
            ("background", None) => Kind::Background(126),
            ("background", _) => Kind::Background(number(1)?),
            ("discard-first", None) => Kind::DiscardFirst,
            ("offline", None) => Kind::Offline,
            _ => return Err(format!("there is no policy '{text}'")),
        };
        let mut policy = Policy::of(text, kind);
        for part in parts {
            match call(part)? {
                ("sleep", Some(time)) => policy.turn = Turn::Sleep(duration(time)?),
                ("yield", None) => policy.turn = Turn::IfWaiting,
                ("tick", None) => policy.turn = Turn::Tick(TICK),
                ("window", Some(time)) => policy.turn = Turn::SleepIfWaiting(duration(time)?),
                ("coalesce", None) => policy.coalesce = true,
                ("prefetch", None) => policy.prefetch = true,
                ("split-pools", Some(pools)) => policy.pools = pools_of(pools)?,
                ("nopassdown", None) => policy.discards = Discards::Unmapped,
                ("ignore", None) if policy.kind != Kind::DiscardFirst => policy.discards = Discards::Ignored,
                ("steal", None) if policy.kind == Kind::Rolling => policy.steal = true,
                _ => return Err(format!("a policy can't have '+{part}'")),
            }
        }
        Ok(policy)
    }

    /// What a crash in the middle leaves.
    pub fn crash(&self) -> &'static str {
        match self.kind {
            Kind::Coarse | Kind::Offline => "atomic",
            Kind::Background(_) | Kind::DiscardFirst => "atomic by parts",
            Kind::Walk(_) => "leak-on-crash",
            Kind::Rolling => "unsafe-concurrent",
        }
    }
}

fn pools_of(text: &str) -> Result<u64, String> {
    let pools = text.parse().ok().filter(|pools| (1..=POOLS_MAX).contains(pools));
    pools.ok_or_else(|| format!("'split-pools({text})': 1 to {POOLS_MAX} pools are possible"))
}

/// `name` or `name(argument)`.
pub(super) fn call(text: &str) -> Result<(&str, Option<&str>), String> {
    match text.split_once('(') {
        None => Ok((text, None)),
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(argument) => Ok((name, Some(argument))),
            None => Err(format!("'{text}' lacks a closing parenthesis")),
        },
    }
}

/// A time such as `50us`, `4ms` or `1s`; up to an hour.
///
/// # Errors
/// Where it is none.
pub fn duration(text: &str) -> Result<Ns, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("'{text}' is no time such as 100ms")),
    };
    let time = text[..digits].parse::<Ns>().ok().and_then(|number| number.checked_mul(unit));
    time.filter(|time| (1..=3_600_000_000_000).contains(time))
        .ok_or_else(|| format!("'{text}' is no time such as 100ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        let read = |text: &str| Policy::parse(text).unwrap();
        assert_eq!(read("coarse"), Policy::coarse());
        let slow = read("batch(256)+sleep(100ms)");
        assert_eq!((slow.kind, slow.turn), (Kind::Walk(Boundary::Nodes(256)), Turn::Sleep(100_000_000)));
        assert_eq!(read("subleaf(31)+yield").turn, Turn::IfWaiting);
        assert_eq!(read("budget(200us)").kind, Kind::Walk(Boundary::Held(200_000)));
        assert!(read("coarse+coalesce").coalesce);
        assert_eq!(read("coarse+ignore").discards, Discards::Ignored);
        assert_eq!(read("discard-first+nopassdown").discards, Discards::Unmapped);
        assert_eq!(read("batch(1)+split-pools(4)").pools, 4);
        assert!(read("coarse+prefetch").prefetch);
        for bad in [
            "coarse+split-pools(0)",
            "coarse+split-pools(65)",
            "discard-first+ignore",
            "",
            "batch",
            "batch(0)",
            "batch(x)",
            "batch(1",
            "coarse(1)",
            "coarse+nap",
            "budget(1)",
            "x+y",
        ] {
            assert!(Policy::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn turns() {
        assert_eq!(Turn::Tick(4).pause(0, 9), 0);
        assert_eq!(Turn::Tick(4).pause(1, 9), 3);
        assert_eq!(Turn::Tick(4).pause(1, 8), 4);
        assert_eq!(Turn::Sleep(7).pause(0, 0), 7);
        assert_eq!((Turn::SleepIfWaiting(7).pause(0, 0), Turn::SleepIfWaiting(7).pause(2, 0)), (0, 7));
    }
}
