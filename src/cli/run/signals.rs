//! The signals that tell a running relay something.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// SIGTERM or SIGINT: finish, and end.
    Stop,
    /// SIGUSR1: finish, and end so that the supervisor starts us again.
    Restart,
    /// SIGHUP: read the settings again.
    Reload,
    /// SIGUSR2: tell the log how everything stands.
    Dump,
}

/// The signals that are listened to.
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

    /// The next one. Cancel-safe: a signal is taken only when it is given.
    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.user1.recv() => Told::Restart,
            _ = self.hangup.recv() => Told::Reload,
            _ = self.user2.recv() => Told::Dump,
        }
    }

    /// The next one that is about the end; those before it find nothing to do yet.
    pub(super) async fn next_end(&mut self) -> Told {
        loop {
            match self.next().await {
                told @ (Told::Stop | Told::Restart) => return told,
                Told::Reload | Told::Dump => {}
            }
        }
    }
}
