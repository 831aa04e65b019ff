//! The test server, shared by the threads of its connections and the one that keeps its time.
//!
//! Each caller of the machine drains it under the lock and sends its outputs when the lock is free again. A connection
//! has one request at a time, and the replies that stream to it all come from the thread that keeps the time, so the
//! order is right.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use cmap_core::time::Instant as ServerTime;
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer};

use super::connection::Channel;

pub(super) struct Machine {
    state: Mutex<State>,
    /// There may be something to do earlier.
    earlier: Condvar,
    origin: Instant,
    hangs: Mutex<bool>,
    goes_on: Condvar,
}

struct State {
    server: TestServer,
    channels: BTreeMap<ClientId, Arc<Channel>>,
    ended: bool,
}

/// An instruction of the machine for a connection: bytes to send, or its end.
type Errand = (Arc<Channel>, Option<Vec<u8>>);

impl Machine {
    /// A machine whose time starts now.
    pub(super) fn start(config: ServerConfig) -> Arc<Self> {
        let server = TestServer::new(config, ServerTime::ORIGIN);
        #[expect(clippy::disallowed_methods, reason = "a server behind real sockets has a real clock")]
        let origin = Instant::now();
        let machine = Arc::new(Self {
            state: Mutex::new(State { server, channels: BTreeMap::new(), ended: false }),
            earlier: Condvar::new(),
            origin,
            hangs: Mutex::new(false),
            goes_on: Condvar::new(),
        });
        let timed = Arc::clone(&machine);
        thread::spawn(move || timed.keep_time());
        machine
    }

    /// A client has connected.
    pub(super) fn accept(&self, channel: Arc<Channel>, peer: Peer) -> ClientId {
        let mut state = self.lock();
        let client = state.server.accept(self.now(), peer);
        state.channels.insert(client, channel);
        client
    }

    /// Bytes came from a client.
    pub(super) fn handle_bytes(&self, client: ClientId, bytes: &[u8]) {
        self.wait_until_it_goes_on();
        let mut state = self.lock();
        state.server.handle_bytes(self.now(), client, bytes);
        let errands = state.drain();
        drop(state);
        self.earlier.notify_one();
        run(errands);
    }

    /// A client is gone.
    pub(super) fn handle_hang_up(&self, client: ClientId) {
        let mut state = self.lock();
        state.channels.remove(&client);
        state.server.handle_hang_up(self.now(), client);
    }

    pub(super) fn hang(&self, hang: bool) {
        *self.hangs.lock().unwrap() = hang;
        self.goes_on.notify_all();
    }

    /// Waits while the server hangs.
    pub(super) fn wait_until_it_goes_on(&self) {
        let hangs = self.hangs.lock().unwrap();
        drop(self.goes_on.wait_while(hangs, |hangs| *hangs).unwrap());
    }

    /// Ends the thread that keeps the time.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.earlier.notify_one();
        self.hang(false);
    }

    fn keep_time(&self) {
        let mut state = self.lock();
        while !state.ended {
            state.server.handle_timeout(self.now());
            let errands = state.drain();
            if !errands.is_empty() {
                drop(state);
                self.wait_until_it_goes_on();
                run(errands);
                state = self.lock();
                continue;
            }
            state = match state.server.poll_timeout() {
                Some(at) => {
                    let wait = at.saturating_since(self.now());
                    self.earlier.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.earlier.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        // The connections end their own threads, which hold their sockets.
        state.channels.clear();
    }

    fn now(&self) -> ServerTime {
        ServerTime::ORIGIN + self.origin.elapsed()
    }

    /// A case that fails elsewhere must not hang at its end.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drain(&mut self) -> Vec<Errand> {
        let mut errands = Vec::new();
        while let Some(output) = self.server.poll_output() {
            match output {
                ServerOutput::Send { client, bytes } => {
                    errands.extend(self.channels.get(&client).map(|channel| (Arc::clone(channel), Some(bytes))));
                }
                ServerOutput::HangUp { client } => {
                    errands.extend(self.channels.remove(&client).map(|channel| (channel, None)));
                }
                _ => {}
            }
        }
        errands
    }
}

fn run(errands: Vec<Errand>) {
    for (channel, bytes) in errands {
        match bytes {
            // A client that is gone gets no bytes.
            Some(bytes) => drop(channel.send(&bytes)),
            None => channel.close(),
        }
    }
}
