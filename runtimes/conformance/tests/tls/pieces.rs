//! No way of cutting bytes into pieces makes a difference.

use std::future::poll_fn;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;

use cmap_runtime::tls::{Progress, TlsSession};
use futures_io::AsyncWrite as _;
use proptest::prelude::*;
use rustls::version::{TLS12, TLS13};

use super::authority::Authority;
use super::handshake::{HOST, client, echo, read_exact, server, server_with};
use super::peer::{Peer, run};

#[test]
fn bytes_may_come_and_go_in_pieces_of_any_size() {
    let authority = Authority::new();
    let client = client(&authority, |_| {});
    let identity = authority.server(&[HOST]);
    for version in [&TLS12, &TLS13] {
        let config = server_with(&identity, authority.client_verifier(false), &[version]);
        for size in 1..=400 {
            echo(&client, Peer::tls(&config).in_pieces(&[size]).hesitating(), b"a message of some length");
        }
    }
}

#[test]
fn a_megabyte_goes_both_ways_through_tiny_pieces() {
    let authority = Authority::new();
    let config = server(&authority.server(&[HOST]));
    let payload: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();

    echo(&client(&authority, |_| {}), Peer::tls(&config).in_pieces(&[1, 7, 3]).hesitating(), &payload);
}

#[test]
fn a_slow_connection_makes_no_small_records() {
    let authority = Authority::new();
    let config = server(&authority.server(&[HOST]));
    let client = client(&authority, |_| {});
    let payload = vec![7; 300_000];
    let heard = |peer: Peer| echo(&client, peer, &payload).transport().heard();

    let fast = heard(Peer::tls(&config));
    let slow = heard(Peer::tls(&config).in_pieces(&[10]).hesitating());

    // A record costs 22 bytes, and a few more of them are needed.
    assert!(slow < fast + 1_000, "{slow} bytes instead of {fast}");
}

#[test]
fn a_write_whose_future_is_dropped_loses_nothing_of_what_was_taken() {
    let authority = Authority::new();
    let config = server(&authority.server(&[HOST]));
    let mut stream = echo(&client(&authority, |_| {}), Peer::tls(&config).in_pieces(&[1]).hesitating(), b"ping");
    let payload: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();

    // Every poll is one of a future that is dropped when it is pending.
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut rest = payload.as_slice();
    while !rest.is_empty() {
        if let std::task::Poll::Ready(written) = Pin::new(&mut stream).poll_write(&mut cx, rest) {
            rest = &rest[written.unwrap()..];
        }
    }
    let echoed = run(async {
        poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await.unwrap();
        read_exact(&mut stream, payload.len()).await.unwrap()
    });

    assert!(echoed == payload, "the echo differs");
}

#[test]
fn a_session_is_driven_over_a_blocking_socket() {
    let authority = Authority::new();
    let config = server(&authority.server(&[HOST]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let server = std::thread::spawn(move || {
        let mut connection = rustls::ServerConnection::new(config).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut accepted);
        let mut heard = [0; 4];
        io::Read::read_exact(&mut stream, &mut heard).unwrap();
        io::Write::write_all(&mut stream, &heard).unwrap();
    });
    let mut session = TlsSession::new(&client(&authority, |_| {}), HOST).unwrap();

    assert_eq!(session.write(b"ping").unwrap(), 4, "before the handshake is over");
    let mut reply = [0; 16];
    let length = loop {
        while session.wants_write() {
            assert_eq!(session.send_to(&mut socket).unwrap(), Progress::Moved);
        }
        if let Some(length) = session.read(&mut reply).unwrap() {
            break length;
        }
        assert_eq!(session.receive_from(&mut socket).unwrap(), Progress::Moved);
    };

    assert_eq!(&reply[..length], b"ping");
    server.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_pattern_of_pieces_makes_a_difference(
        sizes in prop::collection::vec(1_usize..5_000, 1..8),
        payload in prop::collection::vec(any::<u8>(), 0..60_000),
        hesitates: bool,
    ) {
        let authority = Authority::new();
        let config = server(&authority.server(&[HOST]));
        let peer = Peer::tls(&config).in_pieces(&sizes);

        echo(&client(&authority, |_| {}), if hesitates { peer.hesitating() } else { peer }, &payload);
    }
}
