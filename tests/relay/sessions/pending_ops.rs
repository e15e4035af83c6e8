//! Pending ops: refused, unknown, not sent; and their order.

use super::{HANG, start};
use crate::support::memory_relay::event;
use crate::support::wait::eventually;
use hermes_relay::config::ResendUnknown::{Answers, Never};
use hermes_relay::config::ServeConfig;
use hermes_relay::relay::ReplyMode;
use hermes_relay::serve::client::{self, ClientError};
use hermes_relay::serve::{ControlRequest, ControlService, Serving};
use hermes_relay::store::{Inspector, Item, Repair, Section};
use serde_json::{Value, json};
use std::path::Path;

#[tokio::test]
async fn a_refusal_that_passes_loses_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    relay
        .connector
        .set_reply_mode(ReplyMode::Refuse("bad gateway".into()));
    relay.deliver("a", "1", "one").await;
    relay
        .wait_for_status("a refusal", |status| status.tally.ops_refused == 1)
        .await;
    relay.connector.set_reply_mode(ReplyMode::Apply);
    relay.deliver("a", "2", "two").await;
    relay
        .wait_for_status("both answered", |status| status.tally.ops_applied == 2)
        .await;
    let seen = relay.stop().await;
    assert_eq!(seen.texts("a"), ["echo: one", "echo: one", "echo: two"]);
    assert_ne!(seen.ops[0].id, seen.ops[1].id, "the first one was answered");
}

#[tokio::test]
async fn an_answer_that_is_refused_for_good_is_reported_and_kept_for_a_retry() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.sessions.refused_retries = 0).await;
    relay.deliver("a", "1", "one").await;
    relay.replies("a", 1).await;
    relay.connector.set_reply_mode(ReplyMode::Hold);
    relay.deliver("a", "2", "two").await;
    let seen = relay.seen("the op", |seen| seen.texts("a").len() == 2).await;
    relay.connector.set_reply_mode(ReplyMode::Apply);
    let refused = json!({"success": false, "error": "no\u{1b}[31m"});
    assert!(relay.connector.answer(seen.ops.back().unwrap().id, &refused));
    let seen = relay.seen("the notice", |seen| seen.texts("a").len() == 3).await;
    assert_eq!(
        seen.texts("a")[1..],
        [
            "echo: two",
            "An answer could not be delivered here. Please ask again."
        ]
    );
    relay
        .wait_for_status("settled", |status| status.ops_durable == 0)
        .await;
    relay.stop().await;
    let dropped = |dir: &Path| {
        let ops = Inspector::open(dir).unwrap().list(Section::Ops, 0, 10).unwrap();
        ops.into_iter().find(|op| op.state == "dropped")
    };
    let op = dropped(dir.path()).expect("the journal keeps it");
    assert_eq!(op.reason.as_deref(), Some("the connector refused it: no[31m"));
    Inspector::retry(dir.path(), op.item, 1_800_000_000_000).unwrap();
    assert_eq!(dropped(dir.path()), None);
    let relay = start(dir.path(), |_| {}).await;
    assert_eq!(relay.replies("a", 1).await, ["echo: two"]);
    relay.stop().await;
}

#[tokio::test]
async fn a_thread_whose_answer_is_refused_for_good_reads_that_itself() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.sessions.refused_retries = 0).await;
    relay.connector.set_reply_mode(ReplyMode::Hold);
    for (thread, text) in [("t1", "one"), ("t2", "two")] {
        let mut said = event("a", text, text);
        said["source"]["thread_id"] = json!(thread);
        relay.connector.deliver_buffered(text, said).await.unwrap();
    }
    relay
        .wait_for_status("two answers", |status| {
            status.tally.turns_done == 2 && status.ops_durable == 2
        })
        .await;
    let seen = relay
        .seen("the first of them", |seen| seen.texts("a").len() == 1)
        .await;
    relay.connector.set_reply_mode(ReplyMode::Apply);
    let refused = json!({"success": false, "error": "no"});
    assert!(relay.connector.answer(seen.ops.back().unwrap().id, &refused));
    let seen = relay.seen("the notice", |seen| seen.texts("a").len() == 3).await;
    let threads = seen.ops.iter().filter(|op| op.kind() == Some("send"));
    let mut threads: Vec<_> = threads
        .map(|op| (op.text().unwrap(), op.action["metadata"]["thread_id"].as_str()))
        .collect();
    threads.sort_unstable();
    let notice = "An answer could not be delivered here. Please ask again.";
    assert_eq!(
        threads,
        [
            (notice, Some("t1")),
            ("echo: one", Some("t1")),
            ("echo: two", Some("t2"))
        ]
    );
    relay.stop().await;
}

/// What the control socket answers to a repair.
pub(crate) async fn repair(dir: &Path, repair: Repair, item: Item) -> Result<Value, ClientError> {
    let dir = dir.to_owned();
    let call = move || client::call(&dir, &ControlRequest::Repair { repair, item });
    tokio::task::spawn_blocking(call).await.unwrap()
}

#[tokio::test]
async fn a_running_relay_sends_a_dropped_op_again_and_drops_one_that_waits() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.sessions.refused_retries = 0).await;
    let service = ControlService::new(relay.handle.clone(), dir.path());
    let _serving = Serving::start(&ServeConfig::default(), service, None).unwrap();
    relay.connector.set_reply_mode(ReplyMode::Refuse("no".into()));
    relay.deliver("a", "1", "one").await;
    relay
        .wait_for_status("dropped", |status| {
            status.tally.ops_dropped > 0 && status.ops_durable == 0
        })
        .await;
    relay.connector.set_reply_mode(ReplyMode::Apply);
    let ops = || {
        Inspector::open(dir.path())
            .unwrap()
            .list(Section::Ops, 0, 10)
            .unwrap()
    };
    // What the status counts is in the journal's file with the next commit.
    let dropped = eventually("the journal keeps it", async || {
        ops().into_iter().find(|op| op.state == "dropped")
    })
    .await;
    repair(dir.path(), Repair::Retry, dropped.item).await.unwrap();
    relay
        .seen("it again", |seen| {
            seen.texts("a")
                .iter()
                .filter(|text| **text == "echo: one")
                .count()
                == 2
        })
        .await;
    relay
        .wait_for_status("settled", |status| status.ops_durable == 0)
        .await;
    let again = repair(dir.path(), Repair::Retry, dropped.item).await;
    assert!(matches!(again, Err(ClientError::Refused(refused)) if refused.code == "wrong_state"));

    // The first of a chat is in flight, the second waits.
    relay.connector.set_reply_mode(ReplyMode::Hold);
    relay.deliver("a", "2", "two").await;
    relay.deliver("a", "3", "three").await;
    relay
        .wait_for_status("two pending", |status| {
            status.tally.turns_done == 3 && status.ops_durable == 2
        })
        .await;
    let seen = relay.seen("one op", |seen| seen.in_flight == 1).await;
    let pending = ops().into_iter().filter(|op| op.state != "dropped");
    let listed: Vec<Item> = pending.map(|op| op.item).collect();
    assert_eq!(listed.len(), 2);
    let busy = repair(dir.path(), Repair::Drop, listed[0]).await;
    assert!(matches!(busy, Err(ClientError::Refused(refused)) if refused.code == "in_flight"));
    repair(dir.path(), Repair::Drop, listed[1]).await.unwrap();
    relay.connector.set_reply_mode(ReplyMode::Apply);
    assert!(
        relay
            .connector
            .answer(seen.ops.back().unwrap().id, &json!({"success": true}))
    );
    relay.deliver("a", "4", "four").await;
    let seen = relay
        .seen("the rest", |seen| seen.texts("a").contains(&"echo: four"))
        .await;
    assert!(!seen.texts("a").contains(&"echo: three"), "{:?}", seen.texts("a"));
    relay.stop().await;
}

#[tokio::test]
async fn an_op_that_the_journal_cannot_drop_is_sent_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    let service = ControlService::new(relay.handle.clone(), dir.path());
    let _serving = Serving::start(&ServeConfig::default(), service, None).unwrap();
    relay.connector.set_reply_mode(ReplyMode::Hold);
    for text in ["one", "two", "three"] {
        relay.deliver("a", text, text).await;
    }
    relay
        .wait_for_status("three pending", |status| {
            status.tally.turns_done == 3 && status.ops_durable == 3
        })
        .await;
    let first = relay.seen("one op", |seen| seen.in_flight == 1).await;
    let ops = eventually("the journal has them", async || {
        let ops = Inspector::open(dir.path()).unwrap().list(Section::Ops, 0, 10);
        ops.ok().filter(|ops| ops.len() == 3)
    })
    .await;
    let journal = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    journal.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = repair(dir.path(), Repair::Drop, ops[1].item).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Refused(refused) if refused.code == "not_stored"),
        "{error:?}"
    );
    journal.execute_batch("ROLLBACK").unwrap();
    relay.connector.set_reply_mode(ReplyMode::Apply);
    let first = first.ops.back().unwrap().id;
    assert!(relay.connector.answer(first, &json!({"success": true})));
    let seen = relay.seen("the rest", |seen| seen.texts("a").len() == 3).await;
    assert_eq!(seen.texts("a"), ["echo: one", "echo: two", "echo: three"]);
    relay.stop().await;
}

#[tokio::test]
async fn a_chat_gets_one_op_at_a_time_and_other_chats_do_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    relay.connector.set_reply_mode(ReplyMode::Hold);
    for (chat, id) in [("a", "1"), ("a", "2"), ("b", "1")] {
        relay.deliver(chat, id, id).await;
    }
    relay
        .wait_for_status("three pending", |status| {
            status.tally.turns_done == 3 && status.ops_durable == 3
        })
        .await;
    let seen = relay.seen("two ops", |seen| seen.in_flight == 2).await;
    assert_eq!((seen.texts("a").len(), seen.texts("b").len()), (1, 1));
    let first = seen.ops.iter().find(|op| op.chat() == Some("a")).unwrap();
    assert!(relay.connector.answer(first.id, &json!({"success": true})));
    assert!(!relay.connector.answer(first.id, &json!({"success": true})));
    assert_eq!(relay.replies("a", 2).await, ["echo: 1", "echo: 2"]);
    let seen = relay.connector.record().borrow().clone();
    for op in seen.ops {
        relay.connector.answer(op.id, &json!({"success": true}));
    }
    relay
        .wait_for_status("all settled", |status| status.ops_durable == 0)
        .await;
    relay.stop().await;
}

#[tokio::test]
async fn what_may_have_been_done_is_not_repeated_where_that_is_not_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.sessions.resend_unknown = Never).await;
    relay.connector.set_reply_mode(ReplyMode::Hold);
    relay.deliver("a", "1", "one").await;
    relay.seen("the op", |seen| seen.in_flight == 1).await;
    relay.connector.drop_connection();
    let status = relay
        .wait_for_status("it is unknown", |status| status.tally.ops_unknown == 1)
        .await;
    assert_eq!(status.ops_durable, 0);
    relay.connector.set_reply_mode(ReplyMode::Apply);
    relay.connector.restore();
    relay.deliver("a", "2", "two").await;
    assert_eq!(relay.replies("a", 2).await, ["echo: one", "echo: two"]);
    assert_eq!(relay.stop().await.texts("a"), ["echo: one", "echo: two"]);
}

#[tokio::test]
async fn an_answer_of_unknown_outcome_is_sent_again_with_its_request_id() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    relay.connector.set_reply_mode(ReplyMode::Hold);
    relay.deliver("a", "1", "one").await;
    relay.seen("the op", |seen| seen.in_flight == 1).await;
    relay.connector.drop_connection();
    relay.connector.set_reply_mode(ReplyMode::Apply);
    relay.connector.restore();
    relay
        .wait_for_status("it is done", |status| status.tally.ops_applied == 1)
        .await;
    relay.deliver("a", "2", "two").await;
    relay
        .wait_for_status("both are done", |status| status.tally.ops_applied == 2)
        .await;
    let seen = relay.stop().await;
    assert_eq!(seen.texts("a"), ["echo: one", "echo: one", "echo: two"]);
    assert_eq!(seen.ops[0].id, seen.ops[1].id);
}

#[tokio::test]
async fn what_waited_offline_goes_out_in_order_before_what_is_newer() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.sessions.resend_unknown = Never).await;
    relay.connector.set_reply_mode(ReplyMode::Hold);
    for id in ["1", "2", "3"] {
        relay.deliver("a", id, id).await;
    }
    relay
        .wait_for_status("three pending", |status| {
            status.tally.turns_done == 3 && status.ops_durable == 3
        })
        .await;
    relay.seen("the first", |seen| seen.in_flight == 1).await;
    relay.connector.drop_connection();
    relay
        .wait_for_status("the first unknown", |status| status.tally.ops_unknown == 1)
        .await;
    relay.handle.send("a", "said offline").await.unwrap();
    let status = relay.handle.status().await.unwrap();
    assert_eq!((status.ops_durable, status.link.as_str()), (3, "waiting"));
    relay.connector.set_reply_mode(ReplyMode::Apply);
    relay.deliver("a", "4", "4").await;
    relay.connector.restore();
    let replies = relay.replies("a", 5).await;
    assert_eq!(
        replies,
        ["echo: 1", "echo: 2", "echo: 3", "said offline", "echo: 4"]
    );
    assert_eq!(relay.stop().await.texts("a").len(), 5);
}

#[tokio::test]
async fn what_is_pending_outlives_the_relay() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |_| {}).await;
    relay.deliver("a", "1", "one").await;
    relay.replies("a", 1).await;
    relay
        .wait_for_status("settled", |status| status.ops_durable == 0)
        .await;
    relay.connector.drop_connection();
    for text in ["two", "three"] {
        relay.handle.send("a", text).await.unwrap();
    }
    assert_eq!(relay.stop().await.texts("a"), ["echo: one"]);
    let relay = start(dir.path(), |_| {}).await;
    assert_eq!(relay.replies("a", 2).await, ["two", "three"]);
    let status = relay
        .wait_for_status("settled", |status| status.ops_durable == 0)
        .await;
    assert_eq!(status.tally.ops_recovered, 2);
    relay.stop().await;
    let relay = start(dir.path(), |_| {}).await;
    assert!(relay.stop().await.ops.is_empty());
}

#[tokio::test]
async fn an_op_that_was_in_flight_at_a_crash_is_sent_again_where_that_is_wanted() {
    for (resend, expected) in [(Never, 0), (Answers, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start(dir.path(), |_| {}).await;
        relay.connector.set_reply_mode(ReplyMode::Hold);
        relay.deliver("a", "1", "one").await;
        relay.seen("the op", |seen| seen.in_flight == 1).await;
        let look = Inspector::open(dir.path()).unwrap();
        relay
            .wait_for_status("the journal knows that it is out", |_| {
                let ops = look.list(Section::Ops, 0, 10).unwrap();
                ops.iter().any(|op| op.state == "sent")
            })
            .await;
        relay.crash().await;
        let relay = start(dir.path(), |settings| settings.sessions.resend_unknown = resend).await;
        relay.deliver("b", "1", "other").await;
        relay.replies("b", 1).await;
        let status = relay
            .wait_for_status("settled", |status| status.ops_durable == 0)
            .await;
        assert_eq!(status.tally.ops_unknown, 1 - expected);
        let seen = relay.stop().await;
        assert_eq!(seen.texts("a").len() as u64, expected, "resend {resend}");
    }
}

#[tokio::test]
async fn a_hanging_turn_does_not_hold_up_what_is_sent_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), |settings| settings.shutdown.drain_secs = 0).await;
    relay.deliver("a", "1", HANG).await;
    relay
        .wait_for_status("a turn", |status| status.tally.turns_started == 1)
        .await;
    relay.handle.send("a", "by the way").await.unwrap();
    assert_eq!(relay.replies("a", 1).await, ["by the way"]);
    relay.stop().await;
}
