//! What streams ask of a pool.

use crate::base::ThinId;
use crate::replay::engine::Ns;
use crate::replay::policy::Policy;

/// A request or a message. Offsets and lengths are in sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Read {
        /// The device.
        dev: ThinId,
        /// From here.
        off: u64,
        /// So much.
        len: u64,
    },
    /// Writes.
    Write {
        /// The device.
        dev: ThinId,
        /// From here.
        off: u64,
        /// So much.
        len: u64,
        /// It is complete only when the metadata is committed.
        fua: bool,
    },
    /// Gives space back.
    Discard {
        /// The device.
        dev: ThinId,
        /// From here.
        off: u64,
        /// So much.
        len: u64,
    },
    /// A commit, if anything changed.
    Flush {
        /// The device.
        dev: ThinId,
    },
    /// A commit.
    Commit,
    /// A new device.
    Create {
        /// Its id.
        dev: ThinId,
    },
    /// A new snapshot.
    Snap {
        /// Its id.
        dev: ThinId,
        /// Of this device.
        origin: ThinId,
    },
    /// Deletes a device.
    Delete {
        /// Its id.
        dev: ThinId,
        /// Another policy than the run's.
        policy: Option<Policy>,
    },
    /// Discards all free data blocks.
    TrimPool,
    /// Reserves a metadata snapshot.
    Hold,
    /// Releases it.
    ReleaseHeld,
    /// Looks a block up and does nothing with it.
    Lookup {
        /// The device.
        dev: ThinId,
        /// The sector.
        off: u64,
    },
    /// Does nothing for so long.
    Sleep(Ns),
    /// A border between phases.
    Mark(String),
    /// Waits for a mark, or until a stream of that name is over.
    Wait(String),
    /// The recorded latency of the request before, only for comparison.
    Expect(Ns),
}

impl Verb {
    /// The word in traces and reports.
    pub fn word(&self) -> &'static str {
        match self {
            Verb::Read { .. } => "read",
            Verb::Write { .. } => "write",
            Verb::Discard { .. } => "discard",
            Verb::Flush { .. } => "flush",
            Verb::Commit => "commit",
            Verb::Create { .. } => "create",
            Verb::Snap { .. } => "snap",
            Verb::Delete { .. } => "delete",
            Verb::TrimPool => "trim-pool",
            Verb::Hold => "msnap",
            Verb::ReleaseHeld => "mrelease",
            Verb::Lookup { .. } => "lookup",
            Verb::Sleep(_) => "sleep",
            Verb::Mark(_) => "mark",
            Verb::Wait(_) => "wait",
            Verb::Expect(_) => "expect",
        }
    }

    /// What a message is called in statistics of locks.
    pub fn label(&self) -> &'static str {
        match self {
            Verb::Create { .. } => "message: create",
            Verb::Snap { .. } => "message: snap",
            Verb::Hold => "message: msnap",
            Verb::ReleaseHeld => "message: mrelease",
            Verb::TrimPool => "message: trim-pool",
            Verb::Lookup { .. } => "submitter: lookup",
            _ => "message: commit",
        }
    }

    /// The device that it is about; the new one for a snapshot.
    pub fn dev(&self) -> Option<ThinId> {
        match self {
            Verb::Flush { dev } | Verb::Create { dev } | Verb::Snap { dev, .. } | Verb::Delete { dev, .. } => {
                Some(*dev)
            }
            verb => verb.extent().map(|(dev, _, _)| dev),
        }
    }

    /// The part of a device that a request is about: device, first sector, sectors.
    pub fn extent(&self) -> Option<(ThinId, u64, u64)> {
        match self {
            Verb::Read { dev, off, len } | Verb::Write { dev, off, len, .. } | Verb::Discard { dev, off, len } => {
                Some((*dev, *off, *len))
            }
            Verb::Lookup { dev, off } => Some((*dev, *off, 1)),
            _ => None,
        }
    }
}

/// When an event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as the stream may.
    Asap,
    /// So long after the event before.
    After(Ns),
    /// At this time.
    At(Ns),
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub when: When,
    /// What.
    pub verb: Verb,
}

/// Where a stream's events come from.
pub trait Feed: Send {
    /// The next event.
    fn next(&mut self) -> Option<Event>;
}

/// Events from a list.
#[derive(Clone, Debug)]
pub struct List(pub std::vec::IntoIter<Event>);

impl List {
    /// All of them, in order.
    pub fn new(events: Vec<Event>) -> List {
        List(events.into_iter())
    }
}

impl Feed for List {
    fn next(&mut self) -> Option<Event> {
        self.0.next()
    }
}

/// Requests of one size, one after the other, without end.
#[derive(Clone, Debug)]
pub struct Sequential {
    /// The device.
    pub dev: ThinId,
    /// Sectors of a request.
    pub len: u64,
    /// Whether they write.
    pub write: bool,
    /// The next sector.
    pub at: u64,
}

impl Feed for Sequential {
    fn next(&mut self) -> Option<Event> {
        let (dev, off, len) = (self.dev, self.at, self.len);
        self.at += len;
        let verb = if self.write { Verb::Write { dev, off, len, fua: false } } else { Verb::Read { dev, off, len } };
        Some(Event { when: When::Asap, verb })
    }
}
