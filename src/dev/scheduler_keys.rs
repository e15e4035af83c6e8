//! The embedded managed scheduler's signing key, made at the start, and a file that only its owner may read.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::connector::random_token;

/// An ES256 key and its id.
pub struct SigningKeys {
    kid: String,
    key: EncodingKey,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeys")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

impl SigningKeys {
    /// A new key.
    pub fn new() -> Result<Self, &'static str> {
        let failed = "cannot make a signing key";
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| failed)?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| failed)?;
        Ok(Self {
            kid: random_token()[..8].to_owned(),
            key: EncodingKey::from_ec_der(pkcs8.as_ref()),
        })
    }

    /// A token with these claims.
    pub(super) fn sign(&self, claims: &Value) -> Option<String> {
        let header = Header {
            kid: Some(self.kid.clone()),
            ..Header::new(Algorithm::ES256)
        };
        jsonwebtoken::encode(&header, claims, &self.key).ok()
    }

    /// The public key set.
    pub(super) fn jwks(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key, Algorithm::ES256).ok();
        let mut jwk = jwk
            .and_then(|jwk| serde_json::to_value(jwk).ok())
            .unwrap_or_default();
        jwk["kid"] = self.kid.as_str().into();
        jwk["use"] = "sig".into();
        json!({"keys": [jwk]})
    }
}

/// Writes a file that only its owner may read.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}
