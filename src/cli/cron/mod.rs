//! `hermes-relay cron`: lists, makes and changes scheduled jobs, and shows their runs.
//!
//! Changes are made in the journal, with or without a running relay. A running relay is notified afterwards, and reports whether
//! it will run the job.

mod add;
mod describe;
mod job_store;
mod show;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use self::add::{CronAddArgs, CronEditArgs};
use self::describe::{JobView, RunView};
use self::job_store::JobStore;
pub(super) use self::job_store::{job_names, jobs_with_skill};
use super::Environment;
use super::caller::Caller;
use super::exit;
use super::format::printable;
use super::remote::RemoteArgs;
use crate::cron::job::{self, JobState};
use crate::serve::ControlRequest;
use crate::store::{JobChange, JobRow, MAX_LISTED_RUNS, UnreadableJob};

/// Jobs that `cron status` names for each thing that is wrong.
const MAX_SHOWN: usize = 5;

/// Schedule prompts: an agent runs them at their time, and the answer goes to a chat. Changes work with the relay running or
/// stopped. Without a command: `list`.
///
/// Exit codes: 0 done (also if the job is saved and the scheduler has not taken it yet), 1 there is no such job or the change is not valid,
/// 2 invalid usage, 75 a relay of another version uses the state directory, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  hermes-relay cron add \"weekdays at 9am\" \"What is new in my inbox?\" --deliver telegram:123456\n  \
                  hermes-relay cron add \"in 30m\" \"Remind me of the tea\"\n  \
                  hermes-relay cron add \"every day at 8am\" --skill inbox\n  hermes-relay cron list\n  \
                  hermes-relay cron pause inbox\n  hermes-relay cron runs inbox"
)]
pub(super) struct CronArgs {
    #[command(subcommand)]
    action: Option<CronAction>,
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Subcommand, Debug)]
enum CronAction {
    /// List jobs with their next run.
    #[command(after_help = "Examples:\n  hermes-relay cron list\n  \
                      hermes-relay cron list --json | jq -r '.jobs[] | [.id, .next_run_at] | @tsv'")]
    List {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Also those that have run for the last time.
        #[arg(long)]
        all: bool,
    },
    /// Show one job with all its facts, and its last output.
    #[command(after_help = "Examples:\n  hermes-relay cron show inbox\n  \
                      hermes-relay cron show inbox --json | jq -r .last_output.text")]
    Show(CronJobArgs),
    /// Make a job. Prints how the schedule was understood, with the next three runs.
    #[command(alias = "create")]
    Add(CronAddArgs),
    /// Change a job; what is not named stays.
    #[command(alias = "update")]
    Edit(CronEditArgs),
    /// Pause a job until it is resumed.
    #[command(after_help = "Example:\n  hermes-relay cron pause inbox")]
    Pause(CronJobArgs),
    /// Resume a paused job; its next run counts from now.
    #[command(after_help = "Example:\n  hermes-relay cron resume inbox")]
    Resume(CronJobArgs),
    /// Run a job once more, as soon as a relay can. Its schedule and its remaining runs stay as they are. A paused job runs too.
    #[command(after_help = "Example:\n  hermes-relay cron run inbox")]
    Run(CronJobArgs),
    /// Remove a job. A run in progress continues. It does not ask: `cron export` makes a backup.
    #[command(
        visible_alias = "rm",
        alias = "delete",
        after_help = "Example:\n  hermes-relay cron remove inbox"
    )]
    Remove(CronJobArgs),
    /// Show what starts jobs, how many there are, the next run and the last failure.
    #[command(after_help = "Example:\n  hermes-relay cron status --json")]
    Status {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Show runs, the newest first.
    #[command(
        alias = "history",
        after_help = "Examples:\n  hermes-relay cron runs\n  \
                      hermes-relay cron runs inbox --limit 3 --json"
    )]
    Runs {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Only runs of this job: its id or name.
        #[arg(value_name = "JOB")]
        job: Option<String>,
        /// Maximum.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LISTED_RUNS)))]
        limit: u32,
    },
    /// Import jobs from Hermes' `cron/jobs.json`, in place of those with the same id. Ids and unknown fields are kept.
    ///
    /// Exit codes: 0 all imported, 1 some entries cannot be used (the others are imported), 78 the file cannot be read.
    #[command(
        after_help = "Examples:\n  hermes-relay cron import ~/.hermes/cron/jobs.json\n  \
                      hermes-relay cron import - < jobs.json"
    )]
    Import {
        #[command(flatten)]
        remote: RemoteArgs,
        /// The file; `-` for standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Export all jobs in the format of Hermes' `cron/jobs.json`.
    ///
    /// The file is replaced if it holds jobs or nothing; any other file is refused.
    #[command(
        after_help = "Examples:\n  hermes-relay cron export jobs.json\n  hermes-relay cron export - | jq ."
    )]
    Export {
        #[command(flatten)]
        remote: RemoteArgs,
        /// The file; `-` for standard output.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// A job by its id or name.
#[derive(Args, Debug)]
pub(super) struct CronJobArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Id or name of the job.
    #[arg(value_name = "JOB")]
    job: String,
}

/// Runs the verb.
pub(super) fn run(args: &CronArgs, env: Environment<'_>) -> ExitCode {
    let done = match &args.action {
        None => list(&args.remote, false, env),
        Some(CronAction::List { remote, all }) => list(remote, *all, env),
        Some(CronAction::Show(args)) => show::show(args, env),
        Some(CronAction::Add(args)) => add::add(args, env),
        Some(CronAction::Edit(args)) => add::edit(args, env),
        Some(CronAction::Pause(args)) => change(args, Changing::Pause, env),
        Some(CronAction::Resume(args)) => change(args, Changing::Resume, env),
        Some(CronAction::Run(args)) => change(args, Changing::Run, env),
        Some(CronAction::Remove(args)) => change(args, Changing::Remove, env),
        Some(CronAction::Status { remote }) => status(remote, env),
        Some(CronAction::Runs { remote, job, limit }) => runs(remote, job.as_deref(), *limit, env),
        Some(CronAction::Import { remote, file }) => transfer::import(remote, file, env),
        Some(CronAction::Export { remote, file }) => transfer::export(remote, file, env),
    };
    done.unwrap_or_else(|code| code)
}

/// What a verb does to one job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changing {
    Pause,
    Resume,
    Run,
    Remove,
}

fn change(args: &CronJobArgs, what: Changing, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = args.remote.relay(env)?;
    let store = JobStore::new(&relay, Caller::find(&relay)?);
    let job = args.job.clone();
    let row = store.change_one(match what {
        Changing::Pause => JobChange::Pause { job, reason: None },
        Changing::Resume => JobChange::Resume { job },
        Changing::Run => JobChange::Run { job },
        Changing::Remove => JobChange::Remove { job },
    })?;
    let answer = store.notify();
    let (id, name) = (row.job.id().to_owned(), printable(row.job.name()));
    Ok(match what {
        Changing::Pause => args.remote.print(
            &json!({"id": id, "paused": true, "state": "paused"}),
            format!("paused {id} ({name})"),
        ),
        Changing::Remove => args.remote.print(
            &json!({"id": id, "removed": true}),
            format!("removed {id} ({name})"),
        ),
        Changing::Run => {
            let (when, is_started) = answer.asked_run();
            args.remote.print(
                &json!({"id": id, "requested": true, "started": is_started, "note": when}),
                format!("{id} ({name}) {when}"),
            )
        }
        Changing::Resume => {
            store.check_resumed(&id)?;
            let view = JobView::new(&row, &store);
            let arm = store.armed(&row, &answer);
            let mut json = view.to_json();
            json["armed"] = arm.armed.into();
            json["arm_error"] = arm.error.into();
            json["note"] = arm.note.clone().into();
            let next = view.next_for_people();
            args.remote
                .print(&json, format!("resumed {id} ({name}), next {next}\n{}", arm.note))
        }
    })
}

fn list(remote: &RemoteArgs, all: bool, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = remote.relay(env)?;
    let store = JobStore::new(&relay, Caller::find(&relay)?);
    let (rows, unreadable) = store.all_jobs()?;
    let is_shown = |row: &&JobRow| all || row.job.state() != JobState::Completed;
    let mut views: Vec<JobView<'_>> = (rows.iter().filter(is_shown))
        .map(|row| JobView::new(row, &store))
        .collect();
    views.sort_by_key(|view| (view.next().is_none(), view.next()));
    if remote.json {
        let jobs: Vec<_> = views.iter().map(JobView::to_json).collect();
        return Ok(exit::print(json!({ "jobs": jobs, "unreadable": unreadable })));
    }
    if views.is_empty() && unreadable.is_empty() {
        let rest = match rows.len() {
            0 => "; make one: hermes-relay cron add \"weekdays at 9am\" \"What is new?\"",
            _ => "; --all lists those that have run for the last time",
        };
        return Ok(exit::print(format!("no jobs{rest}")));
    }
    let mut lines: Vec<String> = views.iter().map(JobView::lines).collect();
    lines.extend(unreadable.iter().map(|UnreadableJob { id, reason }| {
        let (id, reason) = (printable(id), printable(reason));
        format!(
            "{id:<12}  cannot be read\n{:14}{reason}; delete it with `cron remove`, or replace it with `cron import`",
            ""
        )
    }));
    Ok(exit::print(lines.join("\n")))
}

fn runs(
    remote: &RemoteArgs,
    wanted: Option<&str>,
    limit: u32,
    env: Environment<'_>,
) -> Result<ExitCode, ExitCode> {
    let relay = remote.relay(env)?;
    let store = JobStore::new(&relay, Caller::find(&relay)?);
    let id = wanted.map(|wanted| store.run_id(wanted)).transpose()?;
    let runs = store.runs(id, limit)?;
    let views: Vec<RunView<'_>> = runs.iter().map(|run| RunView::new(run, store.zone())).collect();
    if remote.json {
        let runs: Vec<_> = views.iter().map(RunView::to_json).collect();
        return Ok(exit::print(json!({ "runs": runs })));
    }
    if views.is_empty() {
        return Ok(exit::print("no runs yet"));
    }
    let lines: Vec<String> = views.iter().map(RunView::lines).collect();
    Ok(exit::print(lines.join("\n")))
}

fn status(remote: &RemoteArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = remote.relay(env)?;
    let store = JobStore::new(&relay, Caller::find(&relay)?);
    let rows = store.jobs()?;
    let answer = relay.call(&ControlRequest::Status).ok();
    let live = answer.as_ref().map(|status| &status["cron"]);
    let configured = store.provider();
    let provider = live
        .and_then(|live| live["provider"].as_str())
        .unwrap_or(configured.as_str());
    let count = |state: JobState| rows.iter().filter(|row| row.job.state() == state).count();
    let views: Vec<JobView<'_>> = rows.iter().map(|row| JobView::new(row, &store)).collect();
    let active = views.iter().filter(|view| view.next().is_some()).count();
    let first = views
        .iter()
        .filter(|view| view.next().is_some())
        .min_by_key(|view| view.next());
    let failed = rows.iter().filter(|row| row.job.last_status() == Some("error"));
    let failed: Vec<_> = failed
        .map(|row| json!({"id": row.job.id(), "name": row.job.name(), "error": row.job.last_error()}))
        .collect();
    let unarmed: Vec<(&JobView<'_>, &str)> = (views.iter())
        .filter_map(|view| Some((view, view.arm_error()?)))
        .collect();
    let not_armed: Vec<_> = (unarmed.iter())
        .map(|(view, why)| json!({"id": view.id(), "name": view.name(), "error": why}))
        .collect();
    let running = rows.iter().filter(|row| row.is_running).count();
    let armed = views.iter().filter(|view| view.is_armed()).count();
    let json = json!({
        "relay_running": store.is_relay_running(),
        "provider": provider,
        "unavailable": live.map(|live| live["unavailable"].clone()),
        "timezone": store.zone_name(),
        "jobs": {
            "total": rows.len(), "active": active, "paused": count(JobState::Paused),
            "completed": count(JobState::Completed), "error": count(JobState::Error),
        },
        "armed": armed,
        "running": running,
        "next_run_at": first.and_then(JobView::next_text),
        "next_job": first.map(JobView::id),
        "failed": failed,
        "not_armed": not_armed,
    });
    if remote.json {
        return Ok(exit::print(json));
    }
    let starts = match (provider, store.is_relay_running()) {
        ("off", _) => "nothing: `cron.provider` is off".to_owned(),
        (_, false) => format!("nothing now: no relay is running ({provider} when `hermes-relay run` starts)"),
        ("chronos", true) => "the managed scheduler".to_owned(),
        (_, true) => "the relay's own timer".to_owned(),
    };
    let mut lines = vec![
        format!("started by  {starts}"),
        format!(
            "jobs        {active} active, {} paused, {} done; {armed} will run, {running} running now",
            count(JobState::Paused),
            count(JobState::Completed)
        ),
        format!("time zone   {}", store.zone_name()),
    ];
    if let Some(why) = live.and_then(|live| live["unavailable"].as_str()) {
        lines.push(format!("not used    the managed scheduler: {}", printable(why)));
    }
    if let Some(first) = first {
        let name = printable(first.name());
        lines.push(format!(
            "next        {}  {} ({name})",
            first.next_for_people(),
            first.id()
        ));
    }
    for (view, why) in unarmed.iter().take(MAX_SHOWN) {
        let (id, name) = (view.id(), printable(view.name()));
        lines.push(format!("not taken   {id} ({name}): {}", printable(why)));
    }
    for row in rows
        .iter()
        .filter(|row| row.job.last_status() == Some("error"))
        .take(MAX_SHOWN)
    {
        let (id, name) = (row.job.id(), printable(row.job.name()));
        let why = printable(row.job.last_error().unwrap_or_default());
        lines.push(format!("failed      {id} ({name}): {why}"));
    }
    Ok(exit::print(lines.join("\n")))
}

/// The id that a person means among these jobs; a text that can be an id may be that of a job that is gone.
fn id_of<'r>(rows: &'r [JobRow], wanted: &'r str) -> Result<&'r str, Vec<String>> {
    match job::find(rows.iter().map(|row| &row.job), wanted) {
        Ok(job) => Ok(job.id()),
        Err(ids) => Err(ids),
    }
}
