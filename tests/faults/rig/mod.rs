//! What the fault tests stand on: the real binary in a process of its own, a connector reduced to the wire
//! with every knob they turn, and seeded rng. It never decides what is right; the tests do.

pub(crate) mod connector;
pub(crate) mod line;
pub(crate) mod process;
pub(crate) mod state;

/// Seeded rng.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound.max(1)
    }

    /// An index into something of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index of something in memory")
    }

    /// Whether something that happens `percent` times in a hundred happens.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A number from the environment, for the long forms of tests.
pub(crate) fn env_number(name: &str, otherwise: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(otherwise)
}
