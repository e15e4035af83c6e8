//! Signals to a running relay.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::relay::RelayHandle;

/// Timeout for the relay's event loop.
const DUMP_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of sessions in a dump.
const MAX_DUMPED_SESSIONS: usize = 200;

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// SIGTERM or SIGINT: finish and exit.
    Stop,
    /// SIGUSR1: finish and exit, so that the supervisor restarts us.
    Restart,
    /// SIGHUP: reload the settings.
    Reload,
    /// SIGUSR2: log the state of everything.
    Dump,
}

/// The handled signals.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user1: Signal,
    user2: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next request. Cancel-safe: a signal is taken only when it is returned.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.user1.recv() => SignalRequest::Restart,
            _ = self.hangup.recv() => SignalRequest::Reload,
            _ = self.user2.recv() => SignalRequest::Dump,
        }
    }

    /// The next request to exit; others are ignored.
    pub(super) async fn next_exit(&mut self) -> SignalRequest {
        loop {
            match self.next().await {
                request @ (SignalRequest::Stop | SignalRequest::Restart) => return request,
                SignalRequest::Reload | SignalRequest::Dump => {}
            }
        }
    }
}

/// Logs the state of the link, the sessions and the queues.
pub(super) async fn dump(relay: RelayHandle) {
    let state = async {
        let (status, sessions) = (relay.status().await?, relay.sessions(MAX_DUMPED_SESSIONS).await?);
        Some((status, sessions, relay.metrics().await?))
    };
    let Some((status, sessions, metrics)) = timeout(DUMP_TIMEOUT, state).await.ok().flatten() else {
        tracing::warn!("dump: the relay does not respond");
        return;
    };
    tracing::info!(
        state = status.link,
        since_ms = status.link_since_ms,
        retry_at_ms = status.link_retry_at_ms,
        last_loss = status.last_loss,
        platforms = ?status.platforms,
        "dump: link"
    );
    for session in &sessions.sessions {
        tracing::info!(
            session = session.session,
            state = session.state,
            agent = session.agent,
            running_ms = session.running_ms,
            waiting = session.waiting,
            "dump: session"
        );
    }
    tracing::info!(
        sessions = sessions.total,
        running = status.turns_running,
        chats = status.chats_known,
        journal_failing = status.journal_failing,
        queues = ?metrics.queues,
        "dump: queues"
    );
    tracing::info!(tally = ?status.tally, "dump: counts");
}
