//! A made-up server and two members, with cuts, pauses, crashes and delays from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::time::Duration;

use super::*;

const MEMBERS: usize = 2;
/// The load and the faults end here; after it everything heals.
const FAULTS_MS: u64 = 30_000;
const END_MS: u64 = 45_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Who asked for a lease, in which life, and when by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    member: usize,
    life: u64,
    asked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Record {
    Term(u64),
    Command(u64),
}

#[derive(Clone, Debug)]
enum Request {
    Acquire(Holder),
    Renew(Holder, u64),
    Release(u64),
    Append(Append, Record),
    Read(u64),
}

#[derive(Clone, Debug)]
enum Answer {
    Lease {
        asked: Option<u64>,
        revision: u64,
    },
    Stored {
        append: Append,
        record: Record,
        seq: u64,
    },
    Refused,
    Records {
        from: u64,
        records: Vec<Record>,
        last: u64,
    },
}

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        from: usize,
        life: u64,
        request: Request,
    },
    Reply {
        to: usize,
        life: u64,
        answer: Answer,
    },
    Wake {
        member: usize,
        life: u64,
    },
    NoAnswer {
        member: usize,
        life: u64,
        number: u64,
    },
    Submit,
    Fault,
    Heal(usize),
    Resume(usize),
}

#[derive(Default)]
struct Server {
    lease: Option<(u64, Holder, u64)>,
    revisions: u64,
    records: Vec<Record>,
    ids: HashMap<String, u64>,
}

impl Server {
    fn lease(&mut self, now: u64) -> Option<(u64, Holder)> {
        self.lease.take_if(|(_, _, until)| now >= *until);
        self.lease.map(|(revision, holder, _)| (revision, holder))
    }

    fn grant(&mut self, now: u64, holder: Holder) -> Answer {
        self.revisions += 1;
        let ttl = u64::try_from(LeaseTiming::default().ttl.as_millis()).unwrap();
        self.lease = Some((self.revisions, holder, now + ttl));
        Answer::Lease {
            asked: Some(holder.asked),
            revision: self.revisions,
        }
    }

    fn handle(&mut self, now: u64, request: Request) -> Option<Answer> {
        match request {
            Request::Acquire(holder) => Some(match self.lease(now) {
                None => self.grant(now, holder),
                Some((revision, held)) => Self::held_by(revision, held, holder),
            }),
            Request::Renew(holder, revision) => Some(match self.lease(now) {
                Some((current, _)) if current == revision => self.grant(now, holder),
                Some((current, held)) => Self::held_by(current, held, holder),
                None => Answer::Lease {
                    asked: None,
                    revision: 0,
                },
            }),
            Request::Release(revision) => {
                if self.lease(now).is_some_and(|(current, _)| current == revision) {
                    self.lease = None;
                }
                None
            }
            Request::Append(append, record) => Some(if let Some(seq) = self.ids.get(&append.id) {
                Answer::Stored {
                    append,
                    record,
                    seq: *seq,
                }
            } else if append.expected == self.records.len() as u64 {
                self.records.push(record);
                let seq = self.records.len() as u64;
                self.ids.insert(append.id.clone(), seq);
                Answer::Stored { append, record, seq }
            } else {
                Answer::Refused
            }),
            Request::Read(from) => Some(Answer::Records {
                from,
                records: self
                    .records
                    .iter()
                    .skip(usize::try_from(from).unwrap())
                    .take(20)
                    .copied()
                    .collect(),
                last: self.records.len() as u64,
            }),
        }
    }

    /// The lease is somebody's; if it is the asking member's own, an answer was lost.
    fn held_by(revision: u64, held: Holder, asking: Holder) -> Answer {
        let is_own = (held.member, held.life) == (asking.member, asking.life);
        Answer::Lease {
            asked: is_own.then_some(held.asked),
            revision,
        }
    }
}

struct Node {
    member: Member,
    life: u64,
    journal: Vec<Record>,
    tail: Option<Tail>,
    in_flight: Option<(Append, Record)>,
    is_cut: bool,
    is_paused: bool,
    /// What arrives while it is paused.
    missed: Vec<Step>,
    requests: u64,
    is_reading: bool,
    /// Commands that wait to be appended.
    queue: Vec<u64>,
    catching_up: bool,
}

struct World {
    now: u64,
    random: Random,
    server: Server,
    nodes: Vec<Node>,
    steps: BinaryHeap<Reverse<(u64, u64)>>,
    what: BTreeMap<u64, Step>,
    count: u64,
    commands: u64,
    /// Commands that were acknowledged.
    committed: HashSet<u64>,
    takeovers: u64,
    last_active: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            now: 0,
            random: Random(seed),
            server: Server::default(),
            nodes: Vec::new(),
            steps: BinaryHeap::new(),
            what: BTreeMap::new(),
            count: 0,
            commands: 0,
            committed: HashSet::new(),
            takeovers: 0,
            last_active: 0,
        };
        for index in 0..MEMBERS {
            world.nodes.push(Node {
                member: Member::new(LeaseTiming::default(), ms(0)),
                life: 0,
                journal: Vec::new(),
                tail: None,
                in_flight: None,
                is_cut: false,
                is_paused: false,
                missed: Vec::new(),
                requests: 0,
                is_reading: false,
                queue: Vec::new(),
                catching_up: false,
            });
            world.at(
                0,
                Step::Wake {
                    member: index,
                    life: 0,
                },
            );
        }
        world.at(10, Step::Submit);
        world.at(500, Step::Fault);
        world
    }

    fn at(&mut self, delay: u64, step: Step) {
        self.count += 1;
        self.steps.push(Reverse((self.now + delay, self.count)));
        self.what.insert(self.count, step);
    }

    fn delay(&mut self) -> u64 {
        if self.random.below(20) == 0 {
            self.random.below(2500)
        } else {
            1 + self.random.below(20)
        }
    }

    fn send(&mut self, from: usize, request: Request) {
        let life = self.nodes[from].life;
        self.nodes[from].requests += 1;
        let number = self.nodes[from].requests;
        // The client keeps what it could not send, and may send it after the cut.
        let delay = if self.nodes[from].is_cut {
            if self.random.below(2) == 0 {
                None
            } else {
                Some(self.random.below(6000))
            }
        } else {
            Some(self.delay())
        };
        if let Some(delay) = delay {
            self.at(delay, Step::Arrive { from, life, request });
        }
        self.at(
            1000,
            Step::NoAnswer {
                member: from,
                life,
                number,
            },
        );
    }

    fn event(&mut self, index: usize, event: MemberEvent) {
        let actions = self.nodes[index].member.handle(ms(self.now), event);
        let holder = Holder {
            member: index,
            life: self.nodes[index].life,
            asked: self.now,
        };
        for action in actions {
            match action {
                MemberAction::Acquire => self.send(index, Request::Acquire(holder)),
                MemberAction::Renew { revision } => self.send(index, Request::Renew(holder, revision)),
                MemberAction::Release { revision } => {
                    self.send(index, Request::Release(revision));
                    self.restart(index, 300);
                }
                MemberAction::CatchUp => {
                    self.nodes[index].catching_up = true;
                    self.read(index);
                }
                MemberAction::StoreTerm { term, expected } => {
                    let mut tail = Tail::new(term, expected);
                    let append = tail.append();
                    self.nodes[index].tail = Some(tail);
                    self.append(index, append, Record::Term(term));
                }
                MemberAction::Activate => self.takeovers += 1,
                MemberAction::Stop => self.restart(index, 50),
            }
        }
        if let Some(at) = self.nodes[index].member.deadline() {
            let at = u64::try_from(at.as_millis()).unwrap();
            let life = self.nodes[index].life;
            self.at(at.saturating_sub(self.now), Step::Wake { member: index, life });
        }
    }

    fn append(&mut self, index: usize, append: Append, record: Record) {
        self.nodes[index].in_flight = Some((append.clone(), record));
        self.send(index, Request::Append(append, record));
    }

    fn read(&mut self, index: usize) {
        let from = self.nodes[index].journal.len() as u64;
        self.nodes[index].is_reading = true;
        self.send(index, Request::Read(from));
    }

    /// A new life with what is on the disk.
    fn restart(&mut self, index: usize, after: u64) {
        let node = &mut self.nodes[index];
        node.life += 1;
        node.member = Member::new(LeaseTiming::default(), ms(self.now + after));
        (node.tail, node.in_flight, node.is_reading, node.catching_up) = (None, None, false, false);
        node.queue.clear();
        let life = node.life;
        self.at(after, Step::Wake { member: index, life });
    }

    fn next_append(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.member.role() != MemberRole::Active || node.in_flight.is_some() || node.queue.is_empty() {
            return;
        }
        let command = node.queue.remove(0);
        let append = node.tail.as_mut().unwrap().append();
        self.append(index, append, Record::Command(command));
    }

    fn reply(&mut self, index: usize, answer: Answer) {
        match answer {
            Answer::Lease {
                asked: Some(asked),
                revision,
            } => {
                self.event(
                    index,
                    MemberEvent::Granted {
                        asked: ms(asked),
                        revision,
                    },
                );
            }
            Answer::Lease { asked: None, .. } => self.event(index, MemberEvent::Denied),
            Answer::Stored { append, record, seq } => {
                let node = &mut self.nodes[index];
                if node
                    .in_flight
                    .as_ref()
                    .is_none_or(|(waiting, _)| *waiting != append)
                {
                    return;
                }
                node.in_flight = None;
                if !matches!(node.member.role(), MemberRole::TakingOver | MemberRole::Active) {
                    return;
                }
                assert!(
                    node.tail.as_mut().unwrap().stored(&append, seq),
                    "{append:?} {seq}"
                );
                // A read may have brought it already.
                if node.journal.len() as u64 + 1 == seq {
                    node.journal.push(record);
                }
                assert_eq!(node.journal.len() as u64, seq);
                match record {
                    Record::Term(term) => self.event(index, MemberEvent::TermStored { term }),
                    Record::Command(command) => {
                        // It is acknowledged only by a member that is still active.
                        if self.may_send(index) {
                            self.committed.insert(command);
                        }
                    }
                }
                self.next_append(index);
            }
            Answer::Refused => {
                self.nodes[index].in_flight = None;
                self.event(index, MemberEvent::Fenced);
            }
            Answer::Records { from, records, last } => {
                let node = &mut self.nodes[index];
                node.is_reading = false;
                if matches!(node.member.role(), MemberRole::Active | MemberRole::Stopped) {
                    return;
                }
                if from == node.journal.len() as u64 {
                    node.journal.extend(records);
                }
                let is_done = node.journal.len() as u64 == last;
                if node.catching_up && is_done {
                    node.catching_up = false;
                    self.event(index, MemberEvent::CaughtUp { last });
                } else if self.nodes[index].catching_up {
                    self.read(index);
                }
            }
        }
    }

    fn may_send(&self, index: usize) -> bool {
        let until = self.nodes[index].member.active_until();
        until.is_some_and(|until| ms(self.now) < until)
    }

    fn fault(&mut self) {
        let index = usize::try_from(self.random.below(MEMBERS as u64)).unwrap();
        let time = self.random.below(7000);
        match self.random.below(5) {
            0 => {
                self.nodes[index].is_cut = true;
                self.at(time, Step::Heal(index));
            }
            1 | 2 => {
                self.nodes[index].is_paused = true;
                self.at(time, Step::Resume(index));
            }
            3 => self.restart(index, time / 4),
            _ => self.event(index, MemberEvent::HandOver),
        }
    }

    fn step(&mut self, step: Step) {
        let member = match &step {
            Step::Reply { to, life, .. } => Some((*to, *life)),
            Step::Wake { member, life } | Step::NoAnswer { member, life, .. } => Some((*member, *life)),
            Step::Arrive { .. } | Step::Submit | Step::Fault | Step::Heal(_) | Step::Resume(_) => None,
        };
        if let Some((index, life)) = member {
            if self.nodes[index].life != life {
                return;
            }
            if self.nodes[index].is_paused {
                self.nodes[index].missed.push(step);
                return;
            }
        }
        match step {
            Step::Arrive { from, life, request } => {
                let answer = self.server.handle(self.now, request);
                if let Some(answer) = answer
                    && !self.nodes[from].is_cut
                {
                    let delay = self.delay();
                    self.at(
                        delay,
                        Step::Reply {
                            to: from,
                            life,
                            answer,
                        },
                    );
                }
            }
            Step::Reply { to, answer, .. } => self.reply(to, answer),
            Step::Wake { member, .. } => {
                self.event(member, MemberEvent::Time);
                let node = &self.nodes[member];
                if node.member.role() == MemberRole::Standby && !node.is_reading {
                    self.read(member);
                }
            }
            Step::NoAnswer { member, number, .. } => {
                if self.nodes[member].requests == number || self.random.below(4) == 0 {
                    self.nodes[member].is_reading = false;
                    self.event(member, MemberEvent::NoAnswer);
                    if let Some((append, record)) = self.nodes[member].in_flight.clone() {
                        self.append(member, append, record);
                    } else if self.nodes[member].catching_up {
                        self.read(member);
                    }
                }
            }
            Step::Submit => {
                let actives: Vec<usize> = (0..MEMBERS).filter(|index| self.may_send(*index)).collect();
                for index in actives {
                    self.commands += 1;
                    let command = self.commands;
                    self.nodes[index].queue.push(command);
                    self.next_append(index);
                }
                self.at(60, Step::Submit);
            }
            Step::Fault => {
                if self.now < FAULTS_MS {
                    self.fault();
                    let delay = self.random.below(3000);
                    self.at(delay, Step::Fault);
                }
            }
            Step::Heal(index) => self.nodes[index].is_cut = false,
            Step::Resume(index) => {
                self.nodes[index].is_paused = false;
                let missed = std::mem::take(&mut self.nodes[index].missed);
                for step in missed {
                    self.step(step);
                }
            }
        }
    }

    fn run(mut self, seed: u64) -> (u64, usize) {
        while let Some(Reverse((at, number))) = self.steps.pop() {
            if at > END_MS {
                break;
            }
            self.now = at;
            let step = self.what.remove(&number).unwrap();
            self.step(step);
            let senders = (0..MEMBERS).filter(|index| self.may_send(*index)).count();
            assert!(senders <= 1, "seed {seed}: two members may send at {at} ms");
            if senders == 1 {
                self.last_active = at;
            }
        }
        assert!(
            END_MS - self.last_active < 100,
            "seed {seed}: nobody is active at the end"
        );
        let mut stored = HashSet::new();
        for record in &self.server.records {
            let is_new = stored.insert(*record);
            let is_term = matches!(record, Record::Term(_));
            assert!(is_new || is_term, "seed {seed}: {record:?} is there twice");
        }
        for command in &self.committed {
            assert!(
                self.server.records.contains(&Record::Command(*command)),
                "seed {seed}: {command} is lost"
            );
        }
        for node in &self.nodes {
            assert_eq!(
                node.journal[..],
                self.server.records[..node.journal.len()],
                "seed {seed}"
            );
        }
        (self.takeovers, self.committed.len())
    }
}

#[test]
fn whatever_is_cut_paused_or_killed_one_member_sends_and_nothing_is_lost() {
    let (mut takeovers, mut committed) = (0, 0);
    for seed in 0..200 {
        let (taken, stored) = World::new(seed).run(seed);
        takeovers += taken;
        committed += stored;
    }
    assert!(takeovers > 400, "{takeovers}");
    assert!(committed > 20_000, "{committed}");
}
