//! Bits into bytes, the lowest first.

/// Appends bits to bytes.
#[derive(Debug)]
pub struct Bits<'a> {
    out: &'a mut Vec<u8>,
    waiting: u64,
    nr_waiting: u32,
}

impl<'a> Bits<'a> {
    /// Begins at the next byte.
    pub fn new(out: &'a mut Vec<u8>) -> Bits<'a> {
        Bits { out, waiting: 0, nr_waiting: 0 }
    }

    /// Appends `count` bits, at most 32; those of `bits` above them are 0.
    #[inline]
    pub fn push(&mut self, bits: u64, count: u32) {
        self.waiting |= bits << self.nr_waiting;
        self.nr_waiting += count;
        if self.nr_waiting >= 32 {
            self.out.extend_from_slice(&(self.waiting as u32).to_le_bytes());
            self.waiting >>= 32;
            self.nr_waiting -= 32;
        }
    }

    /// Fills up the last byte with zeros.
    pub fn align(&mut self) {
        let bytes = self.nr_waiting.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.waiting.to_le_bytes()[..bytes]);
        (self.waiting, self.nr_waiting) = (0, 0);
    }

    /// Appends bytes; the last one was filled up.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}
