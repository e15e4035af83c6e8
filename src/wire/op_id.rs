//! Op ids: the contract's `requestId`, and the generator that makes them.

use std::fmt;

/// Names one op from plan to result. On the wire it is the `requestId`: 32 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u128);

impl OpId {
    /// Reads exactly what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let is_lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_lower_hex) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Generates op ids from a seed. Good for telling ops apart, never for secrets.
#[derive(Clone, Debug)]
pub struct OpIds(u64);

impl OpIds {
    /// A generator; the same seed gives the same ids.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next id.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, so it is no iterator"
    )]
    pub fn next(&mut self) -> OpId {
        let high = split_mix(&mut self.0);
        let low = split_mix(&mut self.0);
        OpId((u128::from(high) << 64) | u128::from(low))
    }

    /// An independent generator, for another task.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(split_mix(&mut self.0).rotate_left(32) ^ split_mix(&mut self.0))
    }
}

/// One step of splitmix64.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_id_is_written_as_32_lower_case_hex_digits_and_read_back() {
        assert_eq!(OpId(255).to_string(), "000000000000000000000000000000ff");
        let mut ids = OpIds::new(7);
        for _ in 0..1000 {
            let id = ids.next();
            assert_eq!(OpId::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn other_texts_are_no_ids() {
        for text in [
            "",
            "ff",
            "000000000000000000000000000000FF",
            "+00000000000000000000000000000ff",
            "0000000000000000000000000000000ff",
            "00000000-0000-0000-0000-0000000000",
        ] {
            assert_eq!(OpId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn generators_split_from_one_seed_never_share_an_id() {
        let mut ids = OpIds::new(1);
        let (mut left, mut right) = (ids.split(), ids.split());
        let mut seen = HashSet::new();
        for _ in 0..10_000 {
            assert!(seen.insert(ids.next()) && seen.insert(left.next()) && seen.insert(right.next()));
        }
        assert_eq!(OpIds::new(5).next(), OpIds::new(5).next());
    }
}
