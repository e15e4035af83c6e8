//! The relay where it is hosted: under a service manager, as process 1, in a package; and the documents about it.
//!
//! What needs root, systemd's tools or a package tool says so loudly where it is missing, and passes. With
//! `HOSTING_TESTS=required` a manager that was brought up in namespaces of its own has to come to work, too.

mod containers;
mod documents;
mod journal;
mod machine;
mod manager;
mod names;
mod notify;
mod package_install;
mod packages;
mod process_one;
mod system_agents;
mod system_relay;
mod units;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use crate::support::skip::skip;

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
        skip(&format!("{program} is not installed"));
    }
    there
}

/// Whether we may do what only root may; says so loudly when not.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("this needs root");
    }
    root
}

/// Says loudly that something cannot be had here. Once it could be `begun`, that is a failure where somebody said that
/// it must go on.
fn cannot_be(begun: bool, why: &str) {
    let required = std::env::var("HOSTING_TESTS").is_ok_and(|word| word == "required");
    assert!(!(begun && required), "{why}");
    skip(why);
}

/// A command that ends with the thread that starts it, however that ends, where there is a tool for it.
fn tied(program: &str) -> Command {
    static PREFIX: LazyLock<&[&str]> = LazyLock::new(|| {
        let prefix: &[&str] = &["setpriv", "--pdeathsig", "KILL"];
        let tried = Command::new(prefix[0]).args(&prefix[1..]).arg("true").output();
        if tried.is_ok_and(|tried| tried.status.success()) {
            prefix
        } else {
            &[]
        }
    });
    let mut prefix = PREFIX.iter().copied().chain([program]);
    let mut command = Command::new(prefix.next().unwrap());
    command.args(prefix);
    command
}

/// What a command printed on both streams, and whether it went well.
fn run_command(command: &mut Command) -> (bool, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = [stdout, stderr].concat();
    (status.success(), String::from_utf8_lossy(&text).into_owned())
}
