//! The options that relax the checks: what each accepts, and what none does.

use std::sync::Arc;

use cmap_runtime::tls::CertificateProblem;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};

use super::authority::{Authority, Validity};
use super::handshake::{HOST, client, echo, problem, refusal, server};
use super::peer::Peer;

#[test]
fn with_invalid_host_names_allowed_the_authority_must_still_be_known() {
    let authority = Authority::new();
    let client = client(&authority, |options| options.allow_invalid_hostnames = Some(true));

    echo(&client, Peer::tls(&server(&authority.server(&["elsewhere.example"]))), b"ping");
    let unknown = refusal(&client, HOST, Peer::tls(&server(&Authority::new().server(&[HOST]))));
    let expired = refusal(&client, HOST, Peer::tls(&server(&authority.server_valid(&[HOST], Validity::Over))));

    assert_eq!(problem(&unknown), &CertificateProblem::UnknownIssuer);
    assert!(matches!(problem(&expired), CertificateProblem::Expired { .. }));
}

#[test]
fn with_invalid_certificates_allowed_any_will_do() {
    let stranger = Authority::new();
    let trusted = Authority::new();
    let insecure = client(&trusted, |options| options.insecure = Some(true));
    let invalid = client(&trusted, |options| options.allow_invalid_certificates = Some(true));

    for client in [insecure, invalid] {
        echo(&client, Peer::tls(&server(&stranger.server(&["elsewhere.example"]))), b"ping");
        echo(&client, Peer::tls(&server(&stranger.server_valid(&[HOST], Validity::Over))), b"ping");
        echo(&client, Peer::tls(&server(&trusted.as_identity())), b"ping");
    }
}

#[test]
fn no_option_accepts_a_server_without_the_key_of_its_certificate() {
    let authority = Authority::new();
    let (shown, held) = (authority.server(&[HOST]), authority.server(&[HOST]));
    let key = aws_lc_rs::sign::any_supported_type(&held.key()).unwrap();
    let mismatch = Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![shown.certificate().clone()], key)));
    for version in [&TLS12, &TLS13] {
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&mismatch) as Arc<_>);
        let insecure = client(&authority, |options| options.insecure = Some(true));

        let error = refusal(&insecure, HOST, Peer::tls(&Arc::new(config)));

        assert_eq!(problem(&error), &CertificateProblem::BadSignature);
    }
}
