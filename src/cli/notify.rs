//! The service manager's ear: what systemd is told while `run` serves, and the proof that it still serves.
//!
//! One datagram per fact, to the socket that `NOTIFY_SOCKET` names: a path, or an abstract name after `@`. Nothing is
//! told where there is no such socket. It never waits long for the manager, never fails the relay, and never lets
//! text from outside begin a line of its own.

use std::convert::Infallible;
use std::future::Future;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::net::UnixDatagram;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Environment;
use crate::relay::LinkView;

/// How long the manager may take to have room for a datagram; then it is not told.
const PATIENCE: Duration = Duration::from_millis(500);
/// The longest status, in characters; it is one line in `systemctl status`.
const STATUS_CHARS: usize = 200;

/// What the manager is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The settings are sound and the journal is open.
    Ready,
    /// The settings are being read again; `Ready` follows.
    Reloading,
    /// The end has begun.
    Stopping,
    /// How the link stands, for people.
    Status(String),
    /// Somebody looked, and the relay answered.
    Alive,
}

impl Notice {
    /// As it goes out: lines of `NAME=value`.
    fn text(&self) -> String {
        match self {
            Self::Ready => "READY=1".to_owned(),
            Self::Reloading => {
                let now = clock_gettime(ClockId::Monotonic);
                let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
                format!("RELOADING=1\nMONOTONIC_USEC={micros}")
            }
            Self::Stopping => "STOPPING=1".to_owned(),
            Self::Status(status) => format!("STATUS={}", one_line(status)),
            Self::Alive => "WATCHDOG=1".to_owned(),
        }
    }
}

/// The way to the service manager, where there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct Manager {
    socket: Option<SocketAddr>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// What the environment says of it; `own_pid` decides whether the watchdog is meant for us.
    pub(super) fn of(env: Environment<'_>, own_pid: u32) -> Self {
        let socket = env("NOTIFY_SOCKET").and_then(|name| address(&name));
        let ours = env("WATCHDOG_PID").is_none_or(|pid| pid.trim().parse() == Ok(own_pid));
        let micros = env("WATCHDOG_USEC").and_then(|micros| micros.trim().parse().ok());
        let watchdog = micros
            .filter(|micros| *micros > 0 && ours)
            .map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// Tells the manager, if it listens.
    pub(super) async fn tell(&self, notice: &Notice) {
        let Some(socket) = &self.socket else { return };
        match timeout(PATIENCE, send(socket, &notice.text())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the service manager cannot be told"),
            Err(_) => tracing::debug!("the service manager does not listen"),
        }
    }

    /// Tells how the link stands whenever that changes. Never ends.
    pub(super) async fn follow(&self, mut link: watch::Receiver<LinkView>) -> Infallible {
        let mut told = String::new();
        while self.socket.is_some() {
            let now = standing(&link.borrow_and_update());
            if now != told {
                self.tell(&Notice::Status(now.clone())).await;
                told = now;
            }
            if link.changed().await.is_err() {
                break;
            }
        }
        std::future::pending().await
    }

    /// Feeds the watchdog, twice in its time, with what `look` finds: somebody who does not answer before the next
    /// look is not alive, and the manager is told nothing. Never ends.
    pub(super) async fn watch<F: Future<Output = bool>>(&self, look: impl Fn() -> F) -> Infallible {
        let (Some(_), Some(limit)) = (&self.socket, self.watchdog) else {
            return std::future::pending().await;
        };
        let pace = (limit / 2).max(Duration::from_millis(1));
        let mut beat = interval(pace);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            if timeout(pace, look()).await == Ok(true) {
                self.tell(&Notice::Alive).await;
            } else {
                tracing::error!("the relay does not answer; the service manager's watchdog is not fed");
            }
        }
    }
}

/// A path or an abstract name; other kinds of address are not for datagrams on this machine.
fn address(name: &str) -> Option<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => abstract_address(name),
        None if name.starts_with('/') => SocketAddr::from_pathname(name).ok(),
        None => None,
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> Option<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name).ok()
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &str) -> Option<SocketAddr> {
    None
}

/// A socket for each datagram: the manager may have been restarted since the last.
async fn send(socket: &SocketAddr, text: &str) -> std::io::Result<()> {
    let own = std::os::unix::net::UnixDatagram::unbound()?;
    own.connect_addr(socket)?;
    own.set_nonblocking(true)?;
    UnixDatagram::from_std(own)?.send(text.as_bytes()).await.map(drop)
}

fn standing(link: &LinkView) -> String {
    let why = || link.last_loss.as_deref().unwrap_or("not dialled yet");
    match link.state.as_str() {
        "live" => {
            let platforms: Vec<_> = link.descriptors.iter().map(|(platform, _)| platform).collect();
            format!("connected: {}", platforms.join(", "))
        }
        "" => "starting".to_owned(),
        "waiting" => format!("not connected: {}", why()),
        "revoked" => "revoked by the connector: enrol again with `hermes-relay enroll`".to_owned(),
        other => other.to_owned(),
    }
}

fn one_line(text: &str) -> String {
    let plain = text
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char });
    plain.take(STATUS_CHARS).collect()
}

#[cfg(test)]
#[path = "notify/tests.rs"]
mod tests;
