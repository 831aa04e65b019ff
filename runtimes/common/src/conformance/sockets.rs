//! What an adapter's sockets promise by themselves, without a client.

use std::future::poll_fn;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::{Pin, pin};

use bson::rawdoc;
use futures_io::AsyncRead as _;

use super::{Harness, Hosts, Setup, TestServer, client, poll_once, run};
use crate::Client;
use crate::runtime::{Runtime, Target};
use crate::yield_now::yield_now;

type StreamOf<H> = <<H as Harness>::Runtime as Runtime>::Stream;

pub fn a_socket_is_read_at_once_if_there_is_something_to_read<H: Harness>() {
    run::<H>(async {
        let (mut socket, mut peer) = connected::<H>().await;
        let mut buffer = [0; 8];

        let silent = H::Runtime::read_now(&mut socket, &mut buffer).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);

        peer.write_all(b"abc").unwrap();
        assert_eq!(read_soon::<H>(&mut socket, &mut buffer).await, 3);
        assert!(buffer.starts_with(b"abc"));

        drop(peer);
        assert_eq!(read_soon::<H>(&mut socket, &mut buffer).await, 0);
    });
}

pub fn whoever_waits_for_a_socket_is_woken_when_it_can_be_read<H: Harness>() {
    run::<H>(async {
        let (mut socket, mut peer) = connected::<H>().await;

        let mut read = pin!(read_when_readable::<H>(&mut socket));
        assert!(poll_once(&mut read).await.is_none());
        peer.write_all(b"abc").unwrap();

        assert_eq!(read.await.unwrap(), b"abc");
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
        let (mut socket, mut peer) = connected::<H>().await;
        let mut buffer = [0; 8];

        for _ in 0..10 {
            peer.write_all(b"abc").unwrap();
            assert_eq!(read_soon::<H>(&mut socket, &mut buffer).await, 3);
            // The reactor hears of what is gone already.
            yield_now().await;
            let mut read = pin!(read_when_readable::<H>(&mut socket));
            assert!(poll_once(&mut read).await.is_none());
            peer.write_all(b"defg").unwrap();
            assert_eq!(read.await.unwrap(), b"defg");
        }
    });
}

/// More than it takes for a connection to learn what turns are worth between its commands and their replies, and to forget it
/// again.
pub fn a_connection_is_good_for_many_commands<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        ping_often(&client::<H>(&server, "").await).await;
    });
}

pub fn a_connection_is_good_for_many_commands_under_tls<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let query = format!("tls=true&tlsCAFile={}", server.authority().display());
        ping_often(&client::<H>(&server, &query).await).await;
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
async fn connected<H: Harness>() -> (StreamOf<H>, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap());
    let socket = H::Runtime::current().unwrap().connect(target).await.unwrap();
    (socket, listener.accept().unwrap().0)
}

/// What was sent has been read after some looks.
async fn read_soon<H: Harness>(socket: &mut StreamOf<H>, buffer: &mut [u8]) -> usize {
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
