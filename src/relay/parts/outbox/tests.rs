//! Walks of durable ops on a made-up clock.

use serde_json::json;

use super::results::RETRY_AFTER;
use super::*;
use crate::adapter::prompt::QuestionId;
use crate::adapter::{RateLimitSettings, TextWaits};
use crate::link::{NotSent, SendResult};
use crate::session::TurnId;
use crate::store::{InboxSeq, OpRow, OpState};
use crate::wire::{ConnectorFrame, OpResult, Outcome};

const CHAT: &str = "discord:c";

/// An outbox and what it asked for.
struct World {
    outbox: Outbox,
    now: Moment,
    effects: Effects,
    rows: i64,
}

/// What came of an event.
#[derive(Debug, Default)]
struct Seen {
    sent: Vec<(OpId, String)>,
    notices: usize,
    commands: Vec<Command>,
}

impl Seen {
    fn texts(&self) -> Vec<&str> {
        self.sent.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Rows that were dropped.
    fn dropped(&self) -> Vec<i64> {
        let dropped = self.commands.iter().filter_map(|command| match command {
            Command::OpDropped { op, .. } => Some(op.0),
            _ => None,
        });
        dropped.collect()
    }
}

impl World {
    fn new(resend: ResendUnknown) -> Self {
        let limits = RateLimitSettings {
            per_minute: 60_000,
            burst: 60_000,
            ..RateLimitSettings::default()
        };
        let retry = RetrySettings {
            resend,
            max_attempts: 8,
            max_age: Duration::from_secs(3600),
            refused_retries: 3,
        };
        Self {
            outbox: Outbox::new(RateLimiter::new(&limits), OpIds::new(1), retry, "the connector"),
            now: Moment {
                mono: Duration::from_secs(10_000),
                unix_ms: 1_800_000_000_000,
            },
            effects: Effects::default(),
            rows: 0,
        }
    }

    fn row(&mut self, message: i64, kind: &str, text: &str, state: OpState) -> OpRow {
        self.rows += 1;
        let action = json!({"op": kind, "chat_id": "c", "content": text});
        OpRow {
            seq: OpSeq(self.rows),
            session: "s".into(),
            chat: CHAT.into(),
            op: json!({"op": kind, "action": action, "platform": "discord"})
                .to_string()
                .into_bytes(),
            inbox: Some(InboxSeq(message)),
            state,
            created_at: self.now.unix_ms,
        }
    }

    /// Part of the answer to a message, committed.
    fn add(&mut self, message: i64, kind: &str, text: &str) {
        let row = self.row(message, kind, text, OpState::Pending);
        self.outbox.recover(&row, self.now, &mut self.effects);
    }

    fn skip(&mut self, span: Duration) {
        self.now.mono += span;
        self.now.unix_ms += i64::try_from(span.as_millis()).unwrap();
    }

    fn advance(&mut self) -> Seen {
        self.outbox.release(self.now.mono);
        self.outbox.hand_out(self.now, &mut self.effects);
        let mut seen = Seen::default();
        while let Some(effect) = self.effects.next() {
            match effect {
                Effect::Send(op) => {
                    let action: serde_json::Value = serde_json::from_str(op.action.as_str()).unwrap();
                    seen.sent
                        .push((op.id, action["content"].as_str().unwrap().to_owned()));
                }
                Effect::Undelivered { chat, notify, .. } => {
                    assert_eq!(&*chat, CHAT);
                    seen.notices += usize::from(notify);
                }
                _ => {}
            }
        }
        seen.commands = self.effects.take_commands().0;
        seen
    }

    /// The only op that goes out now.
    fn sent(&mut self) -> (OpId, String) {
        let mut seen = self.advance();
        assert_eq!(seen.sent.len(), 1, "{seen:?}");
        seen.sent.remove(0)
    }

    fn result(&mut self, op: OpId, result: SendResult) -> Seen {
        self.outbox
            .on_result(op, result, true, self.now, &mut self.effects);
        self.advance()
    }

    /// The connection ends before an answer, and there is a new one.
    fn cut(&mut self, op: OpId) -> Seen {
        self.outbox
            .on_result(op, SendResult::Lost, false, self.now, &mut self.effects);
        self.outbox.disconnected();
        self.outbox.connected();
        self.advance()
    }

    fn apply(&mut self, op: OpId) -> Seen {
        self.result(op, answered(&json!({"success": true})))
    }

    fn refuse(&mut self, op: OpId) -> Seen {
        self.result(op, answered(&json!({"success": false, "error": "bad gateway"})))
    }
}

fn answered(result: &serde_json::Value) -> SendResult {
    let frame = json!({"type": "outbound_result", "requestId": "r", "result": result});
    match ConnectorFrame::decode(frame.to_string().as_bytes()) {
        Ok(ConnectorFrame::OutboundResult {
            result: Some(result), ..
        }) => SendResult::Answered(Box::new(Outcome::from(*result))),
        other => panic!("{other:?}"),
    }
}

fn timed_out() -> SendResult {
    SendResult::Answered(Box::new(Outcome::Unknown))
}

#[test]
fn an_answer_of_unknown_outcome_is_sent_again_under_its_id_and_in_its_place() {
    let mut world = World::new(ResendUnknown::Answers);
    world.add(1, "send", "one");
    world.add(2, "send", "two");
    let (id, _) = world.sent();
    for _ in 0..7 {
        assert_eq!(world.cut(id).sent, [(id, "one".to_owned())]);
    }
    assert_eq!(world.apply(id).texts(), ["two"]);
    assert_eq!(world.outbox.counters().resent, 7);
}

#[test]
fn after_its_last_attempt_the_whole_rest_of_the_answer_is_dropped_and_the_chat_notified_once() {
    let mut world = World::new(ResendUnknown::Answers);
    for (message, text) in [(1, "part 1"), (1, "part 2"), (1, "part 3"), (2, "other")] {
        world.add(message, "send", text);
    }
    let (first, _) = world.sent();
    let second = world.apply(first).sent[0].0;
    for _ in 0..7 {
        assert_eq!(world.cut(second).texts(), ["part 2"]);
    }
    let seen = world.cut(second);
    assert_eq!(seen.dropped(), [2, 3]);
    assert_eq!((seen.notices, seen.texts()), (1, vec!["other"]));
    assert_eq!(world.outbox.durable(), 1);
}

#[test]
fn an_answer_that_is_too_old_is_not_sent_again() {
    let mut world = World::new(ResendUnknown::Answers);
    world.add(1, "send", "one");
    let (id, _) = world.sent();
    world.skip(Duration::from_secs(3599));
    assert_eq!(world.cut(id).texts(), ["one"]);
    world.skip(Duration::from_secs(2));
    let seen = world.cut(id);
    assert_eq!(
        (seen.texts().len(), seen.dropped(), seen.notices),
        (0, vec![1], 1)
    );

    world.add(2, "send", "never sent");
    world.skip(Duration::from_secs(7200));
    assert_eq!(world.advance().texts(), ["never sent"], "only what was sent ages");
}

#[test]
fn attempts_and_age_outlive_the_process() {
    let mut world = World::new(ResendUnknown::Answers);
    let row = world.row(1, "send", "one", OpState::Sent);
    world.outbox.recover(&row, world.now, &mut world.effects);
    let seen = world.advance();
    assert_eq!(seen.texts(), ["one"]);
    let Some(Command::OpChanged { body, .. }) = seen.commands.first() else {
        panic!("{seen:?}");
    };
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body["attempts"], 1);

    let mut old = world.row(2, "send", "too old", OpState::Sent);
    old.created_at -= 3_600_001;
    let mut world = World::new(ResendUnknown::Answers);
    world.outbox.recover(&old, world.now, &mut world.effects);
    world.skip(Duration::from_millis(1));
    let seen = world.advance();
    assert_eq!((seen.texts().len(), seen.dropped().len()), (0, 1));
}

#[test]
fn what_is_sent_again_depends_on_the_setting() {
    use ResendUnknown::{All, Answers, Never};
    for (kind, resend, again) in [
        ("send", Answers, true),
        ("send", All, true),
        ("send", Never, false),
        ("follow_up", Answers, true),
        ("send_media", Answers, false),
        ("send_media", All, true),
        ("edit", Never, true),
        ("react", All, false),
    ] {
        let mut world = World::new(resend);
        world.add(1, kind, "one");
        world.add(1, "send", "two");
        let (id, _) = world.sent();
        let seen = world.cut(id);
        let expected = if again { "one" } else { "two" };
        assert_eq!(seen.texts(), [expected], "{kind} {resend}");
        assert_eq!(seen.notices, 0, "it may have arrived");
    }
}

#[test]
fn a_connector_that_does_not_answer_gets_an_op_twice_at_most() {
    let mut world = World::new(ResendUnknown::Answers);
    world.add(1, "send", "one");
    let (id, _) = world.sent();
    assert!(world.result(id, timed_out()).sent.is_empty());
    world.skip(RETRY_AFTER);
    assert_eq!(world.sent().0, id);
    assert_eq!(world.result(id, timed_out()).dropped(), [1]);
}

#[test]
fn a_refused_answer_is_retried_with_new_ids_and_growing_delays() {
    let mut world = World::new(ResendUnknown::Answers);
    for (message, text) in [(1, "part 1"), (1, "part 2"), (2, "other")] {
        world.add(message, "send", text);
    }
    let (mut id, _) = world.sent();
    for delay in [1, 2, 4] {
        assert!(world.outbox.is_busy());
        assert!(world.refuse(id).sent.is_empty(), "its lane waits");
        assert!(!world.outbox.is_busy(), "a shutdown does not wait for a retry");
        world.skip(Duration::from_millis(delay * 1000 - 1));
        assert!(world.advance().sent.is_empty());
        world.skip(Duration::from_millis(1));
        let (next, text) = world.sent();
        assert_eq!(text, "part 1");
        assert_ne!(next, id, "the first one was answered");
        id = next;
    }
    let seen = world.refuse(id);
    assert_eq!((seen.dropped(), seen.notices), (vec![1, 2], 1));
    assert_eq!(seen.texts(), ["other"]);
}

#[test]
fn a_refusal_for_good_is_not_tried_again_and_the_answer_is_kept_as_undelivered() {
    let mut world = World::new(ResendUnknown::Answers);
    for (message, text) in [(1, "part 1"), (1, "part 2"), (2, "other")] {
        world.add(message, "send", text);
    }
    let (id, _) = world.sent();
    let result = OpResult {
        error: Some("Forbidden: bot was blocked by the user".into()),
        is_permanent: true,
        ..OpResult::default()
    };
    let seen = world.result(id, SendResult::Answered(Box::new(result.into())));
    assert_eq!(seen.dropped(), [1, 2], "the whole answer, after one try");
    assert_eq!(seen.notices, 0, "nobody would read a notice");
    assert_eq!(seen.texts(), ["other"]);
    let refusal = world.outbox.last_refusal().unwrap();
    assert!(refusal.error.contains("blocked by the user"), "{refusal:?}");
    let Some(Command::OpDropped { reason, .. }) = seen.commands.first() else {
        panic!("{seen:?}");
    };
    assert!(reason.contains("blocked by the user"), "{reason}");
}

#[test]
fn a_refusal_that_passes_loses_nothing() {
    let mut world = World::new(ResendUnknown::Answers);
    world.add(1, "send", "part 1");
    world.add(1, "send", "part 2");
    let (id, _) = world.sent();
    world.refuse(id);
    world.skip(Duration::from_secs(1));
    let (id, _) = world.sent();
    assert_eq!(world.apply(id).texts(), ["part 2"]);
}

#[test]
fn a_rate_limited_lane_is_held_once_however_often_it_is_retried() {
    let mut world = World::new(ResendUnknown::Answers);
    world.add(1, "send", "one");
    let mut ids = HashSet::new();
    let limited = answered(&json!({"success": false, "code": "rate_limited", "retry_after": 1}));
    for _ in 0..50 {
        let (id, _) = world.sent();
        assert!(ids.insert(id), "an id that was answered is not used again");
        world.result(id, limited.clone());
        for _ in 0..10 {
            world.outbox.connected();
            assert!(world.advance().sent.is_empty());
        }
        assert_eq!(world.outbox.held.len(), 1);
        world.skip(Duration::from_secs(2));
    }
}

/// An op that is not journaled.
fn ephemeral(world: &mut World, priority: Priority, owner: OpOwner, text: &str) -> OpId {
    let id = world.outbox.next_id();
    let action = json!({"op": "send", "chat_id": "c", "content": text}).to_string();
    let raw = serde_json::value::RawValue::from_string(action).unwrap();
    let op = EphemeralOp {
        id,
        body: OpBody {
            lane: CHAT.into(),
            platform: None,
            bot_id: None,
            name: "send".into(),
            action: raw.into(),
        },
        priority,
        timeout: None,
        owner,
    };
    world.outbox.queue(op, true, world.now.mono, &mut world.effects);
    id
}

fn question() -> OpOwner {
    let prompt = serde_json::from_value(json!("n.1")).unwrap();
    OpOwner::Question(QuestionId(1), prompt)
}

#[test]
fn a_question_waits_for_a_rate_limit_a_few_times_and_a_thread_never() {
    let limited = answered(&json!({"success": false, "code": "rate_limited", "retry_after": 1}));
    let sent = |owner: OpOwner| {
        let mut world = World::new(ResendUnknown::Answers);
        ephemeral(&mut world, Priority::Text, owner, "?");
        let mut sent = 0;
        while let Some((id, _)) = world.advance().sent.pop() {
            sent += 1;
            world.result(id, limited.clone());
            world.skip(Duration::from_secs(3));
        }
        let limits = world.outbox.counters().rate_limited;
        (sent, limits, world.outbox.outstanding())
    };
    assert_eq!(sent(question()), (6, 5, 0));
    assert_eq!(sent(OpOwner::GroupThread("k".into())), (1, 0, 0));
}

#[test]
fn what_could_not_be_sent_keeps_its_place_for_some_and_is_over_for_others() {
    for (owner, is_kept) in [
        (question(), true),
        (OpOwner::GroupThread("k".into()), true),
        (OpOwner::LeftTurn, true),
        (OpOwner::Nobody, false),
    ] {
        let mut world = World::new(ResendUnknown::Answers);
        ephemeral(&mut world, Priority::Text, owner, "?");
        let (id, _) = world.sent();
        assert_eq!((world.outbox.ephemeral(), world.outbox.in_flight()), (1, 1));
        world.result(id, SendResult::NotSent(NotSent::NotLive));
        assert_eq!(world.outbox.in_flight(), 0);
        world.outbox.disconnected();
        assert_eq!(world.outbox.ephemeral(), usize::from(is_kept));
        world.outbox.connected();
        assert_eq!(world.advance().sent.len(), usize::from(is_kept));
        world.result(id, SendResult::NotSent(NotSent::Closing));
        assert_eq!(world.outbox.ephemeral(), 0, "nothing waits at the end");
    }
}

#[test]
fn what_puts_away_what_a_turn_has_left_is_sent_on_a_few_connections_until_it_is_answered() {
    let sent = |owner: OpOwner| {
        let mut world = World::new(ResendUnknown::Answers);
        ephemeral(&mut world, Priority::Indicator, owner, "gone");
        let (mut sent, mut seen) = (0, world.advance());
        while let Some((id, _)) = seen.sent.pop() {
            sent += 1;
            seen = world.cut(id);
        }
        (sent, world.outbox.outstanding())
    };
    assert_eq!(sent(OpOwner::LeftTurn), (4, 0));
    assert_eq!(sent(OpOwner::Nobody), (1, 0));
    let mut world = World::new(ResendUnknown::Answers);
    let id = ephemeral(&mut world, Priority::Indicator, OpOwner::LeftTurn, "gone");
    assert_eq!(world.advance().texts(), ["gone"]);
    assert_eq!(world.cut(id).texts(), ["gone"]);
    world.refuse(id);
    assert_eq!(world.outbox.outstanding(), 0, "a refusal is an answer");
}

#[test]
fn an_indicator_goes_beside_the_texts_of_a_chat_or_not_at_all() {
    let mut world = World::new(ResendUnknown::Answers);
    let id = ephemeral(&mut world, Priority::Indicator, OpOwner::Nobody, "...");
    assert_eq!(world.advance().texts(), ["..."]);
    world.apply(id);
    let counters = world.outbox.counters();
    assert_eq!((counters.applied, counters.indicators_failed), (1, 0));
    let id = ephemeral(&mut world, Priority::Indicator, OpOwner::Nobody, "...");
    world.refuse(id);
    let counters = world.outbox.counters();
    assert_eq!((counters.refused, counters.indicators_failed), (1, 1));
    let text = ephemeral(&mut world, Priority::Text, OpOwner::Nobody, "one");
    ephemeral(&mut world, Priority::Text, OpOwner::Nobody, "two");
    ephemeral(&mut world, Priority::Indicator, OpOwner::Nobody, "...");
    assert_eq!(world.outbox.counters().indicators_dropped, 1, "texts wait");
    assert_eq!(world.advance().texts(), ["one"]);
    assert_eq!(world.refuse(text).texts(), ["two"]);
    assert_eq!(world.outbox.counters().indicators_failed, 1, "a text is none");
}

#[test]
fn a_row_is_marked_when_its_op_is_on_its_way_for_a_while() {
    let mut world = World::new(ResendUnknown::Answers);
    world.add(1, "send", "one");
    world.sent();
    let since = world.now.mono;
    assert_eq!(world.outbox.deadline(), Some(since + MARK_AFTER));
    let mark = |world: &mut World, after: Duration, all, has_left| {
        let now = since + after;
        let has_left = |_, platform: Option<&str>| has_left && platform == Some("discord");
        world.outbox.mark_sent(now, all, has_left, &mut world.effects);
        let (commands, _) = world.effects.take_commands();
        commands.len()
    };
    let before = MARK_AFTER.checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(mark(&mut world, before, false, true), 0);
    assert_eq!(mark(&mut world, MARK_AFTER, false, false), 0, "it has not left");
    assert_eq!(
        world.outbox.deadline(),
        Some(since + look_after(0) + look_after(1))
    );
    assert_eq!(world.outbox.outstanding(), 2, "the op, and its mark");
    assert_eq!(mark(&mut world, MARK_AFTER, true, true), 1);
    assert_eq!((world.outbox.deadline(), world.outbox.outstanding()), (None, 1));
}

#[test]
fn an_op_that_does_not_leave_is_looked_at_less_and_less_and_others_as_usual() {
    let mut world = World::new(ResendUnknown::Answers);
    world.add(1, "send", "one");
    let (one, _) = world.sent();
    let mut waits = Vec::new();
    let since = world.now.mono;
    let mut at = since;
    while at < since + look_after(SENT_CHECKS) * 2 {
        let next = world.outbox.deadline().unwrap();
        waits.push(next.checked_sub(at).unwrap().as_millis());
        at = next;
        world
            .outbox
            .mark_sent(at, false, |_, _| false, &mut world.effects);
    }
    assert_eq!(waits[..7], [5, 10, 20, 40, 80, 160, 160]);
    world.now.mono = at;
    let mut elsewhere = world.row(2, "send", "two", OpState::Pending);
    elsewhere.chat = "elsewhere".into();
    world.outbox.recover(&elsewhere, world.now, &mut world.effects);
    world.sent();
    at += MARK_AFTER;
    assert_eq!(world.outbox.deadline(), Some(at));
    world
        .outbox
        .mark_sent(at, false, |op, _| op != one, &mut world.effects);
    let (commands, _) = world.effects.take_commands();
    assert!(
        matches!(commands[..], [Command::OpSent { op }] if op == elsewhere.seq),
        "{commands:?}"
    );
    assert_eq!(world.outbox.outstanding(), 3, "two ops, and the mark of one");
}

#[test]
fn an_op_that_is_to_be_dropped_waits_for_the_journal() {
    let mut world = World::new(ResendUnknown::Answers);
    for text in ["one", "two", "three"] {
        world.add(1, "send", text);
    }
    let [one, two] = [1, 2].map(OpSeq);
    assert!(world.outbox.begin_drop(one) && world.outbox.begin_drop(two));
    world.outbox.connected();
    assert!(world.advance().sent.is_empty());
    world.outbox.end_drop(one, false);
    let (id, text) = world.sent();
    assert_eq!(
        text, "one",
        "the journal could not drop it, and it is still the first"
    );
    assert!(!world.outbox.begin_drop(one), "it is in flight");
    world.outbox.end_drop(two, true);
    assert_eq!(world.apply(id).texts(), ["three"]);
    assert_eq!(world.outbox.durable(), 1);
    assert!(world.outbox.begin_drop(OpSeq(99)), "only the journal has it");
}

#[test]
fn the_rest_of_a_chat_goes_on_when_a_growing_answer_that_was_held_is_withdrawn() {
    let mut world = World::new(ResendUnknown::Answers);
    let limits = RateLimitSettings {
        per_minute: 60,
        burst: 1,
        text_waits: TextWaits::Always,
        ..RateLimitSettings::default()
    };
    world.outbox.limiter = RateLimiter::new(&limits);
    world.add(1, "send", "first");
    let (first, _) = world.sent();
    let (outcomes, mut reported) = tokio::sync::mpsc::channel(1);
    let turn = OpOwner::Turn(TurnId(1), outcomes.clone());
    ephemeral(&mut world, Priority::Text, turn, "growing");
    assert!(world.apply(first).sent.is_empty(), "the chat has to wait");
    world.add(2, "send", "the answer of another");
    world.outbox.drop_reported_to(&outcomes);
    assert!(matches!(reported.try_recv(), Ok((_, OpOutcome::NotSent))));
    world.skip(Duration::from_secs(60));
    assert_eq!(world.advance().texts(), ["the answer of another"]);
}

#[test]
fn what_follows_in_the_place_of_an_op_goes_out_next() {
    let mut world = World::new(ResendUnknown::Answers);
    let mut row = world.row(1, "send", "one", OpState::Pending);
    let mut body: serde_json::Value = serde_json::from_slice(&row.op).unwrap();
    body["then"] = json!([{"op": "send", "chat_id": "c", "content": "two"}]);
    body["fallback"] = json!([{"op": "send", "chat_id": "c", "content": "instead"}]);
    row.op = body.to_string().into_bytes();
    for (applied, texts) in [(true, ["one", "two", ""]), (false, ["one", "instead", "two"])] {
        let mut world = World::new(ResendUnknown::Answers);
        world.outbox.recover(&row, world.now, &mut world.effects);
        let mut next = Some(world.sent());
        for (number, text) in texts.into_iter().enumerate() {
            let Some((id, sent)) = next.take() else {
                assert_eq!(text, "");
                continue;
            };
            assert_eq!(sent, text);
            let mut seen = if number == 0 && !applied {
                world.refuse(id)
            } else {
                world.apply(id)
            };
            next = seen.sent.pop();
        }
        assert_eq!((world.outbox.durable(), world.outbox.in_flight()), (0, 0));
    }
}
