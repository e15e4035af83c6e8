//! Jobs and runs as they are printed: as JSON, and for people. What came from outside is escaped.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::job_store::JobStore;
use crate::cli::format::printable;
use crate::config::CronProvider;
use crate::cron::claim::NextRun;
use crate::cron::job::JobState;
use crate::cron::schedule::{self, Schedule, TimeZone, Timestamp, Timing};
use crate::store::{JobRow, RunRow};

/// How many runs ahead are shown when a job is made.
const RUNS_AHEAD: usize = 3;
/// Maximum characters of a name in a list.
const MAX_SHOWN: usize = 60;

/// A job to be printed.
pub(super) struct JobView<'a> {
    row: &'a JobRow,
    next: Option<Timestamp>,
    zone: TimeZone,
    schedule: Option<Schedule>,
    is_armed: bool,
    has_agent: bool,
}

impl<'a> JobView<'a> {
    pub(super) fn new(row: &'a JobRow, store: &JobStore<'_>) -> Self {
        let next = match row.next_run(store.now(), store.zone()) {
            NextRun::At(at) | NextRun::Repair(at) => Some(at),
            NextRun::Never => None,
        };
        let wanted = row.wanted_arm(store.zone());
        let is_armed = match store.provider() {
            CronProvider::Off => false,
            CronProvider::Builtin => store.is_relay_running() && next.is_some(),
            CronProvider::Chronos => wanted.is_some() && row.armed.as_deref() == wanted,
        };
        Self {
            row,
            next,
            zone: row.job.zone(store.zone()),
            schedule: row.job.schedule(store.zone()),
            is_armed,
            has_agent: store.has_agent_of(row),
        }
    }

    pub(super) fn id(&self) -> &str {
        self.row.job.id()
    }

    pub(super) fn name(&self) -> &str {
        self.row.job.name()
    }

    /// When it runs next.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// The same as it is stored, else in the job's zone.
    pub(super) fn next_text(&self) -> Option<String> {
        let next = self.next?;
        let stored = self.row.job.next_run_text();
        let is_stored = stored.and_then(|text| schedule::parse_instant(text, &self.zone)) == Some(next);
        match stored.filter(|_| is_stored) {
            Some(stored) => Some(stored.to_owned()),
            None => Some(schedule::format(next, &self.zone)),
        }
    }

    /// The same for people.
    pub(super) fn next_for_people(&self) -> String {
        match self.next {
            Some(next) => for_people(next, &self.zone),
            None => "never".to_owned(),
        }
    }

    /// Why nobody will start it although it should run.
    pub(super) fn arm_error(&self) -> Option<&str> {
        let is_wanted = self.next.is_some() && !self.is_armed;
        self.row.arm_error.as_deref().filter(|_| is_wanted)
    }

    /// Whether somebody will start it.
    pub(super) fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// The runs ahead, as many as are left.
    pub(super) fn runs_ahead(&self) -> Vec<Timestamp> {
        let (Some(next), Some(schedule)) = (self.next, &self.schedule) else {
            return Vec::new();
        };
        let repeat = self.row.job.record().get("repeat");
        let number = |name: &str| repeat?.get(name)?.as_u64();
        let left = number("times").map(|times| times.saturating_sub(number("completed").unwrap_or(0)));
        let count = left
            .and_then(|left| usize::try_from(left).ok())
            .unwrap_or(RUNS_AHEAD);
        schedule.runs_from(next, &self.zone, count.clamp(1, RUNS_AHEAD))
    }

    /// The same in the job's zone.
    pub(super) fn runs_ahead_text(&self) -> Vec<String> {
        let runs = self.runs_ahead().into_iter();
        runs.map(|at| schedule::format(at, &self.zone)).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let job = &self.row.job;
        let field = |name: &str| job.record().get(name).cloned().unwrap_or(Value::Null);
        json!({
            "id": job.id(),
            "name": job.name(),
            "prompt": job.prompt(),
            "skill": job.skills().first(),
            "schedule": job.schedule_display(),
            "kind": self.schedule.as_ref().map(Schedule::kind),
            "timezone": self.zone.iana_name().unwrap_or("UTC"),
            "next_run_at": self.next_text(),
            "state": job.state().as_str(),
            "paused_reason": job.paused_reason(),
            "enabled": job.is_active(),
            "running": self.row.is_running,
            "armed": self.is_armed,
            "arm_error": self.row.arm_error,
            "deliver": job.deliver(),
            "agent": job.agent(),
            "agent_missing": !self.has_agent,
            "timeout_secs": job.timeout_secs(),
            "repeat": field("repeat"),
            "created_at": field("created_at"),
            "last_run_at": field("last_run_at"),
            "last_status": field("last_status"),
            "last_error": field("last_error"),
            "last_delivery_error": field("last_delivery_error"),
        })
    }

    /// A line for a list, and what is wrong below it.
    pub(super) fn lines(&self) -> String {
        let job = &self.row.job;
        let when = match (job.state(), self.next) {
            _ if self.row.is_running => "running".to_owned(),
            (_, Some(next)) => for_people(next, &self.zone),
            (JobState::Scheduled, None) => "does not run".to_owned(),
            (state, None) => state.as_str().to_owned(),
        };
        let name: String = printable(job.name()).chars().take(MAX_SHOWN).collect();
        let mut lines = format!(
            "{:<12}  {when:<27}  {}  [{}]  to {}",
            job.id(),
            name,
            printable(&job.schedule_display()),
            printable(&job.deliver())
        );
        let mut below = |what: &str, why: Option<&str>| {
            if let Some(why) = why.filter(|why| !why.is_empty()) {
                // Writing to a String does not fail.
                let _ = write!(lines, "\n{:14}{what}{}", "", printable(why));
            }
        };
        if self.schedule.is_none() {
            below(
                "",
                Some("its schedule cannot be used; give it another one with `cron edit`"),
            );
        }
        if !self.has_agent {
            let agent = job.agent().unwrap_or_default();
            let why = format!("there is no agent `{agent}`; give it another one with `cron edit --agent`");
            below("", Some(&why));
        }
        below("paused: ", job.paused_reason());
        below("last run failed: ", job.last_error());
        let delivery = job.record().get("last_delivery_error").and_then(Value::as_str);
        below("not delivered: ", delivery);
        if job.state() == JobState::Scheduled {
            below("not taken by the scheduler: ", self.row.arm_error.as_deref());
        }
        lines
    }

    /// How the schedule was understood.
    pub(super) fn meaning(&self) -> String {
        let zone = self.zone.iana_name().unwrap_or("UTC");
        match self.schedule.as_ref().map(Schedule::timing) {
            None => "cannot be used".to_owned(),
            Some(Timing::Once { .. }) => format!("once, in {zone}"),
            Some(Timing::Interval { minutes }) => {
                format!("every {}, by elapsed time; shown in {zone}", span(*minutes))
            }
            Some(Timing::Cron { expression, .. }) => {
                let shown = self.row.job.schedule_display();
                let expression = if shown == expression.as_str() {
                    String::new()
                } else {
                    format!(" = `{}`", printable(expression))
                };
                format!("{}{expression}, in {zone}", printable(&shown))
            }
        }
    }
}

/// Minutes for people, in the largest unit that divides them.
fn span(minutes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(7 * 24 * 60, "week"), (24 * 60, "day"), (60, "hour")];
    let unit = UNITS.iter().find(|(unit, _)| minutes.is_multiple_of(*unit));
    match unit {
        Some((unit, name)) if minutes == *unit => (*name).to_owned(),
        Some((unit, name)) => format!("{} {name}s", minutes / unit),
        None => format!("{minutes} min"),
    }
}

/// An instant for people, on the wall clock of a zone.
pub(super) fn for_people(at: Timestamp, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    let clock = match zoned.second() {
        0 => "%a %Y-%m-%d %H:%M %:z",
        _ => "%a %Y-%m-%d %H:%M:%S %:z",
    };
    zoned.strftime(clock).to_string()
}

/// A run to be printed.
pub(super) struct RunView<'a> {
    run: &'a RunRow,
    zone: &'a TimeZone,
}

impl<'a> RunView<'a> {
    pub(super) fn new(run: &'a RunRow, zone: &'a TimeZone) -> Self {
        Self { run, zone }
    }

    pub(super) fn to_json(&self) -> Value {
        let run = self.run;
        let at = |at: Option<Timestamp>| at.map(|at| schedule::format(at, self.zone));
        json!({
            "run": run.seq,
            "job": run.job,
            "name": run.name,
            "status": run.status.as_str(),
            "source": run.source.as_str(),
            "occurrence": at(run.occurrence),
            "requested_at": at(Some(run.requested_at)),
            "began_at": at(run.began_at),
            "ended_at": at(run.ended_at),
            "error": run.error,
            "delivery_error": run.delivery_error,
            "output": run.output,
        })
    }

    pub(super) fn lines(&self) -> String {
        let run = self.run;
        let at = run.occurrence.unwrap_or(run.requested_at);
        let name: String = printable(&run.name).chars().take(MAX_SHOWN).collect();
        let mut lines = format!(
            "{:<9}  {:<27}  {:<8} {:<12} {name}",
            run.status.as_str(),
            for_people(at, self.zone),
            run.source.as_str(),
            run.job
        );
        for (what, why) in [
            ("failed: ", &run.error),
            ("not delivered: ", &run.delivery_error),
            ("output: ", &run.output),
        ] {
            if let Some(why) = why {
                // Writing to a String does not fail.
                let _ = write!(lines, "\n{:11}{what}{}", "", printable(why));
            }
        }
        lines
    }
}
