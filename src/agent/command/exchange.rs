//! The exchange with one process, from its prompt to its end.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::lines::OutputLine;
use super::lines::TextReader;
use super::{CommandOutput, CommandSettings};
use crate::agent::child::{Child, Exit, PIPE_GRACE};
use crate::agent::{AgentEvent, AgentFuture, PromptAnswer, Question, Turn};
use crate::wire::{DEFAULT_MAX_LINE_BYTES, Line, LineFramer};

/// Bytes read at a time.
const CHUNK: usize = 8 * 1024;

/// How long a process may live on after it has closed its output: until then its code decides about the turn.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Questions of one turn; more are left out like lines that are not understood.
const MAX_QUESTIONS: usize = 256;

/// How the exchange ended.
#[derive(Debug)]
pub(super) enum OutputEnd {
    /// The process ended by itself; what is left of its group was killed.
    Exited(Exit),
    /// It reported the end; it still runs.
    Done,
    /// It has closed its output, and still runs.
    Closed,
    /// It reported a failure, and whether it is retryable; it still runs.
    Failed(String, bool),
    /// It wrote more than it may; it still runs.
    TooMuch,
}

/// One exchange.
pub(super) struct Exchange<'a> {
    turn: &'a Turn,
    reader: OutputReader,
    /// Whether there was visible output.
    pub(super) spoke: bool,
    /// Whether there was output since the last break.
    segment: bool,
    answers: Option<mpsc::Sender<Vec<u8>>>,
    questions: FuturesUnordered<AgentFuture<'a, (String, PromptAnswer)>>,
    asked: usize,
    /// Whether it has shown, asked, stored or reported anything; a thought is nothing.
    pub(super) has_acted: bool,
    ignored: usize,
}

enum OutputReader {
    Text(TextReader),
    Lines(LineFramer),
}

impl<'a> Exchange<'a> {
    pub(super) fn new(turn: &'a Turn, output: CommandOutput) -> Self {
        Self {
            turn,
            reader: match output {
                CommandOutput::Text => OutputReader::Text(TextReader::default()),
                CommandOutput::Jsonl => OutputReader::Lines(LineFramer::new(DEFAULT_MAX_LINE_BYTES)),
            },
            spoke: false,
            segment: false,
            answers: None,
            questions: FuturesUnordered::new(),
            asked: 0,
            has_acted: false,
            ignored: 0,
        }
    }

    /// Sends the prompt and reads until the process exits or reports its end. Dropping it closes the pipes.
    pub(super) async fn run(
        &mut self,
        child: &mut Child,
        settings: &CommandSettings,
        prompt: Vec<u8>,
    ) -> OutputEnd {
        let (sender, queue) = mpsc::channel(MAX_QUESTIONS);
        // Without a sender the queue is at its end, and so is standard input once the prompt is written.
        self.answers = settings.is_interactive().then_some(sender);
        let feed = feed(child.take_stdin(), prompt, queue);
        tokio::pin!(feed);
        let mut stdout = child.take_stdout();
        let mut chunk = vec![0; CHUNK];
        let mut room = settings.max_output_bytes;
        let mut feeding = true;
        let mut exit: Option<(Exit, Instant)> = None;
        let mut closed: Option<Instant> = None;
        loop {
            if let (Some((exit, _)), None) = (exit, &stdout) {
                return self.over(OutputEnd::Exited(exit)).await;
            }
            if stdout.is_none() {
                closed.get_or_insert_with(|| Instant::now() + EXIT_TIMEOUT);
            }
            let wait = exit.map_or_else(Instant::now, |(_, deadline)| deadline);
            let last = closed.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = sleep_until(wait), if exit.is_some() => stdout = None,
                () = sleep_until(last), if exit.is_none() && closed.is_some() => {
                    return self.over(OutputEnd::Closed).await;
                }
                () = child.exited(), if exit.is_none() => {
                    exit = Some((child.finish().await, Instant::now() + PIPE_GRACE));
                }
                Some((id, answer)) = self.questions.next(), if !self.questions.is_empty() => {
                    self.answered(&id, &answer);
                }
                () = &mut feed, if feeding => feeding = false,
                length = read(&mut stdout, &mut chunk), if stdout.is_some() => {
                    let fits = length.min(room);
                    room -= fits;
                    if let Some(end) = self.handle_output(&chunk[..fits]).await {
                        return self.over(end).await;
                    }
                    if fits < length {
                        return self.over(OutputEnd::TooMuch).await;
                    }
                }
            }
        }
    }

    async fn over(&mut self, end: OutputEnd) -> OutputEnd {
        let rest = match &mut self.reader {
            OutputReader::Text(reader) => Some(reader.end()),
            OutputReader::Lines(_) => None,
        };
        let end = match rest {
            Some(text) => {
                self.text(text).await;
                end
            }
            // The last line may lack its newline.
            None if matches!(end, OutputEnd::Exited(_) | OutputEnd::Closed) => {
                self.handle_output(b"\n").await.unwrap_or(end)
            }
            None => end,
        };
        if self.ignored > 0 {
            tracing::debug!(lines = self.ignored, "the command wrote invalid lines");
        }
        end
    }

    /// Handles output; returns the end if it was reported.
    async fn handle_output(&mut self, chunk: &[u8]) -> Option<OutputEnd> {
        let framer = match &mut self.reader {
            OutputReader::Text(reader) => {
                let text = reader.push(chunk);
                self.text(text).await;
                return None;
            }
            OutputReader::Lines(framer) => framer,
        };
        let mut lines = Vec::new();
        let mut ignored = 0;
        framer.feed(chunk, |line| {
            let understood = match line {
                Line::Whole(line) => OutputLine::parse(line),
                Line::TooLong { .. } => None,
            };
            match understood {
                Some(line) => lines.push(line),
                None => ignored += 1,
            }
        });
        self.ignored += ignored;
        for line in lines {
            self.has_acted |= line.is_act();
            match line {
                OutputLine::Event(event) => self.emit(event).await,
                OutputLine::Progress(event) => self.turn.events.progress(event),
                OutputLine::SaveState(memory) => self.turn.events.save_state(memory.into_bytes()).await,
                OutputLine::Ask(id, question) => self.ask(id, question),
                OutputLine::Error(message, retryable) => return Some(OutputEnd::Failed(message, retryable)),
                OutputLine::Final(None) => return Some(OutputEnd::Done),
                OutputLine::Final(Some(text)) => {
                    let event = if self.segment {
                        AgentEvent::Replace(text)
                    } else {
                        AgentEvent::Text(text)
                    };
                    self.emit(event).await;
                    return Some(OutputEnd::Done);
                }
            }
        }
        None
    }

    async fn text(&mut self, text: String) {
        if !text.is_empty() {
            self.emit(AgentEvent::Text(text)).await;
        }
    }

    async fn emit(&mut self, event: AgentEvent) {
        match &event {
            AgentEvent::Text(text) | AgentEvent::Replace(text) => {
                self.spoke |= !text.trim().is_empty();
                self.segment = true;
            }
            AgentEvent::Media(_) => self.spoke = true,
            AgentEvent::Break => self.segment = false,
            _ => {}
        }
        self.has_acted |= self.spoke;
        self.turn.events.emit(event).await;
    }

    fn ask(&mut self, id: String, question: Question) {
        if self.asked == MAX_QUESTIONS {
            self.ignored += 1;
            return;
        }
        self.asked += 1;
        if self.answers.is_none() {
            tracing::warn!("the command asks questions but reads no answers; set its input to json");
            return;
        }
        let approver = self.turn.approver.clone();
        self.questions
            .push(Box::pin(async move { (id, approver.ask(question).await) }));
    }

    fn answered(&mut self, id: &str, answer: &PromptAnswer) {
        let (choice, reason) = match answer {
            PromptAnswer::Chosen(choice) => (Some(choice), None),
            PromptAnswer::TimedOut => (None, Some("timed_out")),
            PromptAnswer::Cancelled => (None, Some("cancelled")),
        };
        let mut line = json!({"type": "answer", "id": id, "choice": choice, "reason": reason})
            .to_string()
            .into_bytes();
        line.push(b'\n');
        if let Some(answers) = &self.answers {
            // There is room for an answer to every question that is let through.
            let _ = answers.try_send(line);
        }
    }
}

/// Writes the prompt and then the answers; closes standard input at their end. A process that does not read is its own
/// affair.
async fn feed(stdin: Option<ChildStdin>, prompt: Vec<u8>, mut answers: mpsc::Receiver<Vec<u8>>) {
    let Some(mut stdin) = stdin else { return };
    if stdin.write_all(&prompt).await.is_err() {
        return;
    }
    while let Some(line) = answers.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Reads more; takes the pipe away at its end.
async fn read<R: tokio::io::AsyncRead + Unpin>(pipe: &mut Option<R>, chunk: &mut [u8]) -> usize {
    let Some(open) = pipe else { return 0 };
    let length = open.read(chunk).await.unwrap_or(0);
    if length == 0 {
        *pipe = None;
    }
    length
}
