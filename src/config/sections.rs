//! Sections of the settings file that are used as written, with their defaults: link, sessions, journal, log, ...

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::adapter::OfferedCommand;
use crate::cron::target;
use crate::setting::{MAX_SECS, MAX_SIZE, section, shared};
use crate::words::PhraseKey;

use super::validate::Violation;

/// A value that is not a valid choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not one of: {}", choices.join(", "))]
pub struct UnknownChoice {
    /// The value.
    pub value: String,
    /// The valid choices.
    pub choices: &'static [&'static str],
}

macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// The valid choices.
            pub const CHOICES: &'static [&'static str] = &[$($text),+];

            /// The choice as written.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl FromStr for $name {
            type Err = UnknownChoice;

            fn from_str(text: &str) -> Result<Self, UnknownChoice> {
                match text.trim().to_ascii_lowercase().as_str() {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(UnknownChoice { value: text.trim().chars().take(40).collect(), choices: Self::CHOICES }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(super) use choice;

choice!(
    /// What to do when the connector has revoked this gateway.
    OnRevoked {
        /// Exit with the exit code for it.
        #[default]
        Exit = "exit",
        /// Keep running unconnected.
        Stay = "stay",
    }
);

choice!(
    /// What to do with a message that arrives during a turn of its session.
    BusyMode {
        /// Queue it.
        #[default]
        Queue = "queue",
        /// Stop the running turn and run it next.
        Interrupt = "interrupt",
        /// Pass it to the running turn, or queue it if the agent does not support that.
        Steer = "steer",
    }
);

choice!(
    /// What to send again when its outcome is unknown: it was sent, and the connection ended before the answer came.
    ResendUnknown {
        /// Text that people wait for.
        #[default]
        Answers = "answers",
        /// Nothing, unless it is harmless.
        Never = "never",
        /// Text and files.
        All = "all",
    }
);

choice!(
    /// What a committed row survives.
    Durability {
        /// Power loss.
        #[default]
        Full = "full",
        /// A crash of the process.
        Process = "process",
    }
);

choice!(
    /// What to do when the relay goes to sleep.
    SleepAction {
        /// Exit; a restart wakes it.
        #[default]
        Exit = "exit",
        /// Suspend the machine.
        Suspend = "suspend",
        /// Keep running without a connection.
        Wait = "wait",
    }
);

section! {
    /// The connection to the connector.
    #[derive(PartialEq, Eq)]
    pub struct LinkConfig {
        /// Minimum delay before a reconnect.
        pub backoff_min_ms: u64 = 1_000, range(10..=MAX_SECS * 1000);
        /// Maximum delay before a reconnect.
        pub backoff_max_ms: u64 = 30_000, range(10..=MAX_SECS * 1000);
        /// How long a connection must last before the backoff is reset.
        pub stable_secs: u64 = 60, range(0..=MAX_SECS);
        /// Delay after the connector refused the credentials repeatedly; an eighth of it after the first refusal.
        pub refused_retry_secs: u64 = 60, range(1..=MAX_SECS);
        /// Timeout of the handshake.
        pub handshake_timeout_secs: u64 = 30, range(1..=MAX_SECS);
        /// Timeout of a request.
        pub request_timeout_secs: u64 = 30, range(1..=MAX_SECS);
        /// Timeout of name lookup, connection, TLS and upgrade together.
        pub connect_timeout_secs: u64 = 10, range(1..=MAX_SECS);
        /// Ping interval.
        pub ping_interval_secs: u64 = 30, range(1..=MAX_SECS);
        /// Reconnect if nothing was received for this long.
        pub dead_after_secs: u64 = 60, range(1..=MAX_SECS);
        /// Maximum length of a line; a longer one is not decoded, and with a `bufferId` quarantined and acknowledged.
        pub max_line_bytes: usize = 1_048_576, range(4096..=MAX_SIZE);
        /// Maximum size of a WebSocket message; a larger one closes the connection.
        pub max_message_bytes: usize = 33_554_432, range(4096..=MAX_SIZE);
        /// Maximum size of the write buffer.
        pub max_write_buffer_bytes: usize = 8_388_608, range(262_144..=MAX_SIZE);
        /// Maximum requests in flight.
        pub max_in_flight: usize = 1_024, range(1..=1 << 20);
        /// What to do when the connector has revoked this gateway.
        pub on_revoked: OnRevoked = OnRevoked::Exit;
    }
}

impl LinkConfig {
    /// The first pair of settings that contradict each other.
    pub(super) fn violation(&self) -> Option<Violation> {
        let pairs = [
            (
                self.backoff_min_ms > self.backoff_max_ms,
                "link.backoff_min_ms",
                format!("must not exceed `link.backoff_max_ms` ({})", self.backoff_max_ms),
            ),
            (
                self.ping_interval_secs >= self.dead_after_secs,
                "link.ping_interval_secs",
                format!(
                    "must be shorter than `link.dead_after_secs` ({})",
                    self.dead_after_secs
                ),
            ),
            (
                self.max_line_bytes > self.max_message_bytes,
                "link.max_line_bytes",
                format!(
                    "must not exceed `link.max_message_bytes` ({})",
                    self.max_message_bytes
                ),
            ),
        ];
        let broken = pairs.into_iter().find(|(is_broken, ..)| *is_broken);
        broken.map(|(_, key, rule)| (key, rule))
    }
}

section! {
    /// Sessions and their turns.
    #[derive(PartialEq, Eq)]
    pub struct SessionsConfig {
        /// One session per member of a group.
        pub group_sessions_per_user: bool = true;
        /// One session per member of a thread.
        pub thread_sessions_per_user: bool;
        /// Include the profile in session keys.
        pub multiplex_profiles: bool,
            env(&[shared("GATEWAY_MULTIPLEX_PROFILES", "on or off: include the profile in session keys; the settings decide if it is anything else")]);
        /// What to do with a message that arrives during a turn.
        pub busy_mode: BusyMode = BusyMode::Queue,
            env(&[shared("HERMES_GATEWAY_BUSY_INPUT_MODE", "queue, interrupt or steer")]),
            hermes("display.busy_input_mode");
        /// Maximum queued messages per session in memory.
        pub max_queue: usize = 64, range(1..=1 << 20);
        /// Maximum number of waiting sessions in memory.
        pub max_waiting: usize = 10_000, range(1..=1 << 24);
        /// Maximum concurrent turns.
        pub max_concurrent_turns: usize = 512, range(1..=1 << 20);
        /// Grace period of a stopped turn before it is killed.
        pub grace_secs: u64 = 5, range(0..=MAX_SECS);
        /// Message to a chat whose turn was interrupted by a restart.
        pub interrupted_notice: Option<String> =
            Some(PhraseKey::Interrupted.english().to_owned());
        /// Message to a chat whose queue is full.
        pub overflow_notice: Option<String> =
            Some(PhraseKey::Overflow.english().to_owned());
        /// Message to a chat that did not get an answer.
        pub undelivered_notice: Option<String> =
            Some(PhraseKey::Undelivered.english().to_owned());
        /// What to send again when its outcome is unknown.
        #[serde(deserialize_with = "resend_unknown")]
        pub resend_unknown: ResendUnknown = ResendUnknown::Answers;
        /// Maximum times that it is sent.
        pub resend_max_attempts: u32 = 8, range(1..=1000);
        /// How long it is sent again.
        pub resend_max_age_secs: u64 = 3_600, range(0..=MAX_SECS);
        /// Retries of an answer that the connector refused.
        pub refused_retries: u32 = 3, range(0..=10);
        /// Enabled slash commands of the relay.
        pub commands: Vec<String> =
            ["stop", "new", "sessions", "resume", "status", "agent", "project", "model", "mode", "whoami", "usage", "cron", "voice", "diff", "retry", "queue", "quiet", "help"]
                .map(str::to_owned)
                .into();
    }
}

/// One of the choices, or what it was before there were choices: true or false.
fn resend_unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ResendUnknown, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.as_str() {
        "true" => Ok(ResendUnknown::All),
        "false" => Ok(ResendUnknown::Never),
        _ => ResendUnknown::deserialize(text.into_deserializer()),
    }
}

section! {
    /// The durable inbox and outbox.
    #[derive(PartialEq, Eq)]
    pub struct JournalConfig {
        /// What a committed row survives.
        pub durability: Durability = Durability::Full;
        /// How long a message is recognised as a duplicate.
        pub dedupe_days: u64 = 30, range(1..=3650);
        /// How long finished rows are kept.
        pub keep_days: u64 = 7, range(0..=3650);
        /// Size above which finished rows are deleted early.
        pub max_bytes: u64 = 1_073_741_824, range(1 << 20..=1 << 50);
        /// How long an unused conversation is remembered.
        pub resume_days: u64 = 90, range(0..=3650);
        /// Maximum size of what is remembered of conversations.
        pub resume_bytes: u64 = 268_435_456, range(1 << 20..=1 << 50);
        /// Maximum number of known chats.
        pub chat_memory: usize = 10_000, range(1..=1 << 24);
    }
}

section! {
    /// The audit log.
    #[derive(PartialEq, Eq)]
    pub struct AuditConfig {
        /// How long entries are kept.
        pub keep_days: u64 = 90, range(1..=3650);
    }
}

section! {
    /// Discord.
    #[derive(PartialEq)]
    pub struct DiscordConfig {
        /// Additional slash commands.
        pub commands: Vec<OfferedCommand>;
    }
}

/// Relevance policy of a platform; unset options are read from Hermes' files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyOverride {
    /// Deliver only messages that mention the bot.
    pub require_mention: Option<bool>,
    /// Channels in which every message is delivered.
    pub free_response_channels: Option<Vec<String>>,
    /// Deliver messages of other bots.
    pub allow_other_bots: Option<bool>,
}

section! {
    /// The time of the shutdown.
    #[derive(PartialEq, Eq)]
    pub struct ShutdownConfig {
        /// Total time.
        pub budget_secs: u64 = 25, range(1..=MAX_SECS);
        /// Time for the connector to acknowledge the shutdown.
        pub going_idle_secs: u64 = 2, range(0..=MAX_SECS);
        /// Time for running turns to finish.
        pub drain_secs: u64 = 10, range(0..=MAX_SECS);
    }
}

impl ShutdownConfig {
    /// Why the parts do not fit into the whole.
    pub(super) fn violation(&self) -> Option<Violation> {
        let parts = self.going_idle_secs + self.drain_secs;
        (parts > self.budget_secs).then(|| {
            let rule = format!("must be at least `going_idle_secs` plus `drain_secs` ({parts})");
            ("shutdown.budget_secs", rule)
        })
    }
}

section! {
    /// Scale to zero.
    #[derive(PartialEq, Eq)]
    pub struct SleepConfig {
        /// Enable sleep; needs a wake URL.
        pub enabled: bool,
            env(&[shared("HERMES_SCALE_TO_ZERO", "1, true, yes or on: sleep when idle")]);
        /// Idle time before sleep.
        pub idle_secs: u64 = 300, range(1..=MAX_SECS);
        /// What to do when the relay goes to sleep.
        pub action: SleepAction = SleepAction::Exit;
        /// Command that suspends the machine, without a shell.
        pub command: Vec<String>;
        /// Maximum sleep of a process that keeps running.
        pub max_secs: u64 = 3_600, range(1..=MAX_SECS);
    }
}

impl SleepConfig {
    /// Why the command cannot be started.
    pub(super) fn violation(&self) -> Option<Violation> {
        let has_nul = self.command.iter().any(|part| part.contains('\0'));
        let is_blank = self
            .command
            .first()
            .is_some_and(|program| program.trim().is_empty());
        (has_nul || is_blank).then(|| {
            let rule = "must start with a program and contain no NUL character".to_owned();
            ("sleep.command", rule)
        })
    }
}

choice!(
    /// Log level.
    LogLevel {
        /// Failures that stop the relay.
        Error = "error",
        /// Also problems to look at.
        Warn = "warn",
        /// Also state changes.
        #[default]
        Info = "info",
        /// Also decisions.
        Debug = "debug",
        /// Also frames.
        Trace = "trace",
    }
);

choice!(
    /// Log format.
    LogFormat {
        /// `journald` if journald reads the standard error, else `text`; in a terminal, `run` writes for people.
        #[default]
        Auto = "auto",
        /// Text on standard error.
        Text = "text",
        /// JSON on standard error.
        Json = "json",
        /// journald entries with fields.
        Journald = "journald",
    }
);

section! {
    /// Logging.
    #[derive(PartialEq, Eq)]
    pub struct LogConfig {
        /// Level.
        pub level: LogLevel, live;
        /// Format.
        pub format: LogFormat;
        /// File that gets a copy of the log; none if unset.
        pub file: Option<PathBuf>;
        /// Size at which a new file is begun.
        pub file_bytes: u64 = 10_485_760, range(1 << 16..=1 << 40);
        /// Number of older files that are kept.
        pub file_count: u32 = 5, range(0..=1000);
        /// Maximum repeated lines per window; 0 for no limit.
        pub repeat_burst: u32 = 10, range(0..=1 << 20), live;
        /// Length of the window; 0 for no limit.
        pub repeat_window_secs: u64 = 60, range(0..=MAX_SECS), live;
    }
}

section! {
    /// Control and monitoring.
    #[derive(PartialEq, Eq)]
    pub struct ServeConfig {
        /// Address of the HTTP listener; off if unset.
        pub http: Option<String>;
        /// Allow addresses of other machines.
        pub allow_remote: bool;
        /// Additional host names of a loopback listener.
        pub allowed_hosts: Vec<String>;
        /// Maximum connections of one address that let the listener wait for longer than a second; above it the oldest is closed.
        pub max_per_address: usize = 32, range(1..=4096);
        /// Enable the control socket.
        pub control: bool = true;
        /// Take deliveries to agents on the HTTP listener; off if unset.
        pub receiver: Option<ReceiverConfig>;
    }
}

/// Who may hand something to the agents over HTTP: whoever knows everything that is set here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiverConfig {
    /// File with the key of the signature.
    pub hmac_secret_file: Option<PathBuf>,
    /// File with the bearer key.
    pub bearer_file: Option<PathBuf>,
    /// Where the answers of turns go whose session has no chat; nowhere if unset.
    pub deliver: Option<String>,
}

impl ServeConfig {
    /// The address to listen on, if any; else why it is invalid.
    pub fn http_address(&self) -> Result<Option<SocketAddr>, String> {
        let Some(address) = listen_address(self.http.as_deref())? else {
            return Ok(None);
        };
        if !address.ip().to_canonical().is_loopback() && !self.allow_remote {
            return Err(
                "is reachable from other machines; use 127.0.0.1, or set `serve.allow_remote: true`"
                    .to_owned(),
            );
        }
        Ok(Some(address))
    }

    /// The first violated rule.
    pub(super) fn violation(&self) -> Option<Violation> {
        match self.http_address() {
            Err(rule) => Some(("serve.http", rule)),
            Ok(_) => self.receiver_violation(),
        }
    }

    fn receiver_violation(&self) -> Option<Violation> {
        let receiver = self.receiver.as_ref()?;
        let files = [
            ("serve.receiver.hmac_secret_file", &receiver.hmac_secret_file),
            ("serve.receiver.bearer_file", &receiver.bearer_file),
        ];
        for (key, file) in &files {
            if file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
                return Some((key, "is empty; name a file".to_owned()));
            }
        }
        if let Some(Err(why)) = receiver.deliver.as_deref().map(target::platforms) {
            let rule =
                format!("is not a target: {why}; write `platform:chat`, such as `discord:1234`, or `local`");
            return Some(("serve.receiver.deliver", rule));
        }
        let key = "serve.receiver";
        if files.iter().all(|(_, file)| file.is_none()) {
            let rule = "needs `hmac_secret_file`, `bearer_file` or both: without a secret anybody could drive the agents";
            return Some((key, rule.to_owned()));
        }
        let has_listener = self.http.as_deref().is_some_and(|http| !http.trim().is_empty());
        (!has_listener).then(|| {
            (
                key,
                "needs `serve.http`, the address that it is served on".to_owned(),
            )
        })
    }
}

/// The address and port to listen on, if any; else why it is invalid.
pub(super) fn listen_address(text: Option<&str>) -> Result<Option<SocketAddr>, String> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let localhost = text.strip_prefix("localhost:").and_then(|port| {
        Some(SocketAddr::new(
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            port.parse().ok()?,
        ))
    });
    let address = localhost.or_else(|| text.parse().ok());
    address
        .map(Some)
        .ok_or_else(|| "must be an address and a port, such as 127.0.0.1:9464 or [::1]:9464".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_round_trip() {
        for choice in BusyMode::CHOICES {
            assert_eq!(choice.parse::<BusyMode>().unwrap().as_str(), *choice);
        }
        assert_eq!(
            "steal".parse::<BusyMode>().unwrap_err().to_string(),
            "`steal` is not one of: queue, interrupt, steer"
        );
    }

    #[test]
    fn formats_round_trip() {
        for choice in LogFormat::CHOICES {
            assert_eq!(choice.parse::<LogFormat>().unwrap().as_str(), *choice);
        }
        assert_eq!(" JSON ".parse::<LogFormat>().unwrap(), LogFormat::Json);
    }

    fn serve(http: &str, allow_remote: bool) -> Result<Option<SocketAddr>, String> {
        let serve = ServeConfig {
            http: Some(http.to_owned()),
            allow_remote,
            ..ServeConfig::default()
        };
        serve.http_address()
    }

    #[test]
    fn remote_addresses_need_permission() {
        assert_eq!(ServeConfig::default().http_address(), Ok(None));
        for here in ["127.0.0.1:9464", "localhost:9464", " [::1]:9464 ", "127.8.9.1:0"] {
            assert!(serve(here, false).unwrap().is_some(), "{here}");
        }
        for elsewhere in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:80"] {
            assert!(
                serve(elsewhere, false).unwrap_err().contains("allow_remote"),
                "{elsewhere}"
            );
            assert!(serve(elsewhere, true).unwrap().is_some());
        }
        for wrong in [
            "9464",
            "127.0.0.1",
            "localhost:",
            "host.example:80",
            "127.0.0.1:99999",
        ] {
            assert!(serve(wrong, true).unwrap_err().contains("must be"), "{wrong}");
        }
    }
}
