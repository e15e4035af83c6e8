//! The wire on file: one JSON object per line, in the order that the connector saw them.
//!
//! The first line identifies the file. Every other one is a frame: `t` in seconds since the start, `to` whom it
//! went, and `frame`, or `raw` when it was no JSON. Bearers travel beside the frames and are never here; secrets
//! that the connector knows are blanked everywhere. The file is the owner's alone and never overwrites
//! another.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connector::Connector;
use super::record::Direction;
use super::state::{ConnectorState, Hub};

/// Bytes after which nothing more is written, and which are read at most.
const LARGEST: u64 = 256 * 1024 * 1024;
/// Frames per write.
const AT_ONCE: usize = 1_000;
/// What the first line calls the file.
const KIND: &str = "hermes-relay";
const BLANK: &str = "[redacted]";
/// Headers of a forwarded request that prove who someone is.
const TELLING: [&str; 4] = ["authorization", "cookie", "x-signature", "x-hub-signature"];

/// A recording in progress. Dropping it ends the file at whatever was written.
#[derive(Debug)]
pub struct Recording {
    stop: CancellationToken,
    task: JoinHandle<io::Result<u64>>,
}

impl Recording {
    /// Writes what is left, and returns the number of frames.
    pub async fn finish(self) -> io::Result<u64> {
        self.stop.cancel();
        self.task.await.map_err(io::Error::other)?
    }
}

impl Connector {
    /// Writes every further frame to a new file. What is longer than 256 MiB is left out.
    pub async fn record(&self, file: &Path, platform: &str) -> io::Result<Recording> {
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(file)
            .await?;
        let stop = self.hub.stop.child_token();
        let head = head(platform);
        let task = tokio::spawn(write(Arc::clone(&self.hub), file, head, stop.clone()));
        Ok(Recording { stop, task })
    }
}

/// The first line of a file.
pub(super) fn head(platform: &str) -> String {
    let head = json!({ "trace": KIND, "version": 1, "platform": platform });
    format!("{head}\n")
}

async fn write(hub: Arc<Hub>, mut file: File, head: String, stop: CancellationToken) -> io::Result<u64> {
    let (mut seen, mut written) = (0_u64, 0_u64);
    let mut room = LARGEST;
    let mut text = head;
    loop {
        let mut changed = std::pin::pin!(hub.changed.notified());
        changed.as_mut().enable();
        let ending = stop.is_cancelled();
        loop {
            let taken = take(&hub.lock(), &mut seen, &mut text);
            let length = text.len() as u64;
            if length > room {
                text = format!("{}\n", json!({ "full": true }));
                room = 0;
            } else {
                room -= length;
                written += taken;
            }
            file.write_all(text.as_bytes()).await?;
            text.clear();
            if room == 0 {
                file.flush().await?;
                stop.cancelled().await;
                return Ok(written);
            }
            if taken == 0 {
                break;
            }
        }
        file.flush().await?;
        if ending {
            return Ok(written);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = changed => {}
        }
    }
}

/// Puts the next frames on `text`; returns how many.
pub(super) fn take(state: &ConnectorState, seen: &mut u64, text: &mut String) -> u64 {
    let begin = state.frames.begin(*seen);
    if begin > *seen {
        let _ = writeln!(text, "{}", json!({ "lost": begin - *seen }));
    }
    let secrets: Vec<&str> = state
        .gateways
        .values()
        .flat_map(|gateway| gateway.secrets.iter().map(secrecy::SecretString::expose_secret))
        .collect();
    let mut taken = 0;
    for record in state.frames.since(begin).take(AT_ONCE) {
        let mut line = json!({
            "t": state.feed.since_start(record.at).as_secs_f64(),
            "to": match record.direction {
                Direction::ToGateway => "relay",
                Direction::FromGateway => "connector",
            },
        });
        match record.json() {
            Value::Object(frame) => {
                let mut frame = Value::Object(frame.clone());
                blank_headers(&mut frame);
                line["frame"] = frame;
            }
            _ => line["raw"] = record.text().into(),
        }
        let mut line = line.to_string();
        for secret in &secrets {
            if line.contains(secret) {
                line = line.replace(secret, BLANK);
            }
        }
        *text += &line;
        text.push('\n');
        taken += 1;
    }
    *seen = begin + taken;
    taken
}

fn blank_headers(frame: &mut Value) {
    let headers = frame
        .pointer_mut("/forward/headers")
        .and_then(Value::as_array_mut);
    for header in headers.into_iter().flatten() {
        let name = header[0].as_str().unwrap_or_default().to_ascii_lowercase();
        if TELLING.iter().any(|telling| name.starts_with(telling)) && header.get(1).is_some() {
            header[1] = BLANK.into();
        }
    }
}

/// Why a file is no recording.
#[derive(Debug, thiserror::Error)]
pub enum BadTrace {
    /// It cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is too large.
    #[error("the file is larger than 256 MiB")]
    TooLarge,
    /// It is something else.
    #[error("the file is not a recording: its first line does not say so")]
    NotOne,
    /// It is from another version.
    #[error("the recording is of version {0}, and only version 1 is known")]
    Version(u64),
    /// A line is broken.
    #[error("line {0} of the recording is not a frame")]
    Line(usize),
    /// Nothing in it can be replayed.
    #[error("the recording holds no message to the relay")]
    Empty,
}

/// What was sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Traced {
    /// A frame.
    Frame(Value),
    /// Something that is none.
    Raw(String),
}

/// One line of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceLine {
    /// When, since the start.
    pub at: Duration,
    /// Which way it went.
    pub direction: Direction,
    /// What it was.
    pub content: Traced,
}

/// A recording, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The platform that was played.
    pub platform: String,
    /// The frames, in order.
    pub lines: Vec<TraceLine>,
}

impl Trace {
    /// Reads a file.
    pub fn open(file: &Path) -> Result<Self, BadTrace> {
        if std::fs::metadata(file)?.len() > LARGEST {
            return Err(BadTrace::TooLarge);
        }
        Self::parse(&String::from_utf8_lossy(&std::fs::read(file)?))
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self, BadTrace> {
        let mut lines = text.lines().enumerate();
        let head = lines.next().and_then(|(_, line)| serde_json::from_str(line).ok());
        let head: Value = head.unwrap_or_default();
        if head["trace"] != KIND {
            return Err(BadTrace::NotOne);
        }
        match head["version"].as_u64() {
            Some(1) => {}
            version => return Err(BadTrace::Version(version.unwrap_or_default())),
        }
        let mut trace = Self {
            platform: head["platform"].as_str().unwrap_or("discord").to_owned(),
            lines: Vec::new(),
        };
        for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let mut line: Value = serde_json::from_str(line).map_err(|_| BadTrace::Line(index + 1))?;
            if line.get("lost").is_some() || line.get("full").is_some() {
                continue;
            }
            trace
                .lines
                .push(read(&mut line).ok_or(BadTrace::Line(index + 1))?);
        }
        let any = |line: &TraceLine| line.direction == Direction::ToGateway;
        if trace.lines.iter().any(any) {
            Ok(trace)
        } else {
            Err(BadTrace::Empty)
        }
    }
}

fn read(line: &mut Value) -> Option<TraceLine> {
    let seconds = line["t"].as_f64()?;
    Some(TraceLine {
        at: Duration::try_from_secs_f64(seconds).ok()?,
        direction: match line["to"].as_str()? {
            "relay" => Direction::ToGateway,
            "connector" => Direction::FromGateway,
            _ => return None,
        },
        content: match (line["frame"].take(), line["raw"].take()) {
            (frame @ Value::Object(_), _) => Traced::Frame(frame),
            (_, Value::String(raw)) => Traced::Raw(raw),
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::{ConnectorSettings, text_event};

    #[test]
    fn a_bad_file_says_what_is_wrong_with_it() {
        let head = r#"{"trace":"hermes-relay","version":1,"platform":"slack"}"#;
        let bad = |text: &str| Trace::parse(text).unwrap_err().to_string();
        assert!(bad("").contains("not a recording"));
        assert!(bad("{\"hello\":1}\n").contains("not a recording"));
        assert!(bad(&head.replace('1', "2")).contains("version 2"));
        assert!(bad(&format!("{head}\n")).contains("no message"));
        for line in [
            "{",
            "7",
            "{}",
            r#"{"t":-1,"to":"relay","frame":{}}"#,
            r#"{"t":1,"to":"moon","frame":{}}"#,
        ] {
            assert!(bad(&format!("{head}\n\n{line}\n")).contains("line 3"), "{line}");
        }
        let good = format!(
            "{head}\n{{\"lost\":2}}\n{}\n",
            r#"{"t":1.5,"to":"relay","raw":"x"}"#
        );
        let trace = Trace::parse(&good).unwrap();
        assert_eq!(
            (trace.platform.as_str(), &trace.lines[0].content),
            ("slack", &Traced::Raw("x".to_owned()))
        );
    }

    #[tokio::test]
    async fn a_recording_holds_every_frame_and_no_secret() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wire.jsonl");
        let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
        let recording = connector.record(&file, "discord").await.unwrap();
        let secret = connector.credentials().unwrap().secret.expose_secret().to_owned();
        let sent =
            json!({ "type": "inbound", "event": text_event("discord", "c", "m1", &format!("my {secret}")) });
        let forward = json!({
            "type": "passthrough_forward",
            "forward": { "headers": [["Authorization", "Bot hush"], ["x-signature-ed25519", "hush"], ["x", "kept"]] },
        });
        connector.hub.change(|state| {
            for text in [sent.to_string(), forward.to_string(), "{poison".to_owned()] {
                let id = super::super::record::ConnectionId(1);
                state.record(id, Direction::ToGateway, text.into());
            }
        });
        assert_eq!(recording.finish().await.unwrap(), 3);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains(&secret) && !text.contains("hush") && text.contains("kept"));
        let trace = Trace::open(&file).unwrap();
        assert_eq!(trace.lines.len(), 3);
        assert_eq!(trace.lines[2].content, Traced::Raw("{poison".to_owned()));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = connector.record(&file, "discord").await.unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
