//! Lines typed in a terminal, with a line editor, or read from anything else.
//!
//! A thread of its own reads them: such a read cannot be cancelled.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use tokio::sync::mpsc;

use super::screen::{PROMPT, Screen, print_prompt};
use crate::relay::command_names;

/// Lines that may wait for the chat.
const MAX_LINES: usize = 16;
/// Lines that are remembered.
const MAX_HISTORY: usize = 500;
/// Ends the chat.
const QUIT: &str = "/quit";

/// What a person did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A message, which may have several lines.
    Line(String),
    /// Pressed Ctrl-C behind this text, to stop the running turn or to take the text back.
    Interrupt { typed: String, stops: bool },
    /// Asked for the end.
    Quit,
    /// There is no more input.
    End,
}

/// The input of the chat.
pub(super) struct LineInput {
    lines: mpsc::Receiver<Input>,
    /// Whether Ctrl-C stops a turn instead of ending the chat.
    stoppable: Arc<AtomicBool>,
    /// Whether Ctrl-C at an empty prompt ends the chat, because the last one had nothing to stop.
    warned: Arc<AtomicBool>,
    _modes: Option<SavedModes>,
}

impl LineInput {
    /// Opens the terminal with a line editor if it can have one, else standard input and output as they are.
    pub(super) fn open() -> (Self, Screen) {
        let (sender, lines) = mpsc::channel(MAX_LINES);
        let [stoppable, warned] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let editor = open_editor();
        let input = Self {
            lines,
            stoppable: Arc::clone(&stoppable),
            warned: Arc::clone(&warned),
            _modes: editor.as_ref().and_then(|_| SavedModes::new()),
        };
        if let Some((editor, screen)) = editor {
            std::thread::spawn(move || edit_lines(editor, (&stoppable, &warned), &sender));
            return (input, screen);
        }
        let prompt = std::io::stdin().is_terminal();
        std::thread::spawn(move || read_lines(prompt, &sender));
        (input, Screen::Plain { prompt })
    }

    /// The next input; `End` when there is no more.
    pub(super) async fn next(&mut self) -> Input {
        self.lines.recv().await.unwrap_or(Input::End)
    }

    /// The next Ctrl-C ends the chat, if nothing else is typed before.
    pub(super) fn warned(&self) {
        self.warned.store(true, Ordering::Relaxed);
    }

    /// Sets what Ctrl-C does.
    pub(super) fn set_stoppable(&self, stoppable: bool) {
        self.stoppable.store(stoppable, Ordering::Relaxed);
    }
}

/// The modes of the terminal, restored when the chat ends while a line is being typed.
struct SavedModes(Termios);

impl SavedModes {
    fn new() -> Option<Self> {
        tcgetattr(std::io::stdin()).ok().map(Self)
    }
}

impl Drop for SavedModes {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
        // The editor's bracketed paste.
        let mut out = std::io::stdout();
        let _ = out.write_all(b"\x1b[?2004l").and_then(|()| out.flush());
    }
}

type ChatEditor = Editor<ChatHelper, MemHistory>;

fn open_editor() -> Option<(ChatEditor, Screen)> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return None;
    }
    let config = Config::builder().max_history_size(MAX_HISTORY).ok()?;
    let config = config.auto_add_history(true).build();
    let history = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history).ok()?;
    editor.set_helper(Some(ChatHelper::default()));
    // None on a terminal that cannot move its cursor.
    let printer = editor.create_external_printer().ok()?;
    Some((editor, Screen::terminal(Box::new(printer))))
}

fn edit_lines(
    mut editor: ChatEditor,
    (stoppable, warned): (&AtomicBool, &AtomicBool),
    sender: &mpsc::Sender<Input>,
) {
    let mut initial = String::new();
    loop {
        let read = editor.readline_with_initial(PROMPT, (&initial, ""));
        let typed = editor.helper().map(ChatHelper::take).unwrap_or_default();
        initial.clear();
        let input = match read {
            Ok(line) if line.trim() == QUIT => Input::Quit,
            Ok(line) => Input::Line(line),
            Err(ReadlineError::Interrupted) => {
                let stops = stoppable.load(Ordering::Relaxed);
                if stops {
                    initial.clone_from(&typed);
                }
                if !stops && typed.is_empty() && warned.load(Ordering::Relaxed) {
                    Input::Quit
                } else {
                    Input::Interrupt { typed, stops }
                }
            }
            Err(ReadlineError::Eof) => Input::End,
            Err(_) => Input::Quit,
        };
        let is_warned = matches!(input, Input::Interrupt { stops: false, .. });
        warned.store(is_warned, Ordering::Relaxed);
        let is_last = matches!(input, Input::Quit | Input::End);
        if sender.blocking_send(input).is_err() || is_last {
            return;
        }
    }
}

fn read_lines(prompt: bool, sender: &mpsc::Sender<Input>) {
    if prompt {
        print_prompt();
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let input = if line.trim() == QUIT {
            Input::Quit
        } else {
            Input::Line(line)
        };
        if sender.blocking_send(input).is_err() {
            return;
        }
    }
}

/// Completes commands, and remembers the line that is being typed.
#[derive(Default)]
struct ChatHelper {
    typed: Mutex<String>,
}

impl ChatHelper {
    fn take(&self) -> String {
        std::mem::take(&mut self.typed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Hinter for ChatHelper {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        line.clone_into(&mut self.typed.lock().unwrap_or_else(PoisonError::into_inner));
        None
    }
}

impl Completer for ChatHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..at];
        let names = command_names().map(|(name, _)| format!("/{name}"));
        let names = names.chain([QUIT.to_owned()]);
        let candidates = names.filter(|name| typed.starts_with('/') && name.starts_with(typed));
        let pair = |name: String| Pair {
            display: name.clone(),
            replacement: name,
        };
        Ok((0, candidates.map(pair).collect()))
    }
}

impl Highlighter for ChatHelper {}

impl Validator for ChatHelper {}

impl Helper for ChatHelper {}
