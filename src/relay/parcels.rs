//! The files that a turn sends: made ready one after the other beside the turn, and handed over in order.
//!
//! A parcel is handed over once it is ready and the chat has been shown what was said before it. It is owed to the
//! chat from then on, in the journal, like the text of an answer: it survives a crash, and when the connector refuses
//! it, the chat is told in words. What is not handed over when the turn ends is owed in one commit with the end, in its
//! place between the turn's texts. A file whose upload is under way when the process is killed is lost. Nothing here shows a
//! path of this machine to the chat.

use std::collections::VecDeque;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::core::Core;
use super::desk::Desk;
use super::handle::SendError;
pub(super) use crate::adapter::media::OutgoingAttachment as Parcel;
use crate::adapter::media::{MediaKind, Undelivered, fallback_text, media_kind, percent_decode, public_url};
use crate::adapter::stream::{DurableAction, Position};
use crate::adapter::{ChatFacts, ChatId};
use crate::agent::{Media, MediaLocation};
use crate::session::TurnId;

/// Files that one turn may send; further ones are told as text.
const MOST_PARCELS: usize = 16;
/// How long one on its way into the journal holds up what the turn says after it.
const HELD_UP: Duration = Duration::from_secs(1);

/// How a turn is told that a parcel has its place in the chat's lane.
pub(super) type Posted = oneshot::Sender<Result<(), SendError>>;

/// One that is being made ready.
struct Packing {
    mark: Position,
    /// What is said when it takes too long.
    otherwise: String,
    work: Pin<Box<dyn Future<Output = Parcel> + Send>>,
}

/// The files that a turn sends.
pub(super) struct Parcels {
    turn: TurnId,
    desk: Arc<Desk>,
    /// Whether the platform takes attachments, as far as it is known.
    takes_media: bool,
    heard: usize,
    waiting: VecDeque<(Position, Media)>,
    packing: Option<Packing>,
    ready: VecDeque<(Position, Parcel)>,
    /// One on its way to its place in the chat, and until when that holds up what comes after it.
    posting: Option<(oneshot::Receiver<Result<(), SendError>>, Instant)>,
}

impl Parcels {
    pub(super) fn new(turn: TurnId, desk: Arc<Desk>, takes_media: bool) -> Self {
        Self {
            turn,
            desk,
            takes_media,
            heard: 0,
            waiting: VecDeque::new(),
            packing: None,
            ready: VecDeque::new(),
            posting: None,
        }
    }

    /// Takes a file to send after what was said before the mark; the words for it when it is one too many.
    pub(super) fn hear(&mut self, media: Media, mark: Position) -> Option<String> {
        if self.heard == MOST_PARCELS {
            return Some(instead_of(&media));
        }
        self.heard += 1;
        self.waiting.push_back((mark, media));
        self.pack_next();
        None
    }

    /// Whether something is still being made ready.
    pub(super) fn is_packing(&self) -> bool {
        self.packing.is_some()
    }

    /// Whether one is on its way to its place: what is said after it waits.
    pub(super) fn is_posting(&self) -> bool {
        self.posting.is_some()
    }

    /// Resolves when one more is ready or has its place; never while nothing is on its way. Cancel-safe: dropping it
    /// leaves what it waits for under way.
    pub(super) async fn news(&mut self) {
        let parcel = tokio::select! {
            biased;
            () = placed(&mut self.posting) => None,
            parcel = packed(&mut self.packing) => Some(parcel),
        };
        match parcel {
            None => self.posting = None,
            Some(parcel) => {
                self.packing = None;
                self.ready.push_back(parcel);
                self.pack_next();
            }
        }
    }

    /// The next one to hand over, when `is_due` says so of what was said before it.
    pub(super) fn post_next(&mut self, is_due: impl FnOnce(Position) -> bool) -> Option<(Parcel, Posted)> {
        let (mark, _) = self.ready.front().filter(|_| self.posting.is_none())?;
        if !is_due(*mark) {
            return None;
        }
        let (_, parcel) = self.ready.pop_front()?;
        let (posted, answer) = oneshot::channel();
        self.posting = Some((answer, Instant::now() + HELD_UP));
        Some((parcel, posted))
    }

    /// What is on its way is not waited for: nothing is said of it.
    pub(super) fn give_up(&mut self) {
        self.packing = None;
        self.waiting.clear();
    }

    /// What is on its way takes too long, and is told as words.
    pub(super) fn run_out(&mut self) {
        if let Some(Packing { mark, otherwise, .. }) = self.packing.take() {
            self.ready.push_back((mark, Parcel::Text(otherwise)));
        }
        for (mark, media) in self.waiting.drain(..) {
            self.ready.push_back((mark, Parcel::Text(instead_of(&media))));
        }
    }

    /// What was not handed over.
    pub(super) fn into_rest(self) -> Vec<(Position, Parcel)> {
        self.ready.into()
    }

    fn pack_next(&mut self) {
        if self.packing.is_some() {
            return;
        }
        if let Some((mark, media)) = self.waiting.pop_front() {
            let otherwise = instead_of(&media);
            let work = pack(self.turn, Arc::clone(&self.desk), self.takes_media, media);
            self.packing = Some(Packing {
                mark,
                otherwise,
                work: Box::pin(work),
            });
        }
    }
}

async fn placed(posting: &mut Option<(oneshot::Receiver<Result<(), SendError>>, Instant)>) {
    match posting {
        Some((answer, late)) => drop(timeout_at(*late, answer).await),
        None => std::future::pending().await,
    }
}

async fn packed(packing: &mut Option<Packing>) -> (Position, Parcel) {
    match packing {
        Some(packing) => (packing.mark, packing.work.as_mut().await),
        None => std::future::pending().await,
    }
}

/// What is said in place of a file.
fn instead_of(media: &Media) -> String {
    match &media.location {
        MediaLocation::Url(url) => fallback_text(Undelivered::At(url), &media.caption),
        MediaLocation::File(path) => {
            let name = media.name.clone().unwrap_or_else(|| last_part(path));
            fallback_text(Undelivered::Named(&name), &media.caption)
        }
    }
}

fn last_part(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Makes a file reachable for the connector, or says what is said in its place.
async fn pack(turn: TurnId, desk: Arc<Desk>, takes_media: bool, media: Media) -> Parcel {
    let words = Parcel::Text(instead_of(&media));
    if !takes_media {
        return words;
    }
    let asked = media.kind.as_deref().and_then(MediaKind::from_name);
    match (media.location, &desk.room) {
        (MediaLocation::Url(url), room) => {
            let is_hosted = room.as_ref().is_some_and(|room| room.is_hosted(&url));
            by_reference(&url, asked, media.caption, media.name, is_hosted).unwrap_or(words)
        }
        (MediaLocation::File(path), Some(room)) => {
            match room
                .upload(&path, media.name.as_deref(), None, &desk.roots())
                .await
            {
                Ok(uploaded) => Parcel::File {
                    kind: asked.unwrap_or(uploaded.kind),
                    source_url: uploaded.url,
                    caption: media.caption,
                    name: Some(uploaded.name),
                    is_public: false,
                },
                Err(reason) => {
                    tracing::warn!(turn = turn.0, %reason, "a file of the agent's was not sent");
                    words
                }
            }
        }
        (MediaLocation::File(_), None) => {
            tracing::warn!(
                turn = turn.0,
                "a file of the agent's was not sent: there is no way to upload it"
            );
            words
        }
    }
}

/// A file that stays where it is: one of the connector's own, or a picture that everybody can open.
fn by_reference(
    url: &str,
    asked: Option<MediaKind>,
    caption: String,
    name: Option<String>,
    is_hosted: bool,
) -> Option<Parcel> {
    let address = public_url(url).filter(|_| !is_hosted);
    let last = address
        .as_ref()
        .and_then(|address| address.path_segments()?.next_back());
    let kind = asked.unwrap_or_else(|| media_kind("", &last.map(percent_decode).unwrap_or_default()));
    let source_url = match address {
        _ if is_hosted => url.to_owned(),
        Some(address) if kind == MediaKind::Image => address.into(),
        _ => return None,
    };
    Some(Parcel::File {
        kind,
        source_url,
        caption,
        name,
        is_public: !is_hosted,
    })
}

impl Core {
    /// What is owed to a chat for a parcel.
    pub(super) fn plan_parcel(
        &self,
        parcel: &Parcel,
        chat: &ChatId,
        facts: &ChatFacts,
    ) -> Vec<DurableAction> {
        self.adapter(&chat.platform).attachment(parcel, chat, facts)
    }

    /// Owes a parcel to the chat of a running turn; the asker is told once it has its place there.
    pub(super) fn post(&mut self, turn: TurnId, parcel: &Parcel, asker: Posted) {
        let Some(live) = self.turns.get(&turn) else { return };
        if self.is_declined(live) {
            // Whoever waits is told by being let go.
            return;
        }
        let seq = live.seq;
        let actions = self.plan_parcel(parcel, &live.chat, &live.facts);
        let mut ops = self.to_owe(&live.key, &live.chat, &live.lane, &actions);
        for op in &mut ops {
            op.belongs_to(seq.unwrap_or(0));
        }
        self.owe(ops, Some(asker));
    }

    /// Whether a chat's platform takes attachments; yes while that is not known.
    pub(super) fn takes_media(&self, chat: &ChatId) -> bool {
        self.adapter(&chat.platform).accepts_attachments()
    }
}

#[cfg(test)]
mod tests;
