//! The connection to the gateway as a state machine: hello, identify or resume, heartbeats, and what follows from the end of a
//! connection. The driver owns the socket, and reports what it reads and how connections end.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::bot::INTENTS;
use super::close::{AfterGatewayClose, GatewayEnd, after_close};
use super::taken::StoredSession;
use crate::backoff::{Backoff, jitter};
use crate::direct::field;

/// Longest wait for hello, and for the answer to identify or resume.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// The first and the longest delay before the next connection.
const DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A day, for which Discord counts new sessions.
const DAY_MS: i64 = 24 * 3600 * 1000;
/// New sessions per day. Discord resets the token beyond 1,000.
const MAX_IDENTIFIES: usize = 900;
/// Shortest time between two new sessions.
const IDENTIFY_PACE: Duration = Duration::from_secs(5);
/// Connections in a row that end before their session works, after which the address for resuming is not used any more.
const MAX_UNSETTLED: u32 = 2;
/// Shortest and longest heartbeat interval that is believed.
const INTERVALS: (u64, u64) = (100, 600_000);

/// A connection that brought no event for this long may have become deaf, although it answers heartbeats. To resume costs nothing.
const DEAF_AFTER: Duration = Duration::from_secs(4 * 3600);

/// The system that the bot names to Discord.
const SYSTEM: &str = if cfg!(target_os = "macos") {
    "macos"
} else {
    "linux"
};

/// What the driver does next.
#[derive(Clone, Debug, PartialEq)]
pub enum GatewayStep {
    /// Send this payload.
    Send(Value),
    /// An event, with its number.
    Event {
        /// The number of the event in its session.
        seq: u64,
        /// The kind of the event.
        kind: String,
        /// The content of the event.
        data: Value,
    },
    /// A session has begun (`true`) or goes on (`false`). Events of the time in between are lost if it has begun.
    Ready(bool),
    /// Drop the connection without a normal close, and report its end.
    Drop,
}

/// The connection to the gateway.
#[derive(Debug)]
pub struct DiscordGateway {
    token: SecretString,
    session: Option<StoredSession>,
    /// The number of the last event that was read.
    seq: Option<u64>,
    interval: Option<Duration>,
    next_beat: Option<Duration>,
    /// Nothing came since the last heartbeat.
    is_silent: bool,
    /// When the last event came, or else when the socket was opened.
    heard_at: Duration,
    /// By when the handshake must be over.
    handshake_by: Option<Duration>,
    backoff: Backoff,
    /// Whether the session works, and connections in a row in which none did.
    is_settled: bool,
    unsettled: u32,
    /// When sessions were begun lately, in Unix milliseconds.
    identified_ms: Vec<i64>,
}

impl DiscordGateway {
    /// A connection that goes on with a stored session, if there is one. `identified_ms` says when sessions were begun lately.
    pub fn new(token: SecretString, session: Option<StoredSession>, identified_ms: Vec<i64>) -> Self {
        Self {
            token,
            session,
            seq: None,
            interval: None,
            next_beat: None,
            is_silent: false,
            heard_at: Duration::ZERO,
            handshake_by: None,
            backoff: Backoff::new(DELAYS.0, DELAYS.1),
            is_settled: false,
            unsettled: 0,
            identified_ms,
        }
    }

    /// The address for resuming, empty if it is not known; `None` to begin a session.
    pub fn resume_url(&self) -> Option<&str> {
        self.session.as_ref().map(|session| session.resume_url.as_str())
    }

    /// When sessions were begun lately, in Unix milliseconds.
    pub fn identified_ms(&self) -> &[i64] {
        &self.identified_ms
    }

    /// The session, as READY named it.
    pub fn session(&self) -> Option<&StoredSession> {
        self.session.as_ref()
    }

    /// A socket is open. `committed` is the number of the last event of the session that is committed with all before it.
    pub fn connected(&mut self, committed: u64, now: Duration) {
        self.seq = None;
        if let Some(session) = &mut self.session {
            session.seq = committed;
            self.seq = Some(committed);
        }
        (self.interval, self.next_beat, self.is_silent) = (None, None, false);
        self.heard_at = now;
        self.handshake_by = Some(now + HANDSHAKE);
    }

    /// When [`Self::timer`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        [self.next_beat, self.handshake_by].into_iter().flatten().min()
    }

    /// Whether a deadline has passed with which the connection is dropped, unless something comes first.
    pub fn gives_up(&self, now: Duration) -> bool {
        let is_due = |at: Option<Duration>| at.is_some_and(|at| now >= at);
        // Sending succeeds on a dead socket: only what does not come shows it.
        let is_deaf = now >= self.heard_at + DEAF_AFTER;
        is_due(self.handshake_by) || (self.is_silent || is_deaf) && is_due(self.next_beat)
    }

    /// A deadline has passed.
    pub fn timer(&mut self, now: Duration) -> Vec<GatewayStep> {
        if self.gives_up(now) {
            (self.handshake_by, self.next_beat) = (None, None);
            return vec![GatewayStep::Drop];
        }
        let (Some(at), Some(interval)) = (self.next_beat, self.interval) else {
            return Vec::new();
        };
        if now < at {
            return Vec::new();
        }
        self.is_silent = true;
        self.next_beat = Some(now + interval);
        vec![self.heartbeat()]
    }

    fn heartbeat(&self) -> GatewayStep {
        GatewayStep::Send(json!({ "op": 1, "d": self.seq }))
    }

    /// Takes a payload. Each is a sign of life: the answer to a heartbeat comes behind all events that were sent before it, and those
    /// of a session that is resumed may be many.
    pub fn received(&mut self, payload: &Value, now: Duration, now_ms: i64, seed: u64) -> Vec<GatewayStep> {
        let data = payload.get("d").unwrap_or(&Value::Null);
        self.is_silent = false;
        match field::integer(payload, "op") {
            Some(0) => {
                self.heard_at = now;
                self.handshake_by = self.handshake_by.map(|_| now + HANDSHAKE);
                self.event(payload, data)
            }
            Some(1) => vec![self.heartbeat()],
            Some(7) => vec![GatewayStep::Drop],
            Some(9) => {
                if data != &Value::Bool(true) {
                    self.session = None;
                }
                vec![GatewayStep::Drop]
            }
            Some(10) => self.hello(data, now, now_ms, seed),
            _ => Vec::new(),
        }
    }

    fn hello(&mut self, data: &Value, now: Duration, now_ms: i64, seed: u64) -> Vec<GatewayStep> {
        let millis = field::integer(data, "heartbeat_interval").unwrap_or(41_250);
        let millis = u64::try_from(millis)
            .unwrap_or_default()
            .clamp(INTERVALS.0, INTERVALS.1);
        let interval = Duration::from_millis(millis);
        self.interval = Some(interval);
        self.next_beat = Some(now + jitter(interval, seed).min(interval));
        self.handshake_by = Some(now + HANDSHAKE);
        let token = self.token.expose_secret();
        let payload = if let Some(session) = &self.session {
            json!({ "op": 6, "d": { "token": token, "session_id": session.id, "seq": session.seq } })
        } else {
            self.identified_ms
                .retain(|at| now_ms.saturating_sub(*at) < DAY_MS);
            self.identified_ms.push(now_ms);
            json!({ "op": 2, "d": {
                "token": token,
                "intents": INTENTS,
                "properties": { "os": SYSTEM, "browser": "hermes-relay", "device": "hermes-relay" },
            } })
        };
        vec![GatewayStep::Send(payload)]
    }

    fn event(&mut self, payload: &Value, data: &Value) -> Vec<GatewayStep> {
        let Some(seq) = field::integer(payload, "s").and_then(|seq| u64::try_from(seq).ok()) else {
            return Vec::new();
        };
        let kind = field::text(payload, "t").unwrap_or_default().to_owned();
        self.seq = Some(seq);
        let ready = match kind.as_str() {
            "READY" => {
                self.session = field::text(data, "session_id").map(|id| StoredSession {
                    id: id.to_owned(),
                    resume_url: field::text(data, "resume_gateway_url")
                        .unwrap_or_default()
                        .to_owned(),
                    seq,
                });
                Some(true)
            }
            "RESUMED" => Some(false),
            _ => None,
        };
        // The event comes first: it describes the bot, which is stored with the session.
        let mut steps = vec![GatewayStep::Event {
            seq,
            kind,
            data: data.clone(),
        }];
        if let Some(is_new) = ready {
            self.settled();
            steps.push(GatewayStep::Ready(is_new));
        }
        steps
    }

    fn settled(&mut self) {
        self.handshake_by = None;
        self.backoff = Backoff::new(DELAYS.0, DELAYS.1);
        (self.is_settled, self.unsettled) = (true, 0);
    }

    /// A connection has ended, or could not be opened: the delay before the next one, or why there is none.
    pub fn closed(&mut self, code: Option<u16>, now_ms: i64, seed: u64) -> Result<Duration, GatewayEnd> {
        (self.next_beat, self.handshake_by) = (None, None);
        match after_close(code) {
            AfterGatewayClose::End(end) => return Err(end),
            AfterGatewayClose::Identify => self.session = None,
            AfterGatewayClose::Resume => {}
        }
        self.unsettled += u32::from(!std::mem::take(&mut self.is_settled));
        if self.unsettled >= MAX_UNSETTLED
            && let Some(session) = &mut self.session
        {
            // That address may not exist any more; the session is resumed at the one that Discord names now.
            session.resume_url.clear();
        }
        let mut delay = self.backoff.next_delay();
        delay = delay / 2 + jitter(delay, seed) / 2;
        if self.session.is_none() {
            delay = delay.max(self.identify_wait(now_ms));
        }
        Ok(delay)
    }

    /// How long a new session must wait: Discord counts them.
    pub fn identify_wait(&self, now_ms: i64) -> Duration {
        let millis = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or_default());
        let recent: Vec<i64> = self
            .identified_ms
            .iter()
            .copied()
            .filter(|at| now_ms.saturating_sub(*at) < DAY_MS)
            .collect();
        let Some(last) = recent.last() else {
            return Duration::ZERO;
        };
        if recent.len() >= MAX_IDENTIFIES {
            return millis(recent[0].saturating_add(DAY_MS).saturating_sub(now_ms));
        }
        IDENTIFY_PACE.saturating_sub(millis(now_ms.saturating_sub(*last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn gateway(session: Option<StoredSession>) -> DiscordGateway {
        let mut gateway = DiscordGateway::new("T".into(), session, Vec::new());
        gateway.connected(7, Duration::ZERO);
        gateway
    }

    fn hello(gateway: &mut DiscordGateway) -> Vec<GatewayStep> {
        gateway.received(
            &json!({"op": 10, "d": {"heartbeat_interval": 1000}}),
            Duration::ZERO,
            0,
            3,
        )
    }

    fn stored() -> StoredSession {
        StoredSession {
            id: "s".to_owned(),
            resume_url: "wss://r".to_owned(),
            seq: 1,
        }
    }

    #[test]
    fn hello_is_answered_by_identify_or_resume() {
        let steps = hello(&mut gateway(None));
        let [GatewayStep::Send(identify)] = &steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!(
            (&identify["op"], &identify["d"]["intents"]),
            (&json!(2), &json!(37377))
        );
        let steps = hello(&mut gateway(Some(stored())));
        let resume = json!({"op": 6, "d": {"token": "T", "session_id": "s", "seq": 7}});
        assert_eq!(steps, [GatewayStep::Send(resume)], "from what was committed");
    }

    #[test]
    fn a_connection_on_which_nothing_comes_between_two_heartbeats_is_dropped() {
        let mut gateway = gateway(None);
        hello(&mut gateway);
        let first = gateway.deadline().unwrap();
        assert!(first <= SECOND);
        assert_eq!(
            gateway.timer(first),
            [GatewayStep::Send(json!({"op": 1, "d": null}))]
        );
        let second = first + SECOND;
        assert!(gateway.gives_up(second));
        gateway.received(&json!({"op": 11}), first, 0, 1);
        assert!(!gateway.gives_up(second));
        assert_eq!(gateway.timer(second).len(), 1);
        assert_eq!(gateway.timer(second + SECOND), [GatewayStep::Drop]);
    }

    #[test]
    fn a_connection_that_answers_heartbeats_and_brings_no_events_is_resumed_once_in_a_while() {
        let mut gateway = gateway(Some(stored()));
        let mut now = Duration::ZERO;
        let quiet = |gateway: &mut DiscordGateway, now: &mut Duration| {
            let begun = *now;
            gateway.received(
                &json!({"op": 10, "d": {"heartbeat_interval": 600_000}}),
                *now,
                0,
                3,
            );
            gateway.received(&json!({"op": 0, "s": 8, "t": "RESUMED", "d": {}}), *now, 0, 1);
            loop {
                *now = gateway.deadline().unwrap();
                if gateway.timer(*now) == [GatewayStep::Drop] {
                    let by = begun + DEAF_AFTER;
                    assert!(*now >= by && *now <= by + 600 * SECOND, "{now:?}");
                    return;
                }
                gateway.received(&json!({"op": 11}), *now, 0, 1);
            }
        };
        for _ in 0..3 {
            quiet(&mut gateway, &mut now);
            gateway.closed(None, 0, 1).unwrap();
            assert_eq!(gateway.resume_url(), Some("wss://r"));
            gateway.connected(8, now);
        }
        hello(&mut gateway);
        // An event is a proof.
        let heard = now + DEAF_AFTER;
        gateway.received(
            &json!({"op": 0, "s": 9, "t": "TYPING_START", "d": {}}),
            heard,
            0,
            1,
        );
        assert!(!gateway.gives_up(heard + SECOND));
        assert!(gateway.gives_up(heard + DEAF_AFTER));
    }

    #[test]
    fn a_long_replay_before_the_answer_to_a_heartbeat_is_neither_silence_nor_a_failed_handshake() {
        let mut gateway = gateway(Some(stored()));
        hello(&mut gateway);
        let mut now = Duration::ZERO;
        for seq in 8..100 {
            now += SECOND;
            let is_heartbeat = |step: &GatewayStep| matches!(step, GatewayStep::Send(_));
            assert!(gateway.timer(now).iter().all(is_heartbeat), "{seq}");
            gateway.received(
                &json!({"op": 0, "s": seq, "t": "TYPING_START", "d": {}}),
                now,
                0,
                1,
            );
        }
        assert!(now > HANDSHAKE);
        let steps = gateway.received(&json!({"op": 0, "s": 100, "t": "RESUMED", "d": {}}), now, 0, 1);
        assert_eq!(steps.last(), Some(&GatewayStep::Ready(false)));
    }

    #[test]
    fn an_invalid_session_is_begun_anew_and_a_reconnect_resumes() {
        let mut gateway = gateway(Some(stored()));
        assert_eq!(
            gateway.received(&json!({"op": 7}), SECOND, 0, 1),
            [GatewayStep::Drop]
        );
        assert!(gateway.resume_url().is_some());
        gateway.received(&json!({"op": 9, "d": true}), SECOND, 0, 1);
        assert!(gateway.resume_url().is_some());
        gateway.received(&json!({"op": 9, "d": false}), SECOND, 0, 1);
        assert!(gateway.resume_url().is_none());
        assert_eq!(gateway.closed(Some(4014), 0, 1), Err(GatewayEnd::Intents));
    }

    #[test]
    fn an_address_at_which_no_session_works_is_forgotten_and_the_session_is_not() {
        let mut gateway = gateway(Some(stored()));
        let resumed = json!({"op": 0, "s": 8, "t": "RESUMED", "d": {}});
        for _ in 0..5 {
            gateway.received(&resumed, SECOND, 0, 1);
            gateway.closed(None, 0, 1).unwrap();
            gateway.closed(None, 0, 1).unwrap();
            assert_eq!(gateway.resume_url(), Some("wss://r"), "once is no proof");
        }
        gateway.closed(None, 0, 1).unwrap();
        assert_eq!(gateway.resume_url(), Some(""));
        assert_eq!(gateway.session().map(|session| session.id.as_str()), Some("s"));
    }

    #[test]
    fn silence_in_the_handshake_ends_it() {
        let mut gateway = gateway(None);
        assert_eq!(gateway.timer(HANDSHAKE), [GatewayStep::Drop]);
        assert!(gateway.closed(None, 0, 1).unwrap() <= DELAYS.1);
    }

    #[test]
    fn new_sessions_are_counted_over_a_day() {
        let gateway = DiscordGateway::new("T".into(), None, (0..900).collect());
        let wait = gateway.identify_wait(1_000_000);
        assert_eq!(
            wait,
            Duration::from_millis(u64::try_from(DAY_MS).unwrap() - 1_000_000)
        );
        assert_eq!(gateway.identify_wait(2 * DAY_MS), Duration::ZERO);
    }

    /// Whatever comes in whatever order: a session is resumed from what was committed or begun anew, never both; heartbeats go on;
    /// delays are bounded, and new sessions are counted.
    #[test]
    fn a_random_walk_keeps_the_promises() {
        for seed in 1..200_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let mut gateway = DiscordGateway::new("T".into(), None, Vec::new());
            let (mut now, mut now_ms, mut committed) = (Duration::ZERO, 0_i64, 0_u64);
            let (mut is_open, mut identified, mut seq) = (false, 0_usize, 0_u64);
            for _ in 0..300 {
                let passed = random(700);
                now += Duration::from_millis(passed);
                now_ms += i64::try_from(passed).unwrap();
                if !is_open {
                    gateway.connected(committed, now);
                    is_open = true;
                }
                let had_session = gateway.session().is_some();
                let payload = match random(12) {
                    0 => json!({"op": 10, "d": {"heartbeat_interval": random(100_000)}}),
                    1 => json!({"op": 11}),
                    2 => json!({"op": 1}),
                    3 => json!({"op": 7}),
                    4 => json!({"op": 9, "d": random(2) == 0}),
                    5 => {
                        seq = 1;
                        json!({"op": 0, "s": 1, "t": "READY", "d": {"session_id": "s", "resume_gateway_url": "wss://r"}})
                    }
                    6 => json!({"op": 0, "s": seq, "t": "RESUMED", "d": {}}),
                    7 => json!([random(9)]),
                    _ => {
                        seq += 1;
                        json!({"op": 0, "s": seq, "t": "MESSAGE_CREATE", "d": {}})
                    }
                };
                let mut steps = gateway.received(&payload, now, now_ms, random(u64::MAX));
                if gateway.deadline().is_some_and(|due| now >= due) {
                    steps.extend(gateway.timer(now));
                }
                for step in &steps {
                    match step {
                        GatewayStep::Send(sent) => match sent["op"].as_u64() {
                            Some(1) => {}
                            Some(2) => {
                                assert!(!had_session, "seed {seed}: a session is not begun twice");
                                identified += 1;
                            }
                            Some(6) => {
                                assert!(had_session, "seed {seed}");
                                assert_eq!(sent["d"]["session_id"], "s");
                            }
                            other => panic!("seed {seed}: {other:?}"),
                        },
                        GatewayStep::Event { seq, .. } => committed = *seq,
                        GatewayStep::Ready(is_new) => assert_eq!(*is_new, payload["t"] == "READY"),
                        GatewayStep::Drop => is_open = false,
                    }
                }
                if random(20) == 0 || !is_open {
                    is_open = false;
                    let code = [None, Some(1000), Some(4000), Some(4007), Some(4009)]
                        [usize::try_from(random(5)).unwrap()];
                    let delay = gateway.closed(code, now_ms, random(u64::MAX)).unwrap();
                    assert!(delay <= DELAYS.1, "seed {seed}: {delay:?}");
                    assert_eq!(
                        gateway.deadline(),
                        None,
                        "seed {seed}: a closed connection has no deadline"
                    );
                    if matches!(code, Some(4007 | 4009)) {
                        assert_eq!(gateway.resume_url(), None, "seed {seed}");
                    }
                }
            }
            assert_eq!(gateway.identified_ms().len(), identified, "seed {seed}");
        }
    }
}
