//! Datagrams, by which name servers are asked.

use std::net::{Ipv4Addr, UdpSocket};
use std::thread;

use cmap_runtime::runtime::Runtime;

use super::{Harness, run};

pub fn the_answer_to_a_datagram_comes_from_whom_it_was_sent_to<H: Harness>() {
    run::<H>(async {
        let [server, stranger] = [0; 2].map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
        let to = server.local_addr().unwrap();
        let answers = thread::spawn(move || {
            let mut question = [0; 100];
            let (length, from) = server.recv_from(&mut question).unwrap();
            stranger.send_to(b"forged", from).unwrap();
            server.send_to(b"answer", from).unwrap();
            question[..length].to_vec()
        });

        let answer = H::Runtime::current().unwrap().exchange_datagram(to, b"question".to_vec()).await.unwrap();

        assert_eq!(answer, b"answer");
        assert_eq!(answers.join().unwrap(), b"question");
    });
}
