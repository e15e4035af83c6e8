//! The first process of a container: starts the same program again as its child, and does an init's two duties for it.
//!
//! The kernel hands every orphan to process 1, which must reap it, and gives process 1 no default signals. Reaping
//! "any child" in the relay itself would take the exits of its agents away from whoever waits for them, so the two
//! are two processes: this one forwards signals and reaps, the other is an ordinary process. It ends with the exit
//! code of the relay. It reads no settings, holds no secret of its own, and never starts anything else.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::exit::{self, fail};

/// What is passed on. Everything else the kernel keeps from process 1 by itself.
const FORWARDED: [(SignalKind, Signal); 6] = [
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
];

/// Added to a signal's number where a shell tells that a program was ended by it.
const BY_SIGNAL: i32 = 128;

/// Whether this is process 1 of its namespace.
pub(super) fn is_first() -> bool {
    getpid().is_init()
}

/// Starts this program again and looks after it until it ends. Nothing when it cannot be started again, as where
/// `/proc` is not mounted: then it has to do without an init.
pub(super) fn run(vars: &[(OsString, OsString)]) -> Option<ExitCode> {
    let program = std::env::current_exe().ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let mut command = Command::new(program);
    // A group of its own: what a terminal sends to the foreground reaches it once, not once more through us.
    command
        .args(std::env::args_os().skip(1))
        .env_clear()
        .envs(vars.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    Some(runtime.block_on(look_after(command)))
}

async fn look_after(mut command: Command) -> ExitCode {
    let cannot = |what: &str, error: std::io::Error| {
        fail(exit::OUR_FAULT, format!("process 1 cannot {what}: {error}"), None)
    };
    let mut told = match FORWARDED
        .into_iter()
        .map(|(kind, forward)| Ok((signal(kind)?, forward)))
        .collect::<std::io::Result<Vec<_>>>()
    {
        Ok(told) => told,
        Err(error) => return cannot("listen for signals", error),
    };
    let mut ends = match signal(SignalKind::child()) {
        Ok(ends) => ends,
        Err(error) => return cannot("listen for the end of its children", error),
    };
    let child = match command.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => return cannot("start the relay", error),
    };
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        // Without it Ctrl-C would not arrive; a container with a terminal that is not ours goes on without.
        let _ = rustix::termios::tcsetpgrp(&stdin, child);
    }
    loop {
        if let Some(code) = reap(child) {
            return code;
        }
        let signals = told.iter_mut().map(|(signal, forward)| {
            Box::pin(async move {
                signal.recv().await;
                *forward
            })
        });
        tokio::select! {
            biased;
            // Dropping the others is harmless: a signal that was not received stays to be received.
            (forward, ..) = futures_util::future::select_all(signals) => {
                // It has not been reaped, so the number is its own.
                let _ = kill_process(child, forward);
            }
            _ = ends.recv() => {}
        }
    }
}

/// Reaps everything that has ended; the exit code when the relay is among it.
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
        .or_else(|| status.terminating_signal().map(|signal| BY_SIGNAL + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::from(exit::OUR_FAULT), ExitCode::from)
}
