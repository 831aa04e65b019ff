//! Which servers a client trusts, and its errors about the others.

use std::sync::Arc;

use cmap_core::options::TlsOptions;
use cmap_runtime::tls::{CertificateProblem, TlsConfig, TlsConfigError, connect};
use rustls::AlertDescription;
use rustls::server::NoClientAuth;
use rustls::version::{TLS12, TLS13};

use super::authority::{Authority, Identity, Validity, self_signed};
use super::handshake::{
    HOST, client, client_trusting, echo, problem, refusal, server, server_of_version_1, server_with,
};
use super::peer::{Peer, run};

#[test]
fn a_server_with_a_certificate_for_its_host_is_trusted_and_learns_the_host() {
    let authority = Authority::new();
    for versions in [&TLS12, &TLS13] {
        let identity = authority.server(&[HOST]);
        let config = server_with(&identity, Arc::new(NoClientAuth), &[versions]);

        let stream = echo(&client(&authority, |_| {}), Peer::tls(&config), b"ping");

        assert_eq!(stream.transport().server().server_name(), Some(HOST), "SNI (TLS-3)");
    }
}

#[test]
fn an_ip_address_is_a_host_like_any_other() {
    let authority = Authority::new();
    let config = server(&authority.server(&["127.0.0.1", "::1"]));
    let client = client(&authority, |_| {});

    for host in ["127.0.0.1", "::1", "[::1]"] {
        run(connect(&client, host, Peer::tls(&config))).unwrap();
    }
    let error = refusal(&client, "127.0.0.2", Peer::tls(&config));

    assert!(error.to_string().contains("not trusted for 127.0.0.2: it is for 127.0.0.1, ::1;"), "{error}");
}

#[test]
fn the_dot_of_the_root_is_not_a_part_of_the_name() {
    let authority = Authority::new();
    let config = server(&authority.server(&[HOST]));

    run(connect(&client(&authority, |_| {}), "db.example.", Peer::tls(&config))).unwrap();
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused_and_the_error_names_the_option() {
    let config = server(&Authority::new().server(&[HOST]));

    let error = refusal(&client(&Authority::new(), |_| {}), HOST, Peer::tls(&config));

    assert_eq!(problem(&error), &CertificateProblem::UnknownIssuer);
    assert!(error.to_string().contains("tlsCAFile"), "{error}");
}

#[test]
fn an_authority_that_was_made_anew_under_its_old_name_is_another_one() {
    let config = server(&Authority::named("authority").server(&[HOST]));

    let error = refusal(&client(&Authority::named("authority"), |_| {}), HOST, Peer::tls(&config));

    assert_eq!(problem(&error), &CertificateProblem::BadSignature);
    assert!(error.to_string().contains("tlsCAFile"), "{error}");
}

#[test]
fn the_systems_authorities_are_trusted_only_where_no_file_names_others() {
    let config = server(&Authority::new().server(&[HOST]));

    // A machine without any authorities says so; one with authorities does not know ours.
    for hostnames in [None, Some(true)] {
        let mut options = TlsOptions::default();
        options.allow_invalid_hostnames = hostnames;
        match TlsConfig::new(&options) {
            Ok(client) => {
                let error = refusal(&client, HOST, Peer::tls(&config));
                assert_eq!(problem(&error), &CertificateProblem::UnknownIssuer);
            }
            Err(error) => {
                assert!(matches!(error, TlsConfigError::SystemAuthorities(_)), "{error}");
                assert!(error.to_string().contains("tlsCAFile"), "{error}");
            }
        }
    }
}

#[test]
fn a_certificate_for_another_host_is_refused_and_the_error_names_both() {
    let authority = Authority::new();
    let config = server(&authority.server(&["elsewhere.example", "*.cluster.example"]));

    let error = refusal(&client(&authority, |_| {}), HOST, Peer::tls(&config));

    let names = vec!["elsewhere.example".to_owned(), "*.cluster.example".to_owned()];
    assert_eq!(problem(&error), &CertificateProblem::WrongHost { names });
    let text = error.to_string();
    assert!(text.contains("not trusted for db.example: it is for elsewhere.example, *.cluster.example;"), "{text}");
}

#[test]
fn a_certificate_out_of_its_time_is_refused() {
    let authority = Authority::new();
    let client = client(&authority, |_| {});

    let over = refusal(&client, HOST, Peer::tls(&server(&authority.server_valid(&[HOST], Validity::Over))));
    let not_begun = refusal(&client, HOST, Peer::tls(&server(&authority.server_valid(&[HOST], Validity::NotBegun))));

    assert!(matches!(problem(&over), CertificateProblem::Expired { seconds_ago: Some(1..) }), "{over}");
    assert!(over.to_string().contains("days ago; renew it"), "{over}");
    assert!(matches!(problem(&not_begun), CertificateProblem::NotYetValid { seconds_ahead: Some(1..) }), "{not_begun}");
}

#[test]
fn an_authoritys_own_certificate_is_no_servers() {
    let config = server(&Authority::new().as_identity());

    let error = refusal(&client(&Authority::new(), |_| {}), HOST, Peer::tls(&config));

    assert_eq!(problem(&error), &CertificateProblem::Authority);
}

#[test]
fn a_self_signed_certificate_is_trusted_if_it_is_in_the_file_itself() {
    let identity = self_signed(&[HOST], Validity::Now).unwrap();
    for version in [&TLS12, &TLS13] {
        let config = server_with(&identity, Arc::new(NoClientAuth), &[version]);

        echo(&client_trusting(&identity.certificate_pem()), Peer::tls(&config), b"ping");
    }

    let other = self_signed(&[HOST], Validity::Now).unwrap();
    let error = refusal(&client_trusting(&other.certificate_pem()), HOST, Peer::tls(&server(&identity)));
    assert_eq!(problem(&error), &CertificateProblem::Authority);
}

#[test]
fn the_name_and_the_dates_of_a_self_signed_certificate_in_the_file_count() {
    let refused = |identity: &Identity| {
        refusal(&client_trusting(&identity.certificate_pem()), HOST, Peer::tls(&server(identity)))
    };

    let of_another_host = refused(&self_signed(&["elsewhere.example"], Validity::Now).unwrap());
    let over = refused(&self_signed(&[HOST], Validity::Over).unwrap());

    let names = vec!["elsewhere.example".to_owned()];
    assert_eq!(problem(&of_another_host), &CertificateProblem::WrongHost { names });
    assert!(matches!(problem(&over), CertificateProblem::Expired { .. }), "{over}");
}

#[test]
fn a_certificate_of_version_1_says_what_is_wrong_with_it() {
    let error = refusal(&client(&Authority::new(), |_| {}), HOST, Peer::tls(&server_of_version_1(&TLS13)));

    assert_eq!(
        error.to_string(),
        "the server's certificate is not trusted for db.example: it is of X.509's version 1, which names no hosts; make one of \
         version 3 with a subjectAltName (openssl x509 -req -extfile), or, for tests alone, set tlsAllowInvalidCertificates"
    );
}

#[test]
fn the_server_learns_why_it_is_not_trusted() {
    let config = server(&Authority::new().server(&[HOST]));
    let mut peer = Peer::tls(&config);

    // The transport is borrowed so that it outlives the handshake.
    assert!(run(connect(&client(&Authority::new(), |_| {}), HOST, &mut peer)).is_err());

    assert_eq!(peer.failure(), Some(&rustls::Error::AlertReceived(AlertDescription::UnknownCA)));
}
