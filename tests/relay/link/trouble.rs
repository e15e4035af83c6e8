//! Connectors that flap, fall silent, never answer, are not there yet, or come back.

use std::time::Duration;

use crate::support::dev::{
    ClosedBy, Connector, ConnectorSettings, OpAnswer, ResultRule, SentMessage, StallingLine, text_event,
};
use tokio::time::{Instant, timeout_at};

use crate::link::handshake::connector;
use crate::link::refusals::{dials, gaps};
use crate::support::relay_process::{SOON, Setup};

/// A connector that refuses a second socket, so that one too many shows.
async fn strict() -> Connector {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    connector.refuse_second_connections();
    connector
}

fn never_two(connector: &Connector) {
    let turned_away = connector.closed().into_iter().find(|end| end.code == Some(1008));
    assert!(turned_away.is_none(), "{turned_away:?}");
    assert!(connector.open_connections().len() <= 1);
}

fn say(connector: &Connector, chat: &str, message_id: &str) {
    connector
        .deliver(&text_event("discord", chat, message_id, message_id))
        .unwrap();
}

fn replies(sent: &[SentMessage]) -> Vec<&str> {
    sent.iter().filter_map(|sent| sent.reply_to.as_deref()).collect()
}

#[tokio::test]
async fn a_connector_that_closes_after_every_handshake_is_dialled_ever_more_slowly_and_never_in_step() {
    let connector = strict().await;
    let setup = Setup::for_connector(&connector)
        .setting("link.backoff_min_ms", "100")
        .setting("link.backoff_max_ms", "800");
    let mut relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    while let Ok(Ok(())) = timeout_at(end, connector.wait_connected(SOON)).await {
        connector.close_with(1001, "flapping");
        let gone = connector.until("the socket gone", SOON, |connector| {
            (!connector.is_connected()).then_some(())
        });
        gone.await.unwrap();
    }
    let gaps = gaps(&connector);
    println!("dials after {gaps:?}");
    assert!((4..=30).contains(&gaps.len()), "{gaps:?}");
    // Not even chance makes the wait shorter than the floor.
    assert!(
        gaps.iter().all(|gap| *gap >= Duration::from_millis(90)),
        "{gaps:?}"
    );
    let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!(
        most.abs_diff(*least) > Duration::from_millis(50),
        "no jitter: {gaps:?}"
    );
    never_two(&connector);
    assert!(!relay.has_ended());
    say(&connector, "c1", "m1");
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.stop().await;
}

#[tokio::test]
async fn a_connector_that_never_answers_the_hello_is_abandoned_and_dialled_again_one_socket_at_a_time() {
    let connector = strict().await;
    connector.ignore_hellos(true);
    let relay = Setup::for_connector(&connector)
        .setting("link.handshake_timeout_secs", "1")
        .start();
    dials(&connector, 3).await;
    let gaps = gaps(&connector);
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_secs(1)), "{gaps:?}");
    for end in connector.closed() {
        assert_eq!((end.by, end.code), (ClosedBy::Gateway, Some(1011)));
    }
    never_two(&connector);
    connector.ignore_hellos(false);
    say(&connector, "c1", "m1");
    connector.reply_to(SOON, "m1").await.unwrap();
    never_two(&connector);
    relay.stop().await;
}

#[tokio::test]
async fn an_op_that_is_never_answered_holds_up_its_own_chat_and_no_other() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector)
        // The other chats have this long to be answered.
        .setting("link.request_timeout_secs", "10")
        .start();
    connector.wait_connected(SOON).await.unwrap();
    connector.script(ResultRule::on("send", OpAnswer::Never).once());
    say(&connector, "slow", "slow-1");
    connector.reply_to(SOON, "slow-1").await.unwrap();
    say(&connector, "slow", "slow-2");
    for n in 0..20 {
        say(&connector, &format!("c{n}"), &format!("m{n}"));
    }
    for n in 0..20 {
        connector.reply_to(SOON, &format!("m{n}")).await.unwrap();
    }
    connector.reply_to(SOON, "slow-2").await.unwrap();
    let sent = connector.sent_messages();
    let order = replies(&sent);
    assert_eq!(order.len(), 22, "{order:?}");
    assert_eq!((order[0], order[21]), ("slow-1", "slow-2"));
    assert_eq!(connector.dials().len(), 1);
    relay.wait_for_log("outcome of an op unknown").await;
    relay.stop().await;
}

#[tokio::test]
async fn a_connector_that_stalls_is_found_dead_and_dialled_again() {
    // NewestWins: a stalled connector cannot notice that its old socket was left.
    let connector = connector().await;
    let line = StallingLine::before(connector.addr()).await;
    let relay = Setup::with_url(&line.url())
        .enrolled_with(&connector)
        .setting("link.ping_interval_secs", "1")
        .setting("link.dead_after_secs", "2")
        .start();
    connector.wait_connected(SOON).await.unwrap();
    relay.wait_for_log("connected to the connector").await;
    line.stall();
    let stalled = Instant::now();
    say(&connector, "c1", "m1");
    connector.reply_to(SOON, "m1").await.unwrap();
    assert!(
        stalled.elapsed() >= Duration::from_millis(900),
        "pings were answered until then"
    );
    relay.wait_for_log("stopped responding").await;
    assert_eq!(connector.open_connections().len(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_quiet_connector_that_answers_pings_is_left_alone() {
    let settings = ConnectorSettings {
        ping_interval: None,
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let relay = Setup::for_connector(&connector)
        .setting("link.ping_interval_secs", "1")
        .setting("link.dead_after_secs", "6")
        .start();
    connector.wait_connected(SOON).await.unwrap();
    tokio::time::sleep(Duration::from_millis(7500)).await;
    assert_eq!(
        (connector.dials().len(), relay.count("stopped responding")),
        (1, 0)
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_connector_that_pings_hears_from_a_relay_whose_agent_is_busy() {
    let settings = ConnectorSettings {
        // It gives up on whoever is silent for twice as long.
        ping_interval: Some(Duration::from_secs(3)),
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let relay = Setup::for_connector(&connector).start();
    connector
        .deliver(&text_event("discord", "c1", "m1", "sleep=10000 done"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    assert_eq!(connector.dials().len(), 1, "{:?}", connector.closed());
    relay.stop().await;
}

#[tokio::test]
async fn a_connector_that_is_not_there_yet_is_found_when_it_comes() {
    let connector = connector().await;
    connector.take_down().await;
    let mut relay = Setup::for_connector(&connector).start();
    let line = relay.wait_for_log("cannot reach the connector").await;
    assert!(line.contains("retry_ms"), "{line}");
    say(&connector, "c1", "m1");
    assert!(!relay.has_ended());
    connector.bring_up().await.unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.stop().await;
}

#[tokio::test]
async fn after_a_restart_of_the_connector_the_backlog_is_drained_in_order_and_once() {
    const BACKLOG: usize = 100;
    let connector = connector().await;
    let relay = Setup::for_connector(&connector).start();
    let (before, after): (Vec<String>, Vec<String>) = (
        (0..10).map(|n| format!("before-{n}")).collect(),
        (0..BACKLOG).map(|n| format!("after-{n}")).collect(),
    );
    for id in &before {
        say(&connector, "c1", id);
    }
    connector.reply_to(SOON, before.last().unwrap()).await.unwrap();
    connector.take_down().await;
    for id in &after {
        say(&connector, "c1", id);
    }
    connector.bring_up().await.unwrap();
    connector.reply_to(SOON, after.last().unwrap()).await.unwrap();
    let sent = connector.sent_messages();
    let expected: Vec<&str> = before.iter().chain(&after).map(String::as_str).collect();
    assert_eq!(replies(&sent), expected);
    assert_eq!(connector.waiting(), 0);
    relay.stop().await;
}

#[tokio::test]
async fn sockets_that_keep_dying_in_the_middle_of_a_backlog_lose_no_message_and_repeat_no_answer() {
    const MESSAGES: usize = 60;
    let connector = connector().await;
    let relay = Setup::for_connector(&connector).start();
    let ids: Vec<String> = (0..MESSAGES).map(|n| format!("m{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        say(&connector, &format!("c{}", n % 5), id);
    }
    for round in 1..=5_u64 {
        let goal = round * 10;
        let some = connector.until("some acks", SOON, |connector| {
            (connector.acked() >= goal).then_some(())
        });
        some.await.unwrap();
        connector.drop_sockets();
    }
    let all = connector.until("every ack", SOON, |connector| {
        (connector.waiting() == 0).then_some(())
    });
    all.await.unwrap();
    // The last of all comes on a quiet link, so that what is before it was sent or dropped.
    say(&connector, "c0", "last");
    connector.reply_to(SOON, "last").await.unwrap();
    let dropped = relay.count("outcome of an op unknown");
    let enough = connector.until("every answer but the dropped ones", SOON, |connector| {
        let dropped = relay.count("outcome of an op unknown");
        (connector.sent_messages().len() + dropped > MESSAGES).then_some(())
    });
    enough.await.unwrap();
    let sent = connector.sent_messages();
    let order = replies(&sent);
    let mut once = order.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), order.len(), "an answer came twice: {order:?}");
    println!("{} of {MESSAGES} answered, {dropped} dropped", order.len() - 1);
    relay.stop().await;
}
