//! Why a verb that logs cannot go on: told on standard error like every error, behind the log's net, and as an error to
//! the journal where that reads standard error.

use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};
use std::process::ExitCode;

use super::journald::is_stream;
use super::secrets::without_settings;
use super::veil::{Net, Veil};
use crate::cli::{Environment, Surround};

/// What the journal takes for the level of a line that begins with it: an error.
const ERROR: &str = "<3>";

/// Tells why it cannot go on.
#[derive(Clone)]
pub(in crate::cli) struct Complaints {
    net: Net,
    prefix: &'static str,
}

impl Complaints {
    /// Before there are settings: behind what can be known without them.
    pub(in crate::cli) fn early(surround: &Surround<'_>) -> Self {
        Self::behind(Net::over(without_settings(surround)), surround.env)
    }

    /// Behind this net.
    pub(super) fn behind(net: Net, env: Environment<'_>) -> Self {
        let read = env("JOURNAL_STREAM").is_some_and(|named| is_stream(&named, io::stderr()));
        let prefix = if read { ERROR } else { "" };
        Self { net, prefix }
    }

    /// Tells what failed and what to do, and gives the exit code back.
    pub(in crate::cli) fn fail(&self, code: u8, what: impl Display, hint: Option<&str>) -> ExitCode {
        let told = told(&self.net.veil(), self.prefix, &what.to_string(), hint);
        // Nobody reads it any more: the exit code still tells.
        let _ = anstream::stderr().lock().write_all(told.as_bytes());
        ExitCode::from(code)
    }
}

/// Every line of it, with what it begins with.
fn told(veil: &Veil, prefix: &str, what: &str, hint: Option<&str>) -> String {
    let mut told = format!("error: {what}");
    if let Some(hint) = hint {
        // Writing to a String does not fail.
        let _ = write!(told, "\nhint: {hint}");
    }
    let hidden = veil.hide_text(&told);
    hidden.lines().flat_map(|line| [prefix, line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::logging::veil::Known;

    #[test]
    fn what_is_secret_is_hidden_and_every_line_is_an_error_to_the_journal() {
        let veil = Veil::over(vec![Known {
            name: "secret".to_owned(),
            value: "hush-hush-hush".into(),
        }]);
        let what = "`hush-hush-hush` is no level\nnor is this";
        assert_eq!(
            told(&veil, ERROR, what, Some("not hush-hush-hush")),
            "<3>error: `<hidden>` is no level\n<3>nor is this\n<3>hint: not <hidden>\n"
        );
        assert_eq!(told(&veil, "", "plain", None), "error: plain\n");
    }
}
