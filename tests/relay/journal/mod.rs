//! The journal from outside: what is held, in which order, and what survives.

mod contents;
mod files;

use crate::support::wait::SOON;
use hermes_relay::store::{
    ChatRow, Command, Completion, InboxKind, Journal, JournalSettings, KeyHash, NewOp, Opened,
};
use std::fs;
use std::path::Path;
use tokio::time::timeout;

pub(crate) const NOW: i64 = 1_790_000_000_000;

pub(crate) fn accept(token: u64, session: &str, key: Option<&str>, start: bool) -> Command {
    Command::Accept {
        token,
        kind: InboxKind::Inbound,
        session: session.into(),
        dedupe: key.map(|key| KeyHash::Blake2s.key(&["discord", "chat", key])),
        buffer_id: Some(format!("buffer-{token}")),
        line: format!("line {token}").into_bytes().into(),
        start,
        repeatable: false,
        now_ms: NOW,
    }
}

pub(crate) fn op(text: &str) -> NewOp {
    NewOp {
        session: "s".into(),
        chat: "c".into(),
        op: text.as_bytes().to_vec(),
    }
}

pub(crate) fn chat() -> ChatRow {
    ChatRow {
        platform: "discord".into(),
        chat_id: "c".into(),
        memory: b"{\"scope\":1}".to_vec(),
        last_used: NOW,
    }
}

pub(crate) fn open(dir: &Path) -> Opened {
    Journal::open(dir, JournalSettings::default(), NOW).unwrap()
}

pub(crate) async fn next(opened: &mut Opened) -> Vec<Completion> {
    timeout(SOON, opened.batches.recv())
        .await
        .expect("a batch in time")
        .unwrap()
        .completions
}

/// Asks and waits for as many completions as there are commands that have one.
pub(crate) async fn ask(opened: &mut Opened, writes: Vec<Command>, completions: usize) -> Vec<Completion> {
    opened.journal.submit(writes).await.unwrap();
    let mut done = Vec::new();
    while done.len() < completions {
        done.extend(next(opened).await);
    }
    assert_eq!(done.len(), completions, "{done:?}");
    done
}

pub(crate) fn copy(from: &Path, to: &Path) {
    for name in ["journal.db", "journal.db-wal"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}
