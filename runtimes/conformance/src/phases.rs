//! Silence and resets in every phase of a connection, from connecting to a command: it is given up in time, the error
//! names the phase, and the pool recovers.
//!
//! The server is known and its monitor connected before it begins to misbehave, so that the pool's connections meet the
//! fault.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use cmap_core::connection::{Fault, Phase};
use cmap_runtime::CommandErrorKind;

use super::ground;
use super::proxy::{Passage, Proxy};
use super::recovery::recovered;
use super::server::Deed;
use super::{
    Harness, Hosts, LocalServer, Manners, Setup, assert_nothing_lost, client, establish_error, outspoken, run,
};

/// A fault of a connection while it is established.
struct Trial {
    /// The fault that the client recovers from.
    name: &'static str,
    setup: Setup,
    login: Option<&'static str>,
    query: &'static str,
    manners: Manners,
    expected: (Phase, Fault),
    /// A further text of the error.
    says: &'static str,
}

impl Trial {
    fn new(name: &'static str, manners: Manners, expected: (Phase, Fault)) -> Self {
        // A network error is a reset here, and not another end of the connection.
        let says = if expected.1 == Fault::Network { "reset" } else { "" };
        Self { name, setup: Setup::default(), login: None, query: "", manners, expected, says }
    }

    fn under_tls(mut self) -> Self {
        self.setup.tls = Some(Hosts::Local);
        self
    }

    fn with_login(mut self, query: &'static str) -> Self {
        self.setup.authorization = true;
        (self.login, self.query) = (Some("app:secret"), query);
        self
    }

    async fn run<H: Harness>(self) {
        let server = LocalServer::start_as(self.setup);
        // Short where silence has to be waited out, and long enough for the first connection on a busy machine.
        let limit = if self.expected.1 == Fault::Timeout { 5_000 } else { 30_000 };
        let mut query = format!("connectTimeoutMS={limit}&{}", self.query);
        if self.setup.tls.is_some() {
            query = format!("{query}&tls=true&tlsCAFile={}", server.authority().display());
        }
        let uri = self.login.map_or_else(|| server.uri(&query), |login| server.uri_as(login, &query));
        let client = outspoken::<H>(&uri).await;
        let in_use = client.check_out().await.unwrap();
        server.set_manners(self.manners);

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), self.expected, "{error}");
        assert!(error.message.contains(self.says), "{error}");
        // SDAM-7: labelled up to the hello, and nothing is cleared; SDAM-8: not labelled in authentication.
        let clears = u64::from(self.expected.0 == Phase::Authenticate);
        assert_eq!(client.stats().cleared, clears, "{error}");
        server.set_manners(Manners::Serve);
        recovered(self.name, &client).await;
        drop(in_use);
        assert_nothing_lost(&client);
    }
}

pub fn a_black_hole_while_connecting_is_given_up<H: Harness>() {
    run::<H>(async {
        let full = ground::current().full_site().unwrap();
        let place = full.place().clone();
        // Behind a load balancer the pool connects without waiting for a check.
        let uri = format!("mongodb://{place}/?loadBalanced=true&connectTimeoutMS=200");
        let client = outspoken::<H>(&uri).await;

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), (Phase::Connect, Fault::Timeout), "{error}");
        let _server = LocalServer::start_at(full, Setup { services: 1, ..Setup::default() });
        recovered("a black hole while connecting", &client).await;
    });
}

pub fn a_black_hole_in_the_tls_handshake_is_given_up<H: Harness>() {
    let expected = (Phase::Tls, Fault::Timeout);
    let trial = Trial::new("a black hole in the TLS handshake", Manners::NeverAnswer, expected);
    run::<H>(trial.under_tls().run::<H>());
}

pub fn a_black_hole_in_hello_is_given_up<H: Harness>() {
    let manners = Manners::To("hello", Deed::Silence);
    run::<H>(Trial::new("a black hole in hello", manners, (Phase::Hello, Fault::Timeout)).run::<H>());
}

pub fn a_hello_that_comes_too_slowly_is_given_up_x_17<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let proxy = Proxy::start(server.place());
        // Every byte comes in time, and the last one does not.
        let ground = ground::current();
        let slow = move |_| ground.sleep_until(ground.age() + Duration::from_millis(20));
        proxy.set_passage(Passage::ByteWise(Arc::new(slow)));
        let uri = format!("mongodb://{}/?loadBalanced=true&connectTimeoutMS=1000", proxy.place());
        let client = outspoken::<H>(&uri).await;

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), (Phase::Hello, Fault::Timeout), "{error}");
        proxy.set_passage(Passage::Whole);
        recovered("a slow hello", &client).await;
    });
}

pub fn a_black_hole_at_sasl_start_is_given_up<H: Harness>() {
    let manners = Manners::To("saslStart", Deed::Silence);
    let trial = Trial::new("a black hole at saslStart", manners, (Phase::Authenticate, Fault::Timeout));
    // The one mechanism that does not begin inside the hello.
    run::<H>(trial.with_login("authMechanism=PLAIN").run::<H>());
}

pub fn a_black_hole_at_sasl_continue_is_given_up<H: Harness>() {
    let manners = Manners::To("saslContinue", Deed::Silence);
    let trial = Trial::new("a black hole at saslContinue", manners, (Phase::Authenticate, Fault::Timeout));
    run::<H>(trial.with_login("").run::<H>());
}

pub fn a_black_hole_at_a_command_is_given_up<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "socketTimeoutMS=200").await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "neverAnswer": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
        assert_eq!((client.stats().cleared, client.stats().closed.error), (0, 1), "SDAM-9");
        recovered("a black hole at a command", &client).await;
    });
}

pub fn a_reset_in_the_tls_handshake_is_an_error<H: Harness>() {
    let manners = Manners::AtOnce(Deed::Reset);
    let trial = Trial::new("a reset in the TLS handshake", manners, (Phase::Tls, Fault::Network));
    run::<H>(trial.under_tls().run::<H>());
}

pub fn a_reset_in_hello_is_an_error<H: Harness>() {
    let manners = Manners::To("hello", Deed::Reset);
    run::<H>(Trial::new("a reset in hello", manners, (Phase::Hello, Fault::Network)).run::<H>());
}

pub fn a_reset_at_sasl_start_is_an_error<H: Harness>() {
    let manners = Manners::To("saslStart", Deed::Reset);
    let trial = Trial::new("a reset at saslStart", manners, (Phase::Authenticate, Fault::Network));
    run::<H>(trial.with_login("authMechanism=PLAIN").run::<H>());
}

pub fn a_reset_at_sasl_continue_is_an_error<H: Harness>() {
    let manners = Manners::To("saslContinue", Deed::Reset);
    let trial = Trial::new("a reset at saslContinue", manners, (Phase::Authenticate, Fault::Network));
    run::<H>(trial.with_login("").run::<H>());
}
