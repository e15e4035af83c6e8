//! The files with the outputs of jobs: `cron/output/<job>/<time>.md` in the state directory, the newest few of each job, and no
//! more than fit into a budget.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::job::Job;

/// Maximum jobs whose outputs are kept, those of deleted jobs included; the ones that ran longest ago are deleted.
const MAX_JOBS_WITH_OUTPUT: usize = 2_000;

/// How many outputs are kept.
#[derive(Debug, Clone)]
pub struct OutputLimits {
    /// Per job; 0 keeps all.
    keep: usize,
    /// Bytes of all together.
    bytes: u64,
    /// Their size as far as it is known: at least the true one.
    size: Arc<Mutex<Option<u64>>>,
}

impl OutputLimits {
    /// So many outputs per job, and so many bytes in all.
    pub fn new(keep: usize, bytes: u64) -> Self {
        Self {
            keep,
            bytes,
            size: Arc::default(),
        }
    }

    /// Deletes the oldest outputs if all together are too large; never the newest.
    fn prune(&self, outputs: &Path, written: u64) -> io::Result<()> {
        let mut size = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        *size = size.map(|size| size.saturating_add(written));
        if size.is_some_and(|size| size <= self.bytes) {
            return Ok(());
        }
        let mut files = stored(outputs)?;
        files.sort();
        let mut total: u64 = files.iter().map(|(_, _, size)| size).sum();
        for (_, path, size) in files.iter().take(files.len().saturating_sub(1)) {
            if total <= self.bytes {
                break;
            }
            fs::remove_file(path)?;
            total -= size;
        }
        *size = Some(total);
        Ok(())
    }
}

/// Every output, with its age and its size.
fn stored(outputs: &Path) -> io::Result<Vec<(SystemTime, PathBuf, u64)>> {
    let mut files = Vec::new();
    for job in fs::read_dir(outputs)?.flatten() {
        let Ok(entries) = fs::read_dir(job.path()) else {
            continue;
        };
        let known = entries.flatten().filter_map(|entry| {
            let about = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((about.modified().ok()?, entry.path(), about.len()))
        });
        files.extend(known);
    }
    Ok(files)
}

/// The file of one run.
#[derive(Debug, Clone)]
pub struct OutputFile {
    job: String,
    name: String,
}

impl OutputFile {
    /// The file of the run that ends `now`. The id of a job is a safe file name.
    pub fn new(job: &Job, now: Timestamp, zone: &TimeZone) -> Self {
        let local = now.to_zoned(job.zone(zone));
        Self {
            job: job.id().to_owned(),
            name: format!("{}.md", local.strftime("%Y-%m-%d_%H-%M-%S")),
        }
    }

    /// The file of the run with this number, where another run of the job has ended in the same second.
    #[must_use]
    pub fn with_number(self, run: i64) -> Self {
        let time = self.name.trim_end_matches(".md");
        Self {
            name: format!("{time}_{run}.md"),
            ..self
        }
    }

    /// Its path in the state directory.
    pub fn path(&self) -> String {
        format!("cron/output/{}/{}", self.job, self.name)
    }

    /// Writes it, and deletes the oldest ones beyond the limits.
    pub fn save(&self, state_dir: &Path, page: &str, limits: &OutputLimits) -> io::Result<()> {
        let keep = limits.keep;
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
        limits.prune(&state_dir.join("cron/output"), page.len() as u64)
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
        "# {} ({})\n\n## Prompt\n\n{skills}{}{ANSWER}{error}{answer}\n",
        job.name(),
        job.id(),
        job.prompt()
    )
}

/// What stands between the prompt and the answer.
const ANSWER: &str = "\n\n## Answer\n\n";

/// The answer in such a text; all of it if it has none.
pub fn answer_in(page: &str) -> &str {
    page.split_once(ANSWER).map_or(page, |(_, answer)| answer)
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
            let page = page(&job, &second.to_string(), None);
            file.save(dir.path(), &page, &OutputLimits::new(2, u64::MAX))
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
    fn the_oldest_outputs_of_all_jobs_make_room() {
        const BUDGET: u64 = 10_000;
        let dir = tempfile::tempdir().unwrap();
        let total = || {
            stored(&dir.path().join("cron/output"))
                .unwrap()
                .iter()
                .map(|(_, _, size)| size)
                .sum::<u64>()
        };
        // A second process knows nothing of what the first one has written.
        for (limits, from) in [
            (OutputLimits::new(50, BUDGET), 0),
            (OutputLimits::new(0, BUDGET), 100),
        ] {
            for second in from..from + 47 {
                let job = Job::from_record(json!({"id": format!("a{}", second % 3), "prompt": "p"})).unwrap();
                let now = Timestamp::from_second(second).unwrap();
                let file = OutputFile::new(&job, now, &TimeZone::UTC);
                file.save(dir.path(), &"x".repeat(1_000), &limits).unwrap();
                let path = dir.path().join(file.path());
                assert!(path.exists(), "the newest stays");
                let when =
                    SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(second).unwrap());
                fs::File::open(&path).unwrap().set_modified(when).unwrap();
                assert!(total() <= BUDGET, "{second}: {}", total());
            }
            let mut left = stored(&dir.path().join("cron/output")).unwrap();
            left.sort();
            assert_eq!(left.len(), 10, "as many as fit");
            let oldest = left[0]
                .0
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_secs();
            assert_eq!(i64::try_from(oldest).unwrap(), from + 37, "the newest ones");
        }
        // One that is larger than the budget is kept alone.
        let job = Job::from_record(json!({"id": "b", "prompt": "p"})).unwrap();
        let file = OutputFile::new(&job, Timestamp::from_second(900).unwrap(), &TimeZone::UTC);
        let limits = OutputLimits::new(50, BUDGET);
        file.save(dir.path(), &"x".repeat(20_000), &limits).unwrap();
        assert_eq!(stored(&dir.path().join("cron/output")).unwrap().len(), 1);
    }

    #[test]
    fn outputs_of_jobs_that_ran_longest_ago_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        for (age, job) in [(2, "b"), (3, "c"), (1, "a")] {
            fs::create_dir(dir.path().join(job)).unwrap();
            let when = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(100 - age);
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
