//! The chat in the terminal: lines in, answers out.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::sync::mpsc;

use super::half::Half;
use crate::cli::exit::{note, say};
use crate::dev::{Connector, Sent, text_event};
use crate::wire::{Action, Grouping, MessageEvent, NoAliases, SessionKey};

/// The chat that the terminal plays.
pub(super) const CHAT: &str = "terminal";
/// How long an answer is waited for before looking around again.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The same once there is no more input, or while an answer is still being written.
const QUIET: Duration = Duration::from_millis(50);
/// How long a message that will be edited is left alone at least.
const SETTLE: Duration = Duration::from_millis(500);

/// Talks until `/quit` or Ctrl-C with nothing running. At the end of input, until the relay has nothing left to
/// do; a connector without a relay of ours goes on.
pub(super) async fn chat(connector: &Connector, platform: &str, relay: Option<&Half>) {
    let mut lines = typed_lines();
    let (mut said, mut seen, mut ended) = (0_usize, 0_usize, false);
    let session = session_of(platform);
    loop {
        // In this order: what was said while it was asked counts.
        if ended && is_quiet(connector, relay).await && seen >= answers(connector).len() {
            return;
        }
        prompt();
        let shown = seen;
        let written = answers(connector).len() > seen;
        let patience = if ended || written { QUIET } else { PATIENCE };
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => {
                if !connector.interrupt(session.as_str(), CHAT) || seen >= said {
                    return;
                }
                say!("\n(stopping)");
                said = seen;
            }
            sent = connector.until("an answer", patience, |connector| {
                let next = answers(connector).into_iter().nth(shown)?;
                is_written(&next, relay).then_some(next)
            }) => {
                if let Ok(message) = sent {
                    show(platform, &message);
                    seen += 1;
                }
            }
            line = lines.recv(), if !ended => match line.as_deref().map(str::trim) {
                None => ended = true,
                Some("/quit") => return,
                Some("") => {}
                Some(text) => {
                    said += 1;
                    if press(connector, text) {
                        continue;
                    }
                    let event = text_event(platform, CHAT, &format!("typed-{said}"), text);
                    if let Err(error) = connector.deliver(&event) {
                        note!("not taken: {error}");
                    }
                }
            }
        }
    }
}

/// Whether a message stands as it will: one that is to be edited waits for the end of its turn.
fn is_written(sent: &Sent, relay: Option<&Half>) -> bool {
    let Some(relay) = relay.filter(|_| sent.metadata.get("expect_edits") == Some(&true.into())) else {
        return true;
    };
    sent.at.elapsed() >= SETTLE && relay.status.borrow()["turns_running"] == 0
}

fn show(platform: &str, sent: &Sent) {
    say!("\r{platform}: {}", sent.text);
    if let Action::Prompt { options, .. } = &sent.action {
        let options = options
            .iter()
            .map(|option| format!("/{} ({})", option.id, option.label));
        say!("  answer with {}", options.collect::<Vec<_>>().join(", "));
    }
}

/// Presses the button that a line names, of the last question in the terminal's chat.
fn press(connector: &Connector, line: &str) -> bool {
    let asked = answers(connector)
        .into_iter()
        .rev()
        .find_map(|sent| match sent.action {
            Action::Prompt { prompt_id, .. } => Some(prompt_id),
            _ => None,
        });
    let pressed = asked
        .zip(line.strip_prefix('/'))
        .and_then(|(prompt, option)| connector.press(&prompt, option));
    matches!(pressed, Some(Ok(_)))
}

/// What was said in the terminal's chat; the page has others.
fn answers(connector: &Connector) -> Vec<Sent> {
    let mut sent = connector.sent_messages();
    sent.retain(|sent| sent.chat_id == CHAT);
    sent
}

/// Whether nothing waits at either end.
async fn is_quiet(connector: &Connector, relay: Option<&Half>) -> bool {
    match relay {
        None => false,
        // In this order: what the relay has taken makes it busy before it is no longer waiting.
        Some(relay) => connector.waiting() == 0 && relay.is_quiet().await,
    }
}

fn session_of(platform: &str) -> SessionKey {
    let event = MessageEvent::from_value(&text_event(platform, CHAT, "", "")).unwrap_or_default();
    SessionKey::build(&event.source, Grouping::default(), None, &NoAliases)
}

fn prompt() {
    if std::io::stdin().is_terminal() {
        let mut out = std::io::stdout();
        let _ = write!(out, "> ").and_then(|()| out.flush());
    }
}

/// Reads the terminal in a thread of its own: a read there cannot be called off.
fn typed_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
