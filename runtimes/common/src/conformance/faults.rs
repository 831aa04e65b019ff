//! Servers and networks that misbehave, on real sockets. The pool recovers by itself.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::pool::CheckOutErrorKind;

use super::server::listener;
use super::{ClientOf, Harness, Manners, TestServer, assert_balanced, client, poll_once, run, wait_for, yield_now};
use crate::runtime::Runtime;
use crate::{CheckOutError, Client, CommandErrorKind, Connection};

pub fn a_restarted_server_costs_no_user_an_error<H: Harness>() {
    run::<H>(async {
        let mut server = TestServer::start();
        let mut options = super::options(&server, "");
        options.pool.check_after_idle = Some(Duration::ZERO);
        let client = Client::<H::Runtime>::with_options(options).await.unwrap();
        let mut connection = client.check_out().await.unwrap();

        server.restart();
        while connection.is_alive() {
            yield_now().await;
        }
        drop(connection);

        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    });
}

pub fn a_killed_server_is_found_again<H: Harness>() {
    run::<H>(async {
        let mut server = TestServer::start();
        let client = client::<H>(&server, "serverSelectionTimeoutMS=100").await;
        let mut connection = client.check_out().await.unwrap();

        server.kill();
        let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();
        drop(connection);
        assert!(matches!(error.kind, CommandErrorKind::Network(_)), "{error}");
        let error = client.check_out().await.unwrap_err();
        assert!(!error.to_string().is_empty());
        server.restart();

        recovered::<H>(&client).await;
    });
}

pub fn a_reset_connection_is_an_error_that_clears_the_pool<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "").await;
        let mut events = client.subscribe(100);
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "reset": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(&error.kind, CommandErrorKind::Network(_)) && error.is_retryable(), "{error}");
        wait_for(&mut events, "ConnectionPoolCleared").await;
        wait_for(&mut events, "ConnectionCheckedIn").await;
        wait_for(&mut events, "ConnectionClosed").await;
        recovered::<H>(&client).await;
    });
}

pub fn a_server_that_never_answers_hello_is_given_up<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "connectTimeoutMS=200&waitQueueTimeoutMS=5000").await;
        drop(client.check_out().await.unwrap());
        let _first = client.check_out().await.unwrap();
        server.set_manners(Manners::NeverAnswer);

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), (Phase::Hello, Fault::Timeout));
        // SDAM-7: labelled, so nothing is cleared.
        assert_eq!(client.stats().cleared, 0);
        server.set_manners(Manners::Serve);
        recovered::<H>(&client).await;
    });
}

pub fn a_server_that_never_accepts_is_given_up<H: Harness>() {
    run::<H>(async {
        // A listener with a full queue takes no more connections.
        let full = listener(SocketAddr::from(([127, 0, 0, 1], 0)), 0).unwrap();
        let address = full.local_addr().unwrap();
        let _queued: Vec<_> =
            (0..3).filter_map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(50)).ok()).collect();
        let uri =
            format!("mongodb://{address}/?connectTimeoutMS=200&serverSelectionTimeoutMS=300&directConnection=true");
        let client = Client::<H::Runtime>::connect(&uri).await.unwrap();

        let error = client.check_out().await.unwrap_err().to_string();

        assert!(error.contains(&address.to_string()), "{error}");
    });
}

pub fn half_a_message_then_the_end_is_an_error<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "halfThenEnd": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(&error.kind, CommandErrorKind::Network(_)), "{error}");
        recovered::<H>(&client).await;
    });
}

pub fn half_a_message_then_silence_is_a_timeout<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "socketTimeoutMS=200").await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "halfThenSilence": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(&error.kind, CommandErrorKind::Timeout(_)), "{error}");
        assert_eq!(client.stats().closed.error, 1);
        recovered::<H>(&client).await;
    });
}

pub fn what_is_no_mongodb_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        server.set_manners(Manners::SpeakHttp);
        let client = client::<H>(&server, "serverSelectionTimeoutMS=300").await;

        let error = client.check_out().await.unwrap_err();

        assert!(error.to_string().contains(&client.address().to_string()), "{error}");
        let causes: Vec<_> = std::iter::successors(std::error::Error::source(&error), |error| error.source())
            .map(ToString::to_string)
            .collect();
        assert!(causes.iter().any(|cause| cause.contains("the server sent what is no message")), "{causes:?}");
    });
}

pub fn a_handshake_cut_at_every_byte_is_an_error_and_recovers<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "").await;
        let _first = client.check_out().await.unwrap();
        let mut cut = 0;
        loop {
            server.set_manners(Manners::CutAfter(cut));
            let outcome = client.check_out().await;
            if outcome.is_ok() {
                break;
            }
            let error = establish_error(outcome);
            assert_eq!((error.phase, error.fault), (Phase::Hello, Fault::Network), "after {cut} bytes");
            cut += 1;
        }
        assert!(cut > 100, "a whole hello has {cut} bytes");

        server.set_manners(Manners::Serve);
        recovered::<H>(&client).await;
    });
}

pub fn a_client_waits_for_a_server_that_comes_late<H: Harness>() {
    run::<H>(async {
        let mut server = TestServer::start();
        server.kill();
        let client = client::<H>(&server, "").await;
        let mut events = client.subscribe(1000);
        let runtime = H::Runtime::current().unwrap();
        let start = runtime.now();
        let mut check_out = Box::pin(client.check_out());
        assert!(poll_once(&mut check_out).await.is_none());
        // Somebody waits, so the checks follow each other every half second (MON-3).
        for _ in 0..2 {
            wait_for(&mut events, "ServerHeartbeatFailed").await;
        }

        server.restart();

        drop(check_out.await.unwrap());
        assert!(runtime.now() - start < Duration::from_secs(5), "it waited for heartbeatFrequencyMS");
        assert_balanced::<H>(&client);
    });
}

pub fn a_hanging_server_interrupts_its_commands<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "heartbeatFrequencyMS=500&connectTimeoutMS=200").await;
        let mut connection = client.check_out().await.unwrap();
        server.hang(true);

        let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();
        drop(connection);

        // CMAP-41, MON-9.
        assert!(matches!(error.kind, CommandErrorKind::Interrupted(_)) && error.is_retryable(), "{error}");
        assert!(error.to_string().contains("interrupted due to server monitor timeout"), "{error}");
        server.hang(false);
        recovered::<H>(&client).await;
    });
}

pub fn a_host_that_cannot_be_resolved_is_named<H: Harness>() {
    run::<H>(async {
        let uri = "mongodb://no-such-host.invalid/?serverSelectionTimeoutMS=300";
        let client = Client::<H::Runtime>::connect(uri).await.unwrap();

        let error = client.check_out().await.unwrap_err();

        let causes: Vec<_> = std::iter::successors(std::error::Error::source(&error), |error| error.source())
            .map(ToString::to_string)
            .collect();
        assert!(causes.iter().any(|cause| cause.contains("no-such-host.invalid")), "{error}: {causes:?}");
    });
}

/// Waits until the client works again, and says how long that took.
async fn recovered<H: Harness>(client: &ClientOf<H>) {
    let runtime = H::Runtime::current().unwrap();
    let start = runtime.now();
    let mut attempts = 0;
    loop {
        attempts += 1;
        if let Ok(mut connection) = client.check_out().await
            && connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok()
        {
            break;
        }
        yield_now().await;
    }
    println!("recovered after {:?}, in attempt {attempts}", runtime.now() - start);
    // Other connections of the test may still be in use.
    let stats = client.stats();
    if stats.counts.in_use == 0 {
        assert_balanced::<H>(client);
    }
}

fn establish_error<R: Runtime>(outcome: Result<Connection<R>, CheckOutError>) -> EstablishError {
    match outcome {
        Err(CheckOutError::Pool(error)) => {
            let CheckOutErrorKind::Establish(cause) = &error.kind else { panic!("{error}") };
            (**cause).clone()
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it got a connection"),
    }
}
