//! The options that relax the checks: what each accepts, and what none does.

use cmap_runtime::tls::CertificateProblem;
use rustls::version::{TLS12, TLS13};

use super::authority::{Authority, Validity};
use super::handshake::{HOST, client, echo, problem, refusal, server, server_of_version_1, server_showing};
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
        for version in [&TLS12, &TLS13] {
            echo(&client, Peer::tls(&server_of_version_1(version)), b"ping");
        }
    }
}

#[test]
fn no_option_accepts_a_server_without_the_key_of_its_certificate() {
    let authority = Authority::new();
    let (shown, held) = (authority.server(&[HOST]), authority.server(&[HOST]));
    for version in [&TLS12, &TLS13] {
        let config = server_showing(shown.certificate().clone(), &held.key(), version);
        let insecure = client(&authority, |options| options.insecure = Some(true));

        let error = refusal(&insecure, HOST, Peer::tls(&config));

        assert_eq!(problem(&error), &CertificateProblem::BadSignature);
    }
}
