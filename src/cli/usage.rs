//! `hermes-relay access usage`: what people have used, by day, person, chat and agent.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};

use super::Environment;
use super::exit::{self, errln, finish};
use super::format::{printable, stdout};
use super::remote::RemoteArgs;
use crate::store::{InspectError, Inspector, UsageRow};
use crate::text::instant;

const DAY_SECS: i64 = 86_400;

/// Show what people have used: turns and tokens by day, person, chat and agent. Nothing is counted without an `access`
/// section in the settings.
///
/// Exit codes: 0 shown, 1 the journal cannot be read, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay access usage\n  hermes-relay access usage --days 7 --json")]
pub(super) struct UsageArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Days to show, today included, at most 40.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=40))]
    days: u32,
}

/// Runs it under its former name.
pub(super) fn run_former(args: &UsageArgs, env: Environment<'_>) -> ExitCode {
    errln!("note: `hermes-relay usage` is now `hermes-relay access usage`");
    run(args, env)
}

/// Runs the verb.
pub(super) fn run(args: &UsageArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.remote.running(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let today = i64::try_from(now.as_secs()).unwrap_or(0).div_euclid(DAY_SECS);
    let since = today - i64::from(args.days) + 1;
    let read = Inspector::open(&relay.settings().state_dir).and_then(|journal| journal.usage(since));
    let rows = match read {
        Ok(rows) => rows,
        Err(InspectError::NoJournal(_)) => Vec::new(),
        Err(error) => return relay.fail(exit::FAILED, error, None),
    };
    if args.remote.json {
        let rows: Vec<Value> = rows.iter().map(entry).collect();
        return exit::print(json!({ "usage": rows }));
    }
    finish(show(&rows))
}

fn day(row: &UsageRow) -> String {
    let stamp = instant(row.day * DAY_SECS);
    stamp.split('T').next().unwrap_or_default().to_owned()
}

fn entry(row: &UsageRow) -> Value {
    json!({
        "day": day(row), "person": format!("{}:{}", row.platform, row.person), "platform": row.platform,
        "chat": row.chat, "agent": row.agent, "turns": row.turns, "tokens": row.tokens,
    })
}

fn show(rows: &[UsageRow]) -> io::Result<()> {
    let mut out = stdout();
    if rows.is_empty() {
        writeln!(out, "nothing was used")?;
    }
    for row in rows {
        writeln!(
            out,
            "{}  {}:{} in {} with {}: {} turns, {} tokens",
            day(row),
            row.platform,
            printable(&row.person),
            printable(&row.chat),
            printable(&row.agent),
            row.turns,
            row.tokens
        )?;
    }
    out.flush()
}
