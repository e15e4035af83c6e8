//! A sink between an agent and the turn's own, so that a guard sees what passes.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, AgentSignal, EventSink, SignalReceiver, Turn, TurnEnd};

/// How long an agent may take to end after a guard has stopped its turn; after that its future is dropped.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// The two ends between which a guard stands.
pub(super) struct Tap {
    inside: SignalReceiver,
    over: CancellationToken,
    pub(super) outside: EventSink,
}

/// A turn whose signals go through a tap, and that can be stopped alone.
pub(super) struct Tapped {
    turn: Turn,
    over: CancellationToken,
}

impl Tap {
    /// Puts a tap on a turn.
    pub(super) fn on(turn: &Turn) -> (Tapped, Self) {
        let (events, inside) = EventSink::new();
        let inner = Turn {
            id: turn.id,
            session: turn.session.clone(),
            input: turn.input.clone(),
            approver: turn.approver.through(&events),
            events,
            cancel: turn.cancel.child_token(),
            workdir: turn.workdir.clone(),
        };
        let over = CancellationToken::new();
        let tap = Self {
            inside,
            over: over.clone(),
            outside: turn.events.clone(),
        };
        (Tapped { turn: inner, over }, tap)
    }

    /// The next signal; nothing once the run is over and all that it said was taken, whoever still holds its sink.
    pub(super) async fn next(&mut self) -> Option<AgentSignal> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => self.inside.close(),
            signal = self.inside.recv() => return signal,
        }
        self.inside.recv().await
    }
}

/// Hands a signal on. Dropped when nobody reads any more: the turn was given up.
pub(super) async fn pass(outside: &EventSink, signal: AgentSignal) {
    let _ = outside.0.send(signal).await;
}

/// How a watched run ended.
pub(super) enum Watched {
    /// By itself; or by the turn's own token.
    Ended(TurnEnd),
    /// The guard stopped it, and this is how it ended; nothing when it had to be dropped.
    Stopped(Option<TurnEnd>),
}

/// Runs a turn while `forward` hands its signals on, until it ends; or, once `trigger` is done, stops it and waits a
/// while. All that was said before the end is handed on.
pub(super) async fn watch(
    agent: &dyn Agent,
    tapped: Tapped,
    forward: impl Future<Output = ()>,
    trigger: impl Future<Output = ()>,
    grace: Duration,
) -> Watched {
    let Tapped { turn, over } = tapped;
    let cancel = turn.cancel.clone();
    let run = agent.run(turn);
    tokio::pin!(run, forward, trigger);
    let mut forwarding = true;
    let ended = loop {
        tokio::select! {
            biased;
            end = &mut run => break Some(end),
            () = &mut trigger => break None,
            () = &mut forward, if forwarding => forwarding = false,
        }
    };
    let Some(end) = ended else {
        cancel.cancel();
        let last = timeout(grace, async {
            let end = loop {
                tokio::select! {
                    biased;
                    end = &mut run => break end,
                    () = &mut forward, if forwarding => forwarding = false,
                }
            };
            over.cancel();
            if forwarding {
                forward.await;
            }
            end
        })
        .await;
        return Watched::Stopped(last.ok());
    };
    over.cancel();
    if forwarding {
        forward.await;
    }
    Watched::Ended(end)
}
