//! Available bytes are read without waiting, and waiting for a stream means waiting for its plaintext.

use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use cmap_runtime::tls::{TlsError, TlsStream, connect};
use futures_io::AsyncRead as _;

use super::authority::Authority;
use super::handshake::{HOST, client, echo, server, write_all};
use super::peer::{Behaviour, Peer, run};

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

const TEXT: &[u8] = b"a message of some length";

#[test]
fn what_is_there_is_read_however_small_its_pieces_are() {
    for size in [1, 7, 100, 10_000] {
        let mut stream = connected(|peer| peer.in_pieces(&[size]).hesitating());
        run(write_all(&mut stream, TEXT)).unwrap();

        let mut all = Vec::new();
        for _ in 0..10_000 {
            match read_now(&mut stream, &mut [0; 5]) {
                Ok(bytes) => all.extend(bytes),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }

        assert_eq!(all, TEXT);
    }
}

#[test]
fn a_silent_server_leaves_nothing_to_read() {
    let mut stream = connected(|peer| peer);

    // Messages that a server sends unasked after the handshake are not for the reader.
    for _ in 0..2 {
        assert_eq!(read_now(&mut stream, &mut [0; 5]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

#[test]
fn a_stream_is_readable_as_long_as_plaintext_is_left() {
    let mut stream = connected(|peer| peer);
    run(write_all(&mut stream, b"ab")).unwrap();

    assert_eq!(read_now(&mut stream, &mut [0]).unwrap(), b"a");
    assert!(stream.has_something_to_read() && is_readable(&mut stream));

    assert_eq!(read_now(&mut stream, &mut [0]).unwrap(), b"b");
    assert!(!stream.has_something_to_read() && !is_readable(&mut stream));
}

#[test]
fn the_end_of_tls_is_there_to_be_read() {
    let mut stream = connected(|peer| peer.behaving(Behaviour::Farewell(b"goodbye")));

    assert_eq!(read_now(&mut stream, &mut [0; 100]).unwrap(), b"goodbye");
    assert!(is_readable(&mut stream));
    assert_eq!(read_now(&mut stream, &mut [0]).unwrap(), b"");
}

#[test]
fn an_end_that_cuts_tls_off_is_an_error() {
    let mut stream = connected(|peer| peer.behaving(Behaviour::HangUp(b"good")));

    assert_eq!(read_now(&mut stream, &mut [0; 100]).unwrap(), b"good");
    for _ in 0..2 {
        let error = read_now(&mut stream, &mut [0]).unwrap_err();
        assert!(matches!(TlsError::of(&error), Some(TlsError::Truncated)), "{error}");
        assert!(is_readable(&mut stream));
    }
}

#[test]
fn what_cannot_be_decrypted_is_an_error_as_often_as_it_is_read() {
    let all =
        echo(&client(&AUTHORITY, |_| {}), Peer::tls(&server(&AUTHORITY.server(&[HOST]))), TEXT).transport().told();
    // Signatures differ by a few bytes in their length, so this is somewhere in the echo's last 16, which prove the rest.
    let mut stream = connected(|peer| peer.flipping_a_bit_at(all - 8));
    run(write_all(&mut stream, TEXT)).unwrap();

    for _ in 0..2 {
        let error = read_now(&mut stream, &mut [0; 100]).unwrap_err();
        assert!(matches!(TlsError::of(&error), Some(TlsError::Protocol(_))), "{error}");
        assert!(is_readable(&mut stream));
    }
}

/// A stream to a server that `change` has configured.
fn connected(change: impl FnOnce(Peer) -> Peer) -> TlsStream<Peer> {
    let config = server(&AUTHORITY.server(&[HOST]));
    run(connect(&client(&AUTHORITY, |_| {}), HOST, change(Peer::tls(&config)))).unwrap()
}

fn read_now(stream: &mut TlsStream<Peer>, buffer: &mut [u8]) -> io::Result<Vec<u8>> {
    let mut nobody = Context::from_waker(Waker::noop());
    let count = stream.read_now(buffer, |peer, buffer| match Pin::new(peer).poll_read(&mut nobody, buffer) {
        Poll::Ready(read) => read,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    })?;
    Ok(buffer[..count].to_vec())
}

/// Whether it is ready while its transport is not.
fn is_readable(stream: &mut TlsStream<Peer>) -> bool {
    stream.poll_readable(&mut Context::from_waker(Waker::noop()), |_, _| Poll::Pending).is_ready()
}
