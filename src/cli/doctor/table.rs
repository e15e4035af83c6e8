//! The doctor's probes: what can be wrong between this machine and its chats, each with a remedy.
//!
//! A probe only reads: it changes no setting and no journal, and prints nothing. What would disturb a running relay (a
//! second dial as the same gateway) or change the connector's state (declaring a policy) needs
//! [`Consent`](super::context::Consent). Every step on the network has a deadline, all of them together
//! [`BUDGET`](super::context::BUDGET), and findings contain no secrets.

use std::future::ready;

use super::context::Peer;
#[cfg(feature = "nats")]
use super::nats;
use super::probe::Probe;
use super::{cron, deliveries, discord, handshake, local, network, running, telegram, unit};

/// The probes of a worker's file: a worker has no link and no journal.
pub(super) const OF_WORKERS: &[&str] = &["settings", "nats", "agent"];

/// All probes in order. To add one, write its function and an entry here.
pub(super) const PROBES: &[Probe] = &[
    Probe {
        id: "settings",
        title: "Settings",
        only: None,
        needs: &[],
        remedy: "correct the settings file; `hermes-relay config check FILE` checks one",
        run: |context| Box::pin(ready(local::settings(context))),
    },
    Probe {
        id: "url",
        title: "Connector URL",
        only: Some(Peer::Connector),
        needs: &["settings"],
        remedy: "set GATEWAY_RELAY_URL or `connector.url` to an address such as wss://connector.example/relay",
        run: |context| Box::pin(ready(local::url(context))),
    },
    Probe {
        id: "credentials",
        title: "Credentials",
        only: Some(Peer::Connector),
        needs: &["settings"],
        remedy: "enroll with `hermes-relay enroll`, or set GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET_FILE",
        run: |context| Box::pin(ready(local::credentials(context))),
    },
    Probe {
        id: "api",
        title: "Bot API",
        only: Some(Peer::Telegram),
        needs: &["settings"],
        remedy: "set `direct.telegram.api_base` to an address such as https://api.telegram.org, or omit it",
        run: |context| Box::pin(ready(telegram::api(context))),
    },
    Probe {
        id: "bot_token",
        title: "Bot token",
        only: Some(Peer::Telegram),
        needs: &["settings"],
        remedy: "store the token from @BotFather in a file and name it in `direct.telegram.token_file`, or set TELEGRAM_BOT_TOKEN",
        run: |context| Box::pin(ready(telegram::bot_token(context))),
    },
    Probe {
        id: "discord_api",
        title: "Discord's API",
        only: Some(Peer::Discord),
        needs: &["settings"],
        remedy: "set `direct.discord.api_base` to an address such as https://discord.com/api/v10, or omit it",
        run: |context| Box::pin(ready(discord::api(context))),
    },
    Probe {
        id: "discord_token",
        title: "Bot token",
        only: Some(Peer::Discord),
        needs: &["settings"],
        remedy: "store the token in a file and name it in `direct.discord.token_file`, or set DISCORD_BOT_TOKEN",
        run: |context| Box::pin(ready(discord::bot_token(context))),
    },
    Probe {
        id: "platforms",
        title: "Platforms",
        only: None,
        needs: &["settings"],
        remedy: "name the connector's platforms in GATEWAY_RELAY_PLATFORMS or `connector.identities`",
        run: |context| Box::pin(ready(local::platforms(context))),
    },
    Probe {
        id: "state_dir",
        title: "State directory",
        only: None,
        needs: &["settings"],
        remedy: "give the relay a writable directory of its own: --state-dir DIR or HERMES_RELAY_STATE_DIR",
        run: |context| Box::pin(ready(local::state_dir(context))),
    },
    Probe {
        id: "lock",
        title: "Running relay",
        only: None,
        needs: &["settings"],
        remedy: "run the doctor as the user that runs the relay",
        run: |context| Box::pin(running::running(context)),
    },
    Probe {
        id: "journal",
        title: "Journal",
        only: None,
        needs: &["settings"],
        remedy: "copy the journal, then start once with --fresh-journal-if-corrupt",
        run: |context| Box::pin(ready(local::journal(context))),
    },
    Probe {
        id: "proxy",
        title: "Proxy",
        only: None,
        needs: &["url", "api", "discord_api"],
        remedy: "check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY",
        run: |context| Box::pin(network::proxy(context)),
    },
    Probe {
        id: "dns",
        title: "Name resolution",
        only: None,
        needs: &["url", "api", "discord_api", "proxy"],
        remedy: "check the host in the address and this machine's DNS",
        run: |context| Box::pin(network::dns(context)),
    },
    Probe {
        id: "tcp",
        title: "TCP connection",
        only: None,
        needs: &["dns"],
        remedy: "check that the other end runs at that address and port, and that no firewall is in between",
        run: |context| Box::pin(network::tcp(context)),
    },
    Probe {
        id: "tls",
        title: "TLS certificate",
        only: None,
        needs: &["tcp"],
        remedy: "check the other end's certificate, this machine's clock, and `tls.ca_file`",
        run: |context| Box::pin(network::tls(context)),
    },
    Probe {
        id: "clock",
        title: "Clock",
        only: None,
        needs: &["tls"],
        remedy: "set this machine's clock, for instance with `timedatectl set-ntp true`",
        run: |context| Box::pin(network::clock(context)),
    },
    Probe {
        id: "upgrade",
        title: "WebSocket upgrade",
        only: Some(Peer::Connector),
        needs: &["credentials", "tls"],
        remedy: "check that the URL is the connector's and that nothing in between removes WebSocket upgrades",
        run: |context| Box::pin(handshake::upgrade(context)),
    },
    Probe {
        id: "token",
        title: "Token accepted",
        only: Some(Peer::Connector),
        needs: &["upgrade"],
        remedy: "enroll again with `hermes-relay enroll`",
        run: |context| Box::pin(handshake::token(context)),
    },
    Probe {
        id: "handshake",
        title: "Handshake",
        only: Some(Peer::Connector),
        needs: &["token"],
        remedy: "check GATEWAY_RELAY_PLATFORMS against the bots that the connector has for this gateway",
        run: |context| Box::pin(ready(handshake::handshake(context))),
    },
    Probe {
        id: "telegram",
        title: "Telegram bot",
        only: Some(Peer::Telegram),
        needs: &["bot_token", "tls"],
        remedy: "see docs/telegram.md",
        run: |context| Box::pin(telegram::telegram(context)),
    },
    Probe {
        id: "discord",
        title: "Discord bot",
        only: Some(Peer::Discord),
        needs: &["discord_token", "tls"],
        remedy: "see docs/discord.md",
        run: |context| Box::pin(discord::discord(context)),
    },
    Probe {
        id: "policy",
        title: "Relevance policy",
        only: None,
        needs: &["settings"],
        remedy: "check the `policy` settings, and that the connector accepts policies from this gateway",
        run: |context| Box::pin(handshake::policy(context)),
    },
    #[cfg(feature = "nats")]
    Probe {
        id: "nats",
        title: "NATS server",
        only: None,
        needs: &["settings"],
        remedy: "check the `nats` settings; docs/scaling.md has examples",
        run: |context| Box::pin(nats::server(context)),
    },
    Probe {
        id: "agent",
        title: "Agent",
        only: None,
        needs: &["settings"],
        remedy: "install the agent's program or correct its settings; `hermes-relay agents list` lists all",
        run: |context| Box::pin(local::agents(context)),
    },
    Probe {
        id: "access",
        title: "Access",
        only: None,
        needs: &["settings"],
        remedy: "set `access.mode: pair`, then approve people with `hermes-relay access approve CODE`",
        run: |context| Box::pin(ready(local::access(context))),
    },
    Probe {
        id: "cron",
        title: "Scheduled jobs",
        only: None,
        needs: &["settings"],
        remedy: "check the `cron` settings",
        run: |context| Box::pin(cron::cron(context)),
    },
    Probe {
        id: "notify",
        title: "Notify targets",
        only: None,
        needs: &["settings"],
        remedy: "correct the entry under `notify.targets`; `hermes-relay notify --test NAME` checks it again",
        run: |context| Box::pin(deliveries::targets(context)),
    },
    Probe {
        id: "receiver",
        title: "Receiver",
        only: None,
        needs: &["settings"],
        remedy: "check the `serve.receiver` settings",
        run: |context| Box::pin(deliveries::receiver(context)),
    },
    Probe {
        id: "unit",
        title: "Service unit",
        only: None,
        needs: &["settings"],
        remedy: "set TimeoutStopSec above `shutdown.budget_secs`, then run `systemctl daemon-reload`",
        run: |context| Box::pin(ready(unit::unit(context))),
    },
];
