//! What a turn's task is given, what it wishes while it runs, and what it reports: plain data.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::parcels::{Parcel, Posted};
use crate::adapter::ReplyStream;
use crate::adapter::stream::{OpOutcome, PlannedOp, Position};
use crate::agent::{PromptAnswer, Question, TurnEnd, Usage};
use crate::net::media::MediaClient;
use crate::session::TurnId;
use crate::wire::OpId;

/// How a turn's task is told what became of its ops.
pub(super) type FateSender = mpsc::Sender<(OpId, OpOutcome)>;

/// What a turn's task wants of the relay while it runs.
#[derive(Debug)]
pub(super) enum Wish {
    /// Say this in the chat.
    Utter(Box<PlannedOp>, FateSender),
    /// Take back what has not gone out of these.
    Withdraw(FateSender),
    /// Ask people this.
    Ask(Box<Question>, oneshot::Sender<PromptAnswer>),
    /// Keep this for the session.
    Keep(Vec<u8>),
    /// Give what was kept for the session.
    Recall(oneshot::Sender<Option<Vec<u8>>>),
    /// The conversation is about this.
    Title(String),
    /// Send this file, and tell when it has its place.
    Media(Box<Parcel>, Posted),
}

/// How a turn went.
#[derive(Debug)]
pub(super) struct TurnReport {
    pub(super) turn: TurnId,
    /// What it said, and how much of it the chat has seen.
    pub(super) speech: Box<ReplyStream>,
    /// Whether it said anything.
    pub(super) spoke: bool,
    /// Whether it said more than is kept.
    pub(super) cut: bool,
    /// The files that it sends and that are not handed over.
    pub(super) parcels: Vec<(Position, Parcel)>,
    /// How it ended.
    pub(super) end: TurnEnd,
    /// What it cost.
    pub(super) usage: Usage,
    /// How long it took to say something.
    pub(super) first_word: Option<Duration>,
}

impl TurnReport {
    /// A turn that said nothing.
    pub(super) fn unspoken(turn: TurnId, speech: Box<ReplyStream>, end: TurnEnd) -> Self {
        Self {
            turn,
            speech,
            spoke: false,
            cut: false,
            parcels: Vec::new(),
            end,
            usage: Usage::default(),
            first_word: None,
        }
    }
}

/// What a turn's task is given beside the turn.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) speech: Box<ReplyStream>,
    pub(super) wishes: mpsc::Sender<(TurnId, Wish)>,
    pub(super) clock: Clock,
    /// How long a stopped turn may take to end.
    pub(super) grace: Duration,
    /// The most that a turn may say, in bytes.
    pub(super) most: usize,
    /// Cancelled when the agent has forgotten what it was told to forget.
    pub(super) forgotten: Option<CancellationToken>,
    /// Where attachments come in and go out.
    pub(super) room: Option<Arc<MediaClient>>,
    /// Whether its platform takes attachments.
    pub(super) takes_media: bool,
}
