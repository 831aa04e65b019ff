//! Futures dropped at every moment.

use std::pin::Pin;

use bson::rawdoc;

use super::{Harness, Manners, TestServer, assert_balanced, client, poll_once, run, wait_for, yield_now};
use crate::CheckOut;

pub fn a_check_out_dropped_before_the_server_is_known_is_forgotten<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        server.set_manners(Manners::NeverAnswer);
        let client = client::<H>(&server, "connectTimeoutMS=100").await;
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
        }
        drop(waiting);
        drop(in_use);

        println!("{got} got a connection, {dropped} gave up before, {} connections were made", client.stats().created);
        assert!(got > 10_000 && dropped > 10_000, "{got} {dropped}");
        assert_balanced::<H>(&client);
        drop(client.check_out().await.unwrap());
    });
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
