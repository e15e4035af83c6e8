//! The files of scheduled jobs, read and written beside the event loop: the skills that a run begins with, and the output
//! that it leaves.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::config::Settings;
use crate::cron::job::Job;
use crate::cron::output::{OutputFile, OutputLimits};
use crate::relay::effects::RunSeq;
use crate::session::TurnId;
use crate::skill::{SkillErrorReason, SkillStatus, SkillStore};
use crate::text::one_line;

/// Longest name of a skill in a report, in characters.
const MAX_SKILL_NAME: usize = 64;

/// The prompt of a run, or why it has none.
pub type JobPrompt = Result<String, String>;

/// A run whose output is written, or cannot be.
#[derive(Debug, PartialEq, Eq)]
pub struct SavedOutput {
    pub run: RunSeq,
    pub job: String,
    pub error: Option<String>,
}

/// What was read or written.
#[derive(Debug, PartialEq, Eq)]
pub enum FileDone {
    /// The prompt of this turn.
    Prompt(TurnId, JobPrompt),
    /// An output.
    Saved(SavedOutput),
}

/// Reads skills and writes outputs.
pub struct JobFiles {
    state_dir: PathBuf,
    limits: OutputLimits,
    skills: Arc<dyn SkillStore>,
    reads: JoinSet<JobPrompt>,
    /// The turns that wait for a read.
    reading: HashMap<tokio::task::Id, TurnId>,
    writes: JoinSet<Option<String>>,
    /// The runs whose outputs are being written, and their jobs.
    writing: HashMap<tokio::task::Id, (RunSeq, String)>,
    /// A second, and the outputs of the runs that ended in it.
    named: (i64, HashSet<String>),
    /// Outputs are written at once: a simulation leaves nothing to threads.
    writes_inline: bool,
}

impl JobFiles {
    pub fn new(settings: &Settings, writes_inline: bool) -> Self {
        Self {
            writes_inline,
            state_dir: settings.state_dir.clone(),
            limits: OutputLimits::new(settings.cron.output_retention, settings.cron.output_bytes),
            skills: Arc::from(settings.skills.store_in(&settings.state_dir)),
            reads: JoinSet::new(),
            reading: HashMap::new(),
            writes: JoinSet::new(),
            writing: HashMap::new(),
            named: (0, HashSet::new()),
        }
    }

    /// Prompts that are being read.
    pub fn outstanding(&self) -> usize {
        self.reading.len()
    }

    /// The prompt of a run: the texts of its skills, and then its own. Skills are read when the run begins, so that a new text
    /// and a withdrawn approval count from then on; `None` while they are read, after which [`Self::next_done`] has the
    /// prompt.
    pub fn prompt(&mut self, turn: TurnId, job: &Job) -> Option<JobPrompt> {
        let own = job.prompt().to_owned();
        if job.skills().is_empty() {
            let no_prompt = || "the job has no prompt; this relay runs prompts, not scripts".to_owned();
            return Some(Some(own).filter(|own| !own.is_empty()).ok_or_else(no_prompt));
        }
        let names: Vec<String> = job.skills().into_iter().map(str::to_owned).collect();
        let skills = Arc::clone(&self.skills);
        let read = self
            .reads
            .spawn_blocking(move || with_skills(&*skills, &names, own));
        self.reading.insert(read.id(), turn);
        None
    }

    /// Waits for the next prompt that is read and the next output that is written; never resolves while there is none. Cancel-safe.
    pub async fn next_done(&mut self) -> FileDone {
        let unread = |_| Err("its skills cannot be read".to_owned());
        let unwritten = |error: JoinError| Some(error.to_string());
        tokio::select! {
            biased;
            (turn, prompt) = next_of(&mut self.reads, &mut self.reading, unread) => FileDone::Prompt(turn, prompt),
            ((run, job), error) = next_of(&mut self.writes, &mut self.writing, unwritten) => {
                FileDone::Saved(SavedOutput { run, job, error })
            }
        }
    }

    /// The file for the output of a run that ends `now`.
    pub fn output_file(&mut self, run: RunSeq, job: &Job, now: Timestamp, zone: &TimeZone) -> OutputFile {
        let file = OutputFile::new(job, now, zone);
        if self.named.0 != now.as_second() {
            self.named = (now.as_second(), HashSet::new());
        }
        if self.named.1.insert(file.path()) {
            file
        } else {
            file.with_number(run.0)
        }
    }

    /// Writes the output of a run to its file; `None` while it is written, after which [`Self::next_done`] has it.
    pub fn save(&mut self, run: RunSeq, job: &Job, file: OutputFile, page: String) -> Option<SavedOutput> {
        let (state_dir, limits) = (self.state_dir.clone(), self.limits.clone());
        let job = job.id().to_owned();
        let write = move || {
            let error = file.save(&state_dir, &page, &limits).err()?;
            tracing::warn!(%error, "cannot save the output of a job");
            Some(error.to_string())
        };
        if self.writes_inline {
            let error = write();
            return Some(SavedOutput { run, job, error });
        }
        let write = self.writes.spawn_blocking(write);
        self.writing.insert(write.id(), (run, job));
        None
    }

    /// Waits until the outputs are written.
    pub async fn flush(&mut self, within: Duration) {
        let written = async { while self.writes.join_next().await.is_some() {} };
        if timeout(within, written).await.is_err() {
            tracing::warn!("outputs of jobs were not written in time");
        }
    }
}

/// The next of these tasks that ends, and what it was for; `failed` says what it comes to if it panics.
async fn next_of<F, T: 'static>(
    tasks: &mut JoinSet<T>,
    wanted: &mut HashMap<tokio::task::Id, F>,
    failed: impl Fn(JoinError) -> T,
) -> (F, T) {
    loop {
        let (task, done) = match tasks.join_next_with_id().await {
            Some(Ok(done)) => done,
            Some(Err(error)) => (error.id(), failed(error)),
            None => std::future::pending().await,
        };
        if let Some(what) = wanted.remove(&task) {
            return (what, done);
        }
    }
}

fn with_skills(skills: &dyn SkillStore, names: &[String], own: String) -> JobPrompt {
    let mut parts = Vec::new();
    for name in names {
        let shown = one_line(name, MAX_SKILL_NAME);
        let skill = skills.load(name, None).map_err(|error| {
            if let SkillErrorReason::NotFound(_) = error.reason {
                return format!("there is no skill `{shown}`");
            }
            tracing::warn!(%error, "cannot read the skill of a job");
            format!("the skill `{shown}` cannot be read; the relay's log says why")
        })?;
        match skill.metadata.status {
            SkillStatus::Approved => parts.push(skill.source),
            status => return Err(format!("the skill `{shown}` is {status}, not Approved")),
        }
    }
    parts.extend(Some(own).filter(|own| !own.is_empty()));
    Ok(parts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::output;
    use serde_json::json;

    fn job(record: serde_json::Value) -> Job {
        Job::from_record(record).unwrap()
    }

    #[tokio::test]
    async fn an_output_is_written_when_all_are_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = JobFiles::new(&Settings::embedded(dir.path()), false);
        let job = job(json!({"id": "a1", "prompt": "look"}));
        let file = OutputFile::new(&job, Timestamp::UNIX_EPOCH, &TimeZone::UTC);
        let path = file.path();
        let page = output::page(&job, "done", None);
        assert_eq!(files.save(RunSeq(1), &job, file, page), None);
        files.flush(Duration::from_secs(20)).await;
        assert!(files.writes.is_empty());
        let page = std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert!(page.contains("look") && page.contains("done"), "{page}");
    }

    #[test]
    fn runs_of_a_job_that_end_in_the_same_second_have_an_output_each() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = JobFiles::new(&Settings::embedded(dir.path()), false);
        let mut path = |job: &str, run, second| {
            let job = self::job(json!({"id": job}));
            let now = Timestamp::from_second(second).unwrap();
            files.output_file(RunSeq(run), &job, now, &TimeZone::UTC).path()
        };
        let paths = [
            path("a1", 7, 0),
            path("b1", 8, 0),
            path("a1", 9, 0),
            path("a1", 10, 1),
        ];
        let wanted = [
            "a1/1970-01-01_00-00-00.md",
            "b1/1970-01-01_00-00-00.md",
            "a1/1970-01-01_00-00-00_9.md",
            "a1/1970-01-01_00-00-01.md",
        ];
        assert_eq!(paths, wanted.map(|path| format!("cron/output/{path}")));
    }

    #[tokio::test]
    async fn an_output_that_cannot_be_written_says_so_to_its_run() {
        for writes_inline in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("cron"), "in the way").unwrap();
            let mut files = JobFiles::new(&Settings::embedded(dir.path()), writes_inline);
            let job = job(json!({"id": "a1"}));
            let file = OutputFile::new(&job, Timestamp::UNIX_EPOCH, &TimeZone::UTC);
            let done = match files.save(RunSeq(1), &job, file, "page".to_owned()) {
                Some(saved) => FileDone::Saved(saved),
                None => files.next_done().await,
            };
            let FileDone::Saved(saved) = done else {
                panic!("{done:?}")
            };
            assert_eq!((saved.run, saved.job.as_str()), (RunSeq(1), "a1"));
            assert!(saved.error.is_some());
        }
    }

    #[tokio::test]
    async fn a_prompt_is_there_at_once_unless_skills_are_read_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = JobFiles::new(&Settings::embedded(dir.path()), false);
        let own = files.prompt(TurnId(1), &job(json!({"id": "a1", "prompt": "look"})));
        assert_eq!(own, Some(Ok("look".to_owned())));
        let none = files.prompt(TurnId(1), &job(json!({"id": "a1"})));
        assert!(none.unwrap().unwrap_err().contains("no prompt"));
        assert_eq!(files.outstanding(), 0);
        let skilled = job(json!({"id": "a1", "skill": "tidy"}));
        assert_eq!(files.prompt(TurnId(2), &skilled), None);
        assert_eq!(files.outstanding(), 1);
        let FileDone::Prompt(turn, prompt) = files.next_done().await else {
            panic!("nothing is written")
        };
        assert_eq!((turn, files.outstanding()), (TurnId(2), 0));
        assert!(prompt.unwrap_err().contains("tidy"), "there is no such skill");
    }
}
