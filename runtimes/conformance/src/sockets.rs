//! The promises of an adapter's sockets, without a client.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::options::ClientOptions;
use cmap_runtime::runtime::{Runtime, Target};
use cmap_runtime::{Client, Pool};
use futures_io::{AsyncRead as _, AsyncWrite as _};

use super::ground::{self, Place, Socket};
use super::scripted_server::{ScriptedServer, streaming_hello};
use super::{Harness, Hosts, LocalServer, Setup, client, poll_once, run, until, yield_now};

type StreamOf<H> = <<H as Harness>::Runtime as Runtime>::Stream;

pub fn a_socket_is_read_at_once_if_there_is_something_to_read<H: Harness>() {
    run::<H>(async {
        let (mut socket, peer) = connected::<H>().await;
        let mut buffer = [0; 8];

        let silent = H::Runtime::read_now(&mut socket, &mut buffer).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);

        ground::write_all(&*peer, b"abc").await.unwrap();
        read_soon::<H>(&mut socket, &mut buffer[..3]).await;
        assert!(buffer.starts_with(b"abc"));

        drop(peer);
        assert_eq!(read_once::<H>(&mut socket, &mut buffer).await, 0);
    });
}

pub fn whoever_waits_for_a_socket_is_woken_when_it_can_be_read<H: Harness>() {
    run::<H>(async {
        let (mut socket, peer) = connected::<H>().await;

        let mut read = pin!(read_when_readable::<H>(&mut socket));
        assert!(poll_once(&mut read).await.is_none());
        ground::write_all(&*peer, b"a").await.unwrap();

        assert_eq!(read.await.unwrap(), b"a");
    });
}

pub fn whoever_waits_for_a_socket_is_woken_when_its_peer_hangs_up<H: Harness>() {
    run::<H>(async {
        let (mut socket, peer) = connected::<H>().await;

        let mut read = pin!(read_when_readable::<H>(&mut socket));
        assert!(poll_once(&mut read).await.is_none());
        drop(peer);

        assert_eq!(read.await.unwrap(), b"");
    });
}

pub fn whoever_waits_after_a_look_is_woken_by_what_comes_next<H: Harness>() {
    run::<H>(async {
        let (mut socket, peer) = connected::<H>().await;
        let mut buffer = [0; 8];

        for _ in 0..10 {
            ground::write_all(&*peer, b"abc").await.unwrap();
            read_soon::<H>(&mut socket, &mut buffer[..3]).await;
            // The reactor reports bytes that have been read already.
            yield_now().await;
            let mut read = pin!(read_when_readable::<H>(&mut socket));
            assert!(poll_once(&mut read).await.is_none());
            ground::write_all(&*peer, b"d").await.unwrap();
            assert_eq!(read.await.unwrap(), b"d");
        }
    });
}

pub fn the_end_of_writing_reaches_the_peer_whose_last_words_are_read<H: Harness>() {
    run::<H>(async {
        let (mut socket, peer) = connected::<H>().await;
        let mut buffer = [0; 8];

        poll_fn(|cx| Pin::new(&mut socket).poll_close(cx)).await.unwrap();

        assert_eq!(ground::read(&*peer, &mut buffer).await.unwrap(), 0);
        ground::write_all(&*peer, b"abc").await.unwrap();
        read_soon::<H>(&mut socket, &mut buffer[..3]).await;
        assert!(buffer.starts_with(b"abc"));
    });
}

pub fn a_connection_is_good_for_many_commands<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        ping_often(&client::<H>(&server, "").await).await;
    });
}

pub fn a_connection_is_good_for_many_commands_under_tls<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let query = format!("tls=true&tlsCAFile={}", server.authority().display());
        ping_often(&client::<H>(&server, &query).await).await;
    });
}

pub fn a_task_that_waits_for_a_reply_sleeps_until_it_comes<H: Harness>() {
    run::<H>(async {
        let ground = ground::current();
        let server = ScriptedServer::start(move |_, mut client| {
            let ground = Arc::clone(&ground);
            async move {
                let request = client.next_request().await?;
                client.answer(request, &streaming_hello(1)).await?;
                loop {
                    let request = client.next_request().await?;
                    ground.sleep_until(ground.age() + Duration::from_millis(2)).await;
                    client.answer(request, &rawdoc! { "ok": 1 }).await?;
                }
            }
        });
        let pool = Pool::<H::Runtime>::with_options(ClientOptions::parse(&server.uri("")).unwrap().0).await.unwrap();
        pool.ready();
        let mut connection = pool.check_out().await.unwrap();

        let mut restless = 0;
        for _ in 0..20 {
            let mut polls = 0;
            let mut command = pin!(connection.run_command("admin", rawdoc! { "ping": 1 }));
            let outcome = poll_fn(|cx| {
                polls += 1;
                command.as_mut().poll(cx)
            });

            outcome.await.unwrap();

            // One poll sends, one reads, and one more comes if the reactor has woken the task for nothing.
            restless += usize::from(polls > 3);
        }
        // An executor may poll for its own reasons, beside other tests; a task that looked for its reply would do so
        // each time.
        assert!(restless <= 5, "{restless} of 20 commands were polled more than three times");
    });
}

async fn ping_often<R: Runtime>(client: &Client<R>) {
    let mut connection = client.check_out().await.unwrap();
    for _ in 0..300 {
        let reply = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        assert_eq!(reply, rawdoc! { "ok": 1.0 });
    }
}

/// A socket, and its peer.
async fn connected<H: Harness>() -> (StreamOf<H>, Arc<dyn Socket>) {
    let site = ground::current().site().unwrap();
    let accepted = Arc::new(Mutex::new(None));
    let peer = Arc::clone(&accepted);
    let _acceptor = site.listen(Box::new(move |socket| *peer.lock().unwrap() = Some(socket))).unwrap();
    let Place::Tcp(address) = site.place() else { panic!("it is TCP") };
    let socket = H::Runtime::current().unwrap().connect(Target::Tcp(*address)).await.unwrap();
    until(|| accepted.lock().unwrap().is_some()).await;
    (socket, accepted.lock().unwrap().take().unwrap())
}

/// Fills `buffer`, after some attempts.
async fn read_soon<H: Harness>(socket: &mut StreamOf<H>, buffer: &mut [u8]) {
    let mut filled = 0;
    while filled < buffer.len() {
        filled += read_once::<H>(socket, &mut buffer[filled..]).await;
    }
}

async fn read_once<H: Harness>(socket: &mut StreamOf<H>, buffer: &mut [u8]) -> usize {
    loop {
        match H::Runtime::read_now(socket, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => yield_now().await,
            read => return read.unwrap(),
        }
    }
}

async fn read_when_readable<H: Harness>(socket: &mut StreamOf<H>) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 8];
    poll_fn(|cx| H::Runtime::poll_readable(socket, cx)).await?;
    let count = poll_fn(|cx| Pin::new(&mut *socket).poll_read(cx, &mut buffer)).await?;
    Ok(buffer[..count].to_vec())
}
