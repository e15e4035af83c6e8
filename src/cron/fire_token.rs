//! Is a fire token authentic, meant for this agent, and still good? Pure.
//!
//! A fire token is a JWT that the managed scheduler signs for one delivery. It is checked in this order: shape and
//! algorithm ([`FireToken::parse`]), then, with the key that its `kid` names ([`crate::cron::jwks`]), signature and claims
//! ([`FireToken::verify`]). Only asymmetric algorithms are accepted; a key or key address inside the token is ignored.
//! A reason for a refusal is for the log; the sender learns only that the token is invalid.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::jwks::FireKey;

/// Longest token that is read, in bytes.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// Longest key id, in bytes.
pub const MAX_KID_BYTES: usize = 256;
/// How far the clocks of the two sides may differ, in seconds.
pub const LEEWAY_SECS: i64 = 30;
/// Longest time that a token may still be good for, in seconds. The scheduler's are good for one or two minutes.
pub const MAX_LIFETIME_SECS: i64 = 15 * 60;
/// What a fire token is for; a token for anything else is refused.
const PURPOSE: &str = "cron_fire";

/// Why a token is refused. For the log: it quotes nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The audience or the portal address is not configured.
    #[error("`cron.chronos` is incomplete, so no token can be accepted")]
    NotConfigured,
    /// There is no token.
    #[error("there is no token")]
    Missing,
    /// The token is longer than [`MAX_TOKEN_BYTES`].
    #[error("the token is too long")]
    TooLong,
    /// The token is not three segments of base64url with JSON in the first two.
    #[error("the token is malformed")]
    Malformed,
    /// The header has `crit`, which asks for something that nothing here understands.
    #[error("the token has a critical header")]
    Critical,
    /// The algorithm is not one of RS256, RS384, RS512, ES256 and ES384.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// The token names no key.
    #[error("the token names no key")]
    NoKid,
    /// The scheduler's keys do not contain the token's.
    #[error("the token's key is not one of the scheduler's")]
    UnknownKid,
    /// The scheduler's keys cannot be fetched, and none are known that are recent enough.
    #[error("the scheduler's keys are not available")]
    NoKeys,
    /// The settings name no scheduler whose tokens count.
    #[error("the managed scheduler is not set up; see `cron.provider` and `cron.chronos`")]
    NotSetUp,
    /// The key is for another algorithm.
    #[error("the token's key is for another algorithm")]
    WrongKey,
    /// The signature does not match.
    #[error("the token's signature is wrong")]
    Signature,
    /// A claim is missing or of the wrong type.
    #[error("the token's `{0}` is missing or invalid")]
    Claim(&'static str),
    /// It was issued in the future: the clocks differ.
    #[error("the token's `{0}` is in the future; check this machine's clock")]
    Future(&'static str),
    /// It ran out.
    #[error("the token expired; check this machine's clock if this repeats")]
    Expired,
    /// It would be good for too long.
    #[error("the token is good for more than 15 minutes")]
    LongLived,
    /// Another portal issued it.
    #[error("the token's issuer is not `cron.chronos.portal_url`")]
    Issuer,
    /// It is for another agent.
    #[error("the token's audience is not `cron.chronos.expected_audience`")]
    Audience,
    /// It is for something else.
    #[error("the token is not for firing jobs")]
    Purpose,
}

/// What a token must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FireTokenRules {
    audience: String,
    issuer: String,
}

impl FireTokenRules {
    /// Tokens from `portal_url` for `expected_audience`. While either is empty, no token is accepted.
    pub fn new(portal_url: &str, expected_audience: &str) -> Self {
        Self {
            audience: expected_audience.to_owned(),
            issuer: without_slashes(portal_url).to_owned(),
        }
    }

    /// Whether a token can be accepted at all.
    pub fn check(&self) -> Result<(), TokenRefusal> {
        if self.audience.is_empty() || self.issuer.is_empty() {
            return Err(TokenRefusal::NotConfigured);
        }
        Ok(())
    }
}

/// A token of the right shape, not yet verified.
#[derive(Clone, Debug)]
pub struct FireToken<'t> {
    algorithm: Algorithm,
    kid: Option<String>,
    claims: Map<String, Value>,
    /// What was signed.
    message: &'t str,
    signature: &'t str,
}

impl<'t> FireToken<'t> {
    /// Reads a token's shape. This is all the work that anyone can cause without knowing one of the scheduler's key ids.
    pub fn parse(token: &'t str) -> Result<Self, TokenRefusal> {
        if token.is_empty() {
            return Err(TokenRefusal::Missing);
        }
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenRefusal::TooLong);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(TokenRefusal::Malformed)?;
        let (header, payload) = message.split_once('.').ok_or(TokenRefusal::Malformed)?;
        let (header, claims) = (object(header)?, object(payload)?);
        if header.contains_key("crit") {
            return Err(TokenRefusal::Critical);
        }
        let algorithm = match header.get("alg").and_then(Value::as_str) {
            Some("RS256") => Algorithm::RS256,
            Some("RS384") => Algorithm::RS384,
            Some("RS512") => Algorithm::RS512,
            Some("ES256") => Algorithm::ES256,
            Some("ES384") => Algorithm::ES384,
            _ => return Err(TokenRefusal::Algorithm),
        };
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) if (1..=MAX_KID_BYTES).contains(&kid.len()) => Some(kid.clone()),
            Some(_) => return Err(TokenRefusal::NoKid),
        };
        Ok(Self {
            algorithm,
            kid,
            claims,
            message,
            signature,
        })
    }

    /// The key that it names.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Whether `key` signed it and its claims are right at `now`, in seconds since 1970.
    pub fn verify(&self, key: &FireKey, rules: &FireTokenRules, now: i64) -> Result<(), TokenRefusal> {
        rules.check()?;
        if !key.fits(self.algorithm) {
            return Err(TokenRefusal::WrongKey);
        }
        let verified = jsonwebtoken::crypto::verify(
            self.signature,
            self.message.as_bytes(),
            key.decoding_key(),
            self.algorithm,
        );
        if !verified.unwrap_or(false) {
            return Err(TokenRefusal::Signature);
        }
        self.check_times(now)?;
        self.check_parties(rules)?;
        if self.claims.get("purpose").and_then(Value::as_str) != Some(PURPOSE) {
            return Err(TokenRefusal::Purpose);
        }
        Ok(())
    }

    fn check_times(&self, now: i64) -> Result<(), TokenRefusal> {
        for name in ["iat", "nbf"] {
            if self.claims.contains_key(name) && self.seconds(name)? > now.saturating_add(LEEWAY_SECS) {
                return Err(TokenRefusal::Future(name));
            }
        }
        let expires = self.seconds("exp")?;
        if expires <= now.saturating_sub(LEEWAY_SECS) {
            return Err(TokenRefusal::Expired);
        }
        if expires > now.saturating_add(MAX_LIFETIME_SECS) {
            return Err(TokenRefusal::LongLived);
        }
        Ok(())
    }

    fn check_parties(&self, rules: &FireTokenRules) -> Result<(), TokenRefusal> {
        let issuer = self.claims.get("iss").and_then(Value::as_str);
        let issuer = issuer.ok_or(TokenRefusal::Claim("iss"))?;
        if without_slashes(issuer) != rules.issuer {
            return Err(TokenRefusal::Issuer);
        }
        let meant = match self.claims.get("aud") {
            Some(Value::String(one)) if !one.is_empty() => *one == rules.audience,
            Some(Value::Array(several)) if !several.is_empty() => {
                if !several.iter().all(Value::is_string) {
                    return Err(TokenRefusal::Claim("aud"));
                }
                several.iter().any(|one| *one == rules.audience)
            }
            _ => return Err(TokenRefusal::Claim("aud")),
        };
        if !meant {
            return Err(TokenRefusal::Audience);
        }
        for name in ["sub", "jti"] {
            if self.claims.get(name).is_some_and(|value| !value.is_string()) {
                return Err(TokenRefusal::Claim(name));
            }
        }
        Ok(())
    }

    /// A time claim in whole seconds; it must be a JSON number.
    fn seconds(&self, name: &'static str) -> Result<i64, TokenRefusal> {
        let number = self.claims.get(name).filter(|value| value.is_number());
        let number = number.ok_or(TokenRefusal::Claim(name))?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast from float saturates, and fractions do not count"
        )]
        let seconds = number
            .as_i64()
            .or_else(|| number.as_f64().map(|seconds| seconds as i64));
        seconds.ok_or(TokenRefusal::Claim(name))
    }
}

fn object(segment: &str) -> Result<Map<String, Value>, TokenRefusal> {
    let json = URL_SAFE_NO_PAD
        .decode(segment)
        .map_err(|_| TokenRefusal::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| TokenRefusal::Malformed)
}

fn without_slashes(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: i64 = 1_800_000_000;

    fn token(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.c2ln", part(header), part(claims))
    }

    fn header() -> Value {
        json!({"alg": "RS256", "kid": "k1"})
    }

    fn claims() -> Value {
        json!({"iss": "https://portal.example/", "aud": "me", "exp": NOW + 60})
    }

    fn with(mut object: Value, name: &str, value: Value) -> Value {
        object[name] = value;
        object
    }

    #[test]
    fn a_token_has_a_shape_and_a_length() {
        let read = |token: &str| FireToken::parse(token).map(|token| token.kid().map(str::to_owned));
        assert_eq!(read(&token(&header(), &claims())), Ok(Some("k1".to_owned())));
        assert_eq!(read(&token(&json!({"alg": "ES384"}), &claims())), Ok(None));
        assert_eq!(read(""), Err(TokenRefusal::Missing));
        assert_eq!(read("a.b"), Err(TokenRefusal::Malformed));
        assert_eq!(read(&token(&json!([]), &claims())), Err(TokenRefusal::Malformed));
        let critical = with(header(), "crit", json!([]));
        assert_eq!(read(&token(&critical, &claims())), Err(TokenRefusal::Critical));
        for algorithm in ["none", "HS256", "rs256"] {
            let other = with(header(), "alg", json!(algorithm));
            assert_eq!(read(&token(&other, &claims())), Err(TokenRefusal::Algorithm));
        }
        let kid = |kid: Value| read(&token(&with(header(), "kid", kid), &claims())).is_ok();
        assert!(kid(json!("k".repeat(MAX_KID_BYTES))));
        assert!(!kid(json!("k".repeat(MAX_KID_BYTES + 1))) && !kid(json!("")) && !kid(json!(1)));
        let short = token(&header(), &claims());
        let long = |length: usize| format!("{short}{}", "A".repeat(length - short.len()));
        assert!(read(&long(MAX_TOKEN_BYTES)).is_ok());
        assert_eq!(read(&long(MAX_TOKEN_BYTES + 1)), Err(TokenRefusal::TooLong));
    }

    #[test]
    fn the_times_of_a_token_have_their_bounds() {
        let check = |name: &str, value: Value| {
            let text = token(&header(), &with(claims(), name, value));
            FireToken::parse(&text).unwrap().check_times(NOW)
        };
        assert_eq!(check("exp", json!(NOW - LEEWAY_SECS + 1)), Ok(()));
        assert_eq!(check("exp", json!(NOW - LEEWAY_SECS)), Err(TokenRefusal::Expired));
        assert_eq!(check("exp", json!(NOW + MAX_LIFETIME_SECS)), Ok(()));
        let long = check("exp", json!(NOW + MAX_LIFETIME_SECS + 1));
        assert_eq!(long, Err(TokenRefusal::LongLived));
        assert_eq!(check("exp", json!("soon")), Err(TokenRefusal::Claim("exp")));
        assert_eq!(check("exp", json!(1_800_000_030.5)), Ok(()));
        for name in ["iat", "nbf"] {
            assert_eq!(check(name, json!(NOW + LEEWAY_SECS)), Ok(()));
            assert!(matches!(
                check(name, json!(NOW + LEEWAY_SECS + 1)),
                Err(TokenRefusal::Future(_))
            ));
            assert!(matches!(check(name, Value::Null), Err(TokenRefusal::Claim(_))));
        }
    }

    #[test]
    fn a_token_names_its_issuer_and_its_audience() {
        let rules = FireTokenRules::new("https://portal.example", "me");
        assert_eq!(rules.check(), Ok(()));
        for wrong in [
            FireTokenRules::new("/", "me"),
            FireTokenRules::new("https://portal.example", ""),
        ] {
            assert_eq!(wrong.check(), Err(TokenRefusal::NotConfigured));
        }
        let check = |name: &str, value: Value| {
            let text = token(&header(), &with(claims(), name, value));
            FireToken::parse(&text).unwrap().check_parties(&rules)
        };
        assert_eq!(check("sub", json!("anybody")), Ok(()));
        assert_eq!(
            check("iss", json!("https://other.example")),
            Err(TokenRefusal::Issuer)
        );
        assert_eq!(check("iss", json!(5)), Err(TokenRefusal::Claim("iss")));
        assert_eq!(check("aud", json!(["you", "me"])), Ok(()));
        for other in [json!("you"), json!(["you"])] {
            assert_eq!(check("aud", other), Err(TokenRefusal::Audience));
        }
        for wrong in [json!(""), json!([]), json!(["me", 5]), json!(5)] {
            assert_eq!(check("aud", wrong), Err(TokenRefusal::Claim("aud")));
        }
        assert_eq!(check("sub", json!(5)), Err(TokenRefusal::Claim("sub")));
        assert_eq!(check("jti", json!(5)), Err(TokenRefusal::Claim("jti")));
    }
}
