//! Connections that break and peers that are not servers: which side is at fault (CMAP-50, CMAP-51).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use cmap_core::connection::Fault;
use cmap_runtime::tls::{TlsError, connect};
use futures_io::AsyncWrite as _;
use rustls::server::NoClientAuth;
use rustls::version::{TLS12, TLS13};

use super::authority::Authority;
use super::handshake::{
    HOST, assert_labelled, assert_not_labelled, client, echo, read, refusal, server, server_with, write_all,
};
use super::peer::{Behaviour, Peer, run};

#[test]
fn an_end_at_any_byte_of_the_handshake_is_the_networks_fault() {
    let authority = Authority::new();
    let identity = authority.server(&[HOST]);
    let client = client(&authority, |_| {});
    for version in [&TLS12, &TLS13] {
        let config = server_with(&identity, authority.client_verifier(false), &[version]);
        let mut offset = 0;
        while let Err(error) = run(connect(&client, HOST, Peer::tls(&config).breaking_after(offset, None))) {
            assert!(
                matches!(&error, TlsError::Io(io) if io.kind() == io::ErrorKind::UnexpectedEof),
                "{offset}: {error}"
            );
            assert_labelled(&error);
            offset += 1;
        }
        assert!(offset > 500, "only {offset} bytes were needed");
    }
}

#[test]
fn a_bit_that_flips_in_the_handshake_ends_in_an_error_or_makes_no_difference() {
    let authority = Authority::new();
    let identity = authority.server(&[HOST]);
    let client = client(&authority, |_| {});
    for version in [&TLS12, &TLS13] {
        let config = server_with(&identity, Arc::new(NoClientAuth), &[version]);
        let mut refused = 0;
        for offset in 0..600 {
            match run(connect(&client, HOST, Peer::tls(&config).flipping_a_bit_at(offset))) {
                // An ignored bit, such as one of a record's version.
                Ok(_) => {}
                // A length that grew: the server falls silent before it is reached.
                Err(error @ TlsError::Io(_)) => assert_labelled(&error),
                Err(error) => {
                    assert_not_labelled(&error);
                    refused += 1;
                }
            }
        }
        assert!(refused > 500, "only {refused} flipped bits were noticed");
    }
}

#[test]
fn an_error_of_the_connection_in_the_handshake_is_kept() {
    let authority = Authority::new();
    let config = server(&authority.server(&[HOST]));
    let client = client(&authority, |_| {});

    for (kind, fault) in [(io::ErrorKind::ConnectionReset, Fault::Network), (io::ErrorKind::TimedOut, Fault::Timeout)] {
        let error = refusal(&client, HOST, Peer::tls(&config).breaking_after(300, Some(kind)));

        assert!(matches!(&error, TlsError::Io(io) if io.kind() == kind), "{error}");
        assert_eq!(error.fault(), fault);
        assert_labelled(&error);
    }
}

#[test]
fn a_server_without_tls_is_told_apart() {
    let error = refusal(
        &client(&Authority::new(), |_| {}),
        HOST,
        Peer::text(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    );

    assert!(matches!(error, TlsError::NotTls(_)), "{error}");
    assert_not_labelled(&error);
    assert!(error.to_string().contains("tls=false"), "{error}");
}

#[test]
fn a_host_that_no_certificate_can_be_for_is_refused_before_anything_is_sent() {
    let error = refusal(&client(&Authority::new(), |_| {}), "/tmp/mongodb-27017.sock", Peer::text(b""));

    assert!(matches!(error, TlsError::ServerName { .. }), "{error}");
    assert_not_labelled(&error);
}

#[test]
fn the_end_of_tls_is_told_from_an_end_that_cuts_it_off() {
    let authority = Authority::new();
    let client = client(&authority, |_| {});
    let config = server(&authority.server(&[HOST]));
    let all = |behaviour| {
        run(async {
            let mut stream = connect(&client, HOST, Peer::tls(&config).behaving(behaviour)).await.unwrap();
            let (mut all, mut buffer) = (Vec::new(), [0; 4]);
            loop {
                match read(&mut stream, &mut buffer).await {
                    Ok(0) => return (all, Ok(())),
                    Ok(read) => all.extend_from_slice(&buffer[..read]),
                    Err(error) => return (all, Err(error)),
                }
            }
        })
    };

    let (farewell, ended) = all(Behaviour::Farewell(b"goodbye"));
    let (cut_off, truncated) = all(Behaviour::HangUp(b"good"));

    assert_eq!((farewell.as_slice(), cut_off.as_slice()), (&b"goodbye"[..], &b"good"[..]));
    ended.unwrap();
    let truncated = truncated.unwrap_err();
    assert_eq!(truncated.kind(), io::ErrorKind::UnexpectedEof);
    assert!(matches!(TlsError::of(&truncated), Some(TlsError::Truncated)), "{truncated}");
}

#[test]
fn closing_says_so_to_the_server_and_ends_writing() {
    let authority = Authority::new();
    let config = server(&authority.server(&[HOST]));
    let mut stream = echo(&client(&authority, |_| {}), Peer::tls(&config).in_pieces(&[5]).hesitating(), b"ping");

    run(poll_fn(|cx| Pin::new(&mut stream).poll_close(cx))).unwrap();

    // The server answers a close_notify with its own.
    assert_eq!(run(read(&mut stream, &mut [0; 4])).unwrap(), 0);
    assert_eq!(run(write_all(&mut stream, b"more")).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}
