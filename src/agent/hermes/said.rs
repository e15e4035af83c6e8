//! What a run has said so far, and how its final answer fits to it.

use crate::agent::{AgentEvent, EventSink};

/// Longest answer that is passed on, in bytes; the rest is not said.
const MOST_TEXT: usize = 4 * 1024 * 1024;

/// What was said, in messages that tools stand between.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The messages before the current one.
    before: String,
    /// The current message.
    message: String,
    /// Whether what comes next is a message of its own.
    pending_break: bool,
}

impl Said {
    /// Says more of the answer.
    pub(super) async fn delta(&mut self, events: &EventSink, delta: &str) {
        // Hermes begins what it says after a tool with an empty line, also when it has said nothing before.
        let delta = if self.pending_break || self.message.is_empty() {
            delta.trim_start()
        } else {
            delta
        };
        if delta.is_empty() || self.before.len() + self.message.len() + delta.len() > MOST_TEXT {
            return;
        }
        if std::mem::take(&mut self.pending_break) {
            self.before.push_str(&std::mem::take(&mut self.message));
            self.before.push_str("\n\n");
            events.emit(AgentEvent::Break).await;
        }
        self.message.push_str(delta);
        events.text(delta).await;
    }

    /// A tool runs: what follows is a message of its own.
    pub(super) fn tool(&mut self) {
        self.pending_break = !self.message.trim().is_empty();
    }

    /// The run's own final answer, after a stream that was whole: what is missing at its end is said.
    pub(super) async fn complete(&mut self, events: &EventSink, output: &str) {
        let missing = if self.text().trim().is_empty() {
            Some(output)
        } else {
            output.strip_prefix(self.message.as_str())
        };
        if let Some(missing) = missing.filter(|missing| !missing.trim().is_empty()) {
            self.pending_break = false;
            self.delta(events, missing).await;
        }
    }

    /// The run's own final answer, after a stream that was lost: it stands for the current message.
    pub(super) async fn replace(&mut self, events: &EventSink, output: &str) {
        if output.trim().is_empty() || output.trim() == self.message.trim() || output.len() > MOST_TEXT {
            return;
        }
        output.clone_into(&mut self.message);
        self.pending_break = false;
        events.emit(AgentEvent::Replace(output.to_owned())).await;
    }

    /// Everything that was said.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.before, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentSignal;

    async fn events(play: impl AsyncFnOnce(&mut Said, &EventSink)) -> (String, Vec<AgentEvent>) {
        let (sink, mut signals) = EventSink::new();
        let mut said = Said::default();
        play(&mut said, &sink).await;
        drop(sink);
        let mut heard = Vec::new();
        while let Some(AgentSignal::Event(event)) = signals.recv().await {
            heard.push(event);
        }
        (said.text(), heard)
    }

    fn text(text: &str) -> AgentEvent {
        AgentEvent::Text(text.to_owned())
    }

    #[tokio::test]
    async fn tools_stand_between_messages() {
        let (whole, heard) = events(async |said, sink| {
            said.tool();
            said.delta(sink, "Let me look.").await;
            said.tool();
            said.tool();
            said.delta(sink, "\n\n").await;
            said.delta(sink, "It is 4.").await;
            said.complete(sink, "It is 4.").await;
        })
        .await;
        assert_eq!(whole, "Let me look.\n\nIt is 4.");
        assert_eq!(heard, [text("Let me look."), AgentEvent::Break, text("It is 4.")]);
        let (_, heard) = events(async |said, sink| {
            said.tool();
            said.delta(sink, "\n\nIt is 4.").await;
            said.complete(sink, "It is 4.").await;
        })
        .await;
        assert_eq!(heard, [text("It is 4.")]);
    }

    #[tokio::test]
    async fn the_final_answer_fills_in_and_never_repeats() {
        let (_, heard) = events(async |said, sink| said.complete(sink, "all").await).await;
        assert_eq!(heard, [text("all")]);
        let (_, heard) = events(async |said, sink| {
            said.delta(sink, "al").await;
            said.complete(sink, "all").await;
        })
        .await;
        assert_eq!(heard, [text("al"), text("l")]);
        let (_, heard) = events(async |said, sink| {
            said.delta(sink, "something else").await;
            said.complete(sink, "all").await;
        })
        .await;
        assert_eq!(heard, [text("something else")]);
    }

    #[tokio::test]
    async fn after_a_lost_stream_the_final_answer_stands() {
        let (whole, heard) = events(async |said, sink| {
            said.delta(sink, "al").await;
            said.replace(sink, "all of it").await;
            said.replace(sink, "all of it").await;
            said.replace(sink, "").await;
        })
        .await;
        assert_eq!(whole, "all of it");
        assert_eq!(heard, [text("al"), AgentEvent::Replace("all of it".to_owned())]);
    }
}
