//! Ops as the parts pass them on, and how the journal keeps a durable one: plain data.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use smallvec::SmallVec;
use smol_str::SmolStr;
use tracing::field::Empty;

use crate::adapter::RelayAdapter;
use crate::adapter::prompt::{PromptId, QuestionId};
use crate::adapter::stream::{DurableAction, OpOutcome, Priority};
use crate::config::ResendUnknown;
use crate::relay::spans::message_span;
use crate::session::TurnId;
use crate::store::{InboxSeq, NewOp, OpRow};
use crate::wire::{Action, ActionText, OpId};

/// How a turn's task learns the outcome of its ops.
pub(super) type OutcomeSender = mpsc::Sender<(OpId, OpOutcome)>;

/// What an op asks of the connector, and where it goes.
#[derive(Debug)]
pub(super) struct OpBody {
    /// The chat's key: ops of one chat go out in order.
    pub(super) lane: Arc<str>,
    pub(super) platform: Option<SmolStr>,
    pub(super) bot_id: Option<SmolStr>,
    /// The action's wire name.
    pub(super) name: Cow<'static, str>,
    pub(super) action: ActionText,
}

impl OpBody {
    pub(super) fn new(adapter: &RelayAdapter, lane: Arc<str>, action: &Action) -> Self {
        let (platform, bot_id) = adapter.tags();
        Self {
            lane,
            platform,
            bot_id,
            name: action.op().into(),
            action: action.into(),
        }
    }

    /// The thread of its chat that it goes to, if it goes to one.
    pub(super) fn thread(&self) -> Option<SmolStr> {
        let tagged: TaggedAction = serde_json::from_str(self.action.as_str()).ok()?;
        tagged.metadata.thread_id
    }
}

/// Ops that belong together: once the connector declines one of them, the rest is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OpGroup {
    /// The answer to this message.
    Message(InboxSeq),
    /// Something sent without being asked.
    Notice(u64),
}

/// An op that must reach its chat: journaled before it is sent, and settled once.
#[derive(Debug)]
pub(super) struct DurableOp {
    pub(super) id: OpId,
    pub(super) session: Arc<str>,
    pub(super) body: OpBody,
    /// Done in its place when it is refused, in order.
    pub(super) fallback: Vec<ActionText>,
    /// Still to be done in its place once it is done, in order.
    pub(super) then: Vec<ActionText>,
    pub(super) group: OpGroup,
    /// Times that it was sent without an outcome becoming known.
    pub(super) attempts: u32,
    /// How many of them were on connections that stayed.
    pub(super) timeouts: u32,
    /// Until when it is sent again then; counts from the first attempt.
    pub(super) resend_until: Option<Duration>,
    /// Times that it was put off because of a rate limit.
    pub(super) deferrals: u32,
    /// Times that the connector refused it.
    pub(super) refusals: u32,
    /// The message that it answers, for whoever follows the log.
    span: tracing::Span,
}

/// Ops that are journaled together: one for most answers.
pub(super) type DurableOps = SmallVec<[Box<DurableOp>; 1]>;

/// An op that is not journaled: a growing message, typing, a reaction, a question.
#[derive(Debug)]
pub(super) struct EphemeralOp {
    pub(super) id: OpId,
    pub(super) body: OpBody,
    pub(super) priority: Priority,
    /// How long its answer is waited for; the link's own timeout when not given.
    pub(super) timeout: Option<Duration>,
    pub(super) owner: OpOwner,
}

/// Who learns the outcome of an op.
#[derive(Debug)]
pub(super) enum OpOwner {
    /// The task of a turn.
    Turn(TurnId, OutcomeSender),
    /// The question that it shows.
    Question(QuestionId, PromptId),
    /// The message with this key, which starts the thread.
    GroupThread(Arc<str>),
    /// A turn that ended with an earlier process: it puts away what that has shown.
    LeftTurn,
    /// Nobody.
    Nobody,
}

impl OpOwner {
    /// Whether an op keeps its place while there is no connection.
    pub(super) fn keeps_place(&self) -> bool {
        match self {
            Self::Question(..) | Self::GroupThread(_) | Self::LeftTurn => true,
            Self::Turn(..) | Self::Nobody => false,
        }
    }
}

/// The part of an op that the journal keeps.
#[derive(Debug, Deserialize)]
struct JournaledOp {
    #[serde(default)]
    id: Option<String>,
    platform: Option<SmolStr>,
    bot_id: Option<SmolStr>,
    op: String,
    action: Box<RawValue>,
    #[serde(default, alias = "otherwise")]
    fallback: Vec<Box<RawValue>>,
    #[serde(default)]
    then: Vec<Box<RawValue>>,
    #[serde(default)]
    attempts: u32,
    /// Only where it answers no message; the row names that.
    #[serde(default)]
    group: Option<u64>,
    /// The same as it was written by earlier versions: below zero.
    #[serde(default)]
    delivery: i64,
}

#[derive(Deserialize)]
struct NamedAction {
    op: String,
}

#[derive(Deserialize)]
struct TaggedAction {
    metadata: ThreadTag,
}

#[derive(Deserialize)]
struct ThreadTag {
    thread_id: Option<SmolStr>,
}

impl DurableOp {
    pub(super) fn new(
        id: OpId,
        session: Arc<str>,
        body: OpBody,
        action: &DurableAction,
        group: OpGroup,
        span: tracing::Span,
    ) -> Self {
        Self {
            id,
            session,
            body,
            fallback: action.fallback.iter().map(ActionText::from).collect(),
            then: action.then.iter().map(ActionText::from).collect(),
            group,
            attempts: 0,
            timeouts: 0,
            resend_until: None,
            deferrals: 0,
            refusals: 0,
            span,
        }
    }

    /// The op as a new row of the journal.
    pub(super) fn to_row(&self) -> NewOp {
        NewOp {
            session: Arc::clone(&self.session),
            chat: Arc::clone(&self.body.lane),
            op: self.encode(),
        }
    }

    /// The span to log in what becomes of it.
    pub(super) fn span(&self) -> tracing::Span {
        if self.span.is_none() {
            message_span(&self.session)
        } else {
            self.span.clone()
        }
    }

    /// The span of the op itself, for whoever follows the message that it answers.
    pub(super) fn send_span(&self) -> tracing::Span {
        let (kind, attempt) = (&*self.body.name, self.attempts + 1);
        tracing::debug_span!(parent: &self.span, "op", kind, attempt, outcome = Empty)
    }

    /// The message that it answers.
    pub(super) fn answers(&self) -> Option<InboxSeq> {
        match self.group {
            OpGroup::Message(seq) => Some(seq),
            OpGroup::Notice(_) => None,
        }
    }

    /// The op as the journal keeps it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut digits = [0; 32];
        let mut text = self.body.action.beside(&[
            ("id", Some(self.id.encode_lower(&mut digits))),
            ("platform", self.body.platform.as_deref()),
            ("bot_id", self.body.bot_id.as_deref()),
            ("op", Some(&self.body.name)),
        ]);
        for (name, actions) in [("fallback", &self.fallback), ("then", &self.then)] {
            if !actions.is_empty() {
                text.pop();
                let actions: Vec<_> = actions.iter().map(ActionText::as_str).collect();
                let _ = write!(text, r#","{name}":[{}]}}"#, actions.join(","));
            }
        }
        if self.attempts > 0 {
            text.pop();
            let _ = write!(text, r#","attempts":{}}}"#, self.attempts);
        }
        if let OpGroup::Notice(group) = self.group {
            text.pop();
            let _ = write!(text, r#","group":{group}}}"#);
        }
        text.into_bytes()
    }

    /// Reads an op back from the journal; `fresh` is its id where the row has none.
    pub(super) fn from_row(row: &OpRow, fresh: OpId) -> Option<Self> {
        let kept: JournaledOp = serde_json::from_slice(&row.op).ok()?;
        let texts = |actions: Vec<Box<RawValue>>| actions.into_iter().map(ActionText::from).collect();
        let notice = kept.group.unwrap_or(kept.delivery.unsigned_abs());
        Some(Self {
            id: kept.id.as_deref().and_then(OpId::parse).unwrap_or(fresh),
            session: Arc::clone(&row.session),
            body: OpBody {
                lane: Arc::clone(&row.chat),
                platform: kept.platform,
                bot_id: kept.bot_id,
                name: kept.op.into(),
                action: kept.action.into(),
            },
            fallback: texts(kept.fallback),
            then: texts(kept.then),
            group: row.inbox.map_or(OpGroup::Notice(notice), OpGroup::Message),
            attempts: kept.attempts,
            timeouts: 0,
            resend_until: None,
            deferrals: 0,
            refusals: 0,
            span: tracing::Span::none(),
        })
    }

    /// Becomes the first of these actions under a new id, with the rest to follow; `false` when there is none.
    pub(super) fn replace(&mut self, mut actions: Vec<ActionText>, id: OpId) -> bool {
        if actions.is_empty() {
            return false;
        }
        let action = actions.remove(0);
        let Ok(NamedAction { op }) = serde_json::from_str(action.as_str()) else {
            return false;
        };
        self.id = id;
        self.body.name = op.into();
        self.body.action = action;
        self.fallback = Vec::new();
        self.then = actions;
        self.attempts = 0;
        self.timeouts = 0;
        self.resend_until = None;
        self.refusals = 0;
        true
    }

    /// Whether it only removes what was replaced: nobody misses anything when it fails.
    pub(super) fn is_cleanup(&self) -> bool {
        self.body.name == "delete"
    }

    /// Whether to send it again when its outcome is unknown.
    pub(super) fn may_resend(&self, resend: ResendUnknown) -> bool {
        match &*self.body.name {
            // The same edit twice is the same text; so is a stream that is finished twice under its own id.
            "edit" | "draft" => true,
            "send" | "follow_up" => resend != ResendUnknown::Never,
            "send_media" => resend == ResendUnknown::All,
            _ => false,
        }
    }
}
