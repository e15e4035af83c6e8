//! Every probe, in the order in which they run.

use std::future::ready;

use super::probe::Probe;
use super::{agents, here, running, talk, unit, way};

/// All probes. To add one, write its function and a line here.
pub const PROBES: &[Probe] = &[
    Probe {
        id: "settings",
        title: "Settings",
        needs: &[],
        remedy: "correct the settings file; `hermes-relay config check FILE` checks one",
        look: |case| Box::pin(ready(here::settings(case))),
    },
    Probe {
        id: "url",
        title: "Connector URL",
        needs: &["settings"],
        remedy: "set GATEWAY_RELAY_URL or `connector.url` to an address such as wss://connector.example/relay",
        look: |case| Box::pin(ready(here::url(case))),
    },
    Probe {
        id: "credentials",
        title: "Credentials",
        needs: &["settings"],
        remedy: "enrol with `hermes-relay enroll`, or set GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET_FILE",
        look: |case| Box::pin(ready(here::credentials(case))),
    },
    Probe {
        id: "state_dir",
        title: "State directory",
        needs: &["settings"],
        remedy: "give the relay a directory of its own that it may write: --state-dir DIR or HERMES_RELAY_STATE_DIR",
        look: |case| Box::pin(ready(here::state_dir(case))),
    },
    Probe {
        id: "lock",
        title: "Running relay",
        needs: &["settings"],
        remedy: "run the doctor as the user that runs the relay",
        look: |case| Box::pin(running::running(case)),
    },
    Probe {
        id: "journal",
        title: "Journal",
        needs: &["settings"],
        remedy: "keep a copy of the journal, then start once with --fresh-journal-if-corrupt",
        look: |case| Box::pin(ready(here::journal(case))),
    },
    Probe {
        id: "proxy",
        title: "Proxy",
        needs: &["url"],
        remedy: "check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY",
        look: |case| Box::pin(way::proxy(case)),
    },
    Probe {
        id: "dns",
        title: "Name resolution",
        needs: &["url", "proxy"],
        remedy: "check the host in the connector URL and this machine's DNS",
        look: |case| Box::pin(way::dns(case)),
    },
    Probe {
        id: "tcp",
        title: "TCP connection",
        needs: &["dns"],
        remedy: "check that the connector runs at that address and port, and that no firewall is in between",
        look: |case| Box::pin(way::tcp(case)),
    },
    Probe {
        id: "tls",
        title: "TLS certificate",
        needs: &["tcp"],
        remedy: "check the connector's certificate, this machine's clock, and `tls.ca_file`",
        look: |case| Box::pin(way::tls(case)),
    },
    Probe {
        id: "clock",
        title: "Clock",
        needs: &["tls"],
        remedy: "set this machine's clock, for instance with `timedatectl set-ntp true`",
        look: |case| Box::pin(way::clock(case)),
    },
    Probe {
        id: "upgrade",
        title: "WebSocket upgrade",
        needs: &["credentials", "tls"],
        remedy: "check that the URL is the connector's and that nothing in between strips WebSocket upgrades",
        look: |case| Box::pin(talk::upgrade(case)),
    },
    Probe {
        id: "token",
        title: "Token accepted",
        needs: &["upgrade"],
        remedy: "enrol again with `hermes-relay enroll`",
        look: |case| Box::pin(talk::token(case)),
    },
    Probe {
        id: "handshake",
        title: "Handshake",
        needs: &["token"],
        remedy: "check GATEWAY_RELAY_PLATFORMS against the bots that the connector holds for this gateway",
        look: |case| Box::pin(ready(talk::handshake(case))),
    },
    Probe {
        id: "policy",
        title: "Relevance policy",
        needs: &["settings"],
        remedy: "check the `policy` settings, and that the connector takes policies from this gateway",
        look: |case| Box::pin(talk::policy(case)),
    },
    Probe {
        id: "agent",
        title: "Agent",
        needs: &["settings"],
        remedy: "install the agent's program or correct its settings; `hermes-relay agents list` shows all",
        look: |case| Box::pin(agents::agents(case)),
    },
    Probe {
        id: "unit",
        title: "Service unit",
        needs: &["settings"],
        remedy: "set TimeoutStopSec above `shutdown.budget_secs`, then run `systemctl daemon-reload`",
        look: |case| Box::pin(ready(unit::unit(case))),
    },
];
