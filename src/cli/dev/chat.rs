//! The chat in the terminal.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::line_editor::{Input, LineInput};
use super::owners::KEYBOARD;
use super::relay::DevRelay;
use super::screen::Screen;
use super::transcript::{ChatTranscript, ChatView, TurnState};
use crate::adapter::SessionNames;
use crate::cli::log;
use crate::dev::{Connector, random_token, text_event};
use crate::wire::{Action, MessageEvent, NoAliases, PromptButton, SessionKey};

/// The id of the terminal's chat.
pub(super) const CHAT: &str = "terminal";
/// Interval of looks at a chat in which something is going on.
const TICK: Duration = Duration::from_millis(100);
/// The same while nothing is.
const IDLE_TICK: Duration = Duration::from_secs(3600);
/// Sessions that are looked at and stopped: the last ones that were written in.
const MAX_SESSIONS: usize = 64;

/// What a Ctrl-C reads that was meant for a turn which ended by itself before.
const TOO_LATE: &str = "(the turn had ended)";

/// The keys of the chat.
const KEYS: &str = "Keys: Ctrl-C stops the running turn, and pressed twice at an empty prompt it exits. Ctrl-D or /quit exits. Up \
                    recalls earlier messages, Tab completes commands, and a number answers a question.";

/// Chats until `/quit`, a second Ctrl-C while no turn runs, a signal, or the end of the input; then it waits until the relay is
/// idle. A connector without our relay ends with the input of a terminal, and else goes on. `agent` answers at first.
pub(super) async fn chat(
    connector: &Connector,
    (platform, agent): (&str, &str),
    mut names: SessionNames,
    relay: Option<&DevRelay>,
    ending: &CancellationToken,
) {
    let (mut input, screen) = LineInput::open();
    let mut log = screen.is_terminal().then(log::divert).flatten();
    let Ok(mut interrupts) = signal(SignalKind::interrupt()) else {
        return;
    };
    names.add_platform(platform);
    let mut chat = TerminalChat::new(connector, (platform, agent), names, relay, screen);
    loop {
        let mark = connector.mark();
        let is_idle = chat.refresh(&input).await;
        if chat.ended && is_idle && relay.is_some() {
            return;
        }
        let pause = if is_idle { IDLE_TICK } else { TICK };
        let is_open = tokio::select! {
            biased;
            () = ending.cancelled() => false,
            typed = input.next(), if !chat.ended => chat.handle_input(typed, &input),
            _ = interrupts.recv() => chat.stop(),
            Some(line) = log::next_line(&mut log) => {
                chat.screen.log(&line);
                true
            }
            _ = connector.until("a change", pause, |connector| (connector.mark() != mark).then_some(())) => true,
        };
        if !is_open {
            return;
        }
    }
}

/// A prompt that waits for an answer.
struct OpenPrompt {
    id: String,
    options: Vec<PromptButton>,
}

struct TerminalChat<'c> {
    connector: &'c Connector,
    relay: Option<&'c DevRelay>,
    platform: &'c str,
    names: SessionNames,
    /// The sessions of what was typed; on some platforms each message is one.
    sessions: VecDeque<SessionKey>,
    screen: Screen,
    transcript: ChatTranscript,
    /// Distinguishes the messages of this run from those of an earlier one, which a relay may remember.
    run: String,
    sent: u64,
    /// Turns that had been stopped when a stop was requested.
    stopping: Option<u64>,
    turn: TurnState,
    /// Whether the relay has a turn that could be stopped: when it has ended, its answer may still be on its way.
    has_turn: bool,
    /// Turns that were stopped so far.
    turns_stopped: u64,
    prompt: Option<OpenPrompt>,
    /// The prompt that was answered last.
    pressed: Option<String>,
    /// Whether the input has ended.
    ended: bool,
}

impl<'c> TerminalChat<'c> {
    fn new(
        connector: &'c Connector,
        (platform, agent): (&'c str, &str),
        names: SessionNames,
        relay: Option<&'c DevRelay>,
        screen: Screen,
    ) -> Self {
        Self {
            names,
            sessions: VecDeque::new(),
            transcript: ChatTranscript::new(agent),
            run: random_token()[..8].to_owned(),
            sent: 0,
            stopping: None,
            turn: TurnState::Over,
            has_turn: false,
            turns_stopped: 0,
            prompt: None,
            pressed: None,
            ended: false,
            connector,
            relay,
            platform,
            screen,
        }
    }

    /// Shows what is new; returns whether nothing is going on.
    async fn refresh(&mut self, input: &LineInput) -> bool {
        let waiting = self.connector.waiting() > 0;
        let state = match self.relay {
            Some(relay) => Some(relay.session_state(&self.sessions).await),
            None => None,
        };
        self.turns_stopped = state.as_ref().map_or(0, |state| state.turns_stopped);
        if let Some(agent) = state.as_ref().and_then(|state| state.agent.as_ref()) {
            self.transcript.set_author(agent);
        }
        let is_stopped = self.relay.is_some()
            && self
                .stopping
                .take_if(|before| self.turns_stopped > *before)
                .is_some();
        self.has_turn = waiting || state.as_ref().is_some_and(|state| state.has_turn);
        let mut is_late = false;
        self.turn = match &state {
            None => TurnState::Unknown {
                typing_at: self.connector.typing_at(CHAT),
            },
            Some(state) if self.has_turn || state.has_rest => match self.stopping {
                Some(_) => TurnState::Stopping,
                None => TurnState::Running,
            },
            Some(_) => {
                is_late = self.stopping.take().is_some();
                TurnState::Over
            }
        };
        // After the state: what a turn that is over wrote is seen.
        let messages = self.connector.messages_in(CHAT);
        self.prompt = messages.iter().rev().find_map(|sent| match &sent.action {
            Action::Prompt {
                prompt_id, options, ..
            } if sent.edits == 0 && !sent.deleted && self.pressed.as_ref() != Some(prompt_id) => {
                Some(OpenPrompt {
                    id: prompt_id.clone(),
                    options: options.clone(),
                })
            }
            _ => None,
        });
        let drafts = self.connector.drafts(CHAT);
        let view = ChatView {
            messages: messages.into_iter().map(Into::into).collect(),
            drafts: drafts.into_iter().map(|(_, text)| text).collect(),
            turn: self.turn,
            is_asking: self.prompt.is_some(),
        };
        if is_stopped {
            self.transcript.end_activity();
        }
        let mut update = self.transcript.update(&view, Instant::now());
        if is_stopped {
            update.lines.push("(turn stopped)".to_owned());
        }
        if is_late {
            update.lines.push(TOO_LATE.to_owned());
        }
        self.screen.show(&update.lines, &update.live);
        let is_over = match self.turn {
            TurnState::Over => true,
            TurnState::Running | TurnState::Stopping => false,
            TurnState::Unknown { .. } => update.live.is_empty(),
        };
        input.set_stoppable(self.is_stoppable());
        is_over && !update.is_pending
    }

    /// Whether there may be a turn that was not asked to stop yet.
    fn is_stoppable(&self) -> bool {
        match self.turn {
            TurnState::Running => self.has_turn,
            TurnState::Stopping | TurnState::Over => false,
            TurnState::Unknown { .. } => self.stopping.is_none() && self.sent > 0,
        }
    }

    /// Returns whether the chat goes on.
    fn handle_input(&mut self, typed: Input, input: &LineInput) -> bool {
        match typed {
            Input::Quit => return false,
            Input::End => {
                self.ended = true;
                if self.screen.is_terminal() {
                    self.announce_wait();
                    return self.relay.is_some();
                }
            }
            Input::Interrupt { typed, stops } => {
                self.screen.interrupted(&typed);
                let is_stopping = stops && self.stop();
                if !is_stopping && typed.is_empty() {
                    // First, so that a press after the note counts.
                    input.warned();
                    self.screen.note("(press Ctrl-C again to exit)");
                } else if stops && !is_stopping {
                    self.screen.note(TOO_LATE);
                }
            }
            Input::Line(line) => {
                self.screen.typed(&line);
                let text = line.trim();
                if text == "/help" {
                    self.screen.note(KEYS);
                }
                if !text.is_empty() && !self.press(text) {
                    self.send(text);
                }
            }
        }
        true
    }

    /// Says what the end of the chat waits for.
    fn announce_wait(&mut self) {
        match self.turn {
            _ if self.prompt.is_some() => {
                self.screen
                    .note("(the agent waits for an answer; Ctrl-C stops it)");
            }
            TurnState::Running | TurnState::Stopping => {
                self.screen
                    .note("(waiting for the running turn to end; Ctrl-C stops it)");
            }
            TurnState::Over | TurnState::Unknown { .. } => {}
        }
    }

    fn send(&mut self, text: &str) {
        self.sent += 1;
        if self.relay.is_none() {
            self.stopping = None;
        }
        let message_id = format!("typed-{}-{}", self.run, self.sent);
        let mut event = text_event(self.platform, CHAT, &message_id, text);
        event["source"]["user_id"] = KEYBOARD.into();
        event["source"]["user_name"] = "You".into();
        let mut named = MessageEvent::from_value(&event).unwrap_or_default();
        let session = self.names.name(&mut named, &NoAliases);
        self.sessions.retain(|known| *known != session);
        self.sessions.truncate(MAX_SESSIONS - 1);
        self.sessions.push_front(session);
        if let Err(error) = self.connector.deliver(&event) {
            self.screen.note(&format!("(not accepted: {error})"));
        }
    }

    /// Presses the option that a line names by its number or its command; returns whether there is one.
    fn press(&mut self, line: &str) -> bool {
        let Some(prompt) = &self.prompt else {
            return false;
        };
        let by_number = line
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_sub(1));
        let option = match by_number {
            Some(index) => prompt.options.get(index),
            None => prompt
                .options
                .iter()
                .find(|option| line.strip_prefix('/') == Some(&option.id)),
        };
        let Some(option) = option else {
            return false;
        };
        let pressed = self.connector.press(&prompt.id, &option.id);
        self.pressed = Some(prompt.id.clone());
        self.prompt = None;
        matches!(pressed, Some(Ok(_)))
    }

    /// Stops what runs; returns `false` if there is nothing.
    fn stop(&mut self) -> bool {
        let interrupt = |session: &SessionKey| self.connector.interrupt(session.as_str(), CHAT);
        if !self.is_stoppable() || !self.sessions.iter().all(interrupt) {
            return false;
        }
        self.stopping = Some(self.turns_stopped);
        if self.relay.is_none() {
            self.screen.note("(asked the gateway to stop)");
        }
        true
    }
}
