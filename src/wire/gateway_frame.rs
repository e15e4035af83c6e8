//! Frames that the relay sends.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::action_text::ActionText;
use super::decode::DecodeError;
use super::json_text::push_text;

/// A frame to the connector. Written as one line, one WebSocket message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum GatewayFrame {
    /// Announces one identity. All hellos are sent before the first answer.
    Hello {
        /// The platform's name.
        platform: String,
        /// The bot's id on that platform; may be empty.
        #[serde(rename = "botId", default)]
        bot_id: String,
        /// Slash commands to register (Discord).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_manifest: Option<Vec<Value>>,
    },
    /// Requests an op.
    Outbound {
        /// The [`OpId`](super::OpId) as text.
        #[serde(rename = "requestId")]
        request_id: String,
        /// An [`Action`](super::Action) in JSON.
        action: Box<RawValue>,
        /// The chat's platform, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
        /// The bot's id on that platform.
        #[serde(rename = "botId", default, skip_serializing_if = "Option::is_none")]
        bot_id: Option<String>,
    },
    /// Stop this session's turn, wherever it runs.
    Interrupt {
        /// The session whose turn is to stop.
        session_key: String,
        /// The reason, for people.
        reason: Option<String>,
    },
    /// Asks the connector to buffer deliveries.
    GoingIdle,
    /// Acknowledges a delivery.
    InboundAck {
        /// Its buffer id.
        #[serde(rename = "bufferId")]
        buffer_id: String,
    },
    /// Answers a link request.
    LinkResult {
        /// The id of the request.
        #[serde(rename = "requestId")]
        request_id: String,
        /// Whether the request was served.
        ok: bool,
        /// The answer, or an `error`.
        body: Value,
    },
}

impl GatewayFrame {
    /// Every frame's wire name.
    pub const KINDS: [&'static str; 6] = [
        "hello",
        "outbound",
        "interrupt",
        "going_idle",
        "inbound_ack",
        "link_result",
    ];

    /// The frame's wire name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Outbound { .. } => "outbound",
            Self::Interrupt { .. } => "interrupt",
            Self::GoingIdle => "going_idle",
            Self::InboundAck { .. } => "inbound_ack",
            Self::LinkResult { .. } => "link_result",
        }
    }

    /// The frame as one line, newline included.
    pub fn to_line(&self) -> String {
        let mut line = match self {
            Self::Outbound {
                request_id,
                action,
                platform,
                bot_id,
            } => outbound(request_id, action.get(), platform.as_deref(), bot_id.as_deref()),
            Self::InboundAck { buffer_id } => inbound_ack(buffer_id),
            Self::Hello { .. } | Self::Interrupt { .. } | Self::GoingIdle | Self::LinkResult { .. } => {
                serde_json::to_string(self).expect("frames have text keys and no failing values")
            }
        };
        line.push('\n');
        line
    }

    /// The line of an outbound frame whose action is JSON already.
    pub fn outbound_line(
        request_id: &str,
        action: &ActionText,
        platform: Option<&str>,
        bot_id: Option<&str>,
    ) -> String {
        let mut line = outbound(request_id, action.as_str(), platform, bot_id);
        line.push('\n');
        line
    }

    /// Decodes one line, as a connector does.
    pub fn decode(line: &[u8]) -> Result<Self, DecodeError> {
        let value: Value = serde_json::from_slice(line).map_err(|error| DecodeError::json(&error))?;
        let text = |key: &'static str| match value.get(key) {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(DecodeError::WrongType {
                field: key,
                wanted: "text",
            }),
        };
        let optional = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        Ok(match text("type")?.as_str() {
            "hello" => Self::Hello {
                platform: text("platform")?,
                bot_id: optional("botId").unwrap_or_default(),
                command_manifest: value.get("command_manifest").and_then(Value::as_array).cloned(),
            },
            "outbound" => Self::Outbound {
                request_id: text("requestId")?,
                action: match value.get("action") {
                    Some(action @ Value::Object(_)) => {
                        serde_json::value::to_raw_value(action).map_err(|error| DecodeError::json(&error))?
                    }
                    _ => {
                        return Err(DecodeError::WrongType {
                            field: "action",
                            wanted: "an object",
                        });
                    }
                },
                platform: optional("platform"),
                bot_id: optional("botId"),
            },
            "interrupt" => Self::Interrupt {
                session_key: text("session_key")?,
                reason: optional("reason"),
            },
            "going_idle" => Self::GoingIdle,
            "inbound_ack" => Self::InboundAck {
                buffer_id: text("bufferId")?,
            },
            "link_result" => Self::LinkResult {
                request_id: text("requestId")?,
                ok: value.get("ok") == Some(&Value::Bool(true)),
                body: value.get("body").cloned().unwrap_or_default(),
            },
            _ => {
                return Err(DecodeError::WrongType {
                    field: "type",
                    wanted: "a frame that a gateway sends",
                });
            }
        })
    }
}

/// The two most frequent frames are encoded by hand, in one allocation.
fn outbound(id: &str, action: &str, platform: Option<&str>, bot_id: Option<&str>) -> String {
    // As much as it takes where nothing is escaped, and the line's end: a full text is sent as it is.
    const ROOM: usize = r#"{"type":"outbound","requestId":"","action":}"#.len() + 1;
    let room = |text: Option<&str>, key: usize| text.map_or(0, |text| text.len() + key);
    let tags = room(platform, r#","platform":"""#.len()) + room(bot_id, r#","botId":"""#.len());
    let mut line = String::with_capacity(ROOM + id.len() + action.len() + tags);
    line.push_str(r#"{"type":"outbound","requestId":"#);
    push_text(&mut line, id);
    line.push_str(r#","action":"#);
    line.push_str(action);
    for (key, text) in [(r#","platform":"#, platform), (r#","botId":"#, bot_id)] {
        if let Some(text) = text {
            line.push_str(key);
            push_text(&mut line, text);
        }
    }
    line.push('}');
    line
}

fn inbound_ack(buffer_id: &str) -> String {
    const ROOM: usize = r#"{"type":"inbound_ack","bufferId":""}"#.len() + 1;
    let mut line = String::with_capacity(ROOM + buffer_id.len());
    line.push_str(r#"{"type":"inbound_ack","bufferId":"#);
    push_text(&mut line, buffer_id);
    line.push('}');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_by_hand_are_what_the_serializer_writes() {
        let action = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let outbound = |platform: Option<&str>, bot_id: Option<&str>| GatewayFrame::Outbound {
            request_id: "0a".repeat(16),
            action: action(r#"{"op":"send","content":"a\nb"}"#),
            platform: platform.map(str::to_owned),
            bot_id: bot_id.map(str::to_owned),
        };
        let ack = |id: &str| GatewayFrame::InboundAck {
            buffer_id: id.to_owned(),
        };
        for frame in [
            outbound(None, None),
            outbound(Some("discord"), None),
            outbound(Some("a\"b"), Some("app\\1")),
            ack("b-1"),
            ack("\u{1}\n\"\\ \u{7f}é😀"),
        ] {
            assert_eq!(frame.to_line(), serde_json::to_string(&frame).unwrap() + "\n");
        }
        for frame in [
            outbound(Some("discord"), Some("bot")),
            outbound(None, None),
            ack("b-1"),
        ] {
            let line = frame.to_line();
            assert_eq!(line.len(), line.capacity(), "nothing has to be moved");
        }
    }

    #[test]
    fn recorded_frames_are_read_and_written_alike() {
        let trace: Value = serde_json::from_str(include_str!("../../tests/vectors/wire-trace.json")).unwrap();
        let recorded = trace["gateway_to_connector"].as_array().unwrap();
        assert!(!recorded.is_empty());
        for line in recorded.iter().map(|line| line.as_str().unwrap()) {
            let ours = GatewayFrame::decode(line.as_bytes()).unwrap().to_line();
            assert!(ours.ends_with('\n') && ours.matches('\n').count() == 1);
            let (ours, theirs): (Value, Value) = (
                serde_json::from_str(&ours).unwrap(),
                serde_json::from_str(line).unwrap(),
            );
            assert_eq!(ours, theirs);
        }
    }
}
