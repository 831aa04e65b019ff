//! The client's own certificate: the forms of its key, and the errors of its file (TLS-4).

use std::error::Error as _;
use std::io;

use cmap_core::options::TlsOptions;
use cmap_runtime::tls::{PemError, PemProblem, TlsConfig, TlsConfigError, TlsError, connect};
use cmap_test_server::certificates::KeyKind;
use rustls::version::{TLS12, TLS13};

use super::authority::Authority;
use super::handshake::{HOST, assert_not_labelled, client, client_showing, echo, read, refusal, server_with};
use super::peer::{Peer, run};

#[test]
fn the_clients_certificate_is_shown_whatever_form_its_key_has() {
    let authority = Authority::new();
    let config = server_with(&authority.server(&[HOST]), authority.client_verifier(true), &[&TLS13]);
    let p256 = authority.client();
    let rsa = authority.client_with(KeyKind::Rsa);
    let ed25519 = authority.client_with(KeyKind::Ed25519);
    let forms = [
        (&p256, p256.key_pem(), None),
        (&p256, p256.bare_key_pem("EC PRIVATE KEY").unwrap(), None),
        (&p256, p256.encrypted_key_pem("sécret").unwrap(), Some("sécret")),
        (&rsa, rsa.key_pem(), None),
        (&rsa, rsa.bare_key_pem("RSA PRIVATE KEY").unwrap(), Some("not needed")),
        (&ed25519, ed25519.key_pem(), None),
    ];

    for (identity, key, password) in forms {
        let certificate = identity.certificate_pem();
        for pem in [format!("{certificate}{key}"), format!("{key}{certificate}")] {
            let client = client_showing(&authority, &pem, password).unwrap();
            let stream = echo(&client, Peer::tls(&config), b"ping");

            let shown = stream.transport().server().peer_certificates().unwrap();
            assert_eq!(shown, std::slice::from_ref(identity.certificate()));
        }
    }
}

#[test]
fn a_certificate_of_version_1_is_left_to_the_servers_judgement() {
    let authority = Authority::new();
    let config = server_with(&authority.server(&[HOST]), authority.client_verifier(false), &[&TLS12]);
    let client = client_showing(&authority, include_str!("version_1.pem"), None).unwrap();

    // rustls' servers don't take it; MongoDB's, which are made with OpenSSL, do.
    let error = refusal(&client, HOST, Peer::tls(&config));

    assert!(matches!(error, TlsError::Refused { .. }), "{error}");
}

#[test]
fn a_server_that_demands_a_certificate_refuses_a_client_without_one() {
    let authority = Authority::new();
    let client = client(&authority, |_| {});
    let demanding = |version| server_with(&authority.server(&[HOST]), authority.client_verifier(true), &[version]);

    let in_handshake = refusal(&client, HOST, Peer::tls(&demanding(&TLS12)));
    // In TLS 1.3 the client's handshake is over when the server looks at the certificate.
    let after_it = run(async {
        let mut stream = connect(&client, HOST, Peer::tls(&demanding(&TLS13))).await.unwrap();
        read(&mut stream, &mut [0; 16]).await.unwrap_err()
    });
    let after_it = TlsError::of(&after_it).unwrap();

    for error in [&in_handshake, after_it] {
        assert_not_labelled(error);
        assert!(matches!(error, TlsError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("set tlsCertificateKeyFile"), "{error}");
    }
}

#[test]
fn a_password_that_is_wrong_and_one_that_is_missing_are_told_apart() {
    let authority = Authority::new();
    let identity = authority.client();
    let pem = format!("{}{}", identity.certificate_pem(), identity.encrypted_key_pem("secret").unwrap());

    // One wrong password in 256 decrypts to something that has the right padding.
    for wrong in 0..600 {
        let error = client_showing(&authority, &pem, Some(&format!("wrong{wrong}"))).unwrap_err();
        assert!(matches!(error, TlsConfigError::Pem(PemError { problem: PemProblem::PasswordWrong, .. })), "{error}");
        assert!(!format!("{error} {error:?}").contains("wrong0"), "the password is not shown");
    }
    let error = client_showing(&authority, &pem, None).unwrap_err();

    assert!(matches!(error, TlsConfigError::Pem(PemError { problem: PemProblem::PasswordMissing, .. })), "{error}");
}

#[test]
fn an_unusable_file_is_named_with_what_to_do() {
    let authority = Authority::new();
    let (identity, other) = (authority.client(), authority.client());
    let certificate = identity.certificate_pem();
    let key = identity.key_pem();
    let legacy = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAQ==\n-----END RSA PRIVATE KEY-----\n";
    let nonsense = "-----BEGIN PRIVATE KEY-----\nAQ==\n-----END PRIVATE KEY-----\n";
    let encrypted_nonsense = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAQ==\n-----END ENCRYPTED PRIVATE KEY-----\n";

    for (pem, advice) in [
        (String::new(), "has no certificate; it must be PEM"),
        (key.clone(), "has no certificate"),
        (certificate.clone(), "has no private key; append"),
        (format!("{certificate}{key}{key}"), "has 2 private keys"),
        (format!("{certificate}{legacy}"), "openssl pkcs8 -topk8"),
        (format!("{certificate}{nonsense}"), "cannot be used; RSA"),
        (format!("{certificate}{encrypted_nonsense}"), "openssl pkcs8 -topk8"),
        (format!("{certificate}{}", other.key_pem()), "is not the one of its first certificate"),
        (certificate[..100].to_owned(), "without its END line"),
        (
            format!("-----BEGIN CERTIFICATE-----\nAQ==\n-----END CERTIFICATE-----\n{key}"),
            "number 1 that cannot be read",
        ),
    ] {
        let error = client_showing(&authority, &pem, Some("secret")).unwrap_err().to_string();
        assert!(error.starts_with("the PEM text given for tlsCertificateKeyFile has "), "{error}");
        assert!(error.contains(advice), "{error}");
    }
}

#[test]
fn files_are_read_and_the_error_of_one_names_it() {
    let authority = Authority::new();
    let identity = authority.client();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("ca.pem"), authority.pem()).unwrap();
    std::fs::write(path("client.pem"), format!("{}{}", identity.certificate_pem(), identity.key_pem())).unwrap();
    let mut options = TlsOptions::default();
    options.ca_file = Some(path("ca.pem"));
    options.certificate_key_file = Some(path("client.pem"));
    let config = server_with(&authority.server(&[HOST]), authority.client_verifier(true), &[&TLS13]);

    echo(&TlsConfig::new(&options).unwrap(), Peer::tls(&config), b"ping");
    options.ca_file = Some(path("missing.pem"));
    let error = TlsConfig::new(&options).unwrap_err();

    let text = error.to_string();
    assert!(text.starts_with("tlsCAFile (") && text.contains("missing.pem) cannot be read"), "{text}");
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(io.unwrap().kind(), io::ErrorKind::NotFound);
}

#[test]
fn debug_shows_no_key() {
    let authority = Authority::new();
    let identity = authority.client();
    let pem = format!("{}{}", identity.certificate_pem(), identity.key_pem());
    let client = client_showing(&authority, &pem, None).unwrap();

    assert_eq!(format!("{client:?}"), "TlsConfig { has_certificate: true, .. }");
}
