//! SRV records and addresses over real sockets: from a name server that answers, after one that does not; over UDP, over TCP.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test is told by its name and fails by panicking")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use cmap_runtime::internals::{addresses, srv_records};
use cmap_runtime::runtime::Runtime;
use cmap_smol::Smol;
use cmap_smol::cmap_core::topology::seed_list::SrvRecord;

const NAME: &str = "_mongodb._tcp.cluster.example.com";

/// A name server that answers one question by `reply`, made of the question.
fn name_server(reply: impl FnOnce(Vec<u8>) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, question) = question(&listener);
        answer(stream, &reply(question));
    });
    address
}

/// A name server that waits for two questions before it answers them by `reply`.
fn name_server_of_two(reply: impl Fn(Vec<u8>) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (stream, question) in [question(&listener), question(&listener)] {
            answer(stream, &reply(question));
        }
    });
    address
}

/// A name server that answers one datagram by `reply`, made of the question, or not at all. Nobody listens over TCP.
fn datagram_server(reply: impl FnOnce(Vec<u8>) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || answer_datagram(&socket, reply));
    address
}

/// A name server that answers one datagram by `reply`, and one question over TCP by one record.
fn server_of_both(reply: impl FnOnce(Vec<u8>) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let address = name_server(one_record);
    let socket = UdpSocket::bind(address).unwrap();
    thread::spawn(move || answer_datagram(&socket, reply));
    address
}

fn answer_datagram(socket: &UdpSocket, reply: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
    let mut question = vec![0; 512];
    let (length, from) = socket.recv_from(&mut question).unwrap();
    // Without the record at its end that says how long the answer may be.
    question.truncate(length - 11);
    question[11] = 0;
    if let Some(reply) = reply(question) {
        socket.send_to(&reply, from).unwrap();
    }
    thread::sleep(Duration::from_secs(60));
}

/// The answer that more would have been said, had there been room.
fn cut(question: Vec<u8>) -> Vec<u8> {
    let mut reply = question;
    reply[2..4].copy_from_slice(&[0x83, 0x80]);
    reply
}

/// The records that a name server has, and how long it takes to get them.
fn asked(server: SocketAddr) -> (std::io::Result<Vec<SrvRecord>>, Duration) {
    let start = Smol.now();
    let records = smol::block_on(srv_records(&Smol, &[server], NAME));
    (records, Smol.now() - start)
}

fn expected() -> [SrvRecord; 1] {
    [SrvRecord::new("b.example.com", 27018, Duration::from_secs(300))]
}

fn question(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut question = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut question).unwrap();
    (stream, question)
}

fn answer(mut stream: TcpStream, reply: &[u8]) {
    let length = u16::try_from(reply.len()).unwrap().to_be_bytes();
    // In pieces, as a network may deliver it.
    for byte in length.iter().chain(reply) {
        stream.write_all(&[*byte]).unwrap();
    }
}

/// The answer that there is one record: port 27018 of `b.example.com`, for 300 s.
fn one_record(question: Vec<u8>) -> Vec<u8> {
    let mut reply = question;
    // A reply without an error, and one answer.
    reply[2..4].copy_from_slice(&[0x81, 0x80]);
    reply[6..8].copy_from_slice(&[0, 1]);
    let target = b"\x01b\x07example\x03com\x00";
    // The name of the question, SRV, IN, 300 s, the length; priority, weight, port.
    reply.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 1, 44, 0, u8::try_from(6 + target.len()).unwrap()]);
    reply.extend([0, 0, 0, 0, 0x69, 0x8a]);
    reply.extend(target);
    reply
}

/// Whether a question is for addresses of version 6.
fn is_for_version_6(question: &[u8]) -> bool {
    question[question.len() - 4..] == [0, 28, 0, 1]
}

/// The answer that there is one address of the version that was asked for.
fn one_address(question: Vec<u8>) -> Vec<u8> {
    let is_6 = is_for_version_6(&question);
    let mut reply = question;
    reply[2..4].copy_from_slice(&[0x81, 0x80]);
    reply[6..8].copy_from_slice(&[0, 1]);
    // The name of the question, the version, IN, 300 s, the length.
    reply.extend([0xc0, 12, 0, if is_6 { 28 } else { 1 }, 0, 1, 0, 0, 1, 44, 0]);
    if is_6 {
        reply.push(16);
        reply.extend(Ipv6Addr::LOCALHOST.octets());
    } else {
        reply.push(4);
        reply.extend(Ipv4Addr::LOCALHOST.octets());
    }
    reply
}

/// The answer that the server failed.
fn failure(question: Vec<u8>) -> Vec<u8> {
    let mut reply = question;
    reply[2..4].copy_from_slice(&[0x81, 0x82]);
    reply
}

#[test]
fn the_name_server_that_answers_is_believed() {
    let servers = [name_server(failure), name_server(one_record)];

    let records = smol::block_on(srv_records(&Smol, &servers, NAME)).unwrap();

    assert_eq!(records, [SrvRecord::new("b.example.com", 27018, Duration::from_secs(300))]);
}

#[test]
fn an_error_names_the_server_the_transport_and_the_reason() {
    let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();

    let error = smol::block_on(srv_records(&Smol, &[unused], NAME)).unwrap_err().to_string();

    let refused = "Connection refused (os error 111)";
    #[cfg(target_os = "linux")]
    assert_eq!(error, format!("the name server {unused}: over UDP: {refused}; over TCP: {refused}"));
    #[cfg(not(target_os = "linux"))]
    assert!(error.starts_with(&format!("the name server {unused}: over UDP: ")), "{error}");
}

#[test]
fn a_name_server_is_asked_over_udp() {
    let (records, _) = asked(datagram_server(|question| Some(one_record(question))));

    assert_eq!(records.unwrap(), expected());
}

#[test]
fn an_answer_that_was_cut_is_asked_for_over_tcp() {
    let (records, _) = asked(server_of_both(|question| Some(cut(question))));

    assert_eq!(records.unwrap(), expected());
}

#[test]
fn a_name_server_that_udp_does_not_reach_is_asked_over_tcp_after_a_second() {
    let (records, took) = asked(server_of_both(|_| None));

    assert_eq!(records.unwrap(), expected());
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

#[test]
fn an_answer_over_udp_is_taken_though_it_comes_late() {
    let late = |question| {
        thread::sleep(Duration::from_millis(1_500));
        Some(one_record(question))
    };

    let (records, _) = asked(datagram_server(late));

    assert_eq!(records.unwrap(), expected());
}

#[test]
fn addresses_of_both_versions_are_asked_for_at_once() {
    let servers = [name_server_of_two(one_address)];

    let found = smol::block_on(addresses(&Smol, &servers, "a.example.com", 27017)).unwrap();

    let expected = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    assert_eq!(found, expected.map(|ip| SocketAddr::new(ip, 27017)));
}

#[test]
fn a_failure_of_one_version_leaves_the_addresses_of_the_other() {
    let one_of_version_4 = |question: Vec<u8>| match is_for_version_6(&question) {
        true => failure(question),
        false => one_address(question),
    };
    let servers = [name_server_of_two(one_of_version_4)];

    let found = smol::block_on(addresses(&Smol, &servers, "a.example.com", 27017)).unwrap();

    assert_eq!(found, [SocketAddr::from((Ipv4Addr::LOCALHOST, 27017))]);
}

#[test]
fn addresses_of_one_version_do_not_wait_for_a_name_server_that_is_silent_about_the_other() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let servers = [listener.local_addr().unwrap()];
    thread::spawn(move || {
        let both = [question(&listener), question(&listener)];
        let (of_version_6, of_version_4): (Vec<_>, Vec<_>) =
            both.into_iter().partition(|(_, question)| is_for_version_6(question));
        for (stream, question) in of_version_4 {
            answer(stream, &one_address(question));
        }
        thread::sleep(Duration::from_secs(60));
        drop(of_version_6);
    });
    let start = Smol.now();

    let found = smol::block_on(addresses(&Smol, &servers, "a.example.com", 27017)).unwrap();

    assert_eq!(found, [SocketAddr::from((Ipv4Addr::LOCALHOST, 27017))]);
    let took = Smol.now() - start;
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn addresses_that_nobody_knows_are_an_error() {
    let servers = [name_server_of_two(failure)];

    let error = smol::block_on(addresses(&Smol, &servers, "a.example.com", 27017)).unwrap_err().to_string();

    assert!(error.starts_with("the name server "), "{error}");
}

#[test]
fn an_address_with_a_zone_is_not_asked_for_in_dns() {
    // Nothing answers there.
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();

    let found = smol::block_on(addresses(&Smol, &[nobody], "fe80::1%1", 27017)).unwrap();

    assert_eq!(found, ["[fe80::1%1]:27017".parse().unwrap()]);
}
