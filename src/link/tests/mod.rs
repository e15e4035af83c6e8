//! Walks on a made-up clock.

mod closing;
mod dialing;
mod dormancy;
mod handshake;
mod keepalive;
mod random;
mod refusals;
mod requests;
mod sleep;
mod watch;

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::wire::{CapabilityDescriptor, ConnectorFrame, GatewayFrame, OpId, OpResult, Outcome};

const START_UNIX_MS: i64 = 1_754_700_000_000;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn identity(platform: &str, bot_id: &str) -> HelloIdentity {
    HelloIdentity {
        platform: platform.to_owned(),
        bot_id: bot_id.to_owned(),
        command_manifest: None,
    }
}

fn descriptor(platform: &str, label: &str) -> ControlFrame {
    let line = json!({"type": "descriptor", "descriptor": {
        "contract_version": 1, "platform": platform, "label": label, "max_message_length": 2000,
        "supports_draft_streaming": false, "supports_edit": true, "supports_threads": false,
        "markdown_dialect": "plain", "len_unit": "chars",
    }});
    ControlFrame::try_from(ConnectorFrame::decode(line.to_string().as_bytes()).unwrap()).unwrap()
}

fn op(number: u64) -> Op {
    Op {
        id: OpId(u128::from(number)),
        action: RawValue::from_string(format!(r#"{{"op":"send","chat_id":"c","content":"{number}"}}"#))
            .unwrap()
            .into(),
        platform: Some("discord".into()),
        bot_id: None,
        timeout: None,
    }
}

/// A link, its clocks, and all that it said.
struct World {
    link: Link,
    now: Moment,
    said: Vec<LinkAction>,
}

impl World {
    fn new() -> Self {
        Self::with(LinkSettings::default(), vec![identity("discord", "b1")])
    }

    fn with(settings: LinkSettings, identities: Vec<HelloIdentity>) -> Self {
        Self::seeded(7, settings, identities)
    }

    fn seeded(seed: u64, settings: LinkSettings, identities: Vec<HelloIdentity>) -> Self {
        let now = Moment {
            mono: Duration::ZERO,
            unix_ms: START_UNIX_MS,
        };
        Self {
            link: Link::new(settings, identities, seed, now),
            now,
            said: Vec::new(),
        }
    }

    /// A live link with one op in flight at a time.
    fn one_at_a_time() -> Self {
        let settings = LinkSettings {
            max_in_flight: 1,
            ..LinkSettings::default()
        };
        let mut world = Self::with(settings, vec![identity("discord", "b1")]);
        world.go_live();
        world.drain();
        world
    }

    /// A link that is live.
    fn live() -> Self {
        let mut world = Self::new();
        world.go_live();
        world.drain();
        world
    }

    fn go_live(&mut self) -> Generation {
        let generation = self.dialing();
        self.link.handle_dialed(generation, None, self.now);
        self.frame(generation, descriptor("discord", "Discord"));
        assert!(self.link.is_live());
        generation
    }

    fn generation(&self) -> Generation {
        self.link.generation().expect("a generation is open")
    }

    fn dialing(&self) -> Generation {
        assert!(
            matches!(self.link.state(), LinkState::Dialing { .. }),
            "dialing, not {:?}",
            self.link.state()
        );
        self.generation()
    }

    fn frame(&mut self, generation: Generation, frame: ControlFrame) {
        self.link.handle_frame(generation, frame, self.now);
    }

    fn close(&mut self, code: u16, reason: &str) {
        let generation = self.generation();
        self.link
            .handle_closed(generation, Some((code, reason)), self.now);
    }

    fn fail_dial(&mut self, failure: DialFailure) {
        let generation = self.dialing();
        self.link.handle_dial_failed(generation, failure, None, self.now);
    }

    /// Takes what the link says, and says it.
    fn drain(&mut self) -> Vec<LinkAction> {
        let said: Vec<_> = std::iter::from_fn(|| self.link.poll_action()).collect();
        self.said.extend(said.iter().cloned());
        said
    }

    fn lines(&mut self) -> Vec<Value> {
        self.drain()
            .into_iter()
            .filter_map(|action| match action {
                LinkAction::Write { line, .. } => Some(serde_json::from_str(&line).unwrap()),
                _ => None,
            })
            .collect()
    }

    fn settled(&mut self) -> Vec<(u64, SendResult)> {
        self.drain()
            .into_iter()
            .filter_map(|action| match action {
                LinkAction::Completed { id, result } => Some((number(id), result)),
                _ => None,
            })
            .collect()
    }

    fn reports(&mut self) -> Vec<LinkEvent> {
        self.drain()
            .into_iter()
            .filter_map(|action| match action {
                LinkAction::Event(report) => Some(report),
                _ => None,
            })
            .collect()
    }

    /// The last loss told, and the wait told with it.
    fn loss(&mut self) -> (Loss, Duration) {
        self.reports()
            .into_iter()
            .rev()
            .find_map(|report| match report {
                LinkEvent::Lost { loss, retry_in } => Some((loss, retry_in)),
                _ => None,
            })
            .expect("a loss was told")
    }

    /// Both clocks run on, and no timer is served.
    fn skip(&mut self, span: Duration) {
        self.now = Moment {
            mono: self.now.mono + span,
            unix_ms: self.now.unix_ms + i64::try_from(span.as_millis()).unwrap(),
        };
    }

    /// Only the wall clock runs on.
    fn freeze(&mut self, span: Duration) {
        self.now.unix_ms += i64::try_from(span.as_millis()).unwrap();
    }

    /// Both clocks run on, and every timer on the way is served in its time.
    fn run(&mut self, span: Duration) {
        let end = self.now.mono + span;
        while let Some(timer) = self.link.poll_timeout().filter(|timer| timer.wake_at <= end) {
            assert!(timer.wake_at <= timer.due);
            self.skip(timer.wake_at.saturating_sub(self.now.mono));
            self.link.handle_timeout(self.now);
            let next = self.link.poll_timeout();
            assert!(
                next.is_none_or(|next| next.wake_at > self.now.mono),
                "a timer that spins: {next:?}"
            );
        }
        self.skip(end.saturating_sub(self.now.mono));
    }

    /// Runs until the next dial has begun.
    fn run_to_dial(&mut self) -> Generation {
        for _ in 0..10_000 {
            if matches!(self.link.state(), LinkState::Dialing { .. }) {
                return self.generation();
            }
            let timer = self.link.poll_timeout().expect("a timer is armed");
            self.run(timer.wake_at.saturating_sub(self.now.mono));
        }
        panic!("no dial came");
    }

    fn answer(&mut self, request_id: &str, result: Option<OpResult>) {
        let generation = self.generation();
        self.frame(
            generation,
            ControlFrame::OutboundResult {
                request_id: request_id.to_owned(),
                result: result.map(Box::new),
            },
        );
    }
}

fn number(id: OpId) -> u64 {
    u64::try_from(id.0).unwrap()
}

fn done() -> OpResult {
    OpResult {
        success: true,
        ..OpResult::default()
    }
}

fn unknown() -> SendResult {
    SendResult::Answered(Box::new(Outcome::Unknown))
}

fn applied() -> SendResult {
    SendResult::Answered(Box::new(Outcome::from(done())))
}

fn request_id(line: &Value) -> String {
    line["requestId"].as_str().unwrap().to_owned()
}

fn labels(link: &Link) -> Vec<(String, String)> {
    link.descriptors()
        .iter()
        .map(|(platform, descriptor)| (platform.to_owned(), descriptor.label.clone()))
        .collect()
}

fn primary(link: &Link) -> Option<&CapabilityDescriptor> {
    link.descriptors().primary().map(|primary| &**primary)
}

fn kind(line: &str) -> &'static str {
    match GatewayFrame::decode(line.as_bytes()).unwrap() {
        GatewayFrame::Hello { .. } => "hello",
        GatewayFrame::Outbound { .. } => "outbound",
        GatewayFrame::Interrupt { .. } => "interrupt",
        GatewayFrame::GoingIdle => "going_idle",
        GatewayFrame::InboundAck { .. } => "inbound_ack",
        GatewayFrame::LinkResult { .. } => "link_result",
    }
}
