//! How everything stands, into the log.

use std::time::Duration;

use tokio::time::timeout;

use crate::relay::RelayHandle;

/// How long the relay's task may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Sessions that are told.
const MOST_SESSIONS: usize = 200;

/// Tells the log of the link, the sessions and the queues.
pub(super) async fn dump(relay: RelayHandle) {
    let asked = async {
        let (status, sessions) = (relay.status().await?, relay.sessions(MOST_SESSIONS).await?);
        Some((status, sessions, relay.metrics().await?))
    };
    let Some((status, sessions, metrics)) = timeout(PATIENCE, asked).await.ok().flatten() else {
        tracing::warn!("dump: the relay's task does not answer");
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
