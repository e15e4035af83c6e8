//! Signals to a running relay.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cli::format::{duration, printable};
use crate::relay::{NotRunning, RelayHandle, SessionStatus, Status, now_ms};

/// Timeout for the relay's event loop.
const DUMP_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of sessions in a dump.
const MAX_DUMPED_SESSIONS: usize = 200;

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum SignalRequest {
    /// SIGTERM or SIGINT, or SIGHUP when a terminal was closed: finish and exit.
    Stop,
    /// `hermes-relay stop`: the same, and asking again changes nothing.
    StopVerb,
    /// SIGUSR1: finish and exit, so that the supervisor restarts us.
    Restart,
    /// SIGHUP without a terminal: reload the settings.
    Reload,
    /// SIGUSR2: log the state of everything.
    Dump,
}

/// The handled signals.
pub(in crate::cli) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user1: Signal,
    user2: Signal,
    hangup: Signal,
    /// A file has reached the limit of its size: the write fails, and the process goes on.
    _file_size: Signal,
    /// Whether there is a terminal: then SIGHUP means that it was closed.
    has_terminal: bool,
    /// Requests of `hermes-relay stop`.
    stop_verbs: mpsc::Receiver<()>,
}

impl Signals {
    /// Handles signals from now on, and requests on the channel as well.
    pub(in crate::cli) fn listen(stop_verbs: mpsc::Receiver<()>) -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            hangup: signal(SignalKind::hangup())?,
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
            has_terminal: std::io::stdin().is_terminal()
                || std::io::stdout().is_terminal()
                || std::io::stderr().is_terminal(),
            stop_verbs,
        })
    }

    /// The next request. Cancel-safe: a signal is taken only when it is returned.
    pub(in crate::cli) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.user1.recv() => SignalRequest::Restart,
            Some(()) = self.stop_verbs.recv() => SignalRequest::StopVerb,
            _ = self.hangup.recv() => if self.has_terminal { SignalRequest::Stop } else { SignalRequest::Reload },
            _ = self.user2.recv() => SignalRequest::Dump,
        }
    }
}

/// Logs the state of the link, the sessions and the queues.
pub(super) async fn dump(relay: RelayHandle) {
    let state = async {
        let (status, sessions) = (relay.status().await?, relay.sessions(MAX_DUMPED_SESSIONS).await?);
        Ok::<_, NotRunning>((status, sessions, relay.metrics().await?))
    };
    let Ok(Ok((status, sessions, metrics))) = timeout(DUMP_TIMEOUT, state).await else {
        tracing::warn!("dump: the relay does not respond");
        return;
    };
    tracing::info!("dump: link {}", link_words(&status));
    for session in &sessions.sessions {
        tracing::info!("dump: session {}", session_words(session));
    }
    let queues: Vec<String> = (metrics.queues.iter())
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    tracing::info!(
        "dump: queues: {}; {} sessions, {} turns running, {} chats known",
        queues.join(", "),
        sessions.total,
        status.turns_running,
        status.chats_known
    );
    if let Some(why) = &status.journal_failing {
        tracing::warn!("dump: the journal cannot be written: {}", printable(why));
    }
    let tally = status.tally;
    tracing::info!(
        "dump: counts: {} messages in, {} acknowledged, {} duplicates, {} quarantined; turns: {} done, {} stopped, {} failed, \
         {} interrupted; ops: {} done, {} refused, {} unknown, {} dropped; approvals: {} requested, {} answered, {} expired",
        tally.inbound,
        tally.acks,
        tally.duplicates,
        tally.quarantined,
        tally.turns_done,
        tally.turns_stopped,
        tally.turns_failed,
        tally.turns_interrupted,
        tally.ops_applied,
        tally.ops_refused,
        tally.ops_unknown,
        tally.ops_dropped,
        tally.prompts_opened,
        tally.prompts_answered,
        tally.prompts_expired,
    );
}

fn link_words(status: &Status) -> String {
    let now = now_ms();
    let since = |ms: i64| duration(u64::try_from(now.saturating_sub(ms)).unwrap_or(0));
    let mut words = format!("{} for {}", status.link, since(status.link_since_ms));
    if let Some(at) = status.link_retry_at_ms {
        let wait = u64::try_from(at.saturating_sub(now)).unwrap_or(0);
        let _ = write!(words, ", next dial in {}", duration(wait));
    }
    if !status.platforms.is_empty() {
        let _ = write!(words, "; platforms: {}", printable(&status.platforms.join(", ")));
    }
    if let Some(loss) = &status.last_loss {
        let _ = write!(words, "; last loss: {}", printable(loss));
    }
    words
}

fn session_words(session: &SessionStatus) -> String {
    let mut words = format!("{} {}", printable(&session.session), session.state);
    if let Some(ms) = session.running_ms {
        let _ = write!(words, " for {}", duration(ms));
    }
    if let Some(agent) = &session.agent {
        let _ = write!(words, " with {agent}");
    }
    match session.waiting {
        0 => words,
        1 => words + "; 1 message waits",
        waiting => format!("{words}; {waiting} messages wait"),
    }
}

/// Announces how long the shutdown waits for turns, and how to end it now.
pub(super) async fn announce_wait(relay: RelayHandle, drain: Duration) {
    let running = match timeout(DUMP_TIMEOUT, relay.status()).await {
        Ok(Ok(status)) => status.turns_running,
        Ok(Err(NotRunning)) | Err(_) => return,
    };
    let turns = match running {
        0 => return,
        1 => "1 turn".to_owned(),
        running => format!("{running} turns"),
    };
    tracing::info!(
        "waiting up to {} s for {turns}; press Ctrl-C again to quit now",
        drain.as_secs()
    );
}
