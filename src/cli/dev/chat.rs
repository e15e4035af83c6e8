//! The chat in the terminal.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::sync::mpsc;

use super::relay::DevRelay;
use crate::cli::exit::{errln, outln};
use crate::dev::{Connector, SentMessage, text_event};
use crate::wire::{Action, Grouping, MessageEvent, NoAliases, SessionKey};

/// The id of the terminal's chat.
pub(super) const CHAT: &str = "terminal";
/// Timeout of a wait for a reply, which is then repeated.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3600);
/// The same after the end of input, or while a reply is being edited.
const SHORT_TIMEOUT: Duration = Duration::from_millis(50);
/// Minimum age of a message with edits before it is shown.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Chats until `/quit`, or until Ctrl-C while no turn runs. After the end of input it waits until the relay is idle; a
/// connector without our relay goes on.
pub(super) async fn chat(connector: &Connector, platform: &str, relay: Option<&DevRelay>) {
    let mut lines = typed_lines();
    let (mut sent_count, mut seen, mut ended) = (0_usize, 0_usize, false);
    let session = session_of(platform);
    loop {
        // In this order: replies that arrive during the check count.
        if ended && is_idle(connector, relay).await && seen >= replies(connector).len() {
            return;
        }
        prompt();
        let shown = seen;
        let has_unseen = replies(connector).len() > seen;
        let timeout = if ended || has_unseen {
            SHORT_TIMEOUT
        } else {
            REPLY_TIMEOUT
        };
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => {
                if !connector.interrupt(session.as_str(), CHAT) || seen >= sent_count {
                    return;
                }
                outln!("\n(stopping)");
                sent_count = seen;
            }
            sent = connector.until("a reply", timeout, |connector| {
                let next = replies(connector).into_iter().nth(shown)?;
                is_final(&next, relay).then_some(next)
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
                    sent_count += 1;
                    if press(connector, text) {
                        continue;
                    }
                    let event = text_event(platform, CHAT, &format!("typed-{sent_count}"), text);
                    if let Err(error) = connector.deliver(&event) {
                        errln!("not accepted: {error}");
                    }
                }
            }
        }
    }
}

/// Whether a message will not change any more: one with edits waits for the end of its turn.
fn is_final(sent: &SentMessage, relay: Option<&DevRelay>) -> bool {
    let Some(relay) = relay.filter(|_| sent.metadata.get("expect_edits") == Some(&true.into())) else {
        return true;
    };
    sent.at.elapsed() >= SETTLE_TIME && relay.status.borrow()["turns_running"] == 0
}

fn show(platform: &str, sent: &SentMessage) {
    // Over the prompt.
    let _ = std::io::stdout().write_all(b"\r");
    outln!("{platform}: {}", sent.text);
    if let Action::Prompt { options, .. } = &sent.action {
        let options = options
            .iter()
            .map(|option| format!("/{} ({})", option.id, option.label));
        outln!("  answer with {}", options.collect::<Vec<_>>().join(", "));
    }
}

/// Presses the button that a line names, in the last prompt of the terminal's chat.
fn press(connector: &Connector, line: &str) -> bool {
    let asked = replies(connector)
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

/// Replies in the terminal's chat; the page has others.
fn replies(connector: &Connector) -> Vec<SentMessage> {
    let mut sent = connector.sent_messages();
    sent.retain(|sent| sent.chat_id == CHAT);
    sent
}

/// Whether connector and relay have no work left.
async fn is_idle(connector: &Connector, relay: Option<&DevRelay>) -> bool {
    match relay {
        None => false,
        // In this order: an accepted delivery makes the relay busy before it leaves the connector's queue.
        Some(relay) => connector.waiting() == 0 && relay.is_idle().await,
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

/// Reads the terminal in a thread of its own: such a read cannot be cancelled.
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
