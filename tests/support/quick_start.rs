//! The ways to a first answer in `docs/quick-start.md`: what is typed, in a terminal, and how long it takes.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::process::Command;

use super::relay_process::Setup;
use super::terminal::{ENTER, Terminal};

/// The most that any way may need.
const MAX_COMMANDS: usize = 2;
/// A question that is asked only where there is systemd.
const ONLY_WITH_SYSTEMD: &str = "Run the relay as a service";

/// One way: its commands, as they are typed.
pub(crate) struct Way {
    name: String,
    commands: Vec<TypedCommand>,
    began: Option<Instant>,
}

/// One command and what is typed into it.
struct TypedCommand {
    args: Vec<String>,
    /// Questions and their answers.
    answers: Vec<(String, String)>,
    /// What is said in the chat of `dev`.
    message: Option<String>,
}

fn page() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/quick-start.md"))
}

/// The cells of the way's row in the table.
fn row(text: &str, name: &str) -> Vec<String> {
    let begin = format!("| [{name}](#");
    let line = text.lines().find(|line| line.starts_with(&begin));
    let line = line.unwrap_or_else(|| panic!("the page has no row for {name}"));
    line.trim_matches('|')
        .split('|')
        .map(|cell| cell.trim().to_owned())
        .collect()
}

impl Way {
    /// Reads a way, with what a person replaces: addresses, ids and tokens.
    pub(crate) fn read(name: &str, replaced: &[(&str, &str)]) -> Self {
        let text = fs::read_to_string(page()).expect("the quick start");
        let (_, section) = text.split_once(&format!("\n### {name}\n")).expect("its section");
        let (_, fence) = section.split_once("```console\n").expect("its commands");
        let (mut typed, _) = fence
            .split_once("```")
            .map(|(typed, rest)| (typed.to_owned(), rest))
            .expect("their end");
        for (shown, real) in replaced {
            assert!(typed.contains(shown), "{name}: no {shown} in\n{typed}");
            typed = typed.replace(shown, real);
        }
        let mut commands: Vec<TypedCommand> = Vec::new();
        for line in typed.lines() {
            if let Some(command) = line.strip_prefix("$ hermes-relay ") {
                commands.push(TypedCommand {
                    args: command.split_whitespace().map(str::to_owned).collect(),
                    answers: Vec::new(),
                    message: None,
                });
                continue;
            }
            let command = commands
                .last_mut()
                .expect("a command before what is typed into it");
            if let Some(message) = line.strip_prefix("> ") {
                command.message = Some(message.to_owned());
            } else {
                let (question, answer) = line.split_once(": ").expect("a question and its answer");
                command.answers.push((format!("{question}:"), answer.to_owned()));
            }
        }
        let counted = row(&text, name);
        let count = |cell: usize| counted[cell].parse::<usize>().expect("a number");
        let answers: usize = commands.iter().map(|command| command.answers.len()).sum();
        assert!(
            commands.len() <= count(1).min(MAX_COMMANDS),
            "{name}: more commands than the page says"
        );
        assert!(
            answers <= count(2),
            "{name}: more typed answers than the page says"
        );
        Self {
            name: name.to_owned(),
            commands,
            began: None,
        }
    }

    fn command(&self, setup: &Setup, index: usize) -> Command {
        let args: Vec<&str> = self.commands[index].args.iter().map(String::as_str).collect();
        setup.verb(&args)
    }

    /// Types the first command and the answers to its questions, and waits for its end. Returns what it showed.
    pub(crate) async fn prepare(&mut self, command: Command, within: Duration) -> Vec<String> {
        self.began = Some(Instant::now());
        let mut terminal = Terminal::start(command);
        for (question, answer) in &self.commands[0].answers {
            let is_asked = |lines: &[String]| lines.iter().any(|line| line.contains(question.as_str()));
            let is_over = |lines: &[String]| lines.iter().any(|line| line == "Next:");
            let lines = terminal
                .until_within(within, question, |lines| is_asked(lines) || is_over(lines))
                .await;
            if is_over(&lines) {
                assert!(question.starts_with(ONLY_WITH_SYSTEMD), "{question}: {lines:#?}");
                break;
            }
            terminal.keys(answer);
            terminal.keys(ENTER);
        }
        let lines = terminal
            .until_within(within, "the end", |lines| {
                let is_end = |line: &String| {
                    line.trim_start().starts_with("hermes-relay doctor") || line.starts_with("error:")
                };
                lines.iter().any(is_end)
            })
            .await;
        let (code, is_restored) = terminal.ends().await;
        assert_eq!((code, is_restored), (Some(0), true), "{lines:#?}");
        lines
    }

    /// The first command of the page in this home.
    pub(crate) fn first(&self, setup: &Setup) -> Command {
        self.command(setup, 0)
    }

    /// Types the second command, `dev`, says the message there, and waits for this answer.
    pub(crate) async fn chat(&self, command: Command, within: Duration, answer: &str) {
        let mut terminal = Terminal::start(command);
        let message = self.commands[1].message.as_deref().expect("a message");
        terminal.enter(message).await;
        let lines = terminal.until_within(within, answer, |lines| {
            let is_answer = |line: &String| !line.starts_with('>') && line.contains(answer);
            lines.iter().any(is_answer) && lines.last().is_some_and(|last| last == ">")
        });
        lines.await;
        self.measured();
        terminal.enter("/quit").await;
        assert_eq!(terminal.ends().await, (Some(0), true));
    }

    /// Types the second command, `run`, waits for `answered`, and stops it.
    pub(crate) async fn serve(&self, command: Command, answered: impl Future<Output = ()>) {
        let terminal = Terminal::start(command);
        tokio::select! {
            () = answered => self.measured(),
            lines = terminal.until("an end too early", |lines| lines.iter().any(|line| line.starts_with("error:"))) => {
                panic!("{lines:#?}");
            }
        }
        terminal.signal(Signal::INT);
        let (code, _) = terminal.ends().await;
        assert_eq!(code, Some(0));
    }

    /// The second command of the page in this home.
    pub(crate) fn second(&self, setup: &Setup) -> Command {
        self.command(setup, 1)
    }

    /// The answer is here: with `UPDATE_DOCS`, the seconds are written to the page.
    fn measured(&self) {
        static WRITING: Mutex<()> = Mutex::new(());
        let took = self.began.expect("a first command").elapsed().as_secs_f32();
        println!("{}: {took:.1} s to the first answer", self.name);
        if std::env::var_os("UPDATE_DOCS").is_none() {
            return;
        }
        let _guard = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let text = fs::read_to_string(page()).expect("the quick start");
        let mut cells = row(&text, &self.name);
        let begin = format!("| {} |", cells[0]);
        cells[3] = format!("{took:.1}");
        let lines = text.lines().map(|line| {
            if line.starts_with(&begin) {
                format!("| {} |", cells.join(" | "))
            } else {
                line.to_owned()
            }
        });
        let text: Vec<String> = lines.collect();
        fs::write(page(), text.join("\n") + "\n").expect("the quick start");
    }
}
