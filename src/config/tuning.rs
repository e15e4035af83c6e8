//! The sections of our own file that are settings as they stand: link, sessions, journal, and so on.
//!
//! Each struct is both the file's shape and the meaning, with the defaults in one place. Units are in
//! the names. Nothing here is read from the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::adapter::OfferedCommand;

/// A value that is none of the choices of a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not one of: {}", choices.join(", "))]
pub struct UnknownChoice {
    /// What was given.
    pub value: String,
    /// What may be given.
    pub choices: &'static [&'static str],
}

macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// The words that may be written.
            pub const CHOICES: &'static [&'static str] = &[$($word),+];

            /// The word that is written.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = UnknownChoice;

            fn from_str(text: &str) -> Result<Self, UnknownChoice> {
                match text.trim().to_ascii_lowercase().as_str() {
                    $($word => Ok(Self::$variant),)+
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
    /// What happens when the connector has revoked this gateway.
    OnRevoked {
        /// End the process with the exit code for it.
        #[default]
        Exit = "exit",
        /// Stay up, unconnected, and say so.
        Stay = "stay",
    }
);

choice!(
    /// What a message does that arrives while its session is running a turn.
    BusyMode {
        /// It waits its turn.
        #[default]
        Queue = "queue",
        /// It stops the running turn and goes next.
        Interrupt = "interrupt",
        /// It is handed to the running turn, or waits where the agent cannot take it.
        Steer = "steer",
    }
);

choice!(
    /// What a committed row survives.
    Durability {
        /// Loss of power.
        #[default]
        Full = "full",
        /// The death of the process.
        Process = "process",
    }
);

choice!(
    /// What is done once the socket is closed to sleep.
    SleepAction {
        /// End the process; whoever starts it again wakes it.
        #[default]
        Exit = "exit",
        /// Have the machine suspended.
        Suspend = "suspend",
        /// Stay up without a socket until woken.
        Wait = "wait",
    }
);

/// The connection to the connector: waits, deadlines and bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// The shortest wait before dialling again.
    pub backoff_min_ms: u64,
    /// The longest wait before dialling again.
    pub backoff_max_ms: u64,
    /// How long a connection must hold before the wait starts over at its shortest.
    pub stable_secs: u64,
    /// The wait before dialling again after the connector refused the credentials again and again; an eighth of it
    /// after the first refusal.
    pub refused_retry_secs: u64,
    /// How long the connector may take to answer every `hello`.
    pub handshake_timeout_secs: u64,
    /// How long the connector may take to answer a request.
    pub request_timeout_secs: u64,
    /// How long name lookup, connection, TLS and the upgrade may take together.
    pub connect_timeout_secs: u64,
    /// How often a quiet connection is pinged.
    pub ping_interval_secs: u64,
    /// How long the connector may be silent before the connection counts as dead.
    pub dead_after_secs: u64,
    /// The longest line that is kept; a longer one is set aside and acknowledged, and the next one is read.
    pub max_line_bytes: usize,
    /// The largest WebSocket message that is read, and so what the socket may take of memory for a moment; a larger one
    /// ends the connection.
    pub max_message_bytes: usize,
    /// The most that waits to be written to the socket.
    pub max_write_buffer_bytes: usize,
    /// The most requests that wait for an answer.
    pub max_in_flight: usize,
    /// What happens when the connector has revoked this gateway.
    pub on_revoked: OnRevoked,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            backoff_min_ms: 1_000,
            backoff_max_ms: 30_000,
            stable_secs: 60,
            refused_retry_secs: 60,
            handshake_timeout_secs: 30,
            request_timeout_secs: 30,
            connect_timeout_secs: 10,
            ping_interval_secs: 30,
            dead_after_secs: 60,
            max_line_bytes: 1_048_576,
            max_message_bytes: 33_554_432,
            max_write_buffer_bytes: 8_388_608,
            max_in_flight: 1_024,
            on_revoked: OnRevoked::Exit,
        }
    }
}

/// Conversations: how they are told apart, and how their turns run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sessions {
    /// Every member of a group has a session of their own.
    pub group_sessions_per_user: bool,
    /// Every member of a thread has a session of their own.
    pub thread_sessions_per_user: bool,
    /// Session keys carry the profile.
    pub multiplex_profiles: bool,
    /// What a message does that arrives during a turn.
    pub busy_mode: BusyMode,
    /// The most messages of one session that wait in memory.
    pub max_queue: usize,
    /// The most turns that run at once.
    pub max_concurrent_turns: usize,
    /// How long a stopped turn may take to end by itself.
    pub grace_secs: u64,
    /// What is said in a chat whose turn a restart cut short; nothing when unset or empty.
    pub interrupted_notice: Option<String>,
    /// What is said in a chat whose queue is full; nothing when unset or empty.
    pub overflow_notice: Option<String>,
    /// Send an answer again when it is not known whether it arrived.
    pub resend_unknown: bool,
    /// The relay's own slash commands that are on; all others are the agent's.
    pub commands: Vec<String>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            group_sessions_per_user: true,
            thread_sessions_per_user: false,
            multiplex_profiles: false,
            busy_mode: BusyMode::Queue,
            max_queue: 64,
            max_concurrent_turns: 512,
            grace_secs: 5,
            interrupted_notice: Some(
                "I was restarted while working on this and did not finish. Please ask again.".to_owned(),
            ),
            overflow_notice: Some(
                "Many messages are waiting in this conversation. I will answer them in order.".to_owned(),
            ),
            resend_unknown: false,
            commands: ["stop", "new", "status", "agent", "help"]
                .map(str::to_owned)
                .into(),
        }
    }
}

/// The durable inbox and outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Journal {
    /// What a committed row survives.
    pub durability: Durability,
    /// How long a message is known as already seen.
    pub dedupe_days: u64,
    /// How long finished rows are kept.
    pub keep_days: u64,
    /// The size at which finished rows go early.
    pub max_bytes: u64,
    /// How many chats are remembered.
    pub chat_memory: usize,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            dedupe_days: 7,
            keep_days: 7,
            max_bytes: 1_073_741_824,
            chat_memory: 10_000,
        }
    }
}

/// What is particular to Slack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slack {
    /// Answers go to a thread under the message.
    pub reply_in_thread: bool,
    /// A message outside any thread starts a session of its own.
    pub dm_top_level_threads_as_sessions: bool,
    /// What `/hermes <name>` stands for.
    pub command_map: BTreeMap<String, String>,
}

impl Default for Slack {
    fn default() -> Self {
        Self {
            reply_in_thread: true,
            dm_top_level_threads_as_sessions: true,
            command_map: BTreeMap::new(),
        }
    }
}

/// What is particular to Discord.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Discord {
    /// Slash commands to offer beside the relay's own and the agents'.
    pub commands: Vec<OfferedCommand>,
}

/// What our own file says about when a platform's messages concern us; unset falls to Hermes' files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyOverride {
    /// Only messages that mention the bot count.
    pub require_mention: Option<bool>,
    /// Channels in which every message counts.
    pub free_response_channels: Option<Vec<String>>,
    /// Messages of other bots count too.
    pub allow_other_bots: Option<bool>,
}

/// How the time between the signal and the end is spent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// The whole of it.
    pub budget_secs: u64,
    /// The part in which the connector may acknowledge that we go.
    pub going_idle_secs: u64,
    /// The part in which running turns may finish.
    pub drain_secs: u64,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            budget_secs: 25,
            going_idle_secs: 2,
            drain_secs: 10,
        }
    }
}

/// Scale to zero: when the relay goes to sleep, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sleep {
    /// Whether it sleeps at all; only with a wake URL.
    pub enabled: bool,
    /// How long nothing must have happened.
    pub idle_secs: u64,
    /// What is done once the socket is closed.
    pub action: SleepAction,
    /// What suspends the machine, word by word; no shell reads it.
    pub command: Vec<String>,
    /// The longest sleep without a socket of a process that stays up.
    pub max_secs: u64,
}

impl Default for Sleep {
    fn default() -> Self {
        Self {
            enabled: false,
            idle_secs: 300,
            action: SleepAction::Exit,
            command: Vec::new(),
            max_secs: 3_600,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_read_back_what_they_show() {
        for word in BusyMode::CHOICES {
            assert_eq!(word.parse::<BusyMode>().unwrap().as_str(), *word);
        }
        assert_eq!(
            "steal".parse::<BusyMode>().unwrap_err().to_string(),
            "`steal` is not one of: queue, interrupt, steer"
        );
    }
}
