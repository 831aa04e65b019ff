//! Futures dropped at every moment.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bson::rawdoc;

use super::lab::Lab;
use super::{
    ClientOf, Harness, Hosts, Manners, Setup, TestServer, assert_balanced, assert_nothing_lost, client, options,
    poll_once, run, wait_for, yield_now,
};
use crate::runtime::Runtime;
use crate::{CheckOut, Client, Connection, Event};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(300);

pub fn a_check_out_dropped_before_the_server_is_known_is_forgotten<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        server.set_manners(Manners::NeverAnswer);
        let client = client::<H>(&server, "connectTimeoutMS=1000").await;
        let mut check_out = Box::pin(client.check_out());
        let mut other = Box::pin(client.check_out());
        assert!(poll_once(&mut check_out).await.is_none() && poll_once(&mut other).await.is_none());

        drop(check_out);
        server.set_manners(Manners::Serve);

        drop(other.await.unwrap());
        assert_eq!(client.stats().check_outs_started, 1);
        assert_balanced::<H>(&client);
    });
}

pub fn a_dropped_waiter_is_forgotten<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let first = client.check_out().await.unwrap();
        let mut second = Box::pin(client.check_out());
        let mut third = Box::pin(client.check_out());
        assert!(poll_once(&mut second).await.is_none() && poll_once(&mut third).await.is_none());

        drop(second);
        assert_eq!(client.stats().counts.waiting, 1);
        drop(first);

        drop(third.await.unwrap());
        assert_balanced::<H>(&client);
        assert_eq!(client.stats().cancelled, 1);
    });
}

pub fn a_waiter_dropped_after_its_delivery_passes_the_connection_on<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let first = client.check_out().await.unwrap();
        let mut second = Box::pin(client.check_out());
        let mut third = Box::pin(client.check_out());
        assert!(poll_once(&mut second).await.is_none() && poll_once(&mut third).await.is_none());

        // The connection is now on its way to the second, who never looks.
        drop(first);
        drop(second);

        drop(third.await.unwrap());
        assert_balanced::<H>(&client);
        assert_eq!(client.stats().created, 1);
    });
}

pub fn an_establishment_survives_the_check_out_that_caused_it<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "").await;
        let mut events = client.subscribe(100);
        let first = client.check_out().await.unwrap();
        wait_for(&mut events, "ConnectionReady").await;
        let mut check_out = Box::pin(client.check_out());
        assert!(poll_once(&mut check_out).await.is_none());

        drop(check_out);
        wait_for(&mut events, "ConnectionReady").await;

        assert_eq!(client.check_out().await.unwrap().id().get(), 2);
        drop(first);
        assert_balanced::<H>(&client);
    });
}

pub fn a_command_dropped_half_way_costs_its_connection<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let mut command = Box::pin(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }));
        assert!(poll_once(&mut command).await.is_none());

        drop(command);
        let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();
        drop(connection);

        assert!(error.to_string().contains("broken"), "{error}");
        assert_eq!(client.stats().closed.error, 1);
        assert_eq!(client.check_out().await.unwrap().id().get(), 2);
        assert_balanced::<H>(&client);
    });
}

pub fn check_outs_dropped_at_random_polls_lose_nothing<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, CROWDED).await;

        drop_at_random_polls::<H>(&client, 100_000).await;

        assert_nothing_lost(&client);
        assert_all_permits::<H>(&server, &client).await;
    });
}

pub fn check_outs_dropped_at_random_polls_are_each_told_to_their_end<H: Harness>() {
    /// How many check-outs were told to have begun and to have ended.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Told {
        started: u64,
        checked_out: u64,
        failed: u64,
    }
    run::<H>(async {
        let server = TestServer::start();
        let told = Arc::new(Mutex::new(Told::default()));
        let seen = Arc::clone(&told);
        let handler = move |_: &_, event: &Event| {
            let mut seen = seen.lock().unwrap();
            match event.name() {
                "ConnectionCheckOutStarted" => seen.started += 1,
                "ConnectionCheckedOut" => seen.checked_out += 1,
                "ConnectionCheckOutFailed" => seen.failed += 1,
                _ => {}
            }
            // A panic here would be caught.
            if seen.checked_out + seen.failed > seen.started {
                seen.failed = u64::MAX / 2;
            }
        };
        let builder = Client::<H::Runtime>::builder(options(&server, CROWDED));
        let client = builder.on_event(handler).build().await.unwrap();

        drop_at_random_polls::<H>(&client, 10_000).await;

        let stats = client.stats();
        let mut end = client.subscribe(1);
        drop(client);
        while end.next().await.is_some() {}
        let told = *told.lock().unwrap();
        assert_eq!(told.started, told.checked_out + told.failed, "{told:?}");
        let counted = (stats.check_outs_started, stats.checked_out, stats.check_outs_failed.total());
        assert_eq!((told.started, told.checked_out, told.failed), counted);
        assert!(told.checked_out > 1000 && told.failed > 1000, "{told:?}");
    });
}

/// The options of a client whose check-outs wait for each other.
const CROWDED: &str = "maxPoolSize=3&maxConnecting=3";

/// Begins check-outs and polls them at random, until `drops` that had been polled were dropped before their end. Connections
/// come back, and break, meanwhile; in the end none is in use.
async fn drop_at_random_polls<H: Harness>(client: &ClientOf<H>, drops: u32) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    // With each, whether it has been polled.
    let mut waiting: Vec<(Pin<Box<CheckOut<'_, H::Runtime>>>, bool)> = Vec::new();
    let mut in_use = Vec::new();
    let (mut got, mut dropped) = (0, 0);
    while dropped < drops {
        waiting.push((Box::pin(client.check_out()), false));
        for _ in 0..4 {
            let chosen = random.below(waiting.len());
            match random.below(8) {
                0 | 1 if !waiting.is_empty() => {
                    let (_, was_polled) = waiting.remove(chosen);
                    dropped += u32::from(was_polled);
                }
                // Those who wait for longest are served first, so it is their turn more often.
                2..=5 if !waiting.is_empty() => {
                    let oldest = chosen.min(random.below(4));
                    let (check_out, was_polled) = &mut waiting[oldest];
                    *was_polled = true;
                    if let Some(connection) = poll_once(check_out).await {
                        drop(waiting.remove(oldest));
                        in_use.push(connection.unwrap());
                        got += 1;
                    }
                }
                _ if !in_use.is_empty() => drop(in_use.swap_remove(random.below(in_use.len()))),
                _ => {}
            }
        }
        // Now and then a connection breaks, and others have to be established.
        if random.below(1000) == 0
            && let Some(connection) = in_use.last_mut()
        {
            break_off(connection).await;
        }
        if random.below(10) == 0 {
            yield_now().await;
        }
        // A machine that is busy with other things gets the time to establish those that are missing.
        if random.below(100) == 0 {
            while client.stats().counts.pending > 0 {
                yield_now().await;
            }
        }
    }
    drop(waiting);
    drop(in_use);
    println!("{got} got a connection, {dropped} were dropped before, {} were established", client.stats().established);
    assert!(got > drops / 10, "{got} got a connection");
}

/// Asserts that the pool, of which nothing is in use, can establish as many connections at once, and have as many, as ever
/// ([`CROWDED`]).
async fn assert_all_permits<H: Harness>(server: &TestServer, client: &ClientOf<H>) {
    const ALL: u32 = 3;
    // Whatever there is goes first; what is still being established is waited for.
    let mut taken = Vec::new();
    for _ in 0..ALL {
        taken.push(client.check_out_within(Some(LONG)).await.unwrap());
    }
    let counts = client.stats().counts;
    assert_eq!((counts.total(), counts.pending, counts.in_use), (ALL, 0, ALL));
    for mut connection in taken {
        break_off(&mut connection).await;
    }
    assert_eq!(client.stats().counts.total(), 0);

    server.hang(true);
    let mut waiting: Vec<_> = (0..ALL).map(|_| Box::pin(client.check_out_within(Some(LONG)))).collect();
    for check_out in &mut waiting {
        assert!(poll_once(check_out).await.is_none());
    }
    let counts = client.stats().counts;
    assert_eq!((counts.total(), counts.pending), (ALL, ALL), "a permit was lost");
    server.hang(false);
    let mut taken = Vec::new();
    for check_out in waiting {
        taken.push(check_out.await.unwrap());
    }
    for mut connection in taken {
        break_off(&mut connection).await;
    }

    let counts = client.stats().counts;
    assert_eq!((counts.total(), counts.pending), (0, 0));
    assert_nothing_lost(client);
}

/// Has a command cut off, after which the connection cannot be used any more.
async fn break_off<R: Runtime>(connection: &mut Connection<R>) {
    let mut command = Box::pin(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }));
    assert!(poll_once(&mut command).await.is_none());
}

pub fn a_check_out_dropped_at_any_await_loses_nothing<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let (client, lab) = stuttering::<H>(&server, "maxPoolSize=1").await;
        let polls = at_every_await(async |polls| {
            // A connection has to be made for it, and then one has to come back.
            let first = cut_short(client.check_out(), polls).await;
            let waits = first.as_ref().map(|_| Box::pin(client.check_out()));
            let second = match waits {
                Some(mut waiting) => {
                    assert!(poll_once(&mut waiting).await.is_none());
                    drop(first);
                    cut_short(waiting, polls).await
                }
                None => None,
            };
            let is_done = second.is_some();
            if let Some(Ok(mut connection)) = second {
                // The next round begins without a connection.
                break_off(&mut connection).await;
            }
            assert_nothing_lost(&client);
            is_done
        })
        .await;

        assert!(polls >= 2, "{polls}");
        lab.stutter(false);
        drop(client.check_out().await.unwrap());
    });
}

pub fn a_command_dropped_at_any_await_costs_its_connection_only<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let (client, lab) = stuttering::<H>(&server, "maxPoolSize=1").await;
        let polls = at_every_await(async |polls| {
            lab.stutter(false);
            let mut connection = client.check_out().await.unwrap();
            lab.stutter(true);
            let outcome = cut_short(connection.run_command("admin", rawdoc! { "ping": 1 }), polls).await;
            drop(connection);
            assert_nothing_lost(&client);
            // What was never polled has not begun.
            let is_usable = polls == 0 || outcome.is_some();
            assert_eq!(client.stats().counts.available, u32::from(is_usable), "dropped after {polls} polls");
            outcome.is_some()
        })
        .await;

        // A byte is an await point at least, on the way there and back.
        assert!(polls > 50, "{polls}");
        assert_eq!(client.stats().closed.error, polls as u64 - 1, "one for each that had begun and not ended");
    });
}

pub fn a_client_dropped_in_the_making_at_any_await_is_forgotten<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let options = options(&server, &format!("tls=true&tlsCAFile={}", server.authority().display()));
        let lab = Lab::<H::Runtime>::new();
        lab.stutter(true);
        let builder = || Client::builder(options.clone()).runtime(lab.clone());

        let polls = at_every_await(async |polls| match cut_short(builder().build(), polls).await {
            Some(client) => client.is_ok(),
            None => false,
        })
        .await;

        // Its files are read elsewhere.
        assert!(polls >= 2, "{polls}");
        // Nothing goes on for those that were dropped, nor for the one that was made.
        lab.all_tasks_ended().await;
        drop(builder().build().await.unwrap().check_out().await.unwrap());
    });
}

pub fn a_close_dropped_at_any_await_leaves_the_client_closed<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        at_every_await(async |polls| {
            let (client, lab) = Lab::client::<H>(&server, "").await;
            let connection = client.check_out().await.unwrap();
            let mut closing = Box::pin(client.close(LONG));
            // It waits for the connection first.
            assert!(cut_short(&mut closing, polls.min(1)).await.is_none());
            drop(connection);
            let closed = cut_short(closing, polls.saturating_sub(1)).await;

            assert!(client.check_out().await.is_err());
            assert_eq!(client.stats().counts.total(), 0);
            assert_nothing_lost(&client);
            lab.all_tasks_ended().await;
            closed.is_some_and(|cut_off| {
                assert_eq!(cut_off, Ok(0));
                true
            })
        })
        .await;
    });
}

/// A client whose sockets make every byte an await point.
async fn stuttering<H: Harness>(server: &TestServer, query: &str) -> (Client<Lab<H::Runtime>>, Lab<H::Runtime>) {
    let (client, lab) = Lab::client::<H>(server, query).await;
    lab.stutter(true);
    (client, lab)
}

/// Makes the attempt that may be polled never, once, twice and so on, until it says that it came to its end. Returns how
/// many polls that took.
async fn at_every_await(mut attempt: impl AsyncFnMut(usize) -> bool) -> usize {
    let mut polls = 0;
    while !attempt(polls).await {
        polls += 1;
    }
    polls
}

/// What becomes of `future` in so many polls; then it is dropped.
async fn cut_short<F: Future>(future: F, mut polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    poll_fn(|cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// xorshift64: the same run every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound.max(1)
    }
}
