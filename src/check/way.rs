//! The way to the connector, step by step: proxy, name, address, certificate, clock.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;

use super::case::{Case, Place, too_slow};
use super::explain;
use super::probe::Verdict;
use crate::net::http::{Body, HttpClient, Request};
use crate::net::socket::DialError;
use crate::net::steps::Steps;
use crate::relay::USER_AGENT;
use crate::wire::TOKEN_TTL_SECS;

/// A certificate that ends within this time is worth a word.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// Clocks that differ by more than this are worth a word.
const SLIGHTLY_OFF_SECS: u64 = 30;

fn failed(error: &DialError) -> Vec<Verdict> {
    let (detail, remedy) = explain::dial(error);
    vec![Verdict::failed(detail, remedy)]
}

/// Whether the proxy, if one is in force, lets us through.
pub(super) async fn proxy(case: &Case<'_>) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = case
        .proxies
        .ignored()
        .iter()
        .map(|variable| {
            let what = format!("{variable} is set to something that is no proxy URL, and counts for nothing");
            Verdict::warn(what, format!("write {variable} as http://host:port, or unset it"))
        })
        .collect();
    let Some(Place { steps, .. }) = &case.place else {
        return verdicts;
    };
    let Some(proxy) = steps.proxy() else {
        if verdicts.is_empty() {
            verdicts.push(Verdict::ok("none in force for this URL"));
        }
        return verdicts;
    };
    let shown = format!("{}://{}", proxy.scheme.as_str(), proxy.address());
    verdicts.extend(match case.within(steps.tunnel()).await {
        Some(Ok(())) => vec![Verdict::ok(format!("{shown} gives a tunnel"))],
        Some(Err(error)) => failed(&error),
        None => vec![Verdict::failed(
            too_slow(&shown),
            "check that the proxy runs there; check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY",
        )],
    });
    verdicts
}

/// Whether the connector's name has addresses.
pub(super) async fn dns(case: &mut Case<'_>) -> Vec<Verdict> {
    let Some(Place { steps, url }) = &case.place else {
        return Vec::new();
    };
    if let Some(proxy) = steps.proxy() {
        return vec![Verdict::ok(format!("left to the proxy {}", proxy.address()))];
    }
    let found = match case.within(steps.addresses()).await {
        Some(Ok(found)) => found,
        Some(Err(error)) => return failed(&error),
        None => {
            return vec![Verdict::failed(
                too_slow(&format!("cannot resolve {}", url.host())),
                "check the host in the connector URL, and this machine's DNS",
            )];
        }
    };
    let detail = format!(
        "{}: IPv4 {}, IPv6 {}",
        url.host(),
        shown(&found, SocketAddr::is_ipv4),
        shown(&found, SocketAddr::is_ipv6)
    );
    case.addresses = found;
    vec![Verdict::ok(detail)]
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

/// Whether the addresses take connections, each family for itself.
pub(super) async fn tcp(case: &Case<'_>) -> Vec<Verdict> {
    let Some(Place { steps, url }) = &case.place else {
        return Vec::new();
    };
    if let Some(proxy) = steps.proxy() {
        return vec![Verdict::ok(format!("left to the proxy {}", proxy.address()))];
    }
    let attempts = case.addresses.iter().map(|address| async {
        let tried = case.within(Steps::reach(*address)).await;
        let outcome = match tried {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("no answer in time".to_owned()),
        };
        (*address, outcome)
    });
    let attempted = join_all(attempts).await;
    let (answered, silent): (Vec<_>, Vec<_>) =
        attempted.into_iter().partition(|(_, outcome)| outcome.is_ok());
    let reasons: Vec<String> = silent
        .iter()
        .map(|(address, outcome)| {
            let why = outcome.as_ref().err().map_or("", String::as_str);
            format!("{address}: {why}")
        })
        .collect();
    if answered.is_empty() {
        let what = format!("nothing answers at {} ({})", url.host(), reasons.join("; "));
        let remedy =
            "check that the connector runs at that address and port, and that no firewall is in between";
        return vec![Verdict::failed(what, remedy)];
    }
    let lost = |of: fn(&SocketAddr) -> bool| {
        silent.iter().any(|(address, _)| of(address)) && !answered.iter().any(|(address, _)| of(address))
    };
    let family = match (lost(SocketAddr::is_ipv4), lost(SocketAddr::is_ipv6)) {
        (true, _) => Some("IPv4"),
        (_, true) => Some("IPv6"),
        (false, false) => None,
    };
    vec![match family {
        // A program on this machine often listens on one of the two only.
        Some(family) if !url.is_loopback() => Verdict::warn(
            format!("no connection over {family} ({})", reasons.join("; ")),
            format!(
                "the relay goes the other way; mend this machine's {family} route, or the name's {family} address"
            ),
        ),
        _ => {
            let listed: Vec<String> = answered.iter().map(|(address, _)| address.to_string()).collect();
            Verdict::ok(listed.join(" "))
        }
    }]
}

/// Whether the connector's certificate is good, and for how long.
pub(super) async fn tls(case: &Case<'_>) -> Vec<Verdict> {
    let (Some(known), Some(place)) = (&case.known, &case.place) else {
        return Vec::new();
    };
    let files = if place.url.is_plaintext() {
        known.tls.check()
    } else {
        known.tls.config().map(drop)
    };
    if let Err(error) = files {
        let remedy = "correct `tls.ca_file`, `tls.client_cert` and `tls.client_key`";
        return vec![Verdict::failed(error.to_string(), remedy)];
    }
    if place.url.is_plaintext() {
        return vec![Verdict::ok("not used: the URL is not encrypted")];
    }
    match case.within(place.steps.secure(Duration::ZERO)).await {
        Some(Ok(())) => {}
        Some(Err(error)) => return failed(&error),
        None => {
            return vec![Verdict::failed(
                too_slow("no secure connection"),
                "check that the port speaks TLS and that no firewall cuts the connection",
            )];
        }
    }
    let authority = match &known.loaded.settings.tls.ca_file {
        Some(file) => format!(
            "trusted; {} counts beside the platform's authorities",
            file.display()
        ),
        None => "trusted by the platform's authorities".to_owned(),
    };
    let later = case.within(place.steps.secure(SOON)).await;
    vec![match later {
        Some(Err(error)) if error.is_expired_certificate() => Verdict::warn(
            "trusted, but the certificate or one above it ends within 14 days",
            "renew the connector's certificate, or tell whoever runs it",
        ),
        _ => Verdict::ok(authority),
    }]
}

/// Whether this machine's clock agrees with the connector's.
pub(super) async fn clock(case: &mut Case<'_>) -> Vec<Verdict> {
    let Some(http) = http(case) else { return Vec::new() };
    let Some(place) = &case.place else {
        return Vec::new();
    };
    let address = format!("{}/", place.url.http_base());
    let asked = http.send(Request {
        url: &address,
        accept: "*/*",
        bearer: None,
        secret_header: None,
        body: Body::Get,
    });
    let ahead = match case.within(asked).await {
        Some(Ok(answer)) => answer.clock_skew_secs(SystemTime::now()),
        Some(Err(_)) | None => None,
    };
    let Some(ahead) = ahead else {
        return vec![Verdict::skipped("the connector tells no time over HTTP")];
    };
    case.ahead_secs = ahead;
    let off = ahead.unsigned_abs();
    let side = if ahead > 0 { "behind" } else { "ahead of" };
    let detail = format!("this machine's clock is {off} s {side} the connector's");
    let remedy = "set this machine's clock, for instance with `timedatectl set-ntp true`";
    vec![if off > TOKEN_TTL_SECS.unsigned_abs() {
        Verdict::failed(
            format!("{detail}; tokens are good for {TOKEN_TTL_SECS} s"),
            remedy,
        )
    } else if off > SLIGHTLY_OFF_SECS {
        Verdict::warn(detail, remedy)
    } else {
        Verdict::ok(format!("within {SLIGHTLY_OFF_SECS} s of the connector's"))
    }]
}

/// A client for the connector's HTTP routes.
pub(super) fn http(case: &Case<'_>) -> Option<HttpClient> {
    let known = case.known.as_ref()?;
    let tls = known.tls.config().ok()?;
    let http = HttpClient::new(&tls, case.proxies.clone(), USER_AGENT).ok()?;
    Some(http.with_plaintext(known.loaded.settings.connector.allow_plaintext))
}
