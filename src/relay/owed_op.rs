//! One op that is owed, and how the journal keeps it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::adapter::stream::DurableAction;
use crate::store::{InboxSeq, NewOp, OpRow};
use crate::wire::{ActionText, SessionKey};

/// An op that is owed.
#[derive(Debug)]
pub(super) struct OwedOp {
    pub(super) session: Arc<str>,
    pub(super) lane: Arc<str>,
    pub(super) platform: Option<String>,
    pub(super) bot_id: Option<String>,
    pub(super) op: Cow<'static, str>,
    pub(super) action: ActionText,
    /// What is done in its place when it is refused, in order.
    pub(super) otherwise: Vec<ActionText>,
    /// What is still to be done in its place, in order, once it is done.
    pub(super) then: Vec<ActionText>,
    /// What it is part of: the message that it answers, below zero something said of the relay's own accord, 0 nothing.
    pub(super) delivery: i64,
    pub(super) attempts: u32,
    /// How often it was put off because its chat was spoken to too fast.
    pub(super) waits: u32,
}

/// The part of an op that the journal keeps.
#[derive(Debug, Deserialize)]
struct Body {
    platform: Option<String>,
    bot_id: Option<String>,
    op: String,
    action: Box<RawValue>,
    #[serde(default)]
    otherwise: Vec<Box<RawValue>>,
    #[serde(default)]
    then: Vec<Box<RawValue>>,
    /// Only where it answers no message; the row names that.
    #[serde(default)]
    delivery: i64,
}

/// Which op an action is.
#[derive(Deserialize)]
struct Named {
    op: String,
}

/// What to do with an op of which nothing is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WhenUnknown {
    /// Doing it twice is the same as once.
    Repeat,
    /// Doing it twice would be seen.
    GiveUp,
}

impl OwedOp {
    pub(super) fn new(
        session: &SessionKey,
        lane: Arc<str>,
        owed: &DurableAction,
        (platform, bot_id): (Option<String>, Option<String>),
    ) -> Self {
        Self {
            session: session.shared(),
            lane,
            platform,
            bot_id,
            op: owed.action.op().into(),
            action: (&owed.action).into(),
            otherwise: owed.fallback.iter().map(ActionText::from).collect(),
            then: Vec::new(),
            delivery: 0,
            attempts: 0,
            waits: 0,
        }
    }

    /// It is part of the answer to this message.
    pub(super) fn belongs_to(&mut self, seq: i64) {
        self.delivery = seq;
    }

    /// The message that it answers.
    pub(super) fn answers(&self) -> Option<InboxSeq> {
        (self.delivery > 0).then_some(InboxSeq(self.delivery))
    }

    /// The op as the journal keeps it.
    pub(super) fn to_row(&self) -> NewOp {
        NewOp {
            session: Arc::clone(&self.session),
            chat: Arc::clone(&self.lane),
            op: self.body(),
        }
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = self.action.beside(&[
            ("platform", self.platform.as_deref()),
            ("bot_id", self.bot_id.as_deref()),
            ("op", Some(&self.op)),
        ]);
        for (name, actions) in [("otherwise", &self.otherwise), ("then", &self.then)] {
            if !actions.is_empty() {
                body.pop();
                let actions: Vec<_> = actions.iter().map(ActionText::as_str).collect();
                let _ = write!(body, r#","{name}":[{}]}}"#, actions.join(","));
            }
        }
        if self.delivery < 0 {
            body.pop();
            let _ = write!(body, r#","delivery":{}}}"#, self.delivery);
        }
        body.into_bytes()
    }

    pub(super) fn from_row(row: &OpRow) -> Option<Self> {
        let body: Body = serde_json::from_slice(&row.op).ok()?;
        let texts = |actions: Vec<Box<RawValue>>| actions.into_iter().map(ActionText::from).collect();
        Some(Self {
            session: Arc::clone(&row.session),
            lane: Arc::clone(&row.chat),
            platform: body.platform,
            bot_id: body.bot_id,
            op: body.op.into(),
            action: body.action.into(),
            otherwise: texts(body.otherwise),
            then: texts(body.then),
            delivery: row.inbox.map_or(body.delivery.min(0), |seq| seq.0),
            attempts: 0,
            waits: 0,
        })
    }

    /// Turns to the first of these actions, with the rest to follow; `false` when there is none.
    pub(super) fn turn_to(&mut self, mut actions: Vec<ActionText>) -> bool {
        if actions.is_empty() {
            return false;
        }
        let action = actions.remove(0);
        let Ok(Named { op }) = serde_json::from_str(action.as_str()) else {
            return false;
        };
        self.op = op.into();
        self.action = action;
        self.otherwise = Vec::new();
        self.then = actions;
        self.attempts = 0;
        true
    }

    pub(super) fn when_unknown(&self, resend: bool) -> WhenUnknown {
        match &*self.op {
            // The same edit twice is the same text; so is a stream that is sealed twice under its own id.
            "edit" | "draft" => WhenUnknown::Repeat,
            "send" | "send_media" | "follow_up" if resend => WhenUnknown::Repeat,
            _ => WhenUnknown::GiveUp,
        }
    }
}
