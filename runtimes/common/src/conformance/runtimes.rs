//! Threads, several runtimes, and the end of the one that a client lives in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use bson::rawdoc;

use super::{Harness, TestServer, assert_balanced, client, poll_once, run, yield_now};
use crate::{CheckOutError, CommandErrorKind};

pub fn a_connection_is_dropped_outside_of_any_runtime<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "").await;
        let connection = client.check_out().await.unwrap();

        thread::spawn(move || drop(connection)).join().unwrap();

        assert_balanced::<H>(&client);
        assert_eq!(client.stats().counts.available, 1);
    });
}

pub fn a_connection_is_dropped_after_its_runtime_ended<H: Harness>() {
    let server = TestServer::start();
    let (client, connection) = H::block_on(async {
        let client = client::<H>(&server, "").await;
        let connection = client.check_out().await.unwrap();
        (client, connection)
    });

    drop(connection);

    assert_balanced::<H>(&client);
}

pub fn a_client_outlives_its_runtime<H: Harness>() {
    let server = TestServer::start();
    let (client, mut connection) = H::block_on(async {
        let client = client::<H>(&server, "").await;
        let connection = client.check_out().await.unwrap();
        (client, connection)
    });

    run::<H>(async move {
        let command = connection.run_command("admin", rawdoc! { "ping": 1 }).await;
        let check_out = client.check_out().await;
        let close = client.close(std::time::Duration::from_secs(1)).await;

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
    let server = TestServer::start();
    let (client, connection) = H::block_on(async {
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let connection = client.check_out().await.unwrap();
        (client, connection)
    });
    let mut waiting = Box::pin(client.check_out());
    let mut nobody = Context::from_waker(Waker::noop());
    if !H::ENDS {
        assert!(waiting.as_mut().poll(&mut nobody).is_pending());
        drop(connection);
    }

    match waiting.as_mut().poll(&mut nobody) {
        Poll::Ready(Err(CheckOutError::RuntimeGone(_))) => assert!(H::ENDS),
        Poll::Ready(Ok(_)) => assert!(!H::ENDS),
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => panic!("it still waits"),
    }
}

pub fn several_runtimes_and_threads_share_a_client<H: Harness>() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "maxPoolSize=2").await;
        let done = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (client, done) = (client.clone(), Arc::clone(&done));
                thread::spawn(move || {
                    H::block_on(async {
                        for _ in 0..ROUNDS {
                            let mut connection = client.check_out().await.unwrap();
                            connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
                        }
                    });
                    done.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();

        while done.load(Ordering::SeqCst) < 4 && !threads.iter().all(thread::JoinHandle::is_finished) {
            yield_now().await;
        }

        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_balanced::<H>(&client);
        assert_eq!(client.stats().checked_in, (THREADS * ROUNDS) as u64);
    });
}

pub fn a_panicking_task_returns_its_connection<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let connection = client.check_out().await.unwrap();
        let mut waiting = Box::pin(client.check_out());
        assert!(poll_once(&mut waiting).await.is_none());

        let user = thread::spawn(move || {
            let _connection = connection;
            std::panic::resume_unwind(Box::new("the user's code panicked"));
        });

        assert!(user.join().is_err());
        drop(waiting.await.unwrap());
        assert_balanced::<H>(&client);
    });
}
