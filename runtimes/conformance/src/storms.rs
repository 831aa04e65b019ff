//! Servers that take no more connections: clients that want some leave them alone, and are back soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::server::ServerType;
use cmap_runtime::runtime::Runtime;

use super::{
    Deed, Harness, LocalServer, Manners, assert_nothing_lost, client, is_virtual, run, the_server, until, yield_now,
};

const TASKS: usize = 64;

/// How long the server takes no connections.
const STORM: Duration = Duration::from_secs(2);

/// Most connections in a second.
const RATE: f64 = 20.0;

pub fn a_server_that_takes_no_connections_is_left_alone_and_found_again_soon<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "serverMonitoringMode=stream").await;
        until(|| the_server(&client).server_type != ServerType::Unknown).await;
        server.set_manners(Manners::AtOnce(Deed::HangUp));
        let runtime = H::Runtime::current().unwrap();
        let (pings, failures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ended = Arc::new(AtomicBool::new(false));
        let (before, began) = (server.accepted(), runtime.now());

        for _ in 0..TASKS {
            let (client, ended) = (client.clone(), Arc::clone(&ended));
            let (pings, failures) = (Arc::clone(&pings), Arc::clone(&failures));
            runtime.spawn(async move {
                while !ended.load(Ordering::SeqCst) {
                    if let Ok(mut connection) = client.check_out().await {
                        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
                        pings.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    failures.fetch_add(1, Ordering::SeqCst);
                    yield_now().await;
                }
            });
        }
        runtime.sleep_until(runtime.now() + STORM).await;
        let (connections, failed) = (server.accepted() - before, failures.load(Ordering::SeqCst));
        let storm = runtime.now() - began;
        server.set_manners(Manners::Serve);
        let open_again = runtime.now();
        until(|| pings.load(Ordering::SeqCst) == TASKS).await;
        let recovery = runtime.now() - open_again;
        ended.store(true, Ordering::SeqCst);

        println!(
            "storm: {connections} connections and {failed} failed check-outs in {storm:?}, {TASKS} tasks served within {} ms",
            recovery.as_millis()
        );
        let most = RATE * storm.as_secs_f64();
        assert!(f64::from(u32::try_from(connections).unwrap()) <= most, "{connections} connections in {storm:?}");
        assert!(!is_virtual::<H>() || recovery <= Duration::from_secs(2), "{recovery:?}");
        assert_eq!(
            client.stats().cleared,
            0,
            "an overload says nothing against the connections that are there (SDAM-7)"
        );
        until(|| client.stats().counts.in_use == 0).await;
        assert_nothing_lost(&client);
    });
}
