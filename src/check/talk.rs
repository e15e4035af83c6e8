//! Talking with the connector: the upgrade, the token, the hellos, the policy.
//!
//! One dial serves three probes. It acknowledges nothing, so what the connector delivers meanwhile comes again, and it
//! closes as soon as every hello has its answer.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout, timeout_at};

use super::case::{Case, Running, STEP};
use super::probe::Verdict;
use super::{explain, here, way};
use crate::net::connector_http::{PolicyError, declare_policy};
use crate::net::http::{excerpt, unix_secs};
use crate::net::socket::{DialRequest, Dialer, Socket};
use crate::net::ws_io::{ReadEvent, SocketReader, split};
use crate::relay::{Credentials, USER_AGENT, provisioning};
use crate::wire::{
    CapabilityDescriptor, ConnectorFrame, GatewayFrame, Line, LineFramer, RelevancePolicy, TOKEN_TTL_SECS,
    UpgradeToken,
};

/// The close code of a refused token.
const UNAUTHORIZED: u16 = 4401;
/// The identity of a relay that names no platform: whatever the connector declares is meant.
const ANY: &str = "relay";
/// How long further descriptors may come after the first.
const STRAGGLERS: Duration = Duration::from_secs(2);
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_millis(500);

/// Whether the connector upgrades the connection.
pub(super) async fn upgrade(case: &mut Case<'_>) -> Vec<Verdict> {
    let (Some(known), Some(place)) = (&case.known, &case.place) else {
        return Vec::new();
    };
    let settings = &known.loaded.settings;
    let credentials = provisioning::pinned_credentials(settings);
    match &case.running {
        _ if case.consent.dial => {}
        // One that is not connected has no connection to lose.
        Running::Nobody | Running::Away(_) => {}
        Running::Process(pid) => {
            return vec![Verdict::skipped(format!(
                "a relay is running (process {pid}) and a second dial could cut its connection; --dial dials all the same"
            ))];
        }
        Running::Unknown => {
            let why = "a relay may be running, and a second dial could cut its connection; --dial dials all the same";
            return vec![Verdict::skipped(why)];
        }
    }
    if credentials.is_none() && here::can_provision(case) {
        let why = "the relay asks for credentials when it starts; the doctor does not, because that changes the connector's state";
        return vec![Verdict::skipped(why)];
    }
    let token = credentials.map(|credentials| mint(&credentials, case.ahead_secs));
    let within = case.deadline().duration_since(Instant::now());
    let dialer = Dialer::new(known.tls.clone(), case.proxies.clone(), within);
    let upgraded = dialer.dial(DialRequest {
        url: place.url.dial_url(),
        bearer: token.as_ref().map(UpgradeToken::as_secret),
        user_agent: USER_AGENT,
        allow_plaintext: settings.connector.allow_plaintext,
        max_message_bytes: settings.link.max_message_bytes,
        max_write_buffer_bytes: settings.link.max_write_buffer_bytes,
    });
    match upgraded.await {
        Ok(open) => {
            let detail = format!("{} upgrades to WebSocket", place.url);
            case.socket = Some(open.socket);
            vec![Verdict::ok(detail)]
        }
        Err(error) => {
            let (detail, remedy) = explain::dial(&error);
            vec![Verdict::failed(detail, remedy)]
        }
    }
}

/// A token by the connector's clock, as the relay mints them: what is probed is the secret.
fn mint(credentials: &Credentials, ahead_secs: i64) -> UpgradeToken {
    let now = unix_secs(SystemTime::now()).saturating_add(ahead_secs);
    UpgradeToken::mint(&credentials.gateway_id, &credentials.secret, TOKEN_TTL_SECS, now)
}

/// How a conversation of hellos ended.
enum Ending {
    /// Every hello was answered, or the time was over.
    Quiet,
    /// The connector closed.
    Closed(Option<(u16, String)>),
    /// The socket broke.
    Broken(String),
}

/// Whether the connector takes the token: says hello for every identity and listens.
pub(super) async fn token(case: &mut Case<'_>) -> Vec<Verdict> {
    let Some(socket) = case.socket.take() else {
        return Vec::new();
    };
    let Some(settings) = case.settings() else {
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
    let (descriptors, ending) = greet(socket, hellos, framer, case.deadline()).await;
    let greeted = !descriptors.is_empty();
    case.descriptors = descriptors;
    vec![match ending {
        Ending::Closed(Some((UNAUTHORIZED, reason))) => refused(&reason, case.ahead_secs),
        Ending::Quiet => Verdict::ok("not refused"),
        _ if greeted => Verdict::ok("accepted"),
        Ending::Closed(Some((code, reason))) => Verdict::failed(
            format!(
                "closed with code {code} ({}) before any descriptor",
                excerpt(&reason)
            ),
            "try again; if it persists, ask whoever runs the connector what that code means",
        ),
        Ending::Closed(None) => Verdict::failed(
            "closed without a reason before any descriptor",
            "try again; if it persists, look for a proxy or load balancer that cuts WebSockets",
        ),
        Ending::Broken(why) => Verdict::failed(
            format!("the connection broke before any descriptor: {}", excerpt(&why)),
            "try again; if it persists, look for a proxy or load balancer that cuts WebSockets",
        ),
    }]
}

fn refused(reason: &str, ahead_secs: i64) -> Verdict {
    let said = excerpt(reason);
    if reason.trim().eq_ignore_ascii_case("expired") {
        let what =
            format!("closed with 4401 `{said}`: the token was too old when the connector looked at it");
        let off = ahead_secs.unsigned_abs();
        let remedy = format!(
            "set this machine's clock ({off} s off by the connector's Date), or ask whoever runs the connector to set its"
        );
        return Verdict::failed(what, remedy);
    }
    let what = format!(
        "closed with 4401 `{said}`: the gateway id is unknown, the secret is wrong, or it was revoked"
    );
    let remedy = "check GATEWAY_RELAY_ID and the secret (`hermes-relay config show` tells where they come from), or \
                  enrol again with `hermes-relay enroll`";
    Verdict::failed(what, remedy)
}

async fn greet(
    socket: Socket,
    hellos: Vec<String>,
    mut framer: LineFramer,
    deadline: Instant,
) -> (Vec<CapabilityDescriptor>, Ending) {
    let (mut reader, mut writer) = split(socket);
    let expected = hellos.len();
    let saying = async {
        for hello in hellos {
            writer.write_line(hello).await?;
        }
        writer.flush().await
    };
    // A connector that has closed already says why when it is listened to.
    let _ = timeout_at(deadline, saying).await;
    let mut descriptors = Vec::new();
    let ending = listen(&mut reader, &mut framer, &mut descriptors, expected, deadline).await;
    if matches!(ending, Ending::Quiet) {
        let _ = timeout(GOODBYE, writer.close(1000, "the doctor leaves")).await;
    }
    (descriptors, ending)
}

async fn listen(
    reader: &mut SocketReader,
    framer: &mut LineFramer,
    descriptors: &mut Vec<CapabilityDescriptor>,
    expected: usize,
    mut deadline: Instant,
) -> Ending {
    while descriptors.len() < expected {
        let Ok(heard) = timeout_at(deadline, reader.read()).await else {
            return Ending::Quiet;
        };
        match heard {
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
                    deadline = deadline.min(Instant::now() + STRAGGLERS);
                }
            }
            ReadEvent::Alive => {}
            ReadEvent::Closed(close) => return Ending::Closed(close),
            ReadEvent::TooLarge(bytes) => {
                return Ending::Broken(format!("it sent a message of {bytes} bytes, which is too large"));
            }
            ReadEvent::Failed(why) => return Ending::Broken(why),
        }
    }
    Ending::Quiet
}

/// Whether every identity got its descriptor.
pub(super) fn handshake(case: &Case<'_>) -> Vec<Verdict> {
    let Some(settings) = case.settings() else {
        return Vec::new();
    };
    if case.descriptors.is_empty() {
        return vec![Verdict::failed(
            format!("no descriptor within {} s of the hello", STEP.as_secs()),
            "check that the URL is the connector's relay endpoint, and whether the connector is overloaded",
        )];
    }
    let declared = |platform: &str| {
        let mut all = case.descriptors.iter();
        all.find(|known| platform == ANY || known.platform == platform)
    };
    let mut verdicts = Vec::new();
    let identities = &settings.connector.identities;
    for identity in identities {
        let platform = &identity.platform;
        verdicts.push(match declared(platform) {
            Some(descriptor) => Verdict::ok(format!(
                "{}, messages up to {}",
                excerpt(&descriptor.label),
                descriptor.max_message_length
            )),
            None => Verdict::warn(
                "no descriptor for this identity",
                "check that the connector holds this bot for this gateway, or take it out of GATEWAY_RELAY_PLATFORMS",
            ),
        }
        .of(platform));
    }
    let unexpected = case.descriptors.iter().filter(|known| {
        identities
            .iter()
            .all(|identity| ![known.platform.as_str(), ANY].contains(&identity.platform.as_str()))
    });
    verdicts.extend(unexpected.map(|descriptor| {
        let remedy = "name the connector's platforms in GATEWAY_RELAY_PLATFORMS or `connector.identities`";
        Verdict::warn("declared by the connector, but not one of our identities", remedy)
            .of(excerpt(&descriptor.platform))
    }));
    verdicts
}

/// What would be declared; with leave, whether it is taken.
pub(super) async fn policy(case: &Case<'_>) -> Vec<Verdict> {
    let Some(known) = &case.known else {
        return Vec::new();
    };
    let policies = provisioning::policies(&known.loaded);
    if policies.is_empty() {
        return vec![Verdict::ok(
            "nothing is set, so the connector's own default holds",
        )];
    }
    if !case.consent.declare {
        let told = |policy: &RelevancePolicy| {
            Verdict::ok(format!("{}; not declared now, --declare does", terms(policy))).of(&policy.platform)
        };
        return policies.iter().map(told).collect();
    }
    let (Some(place), Some(http)) = (&case.place, way::http(case)) else {
        return vec![Verdict::skipped("there is no connector to declare it to")];
    };
    let Some(credentials) = provisioning::pinned_credentials(&known.loaded.settings) else {
        return vec![Verdict::skipped("there are no credentials to declare it with")];
    };
    let mut verdicts = Vec::new();
    for policy in &policies {
        let token = mint(&credentials, case.ahead_secs);
        let body = serde_json::to_value(policy).unwrap_or_default();
        let declared = declare_policy(&http, place.url.http_base(), &token, &body);
        let verdict = match case.within(declared).await {
            Some(Ok(())) => Verdict::ok(format!("{}; the connector has taken it", terms(policy))),
            Some(Err(error)) => Verdict::failed(error.to_string(), policy_remedy(&error)),
            None => Verdict::failed("no answer in time", "try again; the relay keeps trying by itself"),
        };
        verdicts.push(verdict.of(&policy.platform));
    }
    verdicts
}

fn policy_remedy(error: &PolicyError) -> &'static str {
    match error {
        PolicyError::Status {
            status: 401 | 403, ..
        } => "check the gateway id and the secret, or enrol again with `hermes-relay enroll`",
        PolicyError::Status { status: 404, .. } => {
            "this connector takes no policies; remove the settings or update it"
        }
        PolicyError::Status { .. } => "ask whoever runs the connector",
        PolicyError::Unreachable(_) => "see what the probes of the way to the connector say",
    }
}

fn terms(policy: &RelevancePolicy) -> String {
    format!(
        "must be addressed: {}, except in {} chats; other bots count: {}",
        yes(policy.require_address),
        policy.free_response_scopes.len(),
        yes(policy.allow_other_bots)
    )
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}
