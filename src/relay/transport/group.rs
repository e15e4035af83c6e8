//! Bots of one's own and a connector as one transport: each has its own connection, and the relay above sees one.
//!
//! The relay is live as long as one of the members is. Frames are acknowledged to the member that brought them, by the name that
//! they get here, which holds the number of that member's connection. Ops go to the bot of their platform, else to the connector.
//! An end of one member is the end of all: somebody has to mend its settings. A platform that is a bot's and that the connector
//! declares too is the bot's: what the connector brings for it is quarantined.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::{
    FrameBody, InboundFrame, InboundReceiver, InboundSender, InterruptRequest, LinkStatus, RelayTransport,
    ResultSender, TransportFuture, inbound_channel,
};
use crate::link::{Counters, Descriptors, DormancyRefused, End, Generation, NotSent, Op, SendResult};
use crate::relay::metrics::LabelCounts;
use crate::wire::{CapabilityDescriptor, DecodeError, OpId, Undecodable};

/// What the connector is called beside the platforms of bots.
const CONNECTOR: &str = "connector";
/// Connections of one member whose numbers are remembered; acknowledgements for older ones are of no use.
const MAX_CONNECTIONS: usize = 1024;

/// Who is a member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// The bot of this platform.
    Bot(&'static str),
    /// A connector, with the platforms that are announced to it.
    Connector(Vec<String>),
}

impl MemberKind {
    fn name(&self) -> &'static str {
        match self {
            Self::Bot(platform) => platform,
            Self::Connector(_) => CONNECTOR,
        }
    }

    /// Whether it is the bot of this platform.
    fn is_bot(&self, platform: &str) -> bool {
        matches!(self, Self::Bot(own) if *own == platform)
    }
}

/// A member of a group.
struct GroupMember {
    kind: MemberKind,
    transport: Arc<dyn RelayTransport>,
    /// The numbers of its connections, the first and then the later ones, and how many came before them.
    connections: Mutex<(usize, VecDeque<Generation>)>,
}

impl GroupMember {
    /// The name of a frame: the place of its member, its connection, and the name that it had.
    fn name(&self, place: usize, generation: Generation, buffer_id: &str) -> String {
        let mut known = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, connections) = &mut *known;
        if connections.back() != Some(&generation) {
            connections.push_back(generation);
            if connections.len() > MAX_CONNECTIONS {
                connections.pop_front();
                *before += 1;
            }
        }
        let number = *before + connections.len();
        format!("{place}:{number}:{buffer_id}")
    }

    /// The connection with this number.
    fn connection(&self, number: usize) -> Option<Generation> {
        let known = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let at = number.checked_sub(known.0 + 1)?;
        known.1.get(at).copied()
    }
}

/// Several transports as one.
pub struct TransportGroup {
    members: Arc<Vec<GroupMember>>,
    status: watch::Receiver<LinkStatus>,
    sender: Mutex<Option<watch::Sender<LinkStatus>>>,
}

impl std::fmt::Debug for TransportGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.members.iter().map(|member| member.kind.name());
        f.debug_list().entries(names).finish()
    }
}

impl TransportGroup {
    /// These members.
    pub fn new(members: Vec<(MemberKind, Arc<dyn RelayTransport>)>) -> Self {
        let (sender, status) = watch::channel(LinkStatus::starting());
        let members = members.into_iter().map(|(kind, transport)| GroupMember {
            kind,
            transport,
            connections: Mutex::default(),
        });
        Self {
            members: Arc::new(members.collect()),
            status,
            sender: Mutex::new(Some(sender)),
        }
    }

    /// Who serves a platform: its bot, else the connector.
    fn member(&self, platform: Option<&str>) -> Option<&GroupMember> {
        let is_bot = |member: &&GroupMember| platform.is_some_and(|platform| member.kind.is_bot(platform));
        self.members.iter().find(is_bot).or_else(|| self.connector())
    }

    fn connector(&self) -> Option<&GroupMember> {
        let is_connector = |member: &&GroupMember| matches!(member.kind, MemberKind::Connector(_));
        self.members.iter().find(is_connector)
    }
}

impl RelayTransport for TransportGroup {
    fn connect(&self, inbound: InboundSender) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(sender) = sender else {
            return;
        };
        let group = Arc::new(GroupStatus::new(&self.members, sender));
        let forwarded = Arc::new(tokio::sync::Mutex::new((Generation::first(), 0)));
        for (place, member) in self.members.iter().enumerate() {
            let (own, received) = inbound_channel();
            let status = member.transport.status();
            member.transport.connect(own);
            let forwarding = MemberForwarder {
                members: Arc::clone(&self.members),
                place,
                inbound: inbound.clone(),
                status,
                group: Arc::clone(&group),
                forwarded: Arc::clone(&forwarded),
                counts: (None, 0),
                waiting: VecDeque::new(),
            };
            tokio::spawn(forwarding.run(received));
        }
        tokio::spawn(watch_members(group));
    }

    fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }

    fn submit(&self, op: Op, results: ResultSender) {
        match self.member(op.platform.as_deref()) {
            Some(member) => member.transport.submit(op, results),
            None => drop(results.try_send((op.id, SendResult::NotSent(NotSent::Expired)))),
        }
    }

    fn has_left(&self, op: OpId, platform: Option<&str>) -> bool {
        let member = self.member(platform);
        member.is_some_and(|member| member.transport.has_left(op, platform))
    }

    fn frames(&self) -> (LabelCounts, LabelCounts) {
        let mut counts = self.members.iter().map(|member| member.transport.frames());
        let (mut received, mut sent) = counts
            .next()
            .unwrap_or_else(|| super::FrameCounters::default().counts());
        for (more_received, more_sent) in counts {
            more_received
                .iter()
                .for_each(|(name, count)| received.add(name, count));
            more_sent.iter().for_each(|(name, count)| sent.add(name, count));
        }
        (received, sent)
    }

    fn acknowledge(&self, _generation: Generation, buffer_id: String) {
        let mut parts = buffer_id.splitn(3, ':');
        let mut number = || parts.next()?.parse::<usize>().ok();
        let (Some(place), Some(connection)) = (number(), number()) else {
            return;
        };
        let member = self.members.get(place);
        let found = member.and_then(|member| Some((member, member.connection(connection)?)));
        if let (Some((member, generation)), Some(id)) = (found, parts.next()) {
            member.transport.acknowledge(generation, id.to_owned());
        }
    }

    fn own_name<'n>(&self, buffer_id: &'n str) -> &'n str {
        buffer_id.splitn(3, ':').nth(2).unwrap_or(buffer_id)
    }

    fn bot_of(&self, buffer_id: &str) -> Option<&'static str> {
        let (place, _) = buffer_id.split_once(':')?;
        match self.members.get(place.parse::<usize>().ok()?)?.kind {
            MemberKind::Bot(platform) => Some(platform),
            MemberKind::Connector(_) => None,
        }
    }

    fn send_interrupt(&self, session_key: String, reason: Option<String>) {
        if let Some(connector) = self.connector() {
            connector.transport.send_interrupt(session_key, reason);
        }
    }

    fn offer_commands(&self, platform: &'static str, manifest: Vec<Value>) {
        if let Some(member) = self.member(Some(platform)) {
            member.transport.offer_commands(platform, manifest);
        }
    }

    fn leave_unanswered(&self, platform: &str, message_id: &str) {
        if let Some(member) = self.member(Some(platform)) {
            member.transport.leave_unanswered(platform, message_id);
        }
    }

    fn answer_privately(&self, platform: &str, message_id: &str) {
        if let Some(member) = self.member(Some(platform)) {
            member.transport.answer_privately(platform, message_id);
        }
    }

    fn expect_press(&self, platform: &str, prompt_id: &str) {
        if let Some(member) = self.member(Some(platform)) {
            member.transport.expect_press(platform, prompt_id);
        }
    }

    /// The connector buffers while the relay is away; bots' platforms do that by themselves.
    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool> {
        match self.connector() {
            Some(connector) => connector.transport.go_idle(within),
            None => Box::pin(std::future::ready(false)),
        }
    }

    /// Refuses: nobody wakes the relay for a bot.
    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        Box::pin(std::future::ready(Err(DormancyRefused::NotBuffering)))
    }

    fn wake(&self) {
        self.members.iter().for_each(|member| member.transport.wake());
    }

    fn reconnect(&self) {
        self.members
            .iter()
            .for_each(|member| member.transport.reconnect());
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        Box::pin(async move {
            let members = self.members.iter();
            join_all(members.map(|member| member.transport.disconnect(within))).await;
        })
    }
}

/// The state of the group, and those of its members that it comes from.
struct GroupStatus {
    members: Vec<(MemberKind, watch::Receiver<LinkStatus>)>,
    sender: watch::Sender<LinkStatus>,
    seen: Mutex<SeenByRelay>,
}

/// What the relay has seen of the group.
struct SeenByRelay {
    /// The number of the connection that it sees.
    generation: Generation,
    /// Platforms that were reported because the connector declares them too.
    reported: BTreeSet<&'static str>,
}

impl GroupStatus {
    fn new(members: &[GroupMember], sender: watch::Sender<LinkStatus>) -> Self {
        let members = members.iter();
        Self {
            members: members
                .map(|member| (member.kind.clone(), member.transport.status()))
                .collect(),
            sender,
            seen: Mutex::new(SeenByRelay {
                generation: Generation::first(),
                reported: BTreeSet::new(),
            }),
        }
    }

    fn generation(&self) -> Generation {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .generation
    }

    /// Publishes the state of all members as one.
    fn publish(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let statuses: Vec<(&MemberKind, LinkStatus)> = self
            .members
            .iter()
            .map(|(kind, status)| (kind, status.borrow().clone()))
            .collect();
        for platform in declared_twice(&statuses) {
            if seen.reported.insert(platform) {
                tracing::error!(
                    platform,
                    "the connector serves this platform too: the bot answers there, and what the connector brings for it is \
                     quarantined; remove the platform at the connector, or remove it from `direct`"
                );
            }
        }
        let was_live = self.sender.borrow().live.is_some();
        let is_live = statuses.iter().any(|(_, status)| status.live.is_some());
        if is_live && !was_live && self.sender.borrow().counters.handshakes > 0 {
            seen.generation = seen.generation.next();
        }
        self.sender.send_replace(together(&statuses, seen.generation));
    }
}

/// Forwards what one member brings.
struct MemberForwarder {
    members: Arc<Vec<GroupMember>>,
    place: usize,
    inbound: InboundSender,
    /// The member's state.
    status: watch::Receiver<LinkStatus>,
    group: Arc<GroupStatus>,
    /// Frames of all members that were forwarded on a connection of the group. Held while frames are forwarded, so that they keep
    /// their order.
    forwarded: Arc<tokio::sync::Mutex<(Generation, u64)>>,
    /// The member's connection, and the frames of it that were forwarded.
    counts: (Option<Generation>, u64),
    /// Interrupts whose frames were not forwarded yet.
    waiting: VecDeque<InterruptRequest>,
}

impl MemberForwarder {
    async fn run(mut self, received: InboundReceiver) {
        let InboundReceiver {
            mut frames,
            mut interrupts,
        } = received;
        loop {
            let forwarded = tokio::select! {
                batch = frames.recv() => match batch {
                    Some(batch) => self.forward(batch).await,
                    None => return,
                },
                Some(interrupt) = interrupts.recv() => {
                    self.waiting.push_back(interrupt);
                    true
                }
            };
            if !forwarded || !self.interrupt().await {
                return;
            }
        }
    }

    /// Forwards frames under names of the group; `false` if the relay is gone.
    async fn forward(&mut self, mut batch: Vec<InboundFrame>) -> bool {
        let member = &self.members[self.place];
        for frame in &mut batch {
            if self.counts.0 != Some(frame.generation) {
                self.counts = (Some(frame.generation), 0);
            }
            self.counts.1 += 1;
            self.leave_to_bot(frame);
            let id = match &mut frame.body {
                FrameBody::Message { buffer_id, .. } | FrameBody::Forward { buffer_id, .. } => buffer_id,
                FrameBody::Undecodable { first, .. } => &mut first.buffer_id,
            };
            *id = id.take().map(|id| member.name(self.place, frame.generation, &id));
        }
        // The relay learns what a platform can do before it gets a message from there.
        if self.status.has_changed().unwrap_or(false) {
            self.status.mark_unchanged();
            self.group.publish();
        }
        let mut forwarded = self.forwarded.lock().await;
        let generation = self.group.generation();
        for frame in &mut batch {
            frame.generation = generation;
        }
        if forwarded.0 != generation {
            *forwarded = (generation, 0);
        }
        forwarded.1 += batch.len() as u64;
        self.inbound.forward(batch).await.is_ok()
    }

    /// A platform is served once: what the connector brings for that of a bot is nothing that anybody can use.
    fn leave_to_bot(&self, frame: &mut InboundFrame) {
        let (platform, buffer_id) = match &mut frame.body {
            FrameBody::Message { event, buffer_id } => (event.source.platform.as_str(), buffer_id),
            FrameBody::Forward { forward, buffer_id } => (forward.platform.as_str(), buffer_id),
            FrameBody::Undecodable { .. } => return,
        };
        let is_connector = matches!(self.members[self.place].kind, MemberKind::Connector(_));
        let mut members = self.members.iter();
        let Some(bot) = members.find(|member| is_connector && member.kind.is_bot(platform)) else {
            return;
        };
        let first = Undecodable {
            kind: None,
            buffer_id: buffer_id.take(),
            error: DecodeError::OwnPlatform {
                platform: bot.kind.name(),
            },
        };
        frame.body = FrameBody::Undecodable { first, lines: 1 };
    }

    /// Forwards the interrupts whose frames were forwarded; `false` if the relay is gone.
    async fn interrupt(&mut self) -> bool {
        let (connection, forwarded) = self.counts;
        let is_due = |interrupt: &InterruptRequest| match connection {
            _ if interrupt.after == 0 => true,
            Some(generation) if generation == interrupt.generation => forwarded >= interrupt.after,
            Some(generation) => generation > interrupt.generation,
            None => false,
        };
        while let Some(interrupt) = self
            .waiting
            .iter()
            .position(is_due)
            .and_then(|at| self.waiting.remove(at))
        {
            let (generation, after) = *self.forwarded.lock().await;
            let interrupt = InterruptRequest {
                generation,
                after,
                ..interrupt
            };
            if self.inbound.interrupt(interrupt).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Publishes the state of the group whenever that of a member changes.
async fn watch_members(group: Arc<GroupStatus>) {
    let (notifier, mut news) = mpsc::channel(1);
    for (_, status) in &group.members {
        let (mut status, notifier) = (status.clone(), notifier.clone());
        tokio::spawn(async move {
            while status.changed().await.is_ok() {
                // One that waits stands for this one.
                let _ = notifier.try_send(());
            }
            let _ = notifier.send(()).await;
        });
    }
    drop(notifier);
    loop {
        group.publish();
        if news.recv().await.is_none() {
            return;
        }
    }
}

/// The platforms of bots that the connector declares as well.
fn declared_twice(statuses: &[(&MemberKind, LinkStatus)]) -> Vec<&'static str> {
    let is_declared = |platform: &str| {
        statuses.iter().any(|(kind, status)| {
            matches!(kind, MemberKind::Connector(_)) && status.descriptors.declared(platform).is_some()
        })
    };
    let bots = statuses.iter().filter_map(|(kind, _)| match kind {
        MemberKind::Bot(platform) => Some(*platform),
        MemberKind::Connector(_) => None,
    });
    bots.filter(|platform| is_declared(platform)).collect()
}

/// Platforms that a member is to describe, and nothing is known of yet.
fn undescribed<'a>(kind: &'a MemberKind, status: &LinkStatus) -> Vec<&'a str> {
    let declared = &status.descriptors;
    let expected: Vec<&str> = match kind {
        MemberKind::Bot(platform) => vec![platform],
        MemberKind::Connector(announced) => announced.iter().map(String::as_str).collect(),
    };
    let is_known = |platform: &str| match kind {
        MemberKind::Bot(_) => declared.declared(platform).is_some(),
        // What it describes first counts for the platforms that it does not describe.
        MemberKind::Connector(_) => declared.primary().is_some(),
    };
    expected
        .into_iter()
        .filter(|platform| !is_known(platform))
        .collect()
}

/// The descriptors of a member, the primary first. A platform that was not connected yet takes plain messages.
fn descriptors(kind: &MemberKind, status: &LinkStatus, bots: &[&str]) -> Vec<CapabilityDescriptor> {
    let declared = &status.descriptors;
    let unknown = undescribed(kind, status).into_iter();
    let placeholders = unknown.map(CapabilityDescriptor::placeholder);
    let known = declared.iter().map(|(_, descriptor)| descriptor);
    let known = declared.primary().into_iter().chain(known);
    let known = known.map(|descriptor| (**descriptor).clone());
    let is_own = |descriptor: &CapabilityDescriptor| match kind {
        MemberKind::Bot(platform) => descriptor.platform == *platform,
        MemberKind::Connector(_) => !bots.contains(&descriptor.platform.as_str()),
    };
    known.filter(is_own).chain(placeholders).collect()
}

/// The state of several members as one.
fn together(statuses: &[(&MemberKind, LinkStatus)], generation: Generation) -> LinkStatus {
    let is_live = statuses.iter().any(|(_, status)| status.live.is_some());
    let states = || statuses.iter().map(|(_, status)| &status.state);
    let same = states()
        .next()
        .filter(|first| states().all(|state| state == *first));
    let state = same.cloned().unwrap_or_else(|| {
        let states = statuses
            .iter()
            .map(|(kind, status)| format!("{} {}", kind.name(), status.state));
        states.collect::<Vec<_>>().join(", ")
    });
    let losses: Vec<String> = statuses
        .iter()
        .filter_map(|(kind, status)| Some(format!("{}: {}", kind.name(), status.last_loss.as_ref()?)))
        .collect();
    let bots: Vec<&str> = (statuses.iter())
        .filter(|(kind, _)| matches!(kind, MemberKind::Bot(_)))
        .map(|(kind, _)| kind.name())
        .collect();
    let declared = statuses
        .iter()
        .flat_map(|(kind, status)| descriptors(kind, status, &bots));
    let has_been_live = statuses.iter().any(|(_, status)| status.counters.handshakes > 0);
    let is_described = (statuses.iter()).any(|(_, status)| status.descriptors.primary().is_some());
    let ends = || {
        statuses
            .iter()
            .filter_map(|(kind, status)| Some((kind, status.ended.clone()?)))
    };
    let revoked = ends().find_map(|(kind, end)| match (kind, end) {
        (MemberKind::Connector(_), End::Revoked { reason }) => Some(End::Revoked {
            reason: format!("the connector has revoked this gateway ({reason})"),
        }),
        (MemberKind::Bot(_), end @ End::Revoked { .. }) => Some(end),
        (_, End::Closed) => None,
    });
    let is_closed = ends().count() == statuses.len();
    let connector = statuses
        .iter()
        .find(|(kind, _)| matches!(kind, MemberKind::Connector(_)))
        .map(|(_, status)| status);
    LinkStatus {
        live: is_live.then_some(generation),
        descriptors: if is_live || has_been_live || is_described {
            Descriptors::new(generation, declared)
        } else {
            Descriptors::default()
        },
        undescribed: (statuses.iter())
            .flat_map(|(kind, status)| undescribed(kind, status))
            .map(str::to_owned)
            .collect(),
        state,
        last_loss: (!losses.is_empty()).then(|| losses.join("; ")),
        retry_at_ms: statuses.iter().filter_map(|(_, status)| status.retry_at_ms).min(),
        ended: revoked.or(is_closed.then_some(End::Closed)),
        clock_skew_ms: connector.and_then(|connector| connector.clock_skew_ms),
        metrics: connector
            .map(|connector| connector.metrics.clone())
            .unwrap_or_default(),
        counters: statuses
            .iter()
            .fold(Counters::default(), |sum, (_, status)| sum + status.counters),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::transport::InterruptTarget;

    fn status(platform: &str, state: &str) -> LinkStatus {
        let generation = Generation::first();
        let is_live = state == "live";
        LinkStatus {
            live: is_live.then_some(generation),
            descriptors: Descriptors::new(
                generation,
                is_live.then(|| CapabilityDescriptor {
                    label: "Real".to_owned(),
                    ..CapabilityDescriptor::placeholder(platform)
                }),
            ),
            state: state.to_owned(),
            ..LinkStatus::default()
        }
    }

    /// A member whose frames a test brings.
    struct Fake {
        inbound: Mutex<Option<InboundSender>>,
        status: watch::Sender<LinkStatus>,
        has_left: bool,
    }

    impl Fake {
        fn new(has_left: bool) -> Arc<Self> {
            Arc::new(Self {
                inbound: Mutex::default(),
                status: watch::Sender::new(LinkStatus::default()),
                has_left,
            })
        }
    }

    impl RelayTransport for Fake {
        fn connect(&self, inbound: InboundSender) {
            *self.inbound.lock().unwrap() = Some(inbound);
        }
        fn status(&self) -> watch::Receiver<LinkStatus> {
            self.status.subscribe()
        }
        fn has_left(&self, _: OpId, _: Option<&str>) -> bool {
            self.has_left
        }
        fn submit(&self, _: Op, _: ResultSender) {}
        fn acknowledge(&self, _: Generation, _: String) {}
        fn send_interrupt(&self, _: String, _: Option<String>) {}
        fn go_idle(&self, _: Duration) -> TransportFuture<'_, bool> {
            Box::pin(async { false })
        }
        fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
            Box::pin(async { Ok(()) })
        }
        fn wake(&self) {}
        fn reconnect(&self) {}
        fn disconnect(&self, _: Duration) -> TransportFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    #[test]
    fn the_member_of_an_ops_platform_says_whether_it_has_left() {
        let group = TransportGroup::new(vec![
            (MemberKind::Connector(Vec::new()), Fake::new(false)),
            (MemberKind::Bot("telegram"), Fake::new(true)),
        ]);
        assert!(group.has_left(OpId(1), Some("telegram")));
        assert!(!group.has_left(OpId(1), Some("slack")) && !group.has_left(OpId(1), None));
    }

    #[test]
    fn frames_of_bots_name_their_bot() {
        let group = TransportGroup::new(vec![
            (MemberKind::Connector(Vec::new()), Fake::new(false)),
            (MemberKind::Bot("telegram"), Fake::new(false)),
        ]);
        let named = |place: usize| group.members[place].name(place, Generation::first(), "a:7");
        assert_eq!((named(0), named(1)), ("0:1:a:7".to_owned(), "1:1:a:7".to_owned()));
        for (place, bot) in [(0, None), (1, Some("telegram"))] {
            let name = named(place);
            assert_eq!((group.own_name(&name), group.bot_of(&name)), ("a:7", bot));
        }
        assert_eq!(group.bot_of("2:1:7"), None);
    }

    #[tokio::test]
    async fn an_interrupt_that_comes_first_on_a_new_connection_waits_for_no_message() {
        let (connector, bot) = (Fake::new(true), Fake::new(true));
        let group = TransportGroup::new(vec![
            (MemberKind::Connector(Vec::new()), Arc::clone(&connector) as _),
            (MemberKind::Bot("telegram"), bot),
        ]);
        let (sender, mut inbound) = inbound_channel();
        group.connect(sender);
        let own = connector.inbound.lock().unwrap().clone().unwrap();
        let first = Generation::first();
        let frame = InboundFrame {
            generation: first,
            body: FrameBody::Undecodable {
                first: Undecodable {
                    kind: None,
                    buffer_id: None,
                    error: DecodeError::OwnPlatform { platform: "telegram" },
                },
                lines: 1,
            },
            line: Arc::default(),
        };
        own.forward(vec![frame]).await.unwrap();
        inbound.frames.recv().await.unwrap();
        let interrupt = InterruptRequest {
            generation: first.next(),
            after: 0,
            target: InterruptTarget::Session("s".to_owned()),
        };
        let never_due = InterruptRequest {
            generation: first,
            after: 2,
            target: InterruptTarget::Session("its message was lost".to_owned()),
        };
        own.interrupt(never_due).await.unwrap();
        own.interrupt(interrupt.clone()).await.unwrap();
        let came = tokio::time::timeout(Duration::from_secs(10), inbound.interrupts.recv());
        let came = came.await.expect("it waits for a message").unwrap();
        assert_eq!((came.target, came.after), (interrupt.target, 1));
    }

    #[test]
    fn a_bot_that_describes_its_platform_before_it_is_live_is_described() {
        let kinds = [MemberKind::Bot("telegram"), MemberKind::Bot("discord")];
        let mut early = status("discord", "live");
        early.live = None;
        let statuses = [(&kinds[0], status("telegram", "starting")), (&kinds[1], early)];
        let both = together(&statuses, Generation::first());
        assert_eq!(both.live, None);
        let label = |platform| both.descriptors.declared(platform).unwrap().label.clone();
        assert_eq!(
            (label("telegram"), label("discord")),
            ("Relay".to_owned(), "Real".to_owned())
        );
    }

    #[test]
    fn one_live_bot_is_enough_and_an_end_ends_all() {
        let kinds = [MemberKind::Bot("telegram"), MemberKind::Bot("discord")];
        let mut statuses = [
            (&kinds[0], status("telegram", "live")),
            (&kinds[1], status("discord", "waiting")),
        ];
        let both = together(&statuses, Generation::first());
        assert_eq!(both.live, Some(Generation::first()));
        assert_eq!(both.state, "telegram live, discord waiting");
        let label = |platform| both.descriptors.declared(platform).unwrap().label.clone();
        assert_eq!(
            (label("telegram"), label("discord")),
            ("Real".to_owned(), "Relay".to_owned())
        );
        statuses[1].1.ended = Some(End::Revoked {
            reason: "token".to_owned(),
        });
        assert!(matches!(
            together(&statuses, Generation::first()).ended,
            Some(End::Revoked { .. })
        ));
        let closed = [
            (
                &kinds[0],
                LinkStatus {
                    ended: Some(End::Closed),
                    ..status("telegram", "closed")
                },
            ),
            (
                &kinds[1],
                LinkStatus {
                    ended: Some(End::Closed),
                    ..status("discord", "closed")
                },
            ),
        ];
        let both = together(&closed, Generation::first());
        assert_eq!(
            (both.live, both.state.as_str(), both.ended),
            (None, "closed", Some(End::Closed))
        );
    }

    #[test]
    fn a_connector_beside_a_bot_keeps_its_platforms_and_not_the_bots() {
        let kinds = [
            MemberKind::Connector(vec!["slack".to_owned()]),
            MemberKind::Bot("telegram"),
        ];
        let offline = [
            (&kinds[0], status("slack", "waiting")),
            (&kinds[1], status("telegram", "live")),
        ];
        let both = together(&offline, Generation::first());
        assert_eq!(both.state, "connector waiting, telegram live");
        let label = |both: &LinkStatus, platform| both.descriptors.declared(platform).unwrap().label.clone();
        assert_eq!(
            (label(&both, "slack"), label(&both, "telegram")),
            ("Relay".to_owned(), "Real".to_owned())
        );
        assert_eq!(both.undescribed, ["slack"]);
        // What the bot can do is not what platforms without a descriptor can do.
        assert_eq!(both.descriptors.primary().unwrap().platform, "slack");
        let greedy = Descriptors::new(
            Generation::first(),
            ["slack", "telegram"].map(|platform| CapabilityDescriptor {
                label: "Connector".to_owned(),
                ..CapabilityDescriptor::placeholder(platform)
            }),
        );
        let mut online = offline;
        online[0].1 = LinkStatus {
            descriptors: greedy,
            clock_skew_ms: Some(7),
            ended: Some(End::Revoked {
                reason: "left".to_owned(),
            }),
            ..status("slack", "live")
        };
        assert_eq!(declared_twice(&online), ["telegram"]);
        let both = together(&online, Generation::first());
        assert_eq!(
            (
                label(&both, "slack"),
                label(&both, "telegram"),
                both.clock_skew_ms
            ),
            ("Connector".to_owned(), "Real".to_owned(), Some(7))
        );
        assert!(both.undescribed.is_empty());
        assert_eq!(
            both.ended,
            Some(End::Revoked {
                reason: "the connector has revoked this gateway (left)".to_owned()
            })
        );
    }
}
