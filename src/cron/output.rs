//! The files with the outputs of jobs: `cron/output/<job>/<time>.md` in the state directory, the newest few of each job.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::job::Job;

/// Maximum jobs whose outputs are kept, those of deleted jobs included; the ones that ran longest ago are deleted.
const MAX_JOBS_WITH_OUTPUT: usize = 2_000;

/// The file of one run.
#[derive(Debug, Clone)]
pub struct OutputFile {
    job: String,
    name: String,
}

impl OutputFile {
    /// The file of a run that ends `now`. The id of a job is a safe file name.
    pub fn new(job: &Job, now: Timestamp, zone: &TimeZone) -> Self {
        let local = now.to_zoned(job.zone(zone));
        Self {
            job: job.id().to_owned(),
            name: format!("{}.md", local.strftime("%Y-%m-%d_%H-%M-%S")),
        }
    }

    /// Its path in the state directory.
    pub fn path(&self) -> String {
        format!("cron/output/{}/{}", self.job, self.name)
    }

    /// Writes it, and deletes the oldest ones beyond `keep`; 0 keeps all.
    pub fn save(&self, state_dir: &Path, page: &str, keep: usize) -> io::Result<()> {
        let dir = state_dir.join("cron/output").join(&self.job);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let mut file = tempfile::Builder::new().prefix(".output").tempfile_in(&dir)?;
        file.write_all(page.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(dir.join(&self.name)).map_err(|error| error.error)?;
        if keep > 0 {
            let mut files: Vec<PathBuf> = (fs::read_dir(&dir)?.flatten())
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|end| end == "md"))
                .collect();
            files.sort();
            for old in files.iter().take(files.len().saturating_sub(keep)) {
                fs::remove_file(old)?;
            }
            prune_jobs(&state_dir.join("cron/output"), MAX_JOBS_WITH_OUTPUT)?;
        }
        Ok(())
    }
}

/// Deletes the outputs of the jobs that ran longest ago, beyond `keep` jobs.
fn prune_jobs(outputs: &Path, keep: usize) -> io::Result<()> {
    let mut jobs: Vec<_> = (fs::read_dir(outputs)?.flatten())
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    jobs.sort();
    for (_, old) in jobs.iter().take(jobs.len().saturating_sub(keep)) {
        fs::remove_dir_all(old)?;
    }
    Ok(())
}

/// The text of such a file.
pub fn page(job: &Job, answer: &str, error: Option<&str>) -> String {
    let error = error
        .map(|error| format!("Failed: {error}\n\n"))
        .unwrap_or_default();
    let skills = match job.skills().join(", ") {
        skills if skills.is_empty() => String::new(),
        skills => format!("Skill: {skills}\n\n"),
    };
    format!(
        "# {} ({})\n\n## Prompt\n\n{skills}{}\n\n## Answer\n\n{error}{answer}\n",
        job.name(),
        job.id(),
        job.prompt()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_outputs_of_a_job_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let job = Job::from_record(json!({"id": "a1", "name": "n", "prompt": "p", "timezone": "Asia/Tokyo"}))
            .unwrap();
        for second in 0..4 {
            let now = Timestamp::from_second(second).unwrap();
            let file = OutputFile::new(&job, now, &TimeZone::UTC);
            file.save(dir.path(), &page(&job, &second.to_string(), None), 2)
                .unwrap();
            assert!(dir.path().join(file.path()).exists());
        }
        let kept = fs::read_dir(dir.path().join("cron/output/a1")).unwrap().flatten();
        let mut kept: Vec<_> = kept
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        kept.sort();
        assert_eq!(kept, ["1970-01-01_09-00-02.md", "1970-01-01_09-00-03.md"]);
    }

    #[test]
    fn outputs_of_jobs_that_ran_longest_ago_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        for (age, job) in [(2, "b"), (3, "c"), (1, "a")] {
            fs::create_dir(dir.path().join(job)).unwrap();
            let when = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(100 - age);
            fs::File::open(dir.path().join(job))
                .unwrap()
                .set_modified(when)
                .unwrap();
        }
        prune_jobs(dir.path(), 2).unwrap();
        let left = fs::read_dir(dir.path()).unwrap().flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["a", "b"]);
    }
}
