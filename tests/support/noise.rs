//! Bytes and numbers that look random and are the same in every run.

/// A small deterministic generator (xorshift64).
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    pub fn bytes(&mut self, bound: usize) -> Vec<u8> {
        (0..self.below(bound)).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
