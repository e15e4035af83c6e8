//! What the terminal chat shows: which messages are complete and printed for good, and which text still grows. Pure.
//!
//! A message is printed once it will not change any more, as far as one can know; one that changes later is printed again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::dev::SentMessage;
use crate::wire::Action;

/// Time without a change before a text of a turn that is over counts as complete.
const SETTLED: Duration = Duration::from_millis(300);
/// The same where nobody knows whether a turn runs, and the time for which a typing indicator counts.
const QUIET: Duration = Duration::from_secs(3);
/// Delay before a turn without text shows that it runs.
const ACTIVITY_DELAY: Duration = Duration::from_millis(200);
/// What relays append to a text that still grows.
const CURSOR: char = '\u{2589}';

/// A message in the chat.
#[derive(Clone, Debug)]
pub(super) struct ChatMessage {
    id: String,
    text: String,
    /// Labels of the options of a prompt.
    options: Vec<String>,
    growing: bool,
    changed_at: Instant,
    deleted: bool,
}

impl From<SentMessage> for ChatMessage {
    fn from(sent: SentMessage) -> Self {
        let mut text = sent.text;
        let mut options = Vec::new();
        match sent.action {
            Action::Prompt { options: offered, .. } => {
                options = offered.into_iter().map(|option| option.label).collect();
            }
            Action::SendMedia {
                media_kind,
                source_url,
                filename,
                ..
            } => {
                let separator = if text.is_empty() { "" } else { "\n" };
                let name = filename.unwrap_or(source_url);
                text = format!("{text}{separator}[{media_kind}: {name}]");
            }
            _ => {}
        }
        Self {
            id: sent.message_id,
            text,
            options,
            growing: sent.growing,
            changed_at: sent.changed_at,
            deleted: sent.deleted,
        }
    }
}

/// Whether a turn of the chat runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnState {
    Running,
    Stopping,
    Over,
    /// The gateway is another process; it last showed typing then.
    Unknown {
        typing_at: Option<Instant>,
    },
}

/// The chat at one time.
#[derive(Debug)]
pub(super) struct ChatView {
    pub(super) messages: Vec<ChatMessage>,
    pub(super) drafts: Vec<String>,
    pub(super) turn: TurnState,
    /// Whether a question waits for an answer.
    pub(super) is_asking: bool,
}

/// What to show.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChatUpdate {
    /// Printed for good.
    pub(super) lines: Vec<String>,
    /// Shown until the next update.
    pub(super) live: Vec<String>,
    /// Whether a message is not complete yet.
    pub(super) is_pending: bool,
}

/// What was shown so far.
#[derive(Debug)]
pub(super) struct ChatTranscript {
    author: String,
    /// Texts as printed, by message.
    printed: BTreeMap<String, String>,
    /// Since when the turn has run without a text.
    active_since: Option<Instant>,
}

impl ChatTranscript {
    /// `author` is the name before each message.
    pub(super) fn new(author: &str) -> Self {
        Self {
            author: author.to_owned(),
            printed: BTreeMap::new(),
            active_since: None,
        }
    }

    /// Another agent answers from now on.
    pub(super) fn set_author(&mut self, author: &str) {
        author.clone_into(&mut self.author);
    }

    /// What to show now.
    pub(super) fn update(&mut self, view: &ChatView, now: Instant) -> ChatUpdate {
        let mut update = ChatUpdate::default();
        for (index, message) in view.messages.iter().enumerate() {
            let is_last = index + 1 == view.messages.len();
            match self.printed.get(&message.id) {
                _ if message.deleted => {}
                Some(printed) if *printed == message.text => {}
                // The options were answered: the person who did that knows.
                Some(_) if !message.options.is_empty() => {}
                printed => {
                    let note = if printed.is_some() { " (edited)" } else { "" };
                    let text = format!("{}{note}: {}", self.author, message.text);
                    if is_complete(message, printed.is_some(), is_last, view.turn, now) {
                        update.lines.push(text);
                        update.lines.extend(options(&message.options));
                        self.printed.insert(message.id.clone(), message.text.clone());
                    } else {
                        update.is_pending = true;
                        update.live.push(text);
                    }
                }
            }
        }
        let drafts = view
            .drafts
            .iter()
            .map(|draft| format!("{}: {draft}", self.author));
        update.live.extend(drafts);
        self.show_activity(view, now, &mut update);
        update
    }

    /// A turn has ended; the next one begins to count anew.
    pub(super) fn end_activity(&mut self) {
        self.active_since = None;
    }

    /// A sign that a turn runs, while it has no text that grows.
    fn show_activity(&mut self, view: &ChatView, now: Instant, update: &mut ChatUpdate) {
        let turn = view.turn;
        let is_active = match turn {
            TurnState::Running if view.is_asking => false,
            TurnState::Running | TurnState::Stopping => true,
            TurnState::Over => false,
            TurnState::Unknown { typing_at } => is_recent(typing_at, now),
        };
        if !is_active || !update.lines.is_empty() {
            self.active_since = None;
        }
        if !is_active || !update.live.is_empty() {
            return;
        }
        let active = now.saturating_duration_since(*self.active_since.get_or_insert(now));
        let author = &self.author;
        if turn == TurnState::Stopping {
            update.live.push("(stopping)".to_owned());
        } else if active >= Duration::from_secs(1) {
            update
                .live
                .push(format!("{author}: \u{2026} {} s", active.as_secs()));
        } else if active >= ACTIVITY_DELAY {
            update.live.push(format!("{author}: \u{2026}"));
        }
    }
}

/// Whether a message will not change any more.
fn is_complete(message: &ChatMessage, is_edit: bool, is_last: bool, turn: TurnState, now: Instant) -> bool {
    if !message.growing && !is_edit {
        return true;
    }
    let quiet = now.saturating_duration_since(message.changed_at);
    let has_successor = !is_edit && !is_last && !message.text.ends_with(CURSOR);
    match turn {
        TurnState::Running | TurnState::Stopping => has_successor && quiet >= SETTLED,
        TurnState::Over => quiet >= SETTLED,
        TurnState::Unknown { typing_at } => {
            let needed = if message.growing && !has_successor {
                QUIET
            } else {
                SETTLED
            };
            quiet >= needed && (has_successor || !is_recent(typing_at, now))
        }
    }
}

fn is_recent(typing_at: Option<Instant>, now: Instant) -> bool {
    typing_at.is_some_and(|at| now.saturating_duration_since(at) < QUIET)
}

fn options(labels: &[String]) -> Vec<String> {
    let numbered = labels.iter().zip(1..);
    let mut lines: Vec<_> = numbered
        .map(|(label, number)| format!("  {number}) {label}"))
        .collect();
    if !lines.is_empty() {
        lines.push("  Answer with a number.".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);

    struct Chat {
        transcript: ChatTranscript,
        view: ChatView,
        now: Instant,
    }

    impl Chat {
        fn new(turn: TurnState) -> Self {
            Self {
                transcript: ChatTranscript::new("discord"),
                view: ChatView {
                    messages: Vec::new(),
                    drafts: Vec::new(),
                    turn,
                    is_asking: false,
                },
                now: Instant::now(),
            }
        }

        fn message(&mut self, text: &str, growing: bool) {
            self.view.messages.push(ChatMessage {
                id: format!("m{}", self.view.messages.len()),
                text: text.to_owned(),
                options: Vec::new(),
                growing,
                changed_at: self.now,
                deleted: false,
            });
        }

        fn edit(&mut self, index: usize, text: &str, growing: bool) {
            let message = &mut self.view.messages[index];
            text.clone_into(&mut message.text);
            message.growing = growing;
            message.changed_at = self.now;
        }

        fn after(&mut self, time: Duration) -> ChatUpdate {
            self.now += time;
            self.transcript.update(&self.view, self.now)
        }
    }

    #[test]
    fn a_streamed_answer_grows_and_is_printed_once_when_its_turn_is_over() {
        let mut chat = Chat::new(TurnState::Running);
        chat.message("one \u{2589}", true);
        assert_eq!(chat.after(FIRST).live, ["discord: one \u{2589}"]);
        chat.edit(0, "one two \u{2589}", true);
        let update = chat.after(QUIET * 10);
        assert_eq!(update.live, ["discord: one two \u{2589}"]);
        assert!(update.lines.is_empty() && update.is_pending);
        chat.edit(0, "one two three", true);
        chat.view.turn = TurnState::Over;
        assert!(chat.after(FIRST).lines.is_empty());
        assert_eq!(chat.after(SETTLED).lines, ["discord: one two three"]);
        assert_eq!(chat.after(QUIET), ChatUpdate::default());
    }

    #[test]
    fn an_announced_end_needs_no_wait() {
        let mut chat = Chat::new(TurnState::Running);
        chat.message("one", true);
        chat.after(FIRST);
        chat.edit(0, "one two", false);
        assert_eq!(chat.after(FIRST).lines, ["discord: one two"]);
    }

    #[test]
    fn the_end_of_another_gateways_answer_is_its_silence() {
        let mut chat = Chat::new(TurnState::Unknown { typing_at: None });
        chat.message("one", true);
        chat.after(FIRST);
        chat.edit(0, "one two", true);
        assert!(chat.after(QUIET.saturating_sub(FIRST)).lines.is_empty());
        chat.view.turn = TurnState::Unknown {
            typing_at: Some(chat.now),
        };
        assert!(chat.after(FIRST).lines.is_empty(), "it still types");
        assert_eq!(chat.after(QUIET).lines, ["discord: one two"]);
        // It was not the end after all.
        chat.edit(0, "one two three", true);
        chat.after(FIRST);
        assert_eq!(chat.after(QUIET).lines, ["discord (edited): one two three"]);
    }

    #[test]
    fn a_finished_part_of_an_answer_is_printed_before_the_question_behind_it() {
        let mut chat = Chat::new(TurnState::Running);
        chat.message("let me see", true);
        chat.after(SETTLED);
        chat.message("May I?", false);
        chat.view.messages[1].options = vec!["Allow once".to_owned(), "Deny".to_owned()];
        let expected = [
            "discord: let me see",
            "discord: May I?",
            "  1) Allow once",
            "  2) Deny",
            "  Answer with a number.",
        ];
        assert_eq!(chat.after(FIRST).lines, expected);
        chat.edit(1, "May I? Allowed.", false);
        assert!(chat.after(QUIET).lines.is_empty(), "who answered knows");
    }

    #[test]
    fn a_turn_without_text_shows_that_it_runs_and_that_it_stops() {
        let mut chat = Chat::new(TurnState::Running);
        assert!(chat.after(FIRST).live.is_empty());
        assert_eq!(chat.after(ACTIVITY_DELAY).live, ["discord: \u{2026}"]);
        assert_eq!(chat.after(Duration::from_secs(2)).live, ["discord: \u{2026} 2 s"]);
        chat.view.is_asking = true;
        assert!(chat.after(FIRST).live.is_empty(), "it waits for the person");
        chat.view.turn = TurnState::Stopping;
        assert_eq!(chat.after(FIRST).live, ["(stopping)"]);
        chat.view.turn = TurnState::Over;
        assert_eq!(chat.after(FIRST), ChatUpdate::default());
    }

    #[test]
    fn a_draft_is_live_and_a_deleted_message_is_not_printed() {
        let mut chat = Chat::new(TurnState::Running);
        chat.view.drafts.push("half a".to_owned());
        chat.message("gone", true);
        chat.view.messages[0].deleted = true;
        assert_eq!(chat.after(FIRST).live, ["discord: half a"]);
    }
}
