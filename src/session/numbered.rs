//! Maps whose keys are numbers that this program counts out itself, so that nobody outside can choose them.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by such a number.
pub(crate) type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;
/// A set of such numbers.
pub(crate) type Numbers<K> = HashSet<K, BuildHasherDefault<Spread>>;

/// Spreads consecutive numbers over a table with one multiplication. Keys from outside need the standard hasher: it
/// withstands those who want their keys to collide.
#[derive(Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }
}
