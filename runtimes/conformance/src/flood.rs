//! Servers that send as fast as they can, or hang up at every request: the other tasks of the runtime are served all
//! the same, and the monitor checks no more often than it should.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use cmap_core::options::ClientOptions;
use cmap_runtime::Pool;
use cmap_runtime::runtime::Runtime;

use super::bystanders::are_served_beside;
use super::scripted_server::{ScriptedServer, streaming_hello};
use super::{ClientOf, Harness, run_alone, until};

/// A lower rate is not a flood.
const FLOOD: u64 = 1 << 20;

pub fn hellos_without_end_on_the_monitors_socket_starve_nobody<H: Harness>() {
    run_alone::<H>(async {
        let server = ScriptedServer::start(|_, mut client| async move {
            loop {
                let request = client.next_request().await?;
                if request.exhaust_allowed {
                    // Each is from another process than the one before, and is therefore news.
                    client.flood(request, [&streaming_hello(1), &streaming_hello(2)]).await?;
                }
                client.answer(request, &streaming_hello(1)).await?;
            }
        });

        are_served_beside::<H>("a flood of streamed hellos", checks_of::<H>(&server, "")).await;

        let accepted = server.accepted();
        assert!(
            (2..=3).contains(&accepted),
            "{accepted} connections: one streams, one measures, and one polls (X-153)"
        );
    });
}

pub fn hellos_without_end_on_the_round_trip_socket_starve_nobody<H: Harness>() {
    run_alone::<H>(async {
        let server = ScriptedServer::start(|before, mut client| async move {
            let request = client.next_request().await?;
            if before > 0 {
                return client.flood(request, [&streaming_hello(1); 2]).await;
            }
            client.answer(request, &streaming_hello(1)).await?;
            client.wait_for_the_end().await
        });

        are_served_beside::<H>("a flood of hellos on the round trip socket", checks_of::<H>(&server, "")).await;

        assert_eq!(server.accepted(), 2, "the flood is refused; round trips are measured again later");
    });
}

pub fn hellos_without_end_for_a_monitor_that_polls_starve_nobody<H: Harness>() {
    run_alone::<H>(async {
        let server = ScriptedServer::start(|_, mut client| async move {
            let request = client.next_request().await?;
            client.flood(request, [&streaming_hello(1); 2]).await
        });

        let attack = checks_of::<H>(&server, "serverMonitoringMode=poll");
        are_served_beside::<H>("a flood of polled hellos", attack).await;

        assert_eq!(server.accepted(), 1, "the flood is refused; the server is checked again later");
    });
}

pub fn hellos_without_end_for_connections_starve_nobody<H: Harness>() {
    run_alone::<H>(async {
        let server = ScriptedServer::start(|_, mut client| async move {
            let request = client.next_request().await?;
            client.babble(request).await
        });
        let pool = pool::<H>(&server).await;

        let attack = async move {
            loop {
                pool.ready();
                assert!(pool.check_out().await.is_err(), "it got a connection");
            }
        };
        are_served_beside::<H>("hellos without end for connections", attack).await;

        assert!(server.sent() > FLOOD, "{} bytes", server.sent());
    });
}

pub fn large_replies_starve_nobody<H: Harness>() {
    run_alone::<H>(async {
        let body = Arc::new(rawdoc! { "ok": 1, "text": "x".repeat(15_000_000) });
        let server = ScriptedServer::start(move |_, mut client| {
            let body = Arc::clone(&body);
            async move {
                let request = client.next_request().await?;
                client.answer(request, &streaming_hello(1)).await?;
                loop {
                    let request = client.next_request().await?;
                    client.answer(request, &body).await?;
                }
            }
        });
        let pool = pool::<H>(&server).await;

        let attack = async move {
            pool.ready();
            let mut connection = pool.check_out().await.unwrap();
            while connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok() {}
        };
        are_served_beside::<H>("large replies", attack).await;

        assert!(server.sent() > FLOOD, "{} bytes", server.sent());
    });
}

pub fn a_server_that_hangs_up_on_every_awaited_hello_is_checked_a_few_times_a_second<H: Harness>() {
    const TIME: Duration = Duration::from_secs(2);
    run_alone::<H>(async {
        let server = ScriptedServer::start(|_, mut client| async move {
            let request = client.next_request().await?;
            client.answer(request, &streaming_hello(1)).await?;
            client.next_request().await.map(drop)
        });
        let runtime = H::Runtime::current().unwrap();
        let start = runtime.now();

        let client: ClientOf<H> = super::connect::<H>(&server.uri("")).await.unwrap();
        runtime.sleep_until(start + TIME).await;
        until(|| server.accepted() >= 4).await;
        let accepted = server.accepted();
        let time = runtime.now() - start;
        drop(client);

        println!("{}: a monitor whose server hangs up: {accepted} connections in {time:?}", H::Runtime::NAME);
        // Two checks in half a second, and one socket beside each of them, by which round trips would be measured.
        let most = 10.0 * time.as_secs_f64();
        assert!(f64::from(u32::try_from(accepted).unwrap()) <= most, "{accepted} connections in {time:?}");
    });
}

/// A client of `server` that is never used.
fn checks_of<H: Harness>(server: &ScriptedServer, query: &str) -> impl Future<Output = ()> + Send + use<H> {
    let uri = server.uri(query);
    async move {
        let _client: ClientOf<H> = super::connect::<H>(&uri).await.unwrap();
        pending::<()>().await;
    }
}

async fn pool<H: Harness>(server: &ScriptedServer) -> Pool<H::Runtime> {
    super::pool_builder::<H>(ClientOptions::parse(&server.uri("")).unwrap().0).build().await.unwrap()
}
