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

/// A journal: the member, and how many it had before.
type Author = (usize, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Record {
    Term {
        term: u64,
        author: Author,
        is_held: bool,
    },
    /// Followers begin again from this snapshot.
    Again {
        author: Author,
        snapshot: usize,
    },
    Command(u64),
}

impl Record {
    fn author(self) -> Option<Author> {
        match self {
            Self::Term { author, .. } | Self::Again { author, .. } => Some(author),
            Self::Command(_) => None,
        }
    }
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stop,
    Continue,
    /// A person takes over at times.
    Taken,
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
    Refused(Append),
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
    /// The server was not reached since the start.
    GoOn {
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
                Answer::Refused(append)
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
    /// What it has read of the stream.
    journal: Vec<Record>,
    /// The commands that are in the journal.
    content: Vec<u64>,
    /// Commits that were made alone.
    alone: Option<u64>,
    goes_on: bool,
    journals: u64,
    has_heard: bool,
    /// Commands that the snapshot on its way has.
    copied: usize,
    /// What is appended after the snapshot.
    backlog: Option<Vec<u64>>,
    tail: Option<Tail>,
    in_flight: Option<(Append, Record)>,
    is_cut: bool,
    is_paused: bool,
    /// What arrives while it is paused.
    missed: Vec<Step>,
    requests: u64,
    wake_at: Option<u64>,
    is_reading: bool,
    /// Commands that wait to be appended.
    queue: Vec<u64>,
    catching_up: bool,
}

impl Node {
    fn holder(&self) -> Option<Author> {
        self.journal.iter().rev().find_map(|record| match record {
            Record::Term { author, is_held, .. } => Some(is_held.then_some(*author)),
            Record::Again { author, .. } => Some(Some(*author)),
            Record::Command(_) => None,
        })?
    }
}

struct World {
    kind: Kind,
    snapshots: Vec<Vec<u64>>,
    /// Commands that were acknowledged without the server.
    committed_alone: HashSet<u64>,
    takes: u64,
    resyncs: u64,
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
    fn new(kind: Kind, seed: u64) -> Self {
        let mut world = Self {
            kind,
            snapshots: Vec::new(),
            committed_alone: HashSet::new(),
            takes: 0,
            resyncs: 0,
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
                member: Member::new(LeaseTiming::default(), world.without_server(), ms(0)),
                life: 0,
                journal: Vec::new(),
                content: Vec::new(),
                alone: None,
                goes_on: false,
                journals: 0,
                has_heard: false,
                copied: 0,
                backlog: None,
                tail: None,
                in_flight: None,
                is_cut: false,
                is_paused: false,
                missed: Vec::new(),
                requests: 0,
                wake_at: None,
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

    fn without_server(&self) -> WithoutServer {
        match self.kind {
            Kind::Stop => WithoutServer::Stop,
            Kind::Continue | Kind::Taken => WithoutServer::Continue,
        }
    }

    fn author(&self, index: usize) -> Author {
        (index, self.nodes[index].journals)
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
                    self.release(index);
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
                    let record = Record::Term {
                        term,
                        author: self.author(index),
                        is_held: self.without_server() == WithoutServer::Continue,
                    };
                    self.append(index, append, record);
                }
                MemberAction::Activate => {
                    self.takeovers += 1;
                    self.nodes[index].goes_on = true;
                }
                MemberAction::Stop => {
                    self.nodes[index].goes_on = false;
                    self.restart(index, 50);
                }
                MemberAction::Decline { revision } => self.send(index, Request::Release(revision)),
                MemberAction::GoAlone => {
                    self.nodes[index].goes_on = true;
                    if let Some((_, Record::Command(command))) = self.nodes[index].in_flight.take() {
                        self.commit_alone(index, command);
                    }
                    for command in std::mem::take(&mut self.nodes[index].queue) {
                        self.commit_alone(index, command);
                    }
                }
                MemberAction::Check => self.read(index),
                MemberAction::Resync { term, expected } => {
                    self.snapshots.push(self.nodes[index].content.clone());
                    let mut tail = Tail::new(term, expected);
                    let append = tail.append();
                    self.nodes[index].copied = self.nodes[index].content.len();
                    self.nodes[index].tail = Some(tail);
                    let record = Record::Again {
                        author: self.author(index),
                        snapshot: self.snapshots.len() - 1,
                    };
                    self.append(index, append, record);
                }
                MemberAction::SetAside => {
                    let node = &mut self.nodes[index];
                    node.journals += 1;
                    (node.journal, node.content, node.alone) = (Vec::new(), Vec::new(), None);
                }
                MemberAction::Leave => self.restart(index, 300),
            }
        }
        if let Some(at) = self.nodes[index].member.deadline() {
            let at = u64::try_from(at.as_millis()).unwrap().max(self.now);
            let node = &mut self.nodes[index];
            if node.wake_at.is_none_or(|earlier| at < earlier) {
                node.wake_at = Some(at);
                let life = node.life;
                self.at(at - self.now, Step::Wake { member: index, life });
            }
        }
    }

    /// Everything is in the stream; the role is nobody's from now on.
    fn release(&mut self, index: usize) {
        let author = self.author(index);
        let node = &mut self.nodes[index];
        node.goes_on = false;
        let Some(tail) = &mut node.tail else { return };
        if node.in_flight.is_none() && node.alone.take().is_some() {
            node.journal = self.server.records[..usize::try_from(tail.last()).unwrap()].to_vec();
        }
        let append = tail.append();
        let record = Record::Term {
            term: 0,
            author,
            is_held: false,
        };
        self.send(index, Request::Append(append, record));
    }

    fn commit_alone(&mut self, index: usize, command: u64) {
        let node = &mut self.nodes[index];
        node.content.push(command);
        node.alone = Some(node.alone.unwrap_or(0) + 1);
        self.committed_alone.insert(command);
    }

    /// The snapshot is in the stream: what was committed meanwhile follows it.
    fn next_of_backlog(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let Some(backlog) = &mut node.backlog else { return };
        if backlog.is_empty() {
            node.backlog = None;
            self.resyncs += 1;
            self.event(index, MemberEvent::InSync);
            self.next_append(index);
        } else {
            let command = backlog.remove(0);
            let append = node.tail.as_mut().unwrap().append();
            self.append(index, append, Record::Command(command));
        }
    }

    /// What a journal has after these records.
    fn apply(content: &mut Vec<u64>, snapshots: &[Vec<u64>], record: Record) {
        match record {
            Record::Term { .. } => {}
            Record::Again { snapshot, .. } => content.clone_from(&snapshots[snapshot]),
            Record::Command(command) => content.push(command),
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
        let (author, without_server) = (self.author(index), self.without_server());
        let begins = self.now + after;
        let node = &mut self.nodes[index];
        node.life += 1;
        let may_go_on = node.goes_on && node.holder() == Some(author);
        let beginning = Beginning::of(without_server, node.alone.is_some(), may_go_on);
        let timing = LeaseTiming::default();
        let act_at = beginning.goes_on().then(|| ms(begins + 3000));
        node.member = if beginning.returns() {
            Member::returning(timing, without_server, ms(begins), false, act_at)
        } else {
            Member::new(timing, without_server, ms(begins))
        };
        (node.tail, node.in_flight, node.is_reading, node.catching_up) = (None, None, false, false);
        (node.has_heard, node.backlog, node.wake_at) = (false, None, None);
        node.queue.clear();
        let life = node.life;
        self.at(after, Step::Wake { member: index, life });
        if beginning == Beginning::FollowOrGoOn {
            self.at(after + 3000, Step::GoOn { member: index, life });
        }
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

    #[expect(clippy::too_many_lines, reason = "one arm for each answer")]
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
                if matches!(node.member.role(), MemberRole::Standby | MemberRole::Stopped) {
                    return;
                }
                assert!(
                    node.tail.as_mut().unwrap().stored(&append, seq),
                    "{append:?} {seq}"
                );
                if matches!(node.member.role(), MemberRole::Alone | MemberRole::Returning) {
                    if matches!(record, Record::Again { .. }) {
                        node.backlog = Some(node.content[node.copied..].to_vec());
                    }
                    return self.next_of_backlog(index);
                }
                if node.alone.take().is_some() {
                    // The first commit since it was alone.
                    node.journal = self.server.records[..usize::try_from(seq).unwrap()].to_vec();
                    Self::apply(&mut node.content, &self.snapshots, record);
                } else if node.journal.len() as u64 + 1 == seq {
                    // A read may have brought it already.
                    node.journal.push(record);
                    Self::apply(&mut node.content, &self.snapshots, record);
                }
                assert_eq!(node.journal.len() as u64, seq);
                match record {
                    Record::Term { term, .. } => self.event(index, MemberEvent::TermStored { term }),
                    Record::Again { .. } => {}
                    Record::Command(command) => {
                        // It is acknowledged only by a member that is still active.
                        if self.may_send(index) {
                            self.committed.insert(command);
                        }
                    }
                }
                self.next_append(index);
            }
            Answer::Refused(append) => {
                let is_own = |(waiting, _): &(Append, Record)| *waiting == append;
                if self.nodes[index].in_flight.as_ref().is_some_and(is_own) {
                    (self.nodes[index].in_flight, self.nodes[index].backlog) = (None, None);
                    self.event(index, MemberEvent::Fenced);
                }
            }
            Answer::Records { from, records, last } => {
                let author = self.author(index);
                let node = &mut self.nodes[index];
                node.is_reading = false;
                match node.member.role() {
                    MemberRole::Active | MemberRole::Stopped => return,
                    MemberRole::Alone | MemberRole::Returning => {
                        if from != node.journal.len() as u64 {
                            return;
                        }
                        let is_other = |record: &Record| record.author().is_some_and(|other| other != author);
                        let is_taken = records.iter().any(is_other);
                        return if is_taken {
                            self.event(index, MemberEvent::Taken);
                        } else {
                            self.event(index, MemberEvent::Unchanged { last });
                        };
                    }
                    MemberRole::Standby | MemberRole::TakingOver => {}
                }
                if from == node.journal.len() as u64 {
                    for record in &records {
                        Self::apply(&mut node.content, &self.snapshots, *record);
                    }
                    node.journal.extend(records);
                }
                let is_done = node.journal.len() as u64 == last;
                let hold = match node.holder() {
                    None => Hold::Nobody,
                    Some(holder) if holder == author => Hold::Own,
                    Some(_) => Hold::Other,
                };
                self.event(index, MemberEvent::Held(hold));
                let node = &mut self.nodes[index];
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
        match self.random.below(6) {
            5 if self.kind == Kind::Taken && self.nodes[index].member.role() == MemberRole::Standby => {
                self.takes += 1;
                self.event(index, MemberEvent::Take);
            }
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

    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    fn step(&mut self, step: Step) {
        let member = match &step {
            Step::Reply { to, life, .. } => Some((*to, *life)),
            Step::Wake { member, life }
            | Step::GoOn { member, life }
            | Step::NoAnswer { member, life, .. } => Some((*member, *life)),
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
            Step::Reply { to, answer, .. } => {
                self.nodes[to].has_heard = true;
                self.reply(to, answer);
            }
            Step::GoOn { member, .. } => {
                let without_server = self.without_server();
                let node = &mut self.nodes[member];
                if !node.has_heard {
                    let timing = LeaseTiming::default();
                    node.member = Member::returning(timing, without_server, ms(self.now), true, None);
                    self.event(member, MemberEvent::Time);
                }
            }
            Step::Wake { member, .. } => {
                self.nodes[member].wake_at = None;
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
                    let role = self.nodes[member].member.role();
                    if self.nodes[member].backlog.is_some() && self.random.below(3) == 0 {
                        (self.nodes[member].in_flight, self.nodes[member].backlog) = (None, None);
                        for command in std::mem::take(&mut self.nodes[member].queue) {
                            self.commit_alone(member, command);
                        }
                        self.event(member, MemberEvent::NotInSync);
                    } else if let Some((append, record)) = self.nodes[member].in_flight.clone() {
                        self.append(member, append, record);
                    } else if matches!(role, MemberRole::Alone | MemberRole::Returning) {
                        self.event(member, MemberEvent::NotInSync);
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
                    let node = &self.nodes[index];
                    // What comes while the stream gets the rest waits.
                    if node.member.role() == MemberRole::Alone && node.backlog.is_none() {
                        self.commit_alone(index, command);
                    } else {
                        self.nodes[index].queue.push(command);
                        self.next_append(index);
                    }
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

    /// What whoever reads the whole stream has.
    fn streamed(&self) -> Vec<u64> {
        let mut content = Vec::new();
        for record in &self.server.records {
            Self::apply(&mut content, &self.snapshots, *record);
        }
        content
    }

    fn run(mut self, seed: u64) -> Self {
        let kind = self.kind;
        while let Some(Reverse((at, number))) = self.steps.pop() {
            if at > END_MS {
                break;
            }
            self.now = at;
            let step = self.what.remove(&number).unwrap();
            self.step(step);
            let senders = (0..MEMBERS).filter(|index| self.may_send(*index)).count();
            assert!(
                senders <= 1 || self.takes > 0,
                "{kind:?} {seed}: two members may send at {at} ms"
            );
            if senders == 1 {
                self.last_active = at;
            }
        }
        assert!(
            END_MS - self.last_active < 100,
            "{kind:?} {seed}: nobody is active at the end, or more than one"
        );
        let mut stored = HashSet::new();
        for record in &self.server.records {
            let is_new = stored.insert(*record);
            let is_command = matches!(record, Record::Command(_));
            assert!(
                is_new || !is_command,
                "{kind:?} {seed}: {record:?} is there twice"
            );
        }
        let streamed = self.streamed();
        let distinct: HashSet<u64> = streamed.iter().copied().collect();
        assert_eq!(
            distinct.len(),
            streamed.len(),
            "{kind:?} {seed}: a command counts twice"
        );
        for command in &self.committed {
            assert!(distinct.contains(command), "{kind:?} {seed}: {command} is lost");
        }
        if self.takes == 0 {
            for command in &self.committed_alone {
                assert!(
                    distinct.contains(command),
                    "{kind:?} {seed}: {command} is lost, which was committed alone"
                );
            }
        }
        for node in &self.nodes {
            assert_eq!(
                node.journal[..],
                self.server.records[..node.journal.len()],
                "{kind:?} {seed}"
            );
        }
        self
    }
}

#[test]
fn whatever_is_cut_paused_or_killed_one_member_sends_and_nothing_is_lost() {
    let (mut takeovers, mut committed) = (0, 0);
    for seed in 0..200 {
        let world = World::new(Kind::Stop, seed).run(seed);
        assert!(world.committed_alone.is_empty());
        takeovers += world.takeovers;
        committed += world.committed.len();
    }
    assert!(takeovers > 400, "{takeovers}");
    assert!(committed > 20_000, "{committed}");
}

#[test]
fn a_member_that_goes_on_alone_is_the_only_one_and_the_stream_gets_all_of_it() {
    let (mut alone, mut resyncs, mut takeovers) = (0, 0, 0);
    for seed in 0..200 {
        let world = World::new(Kind::Continue, seed).run(seed);
        alone += world.committed_alone.len();
        resyncs += world.resyncs;
        takeovers += world.takeovers;
    }
    assert!(alone > 5000, "{alone}");
    assert!(resyncs > 200, "{resyncs}");
    assert!(takeovers > 400, "{takeovers}");
}

#[test]
fn a_person_may_take_over_and_what_was_in_the_stream_stays() {
    let mut takes = 0;
    for seed in 0..200 {
        takes += World::new(Kind::Taken, seed).run(seed).takes;
    }
    assert!(takes > 100, "{takes}");
}

#[test]
fn a_member_whose_commits_are_not_taken_any_more_stops_whatever_it_does() {
    let (timing, asked) = (LeaseTiming::default(), ms(0));
    let granted = MemberEvent::Granted { asked, revision: 7 };
    for is_back in [false, true] {
        let mut alone = Member::returning(timing, WithoutServer::Continue, ms(0), true, None);
        if is_back {
            let actions = alone.handle(ms(1), granted);
            assert!(actions.contains(&MemberAction::Check), "{actions:?}");
        }
        let actions = alone.handle(ms(2), MemberEvent::Abandoned);
        assert!(actions.contains(&MemberAction::Stop), "{is_back}: {actions:?}");
        assert_eq!(alone.role(), MemberRole::Stopped);
    }
    // Nobody commits yet, and what is in the journal stays.
    let mut returning = Member::returning(timing, WithoutServer::Continue, ms(0), false, None);
    returning.handle(ms(1), MemberEvent::Abandoned);
    assert_eq!(returning.role(), MemberRole::Returning);
}

#[test]
fn a_member_that_cannot_follow_gives_the_lease_back_and_asks_again() {
    let mut member = Member::new(LeaseTiming::default(), WithoutServer::Stop, ms(0));
    assert_eq!(member.handle(ms(0), MemberEvent::Time), [MemberAction::Acquire]);
    let granted = MemberEvent::Granted {
        asked: ms(0),
        revision: 7,
    };
    assert_eq!(member.handle(ms(1), granted), [MemberAction::CatchUp]);
    let store = MemberAction::StoreTerm { term: 7, expected: 3 };
    assert_eq!(member.handle(ms(2), MemberEvent::CaughtUp { last: 3 }), [store]);
    let decline = MemberAction::Decline { revision: 7 };
    assert_eq!(member.handle(ms(3), MemberEvent::CannotFollow), [decline]);
    assert_eq!(member.role(), MemberRole::Standby);
    assert_eq!(member.handle(ms(400), MemberEvent::Time), [MemberAction::Acquire]);
    assert!(member.handle(ms(401), MemberEvent::CannotFollow).is_empty());
}

#[test]
fn how_a_member_begins_depends_on_its_journal_and_its_settings() {
    for (without_server, was_alone, may_go_on, expected) in [
        (WithoutServer::Continue, false, false, Beginning::Follow),
        (WithoutServer::Continue, false, true, Beginning::FollowOrGoOn),
        (WithoutServer::Continue, true, false, Beginning::Return),
        (WithoutServer::Continue, true, true, Beginning::ReturnOrGoOn),
        (WithoutServer::Stop, false, true, Beginning::Follow),
        (WithoutServer::Stop, true, true, Beginning::Return),
    ] {
        assert_eq!(Beginning::of(without_server, was_alone, may_go_on), expected);
    }
}
