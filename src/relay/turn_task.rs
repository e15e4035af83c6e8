//! The task that runs one turn: the agent on one side, what it says on the other.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::{Agent, AgentEvent, Answer as Reply, Signal, Signals, Turn, TurnEnd};
use crate::session::TurnId;

/// How a turn went.
#[derive(Debug)]
pub(super) struct TurnReport {
    pub(super) turn: TurnId,
    /// Everything it said.
    pub(super) text: String,
    /// Whether it said more than is kept.
    pub(super) cut: bool,
    /// How it ended.
    pub(super) end: TurnEnd,
}

/// Runs the agent until it ends, or until it has not stopped within `grace` after being told to. Keeps up
/// to `most` bytes of what it says.
pub(super) async fn run_turn(
    agent: Arc<dyn Agent>,
    turn: Turn,
    mut events: Signals,
    grace: Duration,
    most: usize,
) -> TurnReport {
    let id = turn.id;
    let cancel = turn.cancel.clone();
    let mut answer = Answer {
        text: String::new(),
        cut: false,
        most,
    };
    let end = {
        let mut running = agent.run(turn);
        let overdue = async {
            cancel.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::pin!(overdue);
        loop {
            tokio::select! {
                biased;
                end = &mut running => break end,
                // Cancel-safe: nothing is taken out unless the branch is chosen.
                Some(signal) = events.recv() => answer.hear(signal),
                () = &mut overdue => break TurnEnd::Cancelled { confirmed: false },
            }
        }
    };
    events.close();
    while let Some(signal) = events.recv().await {
        answer.hear(signal);
    }
    TurnReport {
        turn: id,
        text: answer.text,
        cut: answer.cut,
        end,
    }
}

struct Answer {
    text: String,
    cut: bool,
    most: usize,
}

impl Answer {
    fn hear(&mut self, signal: Signal) {
        let text = match signal {
            Signal::Said(AgentEvent::Text(text)) => text,
            Signal::Asked(_, asker) => return drop(asker.send(Reply::Cancelled)),
            Signal::Recall(asker) => return drop(asker.send(None)),
            Signal::Said(_) | Signal::Keep(_) => return,
        };
        let room = self.most.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(&text);
        } else {
            let end = (0..=room)
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0);
            self.text.push_str(&text[..end]);
            self.cut = true;
        }
    }
}
