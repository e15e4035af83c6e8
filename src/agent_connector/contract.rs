//! The `AgentConnector` contract: payloads, receipts, errors and addresses, with the contract's field names.
//!
//! Kinds are closed: an unknown one is refused. Optional fields are absent when they are not set, never `null`. What a sender put
//! into `meta` reaches the receiver as it was, with the keys that this program does not know.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The version of the contract.
pub const CONTRACT_VERSION: &str = "1.0.0";
/// Maximum length of an agent's id or a session in bytes.
pub const MAX_ID_BYTES: usize = 512;

/// Why an envelope cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// It is no object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// A field is missing or has another type.
    #[error("`{0}` is missing or is not {1}")]
    Field(&'static str, &'static str),
    /// The kind is not one of the contract's.
    #[error("unknown kind `{0}`; the contract has `augment` and `template`")]
    UnknownKind(String),
    /// The body has the field of the other kind.
    #[error("`{0}` does not belong to this kind")]
    ForeignField(&'static str),
}

/// An agent, and one of its sessions: `agent` or `agent@session`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAddress {
    /// The agent's id.
    pub agent: String,
    /// The session.
    pub session: Option<String>,
}

impl AgentAddress {
    /// Splits at the first `@`. An empty session is none.
    pub fn parse(text: &str) -> Self {
        match text.split_once('@') {
            Some((agent, session)) => Self {
                agent: agent.to_owned(),
                session: (!session.is_empty()).then(|| session.to_owned()),
            },
            None => Self {
                agent: text.to_owned(),
                session: None,
            },
        }
    }

    /// With the structured session, which wins over the one in the address.
    #[must_use]
    pub fn with_session(mut self, session: Option<&str>) -> Self {
        if let Some(session) = session.filter(|session| !session.is_empty()) {
            self.session = Some(session.to_owned());
        }
        self
    }

    /// Whether an address asks for attention: it has an `@`.
    pub fn is_wake(text: &str) -> bool {
        text.contains('@')
    }
}

/// As it is written: `agent` or `agent@session`.
impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.session {
            Some(session) => write!(f, "{}@{session}", self.agent),
            None => f.write_str(&self.agent),
        }
    }
}

/// What started a delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TriggerKind {
    /// A schedule.
    Cron,
    /// An event.
    Event,
    /// A webhook.
    Webhook,
    /// An agent.
    Agent,
    /// A command line.
    Cli,
    /// A dashboard.
    Dashboard,
    /// Nothing that is known.
    #[default]
    Inline,
}

impl TriggerKind {
    /// Whether there can be a caller who proved who they are.
    const fn has_caller(self) -> bool {
        matches!(self, Self::Webhook | Self::Agent)
    }
}

/// What a delivery says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryMeta(Map<String, Value>);

/// What a sender says of a delivery beside its id and its time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryOrigin {
    /// The skill that sends it; `(unnamed)` if there is none.
    pub skill_name: Option<String>,
    /// The skill that the chain of skills began with; sent if it is another one.
    pub entry_skill_name: Option<String>,
    /// What started it.
    pub trigger: TriggerKind,
    /// The agent that started the chain and proved who it is, never the owner of a skill; sent if a webhook or an agent
    /// started it.
    pub caller_agent_id: Option<String>,
    /// The word that receivers route by.
    pub event_type: Option<String>,
    /// What an answer is recognised by.
    pub correlation_id: Option<String>,
}

impl DeliveryOrigin {
    /// The origin of what a skill sends that this one calls: the chain keeps its beginning, its trigger and its caller. What
    /// is said of one delivery only does not go with it.
    #[must_use]
    pub fn calls(&self, skill_name: &str) -> Self {
        Self {
            skill_name: Some(skill_name.to_owned()),
            entry_skill_name: self.entry_skill_name.clone().or_else(|| self.skill_name.clone()),
            trigger: self.trigger,
            caller_agent_id: self.caller_agent_id.clone(),
            event_type: None,
            correlation_id: None,
        }
    }
}

impl DeliveryMeta {
    /// A new delivery's, under an id of its own.
    pub fn new(dispatch_id: &str, sent_at_ms: i64, origin: &DeliveryOrigin) -> Self {
        let name = origin.skill_name.as_deref().unwrap_or("(unnamed)");
        let mut meta = Map::new();
        meta.insert("dispatch_id".to_owned(), dispatch_id.into());
        meta.insert("sent_at".to_owned(), sent_at_ms.into());
        let mut sender = json!({ "skill_name": name, "trigger_kind": origin.trigger });
        if let Some(entry) = origin.entry_skill_name.as_deref().filter(|entry| *entry != name) {
            sender["entry_skill_name"] = entry.into();
        }
        let caller = origin.caller_agent_id.as_deref();
        if let Some(caller) = caller.filter(|_| origin.trigger.has_caller()) {
            sender["caller_agent_id"] = caller.into();
        }
        meta.insert("origin".to_owned(), sender);
        let optional = [
            ("event_type", &origin.event_type),
            ("correlation_id", &origin.correlation_id),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                meta.insert(key.to_owned(), value.as_str().into());
            }
        }
        Self(meta)
    }

    fn from_value(value: Option<Value>) -> Result<Self, EnvelopeError> {
        let Some(Value::Object(meta)) = value else {
            return Err(EnvelopeError::Field("meta", "an object"));
        };
        let id = meta.get("dispatch_id").and_then(Value::as_str);
        if id.is_none_or(|id| id.is_empty() || id.len() > MAX_ID_BYTES) {
            return Err(EnvelopeError::Field(
                "meta.dispatch_id",
                "a text of 1 to 512 bytes",
            ));
        }
        Ok(Self(meta))
    }

    /// The id of the delivery; the same one again is the same delivery.
    pub fn dispatch_id(&self) -> &str {
        self.0
            .get("dispatch_id")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// What an answer is recognised by.
    pub fn correlation_id(&self) -> Option<&str> {
        self.0.get("correlation_id").and_then(Value::as_str)
    }

    /// As it is sent.
    pub fn as_object(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// What a delivery is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryKind {
    /// Context for the agent to take in.
    Augment,
    /// A playbook for the agent to carry out.
    Template,
}

impl DeliveryKind {
    /// The field that has the text.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Augment => "content",
            Self::Template => "prompt",
        }
    }

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Augment => "augment",
            Self::Template => "template",
        }
    }
}

/// What is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryPayload {
    /// What it is for.
    pub kind: DeliveryKind,
    /// The text: `content` or `prompt`.
    pub text: String,
    /// What it says of itself.
    pub meta: DeliveryMeta,
}

impl DeliveryPayload {
    /// The body of a delivery: the payload, with the address as it was given.
    pub fn to_body(&self, agent_id: &str) -> Value {
        let mut body = Map::new();
        body.insert("agent_id".to_owned(), agent_id.into());
        body.insert("kind".to_owned(), self.kind.as_str().into());
        body.insert(self.kind.field().to_owned(), self.text.as_str().into());
        body.insert("meta".to_owned(), Value::Object(self.meta.0.clone()));
        Value::Object(body)
    }

    /// Reads the payload of a body.
    pub fn from_body(body: Value) -> Result<Self, EnvelopeError> {
        let Value::Object(mut body) = body else {
            return Err(EnvelopeError::NotAnObject);
        };
        let kind = match body.get("kind").and_then(Value::as_str) {
            Some("augment") => DeliveryKind::Augment,
            Some("template") => DeliveryKind::Template,
            Some(other) => return Err(EnvelopeError::UnknownKind(other.chars().take(40).collect())),
            None => return Err(EnvelopeError::Field("kind", "a text")),
        };
        let foreign = match kind {
            DeliveryKind::Augment => DeliveryKind::Template,
            DeliveryKind::Template => DeliveryKind::Augment,
        };
        if body.contains_key(foreign.field()) {
            return Err(EnvelopeError::ForeignField(foreign.field()));
        }
        let Some(Value::String(text)) = body.remove(kind.field()) else {
            return Err(EnvelopeError::Field(kind.field(), "a text"));
        };
        let meta = DeliveryMeta::from_value(body.remove("meta"))?;
        Ok(Self { kind, text, meta })
    }
}

/// How a delivery was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryReceipt {
    /// When, in Unix milliseconds.
    pub delivered_at: i64,
    /// The substrate's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// The session that it went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Present and true if it was accepted and not pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_skipped: Option<bool>,
    /// Advice; never a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// How an agent is woken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeOpts {
    /// What stands before the wake message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// When, in Unix milliseconds; none for immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<i64>,
    /// The session, which wins over the one in the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The envelope of the delivery that stands in for the wake where there is no interrupt channel, so that all substrates of one
    /// dispatch deliver under one id; a new one if it is not set. It is not part of the wire.
    #[serde(skip)]
    pub envelope: Option<DeliveryMeta>,
}

/// How a wake was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeReceipt {
    /// When, in Unix milliseconds.
    pub woken_at: i64,
    /// Whether the agent was interrupted; if not, the content was delivered.
    pub woken: bool,
    /// The session that it went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Advice; never a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// An agent that a connector reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDescriptor {
    /// Its id, without a session.
    pub agent_id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// What can be done with it: `deliver`, `wake`, `augment`, `template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
}

/// Whether an agent works; nothing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentActivity {
    /// It works.
    Active,
    /// It waits.
    Idle,
    /// It sleeps.
    Asleep,
    /// Nobody knows.
    Unknown,
}

/// An agent's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentResponse {
    /// The request's.
    pub correlation_id: String,
    /// The text.
    pub content: String,
    /// When it was sent, in Unix milliseconds.
    pub sent_at: i64,
    /// Who answers.
    pub agent_id: String,
}

/// What a kind of connector can do, without an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StaticCapabilities {
    /// Always `agent_connector`.
    pub connector_type: &'static str,
    /// The kind's name.
    pub implementation: &'static str,
    /// [`CONTRACT_VERSION`].
    pub contract_version: &'static str,
    /// What it can do.
    pub features: ConnectorFeatures,
}

/// The six features of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ConnectorFeatures {
    /// It delivers.
    pub deliver: bool,
    /// It has an interrupt channel; without one a wake delivers.
    pub wake: bool,
    /// It knows its agents.
    pub list_agents: bool,
    /// It knows whether they work.
    pub agent_status: bool,
    /// It can be checked.
    pub health_check: bool,
    /// It can wait for an answer.
    pub request_response: bool,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// No connection, or it broke.
    Network,
    /// No answer in time.
    Timeout,
    /// An answer with an error status.
    HttpStatus,
    /// An answer that cannot be read.
    MalformedResponse,
    /// The request itself is wrong: an unknown agent, a bad setting.
    ClientValidation,
    /// The substrate cannot do this at all.
    NotImplemented,
}

/// Why a delivery, a wake or a request failed. A capability gap of [`AgentConnector::wake`](super::AgentConnector::wake) is none:
/// it delivers, with `woken: false`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct DeliveryFailure {
    /// What went wrong.
    pub cause_kind: CauseKind,
    /// For people.
    pub message: String,
    /// The status of an [`CauseKind::HttpStatus`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// The agent.
    #[serde(skip)]
    pub agent_id: String,
}

impl DeliveryFailure {
    /// A failure without a status.
    pub fn new(cause_kind: CauseKind, agent_id: &str, message: impl Into<String>) -> Self {
        Self {
            cause_kind,
            message: message.into(),
            http_status: None,
            agent_id: agent_id.to_owned(),
        }
    }

    /// There is no such agent.
    pub fn unknown_agent(agent_id: &str) -> Self {
        let shown = crate::text::printable(agent_id, 80);
        Self::new(
            CauseKind::ClientValidation,
            agent_id,
            format!("there is no agent `{shown}`"),
        )
    }

    /// The substrate cannot wait for an answer.
    pub fn not_implemented(agent_id: &str, implementation: &str) -> Self {
        Self::new(
            CauseKind::NotImplemented,
            agent_id,
            format!("a target of the kind `{implementation}` cannot wait for an answer"),
        )
    }
}
