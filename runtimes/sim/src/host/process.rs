//! A server's process: the test server as a machine, a task for each connection, and one for its time.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use cmap_core::time::Instant;
use cmap_core::wire::{Field, Flags, Limits, Message, MessageIds, MessageWriter};
use cmap_runtime::Runtime;
use cmap_runtime::bson::{RawDocument, RawDocumentBuf};
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer};

use super::channel::{Channel, Outbox};
use super::tls::Tls;
use crate::network::Listener;
use crate::runtime::{SimRuntime, Sleep};

/// How many bytes may wait to be sent to a client before its further requests wait as well.
pub(super) const MOST_UNSENT: usize = 1 << 20;

/// A process, which runs until it is killed.
pub(super) struct Process {
    runtime: SimRuntime,
    state: Mutex<State>,
}

struct State {
    machine: TestServer,
    outboxes: BTreeMap<ClientId, Outbox>,
    hangs: bool,
    is_killed: bool,
    accepted: u64,
    /// The tasks that accept, keep the time, or serve a connection, by their numbers. Each looks again when it is woken.
    tasks: BTreeMap<u64, Waker>,
    next_task: u64,
    timekeeper: Option<Waker>,
    /// When the timekeeper wakes.
    armed: Option<Instant>,
}

/// The machine's time.
pub(super) fn time(runtime: &SimRuntime) -> Instant {
    Instant::ORIGIN + runtime.elapsed()
}

impl Process {
    /// A process that serves those who are handed to it.
    pub(super) fn start(runtime: &SimRuntime, machine: TestServer) -> Arc<Self> {
        let process = Arc::new(Self {
            runtime: runtime.clone(),
            state: Mutex::new(State {
                machine,
                outboxes: BTreeMap::new(),
                hangs: false,
                is_killed: false,
                accepted: 0,
                tasks: BTreeMap::new(),
                next_task: 0,
                timekeeper: None,
                armed: None,
            }),
        });
        runtime.spawn(keep_time(Arc::clone(&process)));
        process
    }

    /// Ends it, and returns what was in its memory.
    pub(super) fn kill(&self) -> TestServer {
        let mut state = self.state();
        state.is_killed = true;
        let tasks = state.all_tasks();
        let empty = TestServer::new(ServerConfig::new(""), Instant::ORIGIN);
        let machine = std::mem::replace(&mut state.machine, empty);
        drop(state);
        tasks.into_iter().for_each(Waker::wake);
        machine
    }

    pub(super) fn hang(&self, hangs: bool) {
        let mut state = self.state();
        state.hangs = hangs;
        let tasks = state.all_tasks();
        drop(state);
        tasks.into_iter().for_each(Waker::wake);
    }

    pub(super) fn accepted(&self) -> u64 {
        self.state().accepted
    }

    /// Runs a command, as a client of its own would that is let in without a password. It must be one that is answered at once.
    pub(super) fn run_command(&self, database: &str, command: &RawDocument) -> Option<RawDocumentBuf> {
        let (mut request, limits) = (Vec::new(), Limits::DEFAULT);
        let ids = MessageIds::request(1);
        let field = [Field::String("$db", database)];
        MessageWriter::begin(&mut request, ids, Flags::NONE, command, &field, &limits).ok()?.finish();
        let mut reply = None;
        let now = time(&self.runtime);
        let mut state = self.state();
        let client = state.machine.accept(now, Peer::operator());
        state.machine.handle_bytes(now, client, &request);
        let mut wake = Vec::new();
        while let Some(output) = state.machine.poll_output() {
            if let ServerOutput::Send { client: to, bytes } = &output
                && *to == client
            {
                reply = Message::decode(bytes, &limits).ok().map(|message| message.body.to_owned());
            } else {
                wake.extend(state.hand_over(now, output));
            }
        }
        state.machine.handle_hang_up(now, client);
        drop(state);
        wake.into_iter().for_each(Waker::wake);
        reply
    }

    /// Closes the connection of a client, by the number that a hello tells. Returns whether there is one.
    pub(super) fn hang_up(&self, connection_id: i64) -> bool {
        let mut state = self.state();
        let found = state.outboxes.iter_mut().find(|(client, _)| client.get() == connection_id.unsigned_abs());
        let Some((_, outbox)) = found else { return false };
        let waker = outbox.close();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// The place in the network of a client's connection.
    pub(super) fn place_of(&self, connection_id: i64) -> Option<usize> {
        let state = self.state();
        let mut outboxes = state.outboxes.iter();
        let found = outboxes.find(|(client, _)| client.get() == connection_id.unsigned_abs());
        found.map(|(_, outbox)| outbox.connection())
    }

    /// A number for a task that asks whether the process is alive.
    fn number_task(&self) -> u64 {
        let mut state = self.state();
        state.next_task += 1;
        state.next_task
    }

    /// Whether the process is alive, and gets time. `cx` is woken when that changes.
    fn poll_alive(&self, task: u64, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        if state.is_killed {
            return Poll::Ready(false);
        }
        state.tasks.insert(task, cx.waker().clone());
        if state.hangs { Poll::Pending } else { Poll::Ready(true) }
    }

    /// A client has connected.
    fn accept(&self, connection: usize, waker: Waker) -> ClientId {
        let mut state = self.state();
        state.accepted += 1;
        let client = state.machine.accept(time(&self.runtime), Peer::at("the simulation"));
        state.outboxes.insert(client, Outbox::new(connection, waker));
        client
    }

    fn handle_bytes(&self, client: ClientId, bytes: &[u8]) {
        self.drive(|machine, now| machine.handle_bytes(now, client, bytes));
    }

    fn leave(&self, client: ClientId, task: u64) {
        self.drive(|machine, now| machine.handle_hang_up(now, client));
        let mut state = self.state();
        let _outbox = state.outboxes.remove(&client);
        let _waker = state.tasks.remove(&task);
    }

    /// Calls the machine, hands its outputs over, and wakes the timekeeper if it has to come earlier.
    fn drive(&self, call: impl FnOnce(&mut TestServer, Instant)) {
        let now = time(&self.runtime);
        let mut state = self.state();
        call(&mut state.machine, now);
        let mut wake = state.drain(now);
        let next = state.machine.poll_timeout();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            wake.extend(state.timekeeper.take());
        }
        drop(state);
        wake.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Puts the machine's outputs into the outboxes of their clients. Returns the tasks to wake.
    fn drain(&mut self, now: Instant) -> Vec<Waker> {
        let mut wake = Vec::new();
        while let Some(output) = self.machine.poll_output() {
            wake.extend(self.hand_over(now, output));
        }
        wake
    }

    fn hand_over(&mut self, now: Instant, output: ServerOutput) -> Option<Waker> {
        match output {
            ServerOutput::Send { client, bytes } => {
                let outbox = self.outboxes.get_mut(&client)?;
                if outbox.len() + bytes.len() > MOST_UNSENT {
                    self.machine.hold(now, client);
                }
                outbox.push(&bytes)
            }
            ServerOutput::HangUp { client } => self.outboxes.get_mut(&client)?.close(),
            _ => None,
        }
    }

    fn all_tasks(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.tasks).into_values().chain(self.timekeeper.take()).collect()
    }
}

/// Accepts connections and gives each to the next of `processes`, until they are killed.
pub(super) async fn accept(processes: Vec<Arc<Process>>, listener: Listener, tls: Option<Arc<rustls::ServerConfig>>) {
    let numbered: Vec<_> = processes.iter().map(|process| (process, process.number_task())).collect();
    for &(process, task) in numbered.iter().cycle() {
        let mut next = pin!(listener.accept());
        let accepted = poll_fn(|cx| match process.poll_alive(task, cx) {
            Poll::Ready(false) => Poll::Ready(None),
            Poll::Ready(true) => next.as_mut().poll(cx),
            Poll::Pending => Poll::Pending,
        });
        let Some(stream) = accepted.await else { return };
        // A configuration that makes no connections serves nobody.
        let Ok(tls) = tls.as_ref().map(Tls::new).transpose() else { continue };
        process.runtime.spawn(serve(Arc::clone(process), Channel::new(stream, tls)));
    }
}

/// Serves one client until either side hangs up, or the process is killed.
async fn serve(process: Arc<Process>, mut channel: Channel) {
    let connection = channel.connection();
    let task = process.number_task();
    let client = poll_fn(|cx| Poll::Ready(process.accept(connection, cx.waker().clone()))).await;
    let mut buffer = vec![0; 16 * 1024];
    poll_fn(|cx| {
        loop {
            match process.poll_alive(task, cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
            if send(&process, client, &mut channel, cx).is_ready() {
                return Poll::Ready(());
            }
            match channel.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(count @ 1..)) => process.handle_bytes(client, &buffer[..count]),
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    process.leave(client, task);
}

/// Sends what waits to be sent. Ends with the connection.
fn send(process: &Process, client: ClientId, channel: &mut Channel, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        let mut state = process.state();
        let Some(outbox) = state.outboxes.get_mut(&client) else { return Poll::Ready(()) };
        outbox.wait(cx.waker());
        let bytes = outbox.take();
        let is_closed = outbox.is_closed();
        drop(state);
        if bytes.is_empty() {
            return if is_closed { Poll::Ready(()) } else { Poll::Pending };
        }
        match channel.poll_write(cx, &bytes) {
            Poll::Ready(Ok(count)) => {
                process
                    .state()
                    .outboxes
                    .get_mut(&client)
                    .into_iter()
                    .for_each(|outbox| outbox.put_back(&bytes[count..]));
                process.drive(|machine, now| machine.release(now, client));
            }
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Pending => {
                process.state().outboxes.get_mut(&client).into_iter().for_each(|outbox| outbox.put_back(&bytes));
                return Poll::Pending;
            }
        }
    }
}

/// Calls the machine when time has passed.
async fn keep_time(process: Arc<Process>) {
    let task = process.number_task();
    let mut sleep: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        loop {
            match process.poll_alive(task, cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
            process.drive(|machine, now| machine.handle_timeout(now));
            let mut state = process.state();
            state.timekeeper = Some(cx.waker().clone());
            state.armed = state.machine.poll_timeout();
            let Some(at) = state.armed else { return Poll::Pending };
            drop(state);
            let timer = sleep.insert(Box::pin(process.runtime.sleep_until_nanos(at.as_nanos())));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}
