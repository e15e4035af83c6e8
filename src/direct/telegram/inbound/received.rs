//! Updates that were received and are not confirmed: offsets, updates in flight, albums that wait for further items.
//! Collecting an album is not about Telegram; confirming updates by an offset is.
//!
//! Telegram keeps an update until a poll asks for a later one. So nothing is stored here: only updates that the relay has
//! committed are confirmed, and after a crash Telegram sends the others again. The items of an album that is held back
//! stay unconfirmed; polls go on meanwhile, at a limited pace, and bring them again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::album::{AlbumKey, MAX_ITEMS, OpenAlbum};
use super::update::{Incoming, IncomingMessage, UpdateMeaning};

/// An album is complete when a poll that began this long after its latest item came brings no further one.
const ALBUM_QUIET: Duration = Duration::from_millis(1200);
/// Longest time that an album is held back, whatever the polls bring.
const ALBUM_CAP: Duration = Duration::from_secs(12);
/// An item that comes this long after its album was forwarded starts an album of its own.
const ALBUM_LATE: Duration = Duration::from_secs(30);
/// Albums that are held back at a time; a further one closes the oldest.
const MAX_ALBUMS: usize = 64;
/// Forwarded albums whose late items are recognised.
const MAX_CLOSED: usize = 256;
/// Shortest time between two polls that begin at the same offset. The server treats faster polls as a mistake.
const PACE: Duration = Duration::from_millis(600);

/// Updates that were received and are not confirmed.
#[derive(Debug, Default)]
pub struct ReceivedUpdates {
    /// The updates that a poll may bring again.
    known: BTreeMap<i64, UpdateState>,
    /// The items of each forwarded album, by the update id under which it was forwarded.
    forwarded_albums: BTreeMap<i64, Vec<i64>>,
    /// Acknowledged albums, by their first and last item. A poll confirms a whole album or nothing of it, so that the same
    /// album comes again after a crash.
    whole: Vec<(i64, i64)>,
    /// Albums that are held back, the oldest first.
    albums: VecDeque<OpenAlbum>,
    /// Albums that were forwarded lately, with the time, and whether they were for the agent.
    closed: VecDeque<(AlbumKey, Duration, bool)>,
    /// The offset once everything is confirmed.
    resume: Option<i64>,
    /// When the latest poll began, and at which offset.
    poll: Option<(Duration, Option<i64>)>,
    /// Whether the latest poll brought a new update.
    has_news: bool,
}

/// The progress of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpdateState {
    /// In an album that is held back.
    Held,
    /// Forwarded, not acknowledged.
    InFlight,
    /// Never acknowledged: forwarded again when it comes again.
    Wanted,
    /// The next poll may confirm it.
    Confirmed,
}

/// When to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPoll {
    /// At once.
    Now,
    /// At this time.
    At(Duration),
    /// After the next acknowledgement.
    Wait,
}

impl ReceivedUpdates {
    /// Nothing was received yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A poll begins now; returns its offset, `None` for the oldest unconfirmed update. One poll at a time.
    pub fn begin_poll(&mut self, now: Duration) -> Option<i64> {
        let offset = self.offset();
        self.poll = Some((now, offset));
        offset
    }

    /// Takes the updates of a poll; returns the updates to forward now, in order, with the albums that are complete. Known
    /// updates are skipped. A poll that failed is not reported.
    pub fn receive(&mut self, mut batch: Vec<Incoming>, now: Duration) -> Vec<Incoming> {
        batch.sort_by_key(|incoming| incoming.update_id);
        self.drop_passed(&batch);
        // The server may cut its answer short; then the answer says nothing about later updates.
        let is_whole =
            batch.last().map(|last| last.update_id) >= self.known.last_key_value().map(|(id, _)| *id);
        self.has_news = false;
        let mut ready = Vec::new();
        for incoming in batch {
            let state = self.known.get(&incoming.update_id);
            if state.is_none_or(|state| *state == UpdateState::Wanted) {
                self.has_news = true;
                self.take(incoming, now, &mut ready);
            }
        }
        if let Some((last, _)) = self.known.last_key_value() {
            self.resume = Some(last.saturating_add(1));
        }
        if let Some((began, _)) = self.poll.filter(|_| is_whole) {
            self.close_albums(now, &mut ready, |album| began >= album.latest + ALBUM_QUIET);
        }
        ready
    }

    /// Closes the albums that were held back for the longest allowed time.
    pub fn due(&mut self, now: Duration) -> Vec<Incoming> {
        let mut ready = Vec::new();
        self.close_albums(now, &mut ready, |album| now >= album.first + ALBUM_CAP);
        ready
    }

    /// When [`Self::due`] closes the next album.
    pub fn deadline(&self) -> Option<Duration> {
        self.albums.iter().map(|album| album.first + ALBUM_CAP).min()
    }

    /// The relay has committed this update; the id of an album confirms all its items.
    pub fn acknowledge(&mut self, update_id: i64) {
        let ids = self.forwarded_albums.remove(&update_id);
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

    /// No update in flight will be acknowledged any more: each is forwarded again when it comes again.
    pub fn forget(&mut self) {
        self.forwarded_albums.clear();
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

    /// Entries that are remembered.
    #[cfg(test)]
    pub(super) fn known_len(&self) -> usize {
        self.known.len() + self.whole.len() + self.forwarded_albums.len()
    }

    /// Forgets the updates that the server has dropped, judged by the offset of the poll and the updates that it brought.
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
            // Every id is below the offset: the ids have started over, and the server has none of the earlier updates. Ids
            // start over after a quiet week, so a known id that comes again is a repeat.
            Some(last) if last < offset => self.known.retain(|id, _| brought(id)),
            last => self.known.retain(|id, state| match state {
                UpdateState::Confirmed => *id >= offset || brought(id),
                UpdateState::Wanted => brought(id) || last.is_some_and(|last| *id > last),
                UpdateState::Held | UpdateState::InFlight => true,
            }),
        }
        self.whole.retain(|(first, _)| self.known.contains_key(first));
    }

    fn take(&mut self, incoming: Incoming, now: Duration, ready: &mut Vec<Incoming>) {
        let update_id = incoming.update_id;
        let UpdateMeaning::Message(message) = incoming.meaning else {
            return self.forward(incoming, ready);
        };
        let key = message.album.clone().map(|album| (message.chat_id, album));
        // A further message of the same author ends the album, and so does an edit of one of its items; an edit of another message
        // does not.
        self.close_albums(now, ready, |album| {
            album.key.0 == message.chat_id
                && album.sender == message.sender
                && Some(&album.key) != key.as_ref()
                && (!message.is_edit() || album.has(message.message_id))
        });
        match key {
            Some(key) => self.take_item(key, update_id, *message, now, ready),
            None => self.forward(
                Incoming {
                    update_id,
                    meaning: UpdateMeaning::Message(message),
                },
                ready,
            ),
        }
    }

    /// Takes an item of an album: held back, or forwarded as a message if the album is closed.
    fn take_item(
        &mut self,
        key: AlbumKey,
        update_id: i64,
        item: IncomingMessage,
        now: Duration,
        ready: &mut Vec<Incoming>,
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
            return self.forward(Incoming { update_id, meaning }, ready);
        }
        self.known.insert(update_id, UpdateState::Held);
        let at = if let Some(at) = self.albums.iter().position(|album| album.key == key) {
            at
        } else {
            if self.albums.len() >= MAX_ALBUMS
                && let Some(oldest) = self.albums.pop_front()
            {
                self.close(oldest, now, ready);
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
            self.close(full, now, ready);
        }
    }

    /// Forwards all albums that `is_closed` selects, the oldest first.
    fn close_albums(
        &mut self,
        now: Duration,
        ready: &mut Vec<Incoming>,
        is_closed: impl Fn(&OpenAlbum) -> bool,
    ) {
        while let Some(at) = self.albums.iter().position(&is_closed) {
            if let Some(album) = self.albums.remove(at) {
                self.close(album, now, ready);
            }
        }
    }

    fn close(&mut self, album: OpenAlbum, now: Duration, ready: &mut Vec<Incoming>) {
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
            // The server has dropped an update that is not known any more.
            if let Some(known) = self.known.get_mut(id) {
                *known = state;
            }
        }
        let meaning = if is_relevant {
            self.forwarded_albums.insert(update_id, ids);
            UpdateMeaning::Message(Box::new(message))
        } else {
            UpdateMeaning::Ignored(NOT_ADDRESSED)
        };
        ready.push(Incoming { update_id, meaning });
    }

    fn forward(&mut self, incoming: Incoming, ready: &mut Vec<Incoming>) {
        let state = if incoming.needs_acknowledgement() {
            UpdateState::InFlight
        } else {
            UpdateState::Confirmed
        };
        self.known.insert(incoming.update_id, state);
        ready.push(incoming);
    }
}

/// The reason in the log for an album that is not for the agent.
const NOT_ADDRESSED: &str = "an album that does not address the bot";
