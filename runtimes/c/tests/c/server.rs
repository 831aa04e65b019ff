//! The test server behind a socket of this machine, in this process: a thread accepts, and each connection has one that reads.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant as Clock;

use cmap_core::time::Instant;
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer};

/// A server that ends with the process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
}

struct State {
    machine: TestServer,
    clients: BTreeMap<ClientId, TcpStream>,
    began: Clock,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "a server behind real sockets has a real clock")]
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let machine = TestServer::new(ServerConfig::new(address.to_string()), Instant::ORIGIN);
        let state = Arc::new(Mutex::new(State { machine, clients: BTreeMap::new(), began: Clock::now() }));
        std::thread::spawn(move || {
            while let Ok((socket, peer)) = listener.accept() {
                let state = Arc::clone(&state);
                std::thread::spawn(move || serve(&state, socket, peer));
            }
        });
        Self { address }
    }
}

/// Reads until the client is gone. What is asked here is answered at once, so that nobody has to keep the time.
fn serve(state: &Mutex<State>, mut socket: TcpStream, peer: SocketAddr) {
    let client = {
        let mut state = state.lock().unwrap();
        let now = state.now();
        let client = state.machine.accept(now, Peer::at(peer.to_string()));
        state.clients.insert(client, socket.try_clone().unwrap());
        client
    };
    let mut bytes = [0; 4096];
    while let Ok(count) = socket.read(&mut bytes)
        && count > 0
    {
        let mut state = state.lock().unwrap();
        let now = state.now();
        state.machine.handle_bytes(now, client, &bytes[..count]);
        state.drain();
    }
    let mut state = state.lock().unwrap();
    let now = state.now();
    state.clients.remove(&client);
    state.machine.handle_hang_up(now, client);
}

impl State {
    fn now(&self) -> Instant {
        Instant::ORIGIN + self.began.elapsed()
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                ServerOutput::Send { client, bytes } => {
                    // A client that is gone gets no bytes.
                    drop(self.clients.get(&client).map(|mut socket| socket.write_all(&bytes)));
                }
                ServerOutput::HangUp { client } => {
                    drop(self.clients.get(&client).map(|socket| socket.shutdown(Shutdown::Both)));
                }
                _ => {}
            }
        }
    }
}
