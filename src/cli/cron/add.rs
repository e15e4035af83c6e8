//! `cron add` and `cron edit`: what a job is asked to be, checked against the settings, and what it became.

use std::io::{self, Read as _};
use std::process::ExitCode;

use clap::Args;

use super::describe::{JobView, for_people};
use super::job_store::{JobStore, agent_names, has_agent};
use crate::cli::Environment;
use crate::cli::caller::Caller;
use crate::cli::exit;
use crate::cli::format::printable;
use crate::cli::remote::{RemoteArgs, RemoteRelay};
use crate::cli::skills;
use crate::config::file::nearest;
use crate::config::settings::nearest_platform;
use crate::cron::job::{JobEdit, JobOrigin, MAX_PROMPT_BYTES, NewJob};
use crate::cron::target;
use crate::store::{JobChange, JobRow};
use crate::wire::Platform;

/// Longest time that a run may be given, in seconds: a week.
const MAX_TIMEOUT_SECS: u64 = 7 * 86_400;

/// `cron add`.
#[derive(Args, Debug)]
#[command(
    after_help = "Schedules (in quotes):\n  \"every 30m\", \"every 2 weeks\"     again and again, by elapsed time\n  \
                  \"in 30m\", \"30m\", \"+90s\"          once\n  \"tomorrow at 8am\", \"2026-12-24T18:00\"   once\n  \
                  \"every day at 7\", \"weekdays at 9am\", \"every monday at 14:00\", \"first of the month at 9\"\n  \
                  \"0 9 * * 1-5\"                    cron: minute hour day month weekday [second [year]]\n\nExamples:\n  \
                  hermes-relay cron add \"weekdays at 9am\" \"What is new in my inbox?\" --name inbox\n  \
                  hermes-relay cron add \"0 8 * * *\" \"Weather for Oslo\" --timezone Europe/Oslo --deliver discord:123,local\n  \
                  hermes-relay cron add \"every 2h\" - < prompt.txt\n  \
                  hermes-relay cron add \"weekdays at 9am\" --skill inbox --deliver telegram:123456"
)]
pub(super) struct CronAddArgs {
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
    /// When it runs, in quotes.
    #[arg(value_name = "SCHEDULE")]
    schedule: String,
    /// What the agent is asked; `-` reads it from standard input. With --skill: input for the skill, which may be omitted.
    #[arg(value_name = "PROMPT", required_unless_present = "skill")]
    prompt: Vec<String>,
    /// Run this skill; it must be Approved, now and at every run.
    #[arg(long, value_name = "NAME")]
    skill: Option<String>,
    /// Name, for lists and for the other commands [default: the start of the prompt].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where the answer goes: origin, local, all, PLATFORM, PLATFORM:CHAT or PLATFORM:CHAT:THREAD; several with commas
    /// [default: the chat of the running turn, else the home channel, else local].
    #[arg(long, value_name = "TARGETS")]
    deliver: Option<String>,
    /// How often it runs; 0 or `forever` for ever [default: for ever, or once for a schedule that has one time].
    #[arg(long, value_name = "N", value_parser = parse_repeat, allow_negative_numbers = true)]
    repeat: Option<u64>,
    /// Agent that runs it [default: the relay's default agent].
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Time zone of its schedule, such as Europe/Berlin [default: `cron.timezone`, else the machine's].
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Maximum time of a run, such as 90s, 30m or 2h [default: `cron.job_timeout_secs`].
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    timeout: Option<u64>,
}

/// `cron edit`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay cron edit inbox --schedule \"weekdays at 8am\"\n  \
                  hermes-relay cron edit a1b2c3d4e5f6 --deliver origin,telegram:123456 --repeat 0"
)]
pub(super) struct CronEditArgs {
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
    /// Id or name of the job.
    #[arg(value_name = "JOB")]
    job: String,
    #[command(flatten)]
    changes: CronChanges,
}

/// What `cron edit` changes.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct CronChanges {
    /// When it runs; the next run counts from now.
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// What the agent is asked; `-` reads it from standard input.
    #[arg(long, value_name = "PROMPT")]
    prompt: Option<String>,
    /// Skill that it runs; empty for none.
    #[arg(long, value_name = "NAME")]
    skill: Option<String>,
    /// Name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where the answer goes, as for `cron add`.
    #[arg(long, value_name = "TARGETS")]
    deliver: Option<String>,
    /// How often it runs in all; 0 or `forever` for ever.
    #[arg(long, value_name = "N", value_parser = parse_repeat, allow_negative_numbers = true)]
    repeat: Option<u64>,
    /// Agent that runs it; empty for the default one.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Time zone of its schedule; empty for `cron.timezone`.
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Maximum time of a run, such as 90s, 30m or 2h; 0 for the default.
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    timeout: Option<u64>,
}

/// A number of runs; Hermes' words and negative numbers mean what they mean there.
fn parse_repeat(text: &str) -> Result<u64, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "forever" => Ok(0),
        "once" => Ok(1),
        number => match number.parse::<i64>() {
            Ok(number) => Ok(u64::try_from(number).unwrap_or(0)),
            Err(_) => Err("write a number, 0 for ever".to_owned()),
        },
    }
}

fn parse_timeout(text: &str) -> Result<u64, String> {
    let wrong = || "write a time such as 90s, 30m or 2h, at most 7d".to_owned();
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit.trim() {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let secs = number.checked_mul(unit).filter(|secs| *secs <= MAX_TIMEOUT_SECS);
    secs.ok_or_else(wrong)
}

/// Runs `cron add`.
pub(super) fn add(args: &CronAddArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = args.remote.relay(env)?;
    let prompt = read_prompt(&relay, &args.prompt.join(" "))?;
    let mut warnings = Vec::new();
    check_agent(&relay, args.agent.as_deref())?;
    check_skill(&relay, args.skill.as_deref())?;
    let caller = Caller::find(&relay)?;
    let origin = caller.origin.clone();
    let deliver = args.deliver.clone().or_else(|| match &origin {
        Some(_) => None,
        None => relay.settings().cron.home_channels.keys().next().cloned(),
    });
    if let Some(deliver) = &deliver {
        check_targets(&relay, deliver, origin.is_some(), &mut warnings)?;
    } else if origin.is_none() {
        warnings.push(
            "there is no chat to deliver to, so its answers are only saved (`local`); name one with --deliver \
             PLATFORM:CHAT, or set a home channel"
                .to_owned(),
        );
    }
    let new = Box::new(NewJob {
        schedule: args.schedule.clone(),
        prompt,
        name: args.name.clone(),
        deliver,
        repeat: args.repeat,
        agent: args.agent.clone(),
        timezone: args.timezone.clone(),
        timeout_secs: args.timeout,
        skill: args.skill.clone(),
        origin,
    });
    let store = JobStore::new(&relay, caller);
    let random = random(&relay)?;
    let row = store.change_one(JobChange::Add { new, random })?;
    Ok(report(&args.remote, &store, &row, "added", warnings))
}

/// Runs `cron edit`.
pub(super) fn edit(args: &CronEditArgs, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = args.remote.relay(env)?;
    let changes = &args.changes;
    let prompt = changes.prompt.as_deref();
    let prompt = prompt.map(|prompt| read_prompt(&relay, prompt)).transpose()?;
    let mut warnings = Vec::new();
    check_agent(
        &relay,
        changes.agent.as_deref().filter(|name| !name.trim().is_empty()),
    )?;
    check_skill(
        &relay,
        changes.skill.as_deref().filter(|name| !name.trim().is_empty()),
    )?;
    if let Some(deliver) = &changes.deliver {
        // Whether the job has an origin is known only when it is changed.
        check_targets(&relay, deliver, true, &mut warnings)?;
    }
    let edit = Box::new(JobEdit {
        schedule: changes.schedule.clone(),
        prompt,
        name: changes.name.clone(),
        deliver: changes.deliver.clone(),
        repeat: changes.repeat,
        agent: changes.agent.clone(),
        timezone: changes.timezone.clone(),
        timeout_secs: changes.timeout,
        skill: changes.skill.clone(),
    });
    let store = JobStore::new(&relay, Caller::find(&relay)?);
    let job = args.job.clone();
    let row = store.change_one(JobChange::Edit { job, edit })?;
    Ok(report(&args.remote, &store, &row, "changed", warnings))
}

/// Notifies the relay, and prints the job as it is now.
fn report(
    remote: &RemoteArgs,
    store: &JobStore<'_>,
    row: &JobRow,
    done: &str,
    warnings: Vec<String>,
) -> ExitCode {
    let answer = store.notify();
    let arm = store.armed(row, &answer);
    let view = JobView::new(row, store);
    if remote.json {
        let mut json = view.to_json();
        json["armed"] = arm.armed.into();
        json["arm_error"] = arm.error.into();
        json["note"] = arm.note.into();
        json["next_runs"] = view.runs_ahead_text().into();
        json["warnings"] = warnings.into();
        return exit::print(json);
    }
    let job = &row.job;
    let mut lines = vec![
        format!("{done} {} ({})", job.id(), printable(job.name())),
        format!("schedule   {}", view.meaning()),
    ];
    let zone = job.zone(store.zone());
    for (at, label) in view
        .runs_ahead()
        .into_iter()
        .zip(["next runs ", "          ", "          "])
    {
        lines.push(format!("{label} {}", for_people(at, &zone)));
    }
    lines.push(format!("deliver    {}", deliver_text(row)));
    if let Some(agent) = job.agent() {
        lines.push(format!("agent      {}", printable(agent)));
    }
    for skill in job.skills() {
        lines.push(format!("skill      {}", printable(skill)));
    }
    lines.push(arm.note);
    lines.extend(
        warnings
            .into_iter()
            .map(|warning| format!("warning: {}", printable(&warning))),
    );
    exit::print(lines.join("\n"))
}

/// Where its answers go, for people.
pub(super) fn deliver_text(row: &JobRow) -> String {
    let deliver = row.job.deliver();
    match (deliver.as_str(), row.job.origin()) {
        ("local", _) => "local: the answer is saved, and no chat gets it".to_owned(),
        ("origin", Some(origin)) => format!("origin: this chat on {}", printable(&origin.platform)),
        (deliver, _) => printable(deliver),
    }
}

/// The prompt as typed, or from standard input.
fn read_prompt(relay: &RemoteRelay, typed: &str) -> Result<String, ExitCode> {
    if typed != "-" {
        return Ok(typed.to_owned());
    }
    let mut text = String::new();
    // One byte more, so that a longer one is refused and not cut.
    let limit = MAX_PROMPT_BYTES as u64 + 1;
    let read = io::stdin().lock().take(limit).read_to_string(&mut text);
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(relay.fail(exit::FAILED, format!("cannot read standard input: {error}"), None)),
    }
}

fn random(relay: &RemoteRelay) -> Result<u64, ExitCode> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        relay.fail(
            exit::INTERNAL,
            format!("the system has no randomness: {error}"),
            None,
        )
    })?;
    Ok(u64::from_le_bytes(bytes))
}

/// Whether the relay has this agent.
fn check_agent(relay: &RemoteRelay, name: Option<&str>) -> Result<(), ExitCode> {
    let settings = relay.settings();
    let Some(name) = name else { return Ok(()) };
    if has_agent(settings, name) {
        return Ok(());
    }
    let hint = match nearest(name, agent_names(settings)) {
        Some(near) => format!("did you mean `{}`?", printable(near)),
        None => "`hermes-relay agents list` lists the agents".to_owned(),
    };
    let what = format!("there is no agent `{}`", printable(name));
    Err(relay.fail(exit::FAILED, what, Some(&hint)))
}

/// Whether there is such a skill, and jobs may run it.
fn check_skill(relay: &RemoteRelay, name: Option<&str>) -> Result<(), ExitCode> {
    let Some(name) = name else { return Ok(()) };
    match skills::approved(relay.settings(), name) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(refusal.report(relay)),
    }
}

/// Whether the targets are well-formed; warns of those that may get nothing.
fn check_targets(
    relay: &RemoteRelay,
    deliver: &str,
    has_origin: bool,
    warnings: &mut Vec<String>,
) -> Result<(), ExitCode> {
    const HINT: &str =
        "write origin, local, all, PLATFORM, PLATFORM:CHAT or PLATFORM:CHAT:THREAD; several with commas";
    let settings = relay.settings();
    let platforms = target::platforms(deliver).map_err(|why| {
        let what = format!("cannot deliver to `{}`: {}", printable(deliver), printable(&why));
        relay.fail(exit::FAILED, what, Some(HINT))
    })?;
    let announced: Vec<String> = (settings.identities())
        .map(|identity| identity.platform.clone())
        .filter(|platform| *platform != "relay")
        .collect();
    for platform in &platforms {
        let is_announced = announced.iter().any(|known| known.eq_ignore_ascii_case(platform));
        let words = ["origin", "local", "all"].into_iter();
        if let Some(near) = nearest(platform, words).filter(|_| !deliver.contains(':')) {
            let what = format!(
                "cannot deliver to `{}`: did you mean `{near}`?",
                printable(deliver)
            );
            return Err(relay.fail(exit::FAILED, what, Some(HINT)));
        }
        let is_known = Platform::names()
            .iter()
            .any(|known| known.eq_ignore_ascii_case(platform));
        if is_announced {
            continue;
        }
        if let Some(near) = nearest_platform(platform) {
            warnings.push(format!(
                "`{platform}` is not a known platform; did you mean `{near}`?"
            ));
        } else if !announced.is_empty() {
            warnings.push(format!(
                "there is no platform `{platform}` here, so nothing can be delivered there: this relay serves {}",
                announced.join(", ")
            ));
        } else if !is_known {
            warnings.push(format!(
                "`{platform}` is not a known platform, and arrives only if the connector has one of this name; known are {}",
                Platform::names().join(", ")
            ));
        }
    }
    let here = has_origin.then(|| JobOrigin {
        platform: "here".to_owned(),
        chat_id: "here".to_owned(),
        ..JobOrigin::default()
    });
    let (targets, error) = target::targets(deliver, here.as_ref(), &settings.cron.home_channels);
    warnings.extend(error);
    let wants_chat = deliver
        .split(',')
        .any(|word| matches!(word.trim(), "origin" | "all"));
    if targets.is_empty() && wants_chat {
        warnings.push("there is no origin and no home channel, so its answers are only saved".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_unit_and_a_bound() {
        assert_eq!(parse_timeout("90"), Ok(90));
        assert_eq!(parse_timeout("30m"), Ok(1_800));
        assert_eq!(parse_timeout("2 h"), Ok(7_200));
        assert_eq!(parse_timeout("7d"), Ok(MAX_TIMEOUT_SECS));
        for wrong in ["", "m", "8d", "-1", "1w", "99999999999999999999"] {
            assert!(parse_timeout(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_number_of_runs_is_read_as_hermes_reads_it() {
        for (text, times) in [("3", 3), ("0", 0), ("-1", 0), ("Forever", 0), ("once", 1)] {
            assert_eq!(parse_repeat(text), Ok(times), "{text}");
        }
        for wrong in ["", "x", "1.5", "99999999999999999999"] {
            assert!(parse_repeat(wrong).is_err(), "{wrong}");
        }
    }
}
