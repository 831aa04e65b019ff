//! The profile of the edition without paused pools, on sockets.

use std::sync::{Arc, Mutex};

use cmap_core::options::Profile;
use cmap_runtime::Event;

use super::{ClientOf, Harness, LocalServer, assert_nothing_lost, options, poll_once, run, until};

pub fn a_pool_of_the_older_edition_is_ready_and_populated_at_once<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let names = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&names);
        let mut options = options(&server, "minPoolSize=2");
        options.pool.profile = Profile::Cmap1_1;
        let client = super::builder::<H>(options)
            .on_event(move |_, event| {
                if let Event::Pool(event) = event {
                    seen.lock().unwrap().push(event.name());
                }
            })
            .build()
            .await
            .unwrap();

        until(|| client.stats().counts.available == 2).await;

        let names = names.lock().unwrap().clone();
        assert_eq!(names[0], "ConnectionPoolCreated");
        assert!(!names.contains(&"ConnectionPoolReady"), "{names:?}");
        assert_nothing_lost(&client);
    });
}

pub fn a_waiter_of_the_older_edition_outlives_the_loss_of_its_server<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        let client = of_older_edition::<H>(&server, "maxPoolSize=1&heartbeatFrequencyMS=500").await;
        let first = client.check_out().await.unwrap();
        let mut waiter = Box::pin(client.check_out());
        assert!(poll_once(&mut waiter).await.is_none());

        server.kill();
        until(|| client.stats().cleared > 0).await;
        assert!(poll_once(&mut waiter).await.is_none(), "a clear fails nobody");
        server.restart();
        drop(first);

        let second = waiter.await.unwrap();
        // Further checks may have failed meanwhile, and made what was pending stale.
        assert!(second.id().get() > 1);
        let stats = client.stats();
        assert!(stats.closed.total() > 0, "the first connection is not used again: {stats:?}");
        assert_eq!(stats.check_outs_failed.total(), 0);
        drop(second);
        assert_nothing_lost(&client);
    });
}

async fn of_older_edition<H: Harness>(server: &LocalServer, query: &str) -> ClientOf<H> {
    let mut options = options(server, query);
    options.pool.profile = Profile::Cmap1_1;
    super::builder::<H>(options).build().await.unwrap()
}
