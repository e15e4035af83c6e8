//! The `sd_notify` protocol: readiness, status and watchdog messages to the service manager.
//!
//! One datagram per message, to the socket in `NOTIFY_SOCKET`: a path, or an abstract name after `@`. Without that variable
//! nothing is sent. Sending has a timeout, never fails the relay, and never lets text from outside start a new line. The
//! crate `sd-notify` does not serve: it takes an abstract name for a path, reads the process environment at every call, where
//! tests cannot name a socket, and waits for a stalled manager without limit.

use std::convert::Infallible;
use std::future::Future;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::net::UnixDatagram;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Environment;
use crate::relay::LinkStatus;
use crate::text::is_unprintable;

/// Timeout of a datagram; then it is dropped.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum length of a status in characters: one line in `systemctl status`.
const MAX_STATUS: usize = 200;

/// A message to the service manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notification {
    /// The settings are valid and the journal is open.
    Ready,
    /// The settings are being reloaded; `Ready` follows.
    Reloading,
    /// Shutdown has started.
    Stopping,
    /// The state of the link, for people.
    Status(String),
    /// The relay responded.
    Alive,
}

impl Notification {
    /// Lines of `NAME=value`.
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

/// The service manager, if there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceManager {
    socket: Option<SocketAddr>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Reads the environment; `own_pid` decides whether the watchdog is meant for us.
    pub(super) fn from_env(env: Environment<'_>, own_pid: u32) -> Self {
        let socket = env("NOTIFY_SOCKET").and_then(|name| address(&name));
        let is_ours = env("WATCHDOG_PID").is_none_or(|pid| pid.trim().parse() == Ok(own_pid));
        let micros = env("WATCHDOG_USEC").and_then(|micros| micros.trim().parse().ok());
        let watchdog = micros
            .filter(|micros| *micros > 0 && is_ours)
            .map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// Sends a message, if there is a manager.
    pub(super) async fn notify(&self, notification: &Notification) {
        let Some(socket) = &self.socket else { return };
        match timeout(SEND_TIMEOUT, send(socket, &notification.text())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "cannot notify the service manager"),
            Err(_) => tracing::debug!("notifying the service manager timed out"),
        }
    }

    /// Reports each change of the link's state. Never returns.
    pub(super) async fn report_link(&self, mut link: watch::Receiver<LinkStatus>) -> Infallible {
        let mut last = String::new();
        while self.socket.is_some() {
            let now = link_status(&link.borrow_and_update());
            if now != last {
                self.notify(&Notification::Status(now.clone())).await;
                last = now;
            }
            if link.changed().await.is_err() {
                break;
            }
        }
        std::future::pending().await
    }

    /// Feeds the watchdog twice per interval, as long as `is_alive` responds in time. Never returns.
    pub(super) async fn watchdog<F: Future<Output = bool>>(&self, is_alive: impl Fn() -> F) -> Infallible {
        let (Some(_), Some(limit)) = (&self.socket, self.watchdog) else {
            return std::future::pending().await;
        };
        let period = (limit / 2).max(Duration::from_millis(1));
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if timeout(period, is_alive()).await == Ok(true) {
                self.notify(&Notification::Alive).await;
            } else {
                tracing::error!("the relay does not respond; not feeding the service manager's watchdog");
            }
        }
    }
}

/// A path or an abstract name; other addresses are not supported.
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

/// Uses a new socket for each datagram: the manager may have been restarted.
async fn send(socket: &SocketAddr, text: &str) -> std::io::Result<()> {
    let own = std::os::unix::net::UnixDatagram::unbound()?;
    own.connect_addr(socket)?;
    own.set_nonblocking(true)?;
    UnixDatagram::from_std(own)?.send(text.as_bytes()).await.map(drop)
}

fn link_status(link: &LinkStatus) -> String {
    let why = || link.last_loss.as_deref().unwrap_or("not dialled yet");
    match link.state.as_str() {
        "live" => {
            let platforms: Vec<_> = link.descriptors.iter().map(|(platform, _)| platform).collect();
            format!("connected: {}", platforms.join(", "))
        }
        "" => "starting".to_owned(),
        "waiting" => format!("not connected: {}", why()),
        "revoked" => "revoked by the connector: enroll again with `hermes-relay enroll`".to_owned(),
        other => other.to_owned(),
    }
}

fn one_line(text: &str) -> String {
    let plain = text
        .chars()
        .map(|char| if is_unprintable(char) { ' ' } else { char });
    plain.take(MAX_STATUS).collect()
}

#[cfg(test)]
mod tests;
