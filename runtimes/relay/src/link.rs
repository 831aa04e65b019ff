//! One member and one application: the tasks of their sockets, and the task that dials.
//!
//! The stock says what is to be done, and one task does it. Each call of the stock wakes that task. Each socket is a task of its
//! own, which nothing but the stock's number and two notices connect with the others.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use cmap_core::ErrorChain;
use cmap_core::address::ServerAddress;
use cmap_core::reverse::{BootId, ChannelBinding, Ending, Greeting};
use cmap_runtime::host::LastAddress;
use cmap_runtime::tls::TlsConfig;
use cmap_runtime::{Clock, Runtime};
use tracing::{debug, info, warn};

use crate::dial::{self, DialError, ToApplication, ToMember};
use crate::notice::Notice;
use crate::seldom::Seldom;
use crate::settings::{Application, Limits, Member};
use crate::socket;
use crate::splice::Passed;
use crate::tunnels::{SocketCounts, SocketEnd, SocketId, TunnelOutput, Tunnels};

/// One member and one application.
pub(crate) struct Link<R> {
    clock: Clock<R>,
    application: Arc<Application>,
    applications_last: LastAddress,
    tls: TlsConfig,
    member: Member,
    members_last: LastAddress,
    limits: Limits,
    boot: BootId,
    state: Mutex<State>,
    /// Wakes the task that dials.
    changed: Notice,
    /// No socket is left, and none will come.
    ended: Notice,
}

struct State {
    tunnels: Tunnels,
    sockets: BTreeMap<SocketId, Arc<Orders>>,
    /// What was reported last, so that nothing is reported twice.
    told: Told,
}

/// What the tasks of one socket have to know.
#[derive(Default)]
struct Orders {
    /// To go away, unless it is in use.
    leave: Notice,
    /// To end at once.
    stop: Notice,
}

#[derive(Clone, Copy, Default)]
struct Told {
    is_parked: bool,
    is_at_its_limit: bool,
    /// The limit of sockets is in the way.
    limit: Seldom,
    /// The member could not be reached.
    member: Seldom,
}

/// A socket whose task runs. However that ends, the stock hears of it.
struct Running<'a, R: Runtime> {
    link: &'a Link<R>,
    id: SocketId,
    end: SocketEnd,
}

impl<R: Runtime> Link<R> {
    pub(crate) fn new(
        runtime: R,
        application: Arc<Application>,
        member: Member,
        limits: Limits,
        boot: BootId,
        seed: u64,
    ) -> Self {
        let tls = dial::tls_of(&application, &runtime);
        let clock = Clock::new(runtime);
        let tunnels = Tunnels::new(&limits, seed, clock.now());
        let state = State { tunnels, sockets: BTreeMap::new(), told: Told::default() };
        let (applications_last, members_last) = (LastAddress::default(), LastAddress::default());
        let (changed, ended) = (Notice::default(), Notice::default());
        let state = Mutex::new(state);
        Self { clock, application, applications_last, tls, member, members_last, limits, boot, state, changed, ended }
    }

    /// Does what the stock says, until no socket is left after [`leave`](Self::leave).
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.carry_out();
            let (until, has_ended) = {
                let state = self.state();
                (state.tunnels.poll_timeout(), state.tunnels.has_ended())
            };
            if has_ended {
                return self.ended.set();
            }
            let mut timer = until.map(|until| Box::pin(self.clock.sleep_until(until)));
            let is_due = std::future::poll_fn(|cx| match (self.changed.poll_take(cx), &mut timer) {
                (Poll::Ready(()), _) => Poll::Ready(false),
                (Poll::Pending, Some(timer)) => timer.as_mut().poll(cx).map(|()| true),
                (Poll::Pending, None) => Poll::Pending,
            });
            if is_due.await {
                let now = self.clock.now();
                self.state().tunnels.handle_timeout(now);
            }
        }
    }

    fn carry_out(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let Some(output) = state.tunnels.poll_output() else { return };
            match output {
                TunnelOutput::Dial(id) => {
                    let orders = Arc::new(Orders::default());
                    state.sockets.insert(id, Arc::clone(&orders));
                    drop(state);
                    let link = Arc::clone(self);
                    self.clock.runtime().spawn(async move { link.run_socket(id, &orders).await });
                }
                TunnelOutput::Leave(id) => {
                    let orders = state.sockets.get(&id).cloned();
                    drop(state);
                    orders.into_iter().for_each(|orders| orders.leave.set());
                }
            }
        }
    }

    async fn run_socket(&self, id: SocketId, orders: &Orders) {
        // A panic, too, ends a socket as one that has failed.
        let mut running = Running { link: self, id, end: SocketEnd::Failed };
        let mut socket = Box::pin(socket::run(self, id, &orders.leave));
        running.end = std::future::poll_fn(|cx| match orders.stop.poll_take(cx) {
            Poll::Ready(()) => Poll::Ready(SocketEnd::Over),
            Poll::Pending => socket.as_mut().poll(cx),
        })
        .await;
    }

    /// Lets the parked sockets go, and dials none any more.
    pub(crate) fn leave(&self) {
        self.change(|tunnels, now| tunnels.leave(now));
    }

    /// Ends all sockets at once, those in use, too.
    pub(crate) fn stop(&self) {
        self.leave();
        let sockets: Vec<_> = self.state().sockets.values().cloned().collect();
        sockets.iter().for_each(|orders| orders.stop.set());
    }

    /// Waits until no socket is left after [`leave`](Self::leave). For one caller at a time.
    pub(crate) async fn ended(&self) {
        self.ended.take().await;
        // For the next one who asks.
        self.ended.set();
    }

    pub(crate) fn counts(&self) -> SocketCounts {
        self.state().tunnels.counts()
    }

    pub(crate) fn clock(&self) -> &Clock<R> {
        &self.clock
    }

    /// Where its application listens.
    pub(crate) fn application(&self) -> &ServerAddress {
        &self.application.address
    }

    /// The name of its member.
    pub(crate) fn member(&self) -> &ServerAddress {
        &self.member.name
    }

    pub(crate) async fn dial_application(&self) -> Result<(ToApplication<R>, ChannelBinding), DialError> {
        let (address, limit) = (&self.application.address, self.limits.connect_timeout);
        dial::application(&self.clock, address, &self.applications_last, &self.tls, limit).await
    }

    pub(crate) async fn connect_member(&self) -> Result<ToMember<R>, DialError> {
        dial::member(&self.clock, &self.member.connect, &self.members_last, self.limits.connect_timeout).await
    }

    pub(crate) fn greeting(&self) -> Greeting {
        Greeting { member: self.member.name.clone(), boot: self.boot, token: self.application.token.clone() }
    }

    pub(crate) fn handle_parked(&self, id: SocketId, wanted: u16) {
        self.change(|tunnels, now| tunnels.handle_parked(now, id, wanted));
        let was_parked = std::mem::replace(&mut self.state().told.is_parked, true);
        if !was_parked {
            info!(application = %self.application.address, member = %self.member.name, wanted, "parked");
        }
        debug!(application = %self.application.address, member = %self.member.name, socket = id.0, "socket parked");
    }

    pub(crate) fn handle_demand(&self, number: u16) {
        debug!(application = %self.application.address, member = %self.member.name, number, "sockets demanded");
        self.change(|tunnels, now| tunnels.handle_demand(now, number));
    }

    pub(crate) fn handle_start(&self, id: SocketId) {
        debug!(application = %self.application.address, member = %self.member.name, socket = id.0, "socket started");
        self.change(|tunnels, now| tunnels.handle_start(now, id));
    }

    pub(crate) fn tell_unreachable(&self, error: &DialError) {
        self.state().told.is_parked = false;
        warn!(
            application = %self.application.address, member = %self.member.name, error = %ErrorChain(error),
            "the application cannot be reached; it is dialled again after a pause"
        );
    }

    pub(crate) fn tell_member_unreachable(&self, error: &DialError) {
        // An application that wants connections has every START fail, as fast as it likes.
        let Some(others) = self.state().told.member.may_tell(self.clock.now()) else { return };
        warn!(
            application = %self.application.address, member = %self.member.name, connect = %self.member.connect,
            error = %ErrorChain(error), others, "the member cannot be reached; the application is told"
        );
    }

    /// The application has ended a socket that it never parked. In TLS 1.3 it judges this side's certificate when TLS has begun
    /// already, so its refusal comes here.
    pub(crate) fn tell_unparked(&self, error: Option<&io::Error>) {
        self.state().told.is_parked = false;
        let error =
            error.map_or_else(|| "the other side has closed it".to_owned(), |error| ErrorChain(error).to_string());
        warn!(
            application = %self.application.address, member = %self.member.name, error,
            "the application has ended a socket before it was parked; check this relay's certificate, and the application's log"
        );
    }

    pub(crate) fn tell_lost(&self, id: SocketId, error: Option<&io::Error>) {
        let error =
            error.map_or_else(|| "the other side has closed it".to_owned(), |error| ErrorChain(error).to_string());
        debug!(application = %self.application.address, member = %self.member.name, socket = id.0, error, "socket lost");
    }

    pub(crate) fn tell_ending(&self, id: SocketId, ending: &Ending) {
        let (application, member, socket) = (&self.application.address, &self.member.name, id.0);
        match ending {
            Ending::Left | Ending::PeerLeaves => debug!(%application, %member, socket, reason = %ending, "socket ends"),
            Ending::Refused { .. } => {
                self.state().told.is_parked = false;
                warn!(%application, %member, reason = %ending, "refused");
            }
            // Told before, with where the member was looked for.
            Ending::StartFailed(_) => {}
            Ending::NoGreeting | Ending::Silent(_) | Ending::Protocol(_) | _ => {
                warn!(%application, %member, socket, reason = %ending, "socket ends");
            }
        }
    }

    pub(crate) fn tell_passed(&self, id: SocketId, passed: Passed, error: Option<&io::Error>) {
        let error = error.map(|error| ErrorChain(error).to_string()).unwrap_or_default();
        debug!(
            application = %self.application.address, member = %self.member.name, socket = id.0, error,
            to_member = passed.to_member, to_application = passed.to_application, "connection ended"
        );
    }

    /// Tells the stock something, and wakes the task that does what it says.
    fn change(&self, change: impl FnOnce(&mut Tunnels, cmap_core::time::Instant)) {
        let now = self.clock.now();
        let mut state = self.state();
        change(&mut state.tunnels, now);
        let is_at_its_limit = state.tunnels.is_at_its_limit();
        let was_at_its_limit = std::mem::replace(&mut state.told.is_at_its_limit, is_at_its_limit);
        // Each socket that ends and comes back passes the limit again.
        let told = if is_at_its_limit && !was_at_its_limit { state.told.limit.may_tell(now) } else { None };
        drop(state);
        if let Some(others) = told {
            warn!(
                application = %self.application.address, member = %self.member.name, limit = self.limits.max_sockets, others,
                "the application wants more sockets than limits.maxSockets allows; raise it, or lower its maxPoolSize"
            );
        }
        self.changed.set();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Runtime> Drop for Running<'_, R> {
    fn drop(&mut self) {
        let (id, end) = (self.id, self.end);
        self.link.state().sockets.remove(&id);
        self.link.change(|tunnels, now| tunnels.handle_end(now, id, end));
    }
}
