//! Certificates that are their own issuer: named as such when they are refused, accepted when the user's CA file holds them.
//!
//! Most tools make a self-signed certificate an authority, which no verifier accepts as a server's. One that is in the CA
//! file, byte for byte, is accepted nevertheless, within its dates and for its names. Everything else is the inner
//! verifier's decision.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

/// A verifier with the certificates of the CA file.
#[derive(Debug)]
pub(super) struct SelfSignedVerifier {
    pub(super) inner: Arc<dyn ServerCertVerifier>,
    pub(super) own: Vec<CertificateDer<'static>>,
}

/// The certificate is its own issuer and not trusted here.
pub(super) struct SelfSigned;

impl fmt::Display for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the certificate is self-signed")
    }
}

// The TLS crate shows this error with its debug format.
impl fmt::Debug for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SelfSigned {}

/// Whether a handshake failed because the certificate is self-signed.
pub(super) fn is_self_signed(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) if cause.is::<SelfSigned>())
}

/// A TLS error for people.
pub(super) fn describe(error: &Error) -> String {
    if is_self_signed(error) {
        "the certificate is self-signed and not trusted here; name its file in `tls.ca_file` if it is the right one".to_owned()
    } else {
        error.to_string()
    }
}

impl ServerCertVerifier for SelfSignedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.inner
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let is_own = || self.own.iter().any(|own| own.as_ref() == end_entity.as_ref());
        match verified {
            // Dates were checked before that; what is left is its use as an authority.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if is_own() => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_),
            )) if is_own_issuer(end_entity) == Some(true) => {
                Err(CertificateError::Other(OtherError(Arc::new(SelfSigned))).into())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Whether issuer and subject of a certificate are the same; `None` if it cannot be parsed.
fn is_own_issuer(certificate: &[u8]) -> Option<bool> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    if let Some((VERSION, _, after)) = element(rest) {
        rest = after;
    }
    let (_, _, rest) = element(rest)?; // serial number
    let (_, _, rest) = element(rest)?; // signature algorithm
    let (issuer_tag, issuer, rest) = element(rest)?;
    let (_, _, rest) = element(rest)?; // validity
    let (subject_tag, subject, _) = element(rest)?;
    (issuer_tag == SEQUENCE && subject_tag == SEQUENCE).then_some(issuer == subject)
}

/// The first element of DER: its tag, its content, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = bytes
                .iter()
                .fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;

    use super::*;

    fn self_signed(is_authority: bool, valid: bool) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["connector.test".to_owned()]).expect("a name");
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let day = Duration::from_secs(24 * 3600);
        params.not_before = (SystemTime::now() - 30 * day).into();
        params.not_after = if valid {
            (SystemTime::now() + day).into()
        } else {
            (SystemTime::now() - day).into()
        };
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn verify(
        own: &[CertificateDer<'static>],
        shown: &CertificateDer<'static>,
        name: &'static str,
    ) -> Result<(), Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self_signed(true, true)).expect("a root");
        for certificate in own {
            roots.add(certificate.clone()).expect("a root");
        }
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("a verifier");
        let verifier = SelfSignedVerifier {
            inner,
            own: own.to_vec(),
        };
        let name = ServerName::try_from(name).expect("a name");
        verifier
            .verify_server_cert(shown, &[], &name, &[], UnixTime::now())
            .map(drop)
    }

    #[test]
    fn a_self_signed_certificate_is_named_and_accepted_once_it_is_in_the_ca_file() {
        for is_authority in [true, false] {
            let shown = self_signed(is_authority, true);
            let refused = verify(&[], &shown, "connector.test").unwrap_err();
            assert!(is_self_signed(&refused), "{refused:?}");
            assert!(
                describe(&refused).contains("`tls.ca_file`"),
                "{}",
                describe(&refused)
            );
            let own = [shown.clone()];
            assert_eq!(
                verify(&own, &shown, "connector.test"),
                Ok(()),
                "authority: {is_authority}"
            );
            assert!(verify(&own, &shown, "other.test").is_err(), "only for its names");
        }
    }

    #[test]
    fn dates_count_also_for_a_certificate_in_the_ca_file() {
        for is_authority in [true, false] {
            let expired = self_signed(is_authority, false);
            let error = verify(std::slice::from_ref(&expired), &expired, "connector.test").unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::InvalidCertificate(
                        CertificateError::Expired | CertificateError::ExpiredContext { .. }
                    )
                ),
                "{error:?}"
            );
        }
    }

    #[test]
    fn what_is_no_certificate_is_nobodys_issuer() {
        let whole = self_signed(true, true);
        assert_eq!(is_own_issuer(&whole), Some(true));
        for length in 0..whole.len() {
            assert_ne!(is_own_issuer(&whole[..length]), Some(true), "{length}");
        }
    }
}
