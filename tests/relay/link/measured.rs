//! Numbers worth knowing, printed; the bounds are generous, for this is a debug build on a busy machine.

use std::time::Duration;

use hermes_relay::dev::text_event;

use crate::link::handshake::connector;
use crate::support::relay_process::{SOON, Setup};

#[tokio::test]
async fn a_cold_start_reaches_the_connector_soon_and_in_little_memory() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    for start in ["first", "second"] {
        let mark = connector.mark();
        let relay = setup.start();
        let answered = connector
            .wait_after(mark, "a descriptor", SOON, |frame| frame.to_gateway("descriptor"))
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
