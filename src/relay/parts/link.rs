//! The link, as the event loop sees it: the transport, and what it reported last.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::config::Settings;
use crate::link::{End, Generation, Op, SendResult};
use crate::relay::transport::{LinkStatus, RelayTransport};
use crate::wire::OpId;

/// The transport and its state.
pub struct RelayLink {
    transport: Arc<dyn RelayTransport>,
    results: mpsc::Sender<(OpId, SendResult)>,
    status: LinkStatus,
    /// Since when the link has its state, in Unix milliseconds.
    since_ms: i64,
    /// Whether other instances may run turns of the same sessions: a connector may have some.
    has_other_instances: bool,
    /// The platforms that the relay talks to itself.
    own_platforms: Vec<&'static str>,
}

/// What a new status changed.
pub struct LinkChange {
    /// There is a connection where there was none, none where there was one, or another one.
    pub connection: bool,
    /// The connector described its platforms anew.
    pub descriptors: bool,
}

impl RelayLink {
    pub fn new(
        transport: Arc<dyn RelayTransport>,
        results: mpsc::Sender<(OpId, SendResult)>,
        settings: &Settings,
        now_ms: i64,
    ) -> Self {
        Self {
            transport,
            results,
            status: LinkStatus::default(),
            since_ms: now_ms,
            has_other_instances: settings.has_connector(),
            own_platforms: settings.direct.platforms(),
        }
    }

    /// The transport, for what only the loop's lifecycle asks of it.
    pub fn transport(&self) -> &Arc<dyn RelayTransport> {
        &self.transport
    }

    /// The state that the transport reports.
    pub fn watch(&self) -> watch::Receiver<LinkStatus> {
        self.transport.status()
    }

    /// The state that was reported last.
    pub fn status(&self) -> &LinkStatus {
        &self.status
    }

    /// Since when the link has its state, in Unix milliseconds.
    pub fn since_ms(&self) -> i64 {
        self.since_ms
    }

    pub fn is_live(&self) -> bool {
        self.status.live.is_some()
    }

    /// Whether the connector described a platform of this name.
    pub fn describes(&self, platform: &str) -> bool {
        self.status.descriptors.iter().any(|(known, _)| known == platform)
    }

    /// Why the connector revoked this gateway, if it did.
    pub fn revoked(&self) -> Option<&str> {
        match &self.status.ended {
            Some(End::Revoked { reason }) => Some(reason),
            _ => None,
        }
    }

    /// The transport reported a new state.
    pub fn changed(&mut self, status: LinkStatus, now_ms: i64) -> LinkChange {
        if status.state != self.status.state {
            self.since_ms = now_ms;
        }
        let change = LinkChange {
            connection: status.live != self.status.live,
            descriptors: status.descriptors != self.status.descriptors
                || status.undescribed != self.status.undescribed,
        };
        self.status = status;
        change
    }

    pub fn submit(&self, op: Op) {
        self.transport.submit(op, self.results.clone());
    }

    pub fn acknowledge(&self, generation: Generation, buffer_id: String) {
        self.transport.acknowledge(generation, buffer_id);
    }

    pub fn leave_unanswered(&self, platform: &str, message_id: &str) {
        self.transport.leave_unanswered(platform, message_id);
    }

    pub fn answer_privately(&self, platform: &str, message_id: &str) {
        self.transport.answer_privately(platform, message_id);
    }

    /// Asks the connector to stop a session's turn that does not run here, unless its platform is one of ours; returns whether there is a connection to one. Never
    /// in answer to an interrupt: two instances would ask each other for ever.
    pub fn stop_elsewhere(&self, session: &str, platform: Option<&str>) -> bool {
        let is_own = platform.is_some_and(|platform| self.own_platforms.contains(&platform));
        let is_asked = self.has_other_instances && !is_own && self.is_live();
        if is_asked {
            tracing::info!(
                session,
                "asked the connector to stop a turn that does not run here"
            );
            self.transport
                .send_interrupt(session.to_owned(), Some("stop".to_owned()));
        }
        is_asked
    }

    pub fn reconnect(&self) {
        self.transport.reconnect();
    }

    pub fn wake(&self) {
        self.transport.wake();
    }

    pub async fn disconnect(&self, within: Duration) {
        self.transport.disconnect(within).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::DormancyRefused;
    use crate::relay::transport::{InboundSender, ResultSender, TransportFuture};
    use std::sync::Mutex;

    /// Notes what it is asked.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Notes {
        fn note(&self, what: &str) {
            self.0.lock().unwrap().push(what.to_owned());
        }
    }

    impl RelayTransport for Notes {
        fn connect(&self, _: InboundSender) {}
        fn status(&self) -> watch::Receiver<LinkStatus> {
            watch::channel(LinkStatus::default()).1
        }
        fn submit(&self, op: Op, _: ResultSender) {
            self.note(&format!("op {}", op.id.0));
        }
        fn acknowledge(&self, generation: Generation, buffer_id: String) {
            self.note(&format!("acknowledge {generation} {buffer_id}"));
        }
        fn send_interrupt(&self, session_key: String, _: Option<String>) {
            self.note(&format!("interrupt {session_key}"));
        }
        fn leave_unanswered(&self, platform: &str, message_id: &str) {
            self.note(&format!("unanswered {platform} {message_id}"));
        }
        fn answer_privately(&self, platform: &str, message_id: &str) {
            self.note(&format!("privately {platform} {message_id}"));
        }
        fn go_idle(&self, _: Duration) -> TransportFuture<'_, bool> {
            Box::pin(async { false })
        }
        fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
            Box::pin(async { Ok(()) })
        }
        fn wake(&self) {
            self.note("wake");
        }
        fn reconnect(&self) {
            self.note("reconnect");
        }
        fn disconnect(&self, _: Duration) -> TransportFuture<'_, ()> {
            Box::pin(async { self.note("disconnect") })
        }
    }

    #[tokio::test]
    async fn the_transport_is_asked_and_what_it_reports_is_compared() {
        let notes = Arc::new(Notes::default());
        let asked = || std::mem::take(&mut *notes.0.lock().unwrap());
        let (results, _) = mpsc::channel(1);
        let transport: Arc<dyn RelayTransport> = Arc::clone(&notes) as _;
        let settings = Settings::embedded("/nowhere");
        let mut link = RelayLink::new(transport, results, &settings, 5);
        assert!(!link.is_live() && link.revoked().is_none() && link.since_ms() == 5);
        assert!(!link.stop_elsewhere("s", None), "there is no connection");
        let first = Generation::first();
        let live = LinkStatus {
            live: Some(first),
            state: "live".to_owned(),
            ..LinkStatus::default()
        };
        let change = link.changed(live.clone(), 9);
        assert!(change.connection && !change.descriptors && link.is_live());
        assert_eq!((link.since_ms(), link.status().state.as_str()), (9, "live"));
        let change = link.changed(live.clone(), 10);
        assert!(!change.connection && link.since_ms() == 9);
        assert!(!link.describes("discord"));
        assert_eq!(link.stop_elsewhere("s", Some("slack")), settings.has_connector());
        let stops = usize::from(settings.has_connector());
        assert_eq!(asked(), vec!["interrupt s"; stops]);
        link.acknowledge(first, "b".to_owned());
        link.leave_unanswered("slack", "m");
        link.answer_privately("slack", "n");
        link.reconnect();
        link.wake();
        link.disconnect(Duration::ZERO).await;
        let wanted = [
            "acknowledge 1 b",
            "unanswered slack m",
            "privately slack n",
            "reconnect",
            "wake",
            "disconnect",
        ];
        assert_eq!(asked(), wanted);
        let reason = "gone".to_owned();
        let ended = Some(End::Revoked { reason });
        link.changed(LinkStatus { ended, ..live }, 11);
        assert_eq!(link.revoked(), Some("gone"));
    }
}
