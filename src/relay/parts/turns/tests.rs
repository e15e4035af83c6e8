//! Turns and their rows, without agents.

use serde_json::json;

use super::*;
use crate::access::Author;
use crate::adapter::ChatId;
use crate::agent::{Agent, AgentFuture, AgentInfo, EchoAgent, Permission, Turn, TurnEnd, TurnInput};
use crate::relay::effects::{JobTask, Pending, RunSeq, SelectedAgent};
use crate::relay::parts::turn_task::tests::context;
use crate::relay::spans::MessageSpan;
use crate::wire::{NoAliases, SessionSource};

const NOW: i64 = 1_790_000_000_000;

fn turns(running: usize) -> Turns {
    let (requests, _) = mpsc::channel(1);
    let limits = SessionLimits {
        running,
        queued: 4,
        waiting: 8,
    };
    Turns::new(limits, requests, None, false)
}

fn key(name: &str) -> SessionKey {
    SessionKey::from_text(name)
}

fn source(user: &str, chat: &str) -> SessionSource {
    let source = json!({"platform": "slack", "user_id": user, "chat_id": chat, "chat_type": "group"});
    SessionSource::from_value(&source).unwrap()
}

fn origin(session: &str, user: &str, chat: &str) -> TurnOrigin {
    let source = source(user, chat);
    let author = Author::from_source(&source, &NoAliases);
    let span = MessageSpan::default();
    TurnOrigin::new(key(session), &source, false, author, span)
}

/// A turn of this session that holds its place.
fn hold(turns: &mut Turns, origin: TurnOrigin, task: Task) -> TurnId {
    let Admission::Start(turn) = turns.admit(&origin.session) else {
        panic!("there is room")
    };
    turns.hold_place(turn, Arc::new(origin), task);
    turn
}

fn message() -> Task {
    Task::Message(None)
}

fn row(seq: i64, session: &str, state: RowState) -> InboxRow {
    InboxRow {
        seq: InboxSeq(seq),
        kind: InboxKind::Inbound,
        session: session.into(),
        buffer_id: None,
        line: None,
        state,
        attempt: 1,
        received_at: NOW,
        started_at: None,
        shown: None,
        repeatable: false,
    }
}

/// The rows that were asked to be read, and how many that were marked as running.
fn reads(effects: &mut Effects) -> (Vec<i64>, usize) {
    let (commands, _) = effects.take_commands();
    let starts = commands.iter();
    let starts = starts.filter(|command| matches!(command, Command::Start { .. }));
    let starts = starts.count();
    let loads = commands.iter().filter_map(|command| match command {
        Command::Load { seq } => Some(seq.0),
        _ => None,
    });
    (loads.collect(), starts)
}

#[test]
fn a_turn_whose_row_is_read_back_has_no_author_yet() {
    let (mut turns, mut effects) = (turns(8), Effects::default());
    turns.enqueue(&key("s1"), InboxSeq(1));
    turns.start_waiting(NOW, &mut effects);
    assert_eq!(reads(&mut effects), (vec![1], 1));
    assert!(turns.origin_of(&key("s1")).is_none());
    assert!(turns.only_origin().is_none());
    hold(&mut turns, origin("s2", "ann", "C1"), message());
    assert!(turns.only_origin().is_none(), "the other one may be anybody's");
    let Loaded::Turn(turn) = turns.loaded(&row(1, "s1", RowState::Running), &mut effects) else {
        panic!("it is read")
    };
    let of_ann = origin("s1", "ann", "C1");
    turns.assign(turn, &row(1, "s1", RowState::Running), of_ann, message(), NOW);
    assert_eq!(turns.origin_of(&key("s1")).unwrap().session, key("s1"));
    assert!(turns.only_origin().is_some());
}

#[test]
fn a_turn_is_found_by_its_session_its_run_and_its_author() {
    let mut turns = turns(8);
    assert!(turns.is_empty() && turns.only_origin().is_none());
    let ann = hold(&mut turns, origin("s1", "ann", "C1"), message());
    assert_eq!(turns.only_origin().unwrap().session, key("s1"));
    let also_ann = hold(&mut turns, origin("s2", "ann", "C1"), message());
    assert!(turns.only_origin().is_some(), "one author");
    let bob = hold(&mut turns, origin("s3", "bob", "C2"), message());
    assert!(turns.only_origin().is_none(), "two authors");
    let run = Task::Job(JobTask {
        run: RunSeq(7),
        prompt: String::new(),
    });
    let of_job = TurnOrigin {
        author: Author::operator(),
        ..origin("s4", "", "C1")
    };
    let job = hold(&mut turns, of_job, run);
    assert_eq!(turns.of_run(RunSeq(7)), Some((job, key("s4"))));
    assert_eq!(turns.of_run(RunSeq(8)), None);
    assert!(turns.is_message(bob) && !turns.is_message(job));
    assert_eq!(turns.origin(bob).unwrap().session, key("s3"));
    assert_eq!(turns.origin_of(&key("s2")).unwrap().session, key("s2"));
    assert!(turns.origin_of(&key("s9")).is_none());
    let mut people: Vec<TurnId> = turns.authors().map(|(turn, ..)| turn).collect();
    people.sort_by_key(|turn| turn.0);
    assert_eq!(people, [ann, also_ann, bob]);
    let of_ann = Author::from_source(&source("ann", "C1"), &NoAliases);
    let theirs = |chat: &str| {
        let mut found = turns.started_by(&of_ann, &ChatId::from_source(&source("ann", chat)));
        found.sort_by_key(|(turn, _)| turn.0);
        found
    };
    assert_eq!(theirs("C1"), [(ann, key("s1")), (also_ann, key("s2"))]);
    assert_eq!(theirs("C2"), []);
    assert!(!turns.is_agent_running("llm"), "none has begun");
    let states: Vec<&str> = turns
        .snapshot(Duration::ZERO)
        .map(|session| session.state)
        .collect();
    assert_eq!(states, ["starting"; 4]);
}

#[test]
fn a_turn_that_stops_asks_nobody_and_a_stop_may_name_it() {
    let mut turns = turns(8);
    let first = hold(&mut turns, origin("s1", "ann", "C1"), message());
    let second = hold(&mut turns, origin("s2", "ann", "C1"), message());
    assert!(turns.may_ask(first));
    assert_eq!(turns.stop(&key("s1"), Some(second), StopReason::Asked), None);
    assert_eq!(
        turns.stop(&key("s1"), Some(first), StopReason::Asked),
        Some(first)
    );
    assert!(!turns.may_ask(first) && turns.may_ask(second));
    assert_eq!(
        turns.stop_all(StopReason::Shutdown),
        [second],
        "the other one is stopping"
    );
    let states: Vec<&str> = turns
        .snapshot(Duration::ZERO)
        .map(|session| session.state)
        .collect();
    assert_eq!(states, ["stopping"; 2]);
    assert!(turns.forget(&key("s1")).is_none(), "it does not run");
    assert!(turns.abandon(first).is_some());
    turns.leave(second);
    assert!(turns.is_empty() && !turns.may_ask(second));
}

#[tokio::test]
async fn what_a_turn_saves_is_kept_until_its_session_starts_a_new_conversation() {
    let mut turns = turns(8);
    let first = hold(&mut turns, origin("s1", "ann", "C1"), message());
    let second = hold(&mut turns, origin("s2", "bob", "C2"), message());
    assert!(!turns.keeps_state(first), "it does not run");
    for (turn, row, session) in [(first, 5, "s1"), (second, 6, "s2")] {
        let agent = SelectedAgent {
            name: "llm".into(),
            agent: Arc::new(EchoAgent),
            permission: Permission::Ask,
            set_permission: Permission::Ask,
            workdir: None,
        };
        let input = TurnInput::default();
        turns.begin(turn, InboxSeq(row), agent, input, key(session), context());
    }
    assert!(turns.keeps_state(first) && turns.keeps_state(second));
    let ended = turns.forget(&key("s1")).unwrap();
    assert!(!turns.keeps_state(first) && turns.keeps_state(second));
    turns.run_inline();
    let Some(Ok(report)) = turns.next_inline() else {
        panic!("its agent answers inline")
    };
    assert!(report.turn == first && !ended.is_cancelled());
    assert!(turns.end(&report, Duration::ZERO).is_some() && ended.is_cancelled());
    assert!(!turns.keeps_state(first), "it is over");
}

/// Takes every message that says something.
struct Taker;

impl Agent for Taker {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            steers: true,
            repeatable: true,
            ..AgentInfo::default()
        }
    }

    fn run(&self, _turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(std::future::pending())
    }

    fn steer(&self, _session: &SessionKey, input: &TurnInput) -> bool {
        !input.text.is_empty()
    }
}

/// Messages that wait behind the turn of a session, which takes messages.
struct Met {
    turns: Turns,
    effects: Effects,
    session: SessionKey,
    turn: TurnId,
    agent: SelectedAgent,
}

impl Met {
    fn new(rows: &[i64]) -> Self {
        let mut turns = turns(1);
        let session = key("s1");
        let turn = hold(&mut turns, origin("s1", "ann", "C1"), message());
        let agent = SelectedAgent {
            name: "taker".into(),
            agent: Arc::new(Taker),
            permission: Permission::Ask,
            set_permission: Permission::Ask,
            workdir: None,
        };
        let input = TurnInput::default();
        turns.begin(
            turn,
            InboxSeq(1),
            agent.clone(),
            input,
            session.clone(),
            context(),
        );
        for row in rows {
            turns.admit(&session);
            turns.enqueue(&session, InboxSeq(*row));
        }
        Self {
            turns,
            effects: Effects::default(),
            session,
            turn,
            agent,
        }
    }

    fn may_steer(&self, row: i64) -> bool {
        let met = (self.turn, InboxSeq(row));
        self.turns.may_steer(&self.session, met, &self.agent)
    }

    fn mark(&mut self, row: i64) {
        assert!(self.may_steer(row), "{row}");
        let steering = Steering::empty_edit(self.session.clone(), self.turn);
        let effects = &mut self.effects;
        self.turns.mark_steering(InboxSeq(row), steering, NOW, effects);
    }

    fn is_started(&mut self, row: i64) -> bool {
        self.turns.started(InboxSeq(row), &mut self.effects).is_some()
    }

    fn steer(&mut self, row: i64, text: &str) -> bool {
        let input = TurnInput {
            text: text.to_owned(),
            ..TurnInput::default()
        };
        let met = (self.turn, InboxSeq(row));
        self.turns.steer(&self.session, met, &self.agent, &input)
    }

    fn waiting(&self) -> Vec<i64> {
        self.turns.sessions().rows(&self.session).collect()
    }
}

#[tokio::test]
async fn messages_are_handed_over_in_order_once_they_are_marked_as_running() {
    let mut met = Met::new(&[5, 6, 7]);
    assert!(!met.may_steer(6), "an older one waits");
    met.mark(5);
    met.mark(6);
    assert_eq!(met.turns.outstanding(), 4, "two tasks, two rows");
    assert_eq!(met.turns.uncommitted(), 2, "a shutdown waits for them");
    assert!(matches!(
        &met.effects.take_commands().0[..],
        [
            Command::Start {
                seq: InboxSeq(5),
                repeatable: true,
                ..
            },
            Command::Start { seq: InboxSeq(6), .. }
        ]
    ));
    assert!(met.is_started(5) && met.steer(5, "left"));
    met.turns.withdraw_waiting(&key("s1"), InboxSeq(5));
    assert!(met.is_started(6) && !met.is_started(6), "once");
    assert!(!met.steer(6, ""), "the agent does not take it");
    met.turns.wait_again(InboxSeq(6), &mut met.effects);
    assert!(matches!(
        met.effects.take_commands().0[..],
        [Command::SetRepeatable { seq: InboxSeq(6) }]
    ));
    assert!(!met.may_steer(7) && !met.steer(7, "right"), "6 waits");
    assert_eq!((met.waiting(), met.turns.counters().steered), (vec![6, 7], 1));
}

#[tokio::test]
async fn a_message_that_was_not_handed_over_has_a_turn_that_did_not_run_before() {
    for is_marked in [false, true] {
        let mut met = Met::new(&[5]);
        met.mark(5);
        if is_marked {
            // The turn has ended when the journal has written it, or it was changed before.
            met.turns.stop_steering(InboxSeq(5), &mut met.effects);
            assert!(!met.is_started(5));
        }
        met.turns.abandon(met.turn);
        met.effects.take_commands();
        met.turns.start_waiting(NOW, &mut met.effects);
        assert_eq!(reads(&mut met.effects), (vec![5], 1));
        let mut read = row(5, "s1", RowState::Running);
        assert!(
            matches!(met.turns.loaded(&read, &mut met.effects), Loaded::Nothing),
            "as it was marked for the turn before"
        );
        assert!(!met.is_started(5), "its own turn has it");
        assert_eq!(reads(&mut met.effects), (vec![5], 0));
        read.attempt = 2;
        let Loaded::Turn(turn) = met.turns.loaded(&read, &mut met.effects) else {
            panic!("its turn waits for it")
        };
        let ann = origin("s1", "ann", "C1");
        met.turns.assign(turn, &read, ann, message(), NOW);
        assert!(!met.turns.ran_before(turn));
    }
}

#[tokio::test]
async fn a_message_that_is_to_be_handed_over_waits_until_it_is_over_or_gone() {
    let mut met = Met::new(&[5, 6, 7]);
    for row in [5, 6, 7] {
        met.mark(row);
        assert!(met.turns.is_waiting(&met.session, InboxSeq(row)));
    }
    let effects = &mut met.effects;
    met.turns.missing(InboxSeq(5), effects);
    met.turns.withdraw_waiting(&met.session, InboxSeq(6));
    met.turns
        .end_row(InboxSeq(6), RowState::Ignored, &[], NOW, effects);
    assert!(!met.is_started(5) && !met.is_started(6));
    assert!(!met.turns.row_failed(InboxSeq(7)) && !met.is_started(7));
    assert_eq!(met.waiting(), [7], "it was not marked");
}

#[test]
fn work_that_was_not_accepted_frees_its_place() {
    let mut turns = turns(1);
    let turn = hold(&mut turns, origin("s1", "ann", "C1"), message());
    assert_eq!(turns.admit(&key("s1")), Admission::Wait { behind: Some(turn) });
    turns.release(&key("s1"), Place::Queue(Some(turn)));
    turns.release(&key("s1"), Place::Turn(turn));
    assert!(turns.is_empty() && turns.outstanding() == 0);
    assert!(matches!(turns.admit(&key("s2")), Admission::Start(_)));
}

#[test]
fn a_waiting_message_runs_when_it_is_marked_as_running_and_read_back() {
    let (mut turns, mut effects) = (turns(1), Effects::default());
    let first = hold(&mut turns, origin("s1", "ann", "C1"), message());
    assert!(!matches!(turns.admit(&key("s1")), Admission::Start(_)));
    assert!(!turns.enqueue(&key("s1"), InboxSeq(5)));
    assert_eq!(turns.sessions().waiting(&key("s1")), 1);
    turns.start_waiting(NOW, &mut effects);
    assert_eq!(reads(&mut effects), (vec![], 0), "it waits for its turn");
    turns.abandon(first);
    turns.start_waiting(NOW, &mut effects);
    assert_eq!(reads(&mut effects), (vec![5], 1));
    assert_eq!(turns.sessions().waiting(&key("s1")), 0);
    let queued = row(5, "s1", RowState::Queued);
    assert!(
        matches!(turns.loaded(&queued, &mut effects), Loaded::Nothing),
        "too early"
    );
    turns.started(InboxSeq(5), &mut effects);
    assert_eq!(reads(&mut effects), (vec![5], 0), "read again");
    turns.started(InboxSeq(5), &mut effects);
    assert_eq!(reads(&mut effects), (vec![], 0), "once");
    let running = row(5, "s1", RowState::Running);
    let Loaded::Turn(turn) = turns.loaded(&running, &mut effects) else {
        panic!("its turn waits for it")
    };
    assert!(matches!(turns.loaded(&running, &mut effects), Loaded::Nothing));
    assert!(turns.prepare(turn, InboxSeq(5)).is_none(), "it has no task yet");
    turns.assign(turn, &running, origin("s1", "ann", "C1"), message(), NOW);
    assert!(turns.prepare(turn, InboxSeq(5)).is_some());
    assert!(turns.preparing(turn).is_some_and(|(row, ..)| row == InboxSeq(5)));
    turns.leave_row(InboxSeq(6));
    assert!(!turns.is_empty());
    turns.leave_row(InboxSeq(5));
    assert!(turns.is_empty());
}

#[test]
fn what_the_journal_could_not_read_is_asked_for_again_after_a_while() {
    let (mut turns, mut effects) = (turns(2), Effects::default());
    let ms = Duration::from_millis;
    turns.read_again(ms(0), &mut effects);
    assert_eq!(turns.deadline(), None);
    turns.run_again(&row(5, "s1", RowState::Interrupted), NOW, &mut effects);
    assert_eq!(reads(&mut effects), (vec![5], 1));
    assert!(!turns.row_failed(InboxSeq(5)));
    turns.read_again(ms(1_000), &mut effects);
    assert_eq!(turns.deadline(), Some(ms(1_200)));
    turns.read_again(ms(1_199), &mut effects);
    assert_eq!(reads(&mut effects), (vec![], 0));
    turns.read_again(ms(1_200), &mut effects);
    assert_eq!((reads(&mut effects), turns.deadline()), ((vec![5], 0), None));
    assert!(!turns.row_failed(InboxSeq(9)), "nobody asked for it");
    turns.missing(InboxSeq(5), &mut effects);
    assert_eq!((turns.is_empty(), turns.outstanding()), (true, 0));
}

#[test]
fn an_edit_whose_message_could_not_be_read_looks_for_it_again() {
    let (mut turns, mut effects) = (turns(1), Effects::default());
    let edit = MessageChange::empty_edit(InboxSeq(7));
    turns.recover_waiting();
    turns.find_changed(key("s1"), InboxSeq(0), Box::new(edit), &mut effects);
    for at in [1, 2] {
        let (commands, pending) = effects.take_commands();
        assert!(
            matches!(commands[..], [Command::NextQueued { .. }]),
            "{commands:?}"
        );
        let Some((_, Pending::ChangedMessage(session, change))) = pending.into_iter().next() else {
            panic!("the edit waits for what is read")
        };
        assert!(!turns.is_waiting(&session, InboxSeq(7)) && !turns.has_unread_edit());
        turns.changed_unread(session, change);
        assert!(turns.has_unread_edit());
        turns.read_again(Duration::from_secs(at), &mut effects);
        turns.read_again(Duration::from_millis(at * 1000 + 200), &mut effects);
    }
}

#[test]
fn messages_that_an_earlier_process_left_are_read_one_at_a_time() {
    let (mut turns, mut effects) = (turns(2), Effects::default());
    for seq in 1..=3 {
        turns.read_interrupted(InboxSeq(seq), &mut effects);
    }
    assert_eq!((reads(&mut effects), turns.outstanding()), ((vec![1], 0), 4));
    let left = row(1, "s1", RowState::Running);
    assert!(matches!(turns.loaded(&left, &mut effects), Loaded::Interrupted));
    assert_eq!(reads(&mut effects).0, [2]);
    turns.missing(InboxSeq(2), &mut effects);
    assert_eq!(reads(&mut effects).0, [3]);
    let last = row(3, "s1", RowState::Running);
    assert!(matches!(turns.loaded(&last, &mut effects), Loaded::Interrupted));
    assert_eq!((reads(&mut effects), turns.outstanding()), ((vec![], 0), 0));
}

#[test]
fn an_end_is_under_way_until_it_is_committed_or_refused() {
    let (mut turns, mut effects) = (turns(2), Effects::default());
    for seq in [1, 2] {
        turns.end_row(InboxSeq(seq), RowState::Done, &[], NOW, &mut effects);
    }
    turns.answer_later(InboxSeq(3));
    assert_eq!((turns.uncommitted(), turns.outstanding()), (2, 3));
    let (commands, _) = effects.take_commands();
    assert!(matches!(&commands[0], Command::End { seq, state, now_ms, .. }
        if (*seq, *state, *now_ms) == (InboxSeq(1), RowState::Done, NOW)));
    assert!(turns.committed(InboxSeq(1)) && !turns.committed(InboxSeq(1)));
    assert!(turns.row_failed(InboxSeq(2)), "an end was refused");
    assert!(!turns.committed(InboxSeq(3)) && !turns.row_failed(InboxSeq(3)));
    assert_eq!((turns.uncommitted(), turns.outstanding()), (0, 1));
    turns.start_stored(TurnId(99), InboxSeq(4), NOW, &mut effects);
    assert_eq!(reads(&mut effects), (vec![], 0), "there is no such turn");
    let turn = hold(&mut turns, origin("s1", "ann", "C1"), message());
    turns.start_stored(turn, InboxSeq(4), NOW, &mut effects);
    assert_eq!(reads(&mut effects), (vec![4], 1));
}

#[test]
fn a_session_whose_rows_are_only_in_the_journal_is_read_from_there() {
    let (mut turns, mut effects) = (turns(1), Effects::default());
    turns.recover_waiting();
    turns.refill(&mut effects);
    let (commands, pending) = effects.take_commands();
    assert!(matches!(
        commands[..],
        [Command::NextWaiting {
            after: InboxSeq(0),
            ..
        }]
    ));
    assert!(matches!(pending[..], [(_, Pending::WaitingRows(InboxSeq(0)))]));
    turns.reloaded(InboxSeq(0), None);
    turns.read_again(Duration::ZERO, &mut effects);
    turns.read_again(Duration::from_secs(1), &mut effects);
    turns.refill(&mut effects);
    assert_eq!(effects.take_commands().0.len(), 1, "again");
    let waiting = crate::store::WaitingRow {
        seq: InboxSeq(5),
        session: "s1".into(),
    };
    turns.reloaded(InboxSeq(0), Some(&[waiting]));
    turns.refill(&mut effects);
    let (commands, pending) = effects.take_commands();
    assert!(
        matches!(commands[..], [Command::NextQueued { .. }]),
        "{commands:?}"
    );
    assert!(matches!(&pending[..], [(_, Pending::SessionRows(session))] if *session == key("s1")));
    turns.refilled(key("s1"), None);
    turns.read_again(Duration::from_secs(2), &mut effects);
    turns.read_again(Duration::from_secs(3), &mut effects);
    turns.refill(&mut effects);
    assert_eq!(effects.take_commands().0.len(), 1, "again");
    turns.answer_later(InboxSeq(6));
    let rows = [5, 6].map(|seq| row(seq, "s1", RowState::Queued));
    turns.refilled(key("s1"), Some((&rows, &[])));
    turns.start_waiting(NOW, &mut effects);
    assert_eq!(reads(&mut effects), (vec![5], 1));
    assert_eq!(
        turns.sessions().waiting(&key("s1")),
        0,
        "a command is never the agent's"
    );
    turns.refill(&mut effects);
    assert_eq!(effects.take_commands().0.len(), 0, "those were all");
}

#[test]
fn rows_that_are_over_wait_no_more_and_a_short_page_is_not_the_last() {
    let (mut turns, mut effects) = (turns(1), Effects::default());
    turns.recover_waiting();
    turns.refill(&mut effects);
    let waiting = [5, 6, 7, 8].map(|seq| crate::store::WaitingRow {
        seq: InboxSeq(seq),
        session: "s1".into(),
    });
    turns.reloaded(InboxSeq(0), Some(&waiting));
    turns.refill(&mut effects);
    let rows = [5, 6].map(|seq| row(seq, "s1", RowState::Queued));
    turns.answer_later(InboxSeq(9));
    turns.refilled(key("s1"), Some((&rows, &[7, 8, 9].map(InboxSeq))));
    let waits = |turns: &Turns| [5, 6, 7].map(|row| turns.is_waiting(&key("s1"), InboxSeq(row)));
    let count = |turns: &Turns| turns.sessions().waiting(&key("s1"));
    assert_eq!(
        (count(&turns), waits(&turns)),
        (4, [true; 3]),
        "a command does not wait"
    );
    for row in [6, 7] {
        turns.withdraw_waiting(&key("s1"), InboxSeq(row));
        turns.end_row(InboxSeq(row), RowState::Ignored, &[], NOW, &mut effects);
    }
    assert_eq!((count(&turns), waits(&turns)), (2, [true, false, false]));
    turns.start_waiting(NOW, &mut effects);
    effects.take_commands();
    turns.refill(&mut effects);
    assert_eq!(effects.take_commands().0.len(), 1, "the others are read");
    let rows = [7, 8].map(|seq| row(seq, "s1", RowState::Queued));
    turns.refilled(key("s1"), Some((&rows, &[])));
    assert_eq!(turns.sessions().rows(&key("s1")).collect::<Vec<_>>(), [8]);
    assert_eq!(count(&turns), 1);
}

#[test]
fn a_row_is_read_again_until_what_an_earlier_run_noted_of_its_agent_is_gone() {
    for are_repeatable in [false, true] {
        let (mut turns, mut effects) = (turns(8), Effects::default());
        turns.are_repeatable = are_repeatable;
        let mut left = InboxRow {
            repeatable: true,
            ..row(1, "s1", RowState::Running)
        };
        turns.run_again(&left, NOW, &mut effects);
        let (commands, _) = effects.take_commands();
        let starts = |command: &Command| matches!(command, Command::Start { repeatable, .. } if *repeatable == are_repeatable);
        assert!(commands.iter().any(starts), "{commands:?}");
        if !are_repeatable {
            assert!(matches!(turns.loaded(&left, &mut effects), Loaded::Nothing));
            turns.started(left.seq, &mut effects);
            assert_eq!(reads(&mut effects), (vec![1], 0));
            left.repeatable = false;
        }
        assert!(matches!(turns.loaded(&left, &mut effects), Loaded::Turn(_)));
    }
}

#[test]
fn a_turn_that_does_not_run_yet_may_answer_another_row_instead() {
    let (mut turns, mut effects) = (turns(1), Effects::default());
    let turn = hold(&mut turns, origin("s1", "ann", "C1"), message());
    assert_eq!(
        turns.answering(&key("s1"), InboxSeq(1)),
        None,
        "it has no row yet"
    );
    turns.prepare(turn, InboxSeq(1));
    assert_eq!(turns.answering(&key("s1"), InboxSeq(1)), Some(turn));
    // While it is prepared, and while its row is read.
    for (old, new) in [(1, 2), (2, 3)] {
        assert!(turns.is_unstarted(turn));
        turns.end_row(InboxSeq(old), RowState::Ignored, &[], NOW, &mut effects);
        turns.answer_instead(turn, InboxSeq(new), NOW, &mut effects);
        assert_eq!(reads(&mut effects), (vec![new], 1));
        assert!(turns.preparing(turn).is_none(), "nothing begins with the old one");
        assert_eq!(turns.answering(&key("s1"), InboxSeq(old)), None);
        assert_eq!(turns.answering(&key("s1"), InboxSeq(new)), Some(turn));
    }
    let [old, new] = [2, 3].map(|seq| row(seq, "s1", RowState::Running));
    assert!(matches!(turns.loaded(&old, &mut effects), Loaded::Nothing));
    assert!(matches!(turns.loaded(&new, &mut effects), Loaded::Turn(of) if of == turn));
}

#[test]
fn a_row_that_is_answered_before_older_ones_does_not_wait() {
    let (mut turns, mut effects) = (turns(1), Effects::default());
    let s1 = key("s1");
    let turn = hold(&mut turns, origin("s1", "ann", "C1"), message());
    turns.prepare(turn, InboxSeq(1));
    for row in 2..=6 {
        turns.admit(&s1);
        turns.enqueue(&s1, InboxSeq(row));
    }
    turns.end_row(InboxSeq(1), RowState::Ignored, &[], NOW, &mut effects);
    turns.answer_instead(turn, InboxSeq(7), NOW, &mut effects);
    let waits = |turns: &Turns| [1, 6, 7].map(|row| turns.is_waiting(&s1, InboxSeq(row)));
    assert_eq!(waits(&turns), [false, true, false]);
    for row in 2..=5 {
        turns.withdraw_waiting(&s1, InboxSeq(row));
    }
    let rows = [6, 7].map(|seq| row(seq, "s1", RowState::Queued));
    turns.refilled(s1.clone(), Some((&rows, &[])));
    assert_eq!(turns.sessions().rows(&s1).collect::<Vec<_>>(), [6]);
}

#[test]
fn a_wake_is_not_read_again_with_what_waits_behind_it() {
    let (mut turns, mut effects) = (turns(1), Effects::default());
    let mut turn = hold(&mut turns, origin("s1", "ann", "C1"), message());
    let s1 = key("s1");
    for row in 2..=6 {
        turns.enqueue(&s1, InboxSeq(row));
    }
    turns.enqueue_wake(&s1, InboxSeq(7));
    turns.enqueue(&s1, InboxSeq(8));
    let mut order = Vec::new();
    for _ in 0..5 {
        turns.abandon(turn);
        turns.start_waiting(NOW, &mut effects);
        order.extend(reads(&mut effects).0);
        turn = turns.sessions().turn_of(&s1).unwrap();
    }
    assert_eq!(order, [7, 2, 3, 4, 5]);
    turns.refill(&mut effects);
    assert_eq!(effects.take_commands().0.len(), 1, "the others are read");
    let rows = [6].map(|seq| row(seq, "s1", RowState::Queued));
    turns.refilled(s1.clone(), Some((&rows, &[7, 8].map(InboxSeq))));
    assert_eq!(turns.sessions().waiting(&s1), 2);
    turns.abandon(turn);
    turns.start_waiting(NOW, &mut effects);
    turns.refill(&mut effects);
    let rows = [7, 8].map(|seq| row(seq, "s1", RowState::Queued));
    turns.refilled(s1.clone(), Some((&rows, &[])));
    assert_eq!(turns.sessions().rows(&s1).collect::<Vec<_>>(), [8]);
}

#[tokio::test]
async fn the_author_of_a_message_reads_that_a_wake_stopped_its_turn() {
    let run = || {
        Task::Job(JobTask {
            run: RunSeq(7),
            prompt: String::new(),
        })
    };
    for (task, reason, told) in [
        (message(), StopReason::Woken, true),
        (message(), StopReason::Superseded, false),
        (message(), StopReason::Asked, false),
        (run(), StopReason::Woken, false),
    ] {
        let mut turns = turns(8);
        let turn = hold(&mut turns, origin("s1", "ann", "C1"), task);
        turns.stop(&key("s1"), Some(turn), reason);
        let agent = SelectedAgent {
            name: "llm".into(),
            agent: Arc::new(EchoAgent),
            permission: Permission::Ask,
            set_permission: Permission::Ask,
            workdir: None,
        };
        turns.begin(
            turn,
            InboxSeq(5),
            agent,
            TurnInput::default(),
            key("s1"),
            context(),
        );
        let Some(Ok(report)) = turns.next_inline() else {
            panic!("it was stopped before it began")
        };
        let ended = turns.end(&report, Duration::ZERO).unwrap();
        assert_eq!(ended.outcome, RowState::Stopped);
        assert_eq!(ended.notice.as_deref(), told.then_some("[stopped]"), "{reason:?}");
    }
}
