//! The protocol of the control socket: one JSON line in, one JSON line out, then the connection ends.
//!
//! ```text
//! {"v":1,"op":"stop","session":"agent:main:discord:dm:c1"}
//! {"v":1,"ok":{"stopped":true}}
//! {"v":1,"error":{"code":"no_turn","message":"no turn runs in that session"}}
//! ```

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::AccessRequest;
use crate::store::{Item, Repair};

/// Protocol version. A relay accepts only its own; fields may be added within a version.
const VERSION: u32 = 1;
/// Maximum length of a request in bytes, newline included.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// The same of a handed-over item, whose text is longer: enough for the longest notice with every character escaped.
pub(super) const MAX_HAND_BYTES: usize = 8 * 1024 * 1024;
/// How a handed-over item starts; only such a request may be longer than [`MAX_REQUEST_BYTES`].
const HAND_START: &[u8] = br#"{"v":1,"op":"hand","#;
/// The code of a request that another user sent.
pub(super) const DENIED: &str = "denied";
/// The socket's name in the state directory.
const SOCKET_NAME: &str = "control.sock";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum ControlRequest {
    /// Report the status of everything.
    Status,
    /// List the sessions that run or wait.
    Sessions,
    /// Stop the turn of a session.
    Stop {
        /// The session key.
        session: String,
    },
    /// Send a message to a known chat.
    Send {
        /// The chat's id.
        chat: String,
        /// The platform, where several have a chat with that id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
        /// The text.
        text: String,
        /// Whether it rings nobody.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        silent: bool,
    },
    /// List or change who may drive an agent.
    Access {
        /// What is wanted.
        request: AccessRequest,
    },
    /// Reload the settings.
    Reload,
    /// Dial now.
    Wake,
    /// Report whether messages arrive, or are buffered by the connector.
    Health,
    /// Read the scheduled jobs again, which were changed in the journal, and report whether each is armed.
    JobsChanged,
    /// Report the time zone of jobs without their own.
    JobsZone,
    /// Report whose turn a session has, and in which chat a job of theirs is made.
    TurnAuthor {
        /// The session key; without one, whoever all running turns belong to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
    },
    /// Hand something to an agent; answered with its receipt, or with the agent's answer.
    Hand {
        /// The agent's name.
        agent: String,
        /// The session; the agent's own session for handed-over items without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// Interrupt the session's turn and run at once.
        #[serde(default)]
        wake: bool,
        /// Wait so many milliseconds for the agent's answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
        /// The body, as the contract has it.
        body: Value,
    },
    /// Run or send an entry of the journal again, or drop it.
    Repair {
        /// What is done.
        repair: Repair,
        /// The entry.
        item: Item,
    },
    /// Finish running turns and end the relay, as SIGTERM does.
    Shutdown,
    /// Finish running turns and let another member of the cluster become active.
    #[serde(rename = "handover")]
    HandOver,
    /// A person says that the active member is gone: take over.
    #[serde(rename = "takeover")]
    TakeOver,
    /// Report whether an agent works.
    Activity {
        /// The agent's name.
        agent: String,
    },
}

/// Whose agent may make a request, while access rules hold. The operator may make every request, and so may an owner's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<'r> {
    /// Anybody's.
    Anybody,
    /// That of the author of the turn that runs in this session.
    Session(&'r str),
    /// That of a turn in this chat.
    Chat {
        /// The chat's id.
        chat: &'r str,
        /// Its platform.
        platform: Option<&'r str>,
    },
    /// An owner's.
    Owner,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    v: u32,
    #[serde(flatten)]
    request: ControlRequest,
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

/// The maximum length of a request that starts like this.
pub(super) fn max_bytes(start: &[u8]) -> usize {
    if start.starts_with(HAND_START) {
        MAX_HAND_BYTES
    } else {
        MAX_REQUEST_BYTES
    }
}

impl ControlRequest {
    /// Whose agent may make it.
    pub fn need(&self) -> Need<'_> {
        match self {
            Self::Status
            | Self::Sessions
            | Self::Wake
            | Self::Health
            | Self::JobsChanged
            | Self::JobsZone
            | Self::TurnAuthor { .. }
            | Self::Activity { .. } => Need::Anybody,
            Self::Stop { session } => Need::Session(session),
            Self::Send { chat, platform, .. } => Need::Chat {
                chat,
                platform: platform.as_deref(),
            },
            Self::Access { request } => match request {
                AccessRequest::List => Need::Anybody,
                AccessRequest::Pending
                | AccessRequest::Allow { .. }
                | AccessRequest::Deny { .. }
                | AccessRequest::Forget { .. }
                | AccessRequest::Approve { .. } => Need::Owner,
            },
            // What is handed over has the operator's rights.
            Self::Hand { .. }
            | Self::Reload
            | Self::Repair { .. }
            | Self::Shutdown
            | Self::HandOver
            | Self::TakeOver => Need::Owner,
        }
    }

    /// The request as one line, newline included.
    pub(super) fn encode(&self) -> String {
        encode_line(&Envelope {
            v: VERSION,
            request: self.clone(),
        })
    }

    /// Parses a line.
    pub(super) fn decode(line: &[u8]) -> Result<Self, ControlError> {
        let invalid = |error: serde_json::Error| {
            ControlError::new("bad_request", format!("this is not a request: {error}"))
        };
        let Versioned { v } = serde_json::from_slice(line).map_err(invalid)?;
        if v != VERSION {
            let message = format!("this relay supports version {VERSION} of the control protocol, not {v}");
            return Err(ControlError::new("version", message));
        }
        let envelope: Envelope = serde_json::from_slice(line).map_err(invalid)?;
        Ok(envelope.request)
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// The reason for programs.
    pub code: String,
    /// The reason for people.
    pub message: String,
}

impl ControlError {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// The response to a request.
pub(super) type ControlResult = Result<Value, ControlError>;

#[derive(Serialize, Deserialize)]
struct Response {
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ControlError>,
}

/// The response as one line, newline included.
pub(super) fn encode_response(result: ControlResult) -> String {
    let (ok, error) = match result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    };
    encode_line(&Response {
        v: VERSION,
        ok,
        error,
    })
}

/// Parses a response; `None` if it is invalid.
pub(super) fn decode_response(line: &[u8]) -> Option<ControlResult> {
    let response: Response = serde_json::from_slice(line).ok()?;
    match (response.ok, response.error) {
        (Some(value), None) => Some(Ok(value)),
        (None, Some(error)) => Some(Err(error)),
        _ => None,
    }
}

fn encode_line(message: &impl Serialize) -> String {
    let mut line = serde_json::to_string(message).expect("messages have text keys and no failing values");
    line.push('\n');
    line
}

/// The control socket's file.
pub(super) fn socket_file(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET_NAME)
}

/// A path to the control socket that fits into a socket address.
#[derive(Debug)]
pub(super) struct SocketPath {
    pub(super) path: PathBuf,
    /// Keeps the path valid where it leads through an open directory.
    pub(super) directory: Option<File>,
}

impl SocketPath {
    /// The path for a state directory. A socket address holds about a hundred bytes; a longer path goes through the open
    /// directory in `/proc`.
    pub(super) fn new(state_dir: &Path) -> io::Result<Self> {
        let path = socket_file(state_dir);
        if SocketAddr::from_pathname(&path).is_ok() {
            return Ok(Self {
                path,
                directory: None,
            });
        }
        let directory = File::open(state_dir)?;
        let through = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        if !through.exists() {
            let what = format!(
                "the path {} is too long for a socket; use a shorter state directory",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Self {
            path: through.join(SOCKET_NAME),
            directory: Some(directory),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_and_responses_round_trip() {
        for request in [
            ControlRequest::Status,
            ControlRequest::Stop {
                session: "a\nb".to_owned(),
            },
            ControlRequest::Send {
                chat: "c".to_owned(),
                platform: None,
                text: "hi".to_owned(),
                silent: true,
            },
            ControlRequest::JobsChanged,
            ControlRequest::JobsZone,
            ControlRequest::Activity {
                agent: "a".to_owned(),
            },
            ControlRequest::Repair {
                repair: Repair::Retry,
                item: Item::Op(crate::store::OpSeq(3)),
            },
            ControlRequest::Shutdown,
            ControlRequest::HandOver,
            ControlRequest::TakeOver,
            hand(),
            ControlRequest::TurnAuthor {
                session: Some("s".to_owned()),
            },
            ControlRequest::TurnAuthor { session: None },
        ] {
            let line = request.encode();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(ControlRequest::decode(line.as_bytes()), Ok(request));
        }
        for result in [Ok(json!({"a": 1})), Err(ControlError::new("no", "because"))] {
            let line = encode_response(result.clone());
            assert_eq!(decode_response(line.as_bytes()), Some(result));
        }
    }

    fn hand() -> ControlRequest {
        ControlRequest::Hand {
            agent: "a".to_owned(),
            session: None,
            wake: false,
            wait_ms: Some(5),
            body: json!({"kind": "augment"}),
        }
    }

    #[test]
    fn every_request_says_whose_agent_may_make_it() {
        let name = || "x".to_owned();
        let access = |request| ControlRequest::Access { request };
        let anybody = [
            ControlRequest::Status,
            ControlRequest::Sessions,
            ControlRequest::Wake,
            ControlRequest::Health,
            ControlRequest::JobsChanged,
            ControlRequest::JobsZone,
            ControlRequest::TurnAuthor { session: None },
            ControlRequest::Activity { agent: name() },
            access(AccessRequest::List),
        ];
        let repair = |repair| ControlRequest::Repair {
            repair,
            item: Item::Op(crate::store::OpSeq(3)),
        };
        let owner = [
            hand(),
            ControlRequest::Reload,
            repair(Repair::Retry),
            repair(Repair::Drop),
            ControlRequest::Shutdown,
            ControlRequest::HandOver,
            ControlRequest::TakeOver,
            access(AccessRequest::Pending),
            access(AccessRequest::Allow {
                person: name(),
                role: None,
                agents: None,
                chats: None,
            }),
            access(AccessRequest::Deny { person: name() }),
            access(AccessRequest::Forget { person: name() }),
            access(AccessRequest::Approve {
                code: name(),
                role: None,
            }),
        ];
        let expected = [(&anybody[..], Need::Anybody), (&owner[..], Need::Owner)];
        for (requests, need) in expected {
            for request in requests {
                assert_eq!(request.need(), need, "{request:?}");
            }
        }
        let stop = ControlRequest::Stop { session: name() };
        assert_eq!(stop.need(), Need::Session("x"));
        let send = ControlRequest::Send {
            chat: name(),
            platform: Some("discord".to_owned()),
            text: name(),
            silent: false,
        };
        let (chat, platform) = ("x", Some("discord"));
        assert_eq!(send.need(), Need::Chat { chat, platform });
    }

    #[test]
    fn only_a_handed_over_item_may_be_long() {
        assert_eq!(max_bytes(hand().encode().as_bytes()), MAX_HAND_BYTES);
        assert_eq!(
            max_bytes(ControlRequest::Status.encode().as_bytes()),
            MAX_REQUEST_BYTES
        );
        assert_eq!(max_bytes(b"xxxx"), MAX_REQUEST_BYTES);
    }

    #[test]
    fn an_invalid_request_is_refused_with_a_code() {
        let code = |line: &str| ControlRequest::decode(line.as_bytes()).unwrap_err().code;
        assert_eq!(code("hello"), "bad_request");
        assert_eq!(code(r#"{"op":"status"}"#), "bad_request");
        assert_eq!(code(r#"{"v":1,"op":"stauts"}"#), "bad_request");
        assert_eq!(code(r#"{"v":2,"op":"status"}"#), "version");
        assert_eq!(code(r#"{"v":2,"op":"novel"}"#), "version");
    }
}
