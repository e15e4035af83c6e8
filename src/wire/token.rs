//! The bearer token of the WebSocket upgrade and of the connector's HTTP routes.
//!
//! A token is `base64url(<gateway id>:<exp>:<hex HMAC-SHA256 of "<gateway id>:<exp>">)`, unpadded. It is minted for every
//! use, valid for five minutes, and never printed.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::text::hex;

/// Seconds for which every token of the contract is valid.
pub const TOKEN_TTL_SECS: i64 = 300;

const TOKEN_BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A minted bearer token; shown nowhere.
#[derive(Debug, Clone)]
pub struct UpgradeToken(SecretString);

impl UpgradeToken {
    /// Signs `gateway_id` until `now + ttl`; a ttl of zero or less never expires.
    pub fn mint(gateway_id: &str, secret: &SecretString, ttl_seconds: i64, now_unix: i64) -> Self {
        let exp = if ttl_seconds <= 0 {
            0
        } else {
            now_unix.saturating_add(ttl_seconds)
        };
        let signed = format!("{gateway_id}:{exp}");
        let signature = sign(&signed, secret.expose_secret());
        Self(TOKEN_BASE64.encode(format!("{signed}:{signature}")).into())
    }

    /// The token text, for the `Authorization` header and nothing else.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The token as a secret.
    pub fn as_secret(&self) -> &SecretString {
        &self.0
    }

    /// The gateway id of a valid token; `None` if it is malformed, expired, or signed by none of `secrets`. Every non-empty
    /// secret is compared in constant time (any may match during a rotation). A token is valid through its last second.
    pub fn verify<'a>(
        token: &str,
        secrets: impl IntoIterator<Item = &'a str>,
        now_unix: i64,
    ) -> Option<String> {
        let decoded = String::from_utf8(TOKEN_BASE64.decode(token).ok()?).ok()?;
        let (signed, signature) = decoded.rsplit_once(':')?;
        let (gateway_id, exp) = signed.rsplit_once(':')?;
        let exp: i64 = exp.parse().ok()?;
        let mut genuine = subtle::Choice::from(0);
        for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
            genuine |= sign(signed, secret).as_bytes().ct_eq(signature.as_bytes());
        }
        let alive = exp == 0 || now_unix <= exp;
        (bool::from(genuine) && alive).then(|| gateway_id.to_owned())
    }

    /// Whether a text looks like a token, whoever signed it.
    pub fn has_form(text: &str) -> bool {
        let decoded = TOKEN_BASE64
            .decode(text)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        let parts = decoded.as_deref().and_then(|decoded| {
            let (signed, signature) = decoded.rsplit_once(':')?;
            Some((signed.rsplit_once(':')?.1, signature))
        });
        parts.is_some_and(|(exp, signature)| {
            exp.parse::<i64>().is_ok()
                && signature.len() == 64
                && signature.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    }

    /// When a token stops being valid, read without checking its signature; `None` when it never does or
    /// is malformed.
    #[cfg(any(feature = "dev", feature = "internals", test))]
    pub fn expiry(token: &str) -> Option<i64> {
        let decoded = String::from_utf8(TOKEN_BASE64.decode(token).ok()?).ok()?;
        let exp = decoded.rsplit(':').nth(1)?.parse().ok()?;
        (exp != 0).then_some(exp)
    }
}

/// Lower-case hex HMAC-SHA256 of `payload` under the UTF-8 bytes of `secret`.
pub fn sign(payload: &str, secret: &str) -> String {
    sign_bytes(payload.as_bytes(), secret)
}

/// [`sign`] of bytes that need not be text.
pub fn sign_bytes(payload: &[u8], secret: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(payload);
    hex(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_in_its_last_second_and_not_after() {
        let token = UpgradeToken::mint("gw", &"s".into(), 300, 1_000);
        assert_eq!(
            UpgradeToken::verify(token.expose(), ["s"], 1_300).as_deref(),
            Some("gw")
        );
        assert_eq!(UpgradeToken::verify(token.expose(), ["s"], 1_301), None);
        assert_eq!(UpgradeToken::expiry(token.expose()), Some(1_300));
    }

    #[test]
    fn an_empty_secret_verifies_nothing() {
        let token = UpgradeToken::mint("gw", &"".into(), 300, 0);
        assert_eq!(UpgradeToken::verify(token.expose(), [""], 0), None);
    }

    #[test]
    fn a_token_is_known_by_its_form() {
        let token = UpgradeToken::mint("gw", &"s".into(), 300, 0);
        assert!(UpgradeToken::has_form(token.expose()));
        for other in ["", "YTpiOmM", "%%%", &token.expose()[1..], &token.expose()[..60]] {
            assert!(!UpgradeToken::has_form(other), "{other}");
        }
    }

    #[test]
    fn a_token_does_not_show_itself() {
        let token = UpgradeToken::mint("gw", &"s".into(), 300, 0);
        assert!(!format!("{token:?}").contains(token.expose()));
    }

    #[test]
    fn garbage_is_nobody() {
        for garbage in ["", "=", "é", "YTpi", "OjE6", "%%%"] {
            assert_eq!(UpgradeToken::verify(garbage, ["x"], 0), None, "{garbage}");
        }
    }
}
