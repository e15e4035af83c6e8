//! A walk in a simulated world: one thread, a clock that jumps to whatever happens next, chance from the seed, and a disk that is slow
//! and loses power in the middle of what it writes. The journal is the real one; its writer works when the disk says so, while
//! everything else waits.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_relay::store::{
    CronFiles, Durability, Inspector, Journal, JournalSettings, JournalSteps, Opened, Section,
};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::course::{Live, Walk};
use super::world::Rng;
use crate::support::torn_disk::{DiskImage, torn_disks};

/// When a simulation starts, in milliseconds since 1970.
const START_MS: i64 = 1_790_000_000_000;
/// How long a simulation may last: less than any job waits for its next run.
const LONGEST: Duration = Duration::from_secs(19 * 60 * 60);
/// What is in a state directory and not on the disk after a power failure.
const LOST: [&str; 5] = [
    "lock",
    "start-marks",
    "journal.db",
    "journal.db-wal",
    "journal.db-shm",
];

/// Where a walk takes place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum World {
    /// On this machine, with its clock and its threads.
    Machine,
    /// In a simulation.
    Simulated,
    /// In a simulation whose disk forgets what it has synced.
    Forgetful,
}

/// The world around a relay.
pub(super) struct Simulation {
    /// What a forgetful disk goes back to.
    remembered: Option<DiskImage>,
    is_forgetful: bool,
    seed: u64,
    started: Instant,
    /// The disk, who works on it, and a handle without which the journal would be closed in order when its relay is gone.
    disk: Option<SimulatedDisk>,
    /// Acknowledged messages that were found in the journal.
    pub(super) found: HashSet<String>,
}

type SimulatedDisk = (Arc<Mutex<JournalSteps>>, JoinHandle<()>, Journal);

/// A directory in memory, where there is one.
pub(super) fn state_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

impl Simulation {
    pub(super) fn new(seed: u64, is_forgetful: bool) -> Self {
        Self {
            remembered: None,
            is_forgetful,
            seed,
            started: Instant::now(),
            disk: None,
            found: HashSet::new(),
        }
    }

    pub(super) fn lived(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn now_ms(&self) -> i64 {
        START_MS + i64::try_from(self.lived().as_millis()).unwrap()
    }

    /// What chance is made of in one process.
    pub(super) fn seed(&self, process: usize) -> u64 {
        self.seed ^ (process as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95)
    }

    /// Opens the journal, and lets its disk work.
    pub(super) fn open(&mut self, dir: &Path, process: usize) -> Opened {
        let settings = JournalSettings {
            durability: Durability::Process,
            lock_wait_ms: 1,
            ..JournalSettings::default()
        };
        let now = Instant::now().into_std();
        if self.is_forgetful && dir.join("journal.db").exists() {
            self.remembered = Some(DiskImage::of(dir));
        }
        let (opened, steps) = Journal::open_stepped(dir, settings, self.now_ms(), now).unwrap();
        let steps = Arc::new(Mutex::new(steps));
        let rng = Rng::new(self.seed(process));
        let work = tokio::spawn(write(Arc::clone(&steps), rng));
        self.disk = Some((steps, work, opened.journal.clone()));
        opened
    }
}

/// A disk that takes its time for every commit.
async fn write(steps: Arc<Mutex<JournalSteps>>, mut rng: Rng) {
    loop {
        let ready = steps.lock().unwrap().ready();
        ready.await;
        let delay = rng.weighted(&[(6, 0), (4, 200), (3, 2000), (1, 30_000), (1, 900_000)]);
        tokio::time::sleep(Duration::from_micros(delay)).await;
        if !steps.lock().unwrap().step(Instant::now().into_std()) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

impl Walk {
    /// The time of day in this walk.
    pub(super) fn timestamp(&self) -> Timestamp {
        match &self.sim {
            Some(sim) => Timestamp::from_millisecond(sim.now_ms()).unwrap(),
            None => Timestamp::now(),
        }
    }

    /// In a simulation, minutes and hours pass.
    pub(super) async fn pass_time(&mut self) {
        let Some(sim) = &self.sim else { return };
        let left = LONGEST.saturating_sub(sim.lived());
        if !self.is_steady() || !self.rng.percent(30) {
            return;
        }
        let most = self.rng.weighted(&[(4, 3), (3, 300), (2, 3600), (1, 3 * 3600)]);
        let pause = Duration::from_millis(self.rng.below(most * 1000) as u64).min(left);
        self.note(format!("   {pause:?} pass"));
        tokio::time::sleep(pause).await;
    }

    /// In a simulation, whatever is acknowledged is in the journal at that moment.
    pub(super) fn check_acknowledged(&mut self) {
        let Some(sim) = &mut self.sim else { return };
        let news: Vec<&String> = self.seen.acked.difference(&sim.found).collect();
        if news.is_empty() {
            return;
        }
        let journal = Inspector::open(self.dir.path()).unwrap();
        let mut names = HashSet::new();
        for section in [Section::Unfinished, Section::Finished] {
            let rows = journal.list(section, 0, 99_999).unwrap();
            let ids = rows.into_iter().filter_map(|row| row.name);
            names.extend(ids.map(|id| base(&id).to_owned()));
        }
        for name in news {
            assert!(
                names.contains(base(name)),
                "{name} was acknowledged and is not in the journal"
            );
        }
        sim.found.clone_from(&self.seen.acked);
    }

    /// The power fails: while nothing is written, or in the middle of what is written next.
    pub(super) async fn lose_power(&mut self) {
        let Live { connector, task, .. } = self.live.take().expect("the relay runs");
        let (steps, disk, journal) = (self.sim.as_mut().and_then(|sim| sim.disk.take())).expect("a disk");
        disk.abort();
        task.abort();
        let _ = disk.await;
        let _ = task.await;
        // Its turns are dropped when the runtime comes to them.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        self.drop_fault();
        let before = DiskImage::of(self.dir.path());
        let mut image = before.clone();
        if self.rng.percent(70) {
            steps.lock().unwrap().step(Instant::now().into_std());
            image = DiskImage::of(self.dir.path());
            // How much chance that takes depends on bytes that SQLite makes up.
            let mut rng = Rng::new(self.rng.below(1 << 30) as u64);
            if self.rng.percent(80) {
                let mut torn = torn_disks(&before, &image, &mut |limit| rng.below(limit));
                image = torn.swap_remove(rng.below(torn.len()));
            }
        }
        if let Some(remembered) = self.sim.as_mut().and_then(|sim| sim.remembered.take()) {
            image = remembered;
        }
        let next = state_dir();
        image.write_to(next.path());
        copy_rest(self.dir.path(), next.path());
        self.files = None;
        drop(steps);
        drop(journal);
        self.dir = next;
        self.ended(&connector).await;
        self.open().await;
        self.open_files();
        self.look().await;
    }

    pub(super) fn open_files(&mut self) {
        let now_ms = self.timestamp().as_millisecond();
        self.files = Some(CronFiles::open(self.dir.path(), false, now_ms).unwrap());
    }
}

/// The name of a message, whatever id it comes again under.
fn base(id: &str) -> &str {
    id.split('~').next().unwrap_or(id)
}

/// What was written and synced beside the journal.
fn copy_rest(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if entry.path().is_file() && !LOST.iter().any(|lost| name == *lost) {
            std::fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}
