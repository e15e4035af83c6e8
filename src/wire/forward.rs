//! A forwarded provider request: exact bytes, already verified and stripped of secrets by the connector.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Serialize;
use serde_json::Value;

use super::decode::DecodeError;
use super::scalar::text_of;

const BODY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// A request of the passthrough plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassthroughForward {
    /// Whose request it is, as the connector spelled it.
    pub platform: String,
    /// The bot it was meant for.
    pub bot_id: String,
    /// HTTP method.
    pub method: String,
    /// HTTP path.
    pub path: String,
    /// Headers in order; malformed pairs are dropped.
    pub headers: Vec<(String, String)>,
    /// The body's exact bytes; empty when its base64 cannot be read.
    pub body: Vec<u8>,
    /// Agent profile that the connector routed to.
    pub profile: Option<String>,
}

impl PassthroughForward {
    /// Reads the wire object.
    pub fn from_value(value: &Value) -> Result<Self, DecodeError> {
        let Value::Object(wire) = value else {
            return Err(DecodeError::WrongType {
                field: "forward",
                wanted: "an object",
            });
        };
        let text = |key: &str| wire.get(key).map(text_of).unwrap_or_default();
        let headers = wire
            .get("headers")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        Ok(Self {
            platform: text("platform"),
            bot_id: text("botId"),
            method: text("method"),
            path: text("path"),
            headers: headers
                .iter()
                .filter_map(|pair| match pair.as_array()?.as_slice() {
                    [name, value] => Some((text_of(name), text_of(value))),
                    _ => None,
                })
                .collect(),
            body: wire
                .get("bodyB64")
                .and_then(Value::as_str)
                .map(body_bytes)
                .unwrap_or_default(),
            profile: wire
                .get("profile")
                .filter(|profile| !profile.is_null())
                .map(text_of),
        })
    }
}

/// Characters outside the alphabet are skipped; bad padding gives nothing.
fn body_bytes(encoded: &str) -> Vec<u8> {
    let clean: Vec<u8> = encoded
        .bytes()
        .filter(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
        .collect();
    BODY_BASE64.decode(clean).unwrap_or_default()
}

impl Serialize for PassthroughForward {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut out = serializer.serialize_struct("PassthroughForward", 7)?;
        out.serialize_field("platform", &self.platform)?;
        out.serialize_field("botId", &self.bot_id)?;
        out.serialize_field("method", &self.method)?;
        out.serialize_field("path", &self.path)?;
        out.serialize_field("headers", &self.headers)?;
        out.serialize_field("bodyB64", &BODY_BASE64.encode(&self.body))?;
        if let Some(profile) = &self.profile {
            out.serialize_field("profile", profile)?;
        }
        out.end()
    }
}
