//! `hermes-relay status`: the status of a running relay.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::Environment;
use super::exit::{self, finish};
use super::format::{duration, megabytes, printable, stdout};
use super::remote::RemoteArgs;
use crate::serve::ControlRequest;

/// Clock skew that is shown; the link corrects for it.
const NOTABLE_SKEW_MS: u64 = 5_000;
/// Interval of --watch.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Show the status of a running relay: link, platforms, sessions, journal, agents, counters.
///
/// Exit codes: 0 shown, 69 no relay is running here, 78 invalid configuration. To check whether it is connected, use
/// `hermes-relay health`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay status\n  hermes-relay status --watch\n  \
                  hermes-relay status --json | jq .link\n  hermes-relay status --state-dir /var/lib/hermes-relay"
)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Repeat every two seconds until interrupted.
    #[arg(long)]
    watch: bool,
}

/// Runs the verb.
pub(super) fn run(args: &StatusArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.remote.relay(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let mut was_running = false;
    loop {
        let shown = match relay.call(&ControlRequest::Status) {
            Ok(status) => {
                was_running = true;
                show(&status, args)
            }
            // Keep watching until it is back.
            Err(error) if was_running => show_error(&error, args),
            Err(error) => return relay.report(&error, None),
        };
        if shown.is_err() || !args.watch {
            return finish(shown);
        }
        #[expect(clippy::disallowed_methods, reason = "the interval of --watch")]
        std::thread::sleep(WATCH_INTERVAL);
    }
}

fn show(status: &Value, args: &StatusArgs) -> io::Result<()> {
    if args.remote.json {
        writeln!(stdout(), "{status}")?;
        return stdout().flush();
    }
    let mut out = anstream::stdout().lock();
    if args.watch {
        // The newline separates two pages where escape codes are stripped.
        write!(out, "\n\x1b[H\x1b[2J")?;
    }
    write!(out, "{}", StatusView(status))?;
    out.flush()
}

fn show_error(error: &dyn std::fmt::Display, args: &StatusArgs) -> io::Result<()> {
    let mut out = stdout();
    if args.remote.json {
        let error = json!({"exit_code": exit::UNAVAILABLE, "message": error.to_string(), "hint": null});
        writeln!(out, "{}", json!({ "error": error }))?;
    } else {
        writeln!(out, "{}", printable(&error.to_string()))?;
    }
    out.flush()
}

/// Formats a status for people.
struct StatusView<'a>(&'a Value);

impl StatusView<'_> {
    fn number(&self, path: &str) -> u64 {
        self.0.pointer(path).and_then(Value::as_u64).unwrap_or(0)
    }

    fn text(&self, path: &str) -> Option<String> {
        self.0.pointer(path).and_then(Value::as_str).map(printable)
    }

    /// The time since a timestamp.
    fn since(&self, path: &str) -> Option<String> {
        let at = self.0.pointer(path)?.as_i64()?;
        let now = self.0["now_ms"].as_i64()?;
        Some(duration(u64::try_from(now.saturating_sub(at)).unwrap_or(0)))
    }

    /// The link's state, coloured by readiness.
    fn link(&self) -> String {
        let state = self.text("/link").unwrap_or_default();
        let colour = match (state.as_str(), self.0["ready"].as_bool()) {
            (_, Some(true)) => 32,
            ("revoked" | "closed", _) => 31,
            _ => 33,
        };
        // Writing to a String does not fail.
        let mut text = format!("\x1b[{colour}m{state}\x1b[0m");
        if let Some(since) = self.since("/link_since_ms") {
            let _ = write!(text, " for {since}");
        }
        let (retry, now) = (self.0["link_retry_at_ms"].as_i64(), self.0["now_ms"].as_i64());
        if let (Some(retry), Some(now)) = (retry, now) {
            let wait = u64::try_from(retry.saturating_sub(now)).unwrap_or(0);
            let _ = write!(text, ", next dial in {}", duration(wait));
        }
        if self.0["shutting_down"] == true {
            text += ", shutting down";
        }
        text
    }

    /// Scheduled jobs, if there are any.
    fn jobs(&self) -> Option<String> {
        let number = |key: &str| self.0.pointer(key).and_then(Value::as_u64);
        let jobs = number("/cron/jobs").filter(|jobs| *jobs > 0);
        let failure = self.text("/cron/last_failure/1");
        jobs.or(failure.as_ref().map(|_| 0))?;
        let mut line = format!("{} scheduled", jobs.unwrap_or(0));
        if let Some(armed) = number("/cron/armed") {
            let _ = write!(line, ", {armed} armed");
        }
        if let Some(running) = number("/cron/running").filter(|running| *running > 0) {
            let _ = write!(line, ", {running} running");
        }
        if let Some(next) = self.text("/cron/next_run_at") {
            let _ = write!(line, "; the next one at {next}");
        }
        if let Some(why) = self.text("/cron/unavailable") {
            let _ = write!(line, "; \x1b[33mthe managed scheduler is not used: {why}\x1b[0m");
        }
        if let (Some(job), Some(why)) = (self.text("/cron/last_failure/0"), failure) {
            let _ = write!(line, "; \x1b[33m{job} failed last: {why}\x1b[0m");
        }
        Some(line)
    }

    fn journal(&self) -> String {
        if self.0["journal"].is_null() {
            return "cannot be read".to_owned();
        }
        let mut text = format!(
            "{} waiting, {} running, {} ops to send",
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
                let _ = write!(text, "; the oldest {what} is {since} old");
            }
        }
        if let Some(why) = self.text("/journal_failing") {
            let _ = write!(text, "; \x1b[31mcannot be written: {why}\x1b[0m");
        }
        text
    }

    /// What was done so far.
    fn write_counts(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tally = |key: &str| self.number(&format!("/tally/{key}"));
        writeln!(
            f,
            "turns     {} done, {} stopped, {} failed, {} interrupted",
            tally("turns_done"),
            tally("turns_stopped"),
            tally("turns_failed"),
            tally("turns_interrupted")
        )?;
        writeln!(
            f,
            "messages  {} in, {} acknowledged, {} duplicates, {} quarantined",
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
        if let Some(op) = self.text("/last_refusal/op") {
            let error = self.text("/last_refusal/error").unwrap_or_default();
            let since = self.since("/last_refusal/at_ms").unwrap_or_default();
            writeln!(f, "          last refused {since} ago: {op}: {error}")?;
        }
        if tally("quarantined") > 0 {
            writeln!(
                f,
                "          list them with: hermes-relay journal list --section quarantine"
            )?;
        }
        Ok(())
    }
}

impl std::fmt::Display for StatusView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let memory = self.0["rss_bytes"].as_u64().map(megabytes);
        writeln!(
            f,
            "relay     {}, pid {}, up {}{}",
            self.text("/version").unwrap_or_default(),
            self.number("/pid"),
            duration(self.number("/uptime_secs") * 1000),
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
            let text = |key: &str| descriptor[key].as_str().map(printable).unwrap_or_default();
            let ops = descriptor["ops"].as_array().into_iter().flatten();
            let ops: Vec<_> = ops.filter_map(Value::as_str).map(printable).collect();
            writeln!(
                f,
                "platform  {} ({}): {}",
                text("platform"),
                text("label"),
                ops.join(", ")
            )?;
        }
        for platform in self.0["undeclared_platforms"].as_array().into_iter().flatten() {
            let platform = platform.as_str().map(printable).unwrap_or_default();
            writeln!(
                f,
                "          \x1b[31mmessages come from {platform}, which this relay does not announce: add it to \
                 GATEWAY_RELAY_PLATFORMS\x1b[0m"
            )?;
        }
        let (active, running) = (self.number("/sessions_active"), self.number("/turns_running"));
        let waiting = active.saturating_sub(running);
        writeln!(f, "sessions  {running} running, {waiting} waiting")?;
        match self.number("/prompts_open") {
            0 => {}
            1 => writeln!(f, "approvals 1 waits for a person")?,
            open => writeln!(f, "approvals {open} wait for people")?,
        }
        if let Some(mode) = self.text("/access/mode") {
            let warning = self.text("/access/warning");
            let warning = warning.map(|warning| format!("; \x1b[33m{warning}\x1b[0m"));
            writeln!(f, "access    {mode}{}", warning.unwrap_or_default())?;
        }
        if let Some(jobs) = self.jobs() {
            writeln!(f, "jobs      {jobs}")?;
        }
        writeln!(f, "journal   {}", self.journal())?;
        for agent in self.0["agents"].as_array().into_iter().flatten() {
            let text = |key: &str| agent[key].as_str().map(printable);
            let why = text("why").map(|why| format!(": {why}")).unwrap_or_default();
            let (name, kind) = (text("name").unwrap_or_default(), text("kind").unwrap_or_default());
            writeln!(
                f,
                "agent     {name} ({kind}) {}{why}",
                text("state").unwrap_or_default()
            )?;
        }
        let skew = self.0["clock_skew_ms"].as_i64().unwrap_or(0);
        if skew.unsigned_abs() > NOTABLE_SKEW_MS {
            let side = if skew > 0 { "ahead of" } else { "behind" };
            writeln!(
                f,
                "clock     the connector's is {} {side} this machine's",
                duration(skew.unsigned_abs())
            )?;
        }
        self.write_counts(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_the_connector_is_escaped() {
        let status = json!({
            "link": "waiting", "link_since_ms": 1_000, "link_retry_at_ms": 9_000, "now_ms": 4_000,
            "last_loss": "it said \u{1b}[2J", "descriptors": [{"platform": "x\n", "label": "\u{7}", "ops": ["a\r"]}],
        });
        let page = StatusView(&status).to_string();
        assert!(page.contains("for 3 s, next dial in 5 s"), "{page}");
        let text = page.replace("\u{1b}[33m", "").replace("\u{1b}[0m", "");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("it said \\u001b[2J"), "{text}");
    }
}
