//! A job's record: Hermes' own shape, with every field that this program does not know kept as it was.
//!
//! Fields of ours beside Hermes': `agent`, `timezone` and `timeout_secs`.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::schedule::{self, Schedule, ScheduleError, format, parse_instant};
use crate::access::{JobAction, JobMaker, JobOwner};
use crate::setting::MAX_SECS;

/// Maximum length of a prompt in bytes.
pub const MAX_PROMPT_BYTES: usize = 64 << 10;
/// Maximum size of a record in bytes.
pub const MAX_RECORD_BYTES: usize = 256 << 10;
/// Maximum length of a name in characters.
const MAX_NAME_CHARS: usize = 100;
/// Characters of the prompt that a job without a name is named by.
const NAME_FROM_PROMPT: usize = 50;

/// Why a job cannot be made, read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The schedule is wrong.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// There is nothing to run.
    #[error("the prompt is empty")]
    NoPrompt,
    /// The prompt or the record is too long.
    #[error("the {0} is longer than {1} KiB")]
    TooLong(&'static str, usize),
    /// The record is no object.
    #[error("it is not an object")]
    NotAnObject,
    /// The id is missing or not usable.
    #[error("it has no usable `id`")]
    BadId,
    /// The record's schedule cannot be used.
    #[error("its `schedule` cannot be used")]
    BadSchedule,
    /// There is nothing to pause.
    #[error("this job has run for the last time")]
    Completed,
}

/// The chat in which a job was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobOrigin {
    /// The platform.
    pub platform: String,
    /// The chat.
    pub chat_id: String,
    /// The chat's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_name: Option<String>,
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Further ids of the person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_ids: Vec<String>,
    /// The person's roles in the server, when the job was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// `dm`, `group` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_type: Option<String>,
    /// The chat that this one is a thread of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_chat_id: Option<String>,
}

impl JobOrigin {
    /// Whose the job is, as the rules of access see it.
    pub fn owner(&self) -> JobOwner<'_> {
        JobOwner {
            platform: &self.platform,
            chat: &self.chat_id,
            user: self.user_id.as_deref(),
            other_ids: &self.other_ids,
        }
    }
}

/// What a person asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewJob {
    /// The schedule as written.
    pub schedule: String,
    /// What the agent is asked.
    pub prompt: String,
    /// Its name.
    pub name: Option<String>,
    /// Where the answer goes.
    pub deliver: Option<String>,
    /// How often it runs; 0 or none for the default (once for a one-shot, else for ever).
    pub repeat: Option<u64>,
    /// The agent.
    pub agent: Option<String>,
    /// The job's own time zone.
    pub timezone: Option<String>,
    /// Maximum time of a run.
    pub timeout_secs: Option<u64>,
    /// The skill that it runs; the prompt may then be empty.
    pub skill: Option<String>,
    /// Where it was made.
    pub origin: Option<JobOrigin>,
}

/// What a person changes; what is not set stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobEdit {
    /// The schedule as written.
    pub schedule: Option<String>,
    /// What the agent is asked.
    pub prompt: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Where the answer goes.
    pub deliver: Option<String>,
    /// How often it runs; 0 for ever.
    pub repeat: Option<u64>,
    /// The agent; empty for the default one.
    pub agent: Option<String>,
    /// The job's own time zone; empty for the default one.
    pub timezone: Option<String>,
    /// Maximum time of a run; 0 for the default one.
    pub timeout_secs: Option<u64>,
    /// The skill that it runs; empty for none.
    pub skill: Option<String>,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It runs when it is due.
    Scheduled,
    /// Somebody paused it.
    Paused,
    /// It has run for the last time.
    Completed,
    /// Its next run cannot be computed.
    Error,
}

impl JobState {
    /// As it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Error => "error",
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Why it failed; none if it succeeded.
    pub error: Option<String>,
    /// Why its answer was not delivered.
    pub delivery_error: Option<String>,
    /// The file with its output.
    pub output: Option<String>,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    record: Map<String, Value>,
}

impl Job {
    /// Makes a job with this id. `default_zone` holds unless the job has its own.
    pub fn create(new: &NewJob, id: &str, now: Timestamp, default_zone: &TimeZone) -> Result<Self, JobError> {
        let own_zone = new
            .timezone
            .as_deref()
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let zone = match own_zone {
            Some(name) => schedule::zone(name)?,
            None => default_zone.clone(),
        };
        let skill = named(new.skill.as_deref());
        let prompt = checked_prompt(&new.prompt, skill.is_some())?;
        let schedule = Schedule::parse(&new.schedule, now, &zone)?;
        let first = schedule.first_run(now, &zone)?;
        let times = match new.repeat {
            None | Some(0) if schedule.is_once() => Some(1),
            None | Some(0) => None,
            Some(times) => Some(times),
        };
        let deliver = new
            .deliver
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let default_deliver = if new.origin.is_some() { "origin" } else { "local" };
        let record = json!({
            "id": id,
            "name": name_of(new.name.as_deref().or(skill.filter(|_| prompt.is_empty())), &prompt),
            "prompt": prompt,
            "skills": skill.as_slice(),
            "skill": skill,
            "model": null,
            "provider": null,
            "base_url": null,
            "script": null,
            "no_agent": false,
            "context_from": null,
            "schedule": schedule.to_record(&zone),
            "schedule_display": schedule.display(),
            "repeat": {"times": times, "completed": 0},
            "enabled": true,
            "state": "scheduled",
            "paused_at": null,
            "paused_reason": null,
            "created_at": format(now, &zone),
            "next_run_at": format(first, &zone),
            "last_run_at": null,
            "last_status": null,
            "last_error": null,
            "last_delivery_error": null,
            "deliver": deliver.unwrap_or(default_deliver),
            "origin": new.origin,
            "enabled_toolsets": null,
            "workdir": null,
        });
        let mut job = Self::from_record(record)?;
        job.set_optional("agent", new.agent.as_deref());
        job.set_optional("timezone", own_zone);
        if let Some(secs) = new.timeout_secs.filter(|secs| *secs > 0) {
            job.record.insert("timeout_secs".to_owned(), secs.into());
        }
        Ok(job)
    }

    /// Reads a record; only its id is checked.
    pub fn from_record(record: Value) -> Result<Self, JobError> {
        let Value::Object(record) = record else {
            return Err(JobError::NotAnObject);
        };
        let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
        if !is_id(id) {
            return Err(JobError::BadId);
        }
        Ok(Self { record })
    }

    /// The whole record.
    pub fn record(&self) -> &Map<String, Value> {
        &self.record
    }

    /// The whole record as a value.
    pub fn to_value(&self) -> Value {
        Value::Object(self.record.clone())
    }

    /// Its id, also a safe file name.
    pub fn id(&self) -> &str {
        self.text("id").unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("name").unwrap_or("cron job")
    }

    /// What the agent is asked.
    pub fn prompt(&self) -> &str {
        self.text("prompt").unwrap_or_default()
    }

    /// The skills that it runs: what Hermes lists, and its older single field.
    pub fn skills(&self) -> Vec<&str> {
        let listed = self.record.get("skills").and_then(Value::as_array);
        let listed = listed.into_iter().flatten().filter_map(Value::as_str);
        let mut names: Vec<&str> = Vec::new();
        for name in listed.chain(self.text("skill")) {
            if !name.trim().is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The agent, unless it is the default one.
    pub fn agent(&self) -> Option<&str> {
        self.text("agent").filter(|name| !name.is_empty())
    }

    /// Where the answer goes, as written.
    pub fn deliver(&self) -> String {
        match self.record.get("deliver") {
            Some(Value::String(text)) if !text.trim().is_empty() => text.trim().to_owned(),
            Some(Value::Array(items)) => {
                let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                items.join(",")
            }
            _ if self.origin().is_some() => "origin".to_owned(),
            _ => "local".to_owned(),
        }
    }

    /// Where it was made.
    pub fn origin(&self) -> Option<JobOrigin> {
        let origin: JobOrigin = serde_json::from_value(self.record.get("origin")?.clone()).ok()?;
        (!origin.platform.is_empty() && !origin.chat_id.is_empty()).then_some(origin)
    }

    /// Its own time zone, else the default; an unknown one counts as the default.
    pub fn zone(&self, default_zone: &TimeZone) -> TimeZone {
        let own = self.text("timezone").filter(|name| !name.trim().is_empty());
        own.and_then(|name| schedule::zone(name).ok())
            .unwrap_or_else(|| default_zone.clone())
    }

    /// Its schedule, if it can be used.
    pub fn schedule(&self, default_zone: &TimeZone) -> Option<Schedule> {
        Schedule::from_record(self.record.get("schedule")?, &self.zone(default_zone))
    }

    /// Its schedule for people; where the record says none, as its values say.
    pub fn schedule_display(&self) -> Cow<'_, str> {
        let schedule = self.record.get("schedule");
        let nested = |name: &str| schedule.and_then(|schedule| schedule.get(name)?.as_str());
        let written = [self.text("schedule_display"), nested("display"), nested("expr")];
        let mut written = written
            .into_iter()
            .chain([schedule.and_then(Value::as_str)])
            .flatten();
        if let Some(text) = written.find(|text| !text.trim().is_empty()) {
            return Cow::Borrowed(text);
        }
        let minutes = schedule.and_then(|schedule| schedule.get("minutes")?.as_u64());
        match (minutes, nested("run_at")) {
            (Some(minutes), _) => Cow::Owned(format!("every {minutes}m")),
            (None, Some(run_at)) => Cow::Owned(format!("once at {run_at}")),
            (None, None) => Cow::Borrowed(""),
        }
    }

    /// The next run as stored.
    pub fn next_run_text(&self) -> Option<&str> {
        self.text("next_run_at").filter(|text| !text.is_empty())
    }

    /// The next run.
    pub fn next_run_at(&self, default_zone: &TimeZone) -> Option<Timestamp> {
        parse_instant(self.next_run_text()?, &self.zone(default_zone))
    }

    /// Its state.
    pub fn state(&self) -> JobState {
        match self.text("state") {
            Some("paused") => JobState::Paused,
            Some("completed") => JobState::Completed,
            Some("error") => JobState::Error,
            _ => JobState::Scheduled,
        }
    }

    /// Whether it runs when it is due.
    pub fn is_active(&self) -> bool {
        let enabled = match self.record.get("enabled") {
            None => true,
            Some(value) => value.as_bool().unwrap_or(false),
        };
        enabled && self.state() != JobState::Paused
    }

    /// Maximum time of a run, if it has its own; no longer than the setting may be.
    pub fn timeout_secs(&self) -> Option<u64> {
        self.record
            .get("timeout_secs")
            .and_then(Value::as_u64)
            .filter(|secs| *secs > 0)
            .map(|secs| secs.min(MAX_SECS))
    }

    /// How the last run ended: `ok` or `error`.
    pub fn last_status(&self) -> Option<&str> {
        self.text("last_status")
    }

    /// Why it is paused, if a reason was given.
    pub fn paused_reason(&self) -> Option<&str> {
        self.text("paused_reason")
            .filter(|_| self.state() == JobState::Paused)
    }

    /// Whether somebody may do this with it; the operator may do everything.
    pub fn allows(&self, action: JobAction, maker: Option<&JobMaker>) -> bool {
        maker.is_none_or(|maker| maker.may(action, self.origin().as_ref().map(JobOrigin::owner)))
    }

    /// Why the last run failed.
    pub fn last_error(&self) -> Option<&str> {
        self.text("last_error")
    }

    /// Runs that are left, if they are counted.
    fn times(&self) -> (Option<u64>, u64) {
        let repeat = self.record.get("repeat");
        let number = |name| repeat.and_then(|repeat| repeat.get(name)).and_then(Value::as_u64);
        (
            number("times").filter(|times| *times > 0),
            number("completed").unwrap_or(0),
        )
    }

    /// Sets the next run.
    pub fn set_next_run(&mut self, next: Option<Timestamp>, default_zone: &TimeZone) {
        let zone = self.zone(default_zone);
        let next = next.map(|next| format(next, &zone));
        self.record.insert("next_run_at".to_owned(), next.into());
    }

    fn set_times(&mut self, times: Option<u64>, completed: u64) {
        let repeat = json!({"times": times.filter(|times| *times > 0), "completed": completed});
        self.set("repeat", repeat);
    }

    /// Pauses it.
    pub fn pause(&mut self, reason: Option<&str>, now: Timestamp, default_zone: &TimeZone) {
        let zone = self.zone(default_zone);
        self.set("enabled", false);
        self.set("state", JobState::Paused.as_str());
        self.set("paused_at", format(now, &zone));
        self.record.insert("paused_reason".to_owned(), reason.into());
    }

    /// Resumes it: the next run counts from now.
    pub fn resume(&mut self, now: Timestamp, default_zone: &TimeZone) -> Result<(), JobError> {
        let schedule = self.schedule(default_zone).ok_or(JobError::BadSchedule)?;
        let first = schedule.first_run(now, &self.zone(default_zone))?;
        self.set("enabled", true);
        self.set("state", JobState::Scheduled.as_str());
        self.record.insert("paused_at".to_owned(), Value::Null);
        self.record.insert("paused_reason".to_owned(), Value::Null);
        self.set_next_run(Some(first), default_zone);
        Ok(())
    }

    /// Changes it. A new schedule or zone recomputes the next run from `base`, unless the job is paused.
    pub fn edit(&mut self, edit: &JobEdit, base: Timestamp, default_zone: &TimeZone) -> Result<(), JobError> {
        let mut changed = self.clone();
        if let Some(skill) = edit.skill.as_deref() {
            let skill = named(Some(skill));
            changed.set("skills", json!(skill.as_slice()));
            changed.set("skill", json!(skill));
        }
        if edit.prompt.is_some() || edit.skill.is_some() {
            let prompt = edit.prompt.as_deref().unwrap_or(changed.prompt());
            let prompt = checked_prompt(prompt, !changed.skills().is_empty())?;
            changed.set("prompt", prompt);
        }
        if let Some(name) = edit.name.as_deref().filter(|name| !name.trim().is_empty()) {
            let name = name_of(Some(name), changed.prompt());
            changed.set("name", name);
        }
        if let Some(deliver) = edit.deliver.as_deref().map(str::trim) {
            changed.set("deliver", deliver);
        }
        if let Some(times) = edit.repeat {
            changed.set_times(Some(times), changed.times().1);
        }
        if let Some(agent) = edit.agent.as_deref() {
            changed.set_optional("agent", Some(agent));
        }
        if let Some(secs) = edit.timeout_secs {
            changed.record.insert("timeout_secs".to_owned(), secs.into());
        }
        if let Some(name) = edit.timezone.as_deref() {
            schedule::zone(name)?;
            changed.set_optional("timezone", Some(name.trim()));
        }
        if edit.schedule.is_some() || edit.timezone.is_some() {
            let zone = changed.zone(default_zone);
            let schedule = match &edit.schedule {
                Some(text) => Schedule::parse(text, base, &zone)?,
                None => changed.schedule(default_zone).ok_or(JobError::BadSchedule)?,
            };
            let first = schedule.first_run(base, &zone)?;
            let was_once = self.schedule(default_zone).is_some_and(|before| before.is_once());
            if let (true, None, (Some(1), completed)) = (was_once, edit.repeat, changed.times())
                && !schedule.is_once()
            {
                // Nobody asked for one run: that is what a one-shot has.
                changed.set_times(None, completed);
            }
            changed.set("schedule", schedule.to_record(&zone));
            changed.set("schedule_display", schedule.display());
            if changed.state() != JobState::Paused {
                changed.set("enabled", true);
                changed.set("state", JobState::Scheduled.as_str());
                changed.set_next_run(Some(first), default_zone);
            }
        }
        *self = changed;
        Ok(())
    }

    /// Notes that the answer of the last run did not reach one of its targets.
    pub fn note_undelivered(&mut self, error: &str) {
        let error = joined(self.text("last_delivery_error"), error);
        self.set("last_delivery_error", error);
    }

    /// Notes how a run ended and computes the next one. `consumed` is the latest occurrence that has run; `counts` whether
    /// the run was scheduled and so counts for `repeat`.
    pub fn finish(
        &mut self,
        outcome: &RunOutcome,
        counts: bool,
        consumed: Option<Timestamp>,
        now: Timestamp,
        default_zone: &TimeZone,
    ) {
        let zone = self.zone(default_zone);
        self.set("last_run_at", format(now, &zone));
        self.set(
            "last_status",
            if outcome.error.is_none() { "ok" } else { "error" },
        );
        self.record
            .insert("last_error".to_owned(), outcome.error.clone().into());
        self.record.insert(
            "last_delivery_error".to_owned(),
            outcome.delivery_error.clone().into(),
        );
        for claim in ["fire_claim", "run_claim"] {
            if let Some(held) = self.record.get_mut(claim) {
                *held = Value::Null;
            }
        }
        if !counts {
            return;
        }
        let (times, completed) = self.times();
        if let Some(Value::Object(repeat)) = self.record.get_mut("repeat") {
            repeat.insert("completed".to_owned(), (completed + 1).into());
        }
        let schedule = self.schedule(default_zone);
        let is_once = schedule.as_ref().is_some_and(Schedule::is_once);
        let next = schedule.and_then(|schedule| schedule.next_after_run(consumed, now, &zone));
        let is_last = if is_once {
            // It may have been given another time while it ran.
            next.is_none()
        } else {
            times.is_some_and(|times| completed + 1 >= times)
        };
        if is_last {
            self.set("enabled", false);
            self.set("state", JobState::Completed.as_str());
            self.set_next_run(None, default_zone);
            return;
        }
        if next.is_none() {
            self.set("state", JobState::Error.as_str());
            self.set(
                "last_error",
                "the next run cannot be computed: the schedule has no further match",
            );
        }
        self.set_next_run(next, default_zone);
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.record.get(name).and_then(Value::as_str)
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.record.insert(name.to_owned(), value.into());
    }

    /// Sets a field of ours, or removes it if there is no value.
    fn set_optional(&mut self, name: &str, value: Option<&str>) {
        match value.map(str::trim).filter(|value| !value.is_empty()) {
            Some(value) => self.set(name, value),
            None => {
                self.record.remove(name);
            }
        }
    }
}

/// Whether this can be an id: also a safe file name.
pub fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

/// A new id: 12 hexadecimal digits.
pub fn new_id(random: u64) -> String {
    format!("{:012x}", random & 0xffff_ffff_ffff)
}

/// A name that is not empty.
fn named(name: Option<&str>) -> Option<&str> {
    name.map(str::trim).filter(|name| !name.is_empty())
}

/// Only a job with a skill needs no prompt.
fn checked_prompt(prompt: &str, has_skill: bool) -> Result<String, JobError> {
    let prompt = prompt.trim();
    if prompt.is_empty() && !has_skill {
        return Err(JobError::NoPrompt);
    }
    if prompt.len() > MAX_PROMPT_BYTES {
        return Err(JobError::TooLong("prompt", MAX_PROMPT_BYTES >> 10));
    }
    Ok(prompt.to_owned())
}

fn name_of(name: Option<&str>, prompt: &str) -> String {
    if let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) {
        return name.chars().take(MAX_NAME_CHARS).collect();
    }
    let line = prompt.lines().next().unwrap_or_default();
    let name: String = line.chars().take(NAME_FROM_PROMPT).collect();
    name.trim().to_owned()
}

/// An error after others, each once.
pub fn joined(before: Option<&str>, error: &str) -> String {
    match before.filter(|before| !before.is_empty()) {
        Some(before) if before.split("; ").any(|known| known == error) => before.to_owned(),
        Some(before) => format!("{before}; {error}"),
        None => error.to_owned(),
    }
}

/// The job that a person means: by id, else by its unique name, whatever its case. Else the ids that have that name.
pub fn find<'a>(jobs: impl Iterator<Item = &'a Job> + Clone, wanted: &str) -> Result<&'a Job, Vec<String>> {
    let wanted = wanted.trim();
    let by_id = |is_it: fn(&str, &str) -> bool| jobs.clone().find(|job| is_it(job.id(), wanted));
    if let Some(job) = by_id(|id, wanted| id == wanted).or_else(|| by_id(str::eq_ignore_ascii_case)) {
        return Ok(job);
    }
    let lower = wanted.to_lowercase();
    let named: Vec<&Job> = jobs.filter(|job| job.name().to_lowercase() == lower).collect();
    match named.as_slice() {
        [job] => Ok(job),
        named => Err(named.iter().map(|job| job.id().to_owned()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_is_added_once_and_an_empty_name_is_no_agent() {
        assert_eq!(joined(None, "a"), "a");
        assert_eq!(joined(Some(""), "a"), "a");
        assert_eq!(joined(Some("a; b"), "b"), "a; b");
        assert_eq!(joined(Some("a; b"), "c"), "a; b; c");
        let job = |record| Job::from_record(record).unwrap();
        assert_eq!(job(json!({"id": "a1", "agent": "llm"})).agent(), Some("llm"));
        assert_eq!(job(json!({"id": "a1", "agent": ""})).agent(), None);
        let paused = job(json!({"id": "a1", "state": "paused", "paused_reason": "why"}));
        assert_eq!(paused.paused_reason(), Some("why"));
        let goes_on = job(json!({"id": "a1", "state": "scheduled", "paused_reason": "why"}));
        assert_eq!(goes_on.paused_reason(), None);
    }

    #[test]
    fn a_job_is_found_by_its_id_first_and_by_a_name_that_only_it_has() {
        let job = |id: &str, name: &str| Job::from_record(json!({"id": id, "name": name})).unwrap();
        let jobs = [
            job("a1", "Report"),
            job("b2", "twice"),
            job("c3", "Twice"),
            job("d4", "a1"),
        ];
        let found = |wanted| find(jobs.iter(), wanted).map(Job::id);
        assert_eq!(found(" a1 "), Ok("a1"));
        assert_eq!(found("A1"), Ok("a1"));
        assert_eq!(found("rEPORT"), Ok("a1"));
        assert_eq!(found("twice"), Err(vec!["b2".to_owned(), "c3".to_owned()]));
        assert_eq!(found("other"), Err(Vec::new()));
    }

    /// A Thursday.
    fn now() -> Timestamp {
        parse_instant("2026-06-18T10:00:00Z", &TimeZone::UTC).unwrap()
    }

    fn create(new: &NewJob) -> Result<Job, JobError> {
        Job::create(new, "a1", now(), &TimeZone::UTC)
    }

    fn new(schedule: &str) -> NewJob {
        NewJob {
            schedule: schedule.to_owned(),
            prompt: " Look around\nand tell ".to_owned(),
            ..NewJob::default()
        }
    }

    fn next(job: &Job) -> Option<String> {
        job.next_run_at(&TimeZone::UTC)
            .map(|at| format(at, &TimeZone::UTC))
    }

    #[test]
    fn a_new_job_has_what_was_asked_for_and_defaults_for_the_rest() {
        let job = create(&new("every 1h")).unwrap();
        assert_eq!((job.id(), job.name()), ("a1", "Look around"));
        assert_eq!(job.prompt(), "Look around\nand tell");
        assert_eq!((job.deliver(), job.agent()), ("local".to_owned(), None));
        assert_eq!(
            (job.times(), job.timeout_secs(), job.skills()),
            ((None, 0), None, vec![])
        );
        assert!(job.is_active() && job.state() == JobState::Scheduled);
        assert_eq!(next(&job).as_deref(), Some("2026-06-18T11:00:00+00:00"));
        assert_eq!(create(&new("in 1h")).unwrap().times(), (Some(1), 0), "once");
        let full = NewJob {
            name: Some(" Walk ".to_owned()),
            deliver: Some(" slack:C1 ".to_owned()),
            repeat: Some(3),
            agent: Some(" llm ".to_owned()),
            timezone: Some("Asia/Tokyo".to_owned()),
            timeout_secs: Some(90),
            skill: Some(" tidy ".to_owned()),
            prompt: String::new(),
            origin: Some(JobOrigin {
                platform: "slack".to_owned(),
                chat_id: "C1".to_owned(),
                user_id: Some("ann".to_owned()),
                ..JobOrigin::default()
            }),
            ..new("every day at 9")
        };
        let job = create(&full).unwrap();
        assert_eq!((job.name(), job.deliver()), ("Walk", "slack:C1".to_owned()));
        assert_eq!((job.times(), job.timeout_secs()), ((Some(3), 0), Some(90)));
        assert_eq!((job.agent(), job.skills()), (Some("llm"), vec!["tidy"]));
        assert_eq!(next(&job).as_deref(), Some("2026-06-19T00:00:00+00:00"));
        let unnamed = NewJob { name: None, ..full };
        assert_eq!(create(&unnamed).unwrap().name(), "tidy");
        let zero = NewJob {
            deliver: Some(" ".to_owned()),
            timeout_secs: Some(0),
            repeat: Some(0),
            ..unnamed
        };
        let job = create(&zero).unwrap();
        assert_eq!(
            (job.deliver().as_str(), job.timeout_secs(), job.times()),
            ("origin", None, (None, 0))
        );
    }

    #[test]
    fn a_prompt_is_needed_without_a_skill_and_has_its_limit() {
        let prompt = |prompt: String| {
            create(&NewJob {
                prompt,
                ..new("every 1h")
            })
            .map(|_| ())
        };
        assert_eq!(prompt(" ".to_owned()), Err(JobError::NoPrompt));
        assert_eq!(prompt("x".repeat(MAX_PROMPT_BYTES)), Ok(()));
        let too_long = Err(JobError::TooLong("prompt", 64));
        assert_eq!(prompt("x".repeat(MAX_PROMPT_BYTES + 1)), too_long);
        for (id, is_one) in [("a-Z_9", true), ("", false), ("a/b", false), ("a.b", false)] {
            assert_eq!(is_id(id), is_one, "{id}");
        }
        assert!(is_id(&"x".repeat(64)) && !is_id(&"x".repeat(65)));
        assert_eq!(new_id(u64::MAX), "ffffffffffff");
        assert_eq!(new_id(255), "0000000000ff");
        assert_eq!(name_of(Some(&"n".repeat(200)), "").len(), MAX_NAME_CHARS);
        assert_eq!(name_of(Some(" "), &"p".repeat(200)).len(), NAME_FROM_PROMPT);
        assert_eq!(Job::from_record(json!([])), Err(JobError::NotAnObject));
        assert_eq!(Job::from_record(json!({"id": "../x"})), Err(JobError::BadId));
    }

    #[test]
    fn a_record_of_hermes_is_read_with_what_it_leaves_out() {
        let job = |mut record: Value| {
            record["id"] = json!("a1");
            Job::from_record(record).unwrap()
        };
        assert_eq!(job(json!({})).name(), "cron job");
        let skills = job(json!({"skills": ["a", " ", "b", "a", 5], "skill": "b"}));
        assert_eq!(skills.skills(), ["a", "b"]);
        assert_eq!(job(json!({"skills": [], "skill": "c"})).skills(), ["c"]);
        assert_eq!(
            job(json!({"deliver": ["slack", 5, "local"]})).deliver(),
            "slack,local"
        );
        assert_eq!(job(json!({"deliver": " "})).deliver(), "local");
        let origin = json!({"platform": "slack", "chat_id": "C1"});
        assert_eq!(job(json!({"origin": origin})).deliver(), "origin");
        for nowhere in [
            json!({"platform": "", "chat_id": "C1"}),
            json!({"platform": "slack"}),
        ] {
            assert_eq!(job(json!({"origin": nowhere})).origin(), None);
        }
        for (schedule, shown) in [
            (json!({"minutes": 5}), "every 5m"),
            (json!({"run_at": "2026-06-19"}), "once at 2026-06-19"),
            (json!({"display": " ", "expr": "0 9 * * *"}), "0 9 * * *"),
            (json!("every 2h"), "every 2h"),
            (json!({}), ""),
        ] {
            let job = job(json!({"schedule_display": "", "schedule": schedule}));
            assert_eq!(job.schedule_display(), shown);
        }
        assert!(job(json!({})).is_active());
        assert!(!job(json!({"enabled": "yes"})).is_active());
        assert!(!job(json!({"enabled": true, "state": "paused"})).is_active());
        assert_eq!(job(json!({"next_run_at": ""})).next_run_text(), None);
        assert_eq!(job(json!({"timeout_secs": 0})).timeout_secs(), None);
        let for_ever = job(json!({"timeout_secs": u64::MAX}));
        assert_eq!(for_ever.timeout_secs(), Some(MAX_SECS));
        let tokyo = job(json!({"timezone": "Asia/Tokyo"})).zone(&TimeZone::UTC);
        assert_eq!(tokyo.iana_name(), Some("Asia/Tokyo"));
        for unknown in [" ", "Nowhere/Else"] {
            assert_eq!(
                job(json!({"timezone": unknown})).zone(&TimeZone::UTC),
                TimeZone::UTC
            );
        }
    }

    #[test]
    fn an_edit_changes_what_it_names_and_the_next_run_only_with_the_time() {
        let mut job = create(&new("every 1h")).unwrap();
        let edit = |job: &mut Job, edit: &JobEdit| job.edit(edit, now(), &TimeZone::UTC);
        let before = job.clone();
        edit(&mut job, &JobEdit::default()).unwrap();
        assert_eq!(job, before);
        let nothing = JobEdit {
            prompt: Some(" ".to_owned()),
            ..JobEdit::default()
        };
        assert_eq!(edit(&mut job, &nothing), Err(JobError::NoPrompt));
        assert_eq!(job, before, "as it was");
        let other = JobEdit {
            prompt: Some("Rest".to_owned()),
            name: Some("Pause".to_owned()),
            deliver: Some(" slack ".to_owned()),
            repeat: Some(4),
            agent: Some("llm".to_owned()),
            timeout_secs: Some(5),
            ..JobEdit::default()
        };
        edit(&mut job, &other).unwrap();
        assert_eq!((job.prompt(), job.name()), ("Rest", "Pause"));
        assert_eq!((job.deliver().as_str(), job.agent()), ("slack", Some("llm")));
        assert_eq!((job.times(), job.timeout_secs()), ((Some(4), 0), Some(5)));
        assert_eq!(next(&job), next(&before));
        let blank = JobEdit {
            name: Some(" ".to_owned()),
            agent: Some(" ".to_owned()),
            repeat: Some(0),
            ..JobEdit::default()
        };
        edit(&mut job, &blank).unwrap();
        assert_eq!((job.name(), job.agent(), job.times()), ("Pause", None, (None, 0)));
        let skill = |name: &str, prompt: Option<&str>| JobEdit {
            skill: Some(name.to_owned()),
            prompt: prompt.map(str::to_owned),
            ..JobEdit::default()
        };
        edit(&mut job, &skill("tidy", Some(""))).unwrap();
        assert_eq!((job.skills(), job.prompt()), (vec!["tidy"], ""));
        assert_eq!(edit(&mut job, &skill("", None)), Err(JobError::NoPrompt));
        let daily = JobEdit {
            schedule: Some("every day at 9".to_owned()),
            timezone: Some("Asia/Tokyo".to_owned()),
            ..JobEdit::default()
        };
        edit(&mut job, &daily).unwrap();
        assert_eq!(next(&job).as_deref(), Some("2026-06-19T00:00:00+00:00"));
        let zone = JobEdit {
            timezone: Some("UTC".to_owned()),
            ..JobEdit::default()
        };
        edit(&mut job, &zone).unwrap();
        assert_eq!(next(&job).as_deref(), Some("2026-06-19T09:00:00+00:00"));
        job.pause(Some("why"), now(), &TimeZone::UTC);
        assert_eq!((job.is_active(), job.paused_reason()), (false, Some("why")));
        edit(&mut job, &daily).unwrap();
        assert!(!job.is_active(), "a paused job stays so");
        assert_eq!(next(&job).as_deref(), Some("2026-06-19T09:00:00+00:00"));
        job.resume(now(), &TimeZone::UTC).unwrap();
        assert!(job.is_active());
        assert_eq!(next(&job).as_deref(), Some("2026-06-19T00:00:00+00:00"));
    }

    #[test]
    fn a_one_shot_that_is_made_to_repeat_runs_for_ever_unless_a_number_was_asked_for() {
        let every = |repeat| JobEdit {
            schedule: Some("every 2h".to_owned()),
            repeat,
            ..JobEdit::default()
        };
        let edited = |made: &NewJob, edit: &JobEdit| {
            let mut job = create(made).unwrap();
            job.edit(edit, now(), &TimeZone::UTC).unwrap();
            job.times()
        };
        assert_eq!(edited(&new("in 1h"), &every(None)), (None, 0));
        assert_eq!(edited(&new("in 1h"), &every(Some(1))), (Some(1), 0));
        let once = NewJob {
            repeat: Some(1),
            ..new("every 1h")
        };
        assert_eq!(edited(&once, &every(None)), (Some(1), 0), "as was asked for");
    }

    #[test]
    fn a_run_that_counts_ends_a_job_or_leads_to_the_next() {
        let mut job = create(&NewJob {
            repeat: Some(2),
            ..new("every 1h")
        })
        .unwrap();
        job.set("run_claim", "held");
        let failed = RunOutcome {
            error: Some("no".to_owned()),
            delivery_error: Some("gone".to_owned()),
            ..RunOutcome::default()
        };
        let later = schedule::plus_secs(now(), 600);
        job.finish(&failed, false, None, later, &TimeZone::UTC);
        assert_eq!((job.last_status(), job.last_error()), (Some("error"), Some("no")));
        assert_eq!(job.text("last_delivery_error"), Some("gone"));
        assert_eq!(job.record["run_claim"], Value::Null);
        assert_eq!(
            (job.times(), next(&job).as_deref()),
            ((Some(2), 0), Some("2026-06-18T11:00:00+00:00"))
        );
        job.note_undelivered("late");
        job.note_undelivered("late");
        assert_eq!(job.text("last_delivery_error"), Some("gone; late"));
        let well = RunOutcome::default();
        job.finish(&well, true, Some(now()), later, &TimeZone::UTC);
        assert_eq!((job.last_status(), job.last_error()), (Some("ok"), None));
        assert_eq!(
            (job.times(), next(&job).as_deref()),
            ((Some(2), 1), Some("2026-06-18T11:10:00+00:00"))
        );
        assert_eq!(job.state(), JobState::Scheduled);
        job.finish(
            &well,
            true,
            Some(schedule::plus_secs(later, 60)),
            later,
            &TimeZone::UTC,
        );
        assert_eq!(
            (job.times(), next(&job), job.state()),
            ((Some(2), 2), None, JobState::Completed)
        );
        assert!(!job.is_active());
        let mut once = create(&NewJob {
            repeat: Some(9),
            ..new("in 1h")
        })
        .unwrap();
        once.finish(&well, true, None, later, &TimeZone::UTC);
        assert_eq!(once.state(), JobState::Completed);
        let mut broken = create(&new("every 1h")).unwrap();
        broken.set("schedule", "whenever");
        broken.finish(&well, true, None, later, &TimeZone::UTC);
        assert_eq!((broken.state(), next(&broken)), (JobState::Error, None));
        assert!(
            broken
                .last_error()
                .is_some_and(|error| error.contains("no further match"))
        );
        assert_eq!(broken.resume(now(), &TimeZone::UTC), Err(JobError::BadSchedule));
    }
}
