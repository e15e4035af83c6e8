//! The connector's HTTP routes: redeem an enrollment token, provision, declare a policy.
//!
//! It never retries, never stores what it is given, and never trusts an answer's types: a field that is
//! not what the contract says counts as missing.

use std::time::SystemTime;

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::text::truncate;
use crate::wire::UpgradeToken;

use super::http::{Body, HttpClient, HttpError, HttpResponse, Request, excerpt};

/// Longest display name that the connector accepts, in characters.
pub const MAX_DISPLAY_NAME: usize = 64;
/// Longest secret, key or id taken from an answer, in bytes.
const MAX_VALUE: usize = 4096;
/// Longest name of a platform in an answer, in bytes, and how many are read.
const MAX_PLATFORM: usize = 64;
const MAX_PLATFORMS: usize = 32;

/// Credentials of an accepted gateway.
#[derive(Debug, Clone)]
pub struct Enrolled {
    /// Signs this gateway's tokens.
    pub secret: SecretString,
    /// Kept for compatibility; used for nothing today.
    pub delivery_key: Option<SecretString>,
    /// The gateway's tenant.
    pub tenant: Option<String>,
    /// The id to use; the connector's choice wins.
    pub gateway_id: String,
    /// The platforms that the connector has for this gateway, if it names them.
    pub platforms: Vec<String>,
    /// The connector's clock.
    pub date: Option<SystemTime>,
}

/// Why an enrollment failed.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    /// 401: the identity token was not accepted.
    #[error(
        "connector rejected the caller identity (401). Log in again with the account that owns this tenant, then retry"
    )]
    Identity,
    /// 403: the enrolment token was not accepted.
    #[error("{}", reason.as_deref().unwrap_or("connector refused the enrollment token (403): it is invalid, expired, already used, or meant for another tenant"))]
    Forbidden {
        /// The connector's error text.
        reason: Option<String>,
    },
    /// Any other status that is not a success.
    #[error("connector returned HTTP {status}{}", detail(reason.as_deref()))]
    Status {
        /// The HTTP status.
        status: u16,
        /// The connector's error text.
        reason: Option<String>,
    },
    /// A success that carries no usable secret.
    #[error("connector returned an unexpected response (no secret).")]
    NoSecret,
    /// The token would cross a network in the clear.
    #[error("the connection to {base} would not be encrypted, and tokens are sent over https only")]
    Plaintext {
        /// The connector's address.
        base: String,
    },
    /// No usable answer at all.
    #[error("could not reach the connector at {base}: {reason}")]
    Unreachable {
        /// The connector's address.
        base: String,
        /// The error of the HTTP client.
        reason: HttpError,
    },
}

/// Why there is no answer.
fn no_answer(base: &str, reason: HttpError) -> EnrollError {
    let base = shown(base);
    match reason {
        HttpError::Plaintext { .. } => EnrollError::Plaintext { base },
        reason => EnrollError::Unreachable { base, reason },
    }
}

/// Whether tokens may be sent to the connector at all, which is looked at before there is one.
pub fn check_encryption(http: &HttpClient, base: &str) -> Result<(), EnrollError> {
    // A body counts as something to protect.
    let request = Request::new(base, Body::Json(Vec::new()));
    match http.check(&request) {
        Err(reason @ HttpError::Plaintext { .. }) => Err(no_answer(base, reason)),
        _ => Ok(()),
    }
}

/// Redeems a single-use enrolment token: `POST <base>/relay/enroll`.
pub async fn enroll(
    http: &HttpClient,
    base: &str,
    identity: &SecretString,
    enrollment_token: &SecretString,
    gateway_id: &str,
) -> Result<Enrolled, EnrollError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct EnrollBody<'a> {
        enrollment_token: &'a str,
        gateway_id: &'a str,
    }
    let body = json(&EnrollBody {
        enrollment_token: enrollment_token.expose_secret(),
        gateway_id,
    });
    let answer = post(http, base, "/relay/enroll", identity, body)
        .await
        .map_err(|reason| no_answer(base, reason))?;
    match answer.status {
        200..300 => {}
        401 => return Err(EnrollError::Identity),
        403 => {
            return Err(EnrollError::Forbidden {
                reason: answer.error_text(),
            });
        }
        status => {
            return Err(EnrollError::Status {
                status,
                reason: answer.error_text(),
            });
        }
    }
    let object = answer.object().ok_or(EnrollError::NoSecret)?;
    let secret = secret_field(&object, "secret").ok_or(EnrollError::NoSecret)?;
    Ok(Enrolled {
        secret,
        delivery_key: secret_field(&object, "deliveryKey"),
        tenant: text_field(&object, "tenant"),
        gateway_id: text_field(&object, "gatewayId").unwrap_or_else(|| gateway_id.to_owned()),
        platforms: platform_names(&object),
        date: answer.date,
    })
}

/// The platforms in an answer: a list of names, or of objects with a name. The contract has no such field; connectors may
/// add it.
fn platform_names(object: &Map<String, Value>) -> Vec<String> {
    let listed = object
        .get("platforms")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut names: Vec<String> = Vec::new();
    for entry in listed {
        let name = entry.as_str().or_else(|| entry.get("platform")?.as_str());
        let name = name.unwrap_or_default().trim();
        let is_usable = !name.is_empty()
            && name.len() <= MAX_PLATFORM
            && !name
                .contains(|c: char| c.is_control() || c.is_whitespace() || [',', ':', '"', '#'].contains(&c));
        if is_usable && names.len() < MAX_PLATFORMS && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether the connector answers at the enrolment route: its HTTP status. Nothing is sent that could use a token.
pub async fn reach(http: &HttpClient, base: &str) -> Result<(u16, Option<SystemTime>), EnrollError> {
    let url = format!("{base}/relay/enroll");
    let answer = http
        .send(Request::new(&url, Body::Get).accept("application/json"))
        .await;
    let answer = answer.map_err(|reason| no_answer(base, reason))?;
    Ok((answer.status, answer.date))
}

/// One identity's provision request, as it travels.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionRequest {
    /// This gateway.
    pub gateway_id: String,
    /// The platform to be reachable on.
    pub platform: String,
    /// The bot it answers as there.
    pub bot_id: String,
    /// Retired; empty unless configured.
    pub gateway_endpoint: String,
    /// Chats or scopes that belong to this gateway.
    pub route_keys: Vec<String>,
    /// The hosting platform's name for this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Where to knock when a message waits and this gateway sleeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_url: Option<String>,
    /// What people see; cut to [`MAX_DISPLAY_NAME`] characters.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short_name")]
    pub display_name: Option<String>,
}

/// An accepted identity.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "internals"),
    expect(
        dead_code,
        reason = "the connector's whole answer, of which the relay needs a part"
    )
)]
pub struct Provisioned {
    /// The secret, unless the connector withheld it.
    pub grant: Grant,
    /// The gateway's tenant.
    pub tenant: Option<String>,
    /// The id to use; the connector's choice wins.
    pub gateway_id: String,
    /// The routes the connector now holds for this gateway.
    pub route_keys: Vec<String>,
    /// The connector's clock.
    pub date: Option<SystemTime>,
}

/// Whether a provision answer carried credentials.
#[derive(Debug, Clone)]
pub enum Grant {
    /// They are here.
    Issued {
        /// Signs this gateway's tokens.
        secret: SecretString,
        /// Kept for compatibility; used for nothing today.
        delivery_key: Option<SecretString>,
    },
    /// The connector sent `secretIssued: false`: bound, but the secret was issued before.
    Withheld,
}

/// Why one identity was not provisioned.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// Any status that is not a success.
    #[error("connector returned HTTP {status}{}", detail(reason.as_deref()))]
    Status {
        /// The HTTP status; 404 means that this connector does not provision.
        status: u16,
        /// The connector's error text.
        reason: Option<String>,
    },
    /// A success without a secret and without a literal `secretIssued: false`.
    #[error("connector returned an unexpected response (no secret)")]
    NoSecret,
    /// A success whose body is not a JSON object.
    #[error("connector returned an unexpected response (not JSON)")]
    NotJson,
    /// No usable answer at all.
    #[error("could not reach connector: {0}")]
    Unreachable(HttpError),
}

/// Provisions one identity: `POST <base>/relay/provision`.
pub async fn provision(
    http: &HttpClient,
    base: &str,
    identity: &SecretString,
    request: &ProvisionRequest,
) -> Result<Provisioned, ProvisionError> {
    let answer = post(http, base, "/relay/provision", identity, json(request))
        .await
        .map_err(ProvisionError::Unreachable)?;
    if !answer.is_success() {
        return Err(ProvisionError::Status {
            status: answer.status,
            reason: answer.error_text(),
        });
    }
    let object = answer.object().ok_or(ProvisionError::NotJson)?;
    let grant = match secret_field(&object, "secret") {
        Some(secret) => Grant::Issued {
            secret,
            delivery_key: secret_field(&object, "deliveryKey"),
        },
        None if object.get("secretIssued") == Some(&Value::Bool(false)) => Grant::Withheld,
        None => return Err(ProvisionError::NoSecret),
    };
    let route_keys = object.get("routeKeys").and_then(Value::as_array);
    Ok(Provisioned {
        grant,
        tenant: text_field(&object, "tenant"),
        gateway_id: text_field(&object, "gatewayId").unwrap_or_else(|| request.gateway_id.clone()),
        route_keys: route_keys
            .map(|keys| keys.iter().filter_map(Value::as_str).map(excerpt).collect())
            .unwrap_or_default(),
        date: answer.date,
    })
}

/// Results of all identities, in the order requested.
#[derive(Debug)]
pub struct Provisioning {
    /// One result per request.
    pub results: Vec<Result<Provisioned, ProvisionError>>,
}

/// Outcome of all provision requests.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "internals"),
    expect(
        dead_code,
        reason = "the connector's whole answer, of which the relay needs a part"
    )
)]
pub enum ProvisionOutcome<'a> {
    /// Dial with these: the first answer that carried a secret.
    Issued {
        /// The gateway id to dial with.
        gateway_id: &'a str,
        /// Signs this gateway's tokens.
        secret: &'a SecretString,
        /// Kept for compatibility.
        delivery_key: Option<&'a SecretString>,
    },
    /// Bound, but without a secret: it must be pinned, or rotated at the connector.
    Withheld,
    /// No identity was accepted.
    Failed,
}

impl Provisioning {
    /// Summarizes the results.
    pub fn outcome(&self) -> ProvisionOutcome<'_> {
        let accepted = || self.results.iter().filter_map(|result| result.as_ref().ok());
        let issued = accepted().find_map(|provisioned| match &provisioned.grant {
            Grant::Issued { secret, delivery_key } => Some(ProvisionOutcome::Issued {
                gateway_id: &provisioned.gateway_id,
                secret,
                delivery_key: delivery_key.as_ref(),
            }),
            Grant::Withheld => None,
        });
        issued.unwrap_or(if accepted().next().is_some() {
            ProvisionOutcome::Withheld
        } else {
            ProvisionOutcome::Failed
        })
    }
}

/// Provisions every identity, one after the other; a failure does not stop the rest.
pub async fn provision_all(
    http: &HttpClient,
    base: &str,
    identity: &SecretString,
    requests: &[ProvisionRequest],
) -> Provisioning {
    let mut results = Vec::with_capacity(requests.len());
    for request in requests {
        results.push(provision(http, base, identity, request).await);
    }
    Provisioning { results }
}

/// Why a policy was not taken; the connector keeps the previous one.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Any status but 200.
    #[error("connector returned HTTP {status}{}", detail(reason.as_deref()))]
    Status {
        /// The HTTP status.
        status: u16,
        /// The connector's error text.
        reason: Option<String>,
        /// The connector's clock: a 401 is often our clock being wrong.
        date: Option<SystemTime>,
    },
    /// No usable answer at all.
    #[error("could not reach connector: {0}")]
    Unreachable(HttpError),
}

/// Declares one platform's policy: `POST <base>/relay/policy`. Only 200 is success.
pub async fn declare_policy(
    http: &HttpClient,
    base: &str,
    token: &UpgradeToken,
    policy: &Value,
) -> Result<(), PolicyError> {
    let answer = post(http, base, "/relay/policy", token.as_secret(), json(policy))
        .await
        .map_err(PolicyError::Unreachable)?;
    if answer.status == 200 {
        return Ok(());
    }
    Err(PolicyError::Status {
        status: answer.status,
        reason: answer.error_text(),
        date: answer.date,
    })
}

async fn post(
    http: &HttpClient,
    base: &str,
    route: &str,
    bearer: &SecretString,
    json: Vec<u8>,
) -> Result<HttpResponse, HttpError> {
    let url = format!("{base}{route}");
    let request = Request::new(&url, Body::Json(json))
        .accept("application/json")
        .bearer(Some(bearer));
    http.send(request).await
}

/// The address without a user name or password.
fn shown(base: &str) -> String {
    let Ok(mut url) = url::Url::parse(base) else {
        return excerpt(base);
    };
    // Both only fail where there is no host, and then there is nothing to hide.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    excerpt(url.as_str().trim_end_matches('/'))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts, lists and flags always serialise")
}

#[expect(clippy::ref_option, reason = "the signature that serde calls")]
fn short_name<S: serde::Serializer>(name: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let name = name.as_deref().unwrap_or_default().trim();
    serializer.serialize_str(truncate(name, MAX_DISPLAY_NAME))
}

fn detail(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// A value that survives a `.env` line and a signature unchanged, or nothing.
fn plain_field<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    let text = object.get(key)?.as_str()?.trim();
    let usable = !text.is_empty() && text.len() <= MAX_VALUE && !text.contains(char::is_control);
    usable.then_some(text)
}

fn text_field(object: &Map<String, Value>, key: &str) -> Option<String> {
    plain_field(object, key).map(str::to_owned)
}

fn secret_field(object: &Map<String, Value>, key: &str) -> Option<SecretString> {
    plain_field(object, key).map(SecretString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_addresses_hold_no_password() {
        assert_eq!(shown("https://u:hush@c.example/x"), "https://c.example/x");
        assert_eq!(shown("https://c.example"), "https://c.example");
    }

    #[test]
    fn platforms_in_an_answer_are_names() {
        let names = |value: Value| platform_names(&Map::from_iter([("platforms".to_owned(), value)]));
        let told = serde_json::json!(["discord", {"platform": " slack ", "botId": "1"}, "discord", 7, "", "a b", "x,y"]);
        assert_eq!(names(told), ["discord", "slack"]);
        assert!(names(Value::from("discord")).is_empty());
    }

    #[test]
    fn a_request_travels_as_the_contract_says() {
        let request = ProvisionRequest {
            gateway_id: "gw-vm".into(),
            platform: "discord".into(),
            bot_id: "1".into(),
            route_keys: vec!["a".into(), "b".into()],
            instance_id: Some("inst".into()),
            wake_url: Some("https://w".into()),
            ..ProvisionRequest::default()
        };
        let expected = concat!(
            r#"{"gatewayId":"gw-vm","platform":"discord","botId":"1","gatewayEndpoint":"","#,
            r#""routeKeys":["a","b"],"instanceId":"inst","wakeUrl":"https://w"}"#
        );
        assert_eq!(String::from_utf8(json(&request)).unwrap(), expected);
    }

    #[test]
    fn display_names_are_cut_at_64_characters() {
        let request = ProvisionRequest {
            display_name: Some("é".repeat(70)),
            ..ProvisionRequest::default()
        };
        let sent: Value = serde_json::from_slice(&json(&request)).unwrap();
        assert_eq!(sent["displayName"], "é".repeat(64));
    }

    #[test]
    fn values_that_would_not_survive_storage_count_as_missing() {
        let object = |secret: &str| Map::from_iter([("secret".to_owned(), Value::from(secret))]);
        assert!(secret_field(&object("ok"), "secret").is_some());
        for bad in ["", "  ", "two\nlines", "nul\0", &"x".repeat(MAX_VALUE + 1)] {
            assert!(secret_field(&object(bad), "secret").is_none(), "{bad:?}");
        }
        assert!(secret_field(&Map::from_iter([("secret".to_owned(), Value::from(7))]), "secret").is_none());
    }
}
