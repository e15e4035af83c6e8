//! A terminal as a mailbox: one paste into a tmux pane, with a header line that has the `dispatch_id`, and one Enter after it.
//!
//! The text travels through tmux's standard input into a buffer and from there as a bracketed paste, so that line breaks in it
//! submit nothing early in a program that knows bracketed paste. Control characters are removed: nothing in the text can end the
//! paste or press a key.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contract::{
    AgentAddress, AgentDescriptor, CauseKind, DeliveryFailure, DeliveryPayload, DeliveryReceipt,
    StaticCapabilities, WakeOpts, WakeReceipt,
};
use super::degraded::deliver_instead;
use super::subprocess::{self, ProgramEnv};
use super::target::{TargetContext, TargetFault, TargetKind, wrong_ids};
use super::{AgentConnector, Delivering, TargetSetupError, bundled, descriptor, now_ms};
use crate::text::{is_unprintable, one_line};

/// Maximum time of a call of tmux.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What is asked of a pane: its id, whether it is in a mode, whether its program has ended, whether it takes no input.
const PANE: &str = "#{pane_id} #{pane_in_mode} #{pane_dead} #{pane_input_off}";
/// Characters of a word in the header line.
const MAX_WORD: usize = 200;

/// `{kind: tmux, agents: {ID: {target}}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmuxTarget {
    /// The agents and their panes.
    pub agents: BTreeMap<String, TmuxAgent>,
}

/// Where an agent runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmuxAgent {
    /// tmux's target pane: `session`, `session:window` or `session:window.pane`.
    pub target: String,
}

impl TargetKind for TmuxTarget {
    fn capabilities(&self) -> StaticCapabilities {
        TmuxConnector::CAPABILITIES
    }

    fn agents(&self, _own: &[String]) -> Vec<String> {
        self.agents.keys().cloned().collect()
    }

    fn violation(&self) -> Option<String> {
        wrong_ids(self.agents.keys()).or_else(|| {
            self.agents.iter().find_map(|(id, agent)| {
                let target = agent.target.trim();
                let is_usable = !target.is_empty()
                    && !target.starts_with('-')
                    && !target.ends_with(';')
                    && !target.chars().any(is_unprintable);
                (!is_usable).then(|| {
                    format!("`agents.{id}.target` must be a target pane of tmux, such as `work:0.0`")
                })
            })
        })
    }

    fn connect(&self, with: &TargetContext<'_>) -> Result<Box<dyn AgentConnector>, TargetSetupError> {
        Ok(Box::new(TmuxConnector::new(self.clone(), with.programs.clone())))
    }

    fn fault(&self) -> TargetFault {
        TargetFault {
            what: "tmux does not run here or has no pane like a `target`",
            remedy: "install tmux, start the session, and correct `target`; `tmux list-panes -a` lists all"
                .to_owned(),
        }
    }
}

/// Pastes into the panes of a tmux server.
#[derive(Debug)]
pub struct TmuxConnector {
    settings: TmuxTarget,
    env: ProgramEnv,
}

impl TmuxConnector {
    /// What it can do.
    pub const CAPABILITIES: StaticCapabilities = bundled("tmux", false, false);

    /// A connector for these agents; `env` is the whole environment of `tmux`, which finds its server with `TMUX_TMPDIR`.
    pub fn new(settings: TmuxTarget, env: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self {
            settings,
            env: env.into_iter().collect(),
        }
    }

    async fn tmux(&self, agent_id: &str, commands: &[&str], input: &str) -> Result<Vec<u8>, DeliveryFailure> {
        let argv: Vec<String> = ["tmux"]
            .iter()
            .chain(commands)
            .map(|word| (*word).to_owned())
            .collect();
        let input = input.as_bytes().to_vec();
        subprocess::run(agent_id, &argv, &self.env, input, TIMEOUT).await
    }

    /// Whether the pane is in a mode of tmux's, such as scrolling. A pane that is gone or takes no input is a fault.
    async fn look(&self, agent_id: &str, target: &str) -> Result<bool, DeliveryFailure> {
        let look = ["display-message", "-p", "-t", target, PANE];
        let state = self.tmux(agent_id, &look, "").await?;
        let state = String::from_utf8_lossy(&state);
        let what = match state.split_whitespace().collect::<Vec<_>>()[..] {
            [_, in_mode, "0", "0"] => return Ok(in_mode != "0"),
            [_, _, "1", _] => format!("the program in the pane `{target}` has ended"),
            [_, _, _, "1"] => {
                format!("the pane `{target}` takes no input; enable it with `tmux select-pane -e`")
            }
            _ => format!("tmux has no pane `{target}`; `tmux list-panes -a` lists all"),
        };
        Err(DeliveryFailure::new(CauseKind::Network, agent_id, what))
    }

    async fn paste(
        &self,
        agent_id: &str,
        payload: &DeliveryPayload,
    ) -> Result<DeliveryReceipt, DeliveryFailure> {
        let address = AgentAddress::parse(agent_id);
        let agent = self.settings.agents.get(&address.agent);
        let agent = agent.ok_or_else(|| DeliveryFailure::unknown_agent(agent_id))?;
        let (target, now) = (agent.target.trim(), now_ms());
        // Every dispatch has a buffer of its own, which the paste deletes.
        let buffer = format!("hermes-relay-{}-{now}", buffer_word(payload.meta.dispatch_id()));
        let in_mode = self.look(agent_id, target).await?;
        // One call, so that nothing comes between the paste and Enter. A pane that somebody scrolls takes no bracketed paste.
        let leave: &[&str] = &["copy-mode", "-q", "-t", target, ";"];
        let load = ["load-buffer", "-b", &buffer, "-", ";"];
        let paste = ["paste-buffer", "-p", "-d", "-b", &buffer, "-t", target, ";"];
        let submit = ["send-keys", "-t", target, "Enter"];
        let leave = if in_mode { leave } else { &[] };
        let commands = [leave, &load, &paste, &submit].concat();
        let sent = self.tmux(agent_id, &commands, &pasted(agent_id, payload)).await;
        if let Err(failure) = sent {
            // The text does not stay in tmux's buffers.
            let _ = self.tmux(agent_id, &["delete-buffer", "-b", &buffer], "").await;
            return Err(failure);
        }
        Ok(DeliveryReceipt {
            delivered_at: now_ms(),
            delivery_id: Some(format!("tmux:{target}:{now}")),
            session_id: address.session,
            ..DeliveryReceipt::default()
        })
    }
}

fn buffer_word(id: &str) -> String {
    let plain = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-');
    plain.take(64).collect()
}

/// What is pasted: the header line and the text.
fn pasted(agent_id: &str, payload: &DeliveryPayload) -> String {
    let meta = payload.meta.as_object();
    let mut words = vec![
        format!("dispatch_id={}", word(payload.meta.dispatch_id())),
        format!("kind={}", payload.kind.as_str()),
        format!("to={}", word(agent_id)),
    ];
    for key in ["event_type", "correlation_id"] {
        if let Some(value) = meta.get(key).and_then(|value| value.as_str()) {
            words.push(format!("{key}={}", word(value)));
        }
    }
    let header = format!("[{}]", words.join(" "));
    let text = typed(&payload.text);
    if text.is_empty() {
        header
    } else {
        format!("{header}\n{text}")
    }
}

/// A value of the header, which has no end and no space of its own.
fn word(text: &str) -> String {
    one_line(text, MAX_WORD).replace([' ', '[', ']'], "_")
}

/// A text without control characters: tabs become spaces, line breaks stay, those at the end go.
fn typed(text: &str) -> String {
    let text = text
        .replace("\r\n", "\n")
        .replace('\r', "\n")
        .replace('\t', "    ");
    let kept: String = text
        .chars()
        .filter(|c| *c == '\n' || !is_unprintable(*c))
        .collect();
    kept.trim_end().to_owned()
}

impl AgentConnector for TmuxConnector {
    fn capabilities(&self) -> StaticCapabilities {
        Self::CAPABILITIES
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        let ids = self.settings.agents.keys();
        ids.map(|id| descriptor(id, false)).collect()
    }

    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        Box::pin(self.paste(agent_id, payload))
    }

    fn wake<'c>(&'c self, agent_id: &'c str, opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        Box::pin(deliver_instead(self, agent_id, opts))
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async move {
            for (id, agent) in &self.settings.agents {
                if self.look(id, agent.target.trim()).await.is_err() {
                    return false;
                }
            }
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_connector::contract::{DeliveryKind, DeliveryMeta, DeliveryOrigin};

    #[test]
    fn a_paste_has_one_header_line_and_no_control_characters() {
        let origin = DeliveryOrigin {
            event_type: Some("disk]\nfull".to_owned()),
            ..DeliveryOrigin::default()
        };
        let payload = DeliveryPayload {
            kind: DeliveryKind::Augment,
            text: "one\r\n\ttwo\u{1b}[201~\u{3}\rthree\u{9b}\n\n".to_owned(),
            meta: DeliveryMeta::new("d-1", 5, &origin),
        };
        let shown = pasted("cc@main", &payload);
        let lines: Vec<&str> = shown.split('\n').collect();
        assert_eq!(
            lines,
            [
                "[dispatch_id=d-1 kind=augment to=cc@main event_type=disk__full]",
                "one",
                "    two[201~",
                "three"
            ]
        );
    }

    #[test]
    fn a_target_is_no_option() {
        let wrong = |target: &str| {
            let agent = TmuxAgent {
                target: target.to_owned(),
            };
            let agents = BTreeMap::from([("cc".to_owned(), agent)]);
            TmuxTarget { agents }.violation().is_some()
        };
        assert!(!wrong("work:0.0") && !wrong("work") && !wrong("%3"));
        assert!(wrong("") && wrong(" ") && wrong("-t") && wrong("a\nb") && wrong("a;"));
    }
}
