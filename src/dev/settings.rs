//! What an embedded connector starts with.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;

/// A gateway that may dial, and the secret it signs with.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Its name.
    pub gateway_id: String,
    /// Its secret.
    pub secret: SecretString,
}

/// What becomes of a second connection of the same gateway. Both happen in the wild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondConnection {
    /// The old one is closed with 4000.
    NewestWins,
    /// The new one is closed with 1008.
    RefuseNew,
}

/// How an embedded connector behaves from its start; faults and scripts change it later.
#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// Port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// Gateways that may dial. Several entries with one id are one gateway whose secret is being rotated.
    /// The first is the one that [`Connector::credentials`](super::Connector::credentials) tells.
    pub gateways: Vec<Credentials>,
    /// Descriptors by platform, as they go on the wire; platforms that are not here get their preset.
    pub descriptors: BTreeMap<String, Value>,
    /// Enrolment tokens, each good once.
    pub enrol_tokens: Vec<String>,
    /// Identity tokens that enrolment and provisioning accept; `None` accepts any that is not empty.
    pub identity_tokens: Option<Vec<String>>,
    /// The tenant that enrolled gateways are told.
    pub tenant: String,
    /// Whether ops are answered. When not, every one is carried out and waits for
    /// [`Connector::answer`](super::Connector::answer).
    pub auto_answer: bool,
    /// How often the connector pings; a gateway silent for two of these is dropped. `None` never pings.
    pub ping_interval: Option<Duration>,
    /// Buffered frames that may be on their way unacknowledged. The contract's connectors use one.
    pub drain_window: usize,
    /// Buffer ids go out as JSON numbers instead of text.
    pub numeric_buffer_ids: bool,
    /// Who stays when a gateway dials twice.
    pub second_connection: SecondConnection,
    /// Least time between two wake pokes of one gateway.
    pub wake_cooldown: Duration,
    /// Whether frames are recorded from the start.
    pub recording: bool,
    /// Frames that are kept on record; the oldest go first.
    pub record_limit: usize,
    /// Messages that are buffered for one gateway; further ones are refused.
    pub buffer_limit: usize,
    /// Longest WebSocket message that is accepted from a gateway.
    pub max_message_bytes: usize,
}

impl Default for ConnectorSettings {
    fn default() -> Self {
        Self {
            port: 0,
            gateways: vec![Credentials {
                gateway_id: "gw-dev".to_owned(),
                secret: random_token().into(),
            }],
            descriptors: BTreeMap::new(),
            enrol_tokens: Vec::new(),
            identity_tokens: None,
            tenant: "dev".to_owned(),
            auto_answer: true,
            ping_interval: Some(Duration::from_secs(30)),
            drain_window: 1,
            numeric_buffer_ids: false,
            second_connection: SecondConnection::NewestWins,
            wake_cooldown: Duration::from_secs(60),
            recording: true,
            record_limit: 50_000,
            buffer_limit: 100_000,
            max_message_bytes: 1024 * 1024,
        }
    }
}

/// A word that nobody guesses: 32 random bytes in hex.
pub fn random_token() -> String {
    use std::fmt::Write as _;
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes.iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
