//! Reads: rows of the inbox and the outbox, in order and bounded, and what is recovered when the journal opens.

use super::access::{self, AccessRow, UsageRow};
use super::apply::NextIds;
use super::chats;
use super::command::{Command, FailurePolicy};
use super::completion::{ChatRow, Completion, InboxKind, InboxRow, OpRow, OpState, RowState, WaitingRow};
use super::completion::{InboxSeq, OpSeq};
use super::cron;
use super::days::Calendar;
use super::dedupe::{DedupeKey, KEY_HASH, KeyHash, RecentKeys, TELEGRAM_BOT};
use super::finished;
use super::handed::{self, HandedCommand, HandedReply};
use super::journal::JournalSettings;
use super::log::Overlay;
use super::retention::{Quarantine, ResumeStates};
use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};
use smol_str::SmolStr;
use std::sync::Arc;

/// The newest op, delivered ones aside. Ops that were dropped keep their row ids, so that they can be retried.
const NEWEST_OP: &str =
    "SELECT max((SELECT ifnull(max(seq), 0) FROM outbox), (SELECT ifnull(max(seq), 0) FROM dropped))";

/// Maximum bytes of lines or ops in one completion; at least one row is always returned.
const ANSWER_BYTES: usize = 4 << 20;

const INBOX: &str =
    "seq, kind, session, buffer_id, state, attempt, received_at, started_at, line, shown, repeatable";

/// Whether [`answer`] has a completion for the command.
pub(super) fn answers(command: &Command) -> bool {
    command.failure_policy() == FailurePolicy::Read
}

/// The completion of a command that only reads; `None` for any other.
pub(super) fn answer(db: &Connection, overlay: &Overlay, command: &Command) -> Result<Option<Completion>> {
    Ok(Some(match command {
        Command::Load { seq } => {
            if let Some(row) = overlay.row(*seq) {
                return Ok(Some(Completion::Loaded(Box::new(row.clone()))));
            }
            let row = message(db, *seq)?;
            row.map_or(Completion::Missing { seq: *seq }, |row| {
                Completion::Loaded(Box::new(row))
            })
        }
        Command::NextQueued {
            token,
            session,
            after,
            limit,
            behind,
        } => {
            let mut rows = queued(db, session, *after, *limit)?;
            let size = |row: &InboxRow| row.line.as_ref().map_or(0, |line| line.len());
            append_newer(&mut rows, overlay.queued(session, *after), *limit, size);
            let last = rows.last().map_or(*after, |row| row.seq);
            let mut more = queued_after(db, session, last, *behind)?;
            more.extend(overlay.queued(session, last).iter().map(|row| row.seq));
            more.truncate(*behind as usize);
            Completion::Queued {
                token: *token,
                rows,
                more,
            }
        }
        Command::NextWaiting { token, after, limit } => Completion::Waiting {
            token: *token,
            rows: {
                let mut rows = waiting(db, *after, *limit)?;
                let newer = overlay.waiting(*after);
                append_newer(&mut rows, newer.iter().collect(), *limit, |_| 0);
                rows
            },
        },
        Command::NextOps { token, after, limit } => Completion::Ops {
            token: *token,
            ops: {
                let mut rows = ops(db, *after, *limit)?;
                append_newer(&mut rows, overlay.ops(*after), *limit, |row| row.op.len());
                rows
            },
        },
        Command::Cron { token, command } if command.only_reads() => Completion::Cron {
            token: *token,
            reply: cron::apply(db, command)?,
        },
        Command::Handed { token, command } if **command == HandedCommand::Contexts => Completion::Handed {
            token: *token,
            reply: HandedReply::Contexts(handed::contexts(db)?),
        },
        Command::LoadResume { token, session } => Completion::Resume {
            token: *token,
            blob: resume(db, session)?,
        },
        Command::FindResume { token, texts } => {
            let sql = "SELECT EXISTS (SELECT 1 FROM resume WHERE instr(blob, ?1) > 0)";
            let mut find = db.prepare_cached(sql)?;
            let found = texts
                .iter()
                .map(|text| find.query_row([text.as_bytes()], |row| row.get(0)));
            Completion::Found {
                token: *token,
                found: found.collect::<Result<_>>()?,
            }
        }
        _ => return Ok(None),
    }))
}

/// One message.
pub(super) fn message(db: &Connection, seq: InboxSeq) -> Result<Option<InboxRow>> {
    let mut load = db.prepare_cached(&format!("SELECT {INBOX} FROM inbox WHERE seq = ?1"))?;
    load.query_row([seq.0], inbox_row).optional()
}

/// One unsettled op.
pub(super) fn op(db: &Connection, seq: OpSeq) -> Result<Option<OpRow>> {
    let next = ops(db, OpSeq(seq.0 - 1), 1)?;
    Ok(next.into_iter().find(|row| row.seq == seq))
}

/// Adds rows that are newer than all of the table's, if the page has all of those, within the page's bounds.
fn append_newer<T: Clone>(page: &mut Vec<T>, newer: Vec<&T>, limit: u32, size: impl Fn(&T) -> usize) {
    let mut bytes: usize = page.iter().map(&size).sum();
    for row in newer {
        if bytes >= ANSWER_BYTES || page.len() >= limit as usize {
            return;
        }
        bytes += size(row);
        page.push(row.clone());
    }
}

/// Waiting messages after this one, in order: along the table, of which few rows do not wait.
fn waiting(db: &Connection, after: InboxSeq, limit: u32) -> Result<Vec<WaitingRow>> {
    let mut find = db.prepare_cached(
        "SELECT seq, session FROM inbox NOT INDEXED WHERE seq > ?1 AND state = 0 ORDER BY seq LIMIT ?2",
    )?;
    let rows = find.query_map(params![after.0, limit], |row| {
        Ok(WaitingRow {
            seq: InboxSeq(row.get(0)?),
            session: text(row, 1)?,
        })
    })?;
    rows.collect()
}

fn count_waiting(db: &Connection) -> Result<u64> {
    let count = db.query_row(
        "SELECT count(*) FROM inbox INDEXED BY inbox_queued WHERE state = 0",
        [],
        |row| row.get::<_, i64>(0),
    )?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Messages that were running, oldest first; beyond the byte limit without their line.
pub(super) fn running(db: &Connection, limit: u32) -> Result<Vec<InboxRow>> {
    let sql =
        format!("SELECT {INBOX} FROM inbox INDEXED BY inbox_running WHERE state = 1 ORDER BY seq LIMIT ?1");
    let mut find = db.prepare_cached(&sql)?;
    let mut bytes = 0;
    let rows = find.query_map([limit], |row| {
        let mut row = inbox_row(row)?;
        bytes += row.line.as_ref().map_or(0, |line| line.len());
        if bytes > ANSWER_BYTES {
            row.line = None;
        }
        Ok(row)
    })?;
    rows.collect()
}

/// Unsettled ops after this one, in order.
pub(super) fn ops(db: &Connection, after: OpSeq, limit: u32) -> Result<Vec<OpRow>> {
    let sql = "SELECT seq, session, chat, op, inbox_seq, state, created_at FROM outbox
               WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    bounded(db, sql, params![after.0, limit], op_row, |row| row.op.len())
}

fn queued(db: &Connection, session: &str, after: InboxSeq, limit: u32) -> Result<Vec<InboxRow>> {
    let sql = format!(
        "SELECT {INBOX} FROM inbox INDEXED BY inbox_queued
         WHERE state = 0 AND session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
    );
    let size = |row: &InboxRow| row.line.as_ref().map_or(0, |line| line.len());
    bounded(db, &sql, params![session, after.0, limit], inbox_row, size)
}

fn queued_after(db: &Connection, session: &str, after: InboxSeq, limit: u32) -> Result<Vec<InboxSeq>> {
    let sql = "SELECT seq FROM inbox INDEXED BY inbox_queued WHERE state = 0 AND session = ?1 AND seq > ?2 \
         ORDER BY seq LIMIT ?3";
    let mut read = db.prepare_cached(sql)?;
    let rows = read.query_map(params![session, after.0, limit], |row| Ok(InboxSeq(row.get(0)?)))?;
    rows.collect()
}

fn bounded<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T>,
    size: impl Fn(&T) -> usize,
) -> Result<Vec<T>> {
    let mut find = db.prepare_cached(sql)?;
    let mut rows = find.query(params)?;
    let (mut all, mut bytes) = (Vec::new(), 0);
    while bytes < ANSWER_BYTES
        && let Some(row) = rows.next()?
    {
        let row = read(row)?;
        bytes += size(&row);
        all.push(row);
    }
    Ok(all)
}

fn inbox_row(row: &Row<'_>) -> Result<InboxRow> {
    Ok(InboxRow {
        seq: InboxSeq(row.get(0)?),
        kind: InboxKind::from_code(row.get(1)?),
        session: text(row, 2)?,
        buffer_id: row.get::<_, Option<String>>(3)?.map(SmolStr::from),
        state: RowState::from_code(row.get(4)?),
        attempt: row.get(5)?,
        received_at: row.get(6)?,
        started_at: row.get(7)?,
        line: row.get(8)?,
        shown: row.get(9)?,
        repeatable: row.get(10)?,
    })
}

fn op_row(row: &Row<'_>) -> Result<OpRow> {
    Ok(OpRow {
        seq: OpSeq(row.get(0)?),
        session: text(row, 1)?,
        chat: text(row, 2)?,
        op: row.get(3)?,
        inbox: row.get::<_, Option<i64>>(4)?.map(InboxSeq),
        state: OpState::from_code(row.get(5)?),
        created_at: row.get(6)?,
    })
}

/// A text column as a shared string.
pub(super) fn text(row: &Row<'_>, column: usize) -> Result<Arc<str>> {
    row.get(column)
}

/// Unfinished work of earlier runs.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Number of waiting messages; read them with [`Command::NextWaiting`](super::Command::NextWaiting).
    pub waiting: u64,
    /// Messages whose turn was running, oldest first, at most `recover_rows`; beyond 4 MiB without their line, which
    /// [`Command::Load`](super::Command::Load) reads.
    pub running: Vec<InboxRow>,
    /// Unsettled ops in order, at most `recover_rows` and about 4 MiB. Read on with
    /// [`Command::NextOps`](super::Command::NextOps) after the last until there are none.
    pub ops: Vec<OpRow>,
    /// Known chats, the most recently used first, at most `chat_memory`.
    pub chats: Vec<ChatRow>,
    /// All rules of who may drive an agent.
    pub access: Vec<AccessRow>,
    /// What people used on the last day that anybody used anything.
    pub usage: Vec<UsageRow>,
    /// What was kept under [`LEFT_QUESTIONS`].
    pub questions: Option<Vec<u8>>,
    /// The interrupted messages among those kept under [`INTERRUPTED_ROWS`], about 4 MiB of them; `None` if nothing was kept.
    pub interrupted: Option<Vec<InboxRow>>,
    /// Everything kept under a name that ends with [`QUIET_HOURS`], by that name; `None` if there is too much to list it.
    pub quiet_people: Option<Vec<Arc<str>>>,
    /// How it makes the keys of messages.
    pub key_hash: KeyHash,
    /// The first [`JournalSettings::telegram_bot`] that it was opened with: keys of messages to that one do not name it.
    pub telegram_bot: i64,
}

/// Where the questions that are shown are kept, among what sessions resume with.
pub const LEFT_QUESTIONS: &str = "#questions";

/// Where the row ids of the messages whose turns a shutdown interrupted are kept, as a JSON list, among what sessions resume with.
pub const INTERRUPTED_ROWS: &str = "#interrupted";

/// How the names end under which the quiet hours of people are kept, among what sessions resume with.
pub const QUIET_HOURS: &str = "#quiet";

/// Maximum people with quiet hours that are listed when the journal opens.
const MAX_QUIET_PEOPLE: u32 = if cfg!(test) { 8 } else { 10_000 };

/// The state that the writer continues from.
pub(super) struct WriterState {
    pub(super) recent: RecentKeys,
    pub(super) quarantine: Quarantine,
    pub(super) resume: ResumeStates,
    pub(super) calendar: Option<Calendar>,
    pub(super) counters: NextIds,
}

pub(super) fn recover(db: &Connection, settings: &JournalSettings) -> Result<(Recovered, WriterState)> {
    let rows = settings.recover_rows;
    let recovered = Recovered {
        waiting: count_waiting(db)?,
        running: running(db, rows)?,
        ops: ops(db, OpSeq(0), rows)?,
        chats: chats::newest(db, settings.chat_memory)?,
        access: access::rows(db)?,
        usage: access::latest_usage(db)?,
        questions: resume(db, LEFT_QUESTIONS)?,
        interrupted: interrupted(db)?,
        quiet_people: quiet_people(db)?,
        key_hash: db
            .query_row("SELECT value FROM meta WHERE name = ?1", [KEY_HASH], |row| {
                row.get(0)
            })
            .optional()?
            .unwrap_or_default(),
        telegram_bot: telegram_bot(db, settings.telegram_bot)?,
    };
    let writer_state = WriterState {
        recent: recent(db)?,
        quarantine: Quarantine::measure(db, settings)?,
        resume: ResumeStates::measure(db, settings)?,
        calendar: calendar(db)?,
        counters: NextIds {
            // An unsettled op names the message that it answers, even if that message is no longer stored.
            inbox: 1 + db.query_row(
                "SELECT max((SELECT ifnull(max(seq), 0) FROM inbox), (SELECT ifnull(max(seq), 0) FROM done),
                    (SELECT ifnull(max(inbox_seq), 0) FROM outbox), ?1)",
                [finished::newest(db)?],
                |row| row.get::<_, i64>(0),
            )?,
            op: 1 + db.query_row(NEWEST_OP, [], |row| row.get::<_, i64>(0))?,
        },
    };
    Ok((recovered, writer_state))
}

/// The first Telegram bot of the journal, which is noted if this is the first time.
fn telegram_bot(db: &Connection, now: i64) -> Result<i64> {
    let noted = db
        .query_row("SELECT value FROM meta WHERE name = ?1", [TELEGRAM_BOT], |row| {
            row.get(0)
        })
        .optional()?;
    if let Some(noted) = noted {
        return Ok(noted);
    }
    let note = params![TELEGRAM_BOT, now];
    db.execute("INSERT INTO meta (name, value) VALUES (?1, ?2)", note)?;
    Ok(now)
}

/// What a session resumes with.
fn resume(db: &Connection, session: &str) -> Result<Option<Vec<u8>>> {
    db.prepare_cached("SELECT blob FROM resume WHERE session = ?1")?
        .query_row([session], |row| row.get(0))
        .optional()
}

/// The messages whose turns the last shutdown interrupted, unless somebody had them run again.
fn interrupted(db: &Connection) -> Result<Option<Vec<InboxRow>>> {
    let Some(kept) = resume(db, INTERRUPTED_ROWS)? else {
        return Ok(None);
    };
    let seqs: Vec<i64> = serde_json::from_slice(&kept).unwrap_or_default();
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for seq in seqs {
        let row = message(db, InboxSeq(seq))?.filter(|row| row.state == RowState::Interrupted);
        if let Some(row) = row.filter(|_| bytes < ANSWER_BYTES) {
            bytes += row.line.as_ref().map_or(0, |line| line.len());
            rows.push(row);
        }
    }
    Ok(Some(rows))
}

/// Who has quiet hours, unless they are too many.
fn quiet_people(db: &Connection) -> Result<Option<Vec<Arc<str>>>> {
    // As bytes: as a text it would end at a NUL.
    let sql = "SELECT session FROM resume WHERE substr(CAST(session AS BLOB), -length(?1)) = ?1 LIMIT ?2";
    let (end, most) = (QUIET_HOURS.as_bytes(), MAX_QUIET_PEOPLE + 1);
    let mut find = db.prepare(sql)?;
    let people = find.query_map(params![end, most], |row| text(row, 0))?;
    let people: Vec<_> = people.collect::<Result<_>>()?;
    Ok((people.len() <= MAX_QUIET_PEOPLE as usize).then_some(people))
}

/// The calendar as it was noted last.
fn calendar(db: &Connection) -> Result<Option<Calendar>> {
    let noted = |name: &str| {
        db.prepare_cached("SELECT value FROM meta WHERE name = ?1")?
            .query_row([name], |row| row.get::<_, i64>(0))
            .optional()
    };
    let noted = noted("day")?.zip(noted("wall_day")?);
    Ok(noted.map(|(day, wall_day)| Calendar::restore(day, wall_day)))
}

/// The row id up to which every dedupe key is in the index.
pub(super) fn indexed_upto(db: &Connection) -> Result<i64> {
    let found = db
        .prepare_cached("SELECT value FROM meta WHERE name = 'indexed_upto'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn recent(db: &Connection) -> Result<RecentKeys> {
    let mut recent = RecentKeys::default();
    let mut find = db.prepare(
        "SELECT dedupe, seq FROM inbox WHERE seq > ?1 AND dedupe IS NOT NULL
         UNION ALL SELECT dedupe, seq FROM done WHERE seq > ?1 AND dedupe IS NOT NULL",
    )?;
    let mut rows = find.query([indexed_upto(db)?])?;
    while let Some(row) = rows.next()? {
        recent.restore(DedupeKey::from_bytes(row.get(0)?), InboxSeq(row.get(1)?));
    }
    finished::kept_keys(db, |key, seq| recent.restore(key, seq))?;
    Ok(recent)
}
