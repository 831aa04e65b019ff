//! One server of the topology on this side of the sockets: how its connections are established, and its monitor with its sockets, which
//! stands next to the topology's machine, and outside its lock.
//!
//! Each monitor has a mutex of its own. The timer, the tasks of its sockets, a library that names itself and the end of the client take
//! it; other calls of applications don't, so that none of them waits while a hello is decoded. The topology's calls of a monitor
//! wait in [`Member::request`] for the timer, in the order in which the topology decided on them: they are noted under its
//! lock. A monitor's lock is taken before the topology's, never the other way round, and never two of them; that of the requests
//! is the last one.
//!
//! A task of its own opens, reads and writes each of a monitor's sockets, until the monitor closes it. The core decides the contents of
//! messages ([`cmap_core::monitor`]), and keeps time: a socket has no limits of its own here.
//!
//! Each check whose begin had an event has one for its end, also where its server leaves meanwhile (MON-13). The machine hears nothing
//! more of a server that has left, and its monitor ends only afterwards.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Bound;
use std::pin::Pin;
use std::task::Poll;

use cmap_core::ErrorChain;
use cmap_core::address::ServerAddress;
use cmap_core::connection::{Fault, MetadataError, Phase};
use cmap_core::monitor::{Action, Call, HeartbeatEvent, Monitor, MonitorConnection, Output, Socket};
use cmap_core::pool::{Cause, IdentityId};
use cmap_core::server::{ServerEvent, ServerId};
use cmap_core::time::Instant;
use cmap_core::topology::Input;
use cmap_core::wire::HEADER_LEN;
use futures_io::{AsyncRead, AsyncWrite};

use super::state::State;
use super::{Driver, Job, Work};
use crate::establish::{Establisher, Settings, lost};
use crate::events::Event;
use crate::runtime::Runtime;
use crate::runtime::sync::{Arc, AtomicWaker, Mutex, MutexGuard, PoisonError, Weak};
use crate::socket::abort::{Abort, AbortReason};
use crate::socket::{hung_up, write_all};

/// A server, or an identity's pool there.
pub(crate) struct Member<R: Runtime> {
    pub(super) id: ServerId,
    pub(super) establisher: Arc<Establisher<R>>,
    /// None behind a load balancer (LB-3), where the pool's owner has a monitor of their own, and for an identity.
    monitoring: Option<Monitoring>,
}

struct Monitoring {
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

/// A check that is under way.
pub(super) struct Heartbeat {
    connection: MonitorConnection,
    since: Instant,
    awaited: bool,
}

/// The state of a monitor's socket that its task shares.
#[derive(Debug, Default)]
pub(crate) struct MonitorSocket {
    abort: Abort,
    outgoing: Mutex<Vec<u8>>,
    writer: AtomicWaker,
}

/// The number of bytes read at once. A reply is seldom longer, and a flood of replies is read in small portions, so
/// that the task yields often.
const READ: usize = 1024;

/// The next step of its task.
enum Next {
    Send(Vec<u8>),
    Take(usize),
}

impl<R: Runtime> Member<R> {
    pub(super) fn new(
        id: ServerId,
        address: Arc<ServerAddress>,
        settings: &Arc<Settings<R>>,
        identity: Option<IdentityId>,
        monitor: Option<Monitor>,
    ) -> Arc<Self> {
        let establisher = Arc::new(Establisher::new(address, Arc::clone(settings), identity));
        let monitoring = monitor.map(|monitor| Monitoring {
            state: Mutex::new(MonitorState { monitor, sockets: BTreeMap::new(), armed: None }),
            requests: Mutex::default(),
        });
        Arc::new(Self { id, establisher, monitoring })
    }

    pub(super) fn address(&self) -> &Arc<ServerAddress> {
        &self.establisher.address
    }

    /// Asks the timer to make a call of the monitor; returns whether there is one. Called under the topology's lock.
    pub(super) fn request(&self, call: Call) -> bool {
        let Some(monitoring) = &self.monitoring else { return false };
        monitoring.requests.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        true
    }

    /// Run by the timer: makes the calls that were asked for, and those that are due. Returns when to come back.
    fn handle_timeout(self: &Arc<Self>, driver: &Arc<Driver<R>>) -> Option<Instant> {
        let monitoring = self.monitoring.as_ref()?;
        let calls = std::mem::take(&mut *monitoring.requests.lock().unwrap_or_else(PoisonError::into_inner));
        self.drive(driver, |monitor, now| {
            calls.into_iter().for_each(|call| monitor.handle_call(now, call));
            monitor.handle_timeout(now);
        });
        let mut state = monitoring.lock();
        state.armed = state.next_timeout();
        state.armed
    }

    /// Calls the monitor, if there is one, and carries out its outputs.
    pub(super) fn drive(self: &Arc<Self>, driver: &Arc<Driver<R>>, call: impl FnOnce(&mut Monitor, Instant)) {
        let Some(monitoring) = &self.monitoring else { return };
        let now = driver.clock.now();
        let mut state = monitoring.lock();
        call(&mut state.monitor, now);
        let ((), mut work) = driver.begin(now, |servers, now, work| state.drain(servers, self, now, work));
        work.rings_alarm |= state.rearm();
        drop(state);
        driver.finish(work);
    }
}

impl Monitoring {
    fn lock(&self) -> MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MonitorState {
    /// Carries out the monitor's actions, and passes its findings to the topology.
    fn drain<R: Runtime>(&mut self, servers: &mut State<R>, member: &Arc<Member<R>>, now: Instant, work: &mut Work<R>) {
        while let Some(output) = self.monitor.poll_output() {
            match output {
                Output::Action(action) => self.act(action, member, work),
                Output::Event(event) => servers.handle_heartbeat(now, member.id, event),
                Output::Found(finding) => {
                    // Refused only behind a load balancer, where there is no monitor (LB-3).
                    servers.machine.call(now, Input::Check(member.id, finding), None);
                }
            }
        }
    }

    fn act<R: Runtime>(&mut self, action: Action, member: &Arc<Member<R>>, work: &mut Work<R>) {
        match action {
            Action::Connect(socket) => {
                let shared = Arc::new(MonitorSocket::default());
                self.sockets.insert(socket, Arc::clone(&shared));
                work.jobs.push(Job::Open { member: Arc::clone(member), socket, shared });
            }
            Action::Send(socket) => {
                let Some(shared) = self.sockets.get(&socket) else { return };
                self.monitor.write_to(socket, &mut shared.outgoing());
                work.wake_all(shared.writer.take());
            }
            Action::Close(socket) => {
                let shared = self.sockets.remove(&socket);
                work.wake_all(shared.and_then(|shared| shared.abort.abort(AbortReason::Closed)));
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.monitor.poll_timeout().map(|timeout| timeout.at)
    }

    /// Whether the timer would come back later than the monitor needs it.
    fn rearm(&mut self) -> bool {
        let next = self.next_timeout();
        let is_earlier = next.is_some_and(|next| self.armed.is_none_or(|armed| next < armed));
        if is_earlier {
            self.armed = next;
        }
        is_earlier
    }
}

impl<R: Runtime> Driver<R> {
    /// Lets every monitor do what is due. Returns when the first of them has to come back.
    pub(super) fn handle_monitors(self: &Arc<Self>) -> Option<Instant> {
        let mut next = None;
        self.for_each_member(|member| next = next.into_iter().chain(member.handle_timeout(self)).min());
        next
    }

    /// Adds a library that wraps this one to the metadata of connections yet to come (HS-14): those of monitors, too.
    ///
    /// # Errors
    /// A part contains the character that separates libraries.
    pub(crate) fn append_metadata(
        self: &Arc<Self>,
        name: &str,
        version: &str,
        platform: &str,
    ) -> Result<(), MetadataError> {
        self.settings.append_metadata(name, version, platform)?;
        // First those of monitors to come. Each time the metadata of that moment, so that of two calls the later one counts.
        if let Some(options) = &mut self.lock().monitor_options {
            Arc::make_mut(&mut options.connection).metadata = self.settings.metadata();
        }
        self.for_each_member(|member| {
            member.drive(self, |monitor, _| monitor.set_metadata(self.settings.metadata()));
        });
        Ok(())
    }

    /// Closes every monitor.
    pub(super) fn close_monitors(self: &Arc<Self>) {
        self.for_each_member(|member| member.drive(self, Monitor::close));
    }

    /// Calls one server after the other, because their calls may add servers and remove others; none is missed that was there at first.
    fn for_each_member(&self, mut call: impl FnMut(&Arc<Member<R>>)) {
        let mut last = Bound::Unbounded;
        loop {
            let next = self.lock().members.range((last, Bound::Unbounded)).next().map(|(_, member)| Arc::clone(member));
            let Some(member) = next else { return };
            last = Bound::Excluded(member.id);
            call(&member);
        }
    }
}

impl<R: Runtime> State<R> {
    /// A server's monitor began or ended a check.
    fn handle_heartbeat(&mut self, now: Instant, server: ServerId, event: HeartbeatEvent) {
        // Nobody is told of those of a server that has left.
        if self.machine.server(server).is_some_and(|server| !server.has_left()) {
            if let HeartbeatEvent::Started { connection, awaited } = event {
                self.heartbeats.insert(server, Heartbeat { connection, since: now, awaited });
            } else {
                self.heartbeats.remove(&server);
            }
        }
        self.machine.call(now, Input::Heartbeat(server, event), None);
    }

    /// Tells of a server, and first of the end of its check if it leaves: nobody waits for that any more.
    pub(super) fn tell_of_server(&mut self, now: Instant, server: ServerId, event: ServerEvent) {
        if matches!(event, ServerEvent::ServerClosed)
            && let Some(Heartbeat { connection, since, awaited }) = self.heartbeats.remove(&server)
        {
            let failed = HeartbeatEvent::Failed {
                connection,
                duration: now.saturating_since(since),
                failure: Cause::new("the check was cancelled: the server has left"),
                awaited,
            };
            self.tell(server, Event::Server(ServerEvent::Heartbeat(failed)));
        }
        self.tell(server, Event::Server(event));
    }
}

impl MonitorSocket {
    /// Opens `socket` in a task of its own, and serves it.
    pub(crate) fn begin<R: Runtime>(self: Arc<Self>, driver: Weak<Driver<R>>, member: Arc<Member<R>>, socket: Socket) {
        let runtime = member.establisher.settings.clock.runtime().clone();
        runtime.spawn(async move {
            let served = self.abort.during(self.serve(&driver, &member, socket)).await;
            // A socket that was closed meanwhile is dropped.
            if let Ok((fault, cause)) = served {
                tell(&driver, &member, |monitor, now| monitor.handle_failed(now, socket, fault, cause));
            }
        });
    }

    /// Ends with an error only.
    async fn serve<R: Runtime>(
        &self,
        driver: &Weak<Driver<R>>,
        member: &Arc<Member<R>>,
        socket: Socket,
    ) -> (Fault, Cause) {
        let establisher = &member.establisher;
        let mut stream = match establisher.open().await {
            Ok(stream) => stream,
            Err(error) => return (error.fault, Cause::of(&error)),
        };
        tell(driver, member, |monitor, now| monitor.handle_connected(now, socket));
        let mut buffer = [0; READ];
        let mut received = 0;
        loop {
            let done = match self.next(&mut stream, &mut buffer).await {
                Ok(Next::Send(bytes)) => write_all(&mut stream, &bytes).await,
                Ok(Next::Take(count)) => {
                    received += count;
                    let bytes = buffer.get(..count).unwrap_or_default();
                    tell(driver, member, |monitor, now| monitor.handle_bytes(now, socket, bytes));
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                let fault = lost(Phase::Hello, &error, "").fault;
                // Less than a message's header is no answer: a part of an alert of TLS, perhaps.
                let advice = if received < HEADER_LEN { establisher.advice_before_hello() } else { "" };
                return (fault, Cause::new(&format!("{}{advice}", ErrorChain(&error))));
            }
        }
    }

    fn outgoing(&self) -> MutexGuard<'_, Vec<u8>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for bytes to send, or for bytes that came.
    async fn next(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        buffer: &mut [u8],
    ) -> std::io::Result<Next> {
        poll_fn(|cx| {
            self.writer.register(cx.waker());
            let outgoing = std::mem::take(&mut *self.outgoing());
            if !outgoing.is_empty() {
                return Poll::Ready(Ok(Next::Send(outgoing)));
            }
            Pin::new(&mut *stream).poll_read(cx, buffer).map(|read| match read? {
                0 => Err(hung_up()),
                count => Ok(Next::Take(count)),
            })
        })
        .await
    }
}

/// Something happened at one of a monitor's sockets.
fn tell<R: Runtime>(driver: &Weak<Driver<R>>, member: &Arc<Member<R>>, call: impl FnOnce(&mut Monitor, Instant)) {
    if let Some(driver) = driver.upgrade() {
        member.drive(&driver, call);
    }
}
