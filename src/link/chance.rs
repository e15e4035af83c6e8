//! Chance from a seed (splitmix64). Good for jitter and for telling requests apart, never for secrets.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn next_u128(&mut self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }

    /// Uniform from nothing to `most`, inclusive, in steps of a microsecond.
    pub(super) fn up_to(&mut self, most: Duration) -> Duration {
        let steps = u128::from(u64::try_from(most.as_micros()).unwrap_or(u64::MAX)) + 1;
        let step = (u128::from(self.next_u64()) * steps) >> 64;
        Duration::from_micros(u64::try_from(step).unwrap_or(u64::MAX))
    }
}
