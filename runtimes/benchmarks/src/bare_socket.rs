//! A socket and nothing around it, blocking, for a single task: what no client can outdo.

use cmap_runtime::bson::rawdoc;
use cmap_runtime::core::wire::{Flags, Limits, MessageIds, MessageWriter};

use crate::pinger::ROUND;
use crate::server::{Server, Socket};
use crate::tasks::clock;

/// A connection of which nothing is known.
pub struct BareSocket {
    socket: Box<dyn Socket>,
    ping: Vec<u8>,
}

impl BareSocket {
    pub fn connect(server: &Server) -> Self {
        let socket = server.connect();
        let mut ping = Vec::new();
        let body = rawdoc! { "ping": 1, "$db": "admin" };
        let ids = MessageIds::request(1);
        MessageWriter::begin(&mut ping, ids, Flags::NONE, &body, &[], &Limits::DEFAULT).unwrap().finish();
        Self { socket, ping }
    }

    /// How often the message goes and its reply comes in a [`ROUND`].
    pub fn ping_for_a_round(&mut self) -> u32 {
        let (start, mut count) = (clock(), 0);
        while start.elapsed() < ROUND {
            self.socket.write_all(&self.ping).unwrap();
            // The reply is so small that it comes in one piece.
            assert!(self.socket.read(&mut [0; 256]).unwrap() > 0);
            count += 1;
        }
        count
    }
}
