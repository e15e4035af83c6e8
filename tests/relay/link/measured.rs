//! Numbers worth knowing, printed; the bounds are generous, for this is a debug build on a busy machine.

use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings, text_event};

use crate::link::handshake::connector;
use crate::support::dev::FrameKinds as _;
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::{eventually, eventually_within};

#[tokio::test]
async fn a_cold_start_reaches_the_connector_soon_and_in_little_memory() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    for start in ["first", "second"] {
        let mark = connector.mark();
        let relay = setup.start();
        let answered = connector
            .wait_after(mark, "a descriptor", SOON, |frame| {
                frame.is_to_gateway("descriptor")
            })
            .await
            .unwrap();
        let took = answered.at.duration_since(relay.started.into_std());
        println!("{start} start: exec to hello answered in {took:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        let id = format!("{start}-m");
        connector
            .deliver(&text_event("discord", "c1", &id, "hello"))
            .unwrap();
        connector.reply_to(SOON, &id).await.unwrap();
        let (now, peak) = (relay.memory_kib("VmRSS"), relay.memory_kib("VmHWM"));
        println!("{start} start: {now} KiB resident after one message, {peak} KiB at most");
        assert!(peak < 200 * 1024, "{peak} KiB");
        relay.stop().await;
    }
}

/// How much memory chats take that wait for their turn, with few and with all of them in memory. Run with
/// `CHATS=200000 cargo test --test relay waiting_chats -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement, not a check"]
async fn memory_of_waiting_chats() {
    let chats = std::env::var("CHATS").ok().and_then(|chats| chats.parse().ok());
    let chats: u64 = chats.unwrap_or(20_000);
    for in_memory in ["10000", "10000000"] {
        let connector = Connector::start(ConnectorSettings {
            drain_window: 512,
            record_limit: 0,
            buffer_limit: usize::MAX,
            ..ConnectorSettings::default()
        })
        .await
        .unwrap();
        let setup = Setup::for_connector(&connector)
            .setting("sessions.max_concurrent_turns", "1")
            .setting("sessions.max_waiting", in_memory)
            .setting("journal.durability", "process");
        let relay = setup.start();
        relay.wait_for_log("connected to the connector").await;
        connector
            .deliver(&text_event("discord", "busy", "m", "sleep=86400000 x"))
            .unwrap();
        eventually("the first", async || connector.acked() == 1).await;
        let idle = relay.memory_kib("VmRSS");
        for chat in 0..chats {
            let chat = format!("chat-{chat:012}");
            connector
                .deliver(&text_event("discord", &chat, "m", "hello"))
                .unwrap();
        }
        let taken = Duration::from_secs(900);
        eventually_within(taken, "all taken", async || connector.acked() == chats + 1).await;
        let (now, peak) = (relay.memory_kib("VmRSS"), relay.memory_kib("VmHWM"));
        println!(
            "{chats} waiting chats, at most {in_memory} in memory: {idle} KiB idle, {now} KiB now, {peak} KiB peak"
        );
    }
}
