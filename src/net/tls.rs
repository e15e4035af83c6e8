//! The TLS client settings every connection of this program shares.
//!
//! Trusted are the platform's roots, the bundled Mozilla roots (so that an image without a root store
//! still works) and the certificates of the user's own CA file. Nothing here switches verification
//! off, offers ALPN, or installs a process-wide crypto provider.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::client::WantsClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_platform_verifier::Verifier;
use zeroize::Zeroizing;

use super::self_signed::SelfSignedVerifier;

/// The largest PEM file that is read: several times the size of a full system bundle.
const MAX_PEM_BYTES: u64 = 4 * 1024 * 1024;

/// What the user may add to the platform's trust: a CA bundle and a client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// PEM file with one or more certificates that are trusted in addition to the platform's.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client certificate, leaf first, then its intermediates.
    pub client_cert: Option<PathBuf>,
    /// PEM file with the private key of `client_cert`; when absent the key is looked for in `client_cert`.
    pub client_key: Option<PathBuf>,
}

impl TlsSettings {
    /// Reads the files and checks them as a connection would; the platform's roots have no part in that.
    pub fn check_files(&self) -> Result<(), TlsError> {
        self.own_roots()?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        self.client_identity(&provider).map(drop)
    }

    fn own_roots(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let own = self.ca_file.as_deref().map(ca_certificates);
        own.transpose().map(Option::unwrap_or_default)
    }

    /// The client certificate with its key, which belongs to it.
    fn client_identity(&self, provider: &CryptoProvider) -> Result<Option<CertifiedKey>, TlsError> {
        let cert = match (&self.client_cert, &self.client_key) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(TlsError::KeyWithoutCertificate),
            (Some(cert), _) => cert,
        };
        let chain = certificates(PemFile::ClientCert, cert)?;
        let key = private_key(self.client_key.as_ref().unwrap_or(cert))?;
        let identity = CertifiedKey::from_der(chain, key, provider);
        identity.map(Some).map_err(|cause| TlsError::ClientIdentity {
            path: cert.clone(),
            cause,
        })
    }
}

/// Why the TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read.
    #[error("cannot read the {what} {}: {cause}; check that the path is right and readable", path.display())]
    Unreadable {
        /// The setting that names the file.
        what: PemFile,
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// A file is larger than any sensible PEM file.
    #[error("the {what} {} is larger than {} MiB; it should be a PEM file", path.display(), MAX_PEM_BYTES >> 20)]
    TooLarge {
        /// The setting that names the file.
        what: PemFile,
        /// The path of the file.
        path: PathBuf,
    },
    /// A file holds nothing of the wanted kind, or something damaged.
    #[error("the {what} {} is not usable: {reason}; it must be PEM", path.display())]
    Unusable {
        /// The setting that names the file.
        what: PemFile,
        /// The path of the file.
        path: PathBuf,
        /// The fault of the file, without its content.
        reason: String,
    },
    /// A client key is set but no client certificate.
    #[error("client_key is set but client_cert is not; set both, or neither")]
    KeyWithoutCertificate,
    /// The client certificate and its key do not belong together, or the key is of an unknown kind.
    #[error("the client certificate {} cannot be used with its key: {cause}; check that both belong together", path.display())]
    ClientIdentity {
        /// The path of the certificate file.
        path: PathBuf,
        /// The error of rustls.
        cause: rustls::Error,
    },
    /// The verifier could not be built from the roots.
    #[error("cannot set up certificate verification: {0}; check the system's certificate store")]
    Verifier(rustls::Error),
}

/// Which setting a PEM file was named by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PemFile {
    /// `ca_file`.
    CaFile,
    /// `client_cert`.
    ClientCert,
    /// `client_key`.
    ClientKey,
}

impl std::fmt::Display for PemFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CaFile => "ca_file",
            Self::ClientCert => "client_cert",
            Self::ClientKey => "client_key",
        })
    }
}

/// The TLS settings, and the configuration they make once an encrypted connection needs it. Clones share it.
///
/// Reading a platform's roots costs more time and memory than everything else a start does, and a connector on
/// this machine never needs them.
#[derive(Debug, Clone)]
pub struct Tls(Arc<TlsState>);

#[derive(Debug)]
struct TlsState {
    settings: TlsSettings,
    config: OnceLock<Arc<ClientConfig>>,
}

impl Tls {
    /// Reads nothing yet.
    pub fn new(settings: TlsSettings) -> Self {
        Self(Arc::new(TlsState {
            settings,
            config: OnceLock::new(),
        }))
    }

    /// The configuration; built by the first call that succeeds.
    pub fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        if let Some(config) = self.0.config.get() {
            return Ok(Arc::clone(config));
        }
        let config = client_config(&self.0.settings)?;
        Ok(Arc::clone(self.0.config.get_or_init(|| config)))
    }

    /// Finds mistakes in the settings now; without files of the user's there are none to be made.
    pub fn check(&self) -> Result<(), TlsError> {
        if self.0.settings == TlsSettings::default() {
            return Ok(());
        }
        self.config().map(drop)
    }
}

impl From<Arc<ClientConfig>> for Tls {
    fn from(config: Arc<ClientConfig>) -> Self {
        let tls = Self::new(TlsSettings::default());
        tls.0.config.get_or_init(|| config);
        tls
    }
}

/// Builds the client configuration from the platform's trust and the user's additions.
///
/// Reads the files named in `settings` and, on most systems, the platform's root store; call it once and
/// share the result.
pub fn client_config(settings: &TlsSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let own_roots = settings.own_roots()?;
    let identity = settings.client_identity(&provider)?;
    tracing::debug!(
        own = own_roots.len(),
        bundled = webpki_root_certs::TLS_SERVER_ROOT_CERTS.len(),
        "trusting the platform's roots and these"
    );
    let builder = trusting(own_roots, provider)?;
    Ok(Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity))),
    }))
}

/// A configuration for clients that only ever speak unencrypted: it reads no roots, and every handshake fails.
pub(super) fn trusting_nobody() -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Verifier)?;
    let roots = RootCertStore::empty();
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

fn trusting(
    own_roots: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let extra = webpki_root_certs::TLS_SERVER_ROOT_CERTS
        .iter()
        .cloned()
        .chain(own_roots.iter().cloned());
    let inner = Verifier::new_with_extra_roots(extra, Arc::clone(&provider)).map_err(TlsError::Verifier)?;
    let verifier = SelfSignedVerifier {
        inner: Arc::new(inner),
        own: own_roots,
    };
    // "dangerous" is rustls' name for any verifier that is not its own; this one verifies fully.
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Verifier)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

/// Reads the CA file and makes sure that each certificate can serve as a root, so that a bad one is
/// reported by its file and not as a verifier that cannot be built.
fn ca_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = certificates(PemFile::CaFile, path)?;
    let mut trial = RootCertStore::empty();
    for (index, certificate) in found.iter().enumerate() {
        trial
            .add(certificate.clone())
            .map_err(|cause| TlsError::Unusable {
                what: PemFile::CaFile,
                path: path.to_owned(),
                reason: format!("certificate {} is damaged ({cause})", index + 1),
            })?;
    }
    Ok(found)
}

fn certificates(what: PemFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read_pem(what, path)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|cause| unusable(what, path, &cause))?;
    if found.is_empty() {
        return Err(TlsError::Unusable {
            what,
            path: path.to_owned(),
            reason: "it holds no certificate".to_owned(),
        });
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read_pem(PemFile::ClientKey, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|cause| unusable(PemFile::ClientKey, path, &cause))
}

/// Says what is wrong with a PEM file without quoting it: the parser's own text may hold key material.
fn unusable(what: PemFile, path: &Path, cause: &rustls::pki_types::pem::Error) -> TlsError {
    use rustls::pki_types::pem::Error;
    let reason = match cause {
        Error::NoItemsFound if what == PemFile::ClientKey => "it holds no unencrypted private key",
        Error::NoItemsFound => "it holds no certificate",
        Error::MissingSectionEnd { .. } => "a section has no END line",
        Error::IllegalSectionStart { .. } => "a BEGIN line is damaged",
        Error::Base64Decode(_) => "a section is not base64",
        _ => "a section is damaged",
    };
    TlsError::Unusable {
        what,
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

fn read_pem(what: PemFile, path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(path)
        .and_then(|file| file.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|cause| TlsError::Unreadable {
            what,
            path: path.to_owned(),
            cause,
        })?;
    if bytes.len() as u64 > MAX_PEM_BYTES {
        return Err(TlsError::TooLarge {
            what,
            path: path.to_owned(),
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn write(folder: &TempDir, name: &str, content: &str) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("a file in a fresh folder");
        path
    }

    fn folder() -> TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn certificate() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
            .expect("a self-signed certificate");
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn the_default_settings_build_and_offer_nothing() {
        let config = client_config(&TlsSettings::default()).expect("the default settings");
        assert!(config.alpn_protocols.is_empty());
        assert!(!config.client_auth_cert_resolver.has_certs());
    }

    #[test]
    fn a_bundle_of_several_certificates_is_accepted() {
        let folder = folder();
        let bundle = format!("a comment\n{}{}", certificate().0, certificate().0);
        let path = write(&folder, "ca.pem", &bundle);
        assert_eq!(ca_certificates(&path).expect("both").len(), 2);
        let settings = TlsSettings {
            ca_file: Some(path),
            ..TlsSettings::default()
        };
        client_config(&settings).expect("a configuration");
    }

    #[test]
    fn the_client_key_may_sit_in_its_own_file_or_beside_the_certificate() {
        let folder = folder();
        let (cert, key) = certificate();
        let apart = TlsSettings {
            client_cert: Some(write(&folder, "cert.pem", &cert)),
            client_key: Some(write(&folder, "key.pem", &key)),
            ..TlsSettings::default()
        };
        let together = TlsSettings {
            client_cert: Some(write(&folder, "both.pem", &format!("{cert}{key}"))),
            ..TlsSettings::default()
        };
        for settings in [apart, together] {
            settings.check_files().expect("both belong together");
            let config = client_config(&settings).expect("a configuration");
            assert!(config.client_auth_cert_resolver.has_certs());
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let folder = folder();
        let settings = TlsSettings {
            client_cert: Some(write(&folder, "cert.pem", &certificate().0)),
            client_key: Some(write(&folder, "key.pem", &certificate().1)),
            ..TlsSettings::default()
        };
        let refused = client_config(&settings).expect_err("two strangers");
        assert!(matches!(refused, TlsError::ClientIdentity { .. }), "{refused}");
        let refused = settings.check_files().expect_err("two strangers");
        assert!(matches!(refused, TlsError::ClientIdentity { .. }), "{refused}");
    }

    #[test]
    fn a_key_alone_is_refused() {
        let settings = TlsSettings {
            client_key: Some(PathBuf::from("key.pem")),
            ..TlsSettings::default()
        };
        let refused = client_config(&settings).expect_err("half an identity");
        assert!(matches!(refused, TlsError::KeyWithoutCertificate));
    }

    #[test]
    fn bad_files_are_named_and_never_quoted() {
        let folder = folder();
        let missing = folder.path().join("missing.pem");
        let empty = write(&folder, "empty.pem", "nothing in here\n");
        let damaged = write(
            &folder,
            "damaged.pem",
            "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n",
        );
        let open = write(&folder, "open.pem", "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n");
        for path in [missing, empty, damaged, open] {
            let settings = TlsSettings {
                ca_file: Some(path.clone()),
                ..TlsSettings::default()
            };
            let text = client_config(&settings).expect_err("a bad file").to_string();
            let checked = settings.check_files().expect_err("a bad file");
            assert_eq!(checked.to_string(), text);
            assert!(text.contains(&path.display().to_string()), "{text}");
            assert!(text.contains("ca_file"), "{text}");
            assert!(!text.contains("c2VjcmV0"), "{text}");
        }
    }

    #[test]
    fn an_endless_file_is_not_read_to_its_end() {
        let settings = TlsSettings {
            ca_file: Some(PathBuf::from("/dev/zero")),
            ..TlsSettings::default()
        };
        let refused = client_config(&settings).expect_err("no PEM file");
        assert!(matches!(refused, TlsError::TooLarge { .. }), "{refused}");
    }
}
