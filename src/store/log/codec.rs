//! A batch of commands as bytes: a version, the next row ids, then one command after the other.
//!
//! Numbers are variable-length (seven bits a byte, the lowest first; signed ones zigzag), texts and bytes have their length in
//! front. Only what has an effect is written: no duplicates and no reads. Tokens are not written.

use super::super::access::{AccessRow, UsageRow};
use super::super::apply::NextIds;
use super::super::command::Command;
use super::super::completion::{ChatRow, InboxKind, InboxSeq, NewOp, NewOps, OpSeq, RowState};
use super::super::dedupe::DedupeKey;
use super::super::handed::{HandedBody, HandedCommand, NewHandedItem};
use super::super::inspect::Item;
use super::super::repair::Repair;
use super::super::varint;
use std::sync::Arc;

/// The version of the format. A reader refuses any other.
const VERSION: u8 = 1;

/// Why a batch cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// It is of another version.
    #[error("the journal's log has format {0}, which this version does not know")]
    Version(u8),
    /// It has a command of another version.
    #[error("the journal's log has command {0}, which this version does not know")]
    UnknownCommand(u8),
    /// It ends early, or holds a value that does not exist.
    #[error("the journal's log is damaged")]
    Damaged,
}

impl BatchError {
    /// The same as an error of the database.
    pub(in crate::store) fn into_sql(self) -> rusqlite::Error {
        match self {
            Self::Version(_) | Self::UnknownCommand(_) => {
                rusqlite::Error::ToSqlConversionFailure(Box::new(self))
            }
            Self::Damaged => {
                let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
                rusqlite::Error::SqliteFailure(corrupt, Some(self.to_string()))
            }
        }
    }
}

/// The kinds of commands, as they are written.
mod tag {
    pub(super) const ACCEPT: u8 = 1;
    pub(super) const IGNORE: u8 = 2;
    pub(super) const START: u8 = 3;
    pub(super) const END: u8 = 4;
    pub(super) const ADD_OPS: u8 = 5;
    pub(super) const OP_SENT: u8 = 6;
    pub(super) const OP_CHANGED: u8 = 7;
    pub(super) const OP_SETTLED: u8 = 8;
    pub(super) const REMEMBER_CHAT: u8 = 9;
    pub(super) const ADD_USAGE: u8 = 10;
    pub(super) const SET_SHOWN: u8 = 11;
    // What follows is about the tables: it is in the stream of a cluster, and never in the log.
    pub(super) const SET_ACCESS: u8 = 12;
    pub(super) const TAKE_CONTEXT: u8 = 13;
    pub(super) const TAKE_TURN: u8 = 14;
    pub(super) const CONTEXT_TAKEN: u8 = 15;
    pub(super) const PUT_BACK: u8 = 16;
    pub(super) const QUARANTINE: u8 = 17;
    pub(super) const SET_RESUME: u8 = 18;
    pub(super) const DROP_RESUME: u8 = 19;
    pub(super) const REPAIR: u8 = 20;
    pub(super) const OP_DROPPED: u8 = 21;
    // These are in the log, too.
    pub(super) const START_REPEATABLE: u8 = 22;
    pub(super) const SET_REPEATABLE: u8 = 23;
    pub(super) const SET_LINE: u8 = 24;
}

/// Writes a batch. It is used again for the next one, so that its memory is.
#[derive(Debug, Default)]
pub struct LogWriter {
    bytes: Vec<u8>,
    is_empty: bool,
}

impl LogWriter {
    /// Begins a batch whose first new row has these ids.
    pub(in crate::store) fn begin(&mut self, ids: NextIds) {
        self.bytes.clear();
        self.bytes.push(VERSION);
        self.signed(ids.inbox);
        self.signed(ids.op);
        self.is_empty = true;
    }

    /// The batch, if anything is in it.
    pub(in crate::store) fn bytes(&self) -> Option<&[u8]> {
        (!self.is_empty).then_some(&self.bytes[..])
    }

    /// Adds a command; nothing if the log does not know such commands.
    pub(in crate::store) fn push(&mut self, command: &Command) {
        match command {
            Command::Accept {
                kind,
                session,
                dedupe,
                buffer_id,
                line,
                start,
                repeatable,
                now_ms,
                ..
            } => {
                self.message(
                    tag::ACCEPT,
                    *kind,
                    session,
                    *dedupe,
                    buffer_id.as_deref(),
                    *now_ms,
                );
                self.bytes.push(u8::from(*start) | u8::from(*repeatable) << 1);
                self.blob(line);
            }
            Command::Ignore {
                kind,
                session,
                dedupe,
                buffer_id,
                now_ms,
                ..
            } => self.message(
                tag::IGNORE,
                *kind,
                session,
                *dedupe,
                buffer_id.as_deref(),
                *now_ms,
            ),
            Command::Start {
                seq,
                repeatable,
                now_ms,
            } => {
                let tags = [tag::START, tag::START_REPEATABLE];
                self.row(tags[usize::from(*repeatable)], *seq);
                self.signed(*now_ms);
            }
            Command::End {
                seq,
                state,
                ops,
                now_ms,
            } => {
                self.row(tag::END, *seq);
                self.signed(state.code());
                self.signed(*now_ms);
                self.ops(ops);
            }
            Command::AddOps {
                inbox, ops, now_ms, ..
            } => self.push_ops(*inbox, ops, *now_ms),
            Command::OpSent { op } => self.op(tag::OP_SENT, *op),
            Command::OpChanged { op, body } => {
                self.op(tag::OP_CHANGED, *op);
                self.blob(body);
            }
            Command::OpSettled { op } => self.op(tag::OP_SETTLED, *op),
            Command::RememberChat(chat) => {
                self.bytes.push(tag::REMEMBER_CHAT);
                self.text(&chat.platform);
                self.text(&chat.chat_id);
                self.blob(&chat.memory);
                self.signed(chat.last_used);
            }
            Command::AddUsage(row) => {
                self.bytes.push(tag::ADD_USAGE);
                for text in [&row.platform, &row.person, &row.chat, &row.agent] {
                    self.text(text);
                }
                for number in [row.day, row.turns, row.tokens] {
                    self.signed(number);
                }
            }
            Command::SetShown { seq, shown } => {
                self.row(tag::SET_SHOWN, *seq);
                self.optional(shown.as_deref());
            }
            Command::SetRepeatable { seq } => self.row(tag::SET_REPEATABLE, *seq),
            Command::SetLine { seq, kind, line } => {
                self.row(tag::SET_LINE, *seq);
                self.signed(kind.code());
                self.blob(line);
            }
            other => {
                if !self.push_change(other) {
                    return;
                }
            }
        }
        self.is_empty = false;
    }

    /// Adds a command that changes the tables; `false` if it is none that is written.
    fn push_change(&mut self, command: &Command) -> bool {
        match command {
            Command::SetAccess(row) => {
                self.bytes.push(tag::SET_ACCESS);
                for text in [&row.kind, &row.platform, &row.person] {
                    self.text(text);
                }
                self.optional(row.value.as_deref().map(str::as_bytes));
            }
            Command::Handed { command, .. } => match &**command {
                HandedCommand::Take(new) => self.handed(new),
                HandedCommand::Taken(ids) => {
                    self.bytes.push(tag::CONTEXT_TAKEN);
                    self.unsigned(ids.len() as u64);
                    for id in ids {
                        self.text(id);
                    }
                }
                HandedCommand::PutBack(seq) => self.row(tag::PUT_BACK, *seq),
                HandedCommand::Contexts => return false,
            },
            Command::Quarantine {
                reason,
                buffer_id,
                line,
                now_ms,
                ..
            } => {
                self.bytes.push(tag::QUARANTINE);
                self.text(reason);
                self.optional(buffer_id.as_deref().map(str::as_bytes));
                self.blob(line);
                self.signed(*now_ms);
            }
            Command::SetResume {
                session,
                blob,
                now_ms,
            } => {
                self.bytes.push(tag::SET_RESUME);
                self.text(session);
                self.blob(blob);
                self.signed(*now_ms);
            }
            Command::DropResume { session } => {
                self.bytes.push(tag::DROP_RESUME);
                self.text(session);
            }
            Command::Repair {
                repair, item, now_ms, ..
            } => {
                self.bytes.push(tag::REPAIR);
                self.bytes.push(u8::from(*repair == Repair::Drop));
                let (kind, number) = match item {
                    Item::Message(seq) => (0, seq.0),
                    Item::Op(op) => (1, op.0),
                    Item::Quarantined(number) => (2, *number),
                };
                self.bytes.push(kind);
                self.signed(number);
                self.signed(*now_ms);
            }
            Command::OpDropped {
                op,
                body,
                reason,
                now_ms,
            } => {
                self.op(tag::OP_DROPPED, *op);
                self.blob(body);
                self.text(reason);
                self.signed(*now_ms);
            }
            _ => return false,
        }
        true
    }

    fn handed(&mut self, new: &NewHandedItem) {
        self.bytes.push(match new.body {
            HandedBody::Context { .. } => tag::TAKE_CONTEXT,
            HandedBody::Turn(_) => tag::TAKE_TURN,
        });
        for text in [&new.dispatch_id, &new.agent, &new.session] {
            self.text(text);
        }
        self.bytes.push(u8::from(new.has_session));
        self.signed(new.now_ms);
        match &new.body {
            HandedBody::Context { text, meta } => {
                self.text(text);
                self.text(meta);
            }
            HandedBody::Turn(line) => self.blob(line),
        }
    }

    /// Adds new ops.
    pub(in crate::store) fn push_ops(&mut self, inbox: Option<InboxSeq>, ops: &[NewOp], now_ms: i64) {
        self.bytes.push(tag::ADD_OPS);
        // Row ids begin with 1.
        self.signed(inbox.map_or(0, |seq| seq.0));
        self.signed(now_ms);
        self.ops(ops);
        self.is_empty = false;
    }

    fn message(
        &mut self,
        tag: u8,
        kind: InboxKind,
        session: &str,
        dedupe: Option<DedupeKey>,
        buffer_id: Option<&str>,
        now_ms: i64,
    ) {
        self.bytes.push(tag);
        self.signed(kind.code());
        self.text(session);
        self.optional(dedupe.as_ref().map(|key| key.as_bytes().as_slice()));
        self.optional(buffer_id.map(str::as_bytes));
        self.signed(now_ms);
    }

    fn ops(&mut self, ops: &[NewOp]) {
        self.unsigned(ops.len() as u64);
        for op in ops {
            self.text(&op.session);
            self.text(&op.chat);
            self.blob(&op.op);
        }
    }

    fn row(&mut self, tag: u8, seq: InboxSeq) {
        self.bytes.push(tag);
        self.signed(seq.0);
    }

    fn op(&mut self, tag: u8, op: OpSeq) {
        self.bytes.push(tag);
        self.signed(op.0);
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        self.bytes.push(u8::from(bytes.is_some()));
        if let Some(bytes) = bytes {
            self.blob(bytes);
        }
    }

    fn text(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.unsigned(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn signed(&mut self, number: i64) {
        varint::put_signed(&mut self.bytes, number);
    }

    fn unsigned(&mut self, number: u64) {
        varint::put(&mut self.bytes, number);
    }
}

/// The next row ids and the commands of a batch.
pub(in crate::store) fn read(bytes: &[u8]) -> Result<(NextIds, Vec<Command>), BatchError> {
    let mut reader = LogReader { rest: bytes };
    match reader.byte()? {
        VERSION => {}
        other => return Err(BatchError::Version(other)),
    }
    let ids = NextIds {
        inbox: reader.signed()?,
        op: reader.signed()?,
    };
    let mut commands = Vec::new();
    while !reader.rest.is_empty() {
        commands.push(reader.command()?);
    }
    Ok((ids, commands))
}

/// The commands of a batch, for tests and fuzzing.
#[cfg(feature = "internals")]
pub fn decode_batch(bytes: &[u8]) -> Result<Vec<Command>, BatchError> {
    read(bytes).map(|(_, commands)| commands)
}

/// A batch of those of the commands that the log knows, for tests and fuzzing.
#[cfg(feature = "internals")]
pub fn encode_batch(commands: &[Command]) -> Vec<u8> {
    let mut writer = LogWriter::default();
    writer.begin(NextIds { inbox: 1, op: 1 });
    for command in commands {
        writer.push(command);
    }
    writer.bytes
}

struct LogReader<'b> {
    rest: &'b [u8],
}

impl<'b> LogReader<'b> {
    fn command(&mut self) -> Result<Command, BatchError> {
        Ok(match self.byte()? {
            // No program has written it.
            0 => return Err(BatchError::Damaged),
            tag::ACCEPT => {
                let (kind, session, dedupe, buffer_id, now_ms) = self.message()?;
                let flags = self.byte()?;
                if flags > 3 {
                    return Err(BatchError::Damaged);
                }
                Command::Accept {
                    token: 0,
                    kind,
                    session,
                    dedupe,
                    buffer_id,
                    start: flags & 1 != 0,
                    repeatable: flags & 2 != 0,
                    line: self.blob()?.into(),
                    now_ms,
                }
            }
            tag::IGNORE => {
                let (kind, session, dedupe, buffer_id, now_ms) = self.message()?;
                Command::Ignore {
                    token: 0,
                    kind,
                    session,
                    dedupe,
                    buffer_id,
                    now_ms,
                }
            }
            tag @ (tag::START | tag::START_REPEATABLE) => Command::Start {
                seq: InboxSeq(self.signed()?),
                repeatable: tag == tag::START_REPEATABLE,
                now_ms: self.signed()?,
            },
            tag::END => {
                let (seq, state, now_ms) = (self.signed()?, self.signed()?, self.signed()?);
                Command::End {
                    seq: InboxSeq(seq),
                    state: RowState::from_code(state),
                    ops: self.ops()?,
                    now_ms,
                }
            }
            tag::ADD_OPS => {
                let (inbox, now_ms) = (self.signed()?, self.signed()?);
                Command::AddOps {
                    token: 0,
                    inbox: (inbox != 0).then_some(InboxSeq(inbox)),
                    ops: self.ops()?,
                    now_ms,
                }
            }
            tag::OP_SENT => Command::OpSent {
                op: OpSeq(self.signed()?),
            },
            tag::OP_CHANGED => Command::OpChanged {
                op: OpSeq(self.signed()?),
                body: self.blob()?.to_vec(),
            },
            tag::OP_SETTLED => Command::OpSettled {
                op: OpSeq(self.signed()?),
            },
            tag::REMEMBER_CHAT => Command::RememberChat(ChatRow {
                platform: self.text()?.into(),
                chat_id: self.text()?.into(),
                memory: self.blob()?.to_vec(),
                last_used: self.signed()?,
            }),
            tag::ADD_USAGE => Command::AddUsage(UsageRow {
                platform: self.text()?.to_owned(),
                person: self.text()?.to_owned(),
                chat: self.text()?.to_owned(),
                agent: self.text()?.to_owned(),
                day: self.signed()?,
                turns: self.signed()?,
                tokens: self.signed()?,
            }),
            tag::SET_REPEATABLE => Command::SetRepeatable {
                seq: InboxSeq(self.signed()?),
            },
            tag::SET_LINE => Command::SetLine {
                seq: InboxSeq(self.signed()?),
                kind: InboxKind::from_code(self.signed()?),
                line: self.blob()?.into(),
            },
            tag::SET_SHOWN => Command::SetShown {
                seq: InboxSeq(self.signed()?),
                shown: self.optional()?.map(<[u8]>::to_vec),
            },
            tag => return self.change(tag),
        })
    }

    fn change(&mut self, tag: u8) -> Result<Command, BatchError> {
        Ok(match tag {
            tag::SET_ACCESS => Command::SetAccess(AccessRow {
                kind: self.text()?.to_owned(),
                platform: self.text()?.to_owned(),
                person: self.text()?.to_owned(),
                value: match self.optional()? {
                    Some(value) => Some(utf8(value)?.to_owned()),
                    None => None,
                },
            }),
            tag::TAKE_CONTEXT | tag::TAKE_TURN => self.handed(tag)?,
            tag::CONTEXT_TAKEN => {
                let count = self.length()?;
                if count > self.rest.len() {
                    return Err(BatchError::Damaged);
                }
                let ids: Result<_, BatchError> = (0..count).map(|_| Ok(self.text()?.to_owned())).collect();
                handed(HandedCommand::Taken(ids?))
            }
            tag::PUT_BACK => handed(HandedCommand::PutBack(InboxSeq(self.signed()?))),
            tag::QUARANTINE => Command::Quarantine {
                token: 0,
                reason: self.text()?.to_owned(),
                buffer_id: match self.optional()? {
                    Some(id) => Some(utf8(id)?.to_owned()),
                    None => None,
                },
                line: self.blob()?.to_vec(),
                now_ms: self.signed()?,
            },
            tag::SET_RESUME => Command::SetResume {
                session: self.text()?.into(),
                blob: self.blob()?.to_vec(),
                now_ms: self.signed()?,
            },
            tag::DROP_RESUME => Command::DropResume {
                session: self.text()?.into(),
            },
            tag::REPAIR => Command::Repair {
                token: 0,
                repair: if self.flag()? { Repair::Drop } else { Repair::Retry },
                item: match (self.byte()?, self.signed()?) {
                    (0, number) => Item::Message(InboxSeq(number)),
                    (1, number) => Item::Op(OpSeq(number)),
                    (2, number) => Item::Quarantined(number),
                    _ => return Err(BatchError::Damaged),
                },
                now_ms: self.signed()?,
            },
            tag::OP_DROPPED => Command::OpDropped {
                op: OpSeq(self.signed()?),
                body: self.blob()?.to_vec(),
                reason: self.text()?.to_owned(),
                now_ms: self.signed()?,
            },
            other => return Err(BatchError::UnknownCommand(other)),
        })
    }

    fn handed(&mut self, tag: u8) -> Result<Command, BatchError> {
        Ok(handed(HandedCommand::Take(NewHandedItem {
            dispatch_id: self.text()?.to_owned(),
            agent: self.text()?.to_owned(),
            session: self.text()?.to_owned(),
            has_session: self.flag()?,
            now_ms: self.signed()?,
            body: if tag == tag::TAKE_CONTEXT {
                HandedBody::Context {
                    text: self.text()?.to_owned(),
                    meta: self.text()?.to_owned(),
                }
            } else {
                HandedBody::Turn(self.blob()?.to_vec())
            },
        })))
    }

    #[expect(clippy::type_complexity, reason = "the fields that two commands share")]
    fn message(
        &mut self,
    ) -> Result<(InboxKind, Arc<str>, Option<DedupeKey>, Option<String>, i64), BatchError> {
        let kind = InboxKind::from_code(self.signed()?);
        let session = self.text()?.into();
        let dedupe = match self.optional()? {
            Some(key) => Some(DedupeKey::from_bytes(
                key.try_into().map_err(|_| BatchError::Damaged)?,
            )),
            None => None,
        };
        let buffer_id = match self.optional()? {
            Some(id) => Some(utf8(id)?.to_owned()),
            None => None,
        };
        Ok((kind, session, dedupe, buffer_id, self.signed()?))
    }

    fn ops(&mut self) -> Result<NewOps, BatchError> {
        let count = self.length()?;
        // Each takes three bytes at least.
        if count > self.rest.len() {
            return Err(BatchError::Damaged);
        }
        let op = |_| {
            Ok(NewOp {
                session: self.text()?.into(),
                chat: self.text()?.into(),
                op: self.blob()?.to_vec(),
            })
        };
        (0..count).map(op).collect()
    }

    fn optional(&mut self) -> Result<Option<&'b [u8]>, BatchError> {
        self.flag()?.then(|| self.blob()).transpose()
    }

    fn text(&mut self) -> Result<&'b str, BatchError> {
        utf8(self.blob()?)
    }

    fn blob(&mut self) -> Result<&'b [u8], BatchError> {
        let length = self.length()?;
        let (blob, rest) = self.rest.split_at_checked(length).ok_or(BatchError::Damaged)?;
        self.rest = rest;
        Ok(blob)
    }

    fn length(&mut self) -> Result<usize, BatchError> {
        usize::try_from(self.unsigned()?).map_err(|_| BatchError::Damaged)
    }

    fn flag(&mut self) -> Result<bool, BatchError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BatchError::Damaged),
        }
    }

    fn signed(&mut self) -> Result<i64, BatchError> {
        varint::take_signed(&mut self.rest).ok_or(BatchError::Damaged)
    }

    fn unsigned(&mut self) -> Result<u64, BatchError> {
        varint::take(&mut self.rest).ok_or(BatchError::Damaged)
    }

    fn byte(&mut self) -> Result<u8, BatchError> {
        let (byte, rest) = self.rest.split_first().ok_or(BatchError::Damaged)?;
        self.rest = rest;
        Ok(*byte)
    }
}

fn handed(command: HandedCommand) -> Command {
    Command::Handed {
        token: 0,
        command: Box::new(command),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, BatchError> {
    std::str::from_utf8(bytes).map_err(|_| BatchError::Damaged)
}
