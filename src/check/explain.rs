//! A failed dial in two parts: what was seen, and what to do.

use crate::net::socket::DialError;

/// What was seen and what to do about it.
pub(super) fn dial(error: &DialError) -> (String, String) {
    let detail = match error {
        DialError::Url { reason } => format!("the connector URL cannot be dialled: {reason}"),
        DialError::Header { name } => format!("the {name} value holds characters that a header cannot carry"),
        DialError::Plaintext { host } => format!("{host} would be dialled without encryption"),
        DialError::Dns { host, cause } => format!("cannot resolve {host}: {cause}"),
        DialError::Connect { host, port, cause } => format!("cannot connect to {host} port {port}: {cause}"),
        DialError::Proxy { proxy, status, .. } => match status {
            Some(status) => format!("the proxy {proxy} gives no tunnel: it answered HTTP {status}"),
            None => format!("the proxy {proxy} gives no tunnel"),
        },
        DialError::Tls { host, cause } => format!("no secure connection to {host}: {cause}"),
        DialError::Timeout { stage, after } => {
            format!("gave up after {} s while {stage}", after.as_secs())
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
            location_host.as_deref().unwrap_or("an unnamed place")
        ),
        DialError::Upgrade { host, reason } => format!("no WebSocket at {host}: {reason}"),
    };
    let remedy = match error {
        DialError::Url { .. } => "write it as wss://connector.example/relay".to_owned(),
        DialError::Header { .. } => "correct the gateway id and the secret".to_owned(),
        DialError::Plaintext { .. } => "use wss://".to_owned(),
        DialError::Dns { .. } => "check the host in the connector URL, and this machine's DNS".to_owned(),
        DialError::Connect { .. } => {
            "check that the connector runs at that address and port, and that no firewall is in between"
                .to_owned()
        }
        DialError::Proxy { reason, .. } => reason.clone(),
        DialError::Timeout { .. } => "check the network, or whether the connector is overloaded".to_owned(),
        DialError::Redirected { .. } => "if that is the right place, put it in the connector URL".to_owned(),
        DialError::Refused {
            status: 400 | 404 | 405 | 426,
            ..
        } => "check the connector URL and its path; it is dialled with /relay at its end".to_owned(),
        DialError::Refused {
            status: 401 | 403, ..
        } => "check GATEWAY_RELAY_ID and the secret, or enrol again with `hermes-relay enroll`".to_owned(),
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
