use std::collections::HashSet;

use super::*;
use crate::wire::Scalar;

fn ask(world: &mut World, number: u64) {
    world.link.request(op(number), world.now);
}

fn contents(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["action"]["content"].as_str().unwrap())
        .collect()
}

#[test]
fn an_op_is_written_with_its_envelope_and_settled_by_its_answer() {
    let mut world = World::live();
    ask(&mut world, 5);
    let lines = world.lines();
    let id = request_id(&lines[0]);
    assert_eq!(id, OpId(5).to_string(), "the op's id is the request id");
    assert_eq!(
        lines,
        [json!({"type": "outbound", "requestId": id, "platform": "discord",
                "action": {"op": "send", "chat_id": "c", "content": "5"}})]
    );
    world.answer(&id, Some(done()));
    assert_eq!(world.settled(), [(5, applied())]);
    assert_eq!(world.link.pending.in_flight(), 0);
}

#[test]
fn a_refusal_and_an_unusable_answer_are_told_apart() {
    let mut world = World::live();
    ask(&mut world, 1);
    ask(&mut world, 2);
    ask(&mut world, 3);
    let ids: Vec<_> = world.lines().iter().map(request_id).collect();
    let declined = OpResult {
        code: Some(Scalar::from("egress_declined".to_owned())),
        ..OpResult::default()
    };
    world.answer(&ids[2], None);
    world.answer(&ids[1], Some(declined.clone()));
    world.answer(&ids[0], Some(OpResult::default()));
    let refused = |result, declined| SendResult::Answered(Box::new(Outcome::Refused { result, declined }));
    assert_eq!(
        world.settled(),
        [
            (3, unknown()),
            (2, refused(declined, true)),
            (1, refused(OpResult::default(), false))
        ]
    );
}

#[test]
fn without_a_live_connection_an_op_is_not_sent() {
    let mut world = World::new();
    ask(&mut world, 1);
    let generation = world.dialing();
    world.link.handle_dialed(generation, None, world.now);
    ask(&mut world, 2);
    world.close(1001, "");
    ask(&mut world, 3);
    let not_live = SendResult::NotSent(NotSent::NotLive);
    assert_eq!(
        world.settled(),
        [(1, not_live.clone()), (2, not_live.clone()), (3, not_live)]
    );
}

#[test]
fn when_the_socket_dies_what_was_written_is_unknown_and_the_rest_was_not_sent() {
    let mut world = World::one_at_a_time();
    ask(&mut world, 1);
    ask(&mut world, 2);
    assert_eq!(contents(&world.lines()), ["1"]);
    ask(&mut world, 3);
    world.close(1006, "");
    let lost = SendResult::NotSent(NotSent::Lost);
    let said = world.drain();
    assert!(
        !said
            .iter()
            .any(|action| matches!(action, LinkAction::Write { .. }))
    );
    let settled: Vec<_> = said
        .into_iter()
        .filter_map(|action| match action {
            LinkAction::Completed { id, result } => Some((number(id), result)),
            _ => None,
        })
        .collect();
    assert_eq!(settled, [(1, SendResult::Lost), (2, lost.clone()), (3, lost)]);
}

#[test]
fn an_unanswered_op_is_unknown_after_its_time_and_its_late_answer_is_ignored() {
    let mut world = World::live();
    ask(&mut world, 1);
    world.link.request(
        Op {
            timeout: Some(secs(2)),
            ..op(2)
        },
        world.now,
    );
    let ids: Vec<_> = world.lines().iter().map(request_id).collect();
    world.run(secs(2));
    assert_eq!(world.settled(), [(2, unknown())]);
    world.run(Duration::from_millis(27_999));
    assert_eq!(world.settled(), []);
    world.run(Duration::from_millis(1));
    assert_eq!(world.settled(), [(1, unknown())]);
    world.answer(&ids[0], Some(done()));
    world.answer(&ids[0], Some(done()));
    world.answer("nonsense", Some(done()));
    world.answer(&ids[1].to_uppercase(), Some(done()));
    assert_eq!(world.settled(), []);
    assert_eq!(world.link.counters().late_results, 4);
}

#[test]
fn the_next_op_is_written_after_one_that_timed_out() {
    let mut world = World::one_at_a_time();
    let generation = world.generation();
    ask(&mut world, 1);
    world.drain();
    world.run(secs(20));
    ask(&mut world, 2);
    ask(&mut world, 3);
    assert_eq!(world.lines().len(), 0);
    world.run(secs(10));
    world.link.handle_traffic(generation, world.now);
    let said = world.lines();
    assert_eq!(contents(&said), ["2"]);
    world.run(secs(20));
    assert_eq!(
        world.settled(),
        [(3, SendResult::NotSent(NotSent::Expired))],
        "waiting is bounded too"
    );
    world.run(secs(10));
    assert_eq!(
        world.settled(),
        [(2, unknown())],
        "it has its full time from being written"
    );
}

#[test]
fn what_is_in_flight_and_what_waits_is_bounded() {
    let settings = LinkSettings {
        max_in_flight: 3,
        max_waiting: 4,
        ..LinkSettings::default()
    };
    let mut world = World::with(settings, vec![]);
    world.go_live();
    world.drain();
    let mut lines = Vec::new();
    for token in 0..3 {
        ask(&mut world, token);
        lines.extend(world.lines());
    }
    for token in 3..8 {
        ask(&mut world, token);
    }
    assert_eq!(
        (world.link.pending.in_flight(), world.link.pending.waiting()),
        (3, 4)
    );
    assert_eq!(world.settled(), [(7, SendResult::NotSent(NotSent::Full))]);
    world.answer(&request_id(&lines[1]), Some(done()));
    let next = world.lines();
    assert_eq!(contents(&next), ["3"]);
    assert_eq!(
        (world.link.pending.in_flight(), world.link.pending.waiting()),
        (3, 3)
    );
}

#[test]
fn an_op_whose_id_is_pending_is_refused_until_the_first_completes() {
    let mut world = World::one_at_a_time();
    ask(&mut world, 1);
    ask(&mut world, 2);
    let lines = world.lines();
    ask(&mut world, 1);
    ask(&mut world, 2);
    let twice = SendResult::NotSent(NotSent::AlreadyInFlight);
    assert_eq!(world.settled(), [(1, twice.clone()), (2, twice)]);
    assert_eq!(
        (world.link.pending.in_flight(), world.link.pending.waiting()),
        (1, 1)
    );
    world.answer(&request_id(&lines[0]), Some(done()));
    assert_eq!(world.settled(), [(1, applied())]);
    ask(&mut world, 1);
    assert_eq!(
        (world.link.pending.in_flight(), world.link.pending.waiting()),
        (1, 1)
    );
}

#[test]
fn an_op_that_was_not_written_cannot_be_answered() {
    let mut world = World::one_at_a_time();
    ask(&mut world, 1);
    ask(&mut world, 2);
    world.drain();
    world.answer(&OpId(2).to_string(), Some(done()));
    assert_eq!(world.settled(), []);
    assert_eq!(world.link.counters().late_results, 1);
}

#[test]
fn an_op_written_over_several_lines_still_goes_out_as_one() {
    let mut world = World::live();
    let action =
        RawValue::from_string("{\r\n  \"op\": \"send\",\n  \"content\": \"a\\nb\"\n}".to_owned()).unwrap();
    world.link.request(
        Op {
            action: action.into(),
            ..op(1)
        },
        world.now,
    );
    let said = world.drain();
    let [LinkAction::Write { line, .. }] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(line.find('\n'), Some(line.len() - 1));
    assert!(!line.contains('\r'));
    let value: Value = serde_json::from_str(line).unwrap();
    assert_eq!(value["action"], json!({"op": "send", "content": "a\nb"}));
}

#[test]
fn fifty_thousand_ops_leave_nothing_behind() {
    let mut world = World::live();
    let mut names = HashSet::new();
    for round in 0..50 {
        for token in 0..1000 {
            ask(&mut world, round * 1000 + token);
        }
        let ids: Vec<_> = std::iter::from_fn(|| world.link.poll_action())
            .filter_map(|action| match action {
                LinkAction::Write { line, .. } => Some(line[32..64].to_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            world.answer(&id, Some(done()));
            names.insert(id);
        }
        while world.link.poll_action().is_some() {}
    }
    assert_eq!(names.len(), 50_000);
    assert_eq!(world.link.counters().applied, 50_000);
    assert_eq!(
        (world.link.pending.in_flight(), world.link.pending.waiting()),
        (0, 0)
    );
    assert_eq!(world.link.poll_timeout().unwrap().reason, TimerReason::Ping);
}

#[test]
fn every_count_of_two_links_is_added() {
    let one = Counters {
        dials: 1,
        handshakes: 2,
        losses: 3,
        pings: 4,
        thaws: 5,
        requests: 6,
        applied: 7,
        refused: 8,
        unknown: 9,
        not_sent: 10,
        late_results: 11,
        unexpected_frames: 12,
        stale_events: 13,
        acks_sent: 14,
        acks_dropped: 15,
    };
    let three = Counters {
        dials: 3,
        handshakes: 6,
        losses: 9,
        pings: 12,
        thaws: 15,
        requests: 18,
        applied: 21,
        refused: 24,
        unknown: 27,
        not_sent: 30,
        late_results: 33,
        unexpected_frames: 36,
        stale_events: 39,
        acks_sent: 42,
        acks_dropped: 45,
    };
    assert_eq!(one + one + one, three);
}
