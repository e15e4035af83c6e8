//! A turn says only so much.

use std::sync::Arc;

use tokio::sync::Notify;

use super::hand_on;
use super::tap::{GRACE, Tap, Watched, pass, watch};
use crate::agent::{Agent, AgentEvent, AgentFuture, Signal, Truncation, Turn, TurnEnd};

/// An agent whose answers are cut at a length.
pub struct Capped {
    inside: Arc<dyn Agent>,
    bytes: usize,
}

impl Capped {
    /// Lets `bytes` of text through in one turn; then stops it, and the answer ends there.
    pub fn new(inside: Arc<dyn Agent>, bytes: usize) -> Self {
        Self { inside, bytes }
    }
}

impl Agent for Capped {
    hand_on!(inside: describe, health, rest);

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let (tapped, tap) = Tap::on(&turn);
            let full = Notify::new();
            let forward = forward(tap, self.bytes, &full);
            match watch(&*self.inside, tapped, forward, full.notified(), GRACE).await {
                Watched::Ended(end) => end,
                Watched::Stopped(_) => TurnEnd::Truncated(Truncation::Size),
            }
        })
    }
}

/// Hands signals on until there is no room; then takes what still comes and drops it.
async fn forward(mut tap: Tap, mut room: usize, full: &Notify) {
    // What was said since the last break, which a replacement takes the place of.
    let mut since_break = 0;
    while let Some(mut signal) = tap.next().await {
        let mut over = false;
        match &signal {
            Signal::Said(AgentEvent::Break) => since_break = 0,
            Signal::Said(AgentEvent::Replace(_)) => room += std::mem::take(&mut since_break),
            _ => {}
        }
        if let Signal::Said(AgentEvent::Text(text) | AgentEvent::Replace(text)) = &mut signal {
            over = text.len() > room;
            if over {
                cut(text, room);
            }
            room -= text.len();
            since_break += text.len();
        }
        pass(&tap.outside, signal).await;
        if over {
            full.notify_one();
            while tap.next().await.is_some() {}
            return;
        }
    }
}

fn cut(text: &mut String, mut end: usize) {
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}
