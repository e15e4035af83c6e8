//! Random walks against a server that keeps to the rules of `getUpdates`: every message is committed before it is
//! confirmed, nothing is forwarded twice without a crash, albums are whole, and polling goes on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use super::offsets::ms;
use super::*;

const TICK: Duration = Duration::from_millis(50);
const GROUP: i64 = -1001;
const LIMIT: usize = 100;

/// The server's side.
#[derive(Default)]
struct FakeQueue {
    updates: VecDeque<(i64, Value)>,
    next_id: i64,
    /// Offset and start of the poll before.
    before: Option<(Option<i64>, Duration)>,
}

impl FakeQueue {
    fn push(&mut self, mut update: Value) {
        update["update_id"] = json!(self.next_id);
        self.updates.push_back((self.next_id, update));
        self.next_id += 1;
    }

    /// Processes a poll; returns what it confirms.
    fn confirm(&mut self, offset: Option<i64>) -> Vec<Value> {
        let Some(offset) = offset.filter(|offset| *offset <= self.next_id + 10) else {
            return Vec::new();
        };
        let mut confirmed = Vec::new();
        while self.updates.front().is_some_and(|(id, _)| *id < offset) {
            confirmed.extend(self.updates.pop_front().map(|(_, update)| update));
        }
        confirmed
    }

    fn answer(&mut self, offset: Option<i64>, now: Duration) -> Vec<Value> {
        let is_hasty = self
            .before
            .is_some_and(|(before, at)| before == offset && now < at + ms(500));
        let limit = if is_hasty { 1 } else { LIMIT };
        self.updates
            .iter()
            .take(limit)
            .map(|(_, update)| update.clone())
            .collect()
    }
}

/// An album on its way.
struct Plan {
    name: String,
    sender: i64,
    left: usize,
    at: Duration,
}

struct InFlight {
    at: Duration,
    update_id: i64,
    key: String,
    tags: Vec<String>,
}

#[derive(Default)]
struct Seen {
    crashes: usize,
    forgotten: usize,
    started_over: usize,
    albums: usize,
    duplicates: usize,
    lost_answers: usize,
    confirmed: usize,
}

struct IntakeWalk {
    rng: Rng,
    now: Duration,
    server: FakeQueue,
    received: ReceivedUpdates,
    topics: TopicNames,
    plans: Vec<Plan>,
    /// A poll: when it is answered, its offset, and whether the server has processed it.
    poll: Option<(Duration, Option<i64>, bool)>,
    quiet_until: Duration,
    relay: Vec<InFlight>,
    /// What the journal has: dedupe keys, and how often each message ran.
    journal: HashSet<String>,
    ran: HashMap<String, usize>,
    /// Messages that this process has forwarded.
    forwarded: HashSet<String>,
    /// Items of each album.
    albums: HashMap<String, usize>,
    sent: usize,
    seen: Seen,
}

impl IntakeWalk {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng(seed),
            now: Duration::ZERO,
            server: FakeQueue {
                next_id: 500_000_000,
                ..FakeQueue::default()
            },
            received: ReceivedUpdates::new(),
            topics: TopicNames::new(),
            plans: Vec::new(),
            poll: None,
            quiet_until: Duration::ZERO,
            relay: Vec::new(),
            journal: HashSet::new(),
            ran: HashMap::new(),
            forwarded: HashSet::new(),
            albums: HashMap::new(),
            sent: 0,
            seen: Seen::default(),
        }
    }

    fn message(&mut self, sender: i64, fields: Value) {
        self.sent += 1;
        let base = json!({
            "message_id": self.sent, "from": { "id": sender, "first_name": "P" },
            "chat": { "id": GROUP, "type": "supergroup" },
        });
        self.server.push(json!({ "message": with(base, fields) }));
    }

    fn traffic(&mut self) {
        if self.server.updates.is_empty() && self.plans.is_empty() && self.rng.chance(10) {
            // After a quiet week the ids start over anywhere; not among those of a moment ago.
            self.seen.started_over += 1;
            let million = 1 + i64::try_from(self.rng.below(900)).unwrap();
            let thousand = i64::try_from(self.seen.started_over).unwrap();
            self.server.next_id = million * 1_000_000 + thousand * 1000;
            self.server.before = None;
        }
        let now = self.now;
        for at in (0..self.plans.len()).rev() {
            if self.plans[at].at > now {
                continue;
            }
            let plan = &mut self.plans[at];
            plan.left -= 1;
            plan.at = now + ms(50 * u64::try_from(self.rng.below(20)).unwrap());
            let (name, sender) = (plan.name.clone(), plan.sender);
            if plan.left == 0 {
                self.plans.swap_remove(at);
            }
            let tag = format!("t{}", self.sent);
            self.message(
                sender,
                json!({ "media_group_id": name, "photo": [{ "file_id": "F" }], "caption": tag }),
            );
        }
        let sender = 1 + i64::try_from(self.rng.below(4)).unwrap();
        let is_busy = self.plans.iter().any(|plan| plan.sender == sender);
        match self.rng.below(100) {
            0..10 if !is_busy => {
                let tag = format!("t{}", self.sent);
                self.message(sender, json!({ "text": tag }));
            }
            10..14 if !is_busy => {
                let name = format!("album{}", self.albums.len());
                let items = 2 + self.rng.below(4);
                self.albums.insert(name.clone(), items);
                self.plans.push(Plan {
                    name,
                    sender,
                    left: items,
                    at: now,
                });
            }
            14 => self.server.push(json!({ "message": { "text": "no chat" } })),
            15 => self.server.push(json!({ "tomorrow": {} })),
            16 => self.message(sender, json!({ "new_chat_title": "x" })),
            17 => self
                .server
                .push(json!({ "callback_query": { "id": "q", "data": "foreign" } })),
            _ => {}
        }
    }

    /// Every message that a poll confirms has run.
    fn check_confirmed(&mut self, updates: &[Value]) {
        for update in updates {
            let message = &update["message"];
            let tag = [&message["text"], &message["caption"]]
                .into_iter()
                .find_map(Value::as_str);
            if let Some(tag) = tag.filter(|tag| tag.starts_with('t')) {
                assert!(
                    self.ran.contains_key(tag),
                    "{tag} is confirmed and was never committed"
                );
                self.seen.confirmed += 1;
            }
        }
    }

    fn drive(&mut self) {
        if let Some((answered_at, offset, is_processed)) = self.poll {
            if !is_processed {
                let confirmed = self.server.confirm(offset);
                self.check_confirmed(&confirmed);
                self.poll = Some((answered_at, offset, true));
            }
            if self.now < answered_at {
                return;
            }
            if self.rng.chance(5) {
                self.seen.lost_answers += 1;
                self.poll = None;
                self.quiet_until = self.now + ms(500);
                return;
            }
            let mut updates = self.server.answer(offset, self.now);
            // A long poll waits for something to say.
            if updates.is_empty() && self.now < answered_at + Duration::from_secs(3) {
                return;
            }
            self.server.before = Some((offset, self.now));
            let turn = self.rng.below(updates.len().max(1));
            updates.rotate_left(turn);
            self.poll = None;
            let rules = Relevance {
                require_mention: false,
                ..Relevance::default()
            };
            let batch = read_with(&rules, &mut self.topics, &json!(updates));
            let forwarded = self.received.receive(batch, self.now);
            self.take(forwarded);
        } else if self.now >= self.quiet_until && self.received.next_poll(self.now) == NextPoll::Now {
            let offset = self.received.begin_poll(self.now);
            let delay = ms(50 * u64::try_from(self.rng.below(8)).unwrap());
            self.poll = Some((self.now + delay, offset, false));
        }
        if self.received.deadline().is_some_and(|at| at <= self.now) {
            let due = self.received.due(self.now);
            self.take(due);
        }
    }

    fn take(&mut self, forwarded: Vec<Incoming>) {
        for incoming in forwarded {
            if !incoming.needs_acknowledgement() {
                continue;
            }
            let (key, tags) = match &incoming.meaning {
                UpdateMeaning::Message(message) => {
                    let key = message.event["message_id"].as_str().unwrap().to_owned();
                    let text = message.event["text"].as_str().unwrap();
                    let tags: Vec<String> = text.lines().map(str::to_owned).collect();
                    if let Some(name) = &message.album {
                        assert_eq!(tags.len(), self.albums[name], "{name} is whole");
                        self.seen.albums += 1;
                    }
                    (key, tags)
                }
                _ => (format!("poison {}", incoming.update_id), Vec::new()),
            };
            for tag in &tags {
                assert!(self.forwarded.insert(tag.clone()), "{tag} is forwarded twice");
            }
            let delay = ms(50 * u64::try_from(self.rng.below(30)).unwrap());
            self.relay.push(InFlight {
                at: self.now + delay,
                update_id: incoming.update_id,
                key,
                tags,
            });
        }
    }

    fn commit(&mut self) {
        let (due, later) = std::mem::take(&mut self.relay)
            .into_iter()
            .partition(|one: &InFlight| one.at <= self.now);
        self.relay = later;
        for one in due {
            if self.journal.insert(one.key) {
                for tag in one.tags {
                    *self.ran.entry(tag).or_default() += 1;
                }
            } else {
                self.seen.duplicates += 1;
            }
            self.received.acknowledge(one.update_id);
        }
    }

    fn step(&mut self, is_calm: bool) {
        self.now += TICK;
        if !is_calm {
            self.traffic();
            if self.rng.chance(1) && self.rng.chance(40) {
                self.seen.crashes += 1;
                self.received = ReceivedUpdates::new();
                self.poll = None;
                self.relay.clear();
                self.forwarded.clear();
            }
            if self.rng.chance(1) && self.rng.chance(40) {
                self.seen.forgotten += 1;
                self.received.forget();
                self.relay.clear();
                self.forwarded.clear();
            }
        }
        self.commit();
        self.drive();
    }
}

#[test]
fn random_walks_confirm_only_what_is_committed_and_lose_nothing() {
    let mut total = Seen::default();
    for seed in 0..150 {
        let mut walk = IntakeWalk::new(seed);
        for _ in 0..1200 {
            walk.step(false);
        }
        // Those who have begun an album finish it.
        while !walk.plans.is_empty() {
            walk.now += TICK;
            walk.traffic();
            walk.commit();
            walk.drive();
        }
        for _ in 0..600 {
            walk.step(true);
        }
        assert!(walk.server.updates.is_empty(), "seed {seed}: polling goes on");
        assert!(walk.received.known_len() <= 2 * LIMIT, "seed {seed}");
        for (tag, times) in &walk.ran {
            assert_eq!(*times, 1, "seed {seed}: {tag}");
        }
        let seen = &walk.seen;
        assert_eq!(
            seen.confirmed,
            walk.ran.len(),
            "seed {seed}: every message ran and was confirmed"
        );
        total.crashes += seen.crashes;
        total.forgotten += seen.forgotten;
        total.started_over += seen.started_over;
        total.albums += seen.albums;
        total.duplicates += seen.duplicates;
        total.lost_answers += seen.lost_answers;
        total.confirmed += seen.confirmed;
    }
    // The walks get to see what they are about.
    for (what, times) in [
        ("crashes", total.crashes),
        ("forgotten", total.forgotten),
        ("started over", total.started_over),
        ("albums", total.albums),
        ("duplicates", total.duplicates),
        ("lost answers", total.lost_answers),
    ] {
        assert!(times > 100, "{what}: {times}");
    }
    assert!(total.confirmed > 5_000, "{}", total.confirmed);
}
