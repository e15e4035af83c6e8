//! The relay where it is hosted: under a service manager, as process 1, in a package; and the documents about it.
//!
//! What needs root, systemd's tools or a package tool says so loudly where it is missing, and passes.
#![cfg(feature = "dev")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[path = "../support/relay_process.rs"]
mod relay_process;
#[path = "../support/tls_front.rs"]
mod tls_front;

mod containers;
mod documents;
mod journal;
mod machine;
mod manager;
mod names;
mod notify;
mod package_story;
mod packages;
mod process_one;
mod system_agents;
mod system_relay;
mod units;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_hermes-relay");

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether a program is there to be run; says so loudly when it is not.
fn has(program: &str) -> bool {
    let there = std::env::var("PATH").is_ok_and(|path| {
        path.split(':')
            .any(|folder| Path::new(folder).join(program).is_file())
    });
    if !there {
        eprintln!("SKIPPED: {program} is not installed");
    }
    there
}

/// Whether we may do what only root may; says so loudly when not.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: this needs root");
    }
    root
}

/// What a command printed on both streams, and whether it went well.
fn said(command: &mut Command) -> (bool, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = [stdout, stderr].concat();
    (status.success(), String::from_utf8_lossy(&text).into_owned())
}
