//! Jobs and their runs in a database of their own.

use super::*;
use crate::access::{Author, Role};
use crate::cron::claim::STALE_SECS;
use crate::cron::job::{JobOrigin, JobState};
use crate::cron::schedule::{parse_instant, plus_secs};
use crate::wire::{NoAliases, Platform};
use serde_json::json;

struct World {
    files: CronFiles,
    now: Timestamp,
    _dir: tempfile::TempDir,
}

impl World {
    /// On a Thursday at ten.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = parse_instant("2026-06-18T10:00:00Z", &TimeZone::UTC).unwrap();
        Self {
            files: CronFiles::open(dir.path(), false, now.as_millisecond()).unwrap(),
            now,
            _dir: dir,
        }
    }

    fn run(&mut self, command: &CronCommand) -> CronReply {
        self.files.run(command).unwrap()
    }

    fn skip(&mut self, secs: i64) {
        self.now = plus_secs(self.now, secs);
    }

    fn change(&mut self, change: JobChange, maker: Option<&JobMaker>) -> CronReply {
        let command = CronCommand::Change {
            change,
            maker: maker.cloned(),
            zone: TimeZone::UTC,
            now: self.now,
        };
        self.run(&command)
    }

    fn add(&mut self, schedule: &str, origin: Option<JobOrigin>, random: u64) -> CronReply {
        let maker = origin.as_ref().map(|origin| maker(origin, Role::User));
        let new = NewJob {
            schedule: schedule.to_owned(),
            prompt: "look".to_owned(),
            origin,
            ..NewJob::default()
        };
        let new = Box::new(new);
        self.change(JobChange::Add { new, random }, maker.as_ref())
    }

    fn added(&mut self, schedule: &str) -> String {
        let random = u64::try_from(self.jobs().len()).unwrap() + 1;
        changed(self.add(schedule, None, random)).job.id().to_owned()
    }

    fn jobs(&mut self) -> Vec<JobRow> {
        match self.run(&CronCommand::Jobs) {
            CronReply::Jobs(rows, _) => rows,
            other => panic!("{other:?}"),
        }
    }

    fn runs(&mut self, job: Option<&str>, limit: u32) -> Vec<RunRow> {
        let job = job.map(str::to_owned);
        match self.run(&CronCommand::Runs { job, limit }) {
            CronReply::Runs(runs) => runs,
            other => panic!("{other:?}"),
        }
    }

    fn claim(&mut self, job: &str, owner: &ClaimOwner) -> ClaimReply {
        let command = CronCommand::Claim {
            job: job.to_owned(),
            fire_at: None,
            source: RunSource::Builtin,
            owner: owner.clone(),
            zone: TimeZone::UTC,
            now: self.now,
        };
        match self.run(&command) {
            CronReply::Claim(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn claim_requested(&mut self, seq: i64, owner: &ClaimOwner) -> ClaimReply {
        let (owner, now) = (owner.clone(), self.now);
        match self.run(&CronCommand::ClaimRequested { seq, owner, now }) {
            CronReply::Claim(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn begin(&mut self, seq: i64, owner: &ClaimOwner) -> bool {
        let (owner, now) = (owner.clone(), self.now);
        self.run(&CronCommand::Begin { seq, owner, now }) == CronReply::Held(true)
    }

    fn finish(&mut self, seq: i64, owner: &ClaimOwner, error: Option<&str>) -> (bool, Option<JobState>) {
        let command = CronCommand::Finish {
            seq,
            owner: owner.clone(),
            outcome: RunOutcome {
                error: error.map(str::to_owned),
                ..RunOutcome::default()
            },
            zone: TimeZone::UTC,
            now: self.now,
        };
        finished(self.run(&command))
    }
}

fn finished(reply: CronReply) -> (bool, Option<JobState>) {
    match reply {
        CronReply::Finished { held, job } => (held, job.map(|row| row.job.state())),
        other => panic!("{other:?}"),
    }
}

fn changed(reply: CronReply) -> JobRow {
    match reply {
        CronReply::Changed { job: Some(job), .. } => *job,
        other => panic!("{other:?}"),
    }
}

fn claimed(reply: ClaimReply) -> RunRow {
    match reply {
        ClaimReply::Claimed { run, .. } => *run,
        other => panic!("{other:?}"),
    }
}

fn origin(user: &str, chat: &str) -> JobOrigin {
    JobOrigin {
        platform: "slack".to_owned(),
        chat_id: chat.to_owned(),
        user_id: Some(user.to_owned()),
        ..JobOrigin::default()
    }
}

fn maker(origin: &JobOrigin, role: Role) -> JobMaker {
    let ids = origin.user_id.iter().map(|id| id.as_str().into());
    let chats = [origin.chat_id.as_str().into()];
    let author = Author::new(&Platform::SLACK, ids, chats, false, &NoAliases);
    JobMaker::in_chat(&author, role, "slack", &origin.chat_id)
}

/// A process of a machine that nobody here can look at.
fn elsewhere(random: u64) -> ClaimOwner {
    ClaimOwner {
        host: "elsewhere".to_owned(),
        pid: 1,
        start: "boot".to_owned(),
        random,
    }
}

fn other_machine(random: u64) -> ClaimOwner {
    ClaimOwner {
        host: "another".to_owned(),
        ..elsewhere(random)
    }
}

#[test]
fn a_change_on_a_full_disk_says_that_it_was_not_made() {
    let mut world = World::new();
    let id = world.added("every 1h");
    // Not one page more.
    world.files.db.execute_batch("PRAGMA max_page_count = 1").unwrap();
    let new = NewJob {
        schedule: "every 1h".to_owned(),
        prompt: "x".repeat(60_000),
        ..NewJob::default()
    };
    let change = CronCommand::Change {
        change: JobChange::Add {
            new: Box::new(new),
            random: 7,
        },
        maker: None,
        zone: TimeZone::UTC,
        now: world.now,
    };
    let said = world.files.run(&change).unwrap_err().to_string();
    assert!(
        said.starts_with("cannot change the journal: the disk of the state directory is full"),
        "{said}"
    );
    let jobs = world.jobs();
    assert_eq!((jobs.len(), jobs[0].job.id()), (1, id.as_str()));
}

#[test]
fn a_request_that_is_made_again_makes_its_job_once() {
    let mut world = World::new();
    let ann = || Some(origin("ann", "C1"));
    let first = changed(world.add("every 1h", ann(), 7));
    assert_eq!(changed(world.add("every 1h", ann(), 7)).job.id(), first.job.id());
    assert_eq!(world.jobs().len(), 1);
    let bob = changed(world.add("every 1h", Some(origin("bob", "C1")), 7));
    assert_ne!(bob.job.id(), first.job.id(), "of somebody else");
    for _ in 0..2 {
        world.add("every 1h", None, 7);
    }
    assert_eq!(world.jobs().len(), 4, "the operator may want two");
    let never = world.add("whenever", None, 9);
    assert!(
        matches!(never, CronReply::Refused(ChangeRefusal::Invalid(_))),
        "{never:?}"
    );
}

#[test]
fn a_chat_has_so_many_jobs_that_will_run() {
    let mut world = World::new();
    for number in 0..MAX_CHAT_JOBS {
        let random = u64::try_from(number).unwrap() * 100;
        changed(world.add("in 1h", Some(origin("ann", "C1")), random));
    }
    let full = world.add("in 1h", Some(origin("bob", "C1")), 999_999);
    assert_eq!(full, CronReply::Refused(ChangeRefusal::ChatFull));
    changed(world.add("in 1h", Some(origin("ann", "C2")), 999_999));
    changed(world.add("in 1h", None, 888_888));
    world.skip(3_600);
    let id = world.jobs()[0].job.id().to_owned();
    let run = claimed(world.claim(&id, &elsewhere(1)));
    assert_eq!(
        world.finish(run.seq, &elsewhere(1), None),
        (true, Some(JobState::Completed))
    );
    changed(world.add("in 1h", Some(origin("bob", "C1")), 999_999));
}

#[test]
fn a_change_needs_a_job_that_somebody_may_change() {
    let mut world = World::new();
    let ann = origin("ann", "C1");
    let id = changed(world.add("every 1h", Some(ann.clone()), 7))
        .job
        .id()
        .to_owned();
    let pause = |job: &str| JobChange::Pause {
        job: job.to_owned(),
        reason: None,
    };
    let run = |job: &str| JobChange::Run { job: job.to_owned() };
    let no_such = |job: &str| CronReply::Refused(ChangeRefusal::NoSuchJob(job.to_owned()));
    assert_eq!(world.change(pause("other"), None), no_such("other"));
    let (guest, user) = (
        maker(&origin("gus", "C1"), Role::Guest),
        maker(&origin("bob", "C1"), Role::User),
    );
    let far = maker(&origin("ann", "C2"), Role::User);
    assert_eq!(
        world.change(pause(&id), Some(&far)),
        no_such(&id),
        "it does not exist there"
    );
    let not_theirs = CronReply::Refused(ChangeRefusal::NotTheirs);
    assert_eq!(world.change(pause(&id), Some(&guest)), not_theirs);
    assert_eq!(world.change(run(&id), Some(&user)), not_theirs);
    assert!(!changed(world.change(pause(&id), Some(&user))).job.is_active());
    let resume = JobChange::Resume { job: id.clone() };
    assert!(changed(world.change(resume, Some(&user))).job.is_active());
    changed(world.change(run(&id), Some(&maker(&ann, Role::User))));
    let again = world.change(run(&id), None);
    assert_eq!(again, CronReply::Refused(ChangeRefusal::AlreadyRequested));
    changed(world.add("every 1h", None, 8));
    let twice = world.change(pause("look"), None);
    assert!(matches!(twice, CronReply::Refused(ChangeRefusal::Ambiguous(ids)) if ids.len() == 2));
    let import = || JobChange::Import {
        records: vec![json!({"id": "imported"}), json!([])],
        rest: json!({"version": 3}).as_object().cloned().unwrap(),
    };
    assert_eq!(world.change(import(), Some(&user)), not_theirs);
    let CronReply::Changed { imported, .. } = world.change(import(), None) else {
        panic!("the operator may")
    };
    assert!(
        matches!(&imported[..], [Ok(id), Err(_)] if id == "imported"),
        "{imported:?}"
    );
    let CronReply::FileFields(fields) = world.run(&CronCommand::FileFields) else {
        panic!("they are kept")
    };
    assert_eq!(fields["version"], 3);
    changed(world.change(JobChange::Remove { job: id.clone() }, None));
    assert_eq!(world.run(&CronCommand::Requested), CronReply::Runs(Vec::new()));
    assert!(world.jobs().iter().all(|row| row.job.id() != id));
}

#[test]
fn an_occurrence_is_claimed_once_and_ends_with_its_owner() {
    let mut world = World::new();
    let id = world.added("every 1h");
    let (mine, other) = (elsewhere(1), elsewhere(2));
    assert!(matches!(world.claim(&id, &mine), ClaimReply::Early { .. }));
    assert_eq!(world.claim("none", &mine), ClaimReply::Gone);
    world.skip(3_600);
    let run = claimed(world.claim(&id, &mine));
    assert_eq!(
        (run.status, run.occurrence),
        (JobRunStatus::Claimed, Some(world.now))
    );
    assert!(world.jobs()[0].is_running);
    assert_eq!(world.claim(&id, &other), ClaimReply::Duplicate);
    assert!(!world.begin(run.seq, &other), "of another owner");
    assert!(world.begin(run.seq, &mine) && !world.begin(run.seq, &mine));
    let renew = |claims: &[(i64, &ClaimOwner)], now| CronCommand::Renew {
        claims: claims
            .iter()
            .map(|(seq, owner)| (*seq, (*owner).clone()))
            .collect(),
        now,
    };
    let now = world.now;
    assert_eq!(world.run(&renew(&[(run.seq, &mine)], now)), CronReply::Held(true));
    let lost = renew(&[(run.seq, &mine), (run.seq, &other)], now);
    assert_eq!(world.run(&lost), CronReply::Held(false));
    assert_eq!(world.finish(run.seq, &other, None), (false, None));
    world.skip(60);
    let failed = world.finish(run.seq, &mine, Some("no"));
    assert_eq!(failed, (true, Some(JobState::Scheduled)));
    assert_eq!(world.finish(run.seq, &mine, None), (false, None), "once");
    let row = &world.jobs()[0];
    assert_eq!((row.is_running, row.job.last_error()), (false, Some("no")));
    let runs = world.runs(Some(&id), 9);
    assert_eq!(
        (runs[0].status, runs[0].error.as_deref()),
        (JobRunStatus::Failed, Some("no"))
    );
    assert_eq!(
        (runs[0].began_at, runs[0].ended_at),
        (Some(now), Some(plus_secs(now, 60)))
    );
    let undelivered = |job: &str| CronCommand::NotDelivered {
        job: job.to_owned(),
        error: "e".repeat(900),
    };
    assert_eq!(world.run(&undelivered(&id)), CronReply::Held(true));
    assert_eq!(world.run(&undelivered("none")), CronReply::Held(false));
    let kept = world.runs(None, 1)[0].delivery_error.clone().unwrap();
    assert_eq!(kept.len(), MAX_ERROR_CHARS);
    assert!(world.runs(Some("none"), 9).is_empty());
    let armed = |job: &str| CronCommand::SetArmed {
        job: job.to_owned(),
        armed: Some("then".to_owned()),
        error: None,
    };
    assert_eq!(world.run(&armed(&id)), CronReply::Held(true));
    assert_eq!(world.run(&armed("none")), CronReply::Held(false));
    assert_eq!(world.jobs()[0].armed.as_deref(), Some("then"));
}

#[test]
fn a_claim_of_another_machine_is_stale_after_a_while() {
    for (age, is_taken) in [(STALE_SECS - 1, false), (STALE_SECS, true)] {
        let mut world = World::new();
        let id = world.added("every 1h");
        world.skip(3_600);
        let run = claimed(world.claim(&id, &elsewhere(1)));
        world.skip(age);
        match world.claim(&id, &other_machine(2)) {
            ClaimReply::Claimed { run: taken, .. } if is_taken => assert_eq!(taken.seq, run.seq),
            reply => assert_eq!((is_taken, reply), (false, ClaimReply::Duplicate), "{age}"),
        }
        assert_eq!(
            world.claim_requested(run.seq, &other_machine(3)),
            ClaimReply::Duplicate
        );
    }
}

#[test]
fn a_requested_run_waits_for_the_one_that_runs() {
    let mut world = World::new();
    let id = world.added("every 1h");
    let run = JobChange::Run { job: id.clone() };
    changed(world.change(run.clone(), None));
    let CronReply::Runs(requested) = world.run(&CronCommand::Requested) else {
        panic!("it is asked for")
    };
    assert_eq!((requested.len(), requested[0].source), (1, RunSource::Manual));
    let seq = requested[0].seq;
    world.skip(3_600);
    let first = claimed(world.claim(&id, &elsewhere(1)));
    assert_eq!(world.claim_requested(seq, &elsewhere(2)), ClaimReply::Duplicate);
    assert_eq!(
        world.claim_requested(seq, &other_machine(2)),
        ClaimReply::Duplicate
    );
    world.skip(STALE_SECS);
    let second = claimed(world.claim_requested(seq, &other_machine(2)));
    assert_eq!((second.seq, second.status), (seq, JobRunStatus::Claimed));
    let ended = world.runs(None, 9).into_iter().find(|run| run.seq == first.seq);
    assert_eq!(ended.unwrap().status, JobRunStatus::Unknown);
    assert_eq!(
        world.finish(seq, &other_machine(2), None),
        (true, Some(JobState::Scheduled))
    );
    changed(world.change(run, None));
    let CronReply::Runs(requested) = world.run(&CronCommand::Requested) else {
        panic!("it is asked for")
    };
    assert_eq!(world.claim_requested(99, &elsewhere(1)), ClaimReply::Duplicate);
    world.files.db.execute("DELETE FROM cron_jobs", []).unwrap();
    assert_eq!(
        world.claim_requested(requested[0].seq, &elsewhere(1)),
        ClaimReply::Gone
    );
}

#[test]
fn an_edit_of_the_schedule_during_a_run_holds_after_it() {
    let edit = |schedule: &str| JobEdit {
        schedule: Some(schedule.to_owned()),
        ..JobEdit::default()
    };
    for (before, after, wait) in [
        ("in 1h", "in 1d", 86_400),
        ("every 1h", "in 1d", 86_400),
        ("in 1h", "every 2h", 7_260),
    ] {
        let mut world = World::new();
        let id = world.added(before);
        world.skip(3_600);
        let run = claimed(world.claim(&id, &elsewhere(1)));
        assert!(world.begin(run.seq, &elsewhere(1)));
        let (job, edit, at) = (id.clone(), Box::new(edit(after)), world.now);
        changed(world.change(JobChange::Edit { job, edit }, None));
        world.skip(60);
        let ended = world.finish(run.seq, &elsewhere(1), None);
        assert_eq!(ended, (true, Some(JobState::Scheduled)), "{before}, {after}");
        let next = world.jobs()[0].pending_run(&TimeZone::UTC);
        assert_eq!(next, Some(plus_secs(at, wait)), "{before}, {after}");
        if wait == 86_400 {
            world.now = plus_secs(at, wait);
            let run = claimed(world.claim(&id, &elsewhere(2)));
            let ended = world.finish(run.seq, &elsewhere(2), None);
            assert_eq!(ended, (true, Some(JobState::Completed)), "{before}, {after}");
        }
    }
}

#[test]
fn a_job_that_has_run_for_the_last_time_is_not_paused() {
    let mut world = World::new();
    let id = world.added("in 1h");
    world.skip(3_600);
    let run = claimed(world.claim(&id, &elsewhere(1)));
    world.finish(run.seq, &elsewhere(1), None);
    let (job, reason) = (id, Some("no access".to_owned()));
    let refused = world.change(JobChange::Pause { job, reason }, None);
    let wanted = ChangeRefusal::Invalid(JobError::Completed);
    assert_eq!(refused, CronReply::Refused(wanted));
    assert_eq!(world.jobs()[0].job.state(), JobState::Completed);
}

#[test]
fn a_fire_during_a_run_that_somebody_asked_for_is_claimed_after_it() {
    for (schedule, pending) in [("in 1h", None), ("every 1h", Some(3_600))] {
        let mut world = World::new();
        let id = world.added(schedule);
        changed(world.change(JobChange::Run { job: id.clone() }, None));
        let seq = world.runs(None, 1)[0].seq;
        claimed(world.claim_requested(seq, &elsewhere(1)));
        world.skip(3_600);
        let occurrence = world.now;
        assert_eq!(
            world.claim(&id, &elsewhere(2)),
            ClaimReply::Busy { occurrence },
            "{schedule}"
        );
        world.finish(seq, &elsewhere(1), None);
        let run = claimed(world.claim(&id, &elsewhere(3)));
        assert_eq!(run.occurrence, Some(occurrence));
        let next = pending.map(|secs| plus_secs(occurrence, secs));
        assert_eq!(world.jobs()[0].pending_run(&TimeZone::UTC), next, "{schedule}");
    }
}

#[test]
fn a_start_takes_over_what_had_not_begun_and_reports_the_rest() {
    let mut world = World::new();
    let (waits, ran) = (world.added("every 1h"), world.added("every 1h"));
    world.skip(3_600);
    let claim = claimed(world.claim(&waits, &elsewhere(1)));
    let begun = claimed(world.claim(&ran, &elsewhere(2)));
    assert!(world.begin(begun.seq, &elsewhere(2)));
    let recover = CronCommand::Recover {
        owner: other_machine(7),
        now: world.now,
    };
    let CronReply::Recovered {
        interrupted,
        taken_over,
    } = world.run(&recover)
    else {
        panic!("both are found")
    };
    assert_eq!(taken_over.len(), 1);
    let owner = other_machine(7).to_string();
    assert_eq!(
        (taken_over[0].0.seq, &taken_over[0].0.owner),
        (claim.seq, &Some(owner))
    );
    assert_eq!(interrupted.len(), 1);
    assert_eq!(
        (interrupted[0].0.seq, interrupted[0].1.is_some()),
        (begun.seq, true)
    );
    let note = CronCommand::Interrupted {
        seq: begun.seq,
        zone: TimeZone::UTC,
        now: world.now,
    };
    assert_eq!(finished(world.run(&note)), (true, Some(JobState::Scheduled)));
    assert_eq!(finished(world.run(&note)), (false, None), "once");
    let rows = world.jobs();
    let row = rows.iter().find(|row| row.job.id() == ran).unwrap();
    assert_eq!(row.job.last_status(), Some("error"));
    assert!(note.must_last() && recover.must_last() && !CronCommand::Jobs.must_last());
    assert!(CronCommand::Jobs.only_reads() && !recover.only_reads());
}

#[test]
fn a_record_that_cannot_be_read_is_named_and_can_be_removed() {
    let mut world = World::new();
    let id = world.added("every 1h");
    let records = [("bad", "{"), ("other", r#"{"id": "another"}"#)];
    for (id, record) in records {
        let insert = "INSERT INTO cron_jobs (id, record) VALUES (?1, ?2)";
        world.files.db.execute(insert, [id, record]).unwrap();
    }
    let CronReply::Jobs(rows, unreadable) = world.run(&CronCommand::Jobs) else {
        panic!("these are jobs")
    };
    let names: Vec<&str> = unreadable.iter().map(|job| job.id.as_str()).collect();
    assert_eq!((rows.len(), names), (1, vec!["bad", "other"]));
    assert!(unreadable[1].reason.contains("another id"), "{unreadable:?}");
    let remove = |job: &str| JobChange::Remove { job: job.to_owned() };
    let removed = world.change(remove("bad"), Some(&maker(&origin("ann", "C1"), Role::User)));
    assert!(matches!(removed, CronReply::Refused(ChangeRefusal::NoSuchJob(_))));
    assert_eq!(
        changed(world.change(remove("bad"), None)).job.name(),
        "unreadable"
    );
    assert_eq!(changed(world.change(remove(&id), None)).job.name(), "look");
    assert!(world.jobs().is_empty());
}

#[test]
fn jobs_and_runs_that_are_over_are_kept_up_to_a_number() {
    let mut world = World::new();
    let import = |count: usize| JobChange::Import {
        records: (0..count)
            .map(|number| json!({"id": format!("i{number}")}))
            .collect(),
        rest: Map::new(),
    };
    let skipped = |reply: CronReply| match reply {
        CronReply::Changed { imported, .. } => imported.iter().filter(|one| one.is_err()).count(),
        other => panic!("{other:?}"),
    };
    assert_eq!(skipped(world.change(import(MAX_JOBS + 2), None)), 2);
    assert_eq!(
        skipped(world.change(import(MAX_JOBS), None)),
        0,
        "they are there already"
    );
    assert_eq!(
        world.add("every 1h", None, 1),
        CronReply::Refused(ChangeRefusal::Full)
    );
    world.files.db.execute("DELETE FROM cron_jobs", []).unwrap();
    for number in 0..101 {
        let record = json!({"id": format!("c{number:03}"), "state": "completed"}).to_string();
        let insert = "INSERT INTO cron_jobs (id, record, consumed) VALUES (?1, ?2, ?3)";
        let values = params![format!("c{number:03}"), record, number];
        world.files.db.execute(insert, values).unwrap();
    }
    let id = world.added("in 1h");
    world.skip(3_600);
    let run = claimed(world.claim(&id, &elsewhere(1)));
    world
        .files
        .db
        .execute("UPDATE cron_runs SET seq = 5000", [])
        .unwrap();
    let old = |seq: i64, status: &str| {
        format!(
            "INSERT INTO cron_runs (seq, job, name, source, status, requested_at, renewed_at) \
             VALUES ({seq}, 'x{seq}', 'x', 'timer', '{status}', 0, 0)"
        )
    };
    for (seq, status) in [(4000, "failed"), (4001, "failed"), (1, "requested")] {
        world.files.db.execute(&old(seq, status), []).unwrap();
    }
    assert!(run.occurrence.is_some() && world.finish(5000, &elsewhere(1), None).0);
    let left: Vec<i64> = world.runs(None, 9).iter().map(|run| run.seq).collect();
    assert_eq!(left, [5000, 4001, 1]);
    let rows = world.jobs();
    assert_eq!(rows.len(), 100);
    let ids: Vec<&str> = rows.iter().map(|row| row.job.id()).collect();
    assert!(
        !ids.contains(&"c000") && !ids.contains(&"c001"),
        "the oldest are gone"
    );
    assert!(ids.contains(&"c002") && ids.contains(&id.as_str()));
}
