//! What comes with messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hermes_relay::agent::MediaLocation;
use hermes_relay::config::{BusyMode, Settings};

use super::{Running, entries, next, reader};
use crate::media::server::{Server, answer, pieces, status};
use crate::support::wait::eventually;

fn allow(server: &Server) -> impl FnOnce(&mut Settings) {
    let host = server.address().to_string();
    move |settings: &mut Settings| settings.media.allow_hosts = vec![host]
}

/// A server whose files never end, and how many pieces of them went out.
async fn endless() -> (Server, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let server = Server::start(move |_| {
        let body = pieces(1024, 1_000_000, Duration::from_millis(10), &counter);
        answer(&[("content-type", "image/png")], body)
    })
    .await;
    (server, taken)
}

#[tokio::test]
async fn a_picture_reaches_the_agent_as_a_file_and_goes_with_the_turn() {
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, |_| {}).await;
    let bytes = vec![7_u8; 70_000];
    let url = relay
        .connector
        .put_media("image/png", Some("../cat.png"), bytes.clone());
    relay.deliver("a", "1", "wait", &[(&url, "image/png")]);
    let (input, files) = next(&mut given).await;
    assert_eq!(files, [bytes]);
    let [cat] = &input.attachments[..] else {
        panic!("{input:?}")
    };
    let MediaLocation::File(path) = &cat.location else {
        panic!("{cat:?}")
    };
    assert_eq!((cat.name.as_str(), cat.mime.as_str()), ("cat.png", "image/png"));
    assert!(path.starts_with(relay.folder()) && path.exists());
    assert!(input.notes.is_empty());

    relay.connector.interrupt("agent:main:discord:dm:a", "a");
    relay.wait_for_turns(0).await;
    assert!(!path.exists());
    assert_eq!(entries(&relay.folder()), 0);
    relay.stop().await;
}

#[tokio::test]
async fn a_slow_attachment_holds_up_nobody_else_and_ends_with_its_turn() {
    let (server, taken) = endless().await;
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, allow(&server)).await;
    relay.deliver("slow", "1", "look", &[(&server.url("/big.png"), "image/png")]);
    eventually("the download to begin", async || taken.load(Ordering::SeqCst) > 2).await;
    relay.deliver("other", "2", "hi", &[]);
    assert_eq!(relay.replies("other", 1).await, [("send", "read hi".to_owned())]);
    assert_eq!(next(&mut given).await.0.text, "hi");
    assert_eq!(entries(&relay.folder()), 1);

    relay.connector.interrupt("agent:main:discord:dm:slow", "slow");
    relay.wait_for_turns(0).await;
    assert_eq!(entries(&relay.folder()), 0);
    assert!(given.try_recv().is_err(), "the agent of a stopped turn ran");
    let mut last = taken.load(Ordering::SeqCst);
    eventually("the download to stop", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::mem::replace(&mut last, taken.load(Ordering::SeqCst)) == taken.load(Ordering::SeqCst)
    })
    .await;
    relay.deliver("slow", "3", "again", &[]);
    assert_eq!(
        relay.replies("slow", 1).await,
        [("send", "read again".to_owned())]
    );
    relay.stop().await;
}

#[tokio::test]
async fn what_cannot_be_had_does_not_take_its_message_with_it() {
    let server = Server::start(|_| status(500)).await;
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, allow(&server)).await;
    let gone = format!("{}/relay/media/{:032x}", relay.connector.http_base(), 999);
    let sick = server.url("/sick.pdf");
    let good = relay
        .connector
        .put_media("text/plain", Some("a.txt"), b"abc".to_vec());
    relay.deliver(
        "a",
        "1",
        "look",
        &[(&gone, "image/png"), (&sick, "application/pdf"), (&good, "")],
    );
    let (input, files) = next(&mut given).await;
    assert_eq!((input.text.as_str(), files), ("look", vec![b"abc".to_vec()]));
    assert_eq!(input.attachments.len(), 1);
    assert_eq!(input.attachments[0].name, "a.txt");
    assert_eq!(input.notes, ["(2 attachments could not be downloaded)"]);
    let told = relay.replies("a", 2).await;
    let told: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(told[0], "I could not download 2 attachments of this message.");
    assert!(told[1].starts_with("read look"), "{told:?}");
    relay.stop().await;
}

#[tokio::test]
async fn the_end_of_the_relay_leaves_no_files() {
    let (server, taken) = endless().await;
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, allow(&server)).await;
    let url = relay
        .connector
        .put_media("image/png", Some("cat.png"), vec![1; 1000]);
    relay.deliver("a", "1", "wait", &[(&url, "image/png")]);
    relay.deliver("b", "2", "look", &[(&server.url("/big.png"), "image/png")]);
    next(&mut given).await;
    eventually("the download to begin", async || taken.load(Ordering::SeqCst) > 2).await;
    assert_eq!(entries(&relay.folder()), 2);
    relay.stop().await;
}

#[tokio::test]
async fn a_message_with_a_file_waits_for_a_turn_of_its_own() {
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, |settings| {
        settings.sessions.busy_mode = BusyMode::Steer;
    })
    .await;
    let url = relay
        .connector
        .put_media("image/png", Some("cat.png"), vec![1; 1000]);
    relay.deliver("a", "1", "wait", &[]);
    next(&mut given).await;
    relay.deliver("a", "2", "look", &[(&url, "image/png")]);
    eventually("it to wait", async || {
        relay.handle.status().await.unwrap().messages_waiting == 1
    })
    .await;
    relay.connector.interrupt("agent:main:discord:dm:a", "a");
    assert_eq!(next(&mut given).await.1, [vec![1; 1000]]);
    relay.stop().await;
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_leaves_the_addresses_of_public_files() {
    let (agent, mut given) = reader();
    let relay = Running::start("discord", agent, |settings| {
        std::fs::create_dir_all(&settings.state_dir).unwrap();
        std::fs::write(settings.state_dir.join("media"), "in the way").unwrap();
    })
    .await;
    relay.deliver(
        "a",
        "1",
        "look",
        &[
            ("https://files.example/cat.png", "image/png"),
            ("http://10.0.0.1/cat.png", "image/png"),
            ("file:///etc/passwd", ""),
        ],
    );
    let (input, _) = next(&mut given).await;
    assert_eq!(input.attachments.len(), 1);
    assert_eq!(input.notes, ["(2 attachments could not be downloaded)"]);
    assert_eq!(
        input.attachments[0].location,
        MediaLocation::Url("https://files.example/cat.png".into())
    );
    assert_eq!(relay.replies("a", 1).await.len(), 1);
}
