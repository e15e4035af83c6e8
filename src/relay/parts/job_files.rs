//! The files of scheduled jobs, read and written beside the event loop: the skills that a run begins with, and the output
//! that it leaves.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::Settings;
use crate::cron::job::Job;
use crate::cron::output::{OutputFile, OutputLimits};
use crate::session::TurnId;
use crate::skill::{SkillErrorReason, SkillStatus, SkillStore};
use crate::text::one_line;

/// Longest name of a skill in a report, in characters.
const MAX_SKILL_NAME: usize = 64;

/// The prompt of a run, or why it has none.
pub type JobPrompt = Result<String, String>;

/// Reads skills and writes outputs.
pub struct JobFiles {
    state_dir: PathBuf,
    limits: OutputLimits,
    skills: Arc<dyn SkillStore>,
    reads: JoinSet<JobPrompt>,
    /// The turns that wait for a read.
    reading: HashMap<tokio::task::Id, TurnId>,
    writes: JoinSet<()>,
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
        }
    }

    /// Prompts that are being read.
    pub fn outstanding(&self) -> usize {
        self.reading.len()
    }

    /// The prompt of a run: the texts of its skills, and then its own. Skills are read when the run begins, so that a new text
    /// and a withdrawn approval count from then on; `None` while they are read, after which [`Self::next_prompt`] has the
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

    /// Waits for the next prompt; never resolves while none is read. Cancel-safe.
    pub async fn next_prompt(&mut self) -> (TurnId, JobPrompt) {
        loop {
            let (task, prompt) = match self.reads.join_next_with_id().await {
                Some(Ok(read)) => read,
                Some(Err(error)) => (error.id(), Err("its skills cannot be read".to_owned())),
                None => std::future::pending().await,
            };
            if let Some(turn) = self.reading.remove(&task) {
                return (turn, prompt);
            }
        }
    }

    /// Writes the output of a run to its file; returns the file's path in the state directory.
    pub fn save(&mut self, file: OutputFile, page: String) -> String {
        let path = file.path();
        let (state_dir, limits) = (self.state_dir.clone(), self.limits.clone());
        while self.writes.try_join_next().is_some() {}
        let write = move || {
            if let Err(error) = file.save(&state_dir, &page, &limits) {
                tracing::warn!(%error, "cannot save the output of a job");
            }
        };
        if self.writes_inline {
            write();
        } else {
            self.writes.spawn_blocking(write);
        }
        path
    }

    /// Waits until the outputs are written.
    pub async fn flush(&mut self, within: Duration) {
        let written = async { while self.writes.join_next().await.is_some() {} };
        if timeout(within, written).await.is_err() {
            tracing::warn!("outputs of jobs were not written in time");
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
    use jiff::Timestamp;
    use jiff::tz::TimeZone;
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
        let path = files.save(file, output::page(&job, "done", None));
        files.flush(Duration::from_secs(20)).await;
        assert!(files.writes.is_empty());
        let page = std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert!(page.contains("look") && page.contains("done"), "{page}");
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
        let (turn, prompt) = files.next_prompt().await;
        assert_eq!((turn, files.outstanding()), (TurnId(2), 0));
        assert!(prompt.unwrap_err().contains("tidy"), "there is no such skill");
    }
}
