//! Frames from the connector: one JSON object per line, with a `type`.
//!
//! Decoding never panics. A frame of an unknown type decodes as [`ConnectorFrame::Unknown`]; a known one that cannot be
//! decoded is [`Undecodable`]. Both keep their `bufferId`, so that they can be quarantined and acknowledged instead of being
//! delivered forever.

use super::decode::{self, DecodeError, Filled, Object, object_parts};
use super::descriptor::CapabilityDescriptor;
use super::event::{EventParts, MessageEvent};
use super::gateway_frame::GatewayFrame;
use super::json_reader;
use super::op::OpResult;
use super::scalar::{Loose, Scalar, is_truthy, text_of};
use super::source::id_field;
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::DeserializeSeed as _;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Longest id of a link request, in bytes.
const MAX_REQUEST_ID: usize = 256;

/// A frame from the connector.
#[derive(Clone, Debug, PartialEq)]
pub enum ConnectorFrame {
    /// The answer to a hello.
    Descriptor(Box<CapabilityDescriptor>),
    /// A message for the agent.
    Inbound {
        /// The message as an event.
        event: Box<MessageEvent>,
        /// The id to acknowledge once the delivery is committed.
        buffer_id: Option<String>,
    },
    /// The answer to an outbound frame.
    OutboundResult {
        /// The id of the op that is answered.
        request_id: String,
        /// The result; `None` if it is not an object.
        result: Option<Box<OpResult>>,
    },
    /// Stop this session's turn.
    InterruptInbound {
        /// The session whose turn is to stop.
        session_key: String,
        /// The chat of that session.
        chat_id: String,
    },
    /// A provider request for the agent.
    PassthroughForward {
        /// The provider's request.
        forward: Box<PassthroughForward>,
        /// The id to acknowledge once the delivery is committed.
        buffer_id: Option<String>,
    },
    /// The connector buffers deliveries from now on.
    GoingIdleAck,
    /// A request to something beside the chats that some gateways serve; this one serves nothing.
    LinkRequest {
        /// The id of the request.
        request_id: String,
    },
    /// An unknown type or none, to be ignored.
    Unknown {
        /// The type, if it is text.
        kind: Option<String>,
        /// The id to acknowledge, so that the connector does not deliver it forever.
        buffer_id: Option<String>,
    },
}

/// A line that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// The frame's type, if it could be read.
    pub kind: Option<String>,
    /// The frame's buffer id, if it could be read.
    pub buffer_id: Option<String>,
    /// Why the line cannot be decoded.
    pub error: DecodeError,
}

impl Undecodable {
    /// A line over the limit, of which only the start and the end were kept.
    pub fn too_long(limit: usize, start: &[u8], end: &[u8]) -> Self {
        Self {
            kind: None,
            buffer_id: decode::buffer_id_at_end(end).or_else(|| decode::buffer_id_at_start(start)),
            error: DecodeError::TooLong { limit },
        }
    }
}

impl From<DecodeError> for Undecodable {
    fn from(error: DecodeError) -> Self {
        Self {
            kind: None,
            buffer_id: None,
            error,
        }
    }
}

impl ConnectorFrame {
    /// Decodes one line.
    pub fn decode(line: &[u8]) -> Result<Self, Undecodable> {
        Self::read(line, std::str::from_utf8(line).ok())
    }

    /// Decodes one line that is known to be text, which saves looking.
    pub fn decode_text(line: &str) -> Result<Self, Undecodable> {
        Self::read(line.as_bytes(), Some(line))
    }

    fn read(line: &[u8], text: Option<&str>) -> Result<Self, Undecodable> {
        let mut parts = FrameParts::default();
        let quickly = text.and_then(|line| json_reader::read(line, Filled(&mut parts)));
        let found = if let Some(found) = quickly {
            Ok(found)
        } else {
            parts = FrameParts::default();
            let mut general = serde_json::Deserializer::from_slice(line);
            let found = Filled(&mut parts).deserialize(&mut general);
            found.and_then(|found| general.end().map(|()| found))
        };
        match found {
            Ok(Object::Is(())) => parts.assemble(),
            Ok(Object::Null) => Err(DecodeError::NotAnObject("null").into()),
            Ok(Object::Not(what)) => Err(DecodeError::NotAnObject(what).into()),
            Err(error) => match decode::without_lone_surrogates(line) {
                Some(mended) => Self::decode(&mended),
                None => Err(Undecodable {
                    kind: None,
                    buffer_id: decode::buffer_id(line),
                    error: DecodeError::json(&error),
                }),
            },
        }
    }

    /// The frame's wire type.
    pub fn kind(&self) -> &str {
        match self {
            Self::Descriptor(_) => "descriptor",
            Self::Inbound { .. } => "inbound",
            Self::OutboundResult { .. } => "outbound_result",
            Self::InterruptInbound { .. } => "interrupt_inbound",
            Self::PassthroughForward { .. } => "passthrough_forward",
            Self::GoingIdleAck => "going_idle_ack",
            Self::LinkRequest { .. } => "link_request",
            Self::Unknown { kind, .. } => kind.as_deref().unwrap_or("unknown"),
        }
    }
}

object_parts! {
    /// Every field of every frame from the connector, read in one pass.
    struct FrameParts {
        kind: Loose = "type",
        buffer_id: Value = "bufferId",
        event: Option<Object<Box<EventParts>>> = "event" => Some,
        request_id: Loose = "requestId",
        result: Option<Object<Box<OpResult>>> = "result" => Some,
        session_key: Loose = "session_key",
        chat_id: Loose = "chat_id",
        descriptor: Value = "descriptor",
        forward: Option<Value> = "forward" => Some,
        written_at: Loose = "writtenAt",
    }
}

impl FrameParts {
    fn assemble(self) -> Result<ConnectorFrame, Undecodable> {
        let buffer_id = match self.buffer_id {
            Value::String(id) if !id.is_empty() => Some(id),
            other => is_truthy(&other).then(|| text_of(&other)),
        };
        let kind = match self.kind {
            Loose::Scalar(kind) if kind.is_text() => kind,
            _ => {
                return Ok(ConnectorFrame::Unknown {
                    kind: None,
                    buffer_id,
                });
            }
        };
        let undecodable = |kind: Scalar, buffer_id, error| Undecodable {
            kind: Some(kind.into_string()),
            buffer_id,
            error,
        };
        let frame = match kind.as_str() {
            "inbound" => {
                let event = self.event.map_or_else(
                    || Box::<EventParts>::default().assemble(),
                    Object::<Box<EventParts>>::assemble,
                );
                return match event {
                    Ok(mut event) => {
                        let written_at = self.written_at.into_scalar();
                        event.written_at = written_at.and_then(|seconds| seconds.as_str().parse().ok());
                        Ok(ConnectorFrame::Inbound { event, buffer_id })
                    }
                    Err(error) => Err(undecodable(kind, buffer_id, error)),
                };
            }
            "passthrough_forward" => {
                let forward = self.forward.map_or_else(
                    || Ok(PassthroughForward::default()),
                    |forward| PassthroughForward::from_value(&forward),
                );
                return match forward {
                    Ok(forward) => Ok(ConnectorFrame::PassthroughForward {
                        forward: Box::new(forward),
                        buffer_id,
                    }),
                    Err(error) => Err(undecodable(kind, buffer_id, error)),
                };
            }
            "outbound_result" => outbound_result(self.request_id, self.result),
            "interrupt_inbound" => interrupt_inbound(self.session_key, self.chat_id),
            "descriptor" => CapabilityDescriptor::from_value(&self.descriptor)
                .map(|descriptor| ConnectorFrame::Descriptor(Box::new(descriptor))),
            "going_idle_ack" => Ok(ConnectorFrame::GoingIdleAck),
            "link_request" => link_request(self.request_id),
            kind => {
                // A peer that echoes what it gets would be sent acknowledgements of acknowledgements.
                let is_echo = GatewayFrame::KINDS.contains(&kind);
                return Ok(ConnectorFrame::Unknown {
                    kind: Some(kind.to_owned()),
                    buffer_id: buffer_id.filter(|_| !is_echo),
                });
            }
        };
        frame.map_err(|error| undecodable(kind, buffer_id, error))
    }
}

fn outbound_result(
    request_id: Loose,
    result: Option<Object<Box<OpResult>>>,
) -> Result<ConnectorFrame, DecodeError> {
    let request_id = required_request_id(request_id)?;
    let result = match result {
        Some(Object::Is(result)) => Some(result),
        None => Some(Box::default()),
        Some(Object::Null | Object::Not(_)) => None,
    };
    Ok(ConnectorFrame::OutboundResult { request_id, result })
}

fn required_request_id(request_id: Loose) -> Result<String, DecodeError> {
    let request_id = id_field(request_id, "requestId")?;
    let request_id = request_id.ok_or_else(|| DecodeError::Missing("requestId".to_owned()))?;
    Ok(request_id.into_string())
}

fn link_request(request_id: Loose) -> Result<ConnectorFrame, DecodeError> {
    let request_id = required_request_id(request_id)?;
    // The answer repeats it.
    if request_id.len() > MAX_REQUEST_ID {
        return Err(DecodeError::WrongType {
            field: "requestId",
            wanted: "a short text",
        });
    }
    Ok(ConnectorFrame::LinkRequest { request_id })
}

fn interrupt_inbound(session_key: Loose, chat_id: Loose) -> Result<ConnectorFrame, DecodeError> {
    let text = |value, field| {
        Ok(id_field(value, field)?
            .map(Scalar::into_string)
            .unwrap_or_default())
    };
    Ok(ConnectorFrame::InterruptInbound {
        session_key: text(session_key, "session_key")?,
        chat_id: text(chat_id, "chat_id")?,
    })
}

/// The wire form, with events and descriptors as decoded.
impl Serialize for ConnectorFrame {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(None)?;
        out.serialize_entry("type", self.kind())?;
        match self {
            Self::Descriptor(descriptor) => out.serialize_entry("descriptor", descriptor)?,
            Self::Inbound { event, buffer_id } => {
                out.serialize_entry("event", event)?;
                out.serialize_entry("bufferId", buffer_id)?;
                if let Some(written_at) = event.written_at {
                    out.serialize_entry("writtenAt", &written_at)?;
                }
            }
            Self::OutboundResult { request_id, result } => {
                out.serialize_entry("requestId", request_id)?;
                out.serialize_entry("result", result)?;
            }
            Self::LinkRequest { request_id } => out.serialize_entry("requestId", request_id)?,
            Self::InterruptInbound { session_key, chat_id } => {
                out.serialize_entry("session_key", session_key)?;
                out.serialize_entry("chat_id", chat_id)?;
            }
            Self::PassthroughForward { forward, buffer_id } => {
                out.serialize_entry("forward", forward)?;
                out.serialize_entry("bufferId", buffer_id)?;
            }
            Self::Unknown { buffer_id, .. } => {
                if let Some(buffer_id) = buffer_id {
                    out.serialize_entry("bufferId", buffer_id)?;
                }
            }
            Self::GoingIdleAck => {}
        }
        out.end()
    }
}

const BODY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// A request of the passthrough plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassthroughForward {
    /// The platform, as received.
    pub platform: String,
    /// The bot it is for.
    pub bot_id: String,
    /// HTTP method.
    pub method: String,
    /// HTTP path.
    pub path: String,
    /// Headers in order; malformed pairs are dropped.
    pub headers: Vec<(String, String)>,
    /// The body's exact bytes; empty if its base64 is invalid.
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

/// Skips characters outside the alphabet; empty for bad padding.
fn body_bytes(encoded: &str) -> Vec<u8> {
    let clean: Vec<u8> = encoded
        .bytes()
        .filter(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
        .collect();
    BODY_BASE64.decode(clean).unwrap_or_default()
}

impl Serialize for PassthroughForward {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
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
