//! A relay that stays up without a socket: over the network, woken by the connector's own poke.

use std::time::Duration;

use crate::support::dev::FrameKinds as _;
use crate::support::dev::{ClosedBy, Connector, ConnectorSettings, text_event};
use crate::support::http_stub::{reply, serve};
use crate::support::wait::{SOON, eventually};
use hermes_relay::agent::EchoAgent;
use hermes_relay::config::{BotIdentity, Durability, Settings, SleepAction};
use hermes_relay::relay::{ExitReason, Relay, RelayHandle, Status};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

struct Sleepy {
    connector: Connector,
    handle: RelayHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<ExitReason>,
    _folder: tempfile::TempDir,
}

/// A relay that sleeps after a second, over a real socket.
async fn sleepy(adjust: impl FnOnce(&mut Settings)) -> Sleepy {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(folder.path());
    settings.streaming.first_hold_ms = 0;
    let credentials = connector.credentials().unwrap();
    settings.connector.url = Some(connector.url());
    settings.connector.gateway_id = Some(credentials.gateway_id);
    settings.connector.secret = Some(credentials.secret);
    settings.connector.identities = vec![BotIdentity::new("discord", "")];
    settings.connector.wake_url = Some("http://127.0.0.1:9/wake".to_owned());
    settings.journal.durability = Durability::Process;
    settings.link.backoff_min_ms = 50;
    settings.sleep.enabled = true;
    settings.sleep.idle_secs = 1;
    settings.sleep.action = SleepAction::Wait;
    adjust(&mut settings);
    let relay = Relay::builder(settings).agent("echo", EchoAgent).build().unwrap();
    let handle = relay.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
    connector.wait_connected(SOON).await.unwrap();
    Sleepy {
        connector,
        handle,
        stop,
        task,
        _folder: folder,
    }
}

impl Sleepy {
    async fn wait_for_status(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        eventually(what, async || {
            let status = self.handle.status().await.expect("the relay runs");
            if wanted(&status) { Ok(status) } else { Err(status) }
        })
        .await
    }

    async fn falls_asleep(&self) -> Status {
        self.wait_for_status("a sleep", |status| {
            status.link == "dormant" && status.tally.sleeps > 0
        })
        .await
    }

    fn deliver(&self, id: &str, text: &str) {
        let event = text_event("discord", "c1", id, text);
        self.connector.deliver(&event).unwrap();
    }

    async fn ends(self) {
        drop(self.stop);
        let ended = timeout(SOON, self.task).await.expect("an end in time");
        assert_eq!(ended.unwrap(), ExitReason::Shutdown);
    }
}

/// Takes the connector's poke and passes it on, as the relay's own listener or a platform would.
async fn wake_on_poke(sleepy: &Sleepy) {
    let handle = sleepy.handle.clone();
    let address = serve("127.0.0.1:0", move |_| {
        let handle = handle.clone();
        async move {
            // A relay that has ended needs no waking.
            let _ = handle.wake().await;
            reply(204, "")
        }
    });
    let url = format!("http://{}/wake", address.await);
    sleepy.connector.set_wake_url(url.parse().unwrap());
}

#[tokio::test]
async fn an_idle_relay_sends_going_idle_waits_for_the_ack_and_disconnects_and_a_wake_request_brings_the_backlog_in_order()
 {
    let sleepy = sleepy(|_| {}).await;
    wake_on_poke(&sleepy).await;
    sleepy.deliver("m0", "zero");
    sleepy.connector.reply_to(SOON, "m0").await.unwrap();
    sleepy.falls_asleep().await;
    let order: Vec<String> = sleepy
        .connector
        .frames()
        .iter()
        .map(|frame| frame.kind().to_owned())
        .filter(|kind| kind.starts_with("going_idle"))
        .collect();
    assert_eq!(order, ["going_idle", "going_idle_ack"]);
    let gone = sleepy.connector.until("the socket closed", SOON, |connector| {
        connector.closed().pop().filter(|_| !connector.is_connected())
    });
    let gone = gone.await.unwrap();
    assert_eq!((gone.by, gone.code), (ClosedBy::Gateway, Some(1001)));
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(sleepy.connector.dials().len(), 1, "the dial is held back");

    for (id, text) in [("m1", "one"), ("m2", "two"), ("m3", "three")] {
        sleepy.deliver(id, text);
    }
    sleepy.connector.reply_to(SOON, "m3").await.unwrap();
    let texts: Vec<String> = sleepy
        .connector
        .sent_messages()
        .into_iter()
        .map(|sent| sent.text)
        .collect();
    assert_eq!(texts, ["echo: zero", "echo: one", "echo: two", "echo: three"]);
    let status = sleepy
        .wait_for_status("a wake", |status| status.tally.wakes == 1)
        .await;
    let ms = status.last_wake_ms.expect("the wake was measured");
    eprintln!("from the wake to the first acknowledgement: {ms} ms");
    assert!(ms < 5_000, "{ms} ms");
    assert_eq!(sleepy.connector.dials().len(), 2);

    sleepy
        .wait_for_status("another sleep", |status| status.tally.sleeps == 2)
        .await;
    sleepy.ends().await;
}

#[tokio::test]
async fn without_the_ack_there_is_no_sleep_and_nothing_is_missed() {
    let sleepy = sleepy(|_| {}).await;
    sleepy.connector.ignore_going_idle(true);
    let status = sleepy
        .wait_for_status("a refusal", |status| status.tally.sleeps_refused > 0)
        .await;
    assert_eq!(status.tally.sleeps, 0);
    // This connector buffers although its word was lost, and delivers on a new connection only.
    sleepy.deliver("m1", "still there?");
    sleepy.connector.reply_to(SOON, "m1").await.unwrap();
    let status = sleepy.handle.status().await.unwrap();
    assert_eq!((status.tally.sleeps, status.link.as_str()), (0, "live"));
    sleepy.connector.ignore_going_idle(false);
    sleepy.falls_asleep().await;
    sleepy.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_together_with_the_ack_keeps_the_relay_awake() {
    let sleepy = sleepy(|_| {}).await;
    sleepy.connector.ignore_going_idle(true);
    sleepy
        .connector
        .wait_for("going_idle", SOON, |frame| frame.is_from_gateway("going_idle"))
        .await
        .unwrap();
    // Not buffered: whoever loses this one has lost it.
    let event = text_event("discord", "c1", "m1", "wait for me");
    let inbound = serde_json::json!({"type": "inbound", "event": event});
    let breath = format!("{inbound}\n{{\"type\":\"going_idle_ack\"}}\n");
    assert!(sleepy.connector.send_raw(&breath));
    sleepy.connector.reply_to(SOON, "m1").await.unwrap();
    let status = sleepy
        .wait_for_status("a refusal", |status| status.tally.sleeps_refused == 1)
        .await;
    assert_eq!(status.tally.sleeps, 0);
    sleepy.ends().await;
}

#[tokio::test]
async fn the_longest_sleep_ends_by_itself() {
    let sleepy = sleepy(|settings| settings.sleep.max_secs = 2).await;
    sleepy.falls_asleep().await;
    let since = Instant::now();
    sleepy
        .wait_for_status("a wake", |status| status.tally.wakes > 0)
        .await;
    assert!(since.elapsed() > Duration::from_secs(1), "{:?}", since.elapsed());
    sleepy.ends().await;
}

#[tokio::test]
async fn an_outgoing_message_ends_a_sleep_and_so_does_a_shutdown() {
    let sleepy = sleepy(|_| {}).await;
    sleepy.deliver("m0", "zero");
    sleepy.connector.reply_to(SOON, "m0").await.unwrap();
    sleepy.falls_asleep().await;
    sleepy.handle.send("c1", "by the way").await.unwrap();
    let sent = sleepy
        .connector
        .wait_for_sent("a message unasked", SOON, |sent| sent.text == "by the way");
    sent.await.unwrap();
    sleepy
        .wait_for_status("another sleep", |status| status.tally.sleeps == 2)
        .await;
    let asked = Instant::now();
    sleepy.ends().await;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn nobody_sleeps_without_an_opt_in_or_without_someone_to_wake_them() {
    let asleep = |status: &Status| status.tally.sleeps + status.tally.sleeps_refused > 0;
    for adjust in [
        (|settings: &mut Settings| settings.sleep.enabled = false) as fn(&mut Settings),
        |settings| settings.connector.wake_url = None,
    ] {
        let sleepy = sleepy(adjust).await;
        sleep(Duration::from_millis(2500)).await;
        let status = sleepy.handle.status().await.unwrap();
        assert!(!asleep(&status), "{status:?}");
        sleepy.ends().await;
    }
}
