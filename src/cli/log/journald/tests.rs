//! A socket plays the part of journald.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::cli::log::redact::KnownSecret;

struct JournaldSocket {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl JournaldSocket {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("socket")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { socket, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The next entry, parsed as journald does.
    fn entry(&self) -> BTreeMap<String, String> {
        let mut datagram = vec![0; 2 * MAX_ENTRY];
        let length = self.socket.recv(&mut datagram).expect("an entry");
        datagram.truncate(length);
        parsed(&datagram)
    }
}

fn parsed(mut rest: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
        let line = std::str::from_utf8(&rest[..end]).unwrap();
        rest = &rest[end + 1..];
        let (name, value) = if let Some((name, value)) = line.split_once('=') {
            (name, value.to_owned())
        } else {
            let (length, tail) = rest.split_at(8);
            let length = usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap();
            let value = String::from_utf8(tail[..length].to_vec()).unwrap();
            assert_eq!(tail[length], b'\n');
            rest = &tail[length + 1..];
            (line, value)
        };
        assert!(fields.insert(name.to_owned(), value).is_none(), "{name} twice");
    }
    fields
}

fn log(listener: &JournaldSocket, redactor: LogRedactor, log: impl FnOnce()) {
    let journald = Journald::open_at(&listener.path()).unwrap();
    let layers = tracing_subscriber::registry().with(journald.layer(redactor));
    tracing::subscriber::with_default(layers, log);
}

#[test]
fn an_event_is_one_entry_with_its_fields_by_name() {
    let listener = JournaldSocket::new();
    log(&listener, LogRedactor::default(), || {
        let error = io::Error::other("first\nsecond");
        tracing::warn!(agent = "code", turn = 12, %error, "the turn \u{1b}[2Jfailed");
        tracing::info!("plain");
        tracing::error!("bad");
        tracing::debug!("a detail");
    });
    let entry = listener.entry();
    let field = |name: &str| entry.get(name).map(String::as_str);
    assert_eq!(
        field("MESSAGE"),
        Some(r#"the turn \u001b[2Jfailed agent="code" turn=12 error=first\nsecond"#)
    );
    assert_eq!(field("PRIORITY"), Some("4"));
    assert_eq!(field("SYSLOG_IDENTIFIER"), Some("hermes-relay"));
    assert_eq!(field("HERMES_AGENT"), Some("code"));
    assert_eq!(field("HERMES_TURN"), Some("12"));
    assert_eq!(
        field("HERMES_ERROR"),
        Some("first\nsecond"),
        "with its length before it"
    );
    assert!(field("HERMES_TARGET").is_some_and(|target| target.starts_with("hermes_relay::cli::log::")));
    assert!(field("CODE_FILE").is_some_and(|file| file.ends_with("tests.rs")));
    let priorities: Vec<_> = (0..3).map(|_| listener.entry()["PRIORITY"].clone()).collect();
    assert_eq!(priorities, ["6", "3", "7"]);
}

#[test]
fn no_field_contains_a_secret() {
    const SECRET: &str = "hush \"quoted\" hush";
    let listener = JournaldSocket::new();
    let redactor = LogRedactor::new(vec![KnownSecret::new("secret", SECRET)]);
    log(&listener, redactor, || {
        tracing::warn!(why = SECRET, list = ?[SECRET], "said {SECRET}");
    });
    let entry = listener.entry();
    assert_eq!(
        entry["MESSAGE"],
        r#"said <hidden> why="<hidden>" list=["<hidden>"]"#
    );
    assert_eq!(
        (&*entry["HERMES_WHY"], &*entry["HERMES_LIST"]),
        ("<hidden>", r#"["<hidden>"]"#)
    );
}

#[test]
fn oversized_entries_are_truncated_and_arrive() {
    let listener = JournaldSocket::new();
    let long = "é".repeat(MAX_ENTRY);
    log(&listener, LogRedactor::default(), || {
        let l = &*long;
        tracing::info!(a = l, b = l, c = l, d = l, e = l, f = l, g = l, h = l, "{l}");
    });
    let entry = listener.entry();
    assert!(entry["MESSAGE"].len() <= MAX_MESSAGE && entry["MESSAGE"].ends_with(TRUNCATED));
    assert!(entry["HERMES_A"].len() <= MAX_VALUE && entry["HERMES_A"].ends_with(TRUNCATED));
    assert!(
        entry.contains_key("PRIORITY") && !entry.contains_key("HERMES_H"),
        "full"
    );
}

#[test]
fn secrets_are_redacted_before_truncation_and_escaping() {
    const SECRET: &str = "0123456789\u{7}\"cdef";
    let redactor = LogRedactor::new(vec![KnownSecret::new("secret", SECRET)]);
    let listener = JournaldSocket::new();
    let long = format!("{}{SECRET}", "x".repeat(MAX_VALUE - TRUNCATED.len() - 8));
    log(&listener, redactor.clone(), || {
        tracing::warn!(long, "{SECRET}");
        tracing::warn!("nothing to redact");
    });
    let entry = listener.entry();
    assert!(
        entry["MESSAGE"].starts_with("<hidden> long="),
        "{}",
        &entry["MESSAGE"][..40]
    );
    let end = &entry["HERMES_LONG"][MAX_VALUE - 30..];
    assert!(!end.contains("0123"), "{end}");
    assert_eq!(redactor.counts().redacted.load(Ordering::Relaxed), 1);
}

#[test]
fn field_names_are_valid() {
    assert_eq!(field_name("retry_ms"), "HERMES_RETRY_MS");
    assert_eq!(field_name("net.peer-name"), "HERMES_NET_PEER_NAME");
    assert_eq!(field_name(&"x".repeat(100)).len(), MAX_NAME);
}

#[test]
fn opening_fails_if_nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let missing = Journald::open_at(&path).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    drop(UnixDatagram::bind(&path).unwrap());
    let deserted = Journald::open_at(&path).unwrap_err();
    assert_eq!(deserted.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_restarted_journald_is_found_and_a_stalled_one_blocks_nobody() {
    let mut listener = JournaldSocket::new();
    let journald = Journald::open_at(&listener.path()).unwrap();
    journald.send(b"MESSAGE=one\n").unwrap();
    assert_eq!(listener.entry()["MESSAGE"], "one");
    std::fs::remove_file(listener.path()).unwrap();
    listener.socket = UnixDatagram::bind(listener.path()).unwrap();
    journald.send(b"MESSAGE=two\n").unwrap();
    assert_eq!(listener.entry()["MESSAGE"], "two");
    // Its queue is filled by sending without reading.
    let refused = (0..100_000).find_map(|_| journald.send(&[b'x'; 1024]).err());
    assert_eq!(refused.expect("a full queue").kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn the_journal_stream_is_identified_by_device_and_inode() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, other] = ["ours", "other"].map(|name| File::create(folder.path().join(name)).unwrap());
    let meta = ours.metadata().unwrap();
    let named = format!("{}:{}", meta.dev(), meta.ino());
    assert!(is_journal_stream(&named, &ours));
    assert!(!is_journal_stream(&named, &other), "inherited");
    for garbage in ["", ":", "1", "a:b", "-1:2", &format!("{named}:1")] {
        assert!(!is_journal_stream(garbage, &ours), "{garbage}");
    }
}

#[test]
fn a_stalled_journald_and_a_full_standard_error_block_nobody() {
    use std::io::{Read as _, Write as _};
    const LINES: u64 = 400;
    let listener = JournaldSocket::new();
    let journald = Journald::open_at(&listener.path()).unwrap();
    let (mut reader, mut writer) = io::pipe().unwrap();
    let mut room = 0;
    while is_writable(&writer) {
        room += writer.write(&[b'.'; 4096]).unwrap();
    }
    let redactor = LogRedactor::default();
    let counts = std::sync::Arc::clone(redactor.counts());
    let lost = || counts.lost.load(Ordering::Relaxed);
    let fallback = File::from(std::os::fd::OwnedFd::from(writer));
    let layers = tracing_subscriber::registry().with(journald.layer_with_fallback(Some(fallback), redactor));
    let dispatch = tracing::Dispatch::new(layers);
    let log = |times: u64, message: &'static str| {
        let (dispatch, (done, ended)) = (dispatch.clone(), mpsc::channel());
        std::thread::spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                (0..times).for_each(|_| tracing::warn!("{message}"));
            });
            let _ = done.send(());
        });
        // Blocking on each line would take longer; blocking on the pipe would take for ever.
        ended.recv_timeout(Duration::from_secs(10)).expect("blocked");
    };
    log(LINES, "stuck");
    let dropped = lost();
    assert!(dropped > 0 && dropped < LINES, "{dropped}");

    // With room on standard error nothing more is lost.
    let mut dots = vec![0; room];
    reader.read_exact(&mut dots).unwrap();
    log(1, "fallback");
    let mut line = [0; 14];
    reader.read_exact(&mut line).unwrap();
    assert_eq!((&line, lost()), (b"WARN fallback\n", dropped));

    // journald reads again: the loss is reported once.
    for _ in 0..LINES - dropped {
        assert_eq!(listener.entry()["MESSAGE"], "stuck");
    }
    log(2, "well");
    assert_eq!(listener.entry()["MESSAGE"], "well");
    let report = listener.entry();
    assert_eq!(
        (&*report["HERMES_COUNT"], &*report["PRIORITY"]),
        (&*dropped.to_string(), "4")
    );
    assert_eq!(listener.entry()["MESSAGE"], "well");
    assert_eq!(lost(), dropped);
}
