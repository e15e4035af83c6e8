//! A transport without a network: two parts of one process, for tests and embedders.
//!
//! [`MemoryTransport`] is the relay's half and keeps the contract's promises: acknowledgements go back on the
//! connection that brought the delivery, an op whose connection is lost is unknown, and a new connection brings
//! again what was not acknowledged. [`MemoryConnector`] is the other half: it delivers, drops and restores
//! the connection, answers ops, and records what it saw. Nothing here looks into a message.

mod connector;
mod frames;
mod record;
mod wire_side;

pub use connector::{DeliverError, MemoryConnector};
pub use record::{Answering, Record, SeenOp};

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use self::wire_side::Wire;
use super::transport::{Delivery, LinkView, RelayTransport, Settlements, TransportFuture};
use crate::link::{DormancyRefused, Generation, Op};
use crate::wire::CapabilityDescriptor;

/// The relay's half of a connection inside one process.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use hermes_relay::{config::Settings, relay::{MemoryTransport, Relay}, wire::CapabilityDescriptor};
/// use serde_json::json;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let state = tempfile::tempdir()?;
/// let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
/// let relay = Relay::builder(Settings::embedded(state.path()))
///     .transport(Arc::new(transport))
///     .build()?;
/// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
/// let running = tokio::spawn(relay.run(async { drop(stopped.await) }));
///
/// let event = json!({
///     "text": "hello",
///     "message_id": "m1",
///     "source": {"platform": "discord", "chat_id": "c1", "chat_type": "dm", "user_id": "u1"},
/// });
/// connector.deliver_buffered("b1", event).await?;
/// let within = Duration::from_secs(10);
/// let seen = connector.wait_for(within, |seen| !seen.ops.is_empty()).await.expect("an answer");
/// assert_eq!(seen.ops[0].text(), Some("echo: hello"));
/// assert_eq!(seen.acks, ["b1"]);
///
/// drop(stop);
/// running.await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryTransport(Arc<Wire>);

impl MemoryTransport {
    /// Both halves. The connector declares these descriptors at every handshake; the first is the primary.
    pub fn pair(
        descriptors: impl IntoIterator<Item = CapabilityDescriptor>,
    ) -> (MemoryTransport, MemoryConnector) {
        let wire = Arc::new(Wire::new(descriptors.into_iter().collect()));
        (Self(Arc::clone(&wire)), MemoryConnector::new(wire))
    }
}

impl RelayTransport for MemoryTransport {
    fn connect(&self, deliveries: mpsc::Sender<Vec<Delivery>>) {
        self.0.connect(deliveries);
    }

    fn view(&self) -> watch::Receiver<LinkView> {
        self.0.view()
    }

    fn submit(&self, op: Op, settlements: Settlements) {
        self.0.submit(&op, settlements);
    }

    fn acknowledge(&self, generation: Generation, buffer_id: String) {
        self.0.acknowledge(generation, buffer_id);
    }

    fn send_interrupt(&self, session_key: String, _reason: Option<String>) {
        self.0.interrupt(session_key);
    }

    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool> {
        let answered = self.0.go_idle();
        Box::pin(async move {
            match answered {
                Some(answered) => answered,
                None => timeout(within, self.0.idle_answered()).await.unwrap_or(false),
            }
        })
    }

    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        Box::pin(std::future::ready(self.0.go_dormant()))
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn renew(&self) {
        self.0.renew();
    }

    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()> {
        Box::pin(async move {
            // Time over: what is still in flight is settled as unknown below.
            let _ = timeout(within, self.0.drained()).await;
            self.0.close();
        })
    }
}
