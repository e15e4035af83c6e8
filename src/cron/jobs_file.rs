//! Hermes' own file of jobs, `cron/jobs.json`: read as Hermes reads it, and written so that nothing is lost. Pure.
//!
//! The file is `{"jobs": [...], "updated_at": "..."}`, or a bare list. A record keeps its id and every field, known or not, and
//! so does the file itself.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::job::{Job, MAX_RECORD_BYTES};
use super::schedule::{ONCE_GRACE_SECS, Timing, format, parse_instant, plus_secs};

/// Maximum size of the file in bytes.
pub const MAX_FILE_BYTES: usize = 32 << 20;
/// Maximum jobs of a file.
pub const MAX_ENTRIES: usize = 1_000;

/// Why a file of jobs cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobsFileError {
    /// It is too large.
    #[error("it is larger than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLarge,
    /// It is no JSON.
    #[error("it is not valid JSON: {0}")]
    Json(String),
    /// It holds something else.
    #[error("it has no list of jobs; expected {{\"jobs\": [...]}}")]
    NotAList,
    /// It has too many jobs.
    #[error("it has {0} jobs, at most {MAX_ENTRIES} can be imported")]
    TooMany(usize),
    /// What is beside the jobs is too large.
    #[error("its fields beside `jobs` are larger than {} KiB", MAX_RECORD_BYTES >> 10)]
    TooMuchBeside,
}

/// A record of the file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadEntry {
    /// Its place in the file, from 1 on.
    pub number: usize,
    /// Its id or name, if it has one.
    pub label: Option<String>,
    /// Why it cannot be used.
    pub why: String,
}

/// The content of a file of jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobsFile {
    /// The jobs, in the order of the file.
    pub jobs: Vec<Job>,
    /// What cannot be used.
    pub bad: Vec<BadEntry>,
    /// The fields of the file that this program does not know.
    pub rest: Map<String, Value>,
}

/// Reads the file. A byte order mark and raw control characters in texts are accepted, as Hermes does; a record that cannot be
/// used does not stop the others.
pub fn parse(bytes: &[u8]) -> Result<JobsFile, JobsFileError> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(JobsFileError::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| JobsFileError::Json(error.to_string()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let value: Value = serde_json::from_str(text)
        .or_else(|error| serde_json::from_str(&with_escaped_controls(text)).map_err(|_| error))
        .map_err(|error| JobsFileError::Json(error.to_string()))?;
    let (records, rest) = match value {
        Value::Array(records) => (records, Map::new()),
        Value::Object(mut file) => match file.remove("jobs") {
            Some(Value::Array(records)) => {
                file.remove("updated_at");
                (records, file)
            }
            _ => return Err(JobsFileError::NotAList),
        },
        _ => return Err(JobsFileError::NotAList),
    };
    if serde_json::to_string(&rest).map_or(0, |text| text.len()) > MAX_RECORD_BYTES {
        return Err(JobsFileError::TooMuchBeside);
    }
    if records.len() > MAX_ENTRIES {
        return Err(JobsFileError::TooMany(records.len()));
    }
    let mut file = JobsFile {
        rest,
        ..JobsFile::default()
    };
    for (number, record) in (1..).zip(records) {
        let label = ["id", "name"].iter().find_map(|key| record.get(key)?.as_str());
        let label = label.map(str::to_owned);
        let why = match Job::from_record(record) {
            Ok(job) if file.jobs.iter().any(|known| known.id() == job.id()) => {
                "an earlier entry has the same `id`".to_owned()
            }
            Ok(job) => {
                file.jobs.push(job);
                continue;
            }
            Err(error) => error.to_string(),
        };
        file.bad.push(BadEntry { number, label, why });
    }
    Ok(file)
}

/// The file with these jobs, the oldest first, and with these other fields.
pub fn export(mut jobs: Vec<Job>, rest: Map<String, Value>, now: Timestamp, zone: &TimeZone) -> Value {
    let created = |job: &Job| {
        let text = job.record().get("created_at").and_then(Value::as_str);
        text.and_then(|text| parse_instant(text, zone))
    };
    jobs.sort_by(|a, b| created(a).cmp(&created(b)).then_with(|| a.id().cmp(b.id())));
    let jobs: Vec<Value> = jobs.iter().map(Job::to_value).collect();
    let mut file = rest;
    file.insert("jobs".to_owned(), jobs.into());
    file.insert("updated_at".to_owned(), format(now, zone).into());
    Value::Object(file)
}

/// What is worth knowing about an imported job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportNote {
    /// It had no next run, or one that was past; it is then.
    Moved(Timestamp),
    /// Its only run was past: it is paused.
    Late,
    /// Its schedule cannot be used: it runs at most once more, at the stored time.
    BadSchedule,
    /// It has no prompt: it fails when it runs.
    NoPrompt,
}

impl ImportNote {
    /// For people.
    pub fn text(&self, zone: &TimeZone) -> String {
        match self {
            Self::Moved(next) => format!("its next run is {}", format(*next, zone)),
            Self::Late => {
                "its time is past, so it is paused; give it another schedule and resume it".to_owned()
            }
            Self::BadSchedule => "its schedule cannot be used; give it another one".to_owned(),
            Self::NoPrompt => "it has no prompt; this relay runs prompts, not scripts".to_owned(),
        }
    }
}

/// Prepares a job for its import: one that ran elsewhere until now must not make up for all that time. A time that lies ahead
/// stays as it is, and so does a job that does not run.
pub fn prepare(job: &mut Job, now: Timestamp, default_zone: &TimeZone) -> Vec<ImportNote> {
    let mut notes = Vec::new();
    if !job.is_active() {
        return notes;
    }
    if job.prompt().trim().is_empty() && job.skills().is_empty() {
        notes.push(ImportNote::NoPrompt);
    }
    let Some(schedule) = job.schedule(default_zone) else {
        notes.push(ImportNote::BadSchedule);
        return notes;
    };
    if job.next_run_at(default_zone).is_some_and(|next| next > now) {
        return notes;
    }
    match schedule.timing() {
        Timing::Once { run_at } if *run_at >= plus_secs(now, -ONCE_GRACE_SECS) => {
            job.set_next_run(Some(*run_at), default_zone);
        }
        Timing::Once { .. } => {
            job.pause(Some("its time was past when it was imported"), now, default_zone);
            notes.push(ImportNote::Late);
        }
        Timing::Interval { .. } | Timing::Cron { .. } => {
            match schedule.next_after(now, &job.zone(default_zone)) {
                Some(next) => {
                    job.set_next_run(Some(next), default_zone);
                    notes.push(ImportNote::Moved(next));
                }
                None => notes.push(ImportNote::BadSchedule),
            }
        }
    }
    notes
}

/// The same text with raw control characters in JSON strings escaped.
fn with_escaped_controls(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 64);
    let (mut in_string, mut after_backslash) = (false, false);
    for c in text.chars() {
        if in_string && c.is_ascii_control() && c != '\u{7f}' {
            // Writing to a String does not fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            after_backslash = false;
            continue;
        }
        escaped.push(c);
        match c {
            '"' if !after_backslash => in_string = !in_string,
            '\\' if in_string => after_backslash = !after_backslash,
            _ => after_backslash = false,
        }
        if c == '"' {
            after_backslash = false;
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        parse_instant("2026-11-15T12:00:00+00:00", &TimeZone::UTC).unwrap()
    }

    /// A record as Hermes writes it, with fields that nobody here knows.
    fn record(id: &str, next: &str) -> Value {
        json!({
            "id": id, "name": "report", "prompt": "what is new?", "enabled": true, "state": "scheduled",
            "created_at": "2026-01-01T00:00:00+00:00", "next_run_at": next,
            "schedule": {"kind": "cron", "expr": "0 9 * * *", "display": "0 9 * * *", "future": {"a": [1, 2.5, null]}},
            "repeat": {"times": null, "completed": 3, "policy": "kept"},
            "provider_backoff": {"until": "later", "nested": {"deep": ["x", {"y": true}]}},
            "origin": {"platform": "telegram", "chat_id": "-100", "topic_icon": "🎉"},
        })
    }

    #[test]
    fn an_export_of_an_import_is_the_same_file() {
        let mut second = record("aaaaaaaaaaaa", "2030-01-02T09:00:00+09:00");
        second["created_at"] = json!("2026-02-01T00:00:00+00:00");
        let jobs = json!([record("ffffffffffff", "2030-01-01T09:00:00+00:00"), second]);
        let updated = "2026-01-01T00:00:00+00:00";
        let text = json!({"jobs": jobs, "updated_at": updated, "version": 3, "x": {"y": [null]}}).to_string();
        let file = parse(text.as_bytes()).unwrap();
        let exported = export(file.jobs, file.rest, now(), &TimeZone::UTC);
        assert_eq!(
            (&exported["version"], &exported["x"]),
            (&json!(3), &json!({"y": [null]}))
        );
        assert_ne!(exported["updated_at"], updated);
        for text in [text.clone(), format!("\u{feff}{text}"), jobs.to_string()] {
            let mut file = parse(text.as_bytes()).unwrap();
            assert!(file.bad.is_empty());
            for job in &mut file.jobs {
                assert_eq!(prepare(job, now(), &TimeZone::UTC), []);
            }
            let exported = export(file.jobs, Map::new(), now(), &TimeZone::UTC);
            assert_eq!(exported["jobs"], jobs);
        }
    }

    #[test]
    fn raw_control_characters_are_read() {
        let text = "[{\"id\": \"a1\", \"prompt\": \"one\ntwo\t\\\"th\nree\\\\\", \"x\": \"\\n\"}]";
        let file = parse(text.as_bytes()).unwrap();
        assert_eq!(file.jobs[0].prompt(), "one\ntwo\t\"th\nree\\");
    }

    #[test]
    fn a_bad_entry_is_named_and_stops_no_other() {
        let list = json!([7, {"name": "nameless"}, record("a1", "x"), record("a1", "y"), {"id": "../etc"}]);
        let file = parse(list.to_string().as_bytes()).unwrap();
        assert_eq!(file.jobs.len(), 1);
        let bad: Vec<_> = file
            .bad
            .iter()
            .map(|bad| (bad.number, bad.label.as_deref()))
            .collect();
        assert_eq!(
            bad,
            [
                (1, None),
                (2, Some("nameless")),
                (4, Some("a1")),
                (5, Some("../etc"))
            ]
        );
        assert!(file.bad.iter().all(|bad| !bad.why.is_empty()));
    }

    #[test]
    fn what_is_no_file_of_jobs_is_refused() {
        for (text, part) in [
            ("", "not valid JSON"),
            ("null", "no list of jobs"),
            ("{}", "no list of jobs"),
            ("{\"jobs\": {}}", "no list of jobs"),
            ("[1, 2", "not valid JSON"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(matches!(parse(b"\xff"), Err(JobsFileError::Json(_))));
        let deep = "[".repeat(100_000);
        assert!(matches!(parse(deep.as_bytes()), Err(JobsFileError::Json(_))));
        let many = json!(vec![0; MAX_ENTRIES + 1]).to_string();
        assert_eq!(
            parse(many.as_bytes()),
            Err(JobsFileError::TooMany(MAX_ENTRIES + 1))
        );
        assert_eq!(
            parse(&vec![b' '; MAX_FILE_BYTES + 1]),
            Err(JobsFileError::TooLarge)
        );
    }

    #[test]
    fn a_job_makes_up_for_no_run_that_was_due_before_its_import() {
        let import = |change: &dyn Fn(&mut Value)| {
            let mut value = record("a1", "2026-11-01T09:00:00+00:00");
            change(&mut value);
            let mut job = Job::from_record(value.clone()).unwrap();
            let notes = prepare(&mut job, now(), &TimeZone::UTC);
            (notes, job, value)
        };
        let (notes, job, _) = import(&|_| {});
        assert!(matches!(notes[..], [ImportNote::Moved(_)]), "{notes:?}");
        assert_eq!(job.next_run_text(), Some("2026-11-16T09:00:00+00:00"));
        let once = |at: &str| json!({"kind": "once", "run_at": at, "display": "once"});
        let (notes, job, _) = import(&|value| value["schedule"] = once("2026-11-01T09:00:00+00:00"));
        assert_eq!(
            (notes.as_slice(), job.is_active()),
            (&[ImportNote::Late][..], false)
        );
        let (notes, job, _) = import(&|value| {
            value["schedule"] = once("2026-11-20T09:00:00+00:00");
            value["next_run_at"] = Value::Null;
        });
        assert_eq!(
            (notes.len(), job.next_run_text()),
            (0, Some("2026-11-20T09:00:00+00:00"))
        );
        let (notes, job, value) = import(&|value| value["enabled"] = json!(false));
        assert_eq!(
            (notes.len(), job.to_value()),
            (0, value),
            "it does not run anyway"
        );
        let (notes, job, value) = import(&|value| {
            value["schedule"] = json!({"kind": "novel"});
            value["prompt"] = json!("");
        });
        assert_eq!(notes, [ImportNote::NoPrompt, ImportNote::BadSchedule]);
        assert_eq!(job.to_value(), value);
    }
}
