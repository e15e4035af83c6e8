//! Messages that are far too large: what is lost, and what goes on.

use crate::support::dev::text_event;
use hermes_relay::store::{Inspector, Section};
use serde_json::json;

use crate::link::handshake::connector;
use crate::link::refusals::dials;
use crate::support::relay_process::{SOON, Setup};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_message_of_five_mebibytes_is_quarantined_and_the_link_holds() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    let huge = "x".repeat(5 * MIB);
    let events = [
        text_event("discord", "c1", "m1", "before"),
        text_event("discord", "c1", "huge", &huge),
        text_event("discord", "c1", "m2", "after"),
    ];
    for event in &events {
        connector.deliver(event).unwrap();
    }
    // The same with its name at its end, and once without any name.
    let nameless = json!({ "type": "inbound", "event": events[1] }).to_string();
    let named = nameless.strip_suffix('}').unwrap();
    assert!(connector.send_raw(&format!("{named},\"bufferId\":\"last\"}}\n")));
    assert!(connector.send_raw(&format!("{nameless}\n")));
    connector
        .deliver(&text_event("discord", "c1", "m3", "at last"))
        .unwrap();
    for id in ["m1", "m2", "m3"] {
        connector.reply_to(SOON, id).await.unwrap();
    }
    connector
        .until("an empty buffer", SOON, |connector| {
            (connector.waiting() == 0).then_some(())
        })
        .await
        .unwrap();
    assert_eq!(
        (connector.dials().len(), connector.open_connections().len()),
        (1, 1)
    );
    assert!(connector.acks().iter().any(|ack| ack.buffer_id == "last"));
    assert_eq!(
        connector.sent_messages().len(),
        3,
        "quarantined lines get no answer"
    );
    relay.stop().await;
    let inspector = Inspector::open(&setup.state_dir()).unwrap();
    let aside = inspector.list(Section::Quarantine, 0, 10).unwrap();
    assert_eq!(aside.len(), 2, "{aside:?}");
    let names_limit =
        |reason: &Option<String>| reason.as_ref().is_some_and(|reason| reason.contains("1048576"));
    assert!(
        aside
            .iter()
            .all(|listed| listed.name.is_some() && names_limit(&listed.reason)),
        "{aside:?}"
    );
}

#[tokio::test]
async fn a_message_beyond_the_hard_bound_ends_the_link_which_reports_why_and_dials_again() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("link.max_message_bytes", "2097152");
    let mut relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    connector
        .deliver(&text_event("discord", "c1", "m1", "before"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    assert!(connector.send_raw(&"x".repeat(3 * MIB)));
    let line = relay.wait_for_log("link.max_message_bytes").await;
    assert!(
        line.contains("lost the connector") && line.contains("3145728"),
        "{line}"
    );
    dials(&connector, 2).await;
    connector
        .deliver(&text_event("discord", "c1", "m2", "after"))
        .unwrap();
    connector.reply_to(SOON, "m2").await.unwrap();
    assert!(!relay.has_ended());
    relay.stop().await;
}

#[tokio::test]
async fn a_message_of_lines_that_mean_nothing_costs_little_memory_and_one_line_of_the_log() {
    const LINES: usize = 3 * MIB / 2;
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    let event = text_event("discord", "c1", "m1", "after");
    let frame = json!({ "type": "inbound", "event": event });
    let before = relay.memory_kib("VmHWM");
    assert!(connector.send_raw(&format!("{}{frame}\n", "x\n".repeat(LINES))));
    connector.reply_to(SOON, "m1").await.unwrap();
    let grew = relay.memory_kib("VmHWM") - before;
    assert!(grew < 48 * 1024, "{grew} KiB for {} KiB", 3 * 1024);
    let log = relay.stderr();
    let logged: Vec<_> = log
        .lines()
        .filter(|line| line.contains("cannot decode a frame"))
        .collect();
    assert!(
        matches!(logged[..], [only] if only.contains(&format!("lines={LINES}"))),
        "{logged:?}"
    );
    assert_eq!(connector.dials().len(), 1);
    relay.stop().await;
}
