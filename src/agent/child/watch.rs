//! Sees that a process has ended without reaping it, so that its group can still be signalled.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::io::unix::AsyncFd;

/// How often it is looked where the system does not tell.
const LOOK: Duration = Duration::from_millis(20);

/// How the end of a process is noticed.
#[derive(Debug)]
pub(super) enum ExitWatch {
    /// The system tells: the descriptor becomes readable.
    Told(AsyncFd<OwnedFd>),
    /// By looking.
    Looking(Pid),
}

impl ExitWatch {
    /// Watches a child that is not reaped yet.
    pub(super) fn on(pid: Pid) -> Self {
        told(pid).map_or(Self::Looking(pid), Self::Told)
    }

    /// Waits for the end. Cancel-safe: the end stays to be seen.
    pub(super) async fn exited(&self) {
        match self {
            Self::Told(descriptor) => {
                // The readiness is not cleared: a process ends once.
                if descriptor.readable().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            Self::Looking(pid) => {
                while !has_exited(*pid) {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[expect(
    deprecated,
    reason = "the other constructor is unsafe, for types that may close their descriptor; an OwnedFd keeps it"
)]
fn told(pid: Pid) -> Option<AsyncFd<OwnedFd>> {
    use rustix::process::{PidfdFlags, pidfd_open};
    use tokio::io::Interest;

    let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    AsyncFd::with_interest(descriptor, Interest::READABLE).ok()
}

#[cfg(not(target_os = "linux"))]
fn told(_pid: Pid) -> Option<AsyncFd<OwnedFd>> {
    None
}

fn has_exited(pid: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), look) {
        Ok(status) => status.is_some(),
        // No such child: it is gone, however that came.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_ways_see_the_end_and_leave_the_process_to_be_reaped() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "read line"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let watches = [ExitWatch::on(pid), ExitWatch::Looking(pid)];
        assert!(matches!(watches[0], ExitWatch::Told(_)) || !cfg!(target_os = "linux"));
        for watch in &watches {
            let early = tokio::time::timeout(Duration::from_millis(50), watch.exited()).await;
            assert!(early.is_err(), "it still reads");
        }
        drop(child.stdin.take());
        for watch in &watches {
            tokio::time::timeout(Duration::from_secs(10), watch.exited())
                .await
                .expect("it has ended");
        }
        assert!(child.try_wait().unwrap().is_some(), "nobody reaped it before");
    }
}
