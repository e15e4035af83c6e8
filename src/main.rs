//! The `hermes-relay` binary: hands the environment to the library and returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    hermes_relay::program(&|name| std::env::var(name).ok(), std::env::vars_os())
}
