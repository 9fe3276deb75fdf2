//! Newtypes for the numbers that must not be mixed up.

use std::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                Self(value)
            }
        }
    };
}

unit! {
    /// A block of the metadata device, 4096 bytes each; block 0 is the superblock (format.md 1.1).
    BlockNr
}
unit! {
    /// A block of the data device, in units of the pool's data block size; below 2^40 (format.md 4.2).
    DataBlock
}
unit! {
    /// A virtual block of a thin device, in units of the pool's data block size.
    ThinBlock
}
unit! {
    /// The id of a thin device. The kernel takes 0 ..= 2^24-1; the key on disk has 64 bits (format.md 4.2).
    ThinId
}
unit! {
    /// A length or an offset in 512-byte sectors.
    Sectors
}

impl Sectors {
    /// The same length in bytes; saturates at `u64::MAX`.
    pub fn bytes(self) -> u64 {
        self.0.saturating_mul(512)
    }
}
