//! Locks with a queue, which differ in what a release does. Pure state: no clock and no threads.

use std::collections::VecDeque;

/// Nanoseconds of the clock that the program runs on.
pub type Ns = u64;
/// A running program.
pub type ProcId = usize;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Together with others.
    Shared,
    /// Alone.
    Exclusive,
}

/// What a release does with those who wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// A reader at the head is granted the lock by the releaser, with all readers right behind it. A writer at the head
    /// is only woken and tries when it runs; a running writer may take a free lock although others wait.
    #[default]
    Rwsem2016,
    /// The same, but after some time of failed attempts the head lets nobody by.
    RwsemHandoff,
    /// Strictly in turn, granted by the releaser.
    Fifo,
    /// The head is only woken, and anybody may take what is free.
    Barge,
}

/// After so much waiting the head of [`Flavour::RwsemHandoff`] lets nobody by.
pub const HANDOFF_AFTER: Ns = 4_000_000;

impl Flavour {
    /// All flavours.
    pub const ALL: [Flavour; 4] = [Flavour::Rwsem2016, Flavour::RwsemHandoff, Flavour::Fifo, Flavour::Barge];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Rwsem2016 => "rwsem-2016",
            Flavour::RwsemHandoff => "rwsem-handoff",
            Flavour::Fifo => "fifo",
            Flavour::Barge => "barge",
        }
    }

    /// The flavour of that name.
    pub fn named(name: &str) -> Option<Flavour> {
        Flavour::ALL.into_iter().find(|flavour| flavour.name() == name)
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    who: ProcId,
    mode: Mode,
    since: Ns,
}

/// What has to happen after a lock was released or waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wakes {
    /// These hold the lock now, and run when they have woken up.
    pub granted: Vec<ProcId>,
    /// The head has to be woken: [`Lock::try_head`] is to be called when it runs.
    pub head: bool,
}

/// A lock.
#[derive(Clone, Debug)]
pub struct Lock {
    flavour: Flavour,
    readers: usize,
    writer: bool,
    queue: VecDeque<Waiter>,
    /// The head was woken and has not run yet.
    woken: bool,
    /// Nobody may go before the head.
    handoff: bool,
}

impl Lock {
    /// A free lock.
    pub fn new(flavour: Flavour) -> Lock {
        Lock { flavour, readers: 0, writer: false, queue: VecDeque::new(), woken: false, handoff: false }
    }

    /// Who waits first.
    pub fn head(&self) -> Option<ProcId> {
        self.queue.front().map(|head| head.who)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn is_free(&self) -> bool {
        self.readers == 0 && !self.writer
    }

    fn can_hold(&self, mode: Mode) -> bool {
        match mode {
            Mode::Shared => !self.writer,
            Mode::Exclusive => self.is_free(),
        }
    }

    fn hold(&mut self, mode: Mode) {
        match mode {
            Mode::Shared => self.readers += 1,
            Mode::Exclusive => self.writer = true,
        }
    }

    /// Whether somebody who runs may go before those who wait.
    fn may_pass(&self, mode: Mode) -> bool {
        let nobody = self.queue.is_empty();
        match (self.flavour, mode) {
            (Flavour::Fifo, _) | (Flavour::Rwsem2016 | Flavour::RwsemHandoff, Mode::Shared) => nobody,
            (Flavour::Rwsem2016 | Flavour::RwsemHandoff, Mode::Exclusive) => nobody || !self.handoff,
            (Flavour::Barge, _) => true,
        }
    }

    /// Takes the lock, or queues up; `true` where it is held now.
    pub fn acquire(&mut self, who: ProcId, mode: Mode, now: Ns) -> (bool, Wakes) {
        if self.can_hold(mode) && self.may_pass(mode) {
            self.hold(mode);
            return (true, Wakes::default());
        }
        self.queue.push_back(Waiter { who, mode, since: now });
        let wakes = if self.is_free() { self.wake_head() } else { Wakes::default() };
        (false, wakes)
    }

    /// Gives the lock back.
    pub fn release(&mut self, mode: Mode) -> Wakes {
        match mode {
            Mode::Shared => self.readers = self.readers.saturating_sub(1),
            Mode::Exclusive => self.writer = false,
        }
        if self.is_free() { self.wake_head() } else { Wakes::default() }
    }

    fn wake_head(&mut self) -> Wakes {
        let Some(head) = self.queue.front().copied() else { return Wakes::default() };
        let granted = match (self.flavour, head.mode) {
            (Flavour::Fifo, _) | (Flavour::Rwsem2016 | Flavour::RwsemHandoff, Mode::Shared) => self.grant_head(),
            _ if self.handoff => self.grant_head(),
            _ => Vec::new(),
        };
        let head = granted.is_empty() && !self.woken;
        self.woken |= head;
        Wakes { granted, head }
    }

    /// The head, with the readers right behind it where it is one, holds the lock from now on.
    fn grant_head(&mut self) -> Vec<ProcId> {
        let mut granted = Vec::new();
        self.handoff = false;
        while let Some(head) = self.queue.front().copied().filter(|head| self.can_hold(head.mode)) {
            self.queue.pop_front();
            self.hold(head.mode);
            granted.push(head.who);
        }
        granted
    }

    /// The woken head runs and takes the lock if it can; says who holds it now.
    pub fn try_head(&mut self, now: Ns) -> Vec<ProcId> {
        self.woken = false;
        let Some(head) = self.queue.front().copied() else { return Vec::new() };
        if self.can_hold(head.mode) {
            return self.grant_head();
        }
        if self.flavour == Flavour::RwsemHandoff && now.saturating_sub(head.since) >= HANDOFF_AFTER {
            self.handoff = true;
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mode::{Exclusive as X, Shared as S};

    fn held(lock: &mut Lock, who: ProcId, mode: Mode) -> bool {
        lock.acquire(who, mode, 0).0
    }

    fn granted(who: &[ProcId]) -> Wakes {
        Wakes { granted: who.to_vec(), head: false }
    }

    const HEAD: Wakes = Wakes { granted: Vec::new(), head: true };

    #[test]
    fn readers_share_and_writers_do_not() {
        for flavour in Flavour::ALL {
            let mut lock = Lock::new(flavour);
            assert!(held(&mut lock, 0, S) && held(&mut lock, 1, S) && !held(&mut lock, 2, X), "{flavour:?}");
            assert_eq!(lock.release(S), Wakes::default());
            assert_ne!(lock.release(S), Wakes::default());
            assert_eq!(Flavour::named(flavour.name()), Some(flavour));
        }
    }

    #[test]
    fn rwsem_2016_wakes_a_writer_and_lets_running_writers_by() {
        let mut lock = Lock::new(Flavour::Rwsem2016);
        assert!(held(&mut lock, 0, S) && !held(&mut lock, 1, X));
        assert_eq!(lock.release(S), HEAD);
        assert!(!held(&mut lock, 2, S), "a reader never goes first");
        assert!(held(&mut lock, 3, X), "a running writer does");
        assert!(lock.try_head(10_000_000).is_empty());
        assert_eq!(lock.release(X), HEAD);
        assert!(held(&mut lock, 3, X), "however long the head has waited");
        assert_eq!((lock.try_head(20_000_000), lock.release(X)), (vec![], HEAD));
        assert_eq!(lock.try_head(30_000_000), [1]);
        assert_eq!(lock.release(X), granted(&[2]));
    }

    #[test]
    fn rwsem_2016_grants_readers_up_to_the_next_writer() {
        let mut lock = Lock::new(Flavour::Rwsem2016);
        assert!(held(&mut lock, 0, X));
        for (who, mode) in [(1, S), (2, S), (3, X), (4, S)] {
            assert!(!held(&mut lock, who, mode));
        }
        assert_eq!(lock.release(X), granted(&[1, 2]));
        assert!(!held(&mut lock, 5, X), "readers hold it from the release on, not from when they run");
        assert_eq!((lock.release(S), lock.release(S)), (Wakes::default(), HEAD));
        assert_eq!((lock.try_head(0), lock.release(X)), (vec![3], granted(&[4])));
    }

    #[test]
    fn a_head_is_woken_once() {
        let mut lock = Lock::new(Flavour::Rwsem2016);
        assert!(held(&mut lock, 0, S) && !held(&mut lock, 1, X));
        assert_eq!(lock.release(S), HEAD);
        assert!(held(&mut lock, 2, X));
        assert_eq!(lock.release(X), Wakes::default(), "it is on its way");
    }

    #[test]
    fn rwsem_handoff_stops_stealing_after_a_while() {
        let mut lock = Lock::new(Flavour::RwsemHandoff);
        assert!(held(&mut lock, 0, X) && !held(&mut lock, 1, X));
        assert_eq!(lock.release(X), HEAD);
        assert!(held(&mut lock, 0, X));
        assert!(lock.try_head(HANDOFF_AFTER - 1).is_empty());
        assert_eq!(lock.release(X), HEAD);
        assert!(held(&mut lock, 0, X), "not yet");
        assert!(lock.try_head(HANDOFF_AFTER).is_empty());
        assert_eq!(lock.release(X), granted(&[1]), "the releaser hands it over");
        assert!(!held(&mut lock, 0, X));
    }

    #[test]
    fn fifo_is_strictly_in_turn() {
        let mut lock = Lock::new(Flavour::Fifo);
        assert!(held(&mut lock, 0, X));
        for (who, mode) in [(1, X), (2, S), (3, S), (4, X)] {
            assert!(!held(&mut lock, who, mode));
        }
        assert_eq!(lock.release(X), granted(&[1]));
        assert_eq!(lock.release(X), granted(&[2, 3]));
        assert!(!held(&mut lock, 5, S), "not before the writer that waits");
        assert_eq!((lock.release(S), lock.release(S)), (Wakes::default(), granted(&[4])));
    }

    #[test]
    fn barge_lets_anybody_take_what_is_free() {
        let mut lock = Lock::new(Flavour::Barge);
        assert!(held(&mut lock, 0, X) && !held(&mut lock, 1, S) && !held(&mut lock, 2, X));
        assert_eq!(lock.release(X), HEAD);
        assert!(held(&mut lock, 3, X), "although a reader waits");
        assert_eq!((lock.try_head(0), lock.release(X)), (vec![], HEAD));
        assert!(held(&mut lock, 4, S), "a reader, too");
        assert_eq!(lock.try_head(0), [1]);
    }
}
