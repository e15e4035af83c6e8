use std::time::Duration;

use crate::support::dev::{
    ClosedBy, Connector, ConnectorSettings, DialRule, OpAnswer, ResultRule, StallingLine, text_event,
};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::dev_connector::client::{QUIET, SOON, connector, dial, dial_as, dial_at, greeted, token};
use crate::support::dev::FrameKinds as _;

async fn refused(connector: &Connector) -> http::Response<Option<Vec<u8>>> {
    let bearer = token(&connector.credentials().unwrap());
    match dial_as(connector, Some(&bearer)).await {
        Err(Error::Http(response)) => *response,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the dial was accepted"),
    }
}

#[tokio::test]
async fn sockets_are_reset_or_closed() {
    let connector = connector().await;
    let mut client = greeted(&connector, "discord").await;
    connector.drop_sockets();
    match client.message().await {
        Some(Err(Error::Io(error))) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        other => panic!("{other:?}"),
    }
    let mut client = greeted(&connector, "discord").await;
    connector.close_with(1013, "held");
    assert_eq!(client.closed().await, (1013, "held".into()));
    let mut client = greeted(&connector, "discord").await;
    client.socket.close(None).await.unwrap();
    let ends = connector.until("three ends", SOON, |connector| {
        Some(connector.closed()).filter(|closed| closed.len() == 3)
    });
    let ends: Vec<_> = ends.await.unwrap().iter().map(|end| (end.by, end.code)).collect();
    assert_eq!(
        ends,
        [
            (ClosedBy::Nobody, None),
            (ClosedBy::Connector, Some(1013)),
            (ClosedBy::Gateway, None)
        ]
    );
    assert_eq!(connector.accepted(), 3);
}

#[tokio::test]
async fn dials_are_refused_redirected_or_left_hanging() {
    let connector = connector().await;
    connector.refuse_dials(StatusCode::SERVICE_UNAVAILABLE, Some(7));
    let response = refused(&connector).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"7".parse().unwrap())
    );
    assert!(response.headers().contains_key("date"));
    connector.accept_dials();
    connector.answer_next_dials(
        1,
        &DialRule::Redirect {
            location: "http://127.0.0.1:1/relay".into(),
        },
    );
    connector.answer_next_dials(1, &DialRule::Hang);
    let response = refused(&connector).await;
    assert_eq!(response.headers()["location"], "http://127.0.0.1:1/relay");
    {
        let hanging = dial(&connector);
        tokio::pin!(hanging);
        let arrived = connector.until("the dial that hangs", SOON, |connector| {
            (connector.dials().len() == 3).then_some(())
        });
        tokio::select! {
            _ = &mut hanging => panic!("it was answered"),
            arrived = arrived => arrived.unwrap(),
        }
        assert!(timeout(QUIET, hanging).await.is_err());
    }
    greeted(&connector, "discord").await;
    let answers: Vec<_> = connector
        .dials()
        .iter()
        .map(|dial| dial.answered.map_or(0, |status| status.as_u16()))
        .collect();
    assert_eq!(answers, [503, 302, 0, 101]);
}

#[tokio::test]
async fn revocation_closes_and_keeps_out_until_it_is_taken_back() {
    let connector = connector().await;
    let mut client = greeted(&connector, "discord").await;
    connector.revoke();
    assert_eq!(client.closed().await, (4401, "unauthorized".into()));
    assert_eq!(
        dial(&connector).await.closed().await,
        (4401, "unauthorized".into())
    );
    connector.reinstate();
    greeted(&connector, "discord").await;
}

#[tokio::test]
async fn a_stalled_socket_stays_open_and_sends_nothing_not_even_pong() {
    let connector = connector().await;
    let line = StallingLine::before(connector.addr()).await;
    let bearer = token(&connector.credentials().unwrap());
    let mut client = dial_at(line.addr(), Some(&bearer)).await.unwrap();
    client.hello("discord").await;
    assert_eq!(client.line().await["descriptor"]["platform"], "discord");
    line.stall();
    connector
        .deliver(&text_event("discord", "c", "u1", "hi"))
        .unwrap();
    futures_util::SinkExt::send(&mut client.socket, Message::Ping(Vec::new().into()))
        .await
        .unwrap();
    client.ask("r1", json!({ "op": "typing", "chat_id": "c" })).await;
    client.quiet().await;
    assert_eq!(connector.open_connections().len(), 1);
    line.resume();
    let (one, two) = (client.line().await, client.line().await);
    let kinds = [one["type"].as_str().unwrap(), two["type"].as_str().unwrap()];
    assert!(
        kinds.contains(&"inbound") && kinds.contains(&"outbound_result"),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn hellos_and_going_idle_can_be_left_unanswered_and_frames_torn() {
    let connector = connector().await;
    connector.ignore_hellos(true);
    let mut client = dial(&connector).await;
    client.hello("discord").await;
    client.quiet().await;
    assert!(!connector.is_connected());
    connector.ignore_hellos(false);
    connector.ignore_going_idle(true);
    let mut client = greeted(&connector, "discord").await;
    client.say(json!({ "type": "going_idle" })).await;
    client.quiet().await;
    connector.corrupt_next(1);
    assert!(connector.interrupt("k", "c") && connector.interrupt("k", "c"));
    assert!(serde_json::from_str::<Value>(&client.text().await).is_err());
    assert_eq!(client.line().await["session_key"], "k");
}

#[tokio::test]
async fn the_port_goes_down_and_comes_up_with_the_buffer_kept() {
    let connector = connector().await;
    let mut client = greeted(&connector, "discord").await;
    connector
        .deliver(&text_event("discord", "c", "u1", "hi"))
        .unwrap();
    client.line().await;
    connector.take_down().await;
    assert!(!matches!(client.message().await, Some(Ok(_))));
    match dial_as(&connector, None).await {
        Err(Error::Io(error)) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused),
        other => panic!("{:?}", other.map(|_| ())),
    }
    connector.bring_up().await.unwrap();
    let mut client = greeted(&connector, "discord").await;
    assert_eq!(client.line().await["event"]["text"], "hi");
    let addr = connector.addr();
    connector.stop().await;
    assert_eq!(client.closed().await, (1001, "going away".into()));
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn nonsense_is_counted_and_a_message_over_the_limit_ends_the_connection() {
    let settings = ConnectorSettings {
        max_message_bytes: 4_096,
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let mut client = greeted(&connector, "discord").await;
    for nonsense in ["not json\n", "[1]\n", "{\"type\":\"inbound\"}\n", "\n \n"] {
        futures_util::SinkExt::send(&mut client.socket, Message::text(nonsense))
            .await
            .unwrap();
    }
    client.say(json!({ "type": "going_idle" })).await;
    assert_eq!(client.line().await["type"], "going_idle_ack");
    assert_eq!(connector.undecodable(), 3);
    client
        .say(json!({ "type": "hello", "platform": "x".repeat(5_000) }))
        .await;
    assert_eq!(client.closed().await.0, 1009);
}

#[tokio::test]
async fn a_gateway_that_does_not_pong_is_dropped() {
    let settings = ConnectorSettings {
        // It gives up on whoever is silent for twice as long.
        ping_interval: Some(Duration::from_millis(800)),
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let mut client = greeted(&connector, "discord").await;
    client.answer_pings(4).await;
    assert_eq!(connector.open_connections().len(), 1, "pongs keep it");
    let ended = connector
        .until("its end", SOON, |connector| connector.closed().pop())
        .await
        .unwrap();
    assert_eq!((ended.by, ended.code), (ClosedBy::Connector, Some(1011)));
}

#[tokio::test]
async fn frames_of_a_gateway_that_does_not_read_are_still_read() {
    let connector = connector().await;
    let mut client = greeted(&connector, "slack").await;
    connector.script(ResultRule::on_all(OpAnswer::Result(json!({ "x": "y".repeat(100_000) }))).times(200));
    for n in 0..200 {
        client
            .ask(&n.to_string(), json!({ "op": "typing", "chat_id": "c" }))
            .await;
    }
    connector
        .wait_for("the last op", SOON, |record| {
            record.asks_for("typing") && record.json()["requestId"] == "199"
        })
        .await
        .unwrap();
    for n in 0..200 {
        assert_eq!(client.line().await["requestId"], n.to_string());
    }
}
