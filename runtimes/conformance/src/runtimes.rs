//! Threads, several runtimes, and the end of the one that a client lives in.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::pool::CheckOutErrorKind;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{CheckOutError, CommandErrorKind};

use super::{Harness, LIMIT, LocalServer, Manners, Setup, assert_nothing_lost, bounded, client, poll_once, run, until};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(300);

pub fn a_connection_is_dropped_outside_of_any_runtime<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let connection = client.check_out().await.unwrap();

        thread::spawn(move || drop(connection)).join().unwrap();

        assert_nothing_lost(&client);
        assert_eq!(client.stats().counts.available, 1);
    });
}

pub fn a_connection_is_dropped_after_its_runtime_ended<H: Harness>() {
    let server = LocalServer::start();
    let (client, connection) = bounded::<H, _>(async {
        let client = client::<H>(&server, "").await;
        let connection = client.check_out().await.unwrap();
        (client, connection)
    });

    drop(connection);

    assert_nothing_lost(&client);
}

pub fn a_client_outlives_its_runtime<H: Harness>() {
    let server = LocalServer::start();
    let (client, mut connection) = bounded::<H, _>(async {
        let client = client::<H>(&server, "").await;
        let connection = client.check_out().await.unwrap();
        (client, connection)
    });

    run::<H>(async move {
        let command = connection.run_command("admin", rawdoc! { "ping": 1 }).await;
        let check_out = client.check_out().await;
        let close = client.close(Duration::from_secs(1)).await;

        if H::ENDS {
            assert!(matches!(command.unwrap_err().kind, CommandErrorKind::RuntimeGone(_)));
            assert!(matches!(check_out, Err(CheckOutError::RuntimeGone(_))));
            assert!(close.is_err());
        } else {
            command.unwrap();
            check_out.unwrap();
            assert_eq!(close, Ok(2));
        }
    });
}

pub fn those_who_wait_learn_that_the_runtime_has_ended<H: Harness>() {
    let server = LocalServer::start();
    let (outcomes, ended) = mpsc::channel();
    let client = bounded::<H, _>(async {
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let mut connection = client.check_out().await.unwrap();
        let (parks, parked) = mpsc::channel();
        // Each on a thread with wakers and no runtime.
        let (outcome, parking) = (outcomes.clone(), parks.clone());
        thread::spawn(move || {
            let error = parked_on(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }), &parking).unwrap_err();
            drop(connection);
            outcome.send(Outcome::Command(error.kind)).unwrap();
        });
        parked.recv_timeout(LONG).unwrap();
        let waiter = client.clone();
        thread::spawn(move || {
            let error = parked_on(waiter.check_out(), &parks).unwrap_err();
            outcomes.send(Outcome::CheckOut(error)).unwrap();
        });
        parked.recv_timeout(LONG).unwrap();
        assert_eq!((client.stats().counts.in_use, client.stats().counts.waiting), (1, 1));
        client
    });
    if !H::ENDS {
        // Nothing has ended, so the waiters wait until something else ends them.
        assert_eq!((client.stats().counts.in_use, client.stats().counts.waiting), (1, 1));
        assert_eq!(bounded::<H, _>(client.close(Duration::ZERO)), Ok(1));
    }

    for _ in 0..2 {
        match ended.recv_timeout(LIMIT).unwrap() {
            Outcome::Command(CommandErrorKind::RuntimeGone(_)) | Outcome::CheckOut(CheckOutError::RuntimeGone(_)) => {
                assert!(H::ENDS);
            }
            Outcome::Command(CommandErrorKind::Closed) => assert!(!H::ENDS),
            Outcome::CheckOut(CheckOutError::Pool(error)) => {
                assert_eq!((&error.kind, H::ENDS), (&CheckOutErrorKind::PoolClosed, false));
            }
            other @ (Outcome::Command(_) | Outcome::CheckOut(_)) => panic!("{other:?}"),
        }
    }
    assert_nothing_lost(&client);
}

pub fn a_thousand_who_wait_for_handshakes_learn_that_the_runtime_has_ended<H: Harness>() {
    let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
    let (client, mut waiting) = bounded::<H, _>(async {
        let client = client::<H>(&server, "loadBalanced=true&maxPoolSize=0&maxConnecting=20").await;
        server.set_manners(Manners::NeverAnswer);
        let mut waiting = Vec::new();
        for _ in 0..1000 {
            let client = client.clone();
            let mut check_out = Box::pin(async move { client.check_out().await.map(drop) });
            assert!(poll_once(&mut check_out).await.is_none());
            waiting.push(check_out);
        }
        (client, waiting)
    });

    let mut nobody = Context::from_waker(Waker::noop());
    for check_out in &mut waiting {
        match check_out.as_mut().poll(&mut nobody) {
            Poll::Ready(Err(CheckOutError::RuntimeGone(_))) => assert!(H::ENDS),
            Poll::Pending => assert!(!H::ENDS),
            Poll::Ready(outcome) => panic!("{outcome:?}"),
        }
    }
    drop(waiting);
    assert_nothing_lost(&client);
    assert!(!H::ENDS || client.stats().counts.total() == 0, "{:?}", client.stats().counts);
}

pub fn a_close_that_waits_learns_that_the_runtime_has_ended<H: Harness>() {
    let server = LocalServer::start();
    let (outcomes, ended) = mpsc::channel();
    let connection = bounded::<H, _>(async {
        let client = client::<H>(&server, "").await;
        let connection = client.check_out().await.unwrap();
        let (parks, parked) = mpsc::channel();
        // On a thread with wakers and no runtime.
        thread::spawn(move || outcomes.send(parked_on(client.close(LONG), &parks)).unwrap());
        parked.recv_timeout(LONG).unwrap();
        connection
    });
    if !H::ENDS {
        // Nothing has ended, so the close waits for the connection.
        drop(connection);
    }

    assert_eq!(ended.recv_timeout(LIMIT).unwrap().is_err(), H::ENDS);
}

/// How a waiter has ended.
#[derive(Debug)]
enum Outcome {
    Command(CommandErrorKind),
    CheckOut(CheckOutError),
}

/// An executor for one future, which parks its thread, and reports that, whenever the future has to wait.
fn parked_on<F: Future>(future: F, parks: &mpsc::Sender<()>) -> F::Output {
    struct Unpark {
        thread: Thread,
        woken: AtomicBool,
    }

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.woken.store(true, Ordering::SeqCst);
            self.thread.unpark();
        }
    }

    let unpark = Arc::new(Unpark { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        if !unpark.woken.load(Ordering::SeqCst) {
            // The receiver may be gone.
            let _ = parks.send(());
        }
        while !unpark.woken.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }
}

pub fn a_future_that_another_task_goes_on_with_wakes_that_task<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let first = client.check_out().await.unwrap();
        let mut nobody = Context::from_waker(Waker::noop());

        let mut waiting = Box::pin(client.check_out());
        assert!(waiting.as_mut().poll(&mut nobody).is_pending());
        let second = ends_after(waiting, first).await.unwrap();

        let mut closing = Box::pin(client.close(LONG));
        assert!(closing.as_mut().poll(&mut nobody).is_pending());
        assert_eq!(ends_after(closing, second).await, Ok(0));
    });
}

/// The output of `future`, which has to wait, and for which `last` is dropped when it does so in this task.
async fn ends_after<F: Future + Unpin, T: Unpin>(mut future: F, last: T) -> F::Output {
    let mut last = Some(last);
    poll_fn(|cx| {
        let poll = pin!(&mut future).poll(cx);
        assert_eq!(poll.is_pending(), last.is_some());
        drop(last.take());
        poll
    })
    .await
}

pub fn several_runtimes_and_threads_share_a_client<H: Harness>() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=2").await;
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let client = client.clone();
                thread::spawn(move || {
                    bounded::<H, _>(async {
                        for _ in 0..ROUNDS {
                            let mut connection = client.check_out().await.unwrap();
                            connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
                        }
                    });
                })
            })
            .collect();

        // Here the client's own tasks go on meanwhile.
        until(|| threads.iter().all(thread::JoinHandle::is_finished)).await;

        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_nothing_lost(&client);
        assert_eq!(client.stats().checked_in, (THREADS * ROUNDS) as u64);
    });
}

pub fn a_panicking_task_returns_its_connection<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let connection = client.check_out().await.unwrap();
        let mut waiting = Box::pin(client.check_out());
        assert!(poll_once(&mut waiting).await.is_none());

        H::Runtime::current().unwrap().spawn(async move {
            let _connection = connection;
            // Without the panic hook, which would fill the test's output.
            std::panic::resume_unwind(Box::new("the user's code panicked"));
        });

        drop(waiting.await.unwrap());
        assert_nothing_lost(&client);
    });
}
