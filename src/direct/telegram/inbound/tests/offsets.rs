//! What the next poll confirms, and when it comes.

use std::time::Duration;

use super::*;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn text(id: i64) -> Value {
    json!({ "update_id": id, "message": private(json!({ "message_id": id, "text": format!("m{id}") })) })
}

fn ids(incoming: &[Incoming]) -> Vec<i64> {
    incoming.iter().map(|one| one.update_id).collect()
}

/// One poll that brings these updates.
fn poll(received: &mut ReceivedUpdates, at: u64, updates: &[Value]) -> Vec<i64> {
    received.begin_poll(ms(at));
    ids(&received.receive(read(&json!(updates)), ms(at)))
}

#[test]
fn the_offset_passes_what_is_acknowledged_with_all_before_it() {
    let mut received = ReceivedUpdates::new();
    assert_eq!(
        (received.offset(), received.next_poll(ms(0))),
        (None, NextPoll::Now)
    );
    assert_eq!(poll(&mut received, 0, &[text(5), text(6), text(7)]), [5, 6, 7]);
    assert_eq!(
        (received.offset(), received.next_poll(ms(0))),
        (Some(5), NextPoll::Wait)
    );
    received.acknowledge(7);
    received.acknowledge(99);
    assert_eq!(received.offset(), Some(5));
    received.acknowledge(5);
    assert_eq!(received.offset(), Some(6));
    received.acknowledge(6);
    assert_eq!(
        (received.offset(), received.next_poll(ms(9))),
        (Some(8), NextPoll::Now)
    );
}

#[test]
fn the_last_call_confirms_only_what_no_poll_has_confirmed() {
    let mut received = ReceivedUpdates::new();
    assert_eq!(received.left_to_confirm(), None, "nothing came");
    poll(&mut received, 0, &[text(5), text(6)]);
    received.acknowledge(6);
    assert_eq!(
        received.left_to_confirm(),
        Some(5),
        "5 itself is not confirmed by it"
    );
    received.acknowledge(5);
    assert_eq!(received.left_to_confirm(), Some(7));
    received.begin_poll(ms(10));
    assert_eq!(received.left_to_confirm(), None, "the poll does it");
    poll(&mut received, 20, &[text(7), text(8)]);
    received.acknowledge(7);
    assert_eq!(received.left_to_confirm(), Some(8), "although 8 is in flight");
}

#[test]
fn what_needs_no_acknowledgement_is_confirmed_at_once() {
    let mut received = ReceivedUpdates::new();
    let stop =
        json!({ "update_id": 6, "stopped_message_generation": { "chat": { "id": 5 }, "draft_id": 1 } });
    let edit = json!({ "update_id": 5, "edited_channel_post": {} });
    assert_eq!(poll(&mut received, 0, &[edit, stop]), [5, 6]);
    assert_eq!(
        (received.offset(), received.next_poll(ms(0))),
        (Some(7), NextPoll::Now)
    );
}

#[test]
fn the_same_batch_again_is_skipped() {
    let mut received = ReceivedUpdates::new();
    let batch = [
        text(5),
        text(6),
        json!({ "update_id": 7, "edited_channel_post": {} }),
    ];
    assert_eq!(poll(&mut received, 0, &batch), [5, 6, 7]);
    assert_eq!(poll(&mut received, 700, &batch), [0_i64; 0]);
    received.acknowledge(5);
    received.acknowledge(6);
    assert_eq!(
        poll(&mut received, 1400, &batch),
        [0_i64; 0],
        "confirmed a moment ago"
    );
    assert_eq!(received.offset(), Some(8));
    assert_eq!(
        poll(&mut received, 2100, &[text(8), text(8)]),
        [8],
        "twice in one batch"
    );
}

#[test]
fn an_answer_to_a_poll_that_began_before_the_acknowledgement_is_no_news() {
    let mut received = ReceivedUpdates::new();
    assert_eq!(poll(&mut received, 0, &[text(5)]), [5]);
    assert_eq!(received.begin_poll(ms(700)), Some(5));
    received.acknowledge(5);
    assert!(received.receive(read(&json!([text(5)])), ms(800)).is_empty());
    assert_eq!(received.offset(), Some(6));
}

#[test]
fn ids_that_start_over_are_followed() {
    let mut received = ReceivedUpdates::new();
    poll(&mut received, 0, &[text(935_483_237)]);
    received.acknowledge(935_483_237);
    assert_eq!(received.offset(), Some(935_483_238));
    assert_eq!(poll(&mut received, 700, &[text(911_978_041)]), [911_978_041]);
    assert_eq!(received.offset(), Some(911_978_041));
    received.acknowledge(911_978_041);
    assert_eq!(received.offset(), Some(911_978_042));
    // Also when something from before is still in flight: its acknowledgement has nothing to confirm.
    poll(&mut received, 1400, &[text(911_978_042)]);
    assert_eq!(poll(&mut received, 2100, &[text(1000)]), [1000]);
    received.acknowledge(911_978_042);
    assert_eq!(received.offset(), Some(1000));
    received.acknowledge(1000);
    assert_eq!(received.offset(), Some(1001));
    assert_eq!(
        poll(&mut received, 2800, &[text(911_978_050)]),
        [911_978_050],
        "higher again"
    );
}

#[test]
fn forgotten_updates_are_forwarded_again_and_passed_when_they_are_gone() {
    let mut received = ReceivedUpdates::new();
    poll(&mut received, 0, &[text(5), text(6), text(7), text(8)]);
    received.acknowledge(6);
    received.forget();
    received.acknowledge(5);
    assert_eq!(
        received.offset(),
        Some(5),
        "an acknowledgement from before does not count"
    );
    assert_eq!(received.next_poll(ms(700)), NextPoll::Now);
    // The server may send one at a time.
    assert_eq!(poll(&mut received, 700, &[text(5)]), [5]);
    received.acknowledge(5);
    assert_eq!(received.offset(), Some(7));
    assert_eq!(
        poll(&mut received, 1400, &[text(8)]),
        [8],
        "7 has expired meanwhile"
    );
    received.acknowledge(8);
    assert_eq!(received.offset(), Some(9));
    poll(&mut received, 2100, &[text(9)]);
    received.forget();
    assert_eq!(poll(&mut received, 2800, &[]), [0_i64; 0], "and 9, too");
    assert_eq!(received.offset(), Some(10));
}

#[test]
fn polls_that_bring_nothing_are_paced() {
    let mut received = ReceivedUpdates::new();
    poll(&mut received, 1000, &[]);
    assert_eq!(received.next_poll(ms(1010)), NextPoll::At(ms(1600)));
    assert_eq!(received.next_poll(ms(1600)), NextPoll::Now);
    poll(&mut received, 2000, &[json!({ "message": {} })]);
    assert_eq!(
        received.next_poll(ms(2000)),
        NextPoll::At(ms(2600)),
        "without an id"
    );
    poll(&mut received, 3000, &[text(5)]);
    received.acknowledge(5);
    assert_eq!(received.next_poll(ms(3000)), NextPoll::Now);
}
