//! Installs the adapter of an agent whose own program is here, after a yes.

use std::process::{Command, Stdio};

use super::InitFailure;
use super::menu::agrees;
use crate::agent::acp::PRESETS;
use crate::cli::exit::{self, outln};

/// Offers to install the adapter of a preset, and does it after a yes.
pub(super) fn offer(name: &str, title: &str) -> Result<(), InitFailure> {
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    let install = preset.map_or("", |preset| preset.install);
    let by_hand = format!("install it with `{install}`, and run `hermes-relay init` again");
    outln!("{title} is installed. Other programs drive it through an adapter, which is not.");
    if !agrees(&format!("Install it now with `{install}`?")) {
        let what = format!("{name} cannot be used without its adapter");
        return Err(InitFailure::new(exit::FAILED, what, by_hand));
    }
    let mut words = install.split_whitespace();
    let program = words.next().unwrap_or_default();
    let ran = Command::new(program).args(words).stdin(Stdio::null()).status();
    match ran {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(InitFailure::new(
            exit::FAILED,
            format!("`{install}` failed: {status}"),
            by_hand,
        )),
        Err(error) => Err(InitFailure::new(
            exit::FAILED,
            format!("cannot run `{program}`: {error}"),
            "install Node.js, which has npm (https://nodejs.org), and run `hermes-relay init` again",
        )),
    }
}
