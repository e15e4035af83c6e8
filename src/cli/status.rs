//! `hermes-relay status`: how a running relay stands.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::Environment;
use super::asking::RelayArgs;
use super::exit::{self, printed};
use super::words::{megabytes, span, spelled};
use crate::serve::request::Ask;

/// A difference of clocks that is worth a line; the link corrects for it.
const NOTABLE_SKEW_MS: u64 = 5_000;
/// Between two looks of --watch.
const LOOK: Duration = Duration::from_secs(2);

/// Tell how a running relay stands: link, platforms, sessions, journal, agents, counts.
///
/// Exit codes: 0 told, 69 no relay is running here, 78 the configuration cannot be used. Whether it is connected is
/// `hermes-relay health`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay status\n  hermes-relay status --watch\n  \
                  hermes-relay status --json | jq .link\n  hermes-relay status --state-dir /var/lib/hermes-relay"
)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    relay: RelayArgs,
    /// Again every two seconds, until interrupted.
    #[arg(long)]
    watch: bool,
}

/// Runs the verb.
pub(super) fn run(args: &StatusArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.relay.found(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let mut seen = false;
    loop {
        let told = match relay.ask(&Ask::Status) {
            Ok(status) => {
                seen = true;
                show(&status, args)
            }
            // Who watches sees it come back.
            Err(error) if seen => lost(&error, args),
            Err(error) => return relay.tell(&error, None),
        };
        if told.is_err() || !args.watch {
            return printed(told);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "time passing is what a watcher waits for"
        )]
        std::thread::sleep(LOOK);
    }
}

fn show(status: &Value, args: &StatusArgs) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    if args.relay.json {
        writeln!(out, "{status}")?;
    } else {
        if args.watch {
            // The line parts two pages where the terminal is sent no commands.
            write!(out, "\n\x1b[H\x1b[2J")?;
        }
        write!(out, "{}", Page(status))?;
    }
    out.flush()
}

fn lost(error: &dyn std::fmt::Display, args: &StatusArgs) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    if args.relay.json {
        let error = json!({"exit_code": exit::UNAVAILABLE, "message": error.to_string(), "hint": null});
        writeln!(out, "{}", json!({ "error": error }))?;
    } else {
        writeln!(out, "{}", spelled(&error.to_string()))?;
    }
    out.flush()
}

/// A status for people.
struct Page<'a>(&'a Value);

impl Page<'_> {
    fn number(&self, path: &str) -> u64 {
        self.0.pointer(path).and_then(Value::as_u64).unwrap_or(0)
    }

    fn text(&self, path: &str) -> Option<String> {
        self.0.pointer(path).and_then(Value::as_str).map(spelled)
    }

    /// How long ago a moment was.
    fn since(&self, path: &str) -> Option<String> {
        let at = self.0.pointer(path)?.as_i64()?;
        let now = self.0["now_ms"].as_i64()?;
        Some(span(u64::try_from(now.saturating_sub(at)).unwrap_or(0)))
    }

    /// The link in a sentence, coloured by whether messages come in.
    fn link(&self) -> String {
        let state = self.text("/link").unwrap_or_default();
        let colour = match (state.as_str(), self.0["ready"].as_bool()) {
            (_, Some(true)) => 32,
            ("revoked" | "closed", _) => 31,
            _ => 33,
        };
        // Writing to a String does not fail.
        let mut told = format!("\x1b[{colour}m{state}\x1b[0m");
        if let Some(since) = self.since("/link_since_ms") {
            let _ = write!(told, " for {since}");
        }
        let (retry, now) = (self.0["link_retry_at_ms"].as_i64(), self.0["now_ms"].as_i64());
        if let (Some(retry), Some(now)) = (retry, now) {
            let wait = u64::try_from(retry.saturating_sub(now)).unwrap_or(0);
            let _ = write!(told, ", next dial in {}", span(wait));
        }
        if self.0["shutting_down"] == true {
            told += ", shutting down";
        }
        told
    }

    fn journal(&self) -> String {
        if self.0["journal"].is_null() {
            return "cannot be read".to_owned();
        }
        let mut told = format!(
            "{} waiting, {} running, {} owed",
            self.number("/journal/waiting"),
            self.number("/journal/running"),
            self.number("/journal/owed")
        );
        let oldest = [
            ("message", "/journal/oldest_message_at_ms"),
            ("op", "/journal/oldest_op_at_ms"),
        ];
        for (what, path) in oldest {
            if let Some(since) = self.since(path) {
                let _ = write!(told, "; the oldest {what} is {since} old");
            }
        }
        if let Some(why) = self.text("/journal_failing") {
            let _ = write!(told, "; \x1b[31mcannot be written: {why}\x1b[0m");
        }
        told
    }
}

impl std::fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let memory = self.0["rss_bytes"].as_u64().map(megabytes);
        writeln!(
            f,
            "relay     {}, pid {}, up {}{}",
            self.text("/version").unwrap_or_default(),
            self.number("/pid"),
            span(self.number("/uptime_secs") * 1000),
            memory.map(|memory| format!(", {memory}")).unwrap_or_default()
        )?;
        if let Some(connector) = self.text("/connector") {
            let gateway = self.text("/gateway_id");
            let gateway =
                gateway.map_or_else(|| ", without credentials".to_owned(), |id| format!(" as {id}"));
            writeln!(f, "connector {connector}{gateway}")?;
        }
        writeln!(f, "link      {}", self.link())?;
        if let Some(loss) = self.text("/last_loss") {
            writeln!(f, "last loss {loss}")?;
        }
        for descriptor in self.0["descriptors"].as_array().into_iter().flatten() {
            let word = |key: &str| descriptor[key].as_str().map(spelled).unwrap_or_default();
            let ops = descriptor["ops"].as_array().into_iter().flatten();
            let ops: Vec<_> = ops.filter_map(Value::as_str).map(spelled).collect();
            writeln!(
                f,
                "platform  {} ({}): {}",
                word("platform"),
                word("label"),
                ops.join(", ")
            )?;
        }
        let (active, running) = (self.number("/sessions_active"), self.number("/turns_running"));
        let waiting = active.saturating_sub(running);
        writeln!(f, "sessions  {running} running, {waiting} waiting")?;
        match self.number("/prompts_open") {
            0 => {}
            1 => writeln!(f, "questions 1 waits for a person")?,
            open => writeln!(f, "questions {open} wait for people")?,
        }
        writeln!(f, "journal   {}", self.journal())?;
        for agent in self.0["agents"].as_array().into_iter().flatten() {
            let word = |key: &str| agent[key].as_str().map(spelled);
            let why = word("why").map(|why| format!(": {why}")).unwrap_or_default();
            let (name, kind) = (word("name").unwrap_or_default(), word("kind").unwrap_or_default());
            writeln!(
                f,
                "agent     {name} ({kind}) {}{why}",
                word("state").unwrap_or_default()
            )?;
        }
        let skew = self.0["clock_skew_ms"].as_i64().unwrap_or(0);
        if skew.unsigned_abs() > NOTABLE_SKEW_MS {
            let side = if skew > 0 { "ahead of" } else { "behind" };
            writeln!(
                f,
                "clock     the connector's is {} {side} this machine's",
                span(skew.unsigned_abs())
            )?;
        }
        let tally = |key: &str| self.number(&format!("/tally/{key}"));
        writeln!(
            f,
            "turns     {} done, {} stopped, {} failed, {} cut short",
            tally("turns_done"),
            tally("turns_stopped"),
            tally("turns_failed"),
            tally("turns_interrupted")
        )?;
        writeln!(
            f,
            "messages  {} in, {} acknowledged, {} duplicates, {} set aside",
            tally("inbound"),
            tally("acks"),
            tally("duplicates"),
            tally("quarantined")
        )?;
        writeln!(
            f,
            "ops       {} done, {} refused, {} unknown, {} dropped",
            tally("ops_applied"),
            tally("ops_refused"),
            tally("ops_unknown"),
            tally("cosmetics_shed")
        )?;
        if tally("quarantined") > 0 {
            writeln!(
                f,
                "          what was set aside: hermes-relay journal list --section quarantine"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connector_calls_itself_moves_no_cursor() {
        let status = json!({
            "link": "waiting", "link_since_ms": 1_000, "link_retry_at_ms": 9_000, "now_ms": 4_000,
            "last_loss": "it said \u{1b}[2J", "descriptors": [{"platform": "x\n", "label": "\u{7}", "ops": ["a\r"]}],
        });
        let page = Page(&status).to_string();
        assert!(page.contains("for 3 s, next dial in 5 s"), "{page}");
        let told = page.replace("\u{1b}[33m", "").replace("\u{1b}[0m", "");
        assert!(!told.contains(|c: char| c.is_control() && c != '\n'), "{told:?}");
        assert!(told.contains("it said \\u{1b}[2J"), "{told}");
    }
}
