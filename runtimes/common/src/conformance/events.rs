//! Handlers and subscriptions.

use std::sync::{Arc, Mutex, OnceLock};

use bson::rawdoc;

use super::{ClientOf, Harness, TestServer, client, options, run, wait_for, yield_now};
use crate::{Client, Event, Notice};

/// A list of events' names that a handler fills.
type Names = Arc<Mutex<Vec<&'static str>>>;

pub fn events_come_in_the_order_of_the_specification<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let names = Names::default();
        let seen = Arc::clone(&names);
        let builder = Client::<H::Runtime>::builder(options(&server, ""));
        let client = builder
            .on_event(move |_, event| match event {
                Event::Pool(event) => seen.lock().unwrap().push(event.name()),
                Event::Server(_) => {}
            })
            .build()
            .await
            .unwrap();
        let mut end = client.subscribe(100);

        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(connection);
        drop(client);
        while end.next().await.is_some() {}

        assert_eq!(
            *names.lock().unwrap(),
            [
                "ConnectionPoolCreated",
                "ConnectionPoolReady",
                "ConnectionCheckOutStarted",
                "ConnectionCreated",
                "ConnectionReady",
                "ConnectionCheckedOut",
                "ConnectionCheckedIn",
                "ConnectionClosed",
                "ConnectionPoolClosed",
            ]
        );
    });
}

pub fn a_handler_may_call_the_client<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let myself: Arc<OnceLock<ClientOf<H>>> = Arc::default();
        let names = Names::default();
        let (seen, client) = (Arc::clone(&names), Arc::clone(&myself));
        let handler = move |_: &_, event: &Event| {
            let Event::Pool(event) = event else { return };
            seen.lock().unwrap().push(event.name());
            if event.name() == "ConnectionCheckedIn"
                && let Some(client) = client.get()
            {
                // A check-out that is never awaited to its end, from within.
                let mut check_out = Box::pin(client.check_out());
                let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
                if seen.lock().unwrap().len() < 100 {
                    drop(check_out.as_mut().poll(&mut nobody));
                }
            }
        };
        let builder = Client::<H::Runtime>::builder(options(&server, ""));
        let client = builder.on_event(handler).build().await.unwrap();
        assert!(myself.set(client.clone()).is_ok());

        drop(client.check_out().await.unwrap());
        while names.lock().unwrap().len() < 100 {
            yield_now().await;
        }

        // Whatever a call from within causes is told after it: the events alternate as without it.
        let names = names.lock().unwrap();
        let used: Vec<_> = names.iter().copied().skip_while(|name| *name != "ConnectionCheckedIn").skip(1).collect();
        for use_of_one in used.chunks_exact(3) {
            assert_eq!(use_of_one, ["ConnectionCheckOutStarted", "ConnectionCheckedOut", "ConnectionCheckedIn"]);
        }
    });
}

pub fn a_panic_in_a_handler_goes_no_further<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let names = Names::default();
        let seen = Arc::clone(&names);
        let handler = move |_: &_, event: &Event| {
            seen.lock().unwrap().push(event.name());
            // Without the panic hook, which would fill the test's output.
            std::panic::resume_unwind(Box::new("the handler panicked"));
        };
        let builder = Client::<H::Runtime>::builder(options(&server, ""));
        let client = builder.on_event(handler).build().await.unwrap();

        drop(client.check_out().await.unwrap());
        while !names.lock().unwrap().contains(&"ConnectionCheckedIn") {
            yield_now().await;
        }

        assert_eq!(client.stats().counts.available, 1);
    });
}

pub fn a_subscription_says_what_it_lost<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "").await;
        drop(client.check_out().await.unwrap());
        let mut events = client.subscribe(3);

        drop(client.check_out().await.unwrap());
        drop(client.check_out().await.unwrap());

        let read: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
        assert!(
            matches!(&read[..], [Notice::Lost(3), Notice::Event(_), Notice::Event(_), Notice::Event(_)]),
            "{read:?}"
        );
    });
}

pub fn a_subscription_ends_with_its_client<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "").await;
        let mut events = client.subscribe(10);

        drop(client);

        wait_for(&mut events, "TopologyClosed").await;
        assert_eq!(events.next().await, None);
    });
}
