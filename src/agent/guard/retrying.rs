//! Tries a turn again where that does no harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::hand_on;
use super::tap::{GRACE, Tap, Watched, pass, watch};
use crate::agent::{Agent, AgentFuture, Signal, Turn, TurnEnd};

/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often a turn is tried.
#[derive(Clone, Copy, Debug)]
pub struct RetrySettings {
    /// Tries in all; one means no second.
    pub tries: u32,
    /// The pause before the second try; each further one is twice as long, up to half a minute.
    pub pause: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            tries: 3,
            pause: Duration::from_millis(500),
        }
    }
}

/// An agent whose turns are tried again when they failed, nothing was said, nothing was done, and it may help.
pub struct Retrying {
    inside: Arc<dyn Agent>,
    settings: RetrySettings,
}

impl Retrying {
    /// Tries turns again.
    pub fn new(inside: Arc<dyn Agent>, settings: RetrySettings) -> Self {
        Self { inside, settings }
    }
}

impl Agent for Retrying {
    hand_on!(inside: describe, health, rest);

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let mut pause = self.settings.pause;
            let mut tries = 1;
            loop {
                let (tapped, tap) = Tap::on(&turn);
                let said = AtomicBool::new(false);
                let watched = watch(
                    &*self.inside,
                    tapped,
                    forward(tap, &said),
                    std::future::pending(),
                    GRACE,
                )
                .await;
                let end = match watched {
                    Watched::Ended(end) | Watched::Stopped(Some(end)) => end,
                    Watched::Stopped(None) => TurnEnd::Cancelled { confirmed: false },
                };
                let harmless = matches!(
                    &end,
                    TurnEnd::Failed(failure) if failure.retryable && !failure.side_effects_possible
                );
                if !harmless || said.load(Ordering::Relaxed) || tries >= self.settings.tries {
                    return end;
                }
                tries += 1;
                tracing::debug!(tries, "a turn is tried again");
                tokio::select! {
                    biased;
                    () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        })
    }
}

/// Hands signals on, and notes that there was one that others can see.
async fn forward(mut tap: Tap, said: &AtomicBool) {
    while let Some(signal) = tap.next().await {
        if !matches!(signal, Signal::Recall(_)) {
            said.store(true, Ordering::Relaxed);
        }
        pass(&tap.outside, signal).await;
    }
}
