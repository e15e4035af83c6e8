//! Process 1 of a container: starts this program again as its child, forwards signals and reaps orphans.
//!
//! The kernel makes process 1 the parent of every orphan, which it must reap, and gives it no default signal handlers.
//! Reaping any child in the relay itself would steal the exits of its agents, so there are two processes. Process 1 exits
//! with the exit code of the relay. It reads no settings and starts nothing else.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::exit::{self, fail};

/// Signals that are forwarded; the kernel blocks the others for process 1.
const FORWARDED: [(SignalKind, Signal); 6] = [
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
];

/// Added to a signal's number in the exit code of a program that it killed.
const SIGNAL_BASE: i32 = 128;

/// Whether this is process 1 of its namespace.
pub(super) fn is_first() -> bool {
    getpid().is_init()
}

/// Starts this program again and supervises it. `None` if it cannot be started again, for instance without `/proc`: then
/// it runs without an init.
pub(super) fn run(vars: &[(OsString, OsString)]) -> Option<ExitCode> {
    let program = std::env::current_exe().ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let mut command = Command::new(program);
    // A process group of its own: a terminal's signal reaches it once, not a second time through us.
    command
        .args(std::env::args_os().skip(1))
        .env_clear()
        .envs(vars.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    Some(runtime.block_on(supervise(command)))
}

async fn supervise(mut command: Command) -> ExitCode {
    let cannot = |what: &str, error: std::io::Error| {
        fail(exit::INTERNAL, format!("process 1 cannot {what}: {error}"), None)
    };
    let mut forwarded = match FORWARDED
        .into_iter()
        .map(|(kind, forward)| Ok((signal(kind)?, forward)))
        .collect::<std::io::Result<Vec<_>>>()
    {
        Ok(forwarded) => forwarded,
        Err(error) => return cannot("listen for signals", error),
    };
    let mut exits = match signal(SignalKind::child()) {
        Ok(exits) => exits,
        Err(error) => return cannot("listen for exits of its children", error),
    };
    let child = match command.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => return cannot("start the relay", error),
    };
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        // Needed for Ctrl-C; ignored in a container with a terminal that is not ours.
        let _ = rustix::termios::tcsetpgrp(&stdin, child);
    }
    loop {
        if let Some(code) = reap(child) {
            return code;
        }
        let signals = forwarded.iter_mut().map(|(signal, forward)| {
            Box::pin(async move {
                signal.recv().await;
                *forward
            })
        });
        tokio::select! {
            biased;
            // Dropping the others is harmless: an unreceived signal stays pending.
            (forward, ..) = futures_util::future::select_all(signals) => {
                // It has not been reaped, so the pid is still its own.
                let _ = kill_process(child, forward);
            }
            _ = exits.recv() => {}
        }
    }
}

/// Reaps all exited children; returns the exit code of the relay if it is among them.
fn reap(child: Pid) -> Option<ExitCode> {
    while let Ok(Some((ended, status))) = wait(WaitOptions::NOHANG) {
        if ended == child {
            return Some(code(status));
        }
    }
    None
}

fn code(status: WaitStatus) -> ExitCode {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| SIGNAL_BASE + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::from(exit::INTERNAL), ExitCode::from)
}
