//! A random number generator from a seed, for jitter. Never for secrets.

use std::time::Duration;

use crate::backoff::jitter;
use crate::wire::split_mix;

#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Uniform between zero and `max`.
    pub(super) fn up_to(&mut self, max: Duration) -> Duration {
        jitter(max, self.next_u64())
    }
}
