//! SRV records over a real socket: from a name server that answers, after one that does not.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test is told by its name and fails by panicking")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use cmap_runtime::internals::srv_records;
use cmap_smol::Smol;
use cmap_smol::core::topology::seed_list::SrvRecord;

const NAME: &str = "_mongodb._tcp.cluster.example.com";

/// A name server that answers one question by `reply`, made of the question.
fn name_server(reply: impl FnOnce(Vec<u8>) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut question).unwrap();
        let reply = reply(question);
        let length = u16::try_from(reply.len()).unwrap().to_be_bytes();
        // In pieces, as a network may deliver it.
        for byte in length.iter().chain(&reply) {
            stream.write_all(&[*byte]).unwrap();
        }
    });
    address
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
fn an_error_names_the_server_and_the_reason() {
    let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();

    let error = smol::block_on(srv_records(&Smol, &[unused], NAME)).unwrap_err().to_string();

    assert!(error.starts_with(&format!("the name server {unused}: ")), "{error}");
}
