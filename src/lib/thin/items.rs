//! A pool as a stream of items in the order of the XML: what is read from text or memory and built into metadata.

use super::model::{Device, Pool, Run};

/// Takes the items of a pool, in order.
///
/// After [`PoolSink::pool`] come definitions and devices in any order. A definition holds runs, a device runs and
/// references to definitions that came before it. What an error refers to is the item it was given for.
pub trait PoolSink {
    /// Why an item was not taken.
    type Error;

    /// The pool; comes first, once.
    ///
    /// # Errors
    /// Where the pool can't be taken.
    fn pool(&mut self, pool: &Pool) -> Result<(), Self::Error>;

    /// Mappings begin that devices will refer to. Definitions are numbered from 0 in the order of their beginning.
    ///
    /// # Errors
    /// Where the sink can't go on.
    fn begin_definition(&mut self) -> Result<(), Self::Error>;

    /// The definition is complete.
    ///
    /// # Errors
    /// Where the sink can't go on.
    fn end_definition(&mut self) -> Result<(), Self::Error>;

    /// A device begins.
    ///
    /// # Errors
    /// Where the device can't be taken.
    fn begin_device(&mut self, device: &Device) -> Result<(), Self::Error>;

    /// The device is complete.
    ///
    /// # Errors
    /// Where the sink can't go on.
    fn end_device(&mut self) -> Result<(), Self::Error>;

    /// Mappings of the definition or device that has begun. `at` is where they can be read again.
    ///
    /// # Errors
    /// Where the mappings can't be taken.
    fn run(&mut self, run: &Run, at: Position) -> Result<(), Self::Error>;

    /// The mappings of a definition come here in the device. The number is that of a complete definition.
    ///
    /// # Errors
    /// Where the mappings can't be taken.
    fn reference(&mut self, definition: u32) -> Result<(), Self::Error>;

    /// A hint: references to these definitions come next.
    fn upcoming(&mut self, definitions: &[u32]) {
        let _ = definitions;
    }

    /// A range of length 0, which means nothing (docs/format.md 9) and is given to nobody else.
    fn empty_run(&mut self) {}

    /// That was all.
    ///
    /// # Errors
    /// Where the sink can't go on.
    fn end(&mut self) -> Result<(), Self::Error>;
}

/// A place in a stream of items, which only means something to the stream that gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// A stream that can be asked for some of its runs again.
pub trait Runs {
    /// Calls `each` with the runs from `at` on, to the end of their definition or device, or until it says `false`.
    ///
    /// # Errors
    /// Where they can't be read again.
    fn runs_from(&self, at: Position, each: &mut dyn FnMut(&Run) -> bool) -> Result<(), RereadError>;
}

/// Why runs could not be read again.
#[derive(Debug, thiserror::Error)]
pub enum RereadError {
    /// The input gave an error.
    #[error("the input could be read at first, and then not: {0}")]
    Io(#[from] std::io::Error),
    /// There is something else now.
    #[error("the input changed while it was read")]
    Changed,
}
