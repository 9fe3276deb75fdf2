//! What using metadata costs beyond the work itself: blocks that are not in memory, and the locks of buffers.

use super::RunOptions;
use super::numbers::Numbers;
use crate::pdata::overlay::{Touches, Used};
use crate::replay::engine::{LockId, Mode, Ns, Step};
use crate::replay::machine::Act;

/// Buffers are locked one by one up to so many in one piece of work; more are gathered to so many.
const GETS_MAX: usize = 1024;

/// The metadata in memory.
#[derive(Debug)]
pub struct Memory {
    /// Price of getting a buffer, and whether buffers have locks.
    get: Ns,
    buffers: bool,
    /// Whether the log is wanted by somebody else as well.
    keeps: bool,
    /// What of the log was dealt with.
    seen: usize,
}

impl Memory {
    /// Nothing used yet.
    pub fn new(options: &RunOptions) -> Memory {
        Memory { get: options.costs.get, buffers: options.shards > 0, keeps: options.log_touches, seen: 0 }
    }

    /// Whether the log of used blocks is needed.
    pub fn looks(&self) -> bool {
        self.buffers
    }

    /// Pays for a piece of work whose uses are at the end of the log.
    pub fn pay<T>(&mut self, touches: &mut Touches, cost: Ns, _now: Ns, numbers: &Numbers, then: &mut Vec<Act<T>>) {
        let Some(log) = &mut touches.log else {
            return then.push(Act::Step(Step::Cpu(cost)));
        };
        let locks: Vec<LockId> = if self.buffers {
            log[self.seen..].iter().map(|(used, _): &(Used, _)| numbers.buffer(*used)).collect()
        } else {
            Vec::new()
        };
        if !self.keeps {
            log.clear();
        }
        self.seen = log.len();
        spread(&locks, self.get, cost, then);
    }
}

/// The work with the lock of a buffer taken again and again in it.
fn spread<T>(locks: &[LockId], get: Ns, cost: Ns, then: &mut Vec<Act<T>>) {
    if locks.is_empty() {
        return then.push(Act::Step(Step::Cpu(cost)));
    }
    let rest = cost.saturating_sub(get.saturating_mul(locks.len() as u64));
    let pieces = locks.chunks(locks.len().div_ceil(GETS_MAX));
    let count = pieces.len() as u64;
    for (index, piece) in (0..).zip(pieces) {
        let part = rest / count + u64::from(index < rest % count);
        then.extend([
            Act::Step(Step::Lock(piece[0], Mode::Exclusive)),
            Act::Step(Step::Cpu(get * piece.len() as u64)),
            Act::Step(Step::Unlock(piece[0])),
            Act::Step(Step::Cpu(part)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_price_is_paid() {
        for (locks, get, cost) in [(0, 5, 100), (1, 5, 100), (7, 5, 100), (3000, 2, 100_000), (3000, 2, 10)] {
            let mut then: Vec<Act<()>> = Vec::new();
            spread(&vec![0; locks], get, cost, &mut then);
            let paid: Ns = then.iter().map(|act| if let Act::Step(Step::Cpu(time)) = act { *time } else { 0 }).sum();
            assert_eq!(paid, cost.max(get * locks as u64), "{locks} {get} {cost}");
            assert!(then.len() <= 4 * GETS_MAX);
        }
    }
}
