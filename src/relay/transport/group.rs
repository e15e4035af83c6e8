//! Several bots of one's own as one transport: each platform has its own connection, and the relay above sees one.
//!
//! The relay is live as long as one of the bots is. Frames are acknowledged to the bot that brought them, by the name that they get
//! here, which holds the number of that bot's connection. An end of one bot is the end of all: somebody has to mend its settings.

use std::collections::VecDeque;
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
use crate::wire::{CapabilityDescriptor, OpId};

/// Connections of one bot whose numbers are remembered; acknowledgements for older ones are of no use.
const MAX_CONNECTIONS: usize = 1024;

/// A bot among several.
struct PlatformBot {
    platform: &'static str,
    transport: Arc<dyn RelayTransport>,
    /// The numbers of its connections, the first and then the later ones, and how many came before them.
    connections: Mutex<(usize, VecDeque<Generation>)>,
}

impl PlatformBot {
    /// The name of a frame: its place among the bots, its connection, and the name that it had.
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

/// Several bots as one transport.
pub struct BotGroup {
    bots: Arc<Vec<PlatformBot>>,
    status: watch::Receiver<LinkStatus>,
    sender: Mutex<Option<watch::Sender<LinkStatus>>>,
}

impl std::fmt::Debug for BotGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let platforms = self.bots.iter().map(|bot| bot.platform);
        f.debug_list().entries(platforms).finish()
    }
}

impl BotGroup {
    /// These bots, by the names of their platforms.
    pub fn new(bots: Vec<(&'static str, Arc<dyn RelayTransport>)>) -> Self {
        let (sender, status) = watch::channel(LinkStatus::starting());
        let bots = bots.into_iter().map(|(platform, transport)| PlatformBot {
            platform,
            transport,
            connections: Mutex::default(),
        });
        Self {
            bots: Arc::new(bots.collect()),
            status,
            sender: Mutex::new(Some(sender)),
        }
    }

    fn bot(&self, platform: Option<&str>) -> Option<&PlatformBot> {
        self.bots.iter().find(|bot| Some(bot.platform) == platform)
    }
}

impl RelayTransport for BotGroup {
    fn connect(&self, inbound: InboundSender) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(sender) = sender else {
            return;
        };
        let generation = Arc::new(GroupGeneration(Mutex::new(Generation::first())));
        let forwarded = Arc::new(tokio::sync::Mutex::new((Generation::first(), 0)));
        for (place, bot) in self.bots.iter().enumerate() {
            let (own, received) = inbound_channel();
            bot.transport.connect(own);
            let forwarding = BotForwarder {
                bots: Arc::clone(&self.bots),
                place,
                inbound: inbound.clone(),
                generation: Arc::clone(&generation),
                forwarded: Arc::clone(&forwarded),
                counts: (None, 0),
                waiting: VecDeque::new(),
            };
            tokio::spawn(forwarding.run(received));
        }
        tokio::spawn(watch_bots(Arc::clone(&self.bots), sender, generation));
    }

    fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }

    fn submit(&self, op: Op, results: ResultSender) {
        match self.bot(op.platform.as_deref()) {
            Some(bot) => bot.transport.submit(op, results),
            None => drop(results.try_send((op.id, SendResult::NotSent(NotSent::Expired)))),
        }
    }

    fn has_left(&self, op: OpId) -> bool {
        self.bots.iter().all(|bot| bot.transport.has_left(op))
    }

    fn frames(&self) -> (LabelCounts, LabelCounts) {
        let mut counts = self.bots.iter().map(|bot| bot.transport.frames());
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
        let bot = self.bots.get(place);
        let found = bot.and_then(|bot| Some((bot, bot.connection(connection)?)));
        if let (Some((bot, generation)), Some(id)) = (found, parts.next()) {
            bot.transport.acknowledge(generation, id.to_owned());
        }
    }

    fn send_interrupt(&self, _session_key: String, _reason: Option<String>) {}

    fn offer_commands(&self, platform: &'static str, manifest: Vec<Value>) {
        if let Some(bot) = self.bot(Some(platform)) {
            bot.transport.offer_commands(platform, manifest);
        }
    }

    fn leave_unanswered(&self, platform: &str, message_id: &str) {
        if let Some(bot) = self.bot(Some(platform)) {
            bot.transport.leave_unanswered(platform, message_id);
        }
    }

    fn answer_privately(&self, platform: &str, message_id: &str) {
        if let Some(bot) = self.bot(Some(platform)) {
            bot.transport.answer_privately(platform, message_id);
        }
    }

    fn expect_press(&self, platform: &str, prompt_id: &str) {
        if let Some(bot) = self.bot(Some(platform)) {
            bot.transport.expect_press(platform, prompt_id);
        }
    }

    /// Refuses: what one of the bots cannot do, all cannot.
    fn go_idle(&self, _within: Duration) -> TransportFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        Box::pin(std::future::ready(Err(DormancyRefused::NotBuffering)))
    }

    fn wake(&self) {
        self.bots.iter().for_each(|bot| bot.transport.wake());
    }

    fn reconnect(&self) {
        self.bots.iter().for_each(|bot| bot.transport.reconnect());
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        Box::pin(async move {
            join_all(self.bots.iter().map(|bot| bot.transport.disconnect(within))).await;
        })
    }
}

/// The number of the connection that the relay sees.
#[derive(Debug)]
struct GroupGeneration(Mutex<Generation>);

impl GroupGeneration {
    fn get(&self) -> Generation {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self) {
        let mut generation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *generation = generation.next();
    }
}

/// Forwards what one bot brings.
struct BotForwarder {
    bots: Arc<Vec<PlatformBot>>,
    place: usize,
    inbound: InboundSender,
    generation: Arc<GroupGeneration>,
    /// Frames of all bots that were forwarded on a connection of the group. Held while frames are forwarded, so that they keep
    /// their order.
    forwarded: Arc<tokio::sync::Mutex<(Generation, u64)>>,
    /// The bot's connection, and the frames of it that were forwarded.
    counts: (Option<Generation>, u64),
    /// Interrupts whose frames were not forwarded yet.
    waiting: VecDeque<InterruptRequest>,
}

impl BotForwarder {
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
        let bot = &self.bots[self.place];
        for frame in &mut batch {
            if self.counts.0 != Some(frame.generation) {
                self.counts = (Some(frame.generation), 0);
            }
            self.counts.1 += 1;
            let id = match &mut frame.body {
                FrameBody::Message { buffer_id, .. } | FrameBody::Forward { buffer_id, .. } => buffer_id,
                FrameBody::Undecodable { first, .. } => &mut first.buffer_id,
            };
            *id = id.take().map(|id| bot.name(self.place, frame.generation, &id));
        }
        let mut forwarded = self.forwarded.lock().await;
        let generation = self.generation.get();
        for frame in &mut batch {
            frame.generation = generation;
        }
        if forwarded.0 != generation {
            *forwarded = (generation, 0);
        }
        forwarded.1 += batch.len() as u64;
        self.inbound.forward(batch).await.is_ok()
    }

    /// Forwards the interrupts whose frames were forwarded; `false` if the relay is gone.
    async fn interrupt(&mut self) -> bool {
        while let Some(interrupt) = self.waiting.front() {
            let is_due = match self.counts.0 {
                Some(generation) if generation == interrupt.generation => self.counts.1 >= interrupt.after,
                Some(generation) => generation > interrupt.generation,
                None => interrupt.after == 0,
            };
            let Some(interrupt) = self.waiting.pop_front_if(|_| is_due) else {
                return true;
            };
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

/// Reports the state of all bots whenever that of one changes.
async fn watch_bots(
    bots: Arc<Vec<PlatformBot>>,
    sender: watch::Sender<LinkStatus>,
    generation: Arc<GroupGeneration>,
) {
    let (notifier, mut news) = mpsc::channel(1);
    let mut watched = Vec::new();
    for bot in bots.iter() {
        let (mut status, notifier) = (bot.transport.status(), notifier.clone());
        watched.push((bot.platform, status.clone()));
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
        let statuses: Vec<(&str, LinkStatus)> = watched
            .iter()
            .map(|(platform, status)| (*platform, status.borrow().clone()))
            .collect();
        let was_live = sender.borrow().live.is_some();
        let is_live = statuses.iter().any(|(_, status)| status.live.is_some());
        if is_live && !was_live && sender.borrow().counters.handshakes > 0 {
            generation.advance();
        }
        sender.send_replace(together(&statuses, generation.get()));
        if news.recv().await.is_none() {
            return;
        }
    }
}

/// The state of several bots as one.
fn together(statuses: &[(&str, LinkStatus)], generation: Generation) -> LinkStatus {
    let is_live = statuses.iter().any(|(_, status)| status.live.is_some());
    let states = || statuses.iter().map(|(_, status)| &status.state);
    let same = states()
        .next()
        .filter(|first| states().all(|state| state == *first));
    let state = same.cloned().unwrap_or_else(|| {
        let states = statuses
            .iter()
            .map(|(platform, status)| format!("{platform} {}", status.state));
        states.collect::<Vec<_>>().join(", ")
    });
    let losses: Vec<String> = statuses
        .iter()
        .filter_map(|(platform, status)| Some(format!("{platform}: {}", status.last_loss.as_ref()?)))
        .collect();
    // A platform that was not connected yet takes plain messages.
    let descriptors = statuses.iter().map(|(platform, status)| {
        let declared = status.descriptors.declared(platform);
        declared.map_or_else(
            || CapabilityDescriptor::placeholder(platform),
            |declared| (**declared).clone(),
        )
    });
    let ends = || statuses.iter().filter_map(|(_, status)| status.ended.clone());
    let revoked = ends().find(|end| matches!(end, End::Revoked { .. }));
    let is_closed = ends().count() == statuses.len();
    LinkStatus {
        live: is_live.then_some(generation),
        descriptors: if is_live {
            Descriptors::new(generation, descriptors)
        } else {
            Descriptors::default()
        },
        state,
        last_loss: (!losses.is_empty()).then(|| losses.join("; ")),
        retry_at_ms: statuses.iter().filter_map(|(_, status)| status.retry_at_ms).min(),
        ended: revoked.or(is_closed.then_some(End::Closed)),
        counters: statuses.iter().fold(Counters::default(), |sum, (_, status)| {
            let counters = &status.counters;
            Counters {
                dials: sum.dials + counters.dials,
                handshakes: sum.handshakes + counters.handshakes,
                losses: sum.losses + counters.losses,
                acks_sent: sum.acks_sent + counters.acks_sent,
                ..sum
            }
        }),
        ..LinkStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn one_live_bot_is_enough_and_an_end_ends_all() {
        let mut statuses = [
            ("telegram", status("telegram", "live")),
            ("discord", status("discord", "waiting")),
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
                "telegram",
                LinkStatus {
                    ended: Some(End::Closed),
                    ..status("telegram", "closed")
                },
            ),
            (
                "discord",
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
}
