//! A way to agents of one's own: an `AgentConnector` that keeps a mailbox in memory, and a notice that is routed to it.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hermes_relay::notify::contract::{
    AgentAddress, AgentDescriptor, CONTRACT_VERSION, ConnectorFeatures, DeliveryFailure, DeliveryKind,
    DeliveryOrigin, DeliveryPayload, DeliveryReceipt, StaticCapabilities, WakeOpts, WakeReceipt,
};
use hermes_relay::notify::{AgentConnector, Delivering, NamedTarget, Notice, dispatch};

/// One agent's mailbox, with a bell.
#[derive(Debug, Default)]
struct Mailbox {
    letters: Mutex<Vec<String>>,
}

impl Mailbox {
    fn put(&self, agent_id: &str, letter: &str) -> Result<AgentAddress, DeliveryFailure> {
        let address = AgentAddress::parse(agent_id);
        if address.agent != "ops" {
            return Err(DeliveryFailure::unknown_agent(agent_id));
        }
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        letters.push(letter.to_owned());
        Ok(address)
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl AgentConnector for Mailbox {
    fn capabilities(&self) -> StaticCapabilities {
        StaticCapabilities {
            connector_type: "agent_connector",
            implementation: "mailbox",
            contract_version: CONTRACT_VERSION,
            features: ConnectorFeatures {
                deliver: true,
                wake: true,
                list_agents: true,
                agent_status: false,
                health_check: true,
                request_response: false,
            },
        }
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        vec![AgentDescriptor {
            agent_id: "ops".to_owned(),
            agent_name: Some("Operations".to_owned()),
            capabilities: None,
        }]
    }

    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        Box::pin(async move {
            let address = self.put(agent_id, &payload.text)?;
            Ok(DeliveryReceipt {
                delivered_at: now_ms(),
                session_id: address.session,
                ..DeliveryReceipt::default()
            })
        })
    }

    fn wake<'c>(&'c self, agent_id: &'c str, opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        Box::pin(async move {
            let letter = opts.context.as_deref().unwrap_or("(ring)");
            let address = self.put(agent_id, letter)?;
            Ok(WakeReceipt {
                woken_at: now_ms(),
                woken: true,
                session_id: address.with_session(opts.session_id.as_deref()).session,
                warnings: Vec::new(),
            })
        })
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async { true })
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let targets: Vec<NamedTarget> = vec![("mailbox".to_owned(), Box::new(Mailbox::default()))];
    for address in ["ops", "ops@night-shift", "nobody"] {
        let notice = Notice {
            address: address.to_owned(),
            kind: DeliveryKind::Augment,
            text: "The disk is full.".to_owned(),
            origin: DeliveryOrigin::default(),
            wait: None,
        };
        let dispatched = dispatch(&targets, &notice).await;
        println!("{}", serde_json::to_string(&dispatched)?);
    }
    Ok(())
}
