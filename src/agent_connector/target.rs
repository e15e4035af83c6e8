//! The kinds of targets: a target of the settings, and what each kind says of itself.
//!
//! A kind is one file with its settings, which implement [`TargetKind`], and the [`AgentConnector`] that they make. Nothing outside
//! asks which kind a target has.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::contract::{MAX_ID_BYTES, StaticCapabilities};
use super::{
    AgentConnector, CommandTarget, FileTarget, NoopTarget, RelayTarget, TargetSetupError, TmuxTarget,
    WebhookTarget,
};
use crate::net::http::HttpEgress;
use crate::text::{is_unprintable, printable};

/// A target as the settings describe it: `{kind: KIND, ..}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum NotifyTarget {
    /// A program for each agent.
    Command(CommandTarget),
    /// A directory.
    File(FileTarget),
    /// Nobody.
    Noop(NoopTarget),
    /// This relay's own agents.
    Relay(RelayTarget),
    /// A pane of tmux for each agent.
    Tmux(TmuxTarget),
    /// A URL for each agent.
    Webhook(Box<WebhookTarget>),
}

impl NotifyTarget {
    /// The kinds as they are written.
    pub(crate) const KINDS: [&str; 6] = ["command", "file", "noop", "relay", "tmux", "webhook"];

    pub(crate) fn kind(&self) -> &dyn TargetKind {
        match self {
            Self::Command(kind) => kind,
            Self::File(kind) => kind,
            Self::Noop(kind) => kind,
            Self::Relay(kind) => kind,
            Self::Tmux(kind) => kind,
            Self::Webhook(kind) => kind.as_ref(),
        }
    }

    pub(crate) fn kind_mut(&mut self) -> &mut dyn TargetKind {
        match self {
            Self::Command(kind) => kind,
            Self::File(kind) => kind,
            Self::Noop(kind) => kind,
            Self::Relay(kind) => kind,
            Self::Tmux(kind) => kind,
            Self::Webhook(kind) => kind.as_mut(),
        }
    }
}

/// What a kind of target says of itself, and how it becomes a connector.
pub(crate) trait TargetKind {
    /// What it can do; `implementation` is the name of the kind.
    fn capabilities(&self) -> StaticCapabilities;

    /// The ids of its agents; `own` are the agents of this relay.
    fn agents(&self, own: &[String]) -> Vec<String>;

    /// What is wrong with its settings.
    fn violation(&self) -> Option<String> {
        None
    }

    /// The connector that it describes.
    fn connect(&self, with: &TargetContext<'_>) -> Result<Box<dyn AgentConnector>, TargetSetupError>;

    /// What a health check that passed means.
    fn health(&self) -> &'static str {
        "it works"
    }

    /// What a health check that failed means.
    fn fault(&self) -> TargetFault;

    /// Whether it works only while this relay runs.
    fn needs_running_relay(&self) -> bool {
        false
    }

    /// Its path, which is relative to the settings file.
    fn path_mut(&mut self) -> Option<&mut PathBuf> {
        None
    }

    /// Its command lines, in which paths are relative to the settings file.
    fn argvs_mut(&mut self) -> Vec<&mut Vec<String>> {
        Vec::new()
    }

    /// The variable that has its credential.
    fn auth_variable(&self) -> Option<&str> {
        None
    }

    /// Its secrets that can be read, each with a name.
    fn secrets(&self, _from: SecretSources<'_>) -> Vec<(&'static str, SecretString)> {
        Vec::new()
    }
}

/// Why a target does not work, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetFault {
    /// What was found.
    pub what: &'static str,
    /// What to do.
    pub remedy: String,
}

/// Where the secrets of targets are.
#[derive(Clone, Copy)]
pub(crate) struct SecretSources<'s> {
    /// Looks up a variable.
    pub env: &'s dyn Fn(&str) -> Option<String>,
    /// Reads a secret file; else says why it is refused.
    pub file: fn(&Path) -> Result<SecretString, String>,
}

/// What connectors are made with, beside the settings of their targets.
#[derive(Clone, Copy)]
pub(crate) struct TargetContext<'c> {
    /// Their secrets.
    pub secrets: SecretSources<'c>,
    /// The environment of programs.
    pub programs: &'c BTreeMap<OsString, OsString>,
    /// How URLs are reached.
    pub egress: &'c HttpEgress,
    /// The way to the agents of the relay that runs.
    pub relay: &'c dyn Fn() -> Box<dyn AgentConnector>,
}

/// What is wrong with the ids of a target's agents.
pub(super) fn wrong_ids<'i>(ids: impl Iterator<Item = &'i String>) -> Option<String> {
    let mut any = false;
    for id in ids {
        any = true;
        if id.trim().is_empty() {
            return Some("`agents` has an empty id".to_owned());
        }
        if id.contains('@') {
            let shown = printable(id, 80);
            return Some(format!(
                "`agents` has the id `{shown}`; an id has no `@`, which separates the agent from its session"
            ));
        }
        if id.len() > MAX_ID_BYTES || id.chars().any(is_unprintable) {
            return Some(format!(
                "`agents` has an id of more than {MAX_ID_BYTES} bytes or with control characters"
            ));
        }
    }
    (!any).then(|| "`agents` is empty; name at least one agent".to_owned())
}
