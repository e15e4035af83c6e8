//! What was received and is not confirmed: offsets, what is in flight, albums.
//!
//! Telegram keeps an update until a poll asks for a later one. So nothing is stored here: after a crash Telegram sends again
//! what was not confirmed, and only what the relay has committed is confirmed. The items of an album that is held back
//! stay unconfirmed; polls go on meanwhile, at a pace, and see them again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::album::{AlbumKey, MAX_ITEMS, OpenAlbum};
use super::update::{Incoming, IncomingMessage, UpdateMeaning};

/// An album is complete when a poll that began this long after its latest item came brings no further one.
const ALBUM_QUIET: Duration = Duration::from_millis(1200);
/// An album is held back no longer than this, whatever the polls do.
const ALBUM_CAP: Duration = Duration::from_secs(12);
/// An item that comes this long after its album was handed on is a message of its own.
const ALBUM_LATE: Duration = Duration::from_secs(30);
/// Albums that are held back at a time; one more closes the oldest.
const MAX_ALBUMS: usize = 64;
/// Albums that late items are recognised of.
const MAX_CLOSED: usize = 256;
/// Between two polls that begin at the same offset. The server treats faster ones as a mistake.
const PACE: Duration = Duration::from_millis(600);

/// What was received and is not confirmed.
#[derive(Debug, Default)]
pub struct Intake {
    /// Updates that a poll may bring again.
    known: BTreeMap<i64, UpdateState>,
    /// The items of each album that was handed on, by the id under which it was.
    handed_albums: BTreeMap<i64, Vec<i64>>,
    /// Albums that were acknowledged, by their first and last item. A poll confirms all of an album or nothing of it, so
    /// that what comes again after a crash is the same album.
    whole: Vec<(i64, i64)>,
    /// Albums that are held back, the oldest first.
    albums: VecDeque<OpenAlbum>,
    /// Albums that were handed on a moment ago, when, and whether they were for the agent.
    closed: VecDeque<(AlbumKey, Duration, bool)>,
    /// The offset when everything is confirmed.
    resume: Option<i64>,
    /// When the latest poll began, and at which offset.
    poll: Option<(Duration, Option<i64>)>,
    /// Whether the latest poll brought something new.
    has_news: bool,
}

/// How far an update is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpdateState {
    /// In an album that is held back.
    Held,
    /// Handed on, not acknowledged.
    InFlight,
    /// Handed on in vain; to be handed on again when it comes again.
    Wanted,
    /// Nothing more to wait for.
    Confirmed,
}

/// When to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPoll {
    /// Now.
    Now,
    /// At this time.
    At(Duration),
    /// Not before something is acknowledged.
    Wait,
}

impl Intake {
    /// Nothing received yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A poll begins now; returns its offset, `None` for the oldest unconfirmed update. One poll at a time.
    pub fn begin_poll(&mut self, now: Duration) -> Option<i64> {
        let offset = self.offset();
        self.poll = Some((now, offset));
        offset
    }

    /// The updates that the poll brought; returns what is handed on now, in order, with the albums that are complete.
    /// Updates that are here already are skipped. A poll that failed brings nothing: it is not reported.
    pub fn receive(&mut self, mut batch: Vec<Incoming>, now: Duration) -> Vec<Incoming> {
        batch.sort_by_key(|incoming| incoming.update_id);
        self.drop_passed(&batch);
        // The server may cut its answer short; then it says nothing of what follows.
        let is_whole =
            batch.last().map(|last| last.update_id) >= self.known.last_key_value().map(|(id, _)| *id);
        self.has_news = false;
        let mut handed_on = Vec::new();
        for incoming in batch {
            let state = self.known.get(&incoming.update_id);
            if state.is_none_or(|state| *state == UpdateState::Wanted) {
                self.has_news = true;
                self.take(incoming, now, &mut handed_on);
            }
        }
        if let Some((last, _)) = self.known.last_key_value() {
            self.resume = Some(last.saturating_add(1));
        }
        if let Some((began, _)) = self.poll.filter(|_| is_whole) {
            self.close_albums(now, &mut handed_on, |album| began >= album.latest + ALBUM_QUIET);
        }
        handed_on
    }

    /// Albums that were held back for as long as can be.
    pub fn due(&mut self, now: Duration) -> Vec<Incoming> {
        let mut handed_on = Vec::new();
        self.close_albums(now, &mut handed_on, |album| now >= album.first + ALBUM_CAP);
        handed_on
    }

    /// When [`Self::due`] has something.
    pub fn deadline(&self) -> Option<Duration> {
        self.albums.iter().map(|album| album.first + ALBUM_CAP).min()
    }

    /// The relay has committed this update; an album's id confirms all its items.
    pub fn acknowledge(&mut self, update_id: i64) {
        let ids = self.handed_albums.remove(&update_id);
        if let Some([first, .., last]) = ids.as_deref() {
            self.whole.push((*first, *last));
        }
        for id in ids.unwrap_or_else(|| vec![update_id]) {
            if let Some(state) = self.known.get_mut(&id)
                && *state == UpdateState::InFlight
            {
                *state = UpdateState::Confirmed;
            }
        }
    }

    /// Nothing of what is in flight will be acknowledged: it is handed on again when it comes again.
    pub fn forget(&mut self) {
        self.handed_albums.clear();
        self.albums.clear();
        self.closed.clear();
        for state in self.known.values_mut() {
            if *state != UpdateState::Confirmed {
                *state = UpdateState::Wanted;
            }
        }
    }

    /// The offset of the next poll: the lowest unconfirmed id, else the one after the highest received; the start of an
    /// album that it would cut. `None` before the first update.
    pub fn offset(&self) -> Option<i64> {
        let unconfirmed = |(_, state): &(&i64, &UpdateState)| **state != UpdateState::Confirmed;
        let lowest = self.known.iter().find(unconfirmed).map(|(id, _)| *id);
        let mut offset = lowest.or(self.resume)?;
        while let Some((first, _)) = self
            .whole
            .iter()
            .find(|(first, last)| *first < offset && offset <= *last)
        {
            offset = *first;
        }
        Some(offset)
    }

    /// The offset of a last call that confirms more than the latest poll did; `None` when there is nothing more. A poll
    /// that got lost costs little: its updates come again, and the journal knows them.
    pub fn left_to_confirm(&self) -> Option<i64> {
        let polled = self.poll.and_then(|(_, offset)| offset);
        self.offset().filter(|offset| Some(*offset) != polled)
    }

    /// When to poll next.
    pub fn next_poll(&self, now: Duration) -> NextPoll {
        let paced = match self.poll.map(|(began, _)| began + PACE) {
            Some(at) if at > now => NextPoll::At(at),
            _ => NextPoll::Now,
        };
        let in_flight = || self.known.values().any(|state| *state == UpdateState::InFlight);
        if !self.albums.is_empty() {
            paced
        } else if in_flight() {
            NextPoll::Wait
        } else if self.has_news {
            NextPoll::Now
        } else {
            paced
        }
    }

    /// Updates that are remembered.
    #[cfg(test)]
    pub(super) fn known_len(&self) -> usize {
        self.known.len() + self.whole.len() + self.handed_albums.len()
    }

    /// Forgets the updates that the server has passed, going by the offset of the poll and what it brought.
    fn drop_passed(&mut self, batch: &[Incoming]) {
        let Some((_, Some(offset))) = self.poll else {
            return;
        };
        let brought = |id: &i64| {
            batch
                .binary_search_by_key(id, |incoming| incoming.update_id)
                .is_ok()
        };
        match batch.last().map(|last| last.update_id) {
            // The server knows nothing of the offset: the ids have started over, and what was before is gone. They start
            // over after a quiet week, so an id from before that comes again is a repeat.
            Some(last) if last < offset => self.known.retain(|id, _| brought(id)),
            last => self.known.retain(|id, state| match state {
                UpdateState::Confirmed => *id >= offset || brought(id),
                UpdateState::Wanted => brought(id) || last.is_some_and(|last| *id > last),
                UpdateState::Held | UpdateState::InFlight => true,
            }),
        }
        self.whole.retain(|(first, _)| self.known.contains_key(first));
    }

    fn take(&mut self, incoming: Incoming, now: Duration, handed_on: &mut Vec<Incoming>) {
        let update_id = incoming.update_id;
        let UpdateMeaning::Message(message) = incoming.meaning else {
            return self.hand_on(incoming, handed_on);
        };
        let key = message.album.clone().map(|album| (message.chat_id, album));
        // Whoever writes on has sent the album.
        self.close_albums(now, handed_on, |album| {
            album.key.0 == message.chat_id
                && album.sender == message.sender
                && Some(&album.key) != key.as_ref()
        });
        match key {
            Some(key) => self.take_item(key, update_id, *message, now, handed_on),
            None => self.hand_on(
                Incoming {
                    update_id,
                    meaning: UpdateMeaning::Message(message),
                },
                handed_on,
            ),
        }
    }

    /// An item of an album: held back, or a message of its own if the album is gone.
    fn take_item(
        &mut self,
        key: AlbumKey,
        update_id: i64,
        item: IncomingMessage,
        now: Duration,
        handed_on: &mut Vec<Incoming>,
    ) {
        self.closed.retain(|(_, at, _)| now < *at + ALBUM_LATE);
        let closed = self.closed.iter().find(|(closed, ..)| *closed == key);
        if let Some((_, _, was_relevant)) = closed {
            let meaning = if *was_relevant || item.is_relevant {
                UpdateMeaning::Message(Box::new(IncomingMessage {
                    is_relevant: true,
                    ..item
                }))
            } else {
                UpdateMeaning::Ignored(NOT_ADDRESSED)
            };
            return self.hand_on(Incoming { update_id, meaning }, handed_on);
        }
        self.known.insert(update_id, UpdateState::Held);
        let at = if let Some(at) = self.albums.iter().position(|album| album.key == key) {
            at
        } else {
            if self.albums.len() >= MAX_ALBUMS
                && let Some(oldest) = self.albums.pop_front()
            {
                self.close(oldest, now, handed_on);
            }
            self.albums.push_back(OpenAlbum {
                key,
                sender: item.sender,
                items: Vec::new(),
                first: now,
                latest: now,
            });
            self.albums.len() - 1
        };
        let album = &mut self.albums[at];
        if album.items.iter().any(|(known, _)| *known == update_id) {
            return;
        }
        album.items.push((update_id, item));
        album.latest = now;
        if album.items.len() >= MAX_ITEMS
            && let Some(full) = self.albums.remove(at)
        {
            self.close(full, now, handed_on);
        }
    }

    /// Hands on all albums for which `is_closed` says so, the oldest first.
    fn close_albums(
        &mut self,
        now: Duration,
        handed_on: &mut Vec<Incoming>,
        is_closed: impl Fn(&OpenAlbum) -> bool,
    ) {
        while let Some(at) = self.albums.iter().position(&is_closed) {
            if let Some(album) = self.albums.remove(at) {
                self.close(album, now, handed_on);
            }
        }
    }

    fn close(&mut self, album: OpenAlbum, now: Duration, handed_on: &mut Vec<Incoming>) {
        if self.closed.len() >= MAX_CLOSED {
            self.closed.pop_front();
        }
        let is_relevant = album.is_relevant();
        self.closed.push_back((album.key.clone(), now, is_relevant));
        let ids = album.ids();
        let (Some(update_id), Some(message)) = (ids.first().copied(), album.merge()) else {
            return;
        };
        let state = if is_relevant {
            UpdateState::InFlight
        } else {
            UpdateState::Confirmed
        };
        for id in &ids {
            // What is not known any more is gone from the server, too.
            if let Some(known) = self.known.get_mut(id) {
                *known = state;
            }
        }
        let meaning = if is_relevant {
            self.handed_albums.insert(update_id, ids);
            UpdateMeaning::Message(Box::new(message))
        } else {
            UpdateMeaning::Ignored(NOT_ADDRESSED)
        };
        handed_on.push(Incoming { update_id, meaning });
    }

    fn hand_on(&mut self, incoming: Incoming, handed_on: &mut Vec<Incoming>) {
        let state = if incoming.needs_acknowledgement() {
            UpdateState::InFlight
        } else {
            UpdateState::Confirmed
        };
        self.known.insert(incoming.update_id, state);
        handed_on.push(incoming);
    }
}

/// Why an album is not for the agent.
const NOT_ADDRESSED: &str = "an album that does not address the bot";
