//! The monitor of a server, and its sockets: next to the topology's machine, and outside its lock.
//!
//! Each monitor has a mutex of its own. The timer, the tasks of its sockets and the end of the client take it; the
//! calls of applications don't, so that none of them waits while a hello is decoded. The topology's calls of a monitor
//! wait in [`Monitoring::request`] for the timer, in the order in which the topology decided on them: they are noted under its
//! lock. A monitor's lock is taken before the topology's, never the other way round, and never two of them; that of the requests
//! is the last one.

use std::collections::BTreeMap;
use std::task::Waker;

use cmap_core::monitor::{Action, Call, Monitor, Output, Socket};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::Input;

use super::Driver;
use super::member::Member;
use super::monitor_socket::MonitorSocket;
use super::state::State;
use crate::runtime::Runtime;
use crate::runtime::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Monitoring {
    state: Mutex<MonitorState>,
    /// Calls that the topology asked for and the timer has not made yet.
    requests: Mutex<Vec<Call>>,
}

struct MonitorState {
    monitor: Monitor,
    sockets: BTreeMap<Socket, Arc<MonitorSocket>>,
    /// The time at which the timer comes back.
    armed: Option<Instant>,
}

/// Work that the monitor leaves to be done without its lock.
#[derive(Default)]
struct Chores {
    open: Vec<(Socket, Arc<MonitorSocket>)>,
    wake: Vec<Waker>,
}

impl Monitoring {
    pub(super) fn new(monitor: Monitor) -> Self {
        let state = MonitorState { monitor, sockets: BTreeMap::new(), armed: None };
        Self { state: Mutex::new(state), requests: Mutex::default() }
    }

    /// Asks the timer to make a call of the monitor. Called under the topology's lock.
    pub(super) fn request(&self, call: Call) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// Run by the timer: makes the calls that were asked for, and those that are due. Returns when to come back.
    pub(super) fn handle_timeout<R: Runtime>(
        &self,
        driver: &Arc<Driver<R>>,
        member: &Arc<Member<R>>,
    ) -> Option<Instant> {
        let calls = std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner));
        self.drive(driver, member, |monitor, now| {
            calls.into_iter().for_each(|call| monitor.handle_call(now, call));
            monitor.handle_timeout(now);
        });
        let mut state = self.lock();
        state.armed = state.monitor.poll_timeout().map(|timeout| timeout.at);
        state.armed
    }

    /// Calls the monitor, and carries out its outputs.
    pub(super) fn drive<R: Runtime>(
        &self,
        driver: &Arc<Driver<R>>,
        member: &Arc<Member<R>>,
        call: impl FnOnce(&mut Monitor, Instant),
    ) {
        let now = driver.clock.now();
        let mut chores = Chores::default();
        let mut state = self.lock();
        call(&mut state.monitor, now);
        let ((), unfinished) = driver.begin(now, |servers, now, _| state.drain(servers, member.id, now, &mut chores));
        let is_earlier = state.rearm();
        drop(state);
        chores.wake.into_iter().for_each(Waker::wake);
        for (socket, shared) in chores.open {
            shared.begin(Arc::downgrade(driver), Arc::clone(member), socket);
        }
        if is_earlier {
            driver.alarm.ring();
        }
        driver.finish(unfinished);
    }

    fn lock(&self) -> MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MonitorState {
    /// Carries out the monitor's actions, and passes its findings to the topology.
    fn drain<R: Runtime>(&mut self, servers: &mut State<R>, server: ServerId, now: Instant, chores: &mut Chores) {
        while let Some(output) = self.monitor.poll_output() {
            match output {
                Output::Action(action) => self.act(action, chores),
                Output::Event(event) => servers.handle_heartbeat(now, server, event),
                Output::Found(finding) => {
                    // Refused only behind a load balancer, where there is no monitor (LB-3).
                    servers.machine.call(now, Input::Check(server, finding), None);
                }
            }
        }
    }

    fn act(&mut self, action: Action, chores: &mut Chores) {
        match action {
            Action::Connect(socket) => {
                let shared = Arc::new(MonitorSocket::default());
                self.sockets.insert(socket, Arc::clone(&shared));
                chores.open.push((socket, shared));
            }
            Action::Send(socket) => {
                let mut bytes = Vec::new();
                self.monitor.write_to(socket, &mut bytes);
                chores.wake.extend(self.sockets.get(&socket).and_then(|shared| shared.send(&bytes)));
            }
            Action::Close(socket) => {
                chores.wake.extend(self.sockets.remove(&socket).and_then(|shared| shared.close()));
            }
        }
    }

    /// Whether the timer would come back later than the monitor needs it.
    fn rearm(&mut self) -> bool {
        let next = self.monitor.poll_timeout().map(|timeout| timeout.at);
        let is_earlier = next.is_some_and(|next| self.armed.is_none_or(|armed| next < armed));
        if is_earlier {
            self.armed = next;
        }
        is_earlier
    }
}
