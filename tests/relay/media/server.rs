//! Real servers on loopback, and rooms that know only them.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::Response;
use futures_util::stream;
use hermes_relay::net::media::{
    DownloadLocation, DownloadRequest, Downloaded, Downloads, Looking, Lookup, MediaAccess, MediaClient,
    MediaConnector, MediaSettings,
};
use hermes_relay::wire::{ConnectorUrl, TOKEN_TTL_SECS, UpgradeToken};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::support::http_stub::{Seen, Stub as Server};
use crate::support::http_stub::{egress, reply, reply_with};

/// A body of its own, with these headers.
pub(crate) fn answer(headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    reply_with(200, headers, body)
}

pub(crate) fn redirect(to: &str) -> Response<Body> {
    reply_with(302, &[("location", to)], "")
}

/// `pieces` pieces of `size` bytes, `gap` apart, of unstated length; counts those that were taken.
pub(crate) fn pieces(size: usize, pieces: usize, gap: Duration, taken: &Arc<AtomicUsize>) -> Body {
    let (piece, taken) = (Bytes::from(vec![b'x'; size]), Arc::clone(taken));
    Body::from_stream(stream::unfold(0, move |given| {
        let (piece, taken) = (piece.clone(), Arc::clone(&taken));
        async move {
            if given == pieces {
                return None;
            }
            tokio::time::sleep(gap).await;
            taken.fetch_add(1, Ordering::SeqCst);
            Some((Ok::<_, io::Error>(piece), given + 1))
        }
    }))
}

/// A room in a folder of its own.
pub(crate) struct Rig {
    pub(crate) room: Arc<MediaClient>,
    pub(crate) state: TempDir,
}

pub(crate) const SECRET: &str = "hush";

pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

pub(crate) fn access(connector: &str) -> MediaAccess {
    access_minting(connector, || {
        Some(UpgradeToken::mint("gw", &SECRET.into(), TOKEN_TTL_SECS, now()))
    })
}

/// Access with tokens of the test's own.
pub(crate) fn access_minting(
    connector: &str,
    mint: impl Fn() -> Option<UpgradeToken> + Send + Sync + 'static,
) -> MediaAccess {
    MediaAccess {
        connector: Some(MediaConnector {
            url: ConnectorUrl::parse(connector).unwrap(),
            mint: Arc::new(mint),
            allow_plaintext: false,
        }),
        bots: None,
        egress: egress(),
    }
}

impl Rig {
    /// A room of the connector at this address.
    pub(crate) fn new(connector: &str, settings: MediaSettings) -> Self {
        Self::with(settings, access(connector), |room| room)
    }

    /// A room for which the whole of 127.0.0.1, and nothing else, is the public internet.
    pub(crate) fn public_loopback(settings: MediaSettings) -> Self {
        let rule: fn(IpAddr) -> bool = |address| address == IpAddr::from([127, 0, 0, 1]);
        Self::with(settings, access("https://connector.example"), |room| {
            room.with_address_rule(rule)
        })
    }

    pub(crate) fn with(
        settings: MediaSettings,
        access: MediaAccess,
        finish: impl FnOnce(MediaClient) -> MediaClient,
    ) -> Self {
        let state = tempfile::tempdir().unwrap();
        let room = MediaClient::open(&state.path().join("media"), settings, access).unwrap();
        Self {
            room: Arc::new(finish(room)),
            state,
        }
    }

    /// Fetches in a task of its own, as the relay does.
    pub(crate) async fn fetch(&self, urls: &[&str]) -> Downloads {
        let wanted = urls.iter().map(|url| wanted(url, "")).collect();
        let room = Arc::clone(&self.room);
        let cancel = CancellationToken::new();
        tokio::spawn(async move { room.download(7, wanted, &cancel).await })
            .await
            .unwrap()
    }

    /// The only file of a message that has one.
    pub(crate) async fn fetch_one(&self, url: &str) -> (Downloaded, Downloads) {
        let fetched = self.fetch(&[url]).await;
        assert_eq!(fetched.files.len(), 1, "{fetched:?}");
        (fetched.files[0].clone(), fetched)
    }

    /// Nothing came of this address.
    pub(crate) async fn assert_refused(&self, url: &str) {
        let fetched = self.fetch(&[url]).await;
        assert_eq!((fetched.files.len(), fetched.missing), (0, 1), "{url}");
        assert!(fetched.dir.is_none(), "{url}");
        self.assert_clean();
    }

    /// Nothing is left on the disk.
    pub(crate) fn assert_clean(&self) {
        let left: Vec<_> = std::fs::read_dir(self.state.path().join("media"))
            .unwrap()
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

pub(crate) fn wanted(url: &str, mime: &str) -> DownloadRequest {
    DownloadRequest {
        url: url.to_owned(),
        mime: mime.to_owned(),
    }
}

pub(crate) fn file(received: &Downloaded) -> &Path {
    match &received.location {
        DownloadLocation::File(path) => path,
        DownloadLocation::Url(url) => panic!("{url} was not downloaded"),
    }
}

/// A resolver that gives its answers one after the other; the last for ever.
#[derive(Default)]
pub(crate) struct Script {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    pub(crate) asked: AtomicUsize,
}

impl Script {
    pub(crate) fn of(answers: &[&[&str]]) -> Arc<Self> {
        let answer = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self {
            answers: Mutex::new(answers.iter().map(answer).collect()),
            asked: AtomicUsize::new(0),
        })
    }
}

impl Lookup for Script {
    fn lookup<'a>(&'a self, _host: &'a str, port: u16) -> Looking<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 {
            answers.pop_front().unwrap()
        } else {
            answers[0].clone()
        };
        let addresses = answer
            .into_iter()
            .map(|address| SocketAddr::new(address, port))
            .collect();
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// An answer without a file.
pub(crate) fn status(code: u16) -> Response<Body> {
    reply(code, "half")
}
