//! The contract's checklist: one test per statement, named after it.

mod deliver;
mod descriptor;
mod envelope;
mod wake;

use hermes_relay::agent_connector::contract::{DeliveryKind, DeliveryOrigin};
use hermes_relay::agent_connector::{AgentConnector, Dispatched, NamedTarget, NoopConnector, Notice};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{command, credentials, file, hook, webhook};
use crate::support::http_stub::Stub;

/// Statements in the checklist.
const STATEMENTS: u8 = 58;

#[test]
fn no_statement_is_left_out() {
    let texts = [
        include_str!("descriptor.rs"),
        include_str!("deliver.rs"),
        include_str!("wake.rs"),
        include_str!("envelope.rs"),
    ];
    let tested = texts.iter().flat_map(|text| text.split("fn statement_").skip(1));
    let tested = tested.map(|rest| rest.split('_').next().unwrap().parse::<u8>().unwrap());
    assert_eq!(tested.collect::<Vec<_>>(), (1..=STATEMENTS).collect::<Vec<_>>());
}

/// One connector of each bundled kind that needs nothing but this process, all for the agent `cc`.
struct Bundled {
    receiver: Stub,
    folder: TempDir,
}

impl Bundled {
    async fn new() -> Self {
        Self {
            receiver: Stub::always(200, "{}").await,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A webhook with an interrupt channel.
    fn ringing(&self) -> Box<dyn AgentConnector> {
        let urls = json!({"url": self.receiver.url("/cc"), "wake_url": self.receiver.url("/wake")});
        Box::new(webhook(&urls, credentials(None, None)))
    }

    /// Those without one.
    fn silent(&self) -> [Box<dyn AgentConnector>; 3] {
        [
            Box::new(hook(&self.receiver)),
            Box::new(file(self.folder.path())),
            Box::new(command(&["cat"])),
        ]
    }

    /// All of them, and the one that reaches nobody.
    fn all(&self) -> Vec<Box<dyn AgentConnector>> {
        let noop: Box<dyn AgentConnector> = Box::new(NoopConnector);
        self.silent().into_iter().chain([self.ringing(), noop]).collect()
    }
}

pub(super) fn notice(address: &str) -> Notice {
    Notice {
        address: address.to_owned(),
        kind: DeliveryKind::Augment,
        text: "hello".to_owned(),
        origin: DeliveryOrigin::default(),
        wait: None,
    }
}

pub(super) fn named(connectors: Vec<Box<dyn AgentConnector>>) -> Vec<NamedTarget> {
    let names = (1..).map(|number| format!("c{number}"));
    names.zip(connectors).collect()
}

pub(super) fn shown(dispatched: &Dispatched) -> Value {
    serde_json::to_value(dispatched).unwrap()
}
