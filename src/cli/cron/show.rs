//! `cron show`: one job with all its facts, its last run and what that answered.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::CronJobArgs;
use super::add::deliver_text;
use super::describe::{JobView, RunView, for_people};
use super::job_store::JobStore;
use crate::cli::Environment;
use crate::cli::caller::Caller;
use crate::cli::exit;
use crate::cli::format::printable;
use crate::cron::output;
use crate::store::{JobRow, RunRow};

/// Maximum of a saved output that is read.
const MAX_OUTPUT_BYTES: u64 = 256 << 10;
/// Runs among which the last output is looked for: the newest ones may have none.
const LOOKED_AT: u32 = 20;

/// What the last run with an output answered.
struct LastOutput {
    file: String,
    /// Why it cannot be read, if it cannot.
    text: Result<String, String>,
}

/// Runs `cron show`.
pub(super) fn show(args: &CronJobArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = args.remote.relay(env)?;
    let store = JobStore::new(&relay, Caller::find(&relay)?);
    let row = store.find(&args.job)?;
    let runs = store.runs(Some(row.job.id().to_owned()), LOOKED_AT)?;
    let output = last_output(&relay.settings().state_dir, &runs);
    let view = JobView::new(&row, &store);
    let last = runs.first().map(|run| RunView::new(run, store.zone()));
    if args.remote.json {
        let mut json = view.to_json();
        json["next_runs"] = view.runs_ahead_text().into();
        json["last_run"] = last.map_or(Value::Null, |run| run.to_json());
        json["last_output"] = match &output {
            Some(output) => json!({"file": output.file, "text": output.text.as_ref().ok()}),
            None => Value::Null,
        };
        return Ok(exit::print(json));
    }
    let mut lines = facts(&row, &view, &store);
    match last {
        Some(run) => lines.push(format!("last run   {}", run.lines())),
        None => lines.push("last run   none yet".to_owned()),
    }
    if let Some(output) = output {
        lines.push(format!("output     {}", printable(&output.file)));
        match output.text {
            Ok(text) => lines.extend(
                text.trim_end()
                    .lines()
                    .map(|line| format!("  {}", printable(line))),
            ),
            Err(why) => lines.push(format!("  {}", printable(&why))),
        }
    }
    Ok(exit::print(lines.join("\n")))
}

/// A line for each fact.
fn facts(row: &JobRow, view: &JobView<'_>, store: &JobStore<'_>) -> Vec<String> {
    let job = &row.job;
    let mut lines = vec![
        format!("job        {} ({})", job.id(), printable(job.name())),
        format!(
            "state      {}{}",
            job.state().as_str(),
            if row.is_running { ", running now" } else { "" }
        ),
        format!("schedule   {}", view.meaning()),
    ];
    let zone = job.zone(store.zone());
    for (at, label) in (view.runs_ahead().into_iter()).zip(["next runs ", "          ", "          "]) {
        lines.push(format!("{label} {}", for_people(at, &zone)));
    }
    if let Some(times) = job
        .record()
        .get("repeat")
        .and_then(|repeat| repeat.get("times")?.as_u64())
    {
        let done = job.record()["repeat"]["completed"].as_u64().unwrap_or(0);
        lines.push(format!("repeats    {done} of {times} done"));
    }
    lines.push(format!("deliver    {}", deliver_text(row)));
    if let Some(agent) = job.agent() {
        let missing = if store.has_agent_of(row) {
            ""
        } else {
            ", which is gone"
        };
        lines.push(format!("agent      {}{missing}", printable(agent)));
    }
    if let Some(secs) = job.timeout_secs() {
        lines.push(format!("timeout    {secs} s"));
    }
    for skill in job.skills() {
        lines.push(format!("skill      {}", printable(skill)));
    }
    if let Some(created) = job.record().get("created_at").and_then(Value::as_str) {
        lines.push(format!("made       {}", printable(created)));
    }
    if let Some(why) = view.arm_error() {
        lines.push(format!("not taken  {}", printable(why)));
    }
    let mut prompt = job.prompt().lines();
    lines.push(format!(
        "prompt     {}",
        printable(prompt.next().unwrap_or_default())
    ));
    lines.extend(prompt.map(|line| format!("           {}", printable(line))));
    lines
}

/// The output of the newest run that has one.
fn last_output(state_dir: &Path, runs: &[RunRow]) -> Option<LastOutput> {
    let file = runs.iter().find_map(|run| run.output.clone())?;
    let path = state_dir.join(&file);
    let text = match read(&path) {
        Ok(page) => Ok(output::answer_in(&page).to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("the file is gone: only the newest outputs are kept (`cron.output_retention`)".to_owned())
        }
        Err(error) => Err(format!("cannot be read: {error}")),
    };
    Some(LastOutput {
        file: path.display().to_string(),
        text,
    })
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
