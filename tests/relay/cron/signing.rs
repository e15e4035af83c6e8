//! Keys and tokens that are really signed, without the JWT crate that the relay verifies them with.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{KeyInit as _, Mac as _};
use serde_json::{Value, json};

/// The key that the scheduler signs with.
pub(crate) static K1: LazyLock<Signer> = LazyLock::new(Signer::rsa);
/// Another RSA key.
pub(crate) static OTHER: LazyLock<Signer> = LazyLock::new(Signer::rsa);
pub(crate) static P256: LazyLock<Signer> = LazyLock::new(Signer::p256);
pub(crate) static P384: LazyLock<Signer> =
    LazyLock::new(|| Signer::Ec(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap()));
pub(crate) static ED25519: LazyLock<Signer> =
    LazyLock::new(|| Signer::Ed(Ed25519KeyPair::generate().unwrap()));

pub(crate) enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Signer {
    fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    pub(crate) fn p256() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    /// The public key as a JWK.
    pub(crate) fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(pair) => {
                let public = pair.public_key();
                json!({
                    "kty": "RSA", "kid": kid, "use": "sig",
                    "n": encode(public.modulus().big_endian_without_leading_zero()),
                    "e": encode(public.exponent().big_endian_without_leading_zero()),
                })
            }
            Self::Ec(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "kid": kid, "use": "sig", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Self::Ed(pair) => {
                json!({"kty": "OKP", "kid": kid, "use": "sig", "crv": "Ed25519", "x": encode(pair.public_key())})
            }
        }
    }

    /// The public key as PEM.
    pub(crate) fn pem(&self) -> String {
        let der = match self {
            Self::Rsa(pair) => AsDer::<PublicKeyX509Der>::as_der(pair.public_key()).unwrap(),
            Self::Ec(pair) => AsDer::<PublicKeyX509Der>::as_der(pair.public_key()).unwrap(),
            Self::Ed(_) => unreachable!("no test pins an Ed25519 key"),
        };
        let body = STANDARD.encode(der.as_ref());
        let lines: Vec<&str> = body
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            lines.join("\n")
        )
    }

    /// A token with this header and payload. The header's algorithm says how an RSA key signs.
    pub(crate) fn token(&self, header: &Value, payload: &Value) -> String {
        let message = message(header, payload);
        let bytes = message.as_bytes();
        let signature = match self {
            Self::Rsa(pair) => {
                let how: &'static dyn RsaEncoding = match header["alg"].as_str() {
                    Some("RS384") => &RSA_PKCS1_SHA384,
                    Some("RS512") => &RSA_PKCS1_SHA512,
                    Some("PS256") => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(how, &SystemRandom::new(), bytes, &mut signature)
                    .unwrap();
                signature
            }
            Self::Ec(pair) => pair.sign(&SystemRandom::new(), bytes).unwrap().as_ref().to_vec(),
            Self::Ed(pair) => pair.sign(bytes).as_ref().to_vec(),
        };
        format!("{message}.{}", encode(&signature))
    }
}

/// What is signed.
pub(crate) fn message(header: &Value, payload: &Value) -> String {
    format!("{}.{}", encode(header.to_string()), encode(payload.to_string()))
}

/// A token signed with a shared secret.
pub(crate) fn hs256(secret: &[u8], header: &Value, payload: &Value) -> String {
    let message = message(header, payload);
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(secret).unwrap();
    mac.update(message.as_bytes());
    format!("{message}.{}", encode(mac.finalize().into_bytes()))
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
