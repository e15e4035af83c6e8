//! How fast the journal takes messages. Prints rates; run with `--ignored --nocapture`.

use hermes_relay::store::{
    Command, Completion, Durability, InboxKind, Journal, JournalSettings, KeyHash, NewOp, NewOps, RowState,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: i64 = 1_790_000_000_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Accepts, ends and settles `rows` messages with `window` of them under way.
async fn drain(settings: JournalSettings, rows: u64, window: u64, sessions: u64, answer: bool) {
    let parent = std::env::var("JOURNAL_DIR").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").into());
    let dir = tempfile::tempdir_in(parent).unwrap();
    let mut opened = Journal::open(dir.path(), settings.clone(), NOW).unwrap();
    let names: Vec<Arc<str>> = (0..sessions)
        .map(|n| format!("agent:main:discord:group:11000000000{n:06}:220000000{n:06}").into())
        .collect();
    let line = Arc::<[u8]>::from(vec![b'x'; 400]);
    let accept = |n: u64| Command::Accept {
        token: n,
        kind: InboxKind::Inbound,
        session: Arc::clone(&names[usize::try_from(n * 7919 % sessions).unwrap()]),
        dedupe: Some(KeyHash::Blake2s.key(&["discord", &n.to_string()])),
        buffer_id: Some(format!("buffer-{n}")),
        line: Arc::clone(&line),
        start: true,
        repeatable: false,
        now_ms: NOW,
    };
    let (mut sent, mut ended, mut batches) = (0, 0, 0);
    let (mut slowest, mut mark, mut marked) = (Duration::ZERO, Instant::now(), 0);
    let begun = Instant::now();
    opened
        .journal
        .submit((0..window.min(rows)).map(accept).collect())
        .await
        .unwrap();
    sent += window.min(rows);
    while ended < rows {
        let waited = Instant::now();
        let batch = opened.batches.recv().await.unwrap();
        slowest = slowest.max(waited.elapsed());
        batches += 1;
        let mut next = Vec::with_capacity(batch.completions.len() * 2);
        for done in batch.completions {
            match done {
                Completion::Accepted { seq, token, .. } => {
                    let name = &names[usize::try_from(token * 7919 % sessions).unwrap()];
                    let ops = if answer {
                        smallvec::smallvec![NewOp {
                            session: Arc::clone(name),
                            chat: "c".into(),
                            op: line.to_vec(),
                        }]
                    } else {
                        NewOps::new()
                    };
                    next.push(Command::End {
                        seq,
                        state: RowState::Done,
                        ops,
                        now_ms: NOW,
                    });
                    // The connector sends on as soon as it has the acknowledgement.
                    if sent < rows {
                        next.push(accept(sent));
                        sent += 1;
                    }
                }
                Completion::Ended { ops, .. } => {
                    ended += 1;
                    for op in ops.iter() {
                        next.push(Command::OpSent { op });
                        next.push(Command::OpSettled { op });
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        opened.journal.submit(next).await.unwrap();
        if ended - marked >= rows / 4 {
            println!(
                "  {ended:>8}: {:>8.0}/s  slowest batch {slowest:?}  db {} KiB  wal {} KiB",
                as_f64(ended - marked) / mark.elapsed().as_secs_f64(),
                size(dir.path(), "journal.db"),
                size(dir.path(), "journal.db-wal"),
            );
            (slowest, mark, marked) = (Duration::ZERO, Instant::now(), ended);
        }
    }
    println!(
        "{:?} window {window} answer {answer}: {:.0} messages/s, {batches} batches, resident {} KiB",
        settings.durability,
        as_f64(rows) / begun.elapsed().as_secs_f64(),
        resident_kib(),
    );
    drop(opened.batches);
    opened.journal.close().await.unwrap();
    let again = Instant::now();
    let opened = Journal::open(dir.path(), settings, NOW).unwrap();
    println!("reopened in {:?}", again.elapsed());
    drop(opened.batches);
    opened.journal.close().await.unwrap();
}

#[expect(clippy::cast_precision_loss, reason = "only printed")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

fn size(dir: &std::path::Path, name: &str) -> u64 {
    std::fs::metadata(dir.join(name)).map_or(0, |data| data.len() >> 10)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a check"]
async fn how_fast_messages_are_held() {
    let rows = number("JOURNAL_ROWS", 200_000);
    let window = number("JOURNAL_WINDOW", 256);
    let sessions = number("JOURNAL_SESSIONS", 1000);
    let answer = number("JOURNAL_ANSWER", 0) == 1;
    let durability = if number("JOURNAL_FULL", 1) == 1 {
        Durability::Full
    } else {
        Durability::Process
    };
    drain(
        JournalSettings {
            durability,
            ..JournalSettings::default()
        },
        rows,
        window,
        sessions,
        answer,
    )
    .await;
}
