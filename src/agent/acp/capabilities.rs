//! What an agent says it can do, read from its answer to `initialize`. What is left out it cannot do.

use serde_json::{Value, json};

/// The version of the protocol that is spoken here.
pub(super) const VERSION: u64 = 1;

/// Most ways to sign in that are told to people.
const METHODS: usize = 8;

/// What an agent can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// It continues a session and replays it first.
    pub(super) load: bool,
    /// It continues a session.
    pub(super) resume: bool,
    /// It makes a copy of a session.
    pub(super) fork: bool,
    /// It lets go of a session.
    pub(super) close: bool,
    /// It deletes a session.
    pub(super) delete: bool,
    /// It looks at pictures.
    pub(super) images: bool,
    /// Ways to sign in, by name.
    pub(super) sign_in: Vec<String>,
}

/// How a session is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continue {
    /// `session/resume`.
    Resume,
    /// `session/load`.
    Load,
}

/// An agent that speaks another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the agent speaks version {theirs} of the protocol, and only version {VERSION} is spoken here; \
         update the agent, or this program, to one that speaks the same"
)]
pub(super) struct OtherVersion {
    /// What it speaks.
    pub(super) theirs: String,
}

impl Capabilities {
    /// What to say to an agent first. Files and terminals are not offered: the agent uses its own.
    pub(super) fn initialize() -> Value {
        json!({
            "protocolVersion": VERSION,
            "clientCapabilities": {
                "fs": {"readTextFile": false, "writeTextFile": false},
                "terminal": false,
            },
            "clientInfo": {"name": "hermes-relay", "version": env!("CARGO_PKG_VERSION")},
        })
    }

    /// Reads the answer.
    pub(super) fn read(answer: &Value) -> Result<Self, OtherVersion> {
        match &answer["protocolVersion"] {
            version if version.as_u64() == Some(VERSION) => {}
            // Left out by some early agents, which speak the first version.
            Value::Null => {}
            other => {
                let mut theirs = other.to_string();
                super::message::cut(&mut theirs, 40);
                return Err(OtherVersion { theirs });
            }
        }
        let can = &answer["agentCapabilities"];
        let session = &can["sessionCapabilities"];
        let methods = answer["authMethods"].as_array().map_or(&[][..], Vec::as_slice);
        let named = methods.iter().filter_map(|method| {
            let name = method["name"].as_str().or(method["id"].as_str())?;
            Some(super::update::one_line(name, 80))
        });
        Ok(Self {
            load: can["loadSession"].as_bool().unwrap_or(false),
            resume: offered(&session["resume"]),
            fork: offered(&session["fork"]),
            close: offered(&session["close"]),
            delete: offered(&session["delete"]),
            images: can["promptCapabilities"]["image"].as_bool().unwrap_or(false),
            sign_in: named.take(METHODS).collect(),
        })
    }

    /// How a session is continued, when it can be.
    pub(super) fn continues(&self) -> Option<Continue> {
        match self {
            Self { resume: true, .. } => Some(Continue::Resume),
            Self { load: true, .. } => Some(Continue::Load),
            _ => None,
        }
    }
}

/// A capability is an object, however empty; some agents write `true`.
fn offered(capability: &Value) -> bool {
    !matches!(capability, Value::Null | Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_it_cannot_do() {
        assert_eq!(
            Capabilities::read(&json!({"protocolVersion": 1})),
            Ok(Capabilities::default())
        );
        assert_eq!(Capabilities::read(&Value::Null), Ok(Capabilities::default()));
        let read = Capabilities::read(&json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true},
                "sessionCapabilities": {"fork": {}, "resume": {}, "close": null, "delete": false},
            },
            "authMethods": [{"id": "a", "name": "Sign\nin"}, {"id": "b"}, 7],
        }));
        let expected = Capabilities {
            load: true,
            resume: true,
            fork: true,
            images: true,
            sign_in: vec!["Sign in".to_owned(), "b".to_owned()],
            ..Capabilities::default()
        };
        assert_eq!(expected.continues(), Some(Continue::Resume));
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn another_version_is_said_clearly() {
        for version in [json!(2), json!("1"), json!(0), json!({})] {
            let error = Capabilities::read(&json!({"protocolVersion": version})).unwrap_err();
            assert!(error.to_string().contains("only version 1"), "{error}");
        }
    }
}
