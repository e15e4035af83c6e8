//! The jobs in the journal of a relay that may or may not run, and how a running one learns of changes.

use std::process::ExitCode;

use serde_json::{Map, Value};

use super::id_of;
use crate::access::{JobAction, JobMaker};
use crate::agent::BUILT_IN;
use crate::cli::caller::Caller;
use crate::cli::exit;
use crate::cli::format::printable;
use crate::cli::remote::RemoteRelay;
use crate::config::{CronProvider, Settings, file::nearest};
use crate::cron::job::{self, JobError, JobState};
use crate::cron::schedule::{self, Near, ScheduleError, TimeZone, Timestamp};
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;
use crate::store::{
    ChangeRefusal, CronCommand, CronFiles, CronReply, InspectError, JobChange, JobRow, OpenError, RunRow,
    UnreadableJob, held_by,
};

/// How many similar jobs an error names.
const MAX_SIMILAR: usize = 3;

/// Every way to write a schedule.
const SCHEDULES: &str = "accepted: `every 30m`, `every 2 weeks`, `in 30m`, `+90s`, `tomorrow at 8am`, `weekdays at 9am`, \
                         `every monday 14:00`, `first of the month at 9`, `2026-12-24T18:00`, `0 9 * * 1-5` (in quotes)";

/// What became of the news for a running relay.
pub(super) enum RelayAnswer {
    /// No relay runs.
    Stopped,
    /// A relay runs and could not be reached: why.
    Unnotified(String),
    /// Its answer.
    Notified(Value),
}

impl RelayAnswer {
    /// When a job runs that somebody asked to run now, and whether that is now.
    pub(super) fn asked_run(&self) -> (&'static str, bool) {
        match self {
            Self::Stopped => ("runs when `hermes-relay run` starts", false),
            Self::Unnotified(_) => ("runs when the relay is restarted: it cannot be notified", false),
            Self::Notified(answer) if is_ending(answer) => {
                ("runs when the relay starts again: it is shutting down", false)
            }
            Self::Notified(_) => ("runs now", true),
        }
    }
}

/// Whether the relay that gave this answer is shutting down, and starts nothing any more.
fn is_ending(answer: &Value) -> bool {
    answer["shutting_down"] == true
}

/// Whether a job will run by itself, and what that depends on.
pub(super) struct ArmedNote {
    pub(super) armed: bool,
    pub(super) note: String,
    /// Why the managed scheduler does not have it.
    pub(super) error: Option<String>,
}

impl ArmedNote {
    fn yes(note: impl Into<String>) -> Self {
        Self {
            armed: true,
            note: note.into(),
            error: None,
        }
    }

    fn no(note: impl Into<String>) -> Self {
        Self {
            armed: false,
            note: note.into(),
            error: None,
        }
    }

    /// What the answer of a running relay says of a job.
    fn answered(id: &str, answer: &Value) -> Self {
        let arm = &answer["jobs"][id];
        match (answer["provider"].as_str(), arm["armed"].as_bool()) {
            (Some("off"), _) => {
                Self::no("saved, but will not run: `cron.provider` is off, so nothing starts jobs")
            }
            (_, Some(true)) => Self::yes("will run: the managed scheduler has it"),
            (_, Some(false)) => Self {
                error: arm["error"].as_str().map(str::to_owned),
                ..Self::no(arm["state"].as_str().map(printable).unwrap_or_default())
            },
            (Some("builtin"), None) if answer["unavailable"].is_null() && is_ending(answer) => Self::no(
                "saved; the relay is shutting down: it will run at its time once the relay has started again",
            ),
            (Some("builtin"), None) if answer["unavailable"].is_null() => {
                Self::yes("will run: the running relay starts it")
            }
            _ => Self::no("saved; the managed scheduler has not answered yet; will retry"),
        }
    }
}

/// The agents that the settings name.
pub(super) fn agent_names(settings: &Settings) -> impl Iterator<Item = &str> {
    let names = settings.agents.keys().map(String::as_str);
    names.chain([settings.agent.as_str()])
}

/// Whether the relay has this agent.
pub(super) fn has_agent(settings: &Settings, name: &str) -> bool {
    agent_names(settings).any(|known| known == name) || BUILT_IN.contains(&name)
}

/// The jobs of a relay.
pub(super) struct JobStore<'r> {
    relay: &'r RemoteRelay,
    zone: TimeZone,
    now: Timestamp,
    relay_runs: bool,
    maker: Option<JobMaker>,
}

impl<'r> JobStore<'r> {
    pub(super) fn new(relay: &'r RemoteRelay, caller: Caller) -> Self {
        let settings = relay.settings();
        let relay_runs = held_by(&settings.state_dir).is_ok_and(|holder| holder.is_some());
        // A running relay may have another environment than this terminal.
        let running = relay_runs
            .then(|| relay.call(&ControlRequest::JobsZone).ok())
            .flatten();
        let running = running.as_ref().and_then(|answer| answer["timezone"].as_str());
        let zone = running.or(settings.cron.timezone.as_deref()).map(schedule::zone);
        Self {
            relay,
            // As the relay itself.
            zone: zone.and_then(Result::ok).unwrap_or(TimeZone::UTC),
            now: Timestamp::now(),
            relay_runs,
            maker: caller.maker,
        }
    }

    /// The time zone of jobs without one of their own.
    pub(super) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Its name.
    pub(super) fn zone_name(&self) -> String {
        self.zone.iana_name().unwrap_or("UTC").to_owned()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether a relay holds the state directory.
    pub(super) fn is_relay_running(&self) -> bool {
        self.relay_runs
    }

    /// Whether the relay has the agent of a job, as far as the settings say.
    pub(super) fn has_agent_of(&self, row: &JobRow) -> bool {
        row.job
            .agent()
            .is_none_or(|agent| has_agent(self.relay.settings(), agent))
    }

    /// What starts jobs, as far as the settings say.
    pub(super) fn provider(&self) -> CronProvider {
        let cron = &self.relay.settings().cron;
        match cron.provider {
            CronProvider::Chronos if !cron.chronos.missing().is_empty() => CronProvider::Builtin,
            provider => provider,
        }
    }

    /// All jobs that can be read and that the caller may see; none where no relay has run yet.
    pub(super) fn jobs(&self) -> Result<Vec<JobRow>, ExitCode> {
        Ok(self.all_jobs()?.0)
    }

    /// The same, and those that cannot be read.
    pub(super) fn all_jobs(&self) -> Result<(Vec<JobRow>, Vec<UnreadableJob>), ExitCode> {
        match self.read(&CronCommand::Jobs)? {
            Some(CronReply::Jobs(mut rows, unreadable)) => {
                let maker = self.maker.as_ref();
                rows.retain(|row| row.job.allows(JobAction::See, maker));
                let is_shown = maker.is_none_or(JobMaker::is_owner);
                Ok((rows, if is_shown { unreadable } else { Vec::new() }))
            }
            _ => Ok((Vec::new(), Vec::new())),
        }
    }

    /// The fields of an imported file of jobs beside the jobs.
    pub(super) fn file_fields(&self) -> Result<Map<String, Value>, ExitCode> {
        match self.read(&CronCommand::FileFields)? {
            Some(CronReply::FileFields(fields)) => Ok(fields),
            _ => Ok(Map::new()),
        }
    }

    /// The newest runs of a job, or of all.
    pub(super) fn runs(&self, job: Option<String>, limit: u32) -> Result<Vec<RunRow>, ExitCode> {
        match self.read(&CronCommand::Runs { job, limit })? {
            Some(CronReply::Runs(mut runs)) => {
                if self.maker.is_some() {
                    let seen = self.jobs()?;
                    runs.retain(|run| seen.iter().any(|row| row.job.id() == run.job));
                }
                Ok(runs)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The job that a person means.
    pub(super) fn find(&self, wanted: &str) -> Result<JobRow, ExitCode> {
        let mut rows = self.jobs()?;
        let id = id_of(&rows, wanted).map(str::to_owned);
        let at = id.map(|id| rows.iter().position(|row| row.job.id() == id));
        match at {
            Ok(Some(at)) => Ok(rows.swap_remove(at)),
            Err(ids) if !ids.is_empty() => Err(self.refused(ChangeRefusal::Ambiguous(ids))),
            Ok(None) | Err(_) => Err(self.refused(ChangeRefusal::NoSuchJob(wanted.trim().to_owned()))),
        }
    }

    /// The id of the job whose runs are wanted: that of a job, or of one that is gone.
    pub(super) fn run_id(&self, wanted: &str) -> Result<String, ExitCode> {
        let rows = self.jobs()?;
        match id_of(&rows, wanted) {
            Ok(id) => Ok(id.to_owned()),
            Err(ids) if ids.is_empty() => {
                let wanted = wanted.trim();
                let is_known = job::is_id(wanted) && !self.runs(Some(wanted.to_owned()), 1)?.is_empty();
                if is_known {
                    Ok(wanted.to_owned())
                } else {
                    Err(self.refused(ChangeRefusal::NoSuchJob(wanted.to_owned())))
                }
            }
            Err(ids) => Err(self.refused(ChangeRefusal::Ambiguous(ids))),
        }
    }

    /// Makes a change, and returns the job after it; before it, if it was removed.
    pub(super) fn change_one(&self, change: JobChange) -> Result<JobRow, ExitCode> {
        match self.change(change)? {
            CronReply::Changed { job: Some(job), .. } => Ok(*job),
            _ => Err(self
                .relay
                .fail(exit::INTERNAL, "the journal gave no answer", None)),
        }
    }

    /// Makes a change.
    pub(super) fn change(&self, change: JobChange) -> Result<CronReply, ExitCode> {
        if let Some(job) = change.job().filter(|_| !self.relay.has_journal()) {
            return Err(self.refused(ChangeRefusal::NoSuchJob(job.trim().to_owned())));
        }
        let command = CronCommand::Change {
            change,
            maker: self.maker.clone(),
            zone: self.zone.clone(),
            now: self.now,
        };
        match self.open()?.run(&command).map_err(|error| self.failed(error))? {
            CronReply::Refused(refusal) => Err(self.refused(refusal)),
            reply => Ok(reply),
        }
    }

    /// Notifies a running relay of changes, and waits until it knows whether the jobs are armed.
    pub(super) fn notify(&self) -> RelayAnswer {
        match self.relay.call(&ControlRequest::JobsChanged) {
            Ok(answer) => RelayAnswer::Notified(answer),
            Err(ClientError::NotRunning(_)) if !self.relay_runs => RelayAnswer::Stopped,
            Err(ClientError::NotRunning(_)) => RelayAnswer::Unnotified("it has no control socket".to_owned()),
            Err(error) => RelayAnswer::Unnotified(error.to_string()),
        }
    }

    /// Fails if a running relay has paused a job again.
    pub(super) fn check_resumed(&self, id: &str) -> Result<(), ExitCode> {
        let rows = self.jobs()?;
        let row = rows.iter().find(|row| row.job.id() == id);
        let Some(reason) = row.and_then(|row| row.job.paused_reason()) else {
            return Ok(());
        };
        let what = format!("{id} stays paused: {}", printable(reason));
        let hint = "let that person in with `hermes-relay access allow PLATFORM:ID`, then resume the job";
        Err(self.relay.fail(exit::FAILED, what, Some(hint)))
    }

    /// Whether a job that was changed will run by itself.
    pub(super) fn armed(&self, row: &JobRow, answer: &RelayAnswer) -> ArmedNote {
        if row.wanted_arm(&self.zone).is_none() {
            return ArmedNote::no(format!(
                "saved; it is {} and does not run",
                row.job.state().as_str()
            ));
        }
        match answer {
            RelayAnswer::Stopped => ArmedNote::no(match self.provider() {
                CronProvider::Off => {
                    "saved, but will not run: `cron.provider` is off, so nothing starts jobs"
                }
                CronProvider::Chronos | CronProvider::Builtin => {
                    "saved; no relay is running: it will run at its time once `hermes-relay run` has started"
                }
            }),
            RelayAnswer::Unnotified(why) => ArmedNote::no(format!(
                "saved, but the running relay could not be notified: {}; restart it",
                printable(why)
            )),
            RelayAnswer::Notified(answer) => ArmedNote::answered(row.job.id(), answer),
        }
    }

    fn open(&self) -> Result<CronFiles, ExitCode> {
        let settings = self.relay.settings();
        let opened = CronFiles::open(
            &settings.state_dir,
            settings.state_dir_assigned,
            self.now.as_millisecond(),
        );
        opened.map_err(|error| self.not_opened(error))
    }

    fn read(&self, command: &CronCommand) -> Result<Option<CronReply>, ExitCode> {
        if !self.relay.has_journal() {
            return Ok(None);
        }
        let reply = self.open()?.run(command);
        reply.map(Some).map_err(|error| self.failed(error))
    }

    fn not_opened(&self, error: OpenError) -> ExitCode {
        match error {
            error @ OpenError::InUse { .. } => self.relay.in_use(
                &error,
                "the relay that uses it is of an older version; restart it with this one",
            ),
            error => self.relay.fail(exit::CONFIGURATION, error, None),
        }
    }

    fn failed(&self, error: InspectError) -> ExitCode {
        match error {
            InspectError::Open(error) => self.not_opened(error),
            error => self.relay.fail(exit::FAILED, error, None),
        }
    }

    /// Reports why a change was not made.
    fn refused(&self, refusal: ChangeRefusal) -> ExitCode {
        let hint = match &refusal {
            ChangeRefusal::NoSuchJob(wanted) => Some(self.similar(wanted)),
            ChangeRefusal::Ambiguous(ids) => {
                let refusal = format!("several jobs have this name: {}", ids.join(", "));
                let hint = "use the id of one of them; `hermes-relay cron list --all` shows them";
                return self.relay.fail(exit::FAILED, refusal, Some(hint));
            }
            ChangeRefusal::Invalid(error) => job_hint(error),
            ChangeRefusal::Full | ChangeRefusal::ChatFull => {
                Some("`hermes-relay cron remove JOB` removes one".to_owned())
            }
            ChangeRefusal::NotTheirs => {
                Some("make a job of your own with `hermes-relay cron add`".to_owned())
            }
            ChangeRefusal::AlreadyRequested => Some("`hermes-relay cron runs` shows it".to_owned()),
        };
        self.relay.fail(exit::FAILED, refusal, hint.as_deref())
    }

    /// Jobs that somebody may have meant.
    fn similar(&self, wanted: &str) -> String {
        let wanted = wanted.trim().to_lowercase();
        let rows = self.jobs().unwrap_or_default();
        let mut similar: Vec<(usize, &JobRow)> = (rows.iter())
            .filter_map(|row| {
                let name = row.job.name().to_lowercase();
                let distance =
                    [name.as_str(), row.job.id()].map(|text| strsim::damerau_levenshtein(text, &wanted));
                let distance = distance.into_iter().min().unwrap_or(usize::MAX);
                let contains =
                    !wanted.is_empty() && (name.contains(&wanted) || row.job.id().starts_with(&wanted));
                let limit = (wanted.chars().count() / 3).clamp(1, 4);
                (contains || distance <= limit).then_some((distance, row))
            })
            .collect();
        similar.sort_by_key(|(distance, _)| *distance);
        let named: Vec<String> = (similar.iter().take(MAX_SIMILAR))
            .map(|(_, row)| format!("{} ({})", row.job.id(), printable(row.job.name())))
            .collect();
        match named.as_slice() {
            [] if rows.is_empty() => "there are no jobs; `hermes-relay cron add` makes one".to_owned(),
            [] => "`hermes-relay cron list --all` lists the jobs".to_owned(),
            named => format!("did you mean {}?", named.join(", ")),
        }
    }
}

/// The name and the id of every job.
pub(in crate::cli) fn job_names(relay: &RemoteRelay) -> Vec<String> {
    let rows = JobStore::new(relay, Caller::default()).jobs().unwrap_or_default();
    let names = rows.iter().flat_map(|row| [row.job.name(), row.job.id()]);
    names.map(str::to_owned).collect()
}

/// Jobs that may run and name this skill, for people; none where no relay has run yet.
pub(in crate::cli) fn jobs_with_skill(relay: &RemoteRelay, skill: &str) -> Result<Vec<String>, ExitCode> {
    let rows = JobStore::new(relay, Caller::default()).jobs()?;
    let naming = rows.iter().filter(|row| {
        row.job.state() != JobState::Completed && row.job.skills().iter().any(|named| named.trim() == skill)
    });
    Ok(naming
        .map(|row| format!("{} ({})", row.job.id(), printable(row.job.name())))
        .collect())
}

/// What to do about a job that cannot be like this.
fn job_hint(error: &JobError) -> Option<String> {
    match error {
        JobError::Schedule(ScheduleError::Zone { name, near: None }) => {
            let names: Vec<String> = jiff::tz::db()
                .available()
                .map(|zone| zone.as_str().to_owned())
                .collect();
            let near = nearest(name, names.iter().map(String::as_str))?;
            Some(format!("did you mean `{near}`?"))
        }
        JobError::Schedule(ScheduleError::Past(_)) => {
            Some("give it a time ahead, such as \"in 30m\"; for a job that exists: `hermes-relay cron edit JOB --schedule \"in 30m\"`".to_owned())
        }
        JobError::Schedule(ScheduleError::Zone { .. })
        | JobError::TooLong(..)
        | JobError::NotAnObject
        | JobError::BadId
        | JobError::Completed => None,
        JobError::Schedule(ScheduleError::Unknown { near: Near::Meant(_), .. }) => {
            Some("`hermes-relay cron add --help` lists every way to write a time".to_owned())
        }
        JobError::Schedule(_) | JobError::BadSchedule => Some(SCHEDULES.to_owned()),
        JobError::NoPrompt => {
            let hint = "say what the agent is asked, in quotes; `-` reads it from standard input, --skill runs a skill";
            Some(hint.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_relay_that_is_shutting_down_promises_nothing_of_its_own() {
        let answer = |is_ending: bool, jobs: Value| json!({"provider": "builtin", "unavailable": null, "jobs": jobs, "shutting_down": is_ending});
        let note = ArmedNote::answered("j1", &answer(false, json!({})));
        assert!(note.armed);
        assert_eq!(note.note, "will run: the running relay starts it");
        let note = ArmedNote::answered("j1", &answer(true, json!({})));
        assert!(!note.armed && note.error.is_none());
        assert!(
            note.note.contains("once the relay has started again"),
            "{}",
            note.note
        );
        let armed = json!({"j1": {"armed": true}});
        assert!(
            ArmedNote::answered("j1", &answer(true, armed)).armed,
            "the scheduler has it"
        );
        for (is_ending, wanted) in [
            (false, ("runs now", true)),
            (
                true,
                ("runs when the relay starts again: it is shutting down", false),
            ),
        ] {
            let asked = RelayAnswer::Notified(answer(is_ending, json!({})));
            assert_eq!(asked.asked_run(), wanted);
        }
    }
}
