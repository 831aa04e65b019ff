//! Futures dropped at every moment.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bson::rawdoc;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{CheckOut, Client, Connection, Event};

use super::lab::Lab;
use super::{
    ClientOf, Harness, Hosts, LocalServer, Manners, Setup, assert_nothing_lost, client, options, poll_once, run,
    wait_for, yield_now,
};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(300);

pub fn a_check_out_dropped_before_the_server_is_known_is_forgotten<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        server.set_manners(Manners::NeverAnswer);
        let client = client::<H>(&server, "connectTimeoutMS=1000").await;
        let mut check_out = Box::pin(client.check_out());
        let mut other = Box::pin(client.check_out());
        assert!(poll_once(&mut check_out).await.is_none() && poll_once(&mut other).await.is_none());

        drop(check_out);
        server.set_manners(Manners::Serve);

        drop(other.await.unwrap());
        assert_eq!(client.stats().check_outs_started, 1);
        assert_nothing_lost(&client);
    });
}

pub fn a_dropped_waiter_is_forgotten<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let first = client.check_out().await.unwrap();
        let mut second = Box::pin(client.check_out());
        let mut third = Box::pin(client.check_out());
        assert!(poll_once(&mut second).await.is_none() && poll_once(&mut third).await.is_none());

        drop(second);
        assert_eq!(client.stats().counts.waiting, 1);
        drop(first);

        drop(third.await.unwrap());
        assert_nothing_lost(&client);
        assert_eq!(client.stats().cancelled, 1);
    });
}

pub fn a_waiter_dropped_after_its_delivery_passes_the_connection_on<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let first = client.check_out().await.unwrap();
        let mut second = Box::pin(client.check_out());
        let mut third = Box::pin(client.check_out());
        assert!(poll_once(&mut second).await.is_none() && poll_once(&mut third).await.is_none());

        // The connection is now on its way to the second waiter, which is never polled again.
        drop(first);
        drop(second);

        drop(third.await.unwrap());
        assert_nothing_lost(&client);
        assert_eq!(client.stats().created, 1);
    });
}

pub fn a_check_out_dropped_after_its_end_disturbs_no_other<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let first = client.check_out().await.unwrap();
        let mut ended = Box::pin(client.check_out());
        assert!(poll_once(&mut ended).await.is_none());
        drop(first);
        let second = ended.as_mut().await.unwrap();
        let mut waiting = Box::pin(client.check_out());
        assert!(poll_once(&mut waiting).await.is_none());

        drop(ended);
        drop(second);

        drop(waiting.await.unwrap());
        assert_nothing_lost(&client);
    });
}

pub fn an_establishment_survives_the_check_out_that_caused_it<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
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
        assert_nothing_lost(&client);
    });
}

pub fn a_command_dropped_half_way_costs_its_connection<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
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
        assert_nothing_lost(&client);
    });
}

pub fn a_command_dropped_half_way_leaves_its_session_dirty_ses_8<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        drop(client.check_out().await.unwrap());
        let mut session = client.start_session().unwrap();
        let mut cut_off = Box::pin(session.run(("admin", rawdoc! { "neverAnswer": 1 })));
        assert!(poll_once(&mut cut_off).await.is_none());

        drop(cut_off);
        session.run(("admin", rawdoc! { "ping": 1 })).await.unwrap();

        assert!(session.is_dirty());
    });
}

pub fn check_outs_dropped_at_random_polls_lose_nothing<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, CROWDED).await;

        drop_at_random_polls::<H>(&client).await;

        assert_nothing_lost(&client);
        assert_all_permits::<H>(&server, &client).await;
    });
}

pub fn check_outs_dropped_at_random_polls_are_each_told_to_their_end<H: Harness>() {
    /// The numbers of check-outs whose events reported a start and an end.
    #[derive(Clone, Copy, Debug, Default)]
    struct Told {
        started: u64,
        checked_out: u64,
        failed: u64,
        /// Ends reported before their starts.
        premature: u64,
    }
    run::<H>(async {
        let server = LocalServer::start();
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
            seen.premature += u64::from(seen.checked_out + seen.failed > seen.started);
        };
        let builder = Client::<H::Runtime>::builder(options(&server, CROWDED));
        let client = builder.on_event(handler).build().await.unwrap();

        drop_at_random_polls::<H>(&client).await;

        let stats = client.stats();
        let mut last = client.subscribe(1);
        drop(client);
        while last.next().await.is_some() {}
        let told = *told.lock().unwrap();
        assert_eq!((told.started, told.premature), (told.checked_out + told.failed, 0), "{told:?}");
        let counted = (stats.check_outs_started, stats.checked_out, stats.check_outs_failed.total());
        assert_eq!((told.started, told.checked_out, told.failed), counted);
    });
}

/// The options of a client whose check-outs wait for each other.
const CROWDED: &str = "maxPoolSize=3&maxConnecting=3";

/// A dozen check-outs at a time, each polled and dropped at random, until 100,000 that had been polled were dropped
/// before their end, some of them when a connection was already theirs. Connections come back, and break, meanwhile; in
/// the end none is in use.
async fn drop_at_random_polls<H: Harness>(client: &ClientOf<H>) {
    struct Waiting<'a, R: Runtime> {
        check_out: Pin<Box<CheckOut<'a, R>>>,
        has_begun: bool,
    }

    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut waiting: Vec<Waiting<'_, H::Runtime>> = Vec::new();
    // However long others take to be established, there are connections to begin with.
    let mut in_use = Vec::new();
    for _ in 0..3 {
        in_use.push(client.check_out().await.unwrap());
    }
    let (mut got, mut dropped) = (3, 0);
    while dropped < 100_000 {
        if waiting.len() < 12 {
            waiting.push(Waiting { check_out: Box::pin(client.check_out()), has_begun: false });
        }
        let chosen = random.below(waiting.len());
        match random.below(5) {
            0 | 1 => dropped += u64::from(waiting.remove(chosen).has_begun),
            2 | 3 => {
                waiting[chosen].has_begun = true;
                if let Some(connection) = poll_once(&mut waiting[chosen].check_out).await {
                    drop(waiting.remove(chosen));
                    in_use.push(connection.unwrap());
                    got += 1;
                }
            }
            _ if in_use.is_empty() => {}
            _ => {
                let mut connection = in_use.swap_remove(random.below(in_use.len()));
                // Now and then a connection breaks, and another has to be established.
                if random.below(500) == 0 {
                    break_off(&mut connection).await;
                }
            }
        }
        if random.below(20) == 0 {
            yield_now().await;
        }
    }
    dropped += waiting.drain(..).filter(|waiting| waiting.has_begun).count() as u64;
    drop(in_use);
    let stats = client.stats();
    let delivered = stats.checked_out - got;
    assert_eq!(stats.cancelled + delivered, dropped);
    assert!(stats.cancelled > 100 && delivered > 100, "{} waited, {delivered} had a connection", stats.cancelled);
    println!(
        "{got} got a connection; {dropped} were dropped, {delivered} of them with one; {} were made",
        stats.created
    );
}

/// Asserts that the pool, of which nothing is in use, can establish and hold as many connections at once as before
/// ([`CROWDED`]).
async fn assert_all_permits<H: Harness>(server: &LocalServer, client: &ClientOf<H>) {
    const ALL: u32 = 3;
    // Available connections are taken first; the others are waited for.
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

/// Has a command aborted, after which the connection cannot be used any more.
async fn break_off<R: Runtime>(connection: &mut Connection<R>) {
    let mut command = Box::pin(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }));
    assert!(poll_once(&mut command).await.is_none());
}

pub fn a_check_out_dropped_at_any_await_loses_nothing<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, lab) = stuttering::<H>(&server, "maxPoolSize=1").await;
        let polls = at_every_await(async |polls| {
            let connection = cut_short(client.check_out(), polls).await.map(Result::unwrap);
            let is_done = connection.is_some();
            drop(connection);
            assert_nothing_lost(&client);
            // The next check-out finds no connection either, and another has to be established.
            break_off(&mut client.check_out().await.unwrap()).await;
            is_done
        })
        .await;

        // It waits at least once, for its connection.
        assert!(polls >= 2, "{polls}");
        lab.stutter(false);
        drop(client.check_out().await.unwrap());
    });
}

pub fn a_command_dropped_at_any_await_costs_its_connection_only<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, lab) = stuttering::<H>(&server, "maxPoolSize=1").await;
        let polls = at_every_await(async |polls| {
            lab.stutter(false);
            let mut connection = client.check_out().await.unwrap();
            lab.stutter(true);
            let outcome = cut_short(connection.run_command("admin", rawdoc! { "ping": 1 }), polls).await;
            drop(connection);
            assert_nothing_lost(&client);
            // A check-out that was never polled has not begun.
            let is_usable = polls == 0 || outcome.is_some();
            assert_eq!(client.stats().counts.available, u32::from(is_usable), "dropped after {polls} polls");
            outcome.is_some()
        })
        .await;

        // Every byte is at least one await point, in both directions.
        assert!(polls > 50, "{polls}");
        assert_eq!(client.stats().closed.error, polls as u64 - 1, "one for each that had begun and not ended");
    });
}

pub fn a_client_dropped_in_the_making_at_any_await_is_forgotten<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let options = options(&server, &format!("tls=true&tlsCAFile={}", server.authority().display()));
        let lab = Lab::<H::Runtime>::new();
        lab.stutter(true);
        let builder = || Client::builder(options.clone()).runtime(lab.clone());

        let polls = at_every_await(async |polls| match cut_short(builder().build(), polls).await {
            Some(client) => client.is_ok(),
            None => false,
        })
        .await;

        // Its files are read in another thread.
        assert!(polls >= 2, "{polls}");
        // No task goes on for those that were dropped, nor for the one that was made.
        lab.all_tasks_ended().await;
        drop(builder().build().await.unwrap().check_out().await.unwrap());
    });
}

pub fn a_close_dropped_at_any_await_leaves_the_client_closed<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        at_every_await(async |polls| {
            let (client, lab) = Lab::<H::Runtime>::client(&server, "").await;
            let connection = client.check_out().await.unwrap();
            let mut closing = Box::pin(client.close(LONG));
            // It waits for the connection first.
            assert!(cut_short(&mut closing, polls.min(1)).await.is_none());
            drop(connection);
            let closed = cut_short(closing, polls.saturating_sub(1)).await;

            assert!(client.check_out().await.is_err());
            assert_eq!(client.stats().counts.total(), 0);
            assert_nothing_lost(&client);
            drop(client);
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
async fn stuttering<H: Harness>(server: &LocalServer, query: &str) -> (Client<Lab<H::Runtime>>, Lab<H::Runtime>) {
    let (client, lab) = Lab::<H::Runtime>::client(server, query).await;
    lab.stutter(true);
    (client, lab)
}

/// Makes the attempt that may be polled 0, 1, 2 times and so on, until it reports that it came to its end. Returns the
/// number of polls.
async fn at_every_await(mut attempt: impl AsyncFnMut(usize) -> bool) -> usize {
    let mut polls = 0;
    while !attempt(polls).await {
        polls += 1;
    }
    polls
}

/// The result of `future` after this many polls; then it is dropped.
pub(super) async fn cut_short<F: Future>(future: F, mut polls: usize) -> Option<F::Output> {
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
