//! Futures dropped at every moment.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bson::rawdoc;

use super::lab::Lab;
use super::{
    Harness, Hosts, Manners, Setup, TestServer, assert_balanced, assert_nothing_lost, client, options, poll_once, run,
    wait_for, yield_now,
};
use crate::{CheckOut, Client};

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
    /// So many check-outs are begun.
    const ROUNDS: u32 = 100_000;
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "maxPoolSize=3&maxConnecting=3").await;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut waiting: Vec<Pin<Box<CheckOut<'_, H::Runtime>>>> = Vec::new();
        let mut in_use = Vec::new();
        let (mut got, mut dropped) = (0, 0);

        for _ in 0..ROUNDS {
            waiting.push(Box::pin(client.check_out()));
            for _ in 0..4 {
                let chosen = random.below(waiting.len());
                match random.below(8) {
                    0 | 1 if !waiting.is_empty() => {
                        drop(waiting.remove(chosen));
                        dropped += 1;
                    }
                    // Those who wait for longest are served first, so it is their turn more often.
                    2..=5 if !waiting.is_empty() => {
                        let oldest = chosen.min(random.below(4));
                        if let Some(connection) = poll_once(&mut waiting[oldest]).await {
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
                let mut command = Box::pin(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }));
                assert!(poll_once(&mut command).await.is_none());
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

        println!("{got} got a connection, {dropped} gave up before, {} connections were made", client.stats().created);
        assert!(got > 10_000 && dropped > 10_000, "{got} {dropped}");
        assert_balanced::<H>(&client);
        drop(client.check_out().await.unwrap());
    });
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
                let mut command = Box::pin(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }));
                assert!(poll_once(&mut command).await.is_none());
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
        drop(builder().build().await.unwrap().check_out().await.unwrap());
    });
}

pub fn a_close_dropped_at_any_await_leaves_the_client_closed<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let polls = at_every_await(async |polls| {
            let client = client::<H>(&server, "").await;
            let connection = client.check_out().await.unwrap();
            let mut closing = Box::pin(client.close(Duration::from_secs(30)));
            let closed = cut_short(&mut closing, polls).await;
            drop(connection);
            let closed = match closed {
                // It waited for the connection.
                None if polls > 0 => cut_short(closing, 1).await,
                closed => closed,
            };
            if polls > 0 {
                assert!(client.check_out().await.is_err());
                assert_eq!(client.stats().counts.total(), 0);
            }
            assert_balanced::<H>(&client);
            closed.is_some()
        })
        .await;

        assert!(polls >= 1, "{polls}");
    });
}

/// A client whose sockets make every byte an await point.
async fn stuttering<H: Harness>(server: &TestServer, query: &str) -> (Client<Lab<H::Runtime>>, Lab<H::Runtime>) {
    let lab = Lab::new();
    let client = Client::builder(options(server, query)).runtime(lab.clone()).build().await.unwrap();
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
