//! Servers behind a SOCKS5 proxy, which alone knows their names.

use std::time::Duration;

use bson::rawdoc;
use cmap_core::connection::{EstablishError, Fault, Phase, SYSTEM_OVERLOADED_ERROR};
use cmap_core::options::ClientOptions;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{CheckOutError, Client, Connection, Pool};

use super::recovery::recovered;
use super::socks_proxy::{Lie, SocksProxy};
use super::{Harness, Hosts, LocalServer, Setup, establish_error, run, the_server, until};

const NAME: &str = "db.example";

/// A client of the server that the proxy knows as `host`; `query` are further options.
async fn client<H: Harness>(proxy: &SocksProxy, host: &str, query: &str) -> Client<H::Runtime> {
    let uri = format!("mongodb://{host}/?{}&appName=suite&{query}", proxy.query());
    Client::connect(&uri).await.unwrap()
}

/// A pool of the server that the proxy knows.
async fn pool<H: Harness>(query: &str) -> Pool<H::Runtime> {
    let (options, _) = ClientOptions::parse(&format!("mongodb://{NAME}/?{query}")).unwrap();
    let pool = Pool::with_options(options).await.unwrap();
    pool.ready();
    pool
}

/// Why the proxy gives no connection to its server.
async fn failure<H: Harness>(proxy: &SocksProxy, query: &str) -> EstablishError {
    establish_error(check_out::<H>(proxy, query).await.map(|(_, connection)| connection))
}

/// The first check-out of a pool behind the proxy.
async fn check_out<H: Harness>(
    proxy: &SocksProxy,
    query: &str,
) -> Result<(Pool<H::Runtime>, Connection<H::Runtime>), CheckOutError> {
    let pool = pool::<H>(&format!("{}&{query}", proxy.query())).await;
    let connection = pool.check_out().await?;
    Ok((pool, connection))
}

/// Asserts that `error` names the proxy, and is one of the network without the labels of an overload.
fn assert_blames_the_proxy(error: &EstablishError, proxy: &SocksProxy, what: impl std::fmt::Debug) {
    let beginning = format!("connecting through the proxy failed: {}", proxy.place());
    assert!(error.to_string().starts_with(&beginning), "{what:?}: {error}");
    assert_eq!((error.phase, error.fault), (Phase::Proxy, Fault::Network), "{what:?}: {error}");
    assert!(!error.has_label(SYSTEM_OVERLOADED_ERROR), "{what:?}: {error}");
}

pub fn connections_and_checks_go_through_the_proxy_which_resolves_the_name_socks_2<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let proxy = SocksProxy::start(&[(NAME, server.place())], None);
        let client = client::<H>(&proxy, NAME, "").await;

        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();

        assert_eq!(connection.address().to_string(), format!("{NAME}:27017"));
        // The monitor's sockets, and the connection.
        until(|| server.accepted() >= 2 && proxy.passed() == server.accepted()).await;
    });
}

pub fn tls_goes_through_the_proxy_to_the_server_socks_2<H: Harness>() {
    run::<H>(async {
        let server =
            LocalServer::start_as(Setup { tls: Some(Hosts::Elsewhere), authorization: true, ..Setup::default() });
        let proxy = SocksProxy::start(&[("elsewhere.example", server.place())], Some(("me", "secret")));
        let authority = server.authority();
        let query = format!("proxyUsername=me&proxyPassword=secret&tls=true&tlsCAFile={}", authority.display());
        let client = client::<H>(&proxy, "app:secret@elsewhere.example", &query).await;

        let mut connection = client.check_out().await.unwrap();

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    });
}

pub fn a_server_that_is_restarted_behind_a_proxy_is_found_again<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        let proxy = SocksProxy::start(&[(NAME, server.place())], None);
        let client = client::<H>(&proxy, NAME, "heartbeatFrequencyMS=500").await;
        drop(client.check_out().await.unwrap());

        server.kill();
        until(|| the_server(&client).error.is_some()).await;
        server.restart();

        recovered("a restart behind a proxy", &client).await;
    });
}

pub fn a_login_that_the_proxy_refuses_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let proxy = SocksProxy::start(&[(NAME, server.place())], Some(("me", "secret")));

        let without = failure::<H>(&proxy, "").await;
        let wrong = failure::<H>(&proxy, "proxyUsername=me&proxyPassword=wrong").await;

        for (error, advice) in [(without, "set proxyUsername"), (wrong, "check proxyUsername and proxyPassword")] {
            assert_blames_the_proxy(&error, &proxy, advice);
            assert!(error.to_string().contains(advice) && !error.to_string().contains("wrong"), "{error}");
        }
    });
}

pub fn a_server_that_the_proxy_cannot_reach_is_said_so<H: Harness>() {
    run::<H>(async {
        let mut gone = LocalServer::start();
        let proxy = SocksProxy::start(&[(NAME, gone.place())], None);
        gone.kill();

        let refused = failure::<H>(&proxy, "").await;
        let unknown = failure::<H>(&SocksProxy::start(&[], None), "").await;

        assert_blames_the_proxy(&refused, &proxy, "refused");
        assert!(refused.to_string().contains("asked to connect to db.example:27017: the server refused"), "{refused}");
        assert!(unknown.to_string().contains("whether the proxy can resolve it (4)"), "{unknown}");
    });
}

pub fn a_proxy_that_hangs_up_or_lies_at_any_byte_is_named_socks_4<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let proxy = SocksProxy::start(&[(NAME, server.place())], Some(("me", "secret")));
        let login = "proxyUsername=me&proxyPassword=secret";
        // The greeting's answer, the login's, and ten bytes about the connection, of which the last six mean nothing.
        let lies = (0..14).map(Lie::HangUp).chain((0..8).map(Lie::Flip));
        for lie in lies {
            proxy.set_lie(lie);

            let error = failure::<H>(&proxy, login).await;

            assert_blames_the_proxy(&error, &proxy, lie);
        }

        proxy.set_lie(Lie::None);
        assert!(check_out::<H>(&proxy, login).await.is_ok());
    });
}

pub fn a_proxy_that_is_silent_or_gone_is_named_in_time<H: Harness>() {
    run::<H>(async {
        let proxy = SocksProxy::start(&[], None);
        proxy.set_lie(Lie::Silence);
        let runtime = H::Runtime::current().unwrap();
        let start = runtime.now();

        let silent = failure::<H>(&proxy, "connectTimeoutMS=500").await;
        let took = runtime.now() - start;
        let query = proxy.query();
        let place = proxy.place().clone();
        drop(proxy);
        let gone = establish_error(pool::<H>(&query).await.check_out().await);

        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!((silent.phase, silent.fault), (Phase::Proxy, Fault::Timeout));
        assert!(silent.to_string().contains(&format!("{place}, at the greeting: no answer within")), "{silent}");
        assert_eq!((gone.phase, gone.fault), (Phase::Proxy, Fault::Network));
        assert!(gone.to_string().contains(&format!("{place} cannot be reached")), "{gone}");
    });
}

pub fn a_check_through_a_silent_proxy_names_it<H: Harness>() {
    run::<H>(async {
        let proxy = SocksProxy::start(&[], None);
        proxy.set_lie(Lie::Silence);
        let client = client::<H>(&proxy, NAME, "connectTimeoutMS=500").await;

        until(|| the_server(&client).error.is_some()).await;

        let error = the_server(&client).error.as_ref().unwrap().to_string();
        assert!(error.contains("connecting through the proxy failed"), "{error}");
        assert!(error.contains(&proxy.place().to_string()), "{error}");
    });
}
