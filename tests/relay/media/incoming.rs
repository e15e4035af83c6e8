//! Files come in whole, bounded and in order, and go with their turn.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hermes_relay::net::media::{DownloadLocation, MediaSettings};
use tokio_util::sync::CancellationToken;

use crate::media::server::{Rig, Server, answer, file, pieces, status, wanted};

const MIB: usize = 1024 * 1024;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn quick() -> MediaSettings {
    MediaSettings {
        timeout_secs: 1,
        ..MediaSettings::default()
    }
}

#[tokio::test]
async fn a_file_is_its_owners_and_goes_with_the_turn() {
    let server = Server::start(|_| answer(&[("content-type", "image/png; x=y")], "bytes")).await;
    let rig = Rig::public_loopback(MediaSettings::default());
    let (received, fetched) = rig.fetch_one(&server.url("/a/cat%20one.png?token=1")).await;
    assert_eq!(
        (received.name.as_str(), received.mime.as_str()),
        ("cat one.png", "image/png")
    );
    let path = file(&received).to_owned();
    assert_eq!(fs::read(&path).unwrap(), b"bytes");
    let folder = fetched.dir.as_ref().unwrap().path().to_owned();
    assert_eq!(path.parent(), Some(folder.as_path()));
    assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
    assert_eq!(mode(&rig.state.path().join("media")), 0o700);
    let seen = &server.seen()[0];
    assert_eq!(seen.header("user-agent"), Some("hermes-relay/test"));
    for absent in ["authorization", "referer", "cookie", "accept-encoding"] {
        assert_eq!(seen.header(absent), None);
    }
    drop(fetched);
    assert!(!folder.exists());
    rig.assert_clean();
}

#[tokio::test]
async fn all_turns_share_one_budget_on_disk_and_leave_room_for_the_journal() {
    let server = Server::start(|seen| match seen.uri.as_str() {
        "/large" => answer(&[], "x".repeat(9000)),
        _ => answer(&[], "x".repeat(4000)),
    })
    .await;
    let rig = Rig::public_loopback(MediaSettings {
        total_bytes: 10_000,
        ..MediaSettings::default()
    });
    let (one, first) = rig.fetch_one(&server.url("/one")).await;
    let (two, _second) = rig.fetch_one(&server.url("/two")).await;
    assert!(file(&one).is_file() && file(&two).is_file());
    let third = rig.fetch(&[&server.url("/three")]).await;
    assert_eq!(third.missing, 1, "8,000 of 10,000 bytes are taken");
    // What failed halfway takes nothing, and what ended gives its share back.
    assert_eq!(rig.fetch(&[&server.url("/large")]).await.missing, 1);
    drop(first);
    let (again, _again) = rig.fetch_one(&server.url("/three")).await;
    assert!(file(&again).is_file());

    let full = Rig::public_loopback(MediaSettings {
        min_free_bytes: u64::MAX,
        ..MediaSettings::default()
    });
    full.assert_refused(&server.url("/one")).await;
}

#[tokio::test]
async fn files_and_types_stay_together_when_one_fails() {
    let server = Server::start(|seen| match seen.uri.as_str() {
        "/gone" => status(404),
        _ => answer(&[("content-type", "text/plain")], seen.uri.clone()),
    })
    .await;
    let rig = Rig::public_loopback(MediaSettings::default());
    let asked = [
        wanted(&server.url("/one"), "audio/ogg"),
        wanted(&server.url("/gone"), "image/gif"),
        wanted("not an address", "video/mp4"),
        wanted(&server.url("/two"), ""),
    ];
    let fetched = rig
        .room
        .download(1, asked.to_vec(), &CancellationToken::new())
        .await;
    let got: Vec<_> = fetched
        .files
        .iter()
        .map(|received| (received.name.as_str(), received.mime.as_str()))
        .collect();
    let expected = [("one.ogg", "audio/ogg"), ("two.txt", "text/plain")];
    assert_eq!(got, expected);
    assert_eq!(fs::read(file(&fetched.files[1])).unwrap(), b"/two");
    assert_eq!(fetched.missing, 2);
    assert!(fetched.note().unwrap().contains('2'));
}

#[tokio::test]
async fn a_file_over_the_bound_is_cut_off_whatever_it_says_about_itself() {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let server = Server::start(move |seen| match seen.uri.as_str() {
        "/stated" => answer(
            &[("content-length", &(26 * MIB).to_string())],
            pieces(MIB, 26, Duration::ZERO, &count),
        ),
        "/unstated" => answer(&[], pieces(MIB, 26, Duration::ZERO, &count)),
        "/exact" => answer(&[], pieces(MIB, 25, Duration::ZERO, &count)),
        _ => answer(&[], pieces(MIB, usize::MAX, Duration::ZERO, &count)),
    })
    .await;
    let rig = Rig::public_loopback(MediaSettings::default());
    for path in ["/stated", "/unstated", "/endless"] {
        taken.store(0, Ordering::SeqCst);
        rig.assert_refused(&server.url(path)).await;
        let max_size = if path == "/stated" { 25 } else { 60 };
        assert!(taken.load(Ordering::SeqCst) < max_size, "{path}: {taken:?}");
    }
    let (received, _folder) = rig.fetch_one(&server.url("/exact")).await;
    assert_eq!(fs::metadata(file(&received)).unwrap().len(), 25 * MIB as u64);
}

#[tokio::test]
async fn empty_and_compressed_bodies_are_no_files() {
    let server = Server::start(|seen| match seen.uri.as_str() {
        "/gzip" => answer(&[("content-encoding", "gzip")], "\u{1f}bomb"),
        "/partial" => status(206),
        "/same" => answer(&[("content-encoding", "identity")], "fine"),
        _ => answer(&[], ""),
    })
    .await;
    let rig = Rig::public_loopback(MediaSettings::default());
    for path in ["/gzip", "/partial", "/empty"] {
        rig.assert_refused(&server.url(path)).await;
    }
    file(&rig.fetch_one(&server.url("/same")).await.0);
}

#[tokio::test]
async fn a_server_that_drips_or_stays_silent_is_abandoned() {
    let taken = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen| match seen.uri.as_str() {
        "/drip" => answer(&[], pieces(1, usize::MAX, Duration::from_millis(100), &taken)),
        _ => answer(&[], pieces(1, 1, Duration::from_secs(3600), &taken)),
    })
    .await;
    let rig = Rig::public_loopback(quick());
    let began = Instant::now();
    let fetched = rig.fetch(&[&server.url("/drip"), &server.url("/silent")]).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(fetched.missing == 2 && fetched.dir.is_none());
    rig.assert_clean();
}

#[tokio::test]
async fn a_stopped_turn_waits_for_no_file() {
    let taken = Arc::new(AtomicUsize::new(0));
    let server =
        Server::start(move |_| answer(&[], pieces(1, usize::MAX, Duration::from_millis(10), &taken))).await;
    let rig = Rig::public_loopback(MediaSettings::default());
    let cancel = CancellationToken::new();
    let began = Instant::now();
    let stop = async {
        while server.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    };
    let asked = vec![wanted(&server.url("/x"), "")];
    let (fetched, ()) = tokio::join!(rig.room.download(1, asked, &cancel), stop);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!((fetched.files.len(), fetched.missing), (0, 1));
    rig.assert_clean();
}

#[tokio::test]
async fn downloads_of_all_turns_share_their_places() {
    let server = Server::at("127.0.0.1:0", Duration::from_millis(50), |_| answer(&[], "x")).await;
    let rig = Rig::public_loopback(MediaSettings {
        parallel: 3,
        ..MediaSettings::default()
    });
    let url = server.url("/x");
    let urls = [url.as_str(); 8];
    let (one, two) = tokio::join!(rig.fetch(&urls), rig.fetch(&urls));
    for fetched in [one, two] {
        assert!(fetched.files.iter().all(|received| file(received).is_file()));
    }
    assert_eq!(server.max_concurrent(), 3);
}

#[tokio::test]
async fn turns_that_find_no_place_in_time_do_not_wait_for_their_files() {
    let taken = Arc::new(AtomicUsize::new(0));
    let server =
        Server::start(move |_| answer(&[], pieces(1, usize::MAX, Duration::from_millis(50), &taken))).await;
    let rig = Rig::public_loopback(MediaSettings {
        parallel: 1,
        ..quick()
    });
    let began = Instant::now();
    let fetched = rig.fetch(&[server.url("/x").as_str(); 6]).await;
    assert_eq!(fetched.missing, 6);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_is_over_the_count_or_not_wanted_is_not_downloaded() {
    let server = Server::start(|_| answer(&[], "x")).await;
    let rig = Rig::public_loopback(MediaSettings {
        max_attachments: 2,
        ..MediaSettings::default()
    });
    let fetched = rig.fetch(&[server.url("/x").as_str(); 5]).await;
    assert!(fetched.files.iter().all(|received| file(received).is_file()));
    assert_eq!(
        (fetched.files.len(), fetched.missing, server.seen().len()),
        (2, 3, 2)
    );

    let off = Rig::public_loopback(MediaSettings {
        download: false,
        ..MediaSettings::default()
    });
    let shelved = "https://connector.example/relay/media/1";
    let fetched = off.fetch(&[&server.url("/x"), shelved]).await;
    assert_eq!(
        (fetched.files.len(), fetched.missing, server.seen().len()),
        (1, 1, 2)
    );
    assert_eq!(fetched.files[0].location, DownloadLocation::Url(server.url("/x")));
    assert!(fetched.note().unwrap().contains("one attachment"));
}

#[tokio::test]
async fn a_full_or_missing_folder_loses_no_message() {
    let server = Server::start(|_| answer(&[], "x")).await;
    let rig = Rig::public_loopback(MediaSettings::default());
    fs::remove_dir(rig.state.path().join("media")).unwrap();
    let fetched = rig.fetch(&[&server.url("/x")]).await;
    assert_eq!((fetched.files.len(), fetched.missing), (0, 1));
}
