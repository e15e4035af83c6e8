//! The status of a relay as rows for people: the same ones in a terminal and on the status page.
//!
//! Reads the report as JSON, because `hermes-relay status` gets it from a relay of another version. Nothing is escaped here:
//! whoever shows a row does that.

use std::fmt::Write as _;

use serde_json::Value;

use crate::text::{duration, megabytes};

/// Clock skew that is shown; the link corrects for it.
const NOTABLE_SKEW_MS: u64 = 5_000;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRow {
    /// What it is about; empty if it belongs to the row above.
    pub label: &'static str,
    /// Its text, in pieces.
    pub pieces: Vec<(Tone, String)>,
}

/// How a piece of text is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A fact.
    Plain,
    /// All is well.
    Good,
    /// Somebody should look.
    Warning,
    /// It does not work.
    Bad,
}

impl StatusRow {
    fn plain(label: &'static str, text: String) -> Self {
        Self {
            label,
            pieces: vec![(Tone::Plain, text)],
        }
    }

    fn with(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.pieces.push((tone, text.into()));
        self
    }
}

/// The rows of a status.
pub fn status_rows(status: &Value) -> Vec<StatusRow> {
    Report(status).rows()
}

/// A status as it is sent over the control socket.
struct Report<'a>(&'a Value);

impl Report<'_> {
    fn number(&self, path: &str) -> u64 {
        self.0.pointer(path).and_then(Value::as_u64).unwrap_or(0)
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.0.pointer(path).and_then(Value::as_str)
    }

    fn list(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.0[key].as_array().into_iter().flatten()
    }

    /// The time since a timestamp.
    fn since(&self, path: &str) -> Option<String> {
        let at = self.0.pointer(path)?.as_i64()?;
        let now = self.0["now_ms"].as_i64()?;
        Some(duration(u64::try_from(now.saturating_sub(at)).unwrap_or(0)))
    }

    fn rows(&self) -> Vec<StatusRow> {
        let mut rows = vec![self.relay()];
        if let Some(connector) = self.text("/connector") {
            let gateway = self.text("/gateway_id");
            let gateway =
                gateway.map_or_else(|| ", without credentials".to_owned(), |id| format!(" as {id}"));
            rows.push(StatusRow::plain("connector", format!("{connector}{gateway}")));
        }
        if let Some(api) = self.text("/telegram/api") {
            let bot = self.0.pointer("/telegram/bot_id").and_then(Value::as_i64);
            let bot = bot.map_or_else(|| "a bot".to_owned(), |id| format!("bot {id}"));
            rows.push(StatusRow::plain(
                "telegram",
                format!("{bot} at {api}, without a connector"),
            ));
        }
        if let Some(api) = self.text("/discord/api") {
            rows.push(StatusRow::plain(
                "discord",
                format!("a bot at {api}, without a connector"),
            ));
        }
        rows.extend(self.cluster());
        if self.text("/role").is_some_and(|role| role != "active") {
            return rows;
        }
        rows.push(self.link());
        if let Some(loss) = self.text("/last_loss") {
            rows.push(StatusRow::plain("last loss", loss.to_owned()));
        }
        rows.extend(self.platforms());
        let (active, running) = (self.number("/sessions_active"), self.number("/turns_running"));
        let waiting = active.saturating_sub(running);
        rows.push(StatusRow::plain(
            "sessions",
            format!("{running} running, {waiting} waiting"),
        ));
        match self.number("/prompts_open") {
            0 => {}
            1 => rows.push(StatusRow::plain("approvals", "1 waits for a person".to_owned())),
            open => rows.push(StatusRow::plain("approvals", format!("{open} wait for people"))),
        }
        if let Some(mode) = self.text("/access/mode") {
            let row = StatusRow::plain("access", mode.to_owned());
            rows.push(match self.text("/access/warning") {
                Some(warning) => row.with(Tone::Plain, "; ").with(Tone::Warning, warning),
                None => row,
            });
        }
        rows.extend(self.jobs());
        rows.push(self.journal());
        rows.extend(self.agents());
        let skew = self.0["clock_skew_ms"].as_i64().unwrap_or(0);
        if skew.unsigned_abs() > NOTABLE_SKEW_MS {
            let side = if skew > 0 { "ahead of" } else { "behind" };
            let skew = duration(skew.unsigned_abs());
            rows.push(StatusRow::plain(
                "clock",
                format!("the connector's is {skew} {side} this machine's"),
            ));
        }
        rows.extend(self.counts());
        rows
    }

    fn relay(&self) -> StatusRow {
        let mut text = format!(
            "{}, pid {}, up {}",
            self.text("/version").unwrap_or_default(),
            self.number("/pid"),
            duration(self.number("/uptime_secs").saturating_mul(1000)),
        );
        if let Some(memory) = self.0["rss_bytes"].as_u64() {
            text = text + ", " + &megabytes(memory);
        }
        StatusRow::plain("relay", text)
    }

    /// The cluster: what this member is, and the others.
    fn cluster(&self) -> Vec<StatusRow> {
        let Some(role) = self.text("/role") else {
            return Vec::new();
        };
        let name = self.text("/cluster/name").unwrap_or_default();
        let tone = if self.text("/cluster/problem").is_some() {
            Tone::Bad
        } else {
            Tone::Good
        };
        let mut rows = vec![StatusRow::plain("cluster", format!("{name}, this relay is ")).with(tone, role)];
        if let Some(problem) = self.text("/cluster/problem") {
            rows.push(StatusRow::plain("", String::new()).with(Tone::Bad, problem));
        }
        if self.0.pointer("/cluster/alone").is_some() {
            let (record, commits) = (
                self.number("/cluster/alone/since_record"),
                self.number("/cluster/alone/commits"),
            );
            let text = format!(
                "without the NATS server since record {record}: {commits} commits are only here, and no standby takes over"
            );
            rows.push(StatusRow::plain("", String::new()).with(Tone::Warning, &text));
        }
        let silent = self.number("/cluster/holder/silent_secs");
        if silent > 0 {
            let holder = self.text("/cluster/holder/name").unwrap_or("the active relay");
            let text = format!("{holder} has not renewed its lease for {silent} s and may be going on alone");
            rows.push(StatusRow::plain("", String::new()).with(Tone::Warning, &text));
            let what = "this relay does not take over by itself; if that one is gone for good: `hermes-relay handover --take` here";
            rows.push(StatusRow::plain("", what.to_owned()));
        }
        let members = self.0.pointer("/cluster/members").and_then(Value::as_array);
        for member in members.into_iter().flatten() {
            let text = |key: &str| member[key].as_str().unwrap_or_default();
            let position = member["position"].as_u64();
            let position =
                position.map_or_else(|| "not in sync".to_owned(), |seq| format!("has record {seq}"));
            let line = format!(
                "{}: {}, {position}, {}",
                text("name"),
                text("role"),
                text("version")
            );
            rows.push(StatusRow::plain("", line));
        }
        rows
    }

    /// The link's state, with a tone by readiness.
    fn link(&self) -> StatusRow {
        let state = self.text("/link").unwrap_or_default();
        let tone = match (state, self.0["ready"].as_bool()) {
            (_, Some(true)) => Tone::Good,
            ("revoked" | "closed", _) => Tone::Bad,
            _ => Tone::Warning,
        };
        let mut more = String::new();
        // Writing to a String does not fail.
        if let Some(since) = self.since("/link_since_ms") {
            let _ = write!(more, " for {since}");
        }
        let (retry, now) = (self.0["link_retry_at_ms"].as_i64(), self.0["now_ms"].as_i64());
        if let (Some(retry), Some(now)) = (retry, now) {
            let wait = u64::try_from(retry.saturating_sub(now)).unwrap_or(0);
            let next = if self.0["telegram"].is_object() {
                "poll"
            } else {
                "dial"
            };
            let _ = write!(more, ", next {next} in {}", duration(wait));
        }
        if self.0["shutting_down"] == true {
            more += ", shutting down";
        }
        StatusRow {
            label: "link",
            pieces: vec![(tone, state.to_owned()), (Tone::Plain, more)],
        }
    }

    fn platforms(&self) -> Vec<StatusRow> {
        let mut rows = Vec::new();
        for descriptor in self.list("descriptors") {
            let text = |key: &str| descriptor[key].as_str().unwrap_or_default();
            let ops = descriptor["ops"].as_array().into_iter().flatten();
            let ops: Vec<_> = ops.filter_map(Value::as_str).collect();
            let text = format!("{} ({}): {}", text("platform"), text("label"), ops.join(", "));
            rows.push(StatusRow::plain("platform", text));
        }
        for platform in self.list("undeclared_platforms") {
            let platform = platform.as_str().unwrap_or_default();
            let what = format!(
                "messages come from {platform}, which this relay does not announce: add it to GATEWAY_RELAY_PLATFORMS"
            );
            rows.push(StatusRow {
                label: "",
                pieces: vec![(Tone::Bad, what)],
            });
        }
        rows
    }

    /// Scheduled jobs, if there are any.
    fn jobs(&self) -> Option<StatusRow> {
        let number = |key: &str| self.0.pointer(key).and_then(Value::as_u64);
        let jobs = number("/cron/jobs").filter(|jobs| *jobs > 0);
        let failure = self.text("/cron/last_failure/1");
        jobs.or(failure.map(|_| 0))?;
        let mut text = format!("{} scheduled", jobs.unwrap_or(0));
        // Writing to a String does not fail.
        if let Some(armed) = number("/cron/armed") {
            let _ = write!(text, ", {armed} will run");
        }
        if let Some(running) = number("/cron/running").filter(|running| *running > 0) {
            let _ = write!(text, ", {running} running");
        }
        if let Some(next) = self.text("/cron/next_run_at") {
            let _ = write!(text, "; the next one at {next}");
        }
        let mut row = StatusRow::plain("jobs", text);
        if let Some(why) = self.text("/cron/unavailable") {
            let what = format!("the managed scheduler is not used: {why}");
            row = row.with(Tone::Plain, "; ").with(Tone::Warning, what);
        }
        if let (Some(job), Some(why)) = (self.text("/cron/last_failure/0"), failure) {
            let what = format!("{job} failed last: {why}");
            row = row.with(Tone::Plain, "; ").with(Tone::Warning, what);
        }
        Some(row)
    }

    fn journal(&self) -> StatusRow {
        if self.0["journal"].is_null() {
            return StatusRow::plain("journal", "cannot be read".to_owned());
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
                // Writing to a String does not fail.
                let _ = write!(text, "; the oldest {what} is {since} old");
            }
        }
        let row = StatusRow::plain("journal", text);
        match self.text("/journal_failing") {
            Some(why) => row
                .with(Tone::Plain, "; ")
                .with(Tone::Bad, format!("cannot be written: {why}")),
            None => row,
        }
    }

    fn agents(&self) -> Vec<StatusRow> {
        let row = |agent: &Value| {
            let text = |key: &str| agent[key].as_str().unwrap_or_default();
            let why = agent["why"].as_str().map(|why| format!(": {why}"));
            let text = format!(
                "{} ({}) {}{}{}",
                text("name"),
                text("kind"),
                text("state"),
                why.unwrap_or_default(),
                processes(&agent["processes"])
            );
            StatusRow::plain("agent", text)
        };
        let pool = |pool: &Value| {
            let workers = pool["workers"].as_array().map_or(&[][..], Vec::as_slice);
            let sum = |key: &str| {
                workers
                    .iter()
                    .filter_map(|worker| worker[key].as_u64())
                    .sum::<u64>()
            };
            let count = match workers.len() {
                1 => "1 worker".to_owned(),
                count => format!("{count} workers"),
            };
            let text = format!(
                "{}: {count}, {} of {} slots busy, {} waiting",
                pool["name"].as_str().unwrap_or_default(),
                sum("running"),
                sum("slots"),
                pool["waiting"].as_u64().unwrap_or_default(),
            );
            StatusRow::plain("pool", text)
        };
        let agents = self.list("agents").map(row);
        agents.chain(self.list("pools").map(pool)).collect()
    }

    fn counts(&self) -> Vec<StatusRow> {
        let tally = |key: &str| self.number(&format!("/tally/{key}"));
        let mut rows = vec![
            StatusRow::plain(
                "turns",
                format!(
                    "{} done, {} stopped, {} failed, {} interrupted",
                    tally("turns_done"),
                    tally("turns_stopped"),
                    tally("turns_failed"),
                    tally("turns_interrupted")
                ),
            ),
            StatusRow::plain(
                "messages",
                format!(
                    "{} in, {} acknowledged, {} duplicates, {} quarantined{}",
                    tally("inbound"),
                    tally("acks"),
                    tally("duplicates"),
                    tally("quarantined"),
                    match tally("empty") {
                        0 => String::new(),
                        empty => format!("; {empty} without anything to act on"),
                    }
                ),
            ),
            StatusRow::plain(
                "ops",
                format!(
                    "{} done, {} refused, {} unknown, {} dropped{}",
                    tally("ops_applied"),
                    tally("ops_refused"),
                    tally("ops_unknown"),
                    tally("ops_dropped"),
                    match tally("indicators_dropped") {
                        0 => String::new(),
                        shed => format!("; {shed} indicators left out"),
                    }
                ),
            ),
        ];
        if let Some(op) = self.text("/last_refusal/op") {
            let error = self.text("/last_refusal/error").unwrap_or_default();
            let since = self.since("/last_refusal/at_ms").unwrap_or_default();
            rows.push(StatusRow::plain(
                "",
                format!("last refused {since} ago: {op}: {error}"),
            ));
        }
        if tally("quarantined") > 0 {
            let what = "list them with: hermes-relay journal list --section quarantine";
            rows.push(StatusRow::plain("", what.to_owned()));
        }
        rows
    }
}

/// How many processes an agent keeps, and their memory; empty for none.
fn processes(list: &Value) -> String {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    let memory = list.iter().filter_map(|process| process["memory_bytes"].as_u64());
    let memory = match memory.sum() {
        0 => String::new(),
        bytes => format!(", {}", megabytes(bytes)),
    };
    match list.len() {
        0 => String::new(),
        1 => format!("; 1 process{memory}"),
        count => format!("; {count} processes{memory}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(status: &Value, label: &str) -> StatusRow {
        let mut rows = status_rows(status).into_iter();
        rows.find(|row| row.label == label).expect("the row")
    }

    #[test]
    fn a_telegram_bot_is_shown_in_place_of_a_connector() {
        let status = json!({"telegram": {"bot_id": 123_456, "api": "https://api.telegram.org"}, "connector": null,
            "link": "waiting", "link_retry_at_ms": 9_000, "now_ms": 4_000});
        let text = |label: &str| {
            let pieces = row(&status, label).pieces.into_iter();
            pieces.map(|(_, text)| text).collect::<String>()
        };
        assert_eq!(
            text("telegram"),
            "bot 123456 at https://api.telegram.org, without a connector"
        );
        assert_eq!(text("link"), "waiting, next poll in 5 s");
        assert!(status_rows(&status).iter().all(|row| row.label != "connector"));
    }

    #[test]
    fn a_discord_bot_is_shown_in_place_of_a_connector() {
        let status = json!({"discord": {"api": "https://discord.com/api/v10"}, "connector": null, "link": "waiting",
            "link_retry_at_ms": 9_000, "now_ms": 4_000});
        let text = |label: &str| {
            let pieces = row(&status, label).pieces.into_iter();
            pieces.map(|(_, text)| text).collect::<String>()
        };
        assert_eq!(
            text("discord"),
            "a bot at https://discord.com/api/v10, without a connector"
        );
        assert_eq!(text("link"), "waiting, next dial in 5 s");
        assert!(status_rows(&status).iter().all(|row| row.label != "telegram"));
    }

    #[test]
    fn the_link_has_its_tone_and_its_times() {
        let status =
            json!({"link": "waiting", "link_since_ms": 1_000, "link_retry_at_ms": 9_000, "now_ms": 4_000});
        let expected = [
            (Tone::Warning, "waiting".to_owned()),
            (Tone::Plain, " for 3 s, next dial in 5 s".to_owned()),
        ];
        assert_eq!(row(&status, "link").pieces, expected);
        let live = json!({"link": "live", "ready": true});
        assert_eq!(row(&live, "link").pieces[0], (Tone::Good, "live".to_owned()));
        let revoked = json!({"link": "revoked", "ready": false});
        assert_eq!(row(&revoked, "link").pieces[0].0, Tone::Bad);
    }

    #[test]
    fn lost_answers_and_indicators_that_were_left_out_are_told_apart() {
        let ops = |tally: Value| row(&json!({ "tally": tally }), "ops").pieces[0].1.clone();
        assert_eq!(
            ops(json!({"ops_applied": 3, "ops_dropped": 2})),
            "3 done, 0 refused, 0 unknown, 2 dropped"
        );
        assert_eq!(
            ops(json!({"ops_applied": 3, "indicators_dropped": 9})),
            "3 done, 0 refused, 0 unknown, 0 dropped; 9 indicators left out"
        );
    }

    #[test]
    fn a_clock_difference_is_a_sentence() {
        let skew = |ms: i64| {
            let rows = status_rows(&json!({ "clock_skew_ms": ms }));
            let row = rows.into_iter().find(|row| row.label == "clock");
            row.map(|row| row.pieces[0].1.clone())
        };
        assert_eq!(skew(4_000), None);
        assert_eq!(
            skew(61_000).as_deref(),
            Some("the connector's is 1 min 1 s ahead of this machine's")
        );
        assert_eq!(
            skew(-6_000).as_deref(),
            Some("the connector's is 6 s behind this machine's")
        );
    }

    #[test]
    fn a_status_of_another_shape_is_shown_as_far_as_it_goes() {
        for status in [
            json!(null),
            json!([]),
            json!({"journal": 1, "agents": {}, "tally": "x"}),
        ] {
            assert!(status_rows(&status).len() > 5, "{status}");
        }
    }
}
