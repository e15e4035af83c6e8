//! Probes of the connector itself: the upgrade, the token, the handshake, the policy.
//!
//! One dial serves three probes. It acknowledges nothing, so that deliveries are repeated, and it closes as soon as every
//! hello is answered.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout, timeout_at};

use super::context::{CheckContext, LoadedSettings, Peer, RunningRelay, STEP_TIMEOUT};
use super::probe::ProbeResult;
use super::{local, network};
use crate::net::connector_http::{PolicyError, declare_policy};
use crate::net::http::{excerpt, unix_secs};
use crate::net::socket::{ConnectorSocket, DialRequest, Dialer};
use crate::net::ws_io::{ReadEvent, SocketReader, split};
use crate::relay::{Credentials, USER_AGENT, provisioning};
use crate::wire::{
    CapabilityDescriptor, ConnectorFrame, GatewayFrame, Line, LineFramer, Platform, RelevancePolicy,
    TOKEN_TTL_SECS, UpgradeToken, close_code,
};

/// The platform of a relay that names none: any descriptor matches.
const ANY_PLATFORM: &str = "relay";
/// Timeout for further descriptors after the first.
const DESCRIPTOR_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Dials and upgrades to WebSocket.
pub(super) async fn upgrade(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let (Some(known), Some(url)) = (&context.loaded, &context.connector) else {
        return Vec::new();
    };
    let settings = &known.loaded.settings;
    let credentials = provisioning::pinned_credentials(settings);
    match &context.running {
        _ if context.consent.dial => {}
        RunningRelay::None | RunningRelay::Disconnected(_) if settings.cluster.is_some() => {
            let why = "another member of the cluster may be connected, and a second dial could close its connection; pass --dial to dial anyway";
            return vec![ProbeResult::skipped(why)];
        }
        // A relay that is not connected has no connection to lose.
        RunningRelay::None | RunningRelay::Disconnected(_) => {}
        RunningRelay::Connected(pid) => {
            return vec![ProbeResult::skipped(format!(
                "a relay is running (process {pid}) and a second dial could close its connection; pass --dial to dial anyway"
            ))];
        }
        RunningRelay::Unknown => {
            let why = "a relay may be running, and a second dial could close its connection; pass --dial to dial anyway";
            return vec![ProbeResult::skipped(why)];
        }
    }
    if credentials.is_none() && local::can_provision(context) {
        let why = "the relay requests credentials at its start; the doctor does not, because that changes the connector's state";
        return vec![ProbeResult::skipped(why)];
    }
    let token = credentials.map(|credentials| mint(&credentials, context.clock_skew_secs));
    let within = context.step_deadline().duration_since(Instant::now());
    let dialer = Dialer::new(known.tls.clone(), context.proxies.clone(), within);
    let upgraded = dialer.dial(DialRequest {
        url: url.dial_url(),
        bearer: token.as_ref().map(UpgradeToken::as_secret),
        user_agent: USER_AGENT,
        allow_plaintext: settings.connector.allow_plaintext,
        max_message_bytes: settings.link.max_message_bytes,
        max_write_buffer_bytes: settings.link.max_write_buffer_bytes,
    });
    match upgraded.await {
        Ok(open) => {
            let detail = format!("{url} upgrades to WebSocket");
            context.socket = Some(open.socket);
            vec![ProbeResult::ok(detail)]
        }
        Err(error) => {
            let (detail, remedy) = network::explain_dial(&error, Peer::Connector);
            vec![ProbeResult::failed(detail, remedy)]
        }
    }
}

/// A token by the connector's clock, as the relay mints it.
fn mint(credentials: &Credentials, clock_skew_secs: i64) -> UpgradeToken {
    let now = unix_secs(SystemTime::now()).saturating_add(clock_skew_secs);
    UpgradeToken::mint(&credentials.gateway_id, &credentials.secret, TOKEN_TTL_SECS, now)
}

/// How the handshake ended.
enum HandshakeEnd {
    /// Every hello was answered, or the timeout passed.
    Complete,
    /// The connector closed.
    Closed(Option<(u16, String)>),
    /// The socket broke.
    Broken(String),
}

/// Sends a hello for every identity and checks whether the token is accepted.
pub(super) async fn token(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(socket) = context.socket.take() else {
        return Vec::new();
    };
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    let hellos: Vec<String> = settings
        .connector
        .identities
        .iter()
        .map(|identity| {
            let hello = GatewayFrame::Hello {
                platform: identity.platform.clone(),
                bot_id: identity.bot_id.clone(),
                command_manifest: None,
            };
            hello.to_line()
        })
        .collect();
    let framer = LineFramer::new(settings.link.max_line_bytes);
    let (descriptors, ending) = shake_hands(socket, hellos, framer, context.step_deadline()).await;
    let has_descriptor = !descriptors.is_empty();
    context.descriptors = descriptors;
    vec![match ending {
        HandshakeEnd::Closed(Some((close_code::UNAUTHORIZED, reason))) => {
            refused(&reason, context.clock_skew_secs)
        }
        HandshakeEnd::Complete => ProbeResult::ok("not refused"),
        _ if has_descriptor => ProbeResult::ok("accepted"),
        HandshakeEnd::Closed(Some((code, reason))) => ProbeResult::failed(
            format!(
                "closed with code {code} ({}) before any descriptor",
                excerpt(&reason)
            ),
            "try again; if it persists, ask the connector's operator what that code means",
        ),
        HandshakeEnd::Closed(None) => ProbeResult::failed(
            "closed without a reason before any descriptor",
            "try again; if it persists, look for a proxy or load balancer that closes WebSockets",
        ),
        HandshakeEnd::Broken(why) => ProbeResult::failed(
            format!("the connection broke before any descriptor: {}", excerpt(&why)),
            "try again; if it persists, look for a proxy or load balancer that closes WebSockets",
        ),
    }]
}

fn refused(reason: &str, clock_skew_secs: i64) -> ProbeResult {
    let shown = excerpt(reason);
    if reason.trim().eq_ignore_ascii_case("expired") {
        let what = format!("closed with 4401 `{shown}`: the token had expired when the connector checked it");
        let off = clock_skew_secs.unsigned_abs();
        let remedy = format!(
            "set this machine's clock ({off} s off by the connector's Date header), or ask the connector's operator to set theirs"
        );
        return ProbeResult::failed(what, remedy);
    }
    let what = format!(
        "closed with 4401 `{shown}`: the gateway id is unknown, the secret is wrong, or it was revoked"
    );
    let remedy = "check GATEWAY_RELAY_ID and the secret (`hermes-relay config show` shows their origin), or \
                  enroll again with `hermes-relay enroll`";
    ProbeResult::failed(what, remedy)
}

async fn shake_hands(
    socket: ConnectorSocket,
    hellos: Vec<String>,
    mut framer: LineFramer,
    deadline: Instant,
) -> (Vec<CapabilityDescriptor>, HandshakeEnd) {
    let (mut reader, mut writer) = split(socket);
    let expected = hellos.len();
    let sending = async {
        for hello in hellos {
            writer.write_line(hello).await?;
        }
        writer.flush().await
    };
    // If the connector has closed already, reading returns the reason.
    let _ = timeout_at(deadline, sending).await;
    let mut descriptors = Vec::new();
    let ending = read_descriptors(&mut reader, &mut framer, &mut descriptors, expected, deadline).await;
    if matches!(ending, HandshakeEnd::Complete) {
        let _ = timeout(
            CLOSE_TIMEOUT,
            writer.close(close_code::NORMAL, "the doctor is done"),
        )
        .await;
    }
    (descriptors, ending)
}

async fn read_descriptors(
    reader: &mut SocketReader,
    framer: &mut LineFramer,
    descriptors: &mut Vec<CapabilityDescriptor>,
    expected: usize,
    mut deadline: Instant,
) -> HandshakeEnd {
    while descriptors.len() < expected {
        let Ok(event) = timeout_at(deadline, reader.read()).await else {
            return HandshakeEnd::Complete;
        };
        match event {
            ReadEvent::Data(bytes) => {
                let before = descriptors.len();
                framer.feed(&bytes, |line| {
                    if let Line::Whole(line) = line
                        && let Ok(ConnectorFrame::Descriptor(descriptor)) = ConnectorFrame::decode(line)
                        && descriptors.len() < expected
                    {
                        descriptors.push(*descriptor);
                    }
                });
                if before == 0 && !descriptors.is_empty() {
                    deadline = deadline.min(Instant::now() + DESCRIPTOR_TIMEOUT);
                }
            }
            ReadEvent::Alive => {}
            ReadEvent::Closed(close) => return HandshakeEnd::Closed(close),
            ReadEvent::TooLarge(bytes) => {
                return HandshakeEnd::Broken(format!("a message of {bytes} bytes is too large"));
            }
            ReadEvent::Failed(why) => return HandshakeEnd::Broken(why),
        }
    }
    HandshakeEnd::Complete
}

/// Checks whether every identity got a descriptor.
pub(super) fn handshake(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    if context.descriptors.is_empty() {
        return vec![ProbeResult::failed(
            format!("no descriptor within {} s of the hello", STEP_TIMEOUT.as_secs()),
            "check that the URL is the connector's relay endpoint, and whether the connector is overloaded",
        )];
    }
    let declared = |platform: &str| {
        let mut all = context.descriptors.iter();
        all.find(|known| platform == ANY_PLATFORM || known.platform == platform)
    };
    let mut results = Vec::new();
    let identities = &settings.connector.identities;
    for identity in identities {
        let platform = &identity.platform;
        results.push(match declared(platform) {
            Some(descriptor) => ProbeResult::ok(format!(
                "{}, messages up to {}",
                excerpt(&descriptor.label),
                descriptor.max_message_length
            )),
            None => ProbeResult::warn(
                "no descriptor for this identity",
                "check that the connector has this bot for this gateway, or remove it from GATEWAY_RELAY_PLATFORMS",
            ),
        }
        .about(platform));
    }
    let unexpected = context.descriptors.iter().filter(|known| {
        identities
            .iter()
            .all(|identity| ![known.platform.as_str(), ANY_PLATFORM].contains(&identity.platform.as_str()))
    });
    let bots = settings.direct.platforms();
    results.extend(unexpected.map(|descriptor| {
        let platform = descriptor.platform.as_str();
        if bots.contains(&platform) {
            let what = "served by the connector and by your own bot: what comes through the connector is not answered";
            let remedy = format!("remove {platform} at the connector, or `direct.{platform}` from the settings");
            return ProbeResult::failed(what, remedy).about(platform);
        }
        let remedy = "name the connector's platforms in GATEWAY_RELAY_PLATFORMS or `connector.identities`";
        ProbeResult::warn("declared by the connector, but not a configured identity", remedy)
            .about(excerpt(&descriptor.platform))
    }));
    results
}

/// Shows the policy; with consent, declares it.
pub(super) async fn policy(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(known) = &context.loaded else {
        return Vec::new();
    };
    let direct = &known.loaded.settings.direct;
    let telegram = (direct.telegram.as_ref()).map(|bot| {
        (
            Platform::TELEGRAM,
            bot.require_mention,
            &bot.free_chats,
            bot.allow_bots,
        )
    });
    let discord = (direct.discord.as_ref()).map(|bot| {
        (
            Platform::DISCORD,
            bot.require_mention,
            &bot.free_chats,
            bot.allow_bots,
        )
    });
    let bots = telegram.into_iter().chain(discord);
    let own: Vec<ProbeResult> = bots
        .map(|(platform, require_address, free_chats, allow_other_bots)| {
            let policy = RelevancePolicy {
                platform: platform.as_str().to_owned(),
                require_address,
                free_response_scopes: free_chats.clone(),
                allow_other_bots,
            };
            ProbeResult::ok(format!("{}; applied by the relay itself", terms(&policy)))
                .about(&policy.platform)
        })
        .collect();
    if !context.has_peer(Peer::Connector) {
        return own;
    }
    let declared = connector_policy(context, known).await;
    own.into_iter().chain(declared).collect()
}

/// What the connector is to apply; with consent, declares it.
async fn connector_policy(context: &CheckContext<'_>, known: &LoadedSettings) -> Vec<ProbeResult> {
    let policies = provisioning::policies(&known.loaded);
    if policies.is_empty() {
        return vec![ProbeResult::ok("not configured; the connector's default applies")];
    }
    if !context.consent.declare {
        let shown = |policy: &RelevancePolicy| {
            ProbeResult::ok(format!(
                "{}; not declared; pass --declare to declare it",
                terms(policy)
            ))
            .about(&policy.platform)
        };
        return policies.iter().map(shown).collect();
    }
    let (Some(url), Some(http)) = (&context.connector, network::http(context)) else {
        return vec![ProbeResult::skipped("there is no connector to declare it to")];
    };
    let Some(credentials) = provisioning::pinned_credentials(&known.loaded.settings) else {
        return vec![ProbeResult::skipped(
            "there are no credentials to declare it with",
        )];
    };
    let mut results = Vec::new();
    for policy in &policies {
        let token = mint(&credentials, context.clock_skew_secs);
        let body = serde_json::to_value(policy).unwrap_or_default();
        let declared = declare_policy(&http, url.http_base(), &token, &body);
        let result = match context.step(declared).await {
            Some(Ok(())) => ProbeResult::ok(format!("{}; accepted by the connector", terms(policy))),
            Some(Err(error)) => ProbeResult::failed(error.to_string(), policy_remedy(&error)),
            None => ProbeResult::failed("timed out", "try again; the relay retries by itself"),
        };
        results.push(result.about(&policy.platform));
    }
    results
}

fn policy_remedy(error: &PolicyError) -> &'static str {
    match error {
        PolicyError::Status {
            status: 401 | 403, ..
        } => "check the gateway id and the secret, or enroll again with `hermes-relay enroll`",
        PolicyError::Status { status: 404, .. } => {
            "this connector does not support policies; remove the settings or update it"
        }
        PolicyError::Status { .. } => "ask the connector's operator",
        PolicyError::Unreachable(_) => "see the network probes",
    }
}

fn terms(policy: &RelevancePolicy) -> String {
    format!(
        "mention required: {}, except in {} chats; other bots: {}",
        yes_or_no(policy.require_address),
        policy.free_response_scopes.len(),
        yes_or_no(policy.allow_other_bots)
    )
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
