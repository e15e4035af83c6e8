//! A journal that follows the stream of another comes to the same.

use super::super::super::cron::{CronReply, JobChange, apply as apply_to_jobs};
use super::super::super::follower::{StreamContent, StreamRecord};
use super::super::super::handed::{HandedBody, HandedCommand, NewHandedItem};
use super::super::super::process::current_owner;
use super::super::super::replication::{Appended, CommitStream, NotReplicated};
use super::super::super::stream_marks;
use super::*;
use crate::cron::job::NewJob;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::sync::{Arc, Mutex};

/// A stream in memory.
#[derive(Clone, Default)]
struct Stream {
    records: Arc<Mutex<Vec<StreamRecord>>>,
    is_closed: Arc<Mutex<bool>>,
    /// The server is away, and the relay goes on.
    is_alone: Arc<Mutex<bool>>,
    goes_on: bool,
}

impl CommitStream for Stream {
    fn append(&mut self, commit: &[u8], _: u64) -> Result<Appended, NotReplicated> {
        if *self.is_closed.lock().unwrap() {
            return Err(NotReplicated("it is closed".to_owned()));
        }
        if *self.is_alone.lock().unwrap() {
            return Ok(Appended::Alone);
        }
        let mut records = self.records.lock().unwrap();
        let seq = records.len() as u64 + 1;
        records.push((seq, StreamContent::Commit(commit.to_vec())));
        Ok(Appended::Stored(seq))
    }

    fn goes_on(&self) -> bool {
        self.goes_on
    }

    fn abandon(&mut self) {}
}

const ALL: [&str; 13] = [
    "inbox",
    "done",
    "keys",
    "outbox",
    "dropped",
    "chats",
    "usage",
    "resume",
    "access",
    "quarantine",
    "deliveries",
    "cron_jobs",
    "cron_runs",
];

fn cron(command: CronCommand) -> Command {
    Command::Cron {
        token: 1,
        command: Box::new(command),
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

/// Commands that the generator of the log does not make.
fn other(dice: &mut Dice, token: u64) -> Command {
    let now_ms = NOW + i64::try_from(token).unwrap();
    let zone = TimeZone::UTC;
    match dice.below(10) {
        9 => forget_usage(&dice.below(2).to_string()),
        0 => Command::SetAccess(AccessRow {
            kind: "rule".to_owned(),
            platform: "p".to_owned(),
            person: dice.below(5).to_string(),
            value: (dice.below(2) == 0).then(|| token.to_string()),
        }),
        1 => Command::Handed {
            token,
            command: Box::new(HandedCommand::Take(NewHandedItem {
                dispatch_id: dice.below(40).to_string(),
                agent: "a".to_owned(),
                session: "session 1".to_owned(),
                has_session: true,
                body: if dice.below(2) == 0 {
                    HandedBody::Turn(b"line".to_vec())
                } else {
                    HandedBody::Context {
                        text: "text".to_owned(),
                        meta: "{}".to_owned(),
                    }
                },
                now_ms,
            })),
        },
        2 => Command::Handed {
            token,
            command: Box::new(HandedCommand::Taken(vec![dice.below(40).to_string()])),
        },
        3 => Command::Quarantine {
            token,
            reason: "no".to_owned(),
            buffer_id: None,
            line: vec![b'q'; 40],
            now_ms,
        },
        4 => Command::DropResume {
            session: format!("session {}", dice.below(3)).into(),
        },
        5 => cron(CronCommand::Change {
            change: JobChange::Add {
                new: Box::new(NewJob {
                    schedule: "every 5m".to_owned(),
                    prompt: format!("prompt {token}"),
                    name: Some(format!("job {}", dice.below(4))),
                    ..NewJob::default()
                }),
                random: dice.below(u64::MAX),
            },
            maker: None,
            zone,
            now: at(now_ms),
        }),
        6 => cron(CronCommand::Change {
            change: JobChange::Run {
                job: format!("job {}", dice.below(4)),
            },
            maker: None,
            zone,
            now: at(now_ms),
        }),
        7 => cron(CronCommand::ClaimRequested {
            seq: dice.number(10),
            owner: current_owner(token),
            now: at(now_ms),
        }),
        _ => cron(CronCommand::Recover {
            owner: current_owner(token),
            now: at(now_ms),
        }),
    }
}

fn walk(seed: u64) {
    let mut dice = Dice(seed);
    let (active, standby) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = JournalSettings {
        durability: Durability::Process,
        ..JournalSettings::default()
    };
    let stream = Stream::default();
    let (mut rows, mut ops, mut token, mut read) = (0, 0, 0, 0);
    for _ in 0..4 {
        let db = open_held(active.path(), &settings);
        let (_, state) = reads::recover(&db, &settings).unwrap();
        let mut journal = JournalDb::new(&db, state).unwrap();
        journal.replicate_to(Box::new(stream.clone())).unwrap();
        for _ in 0..dice.below(60) {
            let batch: Vec<Command> = (0..dice.number(6))
                .map(|_| {
                    token += 1;
                    let mut made = if dice.below(4) == 0 {
                        other(&mut dice, token)
                    } else {
                        command(&mut dice, token, rows, ops)
                    };
                    // Row ids begin with 1.
                    if let Command::AddOps { inbox, .. } = &mut made {
                        inbox.take_if(|seq| seq.0 == 0);
                    }
                    made
                })
                .collect();
            *stream.is_closed.lock().unwrap() = dice.below(10) == 0;
            // What the stream did not take is not there; the next attempt is.
            if journal.transact(&batch, NOW).is_err() {
                *stream.is_closed.lock().unwrap() = false;
                journal.transact(&batch, NOW).unwrap();
            }
            (rows, ops) = (
                journal.counters.inbox.cast_unsigned() - 1,
                journal.counters.op.cast_unsigned() - 1,
            );
        }
        let other_db = open_held(standby.path(), &settings);
        let (_, state) = reads::recover(&other_db, &settings).unwrap();
        let mut follower = JournalDb::new(&other_db, state).unwrap();
        follower.begin_following().unwrap();
        let records = stream.records.lock().unwrap();
        while read < records.len() {
            let until = (read + usize::try_from(dice.number(9)).unwrap()).min(records.len());
            follower.follow(&records[read..until], NOW).unwrap();
            read = until;
        }
        journal.materialise().unwrap();
        for table in ALL {
            assert_eq!(dump(&other_db, table), dump(&db, table), "seed {seed}: {table}");
        }
        let position = stream_marks::read(&other_db).unwrap().position;
        assert_eq!(position.unwrap_or(0), records.len() as u64);
    }
}

#[test]
fn a_journal_that_follows_the_stream_comes_to_the_same() {
    for seed in 1..=30 {
        walk(seed);
    }
}

#[test]
fn a_change_of_jobs_by_another_process_is_in_the_next_commit() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let lock = super::super::super::lock::StateLock::take(dir.path(), false, NOW).unwrap();
    let db = schema::open_held(&schema::path_in(dir.path()), &settings, &lock).unwrap();
    let (_, state) = reads::recover(&db, &settings).unwrap();
    let mut journal = JournalDb::new(&db, state).unwrap();
    let stream = Stream::default();
    journal.replicate_to(Box::new(stream.clone())).unwrap();
    let mut jobs = CronFiles::open(dir.path(), false, NOW).unwrap();
    let add = CronCommand::Change {
        change: JobChange::Add {
            new: Box::new(NewJob {
                schedule: "every 5m".to_owned(),
                prompt: "hello".to_owned(),
                ..NewJob::default()
            }),
            random: 7,
        },
        maker: None,
        zone: TimeZone::UTC,
        now: at(NOW),
    };
    assert!(matches!(jobs.run(&add).unwrap(), CronReply::Changed { .. }));
    assert!(stream.records.lock().unwrap().is_empty());
    // The relay reads the jobs again.
    journal.transact(&[cron(CronCommand::Jobs)], NOW).unwrap();
    let records = stream.records.lock().unwrap().clone();
    assert_eq!(records.len(), 1);
    let other = tempfile::tempdir().unwrap();
    let other_db = open_held(other.path(), &settings);
    let (_, state) = reads::recover(&other_db, &settings).unwrap();
    let mut follower = JournalDb::new(&other_db, state).unwrap();
    follower.begin_following().unwrap();
    follower.follow(&records, NOW).unwrap();
    assert_eq!(dump(&other_db, "cron_jobs"), dump(&db, "cron_jobs"));
    assert_eq!(dump(&db, "cron_jobs").len(), 1);
    // A standby's jobs are not changed beside it.
    drop(follower);
    let mut beside = CronFiles::open(other.path(), false, NOW).unwrap();
    assert!(beside.run(&add).is_err());
}

#[test]
fn a_journal_knows_what_it_has_alone_and_a_copy_of_it_is_not_alone() {
    use super::super::super::replication::{install_snapshot, snapshot};
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let lock = super::super::super::lock::StateLock::take(dir.path(), false, NOW).unwrap();
    let db = schema::open_held(&schema::path_in(dir.path()), &settings, &lock).unwrap();
    let (_, state) = reads::recover(&db, &settings).unwrap();
    let mut journal = JournalDb::new(&db, state).unwrap();
    let stream = Stream {
        goes_on: true,
        ..Stream::default()
    };
    let own = journal.begin_following().unwrap().member;
    journal.replicate_to(Box::new(stream.clone())).unwrap();
    let commit = |journal: &mut JournalDb<'_>, alone: bool| {
        *stream.is_alone.lock().unwrap() = alone;
        journal.transact(&[a_rule()], NOW).unwrap();
        let marks = stream_marks::read(&db).unwrap();
        (marks.position, marks.alone)
    };
    assert_eq!(commit(&mut journal, false), (Some(1), None));
    assert_eq!(commit(&mut journal, true), (Some(1), Some(1)));
    assert_eq!(commit(&mut journal, true), (Some(1), Some(2)));
    let copy = dir.path().join("copy");
    assert_eq!(snapshot(dir.path(), &copy).unwrap().alone, Some(2));
    // The server is back, and has it all.
    assert_eq!(commit(&mut journal, false), (Some(2), None));
    assert_eq!(commit(&mut journal, true), (Some(2), Some(1)));
    drop(journal);
    drop(db);
    drop(lock);
    let marks = stream_marks(dir.path()).unwrap();
    assert!(marks.goes_on && marks.alone == Some(1) && marks.member == own);
    assert!(!marks.may_go_on(), "the role is nobody's");
    stream_marks::stand_down(dir.path(), Some(9)).unwrap();
    let marks = stream_marks(dir.path()).unwrap();
    assert_eq!(
        (marks.position, marks.alone, marks.goes_on),
        (Some(9), None, false)
    );
    let other = tempfile::tempdir().unwrap();
    install_snapshot(other.path(), false, &copy, Some(7), NOW).unwrap();
    let marks = stream_marks(other.path()).unwrap();
    assert_eq!((marks.position, marks.alone, marks.member), (Some(7), None, None));
}

#[tokio::test]
async fn a_standby_applies_what_it_is_given_and_knows_whether_it_holds_anything() {
    use super::super::super::follower::Follower;
    let (active, standby) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = JournalSettings::default;
    let db = open_held(active.path(), &settings());
    let (_, state) = reads::recover(&db, &settings()).unwrap();
    let mut journal = JournalDb::new(&db, state).unwrap();
    let stream = Stream::default();
    journal.replicate_to(Box::new(stream.clone())).unwrap();
    journal.transact(&[a_rule()], NOW).unwrap();
    let records = stream.records.lock().unwrap().clone();
    let (follower, state) = Follower::open(standby.path(), settings(), NOW).unwrap();
    assert!(state.is_empty && state.marks.position.is_none());
    follower.apply(records, NOW).await.unwrap();
    follower.close();
    let (follower, state) = Follower::open(standby.path(), settings(), NOW).unwrap();
    assert_eq!((state.is_empty, state.marks.position), (false, Some(1)));
    follower.close();
    let held = open_held(standby.path(), &settings());
    assert_eq!(dump(&held, "access"), dump(&db, "access"));
}

#[tokio::test]
async fn what_was_noted_of_handed_items_ends_when_another_member_was_active() {
    use super::super::super::completion::InboxSeq;
    use super::super::super::follower::Follower;
    use super::super::super::start_marks::{START_MARKS, StartMarks};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(START_MARKS);
    let open = || Follower::open(dir.path(), JournalSettings::default(), NOW).unwrap();
    open().0.close();
    StartMarks::open(&path).expect(InboxSeq(10));
    let (follower, state) = open();
    let own = state.marks.member;
    let term = |seq, author| vec![(seq, StreamContent::Term { author, holder: None })];
    follower.apply(term(1, own), NOW).await.unwrap();
    assert!(
        StartMarks::open(&path).is_left(InboxSeq(10)),
        "nobody else gave it to an agent"
    );
    follower
        .apply(term(2, own.map(|own| own ^ 1)), NOW)
        .await
        .unwrap();
    assert!(!StartMarks::open(&path).is_left(InboxSeq(10)));
    follower.close();
}

#[test]
fn a_change_of_jobs_that_the_stream_does_not_have_is_sent_when_its_member_is_active_again() {
    let settings = JournalSettings::default();
    let stream = Stream::default();
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let databases = dirs.each_ref().map(|dir| open_held(dir.path(), &settings));
    let open = |number: usize| {
        let db = &databases[number];
        JournalDb::new(db, reads::recover(db, &settings).unwrap().1).unwrap()
    };
    let jobs = |number: usize| dump(&databases[number], "cron_jobs").len();
    let follow = |number: usize, after: usize| {
        let mut follower = open(number);
        follower.begin_following().unwrap();
        let records = stream.records.lock().unwrap().clone();
        follower.follow(&records[after..], NOW).unwrap();
    };
    let change = |change| {
        cron(CronCommand::Change {
            change,
            maker: None,
            zone: TimeZone::UTC,
            now: at(NOW),
        })
    };
    let add = |name: &str, random| {
        change(JobChange::Add {
            new: Box::new(NewJob {
                schedule: "every 5m".to_owned(),
                prompt: "hello".to_owned(),
                name: Some(name.to_owned()),
                ..NewJob::default()
            }),
            random,
        })
    };
    let job = || "removed".to_owned();
    let mut journal = open(0);
    journal.replicate_to(Box::new(stream.clone())).unwrap();
    journal.transact(&[add("removed", 7)], NOW).unwrap();
    follow(1, 0);
    // Another process changes jobs while the server is away, and this member becomes a standby.
    drop(journal);
    for command in [change(JobChange::Remove { job: job() }), add("added", 8)] {
        let Command::Cron { command, .. } = command else {
            unreachable!("a change of jobs")
        };
        apply_to_jobs(&databases[0], &command).unwrap();
    }
    assert_eq!((jobs(0), jobs(1)), (1, 1));
    let term = StreamContent::Term {
        author: None,
        holder: None,
    };
    stream.records.lock().unwrap().push((2, term));
    follow(0, 1);
    // The job goes on elsewhere.
    let mut other = open(1);
    other.replicate_to(Box::new(stream.clone())).unwrap();
    let pause = JobChange::Pause {
        job: job(),
        reason: None,
    };
    other.transact(&[change(pause)], NOW).unwrap();
    assert_eq!(stream.records.lock().unwrap().len(), 3);
    follow(0, 2);
    let names = |number: usize| {
        let mut find = databases[number]
            .prepare("SELECT id FROM cron_jobs ORDER BY id")
            .unwrap();
        let names = find.query_map([], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect::<Vec<String>>()
    };
    assert_eq!(jobs(0), 1, "it stays removed");
    let mut journal = open(0);
    journal.replicate_to(Box::new(stream.clone())).unwrap();
    journal.transact(&[a_rule()], NOW).unwrap();
    journal.transact(&[a_rule()], NOW).unwrap();
    follow(2, 0);
    follow(1, 3);
    assert_eq!((names(1), names(2)), (names(0), names(0)));
}

#[test]
fn usage_beyond_the_largest_number_does_not_stop_a_standby() {
    let (active, standby) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = JournalSettings::default();
    let (db, other_db) = (
        open_held(active.path(), &settings),
        open_held(standby.path(), &settings),
    );
    let open = |db| JournalDb::new(db, reads::recover(db, &settings).unwrap().1).unwrap();
    let (mut journal, mut follower) = (open(&db), open(&other_db));
    let stream = Stream::default();
    journal.replicate_to(Box::new(stream.clone())).unwrap();
    for _ in 0..2 {
        journal.transact(&[absurd_usage()], NOW).unwrap();
        journal.materialise().unwrap();
    }
    follower.begin_following().unwrap();
    let records = stream.records.lock().unwrap().clone();
    follower.follow(&records, NOW).unwrap();
    assert_eq!(dump(&other_db, "usage"), dump(&db, "usage"));
    assert_eq!(dump(&db, "usage")[0].last(), Some(&Value::Integer(i64::MAX)));
}

fn a_rule() -> Command {
    Command::SetAccess(AccessRow {
        kind: "rule".to_owned(),
        platform: "p".to_owned(),
        person: "u".to_owned(),
        value: Some("x".to_owned()),
    })
}
