//! Files of an agent reach the connector's shelf, and only those that may.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::support::dev::{Connector, ConnectorSettings};
use hermes_relay::adapter::media::MediaKind;
use hermes_relay::net::media::{MediaError, MediaSettings};
use hermes_relay::wire::{TOKEN_TTL_SECS, UpgradeToken};

use crate::media::server::{Rig, Server, access_minting, answer, file, now, redirect, status};

fn work() -> (tempfile::TempDir, Vec<PathBuf>) {
    let work = tempfile::tempdir().unwrap();
    let roots = vec![work.path().to_owned()];
    (work, roots)
}

#[tokio::test]
async fn what_is_sent_can_be_fetched_again() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let credentials = connector.credentials().unwrap();
    let access = access_minting(&connector.url(), move || {
        let (id, secret) = (&credentials.gateway_id, &credentials.secret);
        Some(UpgradeToken::mint(id, secret, TOKEN_TTL_SECS, now()))
    });
    let rig = Rig::with(MediaSettings::default(), access, |room| room);
    let (work, roots) = work();
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    fs::write(work.path().join("Zürich plot.png"), &bytes).unwrap();

    let room = Arc::clone(&rig.room);
    let sent = tokio::spawn(async move {
        room.upload("discord", "Zürich plot.png".as_ref(), None, None, &roots)
            .await
    });
    let uploaded = sent.await.unwrap().unwrap();
    assert_eq!(uploaded.kind, MediaKind::Image);
    assert_eq!(
        (uploaded.name.as_str(), uploaded.mime.as_str()),
        ("Zürich plot.png", "image/png")
    );
    assert!(
        uploaded
            .url
            .starts_with(&format!("{}/relay/media/", connector.http_base()))
    );
    assert!(rig.room.is_hosted(&uploaded.url));

    let (received, _folder) = rig.fetch_one(&uploaded.url).await;
    assert_eq!(
        (received.name.as_str(), received.mime.as_str()),
        ("Z_rich plot.png", "image/png")
    );
    assert_eq!(fs::read(file(&received)).unwrap(), bytes);
}

#[tokio::test]
async fn an_upload_says_what_it_is_and_how_long() {
    let connector = Server::start(|_| answer(&[], r#"{"id":"a.b_c-1","more":true}"#)).await;
    let rig = Rig::new(&connector.url("/base/relay"), MediaSettings::default());
    let (work, roots) = work();
    fs::write(work.path().join("x"), "voice").unwrap();
    let path = work.path().join("x");
    let name = format!("../{}.ogg", "n".repeat(400));
    let uploaded = rig
        .room
        .upload("discord", &path, Some(&name), Some("audio/ogg; x"), &roots)
        .await
        .unwrap();
    assert_eq!(uploaded.url, connector.url("/base/relay/media/a.b_c-1"));
    assert_eq!(uploaded.kind, MediaKind::Voice);
    let seen = &connector.seen()[0];
    assert_eq!(
        (seen.uri.as_str(), seen.body.as_str()),
        ("/base/relay/media", "voice")
    );
    assert_eq!(seen.header("content-type"), Some("audio/ogg"));
    assert_eq!(seen.header("content-length"), Some("5"));
    assert!(seen.header("authorization").unwrap().starts_with("Bearer "));
    let shown = seen.header("x-media-filename").unwrap();
    assert!(shown.len() <= 255 && shown.starts_with("nnn") && shown.ends_with("n.ogg"));
    assert_eq!(
        rig.room
            .upload("discord", &path, None, None, &roots)
            .await
            .unwrap()
            .mime,
        "application/octet-stream"
    );
}

#[tokio::test]
async fn an_answer_that_is_no_id_is_refused() {
    let foreign = Server::start(|_| answer(&[], r#"{"id":"a"}"#)).await;
    let target = foreign.url("/relay/media");
    let connector = Server::start(move |seen| match seen.header("x-media-filename") {
        Some("away") => redirect(&target),
        Some("refused") => status(413),
        Some("path") => answer(&[], r#"{"id":"../policy"}"#),
        Some("number") => answer(&[], r#"{"id":7}"#),
        Some("long") => answer(&[], format!(r#"{{"id":"{}"}}"#, "x".repeat(129))),
        Some("endless") => answer(&[], "x".repeat(1 << 20)),
        _ => answer(&[], "<html>"),
    })
    .await;
    let rig = Rig::new(&connector.url(""), MediaSettings::default());
    let (work, roots) = work();
    fs::write(work.path().join("x"), "x").unwrap();
    for name in ["away", "refused", "path", "number", "long", "endless", "page"] {
        let outcome = rig
            .room
            .upload("discord", "x".as_ref(), Some(name), None, &roots)
            .await;
        let right = match name {
            "away" => matches!(outcome, Err(MediaError::Redirect)),
            "refused" => matches!(outcome, Err(MediaError::Status(413))),
            _ => matches!(outcome, Err(MediaError::NoId)),
        };
        assert!(right, "{name}: {outcome:?}");
    }
    assert!(foreign.seen().is_empty());
}

#[tokio::test]
async fn files_elsewhere_hidden_or_too_large_are_not_sent() {
    let connector = Server::start(|_| answer(&[], r#"{"id":"a"}"#)).await;
    let (work, roots) = work();
    let (elsewhere, _) = self::work();
    let settings = MediaSettings {
        max_bytes: 4,
        ..MediaSettings::default()
    };
    for (path, text) in [("ok", "1234"), ("large", "12345"), ("empty", ""), (".env", "key")] {
        fs::write(work.path().join(path), text).unwrap();
    }
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, "key").unwrap();
    std::os::unix::fs::symlink(&secret, work.path().join("link")).unwrap();
    let rig = Rig::new(&connector.url(""), settings.clone());
    let sent = async |path: PathBuf| rig.room.upload("discord", &path, None, None, &roots).await;
    assert!(matches!(sent(secret.clone()).await, Err(MediaError::Outside)));
    assert!(matches!(sent("link".into()).await, Err(MediaError::Outside)));
    assert!(matches!(sent("/dev/zero".into()).await, Err(MediaError::Outside)));
    assert!(matches!(sent(".env".into()).await, Err(MediaError::Hidden)));
    assert!(matches!(
        sent("large".into()).await,
        Err(MediaError::TooLarge { max: 4 })
    ));
    assert!(matches!(sent("empty".into()).await, Err(MediaError::Empty)));
    assert!(connector.seen().is_empty());
    sent("ok".into()).await.unwrap();

    let listed = MediaSettings {
        send_from: vec![elsewhere.path().to_owned()],
        ..settings
    };
    let rig = Rig::new(&connector.url(""), listed);
    rig.room
        .upload("discord", &secret, None, None, &roots)
        .await
        .unwrap();
    rig.room
        .upload("discord", &secret, None, None, &[])
        .await
        .unwrap();
    assert_eq!(connector.seen().len(), 3);
    for error in [MediaError::Outside, MediaError::Hidden, MediaError::NotAFile] {
        assert!(!error.to_string().contains(secret.to_str().unwrap()));
    }
}
