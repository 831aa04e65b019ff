//! Handlers and subscriptions.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Waker};
use std::thread;

use bson::rawdoc;
use cmap_core::address::ServerAddress;
use cmap_runtime::{Connection, Event, Notice, Pool};

use super::{ClientOf, Harness, LocalServer, bounded, client, options, run, until, wait_for};

/// A list of events' names that a handler fills.
type Names = Arc<Mutex<Vec<&'static str>>>;

pub fn events_come_in_the_order_of_the_specification<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let names = Names::default();
        let seen = Arc::clone(&names);
        let builder = super::builder::<H>(options(&server, ""));
        let client = builder
            .on_event(move |_, event| {
                if let Event::Pool(event) = event {
                    seen.lock().unwrap().push(event.name());
                }
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
        let server = LocalServer::start();
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
        let builder = super::builder::<H>(options(&server, ""));
        let client = builder.on_event(handler).build().await.unwrap();
        assert!(myself.set(client.clone()).is_ok());

        drop(client.check_out().await.unwrap());
        until(|| names.lock().unwrap().len() >= 100).await;

        // The events of a call from within are delivered after it: the events alternate as without it.
        let names = names.lock().unwrap();
        let used: Vec<_> = names.iter().copied().skip_while(|name| *name != "ConnectionCheckedIn").skip(1).collect();
        for use_of_one in used.chunks_exact(3) {
            assert_eq!(use_of_one, ["ConnectionCheckOutStarted", "ConnectionCheckedOut", "ConnectionCheckedIn"]);
        }
    });
}

pub fn a_panic_in_a_handler_goes_no_further<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let names = Names::default();
        let seen = Arc::clone(&names);
        let handler = move |_: &_, event: &Event| {
            seen.lock().unwrap().push(event.name());
            // Without the panic hook, which would fill the test's output.
            std::panic::resume_unwind(Box::new("the handler panicked"));
        };
        let builder = super::builder::<H>(options(&server, ""));
        let client = builder.on_event(handler).build().await.unwrap();

        drop(client.check_out().await.unwrap());
        until(|| names.lock().unwrap().contains(&"ConnectionCheckedIn")).await;

        assert_eq!(client.stats().counts.available, 1);
    });
}

pub fn a_panic_in_a_handler_hides_no_event_from_other_handlers<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let names = Names::default();
        let seen = Arc::clone(&names);
        let builder = Pool::<H::Runtime>::builder(options(&server, ""))
            .on_event(|_, _| std::panic::resume_unwind(Box::new("the first handler panicked")))
            .on_event(move |_, event| seen.lock().unwrap().push(event.name()));
        let pool = builder.build().await.unwrap();
        let mut events = pool.subscribe(100);

        pool.ready();

        wait_for(&mut events, "ConnectionPoolReady").await;
        assert_eq!(*names.lock().unwrap(), ["ConnectionPoolCreated", "ConnectionPoolReady"]);
    });
}

pub fn whoever_tells_events_leaves_those_of_others_to_a_task<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client_of = |handler| super::builder::<H>(options(&server, "")).on_event(handler).build();
        let (told, told_by_teller) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ((stopped, has_stopped), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
        let (all, own, may_go_on) = (Arc::clone(&told), Arc::clone(&told_by_teller), Mutex::new(may_go_on));
        let client = client_of(move |_: &ServerAddress, _: &Event| {
            all.fetch_add(1, Ordering::SeqCst);
            // The first event's handler runs until others have caused many more.
            if thread::current().name() == Some("teller") && own.fetch_add(1, Ordering::SeqCst) == 0 {
                stopped.send(()).unwrap();
                may_go_on.lock().unwrap().recv().unwrap();
            }
        });
        let client = client.await.unwrap();
        drop(client.check_out().await.unwrap());
        let (other, own) = (client.clone(), Arc::clone(&told_by_teller));
        let teller = thread::Builder::new().name("teller".into()).spawn(move || {
            // Another thread may be delivering just now, and delivers these, too.
            while own.load(Ordering::SeqCst) == 0 {
                let mut check_out = Box::pin(other.check_out());
                let _ = check_out.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
        });
        has_stopped.recv().unwrap();

        let before = told.load(Ordering::SeqCst);
        for _ in 0..100 {
            drop(client.check_out().await.unwrap());
        }
        go_on.send(()).unwrap();

        teller.unwrap().join().unwrap();
        until(|| told.load(Ordering::SeqCst) >= before + 300).await;
        let own = told_by_teller.load(Ordering::SeqCst);
        assert!(own < 50, "the teller told {own} events");
    });
}

pub fn what_a_handler_causes_is_told_though_the_runtime_ends<H: Harness>() {
    let server = LocalServer::start();
    let check_ins = Arc::new(AtomicUsize::new(0));
    let kept = Arc::new(Mutex::new(None));
    let client = bounded::<H, _>(async {
        let (count, other) = (Arc::clone(&check_ins), Arc::clone(&kept));
        let handler = move |_: &ServerAddress, event: &Event| {
            if event.name() == "ConnectionCheckedIn" && count.fetch_add(1, Ordering::SeqCst) == 0 {
                // A check-in works although the runtime may have ended, and so tells the second event.
                let connection: Option<Connection<H::Runtime>> = other.lock().unwrap().take();
                drop(connection);
            }
        };
        let builder = super::builder::<H>(options(&server, "")).on_event(handler);
        let client = builder.build().await.unwrap();
        let connection = client.check_out().await.unwrap();
        *kept.lock().unwrap() = Some(client.check_out().await.unwrap());
        drop(connection);
        client
    });

    // By a task that was dropped with its runtime, or goes on.
    bounded::<H, _>(until(|| check_ins.load(Ordering::SeqCst) == 2));
    drop(client);
}

pub fn a_subscription_says_what_it_lost<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        // A pool has no monitor, whose events would come between.
        let pool = Pool::<H::Runtime>::builder(options(&server, "")).build().await.unwrap();
        let mut first = pool.subscribe(100);
        pool.ready();
        drop(pool.check_out().await.unwrap());
        // A task may still be delivering the events of the first check-out.
        wait_for(&mut first, "ConnectionCheckedIn").await;
        let mut events = pool.subscribe(3);
        // A later subscription gets each event after the earlier one.
        let mut all = pool.subscribe(6);

        drop(pool.check_out().await.unwrap());
        drop(pool.check_out().await.unwrap());
        for _ in 0..6 {
            all.next().await.unwrap();
        }

        let read: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
        assert!(
            matches!(&read[..], [Notice::Lost(3), Notice::Event { .. }, Notice::Event { .. }, Notice::Event { .. }]),
            "{read:?}"
        );
    });
}

pub fn a_subscription_counts_what_its_client_has_lost_as_well<H: Harness>() {
    /// This many pairs of a check-out and a check-in, three events each, exceed the client's queue.
    const PAIRS: u64 = 40_000;
    run::<H>(async {
        let server = LocalServer::start();
        let (go_on, may_go_on) = mpsc::channel();
        let (has_lost, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (loses, ends, may_go_on) = (Arc::clone(&has_lost), Arc::clone(&is_over), Mutex::new(Some(may_go_on)));
        let handler = move |_: &ServerAddress, event: &Event| match event.name() {
            "ConnectionCheckedIn" => {
                if let Some(may_go_on) = may_go_on.lock().unwrap().take() {
                    may_go_on.recv().unwrap();
                }
            }
            "ConnectionPoolClosed" => ends.store(true, Ordering::SeqCst),
            _ => {
                loses.fetch_or(matches!(event, Event::Lost(_)), Ordering::SeqCst);
            }
        };
        let pool = Pool::<H::Runtime>::builder(options(&server, "")).on_event(handler).build().await.unwrap();
        pool.ready();
        let connection = pool.check_out().await.unwrap();
        // It keeps the newest only.
        let mut events = pool.subscribe(1);
        // A thread of its own stands still in the handler, and others go on.
        let slow = thread::spawn(move || drop(connection));
        until(|| pool.stats().counts.in_use == 0).await;

        for _ in 0..PAIRS {
            drop(pool.check_out().await.unwrap());
        }
        go_on.send(()).unwrap();
        slow.join().unwrap();
        until(|| has_lost.load(Ordering::SeqCst)).await;
        // The last events overwrite the number of those that the client has lost.
        drop(pool);
        until(|| is_over.load(Ordering::SeqCst)).await;

        let mut counted = 0;
        while let Some(notice) = events.next().await {
            counted += if let Notice::Lost(count) = notice { count } else { 1 };
        }
        assert!(counted >= 3 * PAIRS, "{counted} were read or counted");
    });
}

pub fn a_subscription_ends_with_its_client<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        // Room for all that its monitor tells, however late they are read.
        let mut events = client.subscribe(100);

        drop(client);

        wait_for(&mut events, "TopologyClosed").await;
        assert_eq!(events.next().await, None);
    });
}

pub fn a_reader_that_waits_learns_of_the_end<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = Pool::<H::Runtime>::with_options(options(&server, "")).await.unwrap();
        let mut events = pool.subscribe(10);
        pool.close();
        wait_for(&mut events, "ConnectionPoolClosed").await;

        let mut last = Some(pool);
        let mut next = pin!(events.next());
        let end = poll_fn(|cx| {
            let poll = next.as_mut().poll(cx);
            assert_eq!(poll.is_pending(), last.is_some());
            // There are no more events to wake the reader.
            drop(last.take());
            poll
        });

        assert_eq!(end.await, None);
    });
}

pub fn a_handler_that_is_too_slow_learns_how_much_it_missed<H: Harness>() {
    /// Every pair of a check-out and a check-in is three events; this many pairs exceed the queue's capacity.
    const PAIRS: usize = 40_000;
    run::<H>(async {
        let server = LocalServer::start();
        let (told, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (go_on, may_go_on) = mpsc::channel();
        let (seen, missed, may_go_on) = (Arc::clone(&told), Arc::clone(&lost), Mutex::new(Some(may_go_on)));
        let handler = move |_: &ServerAddress, event: &Event| {
            if let Event::Lost(count) = event {
                missed.fetch_add(usize::try_from(*count).unwrap(), Ordering::SeqCst);
                return;
            }
            seen.fetch_add(1, Ordering::SeqCst);
            if event.name() == "ConnectionCheckedIn"
                && let Some(may_go_on) = may_go_on.lock().unwrap().take()
            {
                may_go_on.recv().unwrap();
            }
        };
        let client = super::builder::<H>(options(&server, "")).on_event(handler).build().await.unwrap();
        let connection = client.check_out().await.unwrap();
        // A thread of its own stands still in the handler, and others go on.
        let slow = thread::spawn(move || drop(connection));
        until(|| client.stats().counts.in_use == 0).await;

        for _ in 0..PAIRS {
            drop(client.check_out().await.unwrap());
        }
        go_on.send(()).unwrap();
        slow.join().unwrap();
        let before = told.load(Ordering::SeqCst);
        until(|| lost.load(Ordering::SeqCst) > 0).await;

        let (told, lost) = (told.load(Ordering::SeqCst), lost.load(Ordering::SeqCst));
        assert!(told + lost >= 3 * PAIRS, "{told} told and {lost} lost, {before} before");
        assert!(told < 3 * PAIRS, "{told} were kept");
    });
}
