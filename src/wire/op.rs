//! Ops: their ids, which are the contract's `requestId`, and their results.

use super::decode::ObjectParts;
use super::scalar::{Loose, Scalar};
use crate::text::truncate;
use serde::de::{IgnoredAny, MapAccess};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Names one op from plan to result. On the wire it is the `requestId`: 32 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u128);

/// The value of each byte as a digit; all bits are set where it is none.
const DIGITS: [u8; 256] = {
    let mut digits = [u8::MAX; 256];
    let mut value = 0_u8;
    while value < 16 {
        digits[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    digits
};

impl OpId {
    /// Reads exactly what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: &[u8; 32] = text.as_bytes().try_into().ok()?;
        let (mut id, mut all) = ([0_u8; 16], 0);
        for (byte, [high, low]) in id.iter_mut().zip(digits.as_chunks().0) {
            let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
            all |= high | low;
            *byte = high << 4 | low;
        }
        (all <= 0xf).then_some(Self(u128::from_be_bytes(id)))
    }

    /// The id as text, in `digits`: this runs several times per turn.
    pub fn encode_lower(self, digits: &mut [u8; 32]) -> &str {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let words = digits.as_chunks_mut().0.iter_mut();
        for (word, bytes) in words.zip(self.0.to_be_bytes().as_chunks().0) {
            // Eight digits at a time: one into each byte, then the characters.
            let mut spread = u64::from(u32::from_be_bytes(*bytes));
            spread = (spread << 16 | spread) & 0x0000_ffff_0000_ffff;
            spread = (spread << 8 | spread) & 0x00ff_00ff_00ff_00ff;
            spread = (spread << 4 | spread) & (ONES * 0x0f);
            let letters = (spread + ONES * 6) >> 4 & ONES;
            let gap = u64::from(b'a' - b'0' - 10);
            *word = (spread + ONES * u64::from(b'0') + letters * gap).to_be_bytes();
        }
        str::from_utf8(digits).unwrap_or_default()
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.encode_lower(&mut [0; 32]))
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

    /// Generates the next id.
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

/// The connector's result of an op.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OpResult {
    /// Whether it was applied.
    pub success: bool,
    /// The message that was created or changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<Scalar>,
    /// Error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Scalar>,
    /// Error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Scalar>,
    /// Seconds to wait before a retry, for a rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Scalar>,
    /// The thread that was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<Scalar>,
    /// The name that the connector gave the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_thread_name: Option<Scalar>,
    /// Answer to `get_chat_info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_info: Option<Value>,
    /// The same, spelled flat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Scalar>,
    /// The same, spelled flat.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub chat_type: Option<Scalar>,
    /// Trying again cannot help: the chat takes nothing any more. Not on the wire: a platform without a connector says so.
    #[serde(skip)]
    pub is_permanent: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum OpResultKey {
    Success,
    MessageId,
    Error,
    Code,
    RetryAfter,
    ThreadId,
    AutoThreadName,
    ChatInfo,
    Name,
    Type,
    #[serde(other)]
    Other,
}

/// Never fails on a field's type: what cannot be read is absent.
impl ObjectParts for OpResult {
    fn read<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            let slot = match key {
                OpResultKey::Success => {
                    self.success = map.next_value::<Loose>()?.is_truthy();
                    continue;
                }
                OpResultKey::ChatInfo => {
                    self.chat_info = map.next_value()?;
                    continue;
                }
                OpResultKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                OpResultKey::MessageId => &mut self.message_id,
                OpResultKey::Error => &mut self.error,
                OpResultKey::Code => &mut self.code,
                OpResultKey::RetryAfter => &mut self.retry_after,
                OpResultKey::ThreadId => &mut self.thread_id,
                OpResultKey::AutoThreadName => &mut self.auto_thread_name,
                OpResultKey::Name => &mut self.name,
                OpResultKey::Type => &mut self.chat_type,
            };
            *slot = map.next_value::<Loose>()?.into_scalar();
        }
        Ok(())
    }
}

/// The outcome of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The connector applied the op.
    Applied(OpResult),
    /// The connector refused the op.
    Refused {
        /// The connector's answer.
        result: OpResult,
        /// Egress was declined: nothing else may be sent to that chat for this delivery.
        declined: bool,
    },
    /// The op was sent and no result came: it may or may not have been applied.
    Unknown,
}

impl From<OpResult> for Outcome {
    fn from(result: OpResult) -> Self {
        if result.success {
            return Self::Applied(result);
        }
        let code = result
            .code
            .as_ref()
            .is_some_and(|code| code.as_str() == "egress_declined");
        let in_text = result
            .error
            .as_ref()
            .is_some_and(|error| error.as_str().to_ascii_lowercase().contains("egress declined:"));
        Self::Refused {
            declined: code || in_text,
            result,
        }
    }
}

/// Characters of an error that are searched for these words.
const MAX_ERROR_CHARS: usize = 500;
/// Words that name a rate limit in a platform's error.
const RATE_LIMIT_PHRASES: &[&str] = &[
    "rate limit",
    "rate_limit",
    "ratelimit",
    "too many requests",
    "flood",
    "retry after",
    "retry_after",
];

impl OpResult {
    /// For an op that was refused because of a rate limit: how long to wait, if the platform says so.
    pub fn rate_limited(&self) -> Option<Option<Duration>> {
        if self.success {
            return None;
        }
        let text = |field: &Option<Scalar>| {
            let text = field.as_ref().map_or("", Scalar::as_str);
            truncate(text, MAX_ERROR_CHARS).to_ascii_lowercase()
        };
        let (code, error) = (text(&self.code), text(&self.error));
        let named = |words: &str| RATE_LIMIT_PHRASES.iter().any(|word| words.contains(word));
        let asked = self.retry_after.as_ref().and_then(|wait| seconds(wait.as_str()));
        if asked.is_none() && !named(&code) && code != "429" && !named(&error) {
            return None;
        }
        let spelled = |word: &str| seconds(error.split_once(word)?.1);
        Some(
            asked
                .or_else(|| spelled("retry after"))
                .or_else(|| spelled("retry_after")),
        )
    }
}

/// The first number in a text, as seconds.
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let seconds = text[..end].trim_end_matches('.').parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

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

    fn refused(fields: &[(&str, &str)]) -> OpResult {
        let field = |name: &str| {
            let found = fields.iter().find(|(known, _)| *known == name)?;
            Some(Scalar::from(found.1))
        };
        OpResult {
            error: field("error"),
            code: field("code"),
            retry_after: field("retry_after"),
            ..OpResult::default()
        }
    }

    #[test]
    fn rate_limits_are_recognised_with_their_delay() {
        let secs = Duration::from_secs;
        let limited = |fields: &[(&str, &str)]| refused(fields).rate_limited();
        assert_eq!(limited(&[("error", "message not found")]), None);
        assert_eq!(limited(&[("error", "You are being rate limited")]), Some(None));
        assert_eq!(limited(&[("code", "rate_limited")]), Some(None));
        assert_eq!(
            limited(&[("error", "Flood control exceeded. Retry after 13 seconds")]),
            Some(Some(secs(13)))
        );
        assert_eq!(
            limited(&[("retry_after", "1.5")]),
            Some(Some(Duration::from_millis(1500)))
        );
        assert_eq!(
            limited(&[("error", "Too Many Requests: retry after 99999999999999999999999")]),
            Some(None)
        );
        let done = OpResult {
            success: true,
            ..refused(&[("retry_after", "3")])
        };
        assert_eq!(done.rate_limited(), None);
    }
}
