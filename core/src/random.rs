//! Chance as an input: the same seed gives the same numbers, on every machine and forever.
//!
//! The generator is SplitMix64. Its few lines are our own because a seed must mean the same run in every future
//! version, which no library of random numbers promises.

use serde::{Deserialize, Serialize};

/// A seeded sequence of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Random(u64);

/// By how much the state grows with each number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from 0 to `bound`, both included.
    #[inline]
    pub fn up_to(&mut self, bound: u64) -> u64 {
        match bound.checked_add(1) {
            Some(count) => self.next_u64() % count,
            None => self.next_u64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);

        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_within_their_bound() {
        let mut random = Random::new(1);

        assert!((0..100).all(|_| random.up_to(3) <= 3));
        assert_eq!(random.up_to(0), 0);
    }
}
