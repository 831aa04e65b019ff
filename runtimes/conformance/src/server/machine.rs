//! The test server, shared by the tasks of its connections and the one that keeps its time.
//!
//! Each caller of the machine drains it under the lock and sends its outputs when the lock is free again. A connection
//! has one request at a time, and the replies that stream to it all come from the task that keeps the time, so the
//! order is right.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use cmap_core::time::Instant as ServerTime;
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer};

use super::connection::Channel;
use crate::ground::{Bell, Ground};

pub(super) struct Machine {
    ground: Arc<dyn Ground>,
    state: Mutex<State>,
    hangs: AtomicBool,
    /// Rings when there may be something to do earlier, and when the server hangs, goes on or ends.
    bell: Bell,
}

struct State {
    server: TestServer,
    channels: BTreeMap<ClientId, Arc<Channel>>,
    ended: bool,
}

/// An instruction of the machine for a connection: bytes to send, or its end.
type Errand = (Arc<Channel>, Option<Vec<u8>>);

impl Machine {
    /// A machine whose time is the ground's.
    pub(super) fn start(ground: Arc<dyn Ground>, config: ServerConfig) -> Arc<Self> {
        let server = TestServer::new(config, ServerTime::ORIGIN + ground.age());
        let machine = Arc::new(Self {
            ground,
            state: Mutex::new(State { server, channels: BTreeMap::new(), ended: false }),
            hangs: AtomicBool::new(false),
            bell: Bell::default(),
        });
        let timed = Arc::clone(&machine);
        machine.ground.spawn(Box::pin(async move { timed.keep_time().await }));
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
    pub(super) async fn handle_bytes(&self, client: ClientId, bytes: &[u8]) {
        self.wait_until_it_goes_on().await;
        let errands = {
            let mut state = self.lock();
            state.server.handle_bytes(self.now(), client, bytes);
            state.drain()
        };
        self.bell.ring();
        run(errands).await;
    }

    /// A client is gone.
    pub(super) fn handle_hang_up(&self, client: ClientId) {
        let mut state = self.lock();
        state.channels.remove(&client);
        state.server.handle_hang_up(self.now(), client);
    }

    pub(super) fn hang(&self, hang: bool) {
        self.hangs.store(hang, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Waits while the server hangs.
    pub(super) async fn wait_until_it_goes_on(&self) {
        self.bell.wait_until(|| !self.hangs.load(Ordering::SeqCst)).await;
    }

    /// Ends the task that keeps the time.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.hang(false);
    }

    async fn keep_time(&self) {
        while !self.lock().ended {
            let errands = self.handle_timeout();
            if errands.is_empty() {
                self.wait().await;
            } else {
                self.wait_until_it_goes_on().await;
                run(errands).await;
            }
        }
        // The connections end their own tasks, which hold their sockets.
        self.lock().channels.clear();
    }

    fn handle_timeout(&self) -> Vec<Errand> {
        let mut state = self.lock();
        state.server.handle_timeout(self.now());
        state.drain()
    }

    /// Waits until something is due, or has become due earlier, or it is over.
    async fn wait(&self) {
        let due = self.due();
        let mut timer = due.map(|due| self.ground.sleep_until(due.saturating_since(ServerTime::ORIGIN)));
        poll_fn(|cx| {
            let changed = self.bell.poll(cx, || self.lock().ended || self.due() != due);
            let passed = timer.as_mut().map_or(Poll::Pending, |timer| timer.as_mut().poll(cx));
            if changed.is_ready() { changed } else { passed }
        })
        .await;
    }

    fn due(&self) -> Option<ServerTime> {
        self.lock().server.poll_timeout()
    }

    fn now(&self) -> ServerTime {
        ServerTime::ORIGIN + self.ground.age()
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

async fn run(errands: Vec<Errand>) {
    for (channel, bytes) in errands {
        match bytes {
            // A client that is gone gets no bytes.
            Some(bytes) => drop(channel.send(&bytes).await),
            None => channel.close(),
        }
    }
}
