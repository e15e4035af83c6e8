//! Which keys the managed scheduler signs with, and when to fetch them again. Pure.
//!
//! A key set is good for [`TTL_SECS`]. A token that names an unknown key forces one fetch, at most every
//! [`FORCED_FETCH_PAUSE_SECS`], so that a new key works immediately and a stranger who makes up key ids causes next to no
//! requests. A key that a newer set does not have is refused. While the keys cannot be fetched, the last set stays in use
//! for at most [`MAX_STALE_SECS`]. Nothing is remembered per token or key id, so memory is bounded by one key set.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;
use url::Url;

use super::fire_token::{MAX_KID_BYTES, TokenRefusal};
use crate::net::proxy::is_loopback;

/// How long a key set is used without asking again, in seconds.
pub const TTL_SECS: i64 = 300;
/// Shortest time between two fetches that unknown key ids force, in seconds.
pub const FORCED_FETCH_PAUSE_SECS: i64 = 30;
/// Pause after a failed fetch while no keys are known, in seconds.
pub const FAILED_FETCH_PAUSE_SECS: i64 = 2;
/// Pause after a failed fetch while an older set can be used, in seconds.
pub const STALE_FETCH_PAUSE_SECS: i64 = 30;
/// Longest time that a key set is used while no newer one can be fetched, in seconds.
pub const MAX_STALE_SECS: i64 = 24 * 60 * 60;
/// Largest key set that is read, in bytes.
pub const MAX_JWKS_BYTES: usize = 256 * 1024;
/// Most keys of a set that are used; the rest is ignored.
pub const MAX_KEYS: usize = 64;
/// Sizes of RSA keys that are accepted, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A public key of the scheduler.
#[derive(Clone, Debug)]
pub struct FireKey {
    kind: KeyKind,
    /// The only algorithm that it may be used with, where the set says one.
    algorithm: Option<String>,
    key: DecodingKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    P256,
    P384,
}

impl FireKey {
    /// The key of a JWK; `None` when it is not a usable public key for signatures.
    fn from_jwk(jwk: &Value) -> Option<Self> {
        if jwk.get("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let bytes = |name: &str| {
            let text = jwk.get(name)?.as_str()?.trim_end_matches('=');
            URL_SAFE_NO_PAD.decode(text).ok()
        };
        let (kind, key) = match jwk.get("kty")?.as_str()? {
            "RSA" => {
                let (modulus, exponent) = (bytes("n")?, bytes("e")?);
                let bits = bits(&modulus);
                if !RSA_BITS.contains(&bits) || exponent.is_empty() {
                    return None;
                }
                (
                    KeyKind::Rsa,
                    DecodingKey::from_rsa_raw_components(&modulus, &exponent),
                )
            }
            "EC" => {
                let (kind, length) = match jwk.get("crv")?.as_str()? {
                    "P-256" => (KeyKind::P256, 32),
                    "P-384" => (KeyKind::P384, 48),
                    _ => return None,
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != length || y.len() != length {
                    return None;
                }
                (kind, DecodingKey::from_ec_der(&[&[4], &x[..], &y[..]].concat()))
            }
            _ => return None,
        };
        let algorithm = match jwk.get("alg") {
            None => None,
            Some(algorithm) => Some(algorithm.as_str()?.to_owned()),
        };
        Some(Self { kind, algorithm, key })
    }

    /// The key of a PEM `PUBLIC KEY` block.
    fn from_pem(pem: &str) -> Option<Self> {
        const RSA: [u8; 9] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01];
        const P256: [u8; 8] = [0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07];
        const P384: [u8; 5] = [0x2B, 0x81, 0x04, 0x00, 0x22];
        let body = pem.trim().strip_prefix("-----BEGIN PUBLIC KEY-----")?;
        let body = body.strip_suffix("-----END PUBLIC KEY-----")?;
        let text: String = body.split_whitespace().collect();
        let der = STANDARD.decode(text).ok()?;
        // The algorithm's name comes first; the key itself cannot be mistaken for one that far in front.
        let front = &der[..der.len().min(40)];
        let named = |oid: &[u8]| front.windows(oid.len()).any(|window| window == oid);
        let (kind, key) = if named(&RSA) {
            (KeyKind::Rsa, DecodingKey::from_rsa_der(&der))
        } else if named(&P256) {
            (KeyKind::P256, DecodingKey::from_ec_der(&der))
        } else if named(&P384) {
            (KeyKind::P384, DecodingKey::from_ec_der(&der))
        } else {
            return None;
        };
        Some(Self {
            kind,
            algorithm: None,
            key,
        })
    }

    /// Whether it may verify `algorithm`.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        let (kind, name) = match algorithm {
            Algorithm::RS256 => (KeyKind::Rsa, "RS256"),
            Algorithm::RS384 => (KeyKind::Rsa, "RS384"),
            Algorithm::RS512 => (KeyKind::Rsa, "RS512"),
            Algorithm::ES256 => (KeyKind::P256, "ES256"),
            Algorithm::ES384 => (KeyKind::P384, "ES384"),
            _ => return false,
        };
        self.kind == kind && self.algorithm.as_deref().is_none_or(|only| only == name)
    }

    pub(super) fn decoding_key(&self) -> &DecodingKey {
        &self.key
    }
}

/// The scheduler's keys by id.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<(String, Arc<FireKey>)>);

/// A body that is not a key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response is not a JSON object with `keys`")]
pub struct NotKeySet;

impl KeySet {
    /// Reads a JWKS. Keys without an id, for encryption, too short, or of an unknown kind are skipped.
    pub fn parse(body: &[u8]) -> Result<Self, NotKeySet> {
        let body: Value = serde_json::from_slice(body).map_err(|_| NotKeySet)?;
        let keys = body.get("keys").and_then(Value::as_array).ok_or(NotKeySet)?;
        let mut set = Vec::new();
        for jwk in keys {
            let Some(kid) = jwk.get("kid").and_then(Value::as_str) else {
                continue;
            };
            let usable = (1..=MAX_KID_BYTES).contains(&kid.len()) && set.len() < MAX_KEYS;
            if let Some(key) = FireKey::from_jwk(jwk).filter(|_| usable) {
                set.push((kid.to_owned(), Arc::new(key)));
            }
        }
        Ok(Self(set))
    }

    /// The key with this id; the first, should there be several.
    pub fn find(&self, kid: &str) -> Option<Arc<FireKey>> {
        self.0
            .iter()
            .find(|(id, _)| id == kid)
            .map(|(_, key)| Arc::clone(key))
    }

    /// How many keys can be used.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no key can be used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Where the keys come from: `cron.chronos.nas_jwks_url`.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// Fetched from here.
    Url(Url),
    /// One pinned key, written as PEM in place of the address; a token's key id does not matter then.
    Pinned(Arc<FireKey>),
}

/// Why `cron.chronos.nas_jwks_url` cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySourceError {
    /// It is empty.
    #[error("is not set")]
    Empty,
    /// It is neither an address nor a key.
    #[error("is neither an https address nor a PEM public key")]
    Unusable,
    /// The keys would cross the network unprotected.
    #[error("must use https; http is allowed on loopback only")]
    Plaintext,
}

impl KeySource {
    /// Reads the setting.
    pub fn parse(setting: &str) -> Result<Self, KeySourceError> {
        let setting = setting.trim();
        if setting.is_empty() {
            return Err(KeySourceError::Empty);
        }
        if let Some(key) = FireKey::from_pem(setting) {
            return Ok(Self::Pinned(Arc::new(key)));
        }
        let url = Url::parse(setting).map_err(|_| KeySourceError::Unusable)?;
        match (url.scheme(), url.host()) {
            ("https", Some(_)) => Ok(Self::Url(url)),
            ("http", Some(host)) if is_loopback(&host) => Ok(Self::Url(url)),
            ("http", Some(_)) => Err(KeySourceError::Plaintext),
            _ => Err(KeySourceError::Unusable),
        }
    }
}

/// What to do about a token's key.
#[derive(Clone, Debug)]
pub enum KeyLookup {
    /// Verify with this key.
    Found(Arc<FireKey>),
    /// Fetch the key set, report the result, and look again.
    Fetch(FetchReason),
    /// Refuse the token.
    Refuse(TokenRefusal),
}

/// Why the key set is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchReason {
    /// There is none, or the one that is there is too old.
    Due,
    /// A token names a key that a current set does not have.
    UnknownKid,
}

/// The key set in use and the rules for fetching it. Times are seconds since 1970; where the clock was set back, a set
/// counts as expired.
#[derive(Debug, Default)]
pub struct JwksCache {
    set: Option<(KeySet, i64)>,
    forced_at: Option<i64>,
    failed_at: Option<i64>,
}

impl JwksCache {
    /// What to do about the key `kid` at `now`.
    pub fn look_up(&self, kid: Option<&str>, now: i64) -> KeyLookup {
        let Some(kid) = kid else {
            return KeyLookup::Refuse(TokenRefusal::NoKid);
        };
        let Some((set, at)) = &self.set else {
            return if is_within(self.failed_at, FAILED_FETCH_PAUSE_SECS, now) {
                KeyLookup::Refuse(TokenRefusal::NoKeys)
            } else {
                KeyLookup::Fetch(FetchReason::Due)
            };
        };
        let known = set.find(kid);
        if is_within(Some(*at), TTL_SECS, now) {
            let may_force = !is_within(self.forced_at, FORCED_FETCH_PAUSE_SECS, now)
                && !is_within(self.failed_at, FAILED_FETCH_PAUSE_SECS, now);
            return match known {
                Some(key) => KeyLookup::Found(key),
                None if may_force => KeyLookup::Fetch(FetchReason::UnknownKid),
                None => KeyLookup::Refuse(TokenRefusal::UnknownKid),
            };
        }
        let usable = known.filter(|_| is_within(Some(*at), MAX_STALE_SECS, now));
        let pause = match usable {
            Some(_) => STALE_FETCH_PAUSE_SECS,
            None => FAILED_FETCH_PAUSE_SECS,
        };
        match usable {
            _ if !is_within(self.failed_at, pause, now) => KeyLookup::Fetch(FetchReason::Due),
            Some(key) => KeyLookup::Found(key),
            None => KeyLookup::Refuse(TokenRefusal::NoKeys),
        }
    }

    /// A fetch for `reason` returned `set`.
    pub fn on_fetched(&mut self, reason: FetchReason, set: KeySet, now: i64) {
        self.set = Some((set, now));
        self.failed_at = None;
        if reason == FetchReason::UnknownKid {
            self.forced_at = Some(now);
        }
    }

    /// A fetch failed; the set in use stays.
    pub fn on_failed(&mut self, now: i64) {
        self.failed_at = Some(now);
    }
}

fn is_within(since: Option<i64>, secs: i64, now: i64) -> bool {
    since.is_some_and(|since| (0..secs).contains(&now.saturating_sub(since)))
}

/// Bits of a number without leading zeros.
fn bits(number: &[u8]) -> usize {
    let significant = number.iter().skip_while(|byte| **byte == 0);
    let mut rest = significant.clone();
    let first = rest.next().map_or(0, |byte| 8 - byte.leading_zeros() as usize);
    first + rest.count() * 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn encoded(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn rsa(kid: &str, modulus: &[u8]) -> Value {
        json!({"kid": kid, "kty": "RSA", "n": encoded(modulus), "e": "AQAB"})
    }

    fn ec(kid: &str, curve: &str, x: usize, y: usize) -> Value {
        json!({"kid": kid, "kty": "EC", "crv": curve, "x": encoded(&vec![1; x]), "y": encoded(&vec![1; y])})
    }

    fn set(keys: &[Value]) -> KeySet {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_key_has_a_size_and_a_name_of_its_bounds() {
        let long = "k".repeat(MAX_KID_BYTES);
        let of = |bits: usize| {
            let mut modulus = vec![0xff; bits.div_ceil(8)];
            modulus[0] >>= modulus.len() * 8 - bits;
            modulus
        };
        let padded = [&[0, 0][..], &of(2048)].concat();
        for right in [
            rsa("a", &of(2048)),
            rsa("a", &padded),
            rsa("a", &of(8192)),
            rsa(&long, &of(2048)),
            ec("a", "P-256", 32, 32),
            ec("a", "P-384", 48, 48),
        ] {
            assert_eq!(set(std::slice::from_ref(&right)).len(), 1, "{right}");
        }
        let with = |name: &str, value: Value| {
            let mut key = rsa("a", &of(2048));
            key[name] = value;
            key
        };
        for wrong in [
            rsa("a", &of(2047)),
            rsa("a", &of(8193)),
            rsa("", &of(2048)),
            rsa(&format!("{long}k"), &of(2048)),
            with("e", json!("")),
            with("use", json!("enc")),
            with("alg", json!(5)),
            with("kty", json!("oct")),
            ec("a", "P-256", 31, 32),
            ec("a", "P-256", 32, 33),
            ec("a", "P-384", 32, 32),
            ec("a", "P-521", 66, 66),
        ] {
            assert!(set(std::slice::from_ref(&wrong)).is_empty(), "{wrong}");
        }
        assert_eq!(
            (bits(&[]), bits(&[0, 1]), bits(&[0x80]), bits(&[3, 0])),
            (0, 1, 8, 10)
        );
        let many: Vec<Value> = (0..=MAX_KEYS)
            .map(|at| ec(&at.to_string(), "P-256", 32, 32))
            .collect();
        let many = set(&many);
        assert_eq!(
            (many.len(), many.find("63").is_some(), many.find("64").is_some()),
            (64, true, false)
        );
        let key = |key: &Value| set(std::slice::from_ref(key)).find("a").unwrap();
        let any = key(&rsa("a", &of(2048)));
        assert!(any.fits(Algorithm::RS256) && any.fits(Algorithm::RS512) && !any.fits(Algorithm::ES256));
        let one = key(&with("alg", json!("RS256")));
        assert!(one.fits(Algorithm::RS256) && !one.fits(Algorithm::RS384) && !one.fits(Algorithm::HS256));
    }

    /// What is done about a key, in one word.
    fn lookup(cache: &JwksCache, kid: Option<&str>, now: i64) -> String {
        match cache.look_up(kid, now) {
            KeyLookup::Found(_) => "found".to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn keys_are_fetched_when_they_are_due_and_seldom_for_an_unknown_name() {
        let known = || set(&[ec("a", "P-256", 32, 32)]);
        let mut cache = JwksCache::default();
        assert_eq!(lookup(&cache, None, 0), "Refuse(NoKid)");
        assert_eq!(lookup(&cache, Some("a"), 0), "Fetch(Due)");
        cache.on_failed(0);
        assert_eq!(
            lookup(&cache, Some("a"), FAILED_FETCH_PAUSE_SECS - 1),
            "Refuse(NoKeys)"
        );
        assert_eq!(lookup(&cache, Some("a"), FAILED_FETCH_PAUSE_SECS), "Fetch(Due)");
        cache.on_fetched(FetchReason::Due, known(), 100);
        assert_eq!(lookup(&cache, Some("a"), 100 + TTL_SECS - 1), "found");
        assert_eq!(lookup(&cache, Some("a"), 100 + TTL_SECS), "Fetch(Due)");
        assert_eq!(
            lookup(&cache, Some("a"), 99),
            "Fetch(Due)",
            "the clock was set back"
        );
        assert_eq!(lookup(&cache, Some("b"), 101), "Fetch(UnknownKid)");
        cache.on_fetched(FetchReason::UnknownKid, known(), 101);
        let forced = 101 + FORCED_FETCH_PAUSE_SECS;
        assert_eq!(lookup(&cache, Some("b"), forced - 1), "Refuse(UnknownKid)");
        assert_eq!(lookup(&cache, Some("b"), forced), "Fetch(UnknownKid)");
        cache.on_failed(forced);
        assert_eq!(lookup(&cache, Some("b"), forced + 1), "Refuse(UnknownKid)");
        let over = 101 + TTL_SECS;
        cache.on_failed(over);
        assert_eq!(
            lookup(&cache, Some("a"), over + STALE_FETCH_PAUSE_SECS - 1),
            "found"
        );
        assert_eq!(
            lookup(&cache, Some("a"), over + STALE_FETCH_PAUSE_SECS),
            "Fetch(Due)"
        );
        assert_eq!(lookup(&cache, Some("b"), over + 1), "Refuse(NoKeys)");
        assert_eq!(
            lookup(&cache, Some("b"), over + FAILED_FETCH_PAUSE_SECS),
            "Fetch(Due)"
        );
        let stale = 101 + MAX_STALE_SECS;
        cache.on_failed(stale - 1);
        assert_eq!(lookup(&cache, Some("a"), stale - 1), "found");
        assert_eq!(lookup(&cache, Some("a"), stale), "Refuse(NoKeys)");
    }

    #[test]
    fn keys_come_from_a_safe_address() {
        let read = |setting: &str| KeySource::parse(setting).map(|_| ());
        assert_eq!(read(" "), Err(KeySourceError::Empty));
        assert_eq!(read("https://portal.example/keys"), Ok(()));
        assert_eq!(read("http://127.0.0.1:1/keys"), Ok(()));
        assert_eq!(read("http://portal.example/keys"), Err(KeySourceError::Plaintext));
        assert_eq!(read("ftp://portal.example/keys"), Err(KeySourceError::Unusable));
        assert_eq!(read("keys"), Err(KeySourceError::Unusable));
    }
}
