//! What the connector says became of an op, and what that means.

use std::time::Duration;

use serde::de::{IgnoredAny, MapAccess};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decode::ObjectParts;
use super::scalar::{Loose, Scalar};

/// What the connector says became of an op.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OpResult {
    /// Whether it was done.
    pub success: bool,
    /// The message that was made or changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<Scalar>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Scalar>,
    /// Why not, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Scalar>,
    /// How many seconds to wait before the next try, when it was too much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Scalar>,
    /// The thread that was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<Scalar>,
    /// The name the connector gave it.
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
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
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
    fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut result = Self::default();
        while let Some(key) = map.next_key()? {
            let slot = match key {
                Key::Success => {
                    result.success = map.next_value::<Loose>()?.is_truthy();
                    continue;
                }
                Key::ChatInfo => {
                    result.chat_info = map.next_value()?;
                    continue;
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Key::MessageId => &mut result.message_id,
                Key::Error => &mut result.error,
                Key::Code => &mut result.code,
                Key::RetryAfter => &mut result.retry_after,
                Key::ThreadId => &mut result.thread_id,
                Key::AutoThreadName => &mut result.auto_thread_name,
                Key::Name => &mut result.name,
                Key::Type => &mut result.chat_type,
            };
            *slot = map.next_value::<Loose>()?.into_scalar();
        }
        Ok(result)
    }
}

/// What is known about an op: done, refused, or not known.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The connector did it.
    Applied(OpResult),
    /// The connector did not do it and says why.
    Refused {
        /// Its answer.
        result: OpResult,
        /// It was a matter of permission: nothing else may be tried on that chat for this delivery.
        declined: bool,
    },
    /// The frame went out and no answer came; it may or may not have been done.
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
        let said = result
            .error
            .as_ref()
            .is_some_and(|error| error.as_str().to_ascii_lowercase().contains("egress declined:"));
        Self::Refused {
            declined: code || said,
            result,
        }
    }
}

/// Words by which a platform's refusal tells that it was too much at a time.
const TOO_MUCH: &[&str] = &[
    "rate limit",
    "rate_limit",
    "ratelimit",
    "too many requests",
    "flood",
    "retry after",
    "retry_after",
];

impl OpResult {
    /// When it was refused because it was too much at a time: how long the platform asks to wait, if it says.
    pub fn too_much(&self) -> Option<Option<Duration>> {
        if self.success {
            return None;
        }
        let text = |field: &Option<Scalar>| {
            let short = |text: &Scalar| text.as_str().chars().take(500).collect::<String>();
            field.as_ref().map(short).unwrap_or_default().to_ascii_lowercase()
        };
        let (code, error) = (text(&self.code), text(&self.error));
        let named = |words: &str| TOO_MUCH.iter().any(|word| words.contains(word));
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

/// The number of seconds that a text begins with, after whatever is no digit.
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
    fn too_much_is_told_from_other_refusals_and_by_how_long() {
        let secs = Duration::from_secs;
        let told = |fields: &[(&str, &str)]| refused(fields).too_much();
        assert_eq!(told(&[("error", "message not found")]), None);
        assert_eq!(told(&[("error", "You are being rate limited")]), Some(None));
        assert_eq!(told(&[("code", "rate_limited")]), Some(None));
        assert_eq!(
            told(&[("error", "Flood control exceeded. Retry after 13 seconds")]),
            Some(Some(secs(13)))
        );
        assert_eq!(
            told(&[("retry_after", "1.5")]),
            Some(Some(Duration::from_millis(1500)))
        );
        assert_eq!(
            told(&[("error", "Too Many Requests: retry after 99999999999999999999999")]),
            Some(None)
        );
        let done = OpResult {
            success: true,
            ..refused(&[("retry_after", "3")])
        };
        assert_eq!(done.too_much(), None);
    }
}
