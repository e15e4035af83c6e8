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
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a self-signed certificate");
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
