//! Probes of the network path to the other end: proxy, DNS, TCP, TLS, clock.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;

use super::context::{CheckContext, Peer, PeerTarget, timed_out};
use super::probe::ProbeResult;
use crate::net::http::{Body, HttpClient, HttpEgress, HttpPolicy, Request};
use crate::net::socket::{DialError, tls_reason};
use crate::net::steps::Steps;
use crate::relay::USER_AGENT;
use crate::text::duration;
use crate::wire::TOKEN_TTL_SECS;

/// Remaining validity of a certificate below which a warning is reported.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// Clock skew above which a warning is reported.
const MAX_SKEW_SECS: u64 = 30;

fn failed(error: &DialError, peer: Peer) -> Vec<ProbeResult> {
    let (detail, remedy) = explain_dial(error, peer);
    vec![ProbeResult::failed(detail, remedy)]
}

/// Checks the proxy, if one is used.
pub(super) async fn proxy(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let mut results: Vec<ProbeResult> = context
        .proxies
        .ignored()
        .iter()
        .map(|variable| {
            let what = format!("{variable} is not a proxy URL and is ignored");
            ProbeResult::warn(what, format!("write {variable} as http://host:port, or unset it"))
        })
        .collect();
    let Some(PeerTarget { steps, peer, .. }) = &context.target else {
        return results;
    };
    let Some(proxy) = steps.proxy() else {
        if results.is_empty() {
            results.push(ProbeResult::ok("none for this URL"));
        }
        return results;
    };
    let shown = format!("{}://{}", proxy.scheme.as_str(), proxy.address());
    results.extend(match context.step(steps.tunnel()).await {
        Some(Ok(())) => vec![ProbeResult::ok(format!("{shown} opens a tunnel"))],
        Some(Err(error)) => failed(&error, *peer),
        None => vec![ProbeResult::failed(
            timed_out(&shown),
            "check that the proxy runs there; check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY",
        )],
    });
    results
}

/// Resolves the host of the other end.
pub(super) async fn dns(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(PeerTarget {
        steps, host, peer, ..
    }) = &context.target
    else {
        return Vec::new();
    };
    if let Some(proxy) = steps.proxy() {
        return vec![ProbeResult::ok(format!("done by the proxy {}", proxy.address()))];
    }
    let found = match context.step(steps.addresses()).await {
        Some(Ok(found)) => found,
        Some(Err(error)) => return failed(&error, *peer),
        None => {
            return vec![ProbeResult::failed(
                timed_out(&format!("cannot resolve {host}")),
                dns_remedy(*peer),
            )];
        }
    };
    let detail = format!(
        "{host}: IPv4 {}, IPv6 {}",
        shown(&found, SocketAddr::is_ipv4),
        shown(&found, SocketAddr::is_ipv6)
    );
    context.addresses = found;
    vec![ProbeResult::ok(detail)]
}

fn shown(addresses: &[SocketAddr], of: fn(&SocketAddr) -> bool) -> String {
    let listed: Vec<String> = addresses
        .iter()
        .filter(|address| of(address))
        .map(|address| address.ip().to_string())
        .collect();
    if listed.is_empty() {
        "none".to_owned()
    } else {
        listed.join(" ")
    }
}

/// Connects to every address.
pub(super) async fn tcp(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(place) = &context.target else {
        return Vec::new();
    };
    if let Some(proxy) = place.steps.proxy() {
        return vec![ProbeResult::ok(format!("done by the proxy {}", proxy.address()))];
    }
    let attempts = context.addresses.iter().map(|address| async {
        let tried = context.step(Steps::reach(*address)).await;
        let outcome = match tried {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("timed out".to_owned()),
        };
        (*address, outcome)
    });
    let attempted = join_all(attempts).await;
    let (reached, unreached): (Vec<_>, Vec<_>) =
        attempted.into_iter().partition(|(_, outcome)| outcome.is_ok());
    let reasons: Vec<String> = unreached
        .iter()
        .map(|(address, outcome)| {
            let why = outcome.as_ref().err().map_or("", String::as_str);
            format!("{address}: {why}")
        })
        .collect();
    if reached.is_empty() {
        let what = format!("cannot connect to {} ({})", place.host, reasons.join("; "));
        return vec![ProbeResult::failed(what, place.peer.connect_remedy())];
    }
    let is_unreachable = |of: fn(&SocketAddr) -> bool| {
        unreached.iter().any(|(address, _)| of(address)) && !reached.iter().any(|(address, _)| of(address))
    };
    let family = match (
        is_unreachable(SocketAddr::is_ipv4),
        is_unreachable(SocketAddr::is_ipv6),
    ) {
        (true, _) => Some("IPv4"),
        (_, true) => Some("IPv6"),
        (false, false) => None,
    };
    vec![match family {
        // A local program often listens on one of the two only.
        Some(family) if !place.is_loopback => ProbeResult::warn(
            format!("no connection over {family} ({})", reasons.join("; ")),
            format!(
                "the relay uses the other family; fix this machine's {family} route, or the host's {family} address"
            ),
        ),
        _ => {
            let listed: Vec<String> = reached.iter().map(|(address, _)| address.to_string()).collect();
            ProbeResult::ok(listed.join(" "))
        }
    }]
}

/// Checks the certificate of the other end and its remaining validity.
pub(super) async fn tls(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let (Some(known), Some(place)) = (&context.loaded, &context.target) else {
        return Vec::new();
    };
    let files = if place.is_plaintext {
        known.tls.check()
    } else {
        known.tls.config().map(drop)
    };
    if let Err(error) = files {
        let remedy = "correct `tls.ca_file`, `tls.client_cert` and `tls.client_key`";
        return vec![ProbeResult::failed(error.to_string(), remedy)];
    }
    if place.is_plaintext {
        return vec![ProbeResult::ok("not used: the URL is not encrypted")];
    }
    match context.step(place.steps.secure(Duration::ZERO)).await {
        Some(Ok(())) => {}
        Some(Err(error)) => return failed(&error, place.peer),
        None => {
            return vec![ProbeResult::failed(
                timed_out("no secure connection"),
                "check that the port speaks TLS and that no firewall cuts the connection",
            )];
        }
    }
    let authority = match &known.loaded.settings.tls.ca_file {
        Some(file) => format!(
            "trusted; {} is used in addition to the platform's authorities",
            file.display()
        ),
        None => "trusted by the platform's authorities".to_owned(),
    };
    let later = context.step(place.steps.secure(EXPIRES_SOON)).await;
    vec![match later {
        Some(Err(error)) if error.is_expired_certificate() => ProbeResult::warn(
            "trusted, but the certificate or one of its issuers expires within 14 days",
            format!(
                "renew {}'s certificate, or ask its operator to",
                place.peer.name()
            ),
        ),
        _ => ProbeResult::ok(authority),
    }]
}

/// Compares this machine's clock with that of the other end.
pub(super) async fn clock(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(http) = http(context) else {
        return Vec::new();
    };
    let Some(place) = &context.target else {
        return Vec::new();
    };
    let (peer, address) = (place.peer, format!("{}/", place.http_base));
    let response = http.send(Request::new(&address, Body::Get));
    let ahead = match context.step(response).await {
        Some(Ok(answer)) => answer.clock_skew_secs(SystemTime::now()),
        Some(Err(_)) | None => None,
    };
    let Some(ahead) = ahead else {
        return vec![ProbeResult::skipped(format!(
            "{} sends no Date header",
            peer.name()
        ))];
    };
    context.clock_skew_secs = ahead;
    let off = ahead.unsigned_abs();
    let side = if ahead > 0 { "behind" } else { "ahead of" };
    let detail = format!(
        "this machine's clock is {} {side} {}'s",
        duration(off * 1000),
        peer.name()
    );
    let remedy = "set this machine's clock, for instance with `timedatectl set-ntp true`";
    vec![
        if peer == Peer::Connector && off > TOKEN_TTL_SECS.unsigned_abs() {
            ProbeResult::failed(
                format!("{detail}; tokens are valid for {TOKEN_TTL_SECS} s"),
                remedy,
            )
        } else if off > MAX_SKEW_SECS {
            ProbeResult::warn(detail, remedy)
        } else {
            ProbeResult::ok(format!("within {MAX_SKEW_SECS} s of {}'s", peer.name()))
        },
    ]
}

/// A client for the connector's HTTP routes.
pub(super) fn http(context: &CheckContext<'_>) -> Option<HttpClient> {
    let known = context.loaded.as_ref()?;
    let egress = egress(context)?;
    let policy = HttpPolicy {
        allow_plaintext: known.loaded.settings.connector.allow_plaintext,
        ..HttpPolicy::default()
    };
    HttpClient::new(&egress, policy).ok()
}

/// How requests leave this machine, by the settings.
pub(super) fn egress(context: &CheckContext<'_>) -> Option<HttpEgress> {
    let known = context.loaded.as_ref()?;
    Some(HttpEgress {
        tls: known.tls.clone(),
        proxies: context.proxies.clone(),
        user_agent: USER_AGENT.to_owned(),
        lease: None,
    })
}

fn dns_remedy(peer: Peer) -> String {
    format!("check the host in {}, and this machine's DNS", peer.address())
}

/// What was found and what to do about a failed dial.
pub(super) fn explain_dial(error: &DialError, peer: Peer) -> (String, String) {
    let detail = match error {
        DialError::Url { reason } => format!("{} cannot be dialled: {reason}", peer.address()),
        DialError::Header { name } => {
            format!("the {name} value contains characters that are invalid in a header")
        }
        DialError::Plaintext { host } => format!("{host} would be dialled without encryption"),
        DialError::Dns { host, cause } => format!("cannot resolve {host}: {cause}"),
        DialError::Connect { host, port, cause } => format!("cannot connect to {host} port {port}: {cause}"),
        DialError::Proxy { proxy, status, .. } => match status {
            Some(status) => format!("the proxy {proxy} refused a tunnel with HTTP {status}"),
            None => format!("the proxy {proxy} opened no tunnel"),
        },
        DialError::Tls { host, cause } => {
            format!("no secure connection to {host}: {}", tls_reason(cause))
        }
        DialError::Timeout { stage, after } => {
            format!("timed out after {} s while {stage}", after.as_secs())
        }
        DialError::Refused { status, .. } => match status {
            400 | 404 | 405 | 426 => format!("HTTP {status}: there is no relay endpoint at this path"),
            401 | 403 => format!("HTTP {status}: the credentials were refused before the upgrade"),
            status => format!("the upgrade was refused with HTTP {status}"),
        },
        DialError::Redirected {
            status,
            location_host,
        } => format!(
            "HTTP {status}: redirected to {}; redirects are not followed",
            location_host.as_deref().unwrap_or("an unknown host")
        ),
        DialError::Upgrade { host, reason } => format!("no WebSocket at {host}: {reason}"),
    };
    let remedy = match error {
        DialError::Url { .. } => match peer {
            Peer::Connector => "write it as wss://connector.example/relay".to_owned(),
            Peer::Telegram => "write it as https://api.telegram.org".to_owned(),
            Peer::Discord => "write it as https://discord.com/api/v10".to_owned(),
        },
        DialError::Header { .. } => "correct the gateway id and the secret".to_owned(),
        DialError::Plaintext { .. } => "use wss://".to_owned(),
        DialError::Dns { .. } => dns_remedy(peer),
        DialError::Connect { .. } => peer.connect_remedy().to_owned(),
        DialError::Proxy { reason, .. } => reason.clone(),
        DialError::Timeout { .. } => format!("check the network, or whether {} is overloaded", peer.name()),
        DialError::Redirected { .. } => {
            "if that is the right address, use it as the connector URL".to_owned()
        }
        DialError::Refused {
            status: 400 | 404 | 405 | 426,
            ..
        } => "check the connector URL and its path; it is dialled with /relay at its end".to_owned(),
        DialError::Refused {
            status: 401 | 403, ..
        } => "check GATEWAY_RELAY_ID and the secret, or enroll again with `hermes-relay enroll`".to_owned(),
        DialError::Tls { .. } | DialError::Refused { .. } => error
            .hint()
            .unwrap_or("check that the URL is the connector's")
            .to_owned(),
        DialError::Upgrade { .. } => {
            "check that the URL is the connector's, and that nothing in between strips WebSocket upgrades"
                .to_owned()
        }
    };
    (detail, remedy)
}
