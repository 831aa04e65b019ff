//! Connection strings and servers that cannot be used: the author of the string gets the reason at once; a waiter for
//! the server gets the reason in time, and the server is checked no more often than needed.

use std::time::Duration;

use cmap_core::options::{ClientOptions, Warning};
use cmap_core::topology::SelectionErrorKind;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::tls::TlsConfig;
use cmap_runtime::{CheckOutError, ClientError, Event, Notice};

use super::ground;
use super::recovery::recovered;
use super::{
    Harness, Hosts, LocalServer, Manners, Setup, assert_nothing_lost, client, options, poll_once, run, told, wait_for,
    wait_for_failed_check,
};

pub fn a_connection_string_that_cannot_be_used_names_the_option_and_why<H: Harness>() {
    run::<H>(async {
        for (uri, option, why) in [
            ("localhost:27017", "mongodb://", "does not begin with"),
            ("mongodb://a/?minPoolSize=3&maxPoolSize=2", "minPoolSize is 3", "must not be greater than maxPoolSize"),
            ("mongodb://a,b/?directConnection=true", "directConnection=true", "cannot be used with several hosts"),
            ("mongodb://a/?proxyHost=b&proxyUsername=c", "proxyUsername", "needs proxyPassword"),
            ("mongodb://a/?tls=true&tlsCAFile=/no/such.pem", "tlsCAFile (/no/such.pem)", "cannot be read"),
            ("mongodb://user@a/?authMechanism=PLAIN", "PLAIN", "password"),
        ] {
            let error = super::connect::<H>(uri).await.unwrap_err();

            let told = told(&error);
            assert!(told.contains(option) && told.contains(why), "{uri}: {told}");
        }
    });
}

pub fn what_is_ignored_of_a_connection_string_is_told<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();

        let client = client::<H>(&server, "maxPoolsize=many&maxPolSize=7").await;

        let [Warning::UnknownOption { similar, .. }, Warning::InvalidValue { option, .. }] = client.warnings() else {
            panic!("{:?}", client.warnings());
        };
        assert_eq!((*similar, *option), (Some("maxPoolSize"), "maxPoolSize"));
        drop(client.check_out().await.unwrap());
    });
}

pub fn what_has_no_effect_is_told_by_name<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();

        let client = client::<H>(&server, "serverSelectionTryOnce=true&w=1&readConcernLevel=local").await;

        let [Warning::NoEffect { option: "serverSelectionTryOnce", .. }] = client.warnings() else {
            panic!("{:?}", client.warnings());
        };
    });
}

pub fn a_mechanism_that_cannot_be_carried_out_is_refused_at_connect<H: Harness>() {
    run::<H>(async {
        for mechanism in ["MONGODB-AWS", "GSSAPI"] {
            let uri = format!("mongodb://user@h/?authSource=$external&authMechanism={mechanism}");

            let error = super::connect::<H>(&uri).await.unwrap_err();

            assert!(matches!(error, ClientError::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains(mechanism) && error.to_string().contains("SCRAM-SHA-256"), "{error}");
        }
    });
}

pub fn what_gives_up_a_protection_is_told<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let read = client::<H>(&server, "tlsInsecure=true&maxPolSize=7").await;
        let in_code = super::builder::<H>(options(&server, "tlsInsecure=true")).build().await.unwrap();

        let [Warning::UnknownOption { .. }, Warning::RelaxedTls { option, .. }] = read.warnings() else {
            panic!("{:?}", read.warnings());
        };
        assert_eq!(*option, "tlsInsecure");
        assert!(matches!(in_code.warnings(), [Warning::RelaxedTls { .. }]), "{:?}", in_code.warnings());
    });
}

pub fn a_callers_own_tls_configuration_is_not_warned_of<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let authority = format!("tlsCAFile={}", server.authority().display());
        let config = TlsConfig::new(&options(&server, &authority).tls).unwrap();
        let uri = server.uri_as("app:secret", "authMechanism=PLAIN&tlsInsecure=true");
        let (options, _) = ClientOptions::parse(&uri).unwrap();

        let client = super::builder::<H>(options).tls(config).build().await.unwrap();

        assert_eq!(client.warnings(), []);
    });
}

pub fn a_server_that_is_too_old_is_said_so<H: Harness>() {
    run::<H>(async {
        // MongoDB 3.6.
        let server = LocalServer::start_as(Setup { wire_versions: Some((0, 6)), ..Setup::default() });
        let client = client::<H>(&server, "").await;

        let Err(CheckOutError::Selection(error)) = client.check_out().await else { panic!("it is too old") };

        assert!(matches!(error.kind, SelectionErrorKind::Incompatible(_)), "{error}");
        assert!(error.to_string().contains("the server speaks protocol versions up to 6"), "{error}");
        assert!(error.to_string().contains("update the server"), "{error}");
    });
}

pub fn what_is_no_mongodb_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        server.set_manners(Manners::SpeakHttp);
        let client = client::<H>(&server, "").await;
        wait_for_failed_check::<H>(&client).await;

        let error = client.check_out_within(Some(Duration::from_millis(1))).await.unwrap_err();

        assert!(error.to_string().contains(&client.address().to_string()), "{error}");
        assert!(
            told(&error)
                .contains("the server speaks HTTP at this port, and not MongoDB's protocol; check host and port"),
            "{}",
            told(&error)
        );
        server.set_manners(Manners::Serve);
        recovered("a server that was no MongoDB", &client).await;
    });
}

pub fn a_server_that_is_silent_in_the_tls_handshake_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        server.set_manners(Manners::NeverAnswer);
        let client = client::<H>(&server, "tlsInsecure=true&connectTimeoutMS=200").await;
        wait_for_failed_check::<H>(&client).await;

        let error = client.check_out_within(Some(Duration::from_millis(1))).await.unwrap_err();

        let expected = "there was no connection within connectTimeoutMS: the server could not be reached, or did not answer in the TLS \
                        handshake";
        assert!(told(&error).contains(expected), "{}", told(&error));
    });
}

pub fn a_refused_connection_fails_check_outs_in_time<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let runtime = H::Runtime::current().unwrap();
        let start = runtime.now();
        let client = client::<H>(&server, "serverSelectionTimeoutMS=1200").await;
        let mut events = client.subscribe(1000);
        wait_for_failed_check::<H>(&client).await;

        let Err(CheckOutError::Selection(error)) = client.check_out().await else { panic!("nobody is there") };

        assert_eq!(error.kind, SelectionErrorKind::Timeout);
        assert!(error.waited >= Duration::from_millis(1200), "{error}");
        assert!(told(&*error).contains("refused"), "{}", told(&*error));
        // MON-3: a check every half second, no more.
        let checks = std::iter::from_fn(|| events.try_next()).filter(is_check).count();
        let waited = runtime.now() - start;
        assert!(checks >= 1 && checks as u128 <= 2 + waited.as_millis() / 500, "{checks} checks in {waited:?}");
        server.restart();
        recovered("a refused connection", &client).await;
    });
}

fn is_check(notice: &Notice) -> bool {
    matches!(notice, Notice::Event { event: event @ Event::Server(_), .. } if event.name() == "ServerHeartbeatStarted")
}

pub fn a_host_that_cannot_be_resolved_is_named<H: Harness>() {
    run::<H>(async {
        let uri = "mongodb://no-such-host.invalid/?serverSelectionTimeoutMS=300";
        let client = super::connect::<H>(uri).await.unwrap();
        wait_for_failed_check::<H>(&client).await;

        let Err(CheckOutError::Selection(error)) = client.check_out().await else { panic!("nobody is there") };

        assert!(error.waited >= Duration::from_millis(300), "{error}");
        assert!(told(&*error).contains("no-such-host.invalid"), "{}", told(&*error));
    });
}

pub fn a_server_that_never_accepts_is_given_up<H: Harness>() {
    run::<H>(async {
        let full = ground::current().full_site().unwrap();
        let place = full.place().clone();
        let uri = format!("mongodb://{place}/?connectTimeoutMS=200&serverSelectionTimeoutMS=300");
        let client = super::connect::<H>(&uri).await.unwrap();

        let error = client.check_out().await.unwrap_err();

        assert!(error.to_string().contains(&place.to_string()), "{error}");
        let _server = LocalServer::start_at(full, Setup::default());
        recovered("a server that did not accept", &client).await;
    });
}

pub fn a_client_waits_for_a_server_that_comes_late<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        // A waiter for heartbeatFrequencyMS would wait longer than a check-out may.
        let client = client::<H>(&server, "heartbeatFrequencyMS=3600000").await;
        let mut events = client.subscribe(1000);
        let mut check_out = Box::pin(client.check_out());
        assert!(poll_once(&mut check_out).await.is_none());
        // A check-out waits, so the checks follow each other every half second (MON-3).
        for _ in 0..2 {
            wait_for(&mut events, "ServerHeartbeatFailed").await;
        }

        server.restart();

        drop(check_out.await.unwrap());
        assert_nothing_lost(&client);
    });
}
