//! A pool, its server and the network between them, in virtual time.
//!
//! The loop of an embedder is: make calls; read [`Simulation::poll_news`] until it is empty; go on to
//! [`Simulation::next_at`] by [`Simulation::step`]. Connections are established in the steps of the real protocol:
//! connect, hello, and with authentication saslStart and saslContinue, each of which can be slow, fail or hang.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use core::time::Duration;

use super::fail_point::Outcome;
use super::network::{Network, NetworkMode, VirtualServer};
use super::schedule::Schedule;
use crate::connection::{EstablishError, Fault, Phase};
use crate::options::{PoolLimits, PoolOptionsError};
use crate::pool::{
    Action, AffinityKey, ApiMisuse, Cancellation, CheckOutError, CheckOutId, CheckOutRequest, Clear, Condition,
    Delivery, Event, Handle, IdentityId, Output, Pool, Refused, Stats,
};
use crate::random::Random;
use crate::server::{OperationError, Server};
use crate::time::Instant;
use crate::topology::{self, CheckOut, Criteria, Topology, WarmUpError, WarmUpId};

/// A simulated endpoint.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The behaviour of the network; can be changed at any time.
    pub network: Network,
    /// The behaviour of the server; can be changed at any time.
    pub virtual_server: VirtualServer,
    topology: Topology<()>,
    now: Instant,
    pub(super) random: Random,
    connect_timeout: Duration,
    schedule: Schedule<Happening>,
    establishing: BTreeMap<Handle, Phase>,
    pub(super) refreshing: BTreeSet<Handle>,
    pub(super) hung_up: BTreeSet<Handle>,
    news: VecDeque<News>,
}

/// The news for the callers of a pool.
#[derive(Clone, Debug)]
pub enum News {
    /// Something happened.
    Event(Event),
    /// A check-out has its connection.
    Delivered {
        /// The check-out.
        check_out: CheckOutId,
        /// The connection.
        connection: Handle,
    },
    /// A warm-up has ended.
    WarmedUp {
        /// The warm-up.
        warm_up: WarmUpId,
        /// Whether it has what it asked for, and otherwise why not.
        result: Result<(), WarmUpError>,
    },
    /// A check-out failed.
    Failed {
        /// The check-out.
        check_out: CheckOutId,
        /// Why.
        error: Arc<CheckOutError>,
    },
    /// The operation on a connection in use is interrupted; the connection should be checked in.
    Interrupted {
        /// The connection.
        connection: Handle,
    },
}

/// An event of a connection that is being established or refreshed.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// The step that was under way has ended.
    Step { connection: Handle, step: Step, outcome: Outcome },
    /// The connection was refused.
    Refused { connection: Handle },
    /// connectTimeoutMS is over.
    TimedOut { connection: Handle },
    /// A ping has ended, or has taken too long.
    Refreshed { connection: Handle, outcome: Result<(), OperationError> },
}

/// The steps of establishment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Connect,
    Hello,
    SaslStart,
    SaslContinue,
}

impl Simulation {
    /// A simulation of `pool`, made at [`Instant::ORIGIN`], in which `seed` decides what chance decides.
    pub fn new(pool: Pool<()>, network: Network, virtual_server: VirtualServer, seed: u64) -> Self {
        let mut simulation = Self {
            network,
            virtual_server,
            topology: Topology::unmonitored(pool),
            now: Instant::ORIGIN,
            random: Random::new(seed),
            connect_timeout: Duration::from_secs(10),
            schedule: Schedule::new(),
            establishing: BTreeMap::new(),
            refreshing: BTreeSet::new(),
            hung_up: BTreeSet::new(),
            news: VecDeque::new(),
        };
        simulation.drain();
        simulation
    }

    /// Bounds every establishment from now on; zero = never (URI-12). Initially 10 s.
    pub fn set_connect_timeout(&mut self, timeout: Duration) {
        self.connect_timeout = timeout;
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The pool, to read.
    pub fn pool(&self) -> &Pool<()> {
        self.server().pool()
    }

    /// The pools, to read: the server's own, then those of its further users.
    pub fn pools(&self) -> impl Iterator<Item = &Pool<()>> {
        self.topology.pools().map(|(_, pool)| pool)
    }

    /// The counts of all pools together.
    pub fn stats(&self) -> Stats {
        self.topology.stats()
    }

    fn server(&self) -> &Server<()> {
        let (_, server) = self.topology.servers().next().unwrap_or_else(|| unreachable!("a simulation has one server"));
        server
    }

    /// [`Pool::check_out`].
    pub fn check_out(&mut self, request: CheckOutRequest) -> CheckOutId {
        let (check_out, delivery) = self.topology.check_out(self.now, request);
        self.drain();
        self.deliver(delivery);
        match check_out {
            CheckOut::Started(id) => id,
            CheckOut::Selecting(_) => unreachable!("the server is not monitored: nothing waits for it"),
        }
    }

    /// [`Pool::cancel_check_out`].
    pub fn cancel_check_out(&mut self, id: CheckOutId) -> Cancellation {
        self.call(|topology, now| topology.cancel_check_out(now, CheckOut::Started(id)))
    }

    /// [`Pool::check_in`].
    ///
    /// # Errors
    /// Those of the pool.
    pub fn check_in(&mut self, connection: Handle, condition: Condition) -> Result<(), Refused<()>> {
        let checked_in = self.call(|topology, now| topology.check_in(now, connection, (), condition))?;
        self.deliver(checked_in.delivery());
        Ok(())
    }

    /// [`Topology::handle_operation_failed`], to be followed by a check-in.
    ///
    /// # Errors
    /// Those of the topology.
    pub fn fail_operation(&mut self, connection: Handle, error: OperationError) -> Result<(), ApiMisuse> {
        self.call(|topology, now| topology.handle_operation_failed(now, connection, error))
    }

    /// [`Pool::ready`].
    pub fn ready(&mut self) {
        let misuse = self.call(|topology, now| topology.ready(now));
        debug_assert_eq!(misuse, Ok(()));
    }

    /// [`Pool::resize`].
    ///
    /// # Errors
    /// Those of the pool.
    pub fn resize(&mut self, limits: impl Into<PoolLimits>) -> Result<(), PoolOptionsError> {
        let limits = limits.into();
        self.call(|topology, now| topology.resize(now, limits))
    }

    /// [`Pool::clear`].
    ///
    /// # Errors
    /// Those of the pool.
    pub fn clear(&mut self, clear: Clear) -> Result<(), ApiMisuse> {
        self.call(|topology, now| topology.clear(now, clear))
    }

    /// [`Pool::renew_credential`].
    pub fn renew_credential(&mut self) {
        self.call(Topology::renew_credential);
    }

    /// [`Pool::retire_all`].
    pub fn retire_all(&mut self, over: Duration) {
        self.call(|topology, now| topology.retire_all(now, over));
    }

    /// [`Topology::warm_up`].
    pub fn warm_up(&mut self, connections: Option<u32>) -> WarmUpId {
        self.call(|topology, now| topology.warm_up(now, &Criteria::default(), connections))
    }

    /// [`Pool::end_affinity`].
    pub fn end_affinity(&mut self, key: AffinityKey) {
        self.call(|topology, now| topology.end_affinity(now, key));
    }

    /// [`Topology::add_identity`].
    pub fn add_identity(&mut self) -> IdentityId {
        self.call(Topology::add_identity)
    }

    /// [`Pool::resume`].
    pub fn resume(&mut self) {
        self.call(Topology::resume);
    }

    /// [`Pool::close`].
    pub fn close(&mut self) {
        self.call(Topology::close);
    }

    /// The server closes a connection's socket. The client learns of it at once if it is `noticed`, otherwise when it
    /// checks the socket before the next use.
    ///
    /// # Errors
    /// Those of [`Pool::handle_peer_closed`].
    pub fn hang_up(&mut self, connection: Handle, noticed: bool) -> Result<(), ApiMisuse> {
        if noticed {
            return self.call(|topology, now| topology.handle_peer_closed(now, connection));
        }
        self.hung_up.insert(connection);
        Ok(())
    }

    /// Gives up every establishment and every ping that is still going on, as an adapter does when its pool has been closed for long.
    pub fn abandon_establishments(&mut self) {
        for (connection, phase) in core::mem::take(&mut self.establishing) {
            let error = EstablishError::new(phase, Fault::Other, "the pool was closed");
            self.fail_with(connection, error);
        }
        self.abandon_refreshes();
    }

    /// The next news for the callers.
    pub fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<Instant> {
        let timeout = self.topology.poll_timeout().map(|timeout| timeout.at);
        match (self.schedule.next_at(), timeout) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Moves time to `now` without making anything happen.
    pub fn wait_until(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Makes one event happen that is due now: chance decides whether the network or a timer goes first. Returns
    /// whether there was one.
    pub fn step(&mut self) -> bool {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let timer = is_due(self.topology.poll_timeout().map(|timeout| timeout.at));
        let network = is_due(self.schedule.next_at());
        if timer && (!network || self.random.up_to(1) == 0) {
            self.call(Topology::handle_timeout);
        } else if let Some(happening) = self.schedule.pop_due(self.now) {
            self.happen(happening);
        } else {
            return false;
        }
        true
    }

    pub(super) fn call<R>(&mut self, call: impl FnOnce(&mut Topology<()>, Instant) -> R) -> R {
        let result = call(&mut self.topology, self.now);
        self.drain();
        result
    }

    /// Carries out the pool's actions, as an adapter would.
    fn drain(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            let output = match output {
                topology::Output::Pool { output, .. } => output,
                topology::Output::WarmedUp { warm_up, result } => {
                    self.news.push_back(News::WarmedUp { warm_up, result });
                    continue;
                }
                // No monitor checks the server, so it has no selection, no events and no calls of a monitor.
                topology::Output::Selected { .. }
                | topology::Output::Reselecting { .. }
                | topology::Output::SelectionFailed { .. }
                | topology::Output::Selection(_)
                | topology::Output::ResolveSrv { .. }
                | topology::Output::Topology(_)
                | topology::Output::Server { .. }
                | topology::Output::Monitor { .. } => continue,
            };
            match output {
                Output::Event(event) => self.news.push_back(News::Event(event)),
                Output::Action(Action::Connect { connection }) => self.connect(connection),
                Output::Action(Action::Check { connection }) => {
                    let alive = !self.hung_up.contains(&connection);
                    let answered = self.topology.handle_checked(self.now, connection, alive);
                    debug_assert_eq!(answered, Ok(()));
                }
                Output::Action(Action::Refresh { connection, socket: (), timeout }) => {
                    self.refresh(connection, timeout);
                }
                Output::Action(Action::Deliver { check_out, connection, socket: () }) => {
                    self.news.push_back(News::Delivered { check_out, connection });
                }
                Output::Action(Action::Fail { check_out, error }) => {
                    self.news.push_back(News::Failed { check_out, error });
                }
                Output::Action(Action::Close { connection, .. }) => {
                    self.hung_up.remove(&connection);
                }
                Output::Action(Action::Interrupt { connection }) => self.interrupt(connection),
                // The topology takes it, and tells of its own.
                Output::Action(Action::WarmedUp { .. }) => {}
            }
        }
    }

    /// A call returned a connection at once.
    fn deliver(&mut self, delivery: Option<Delivery<()>>) {
        if let Some(Delivery { check_out, connection, socket: () }) = delivery {
            self.news.push_back(News::Delivered { check_out, connection });
        }
    }

    fn connect(&mut self, connection: Handle) {
        self.establishing.insert(connection, Phase::Connect);
        if self.connect_timeout > Duration::ZERO {
            self.later(self.connect_timeout, Happening::TimedOut { connection });
        }
        let round_trip = self.network.round_trip(&mut self.random);
        match self.network.mode {
            NetworkMode::Up | NetworkMode::Reset => {
                let step = Happening::Step { connection, step: Step::Connect, outcome: Outcome::Proceed };
                self.later(round_trip, step);
            }
            NetworkMode::Refuse => self.later(round_trip, Happening::Refused { connection }),
            NetworkMode::Hang => {}
        }
    }

    /// Sends the command of `step`; its reply comes later, or never.
    fn send(&mut self, connection: Handle, step: Step) {
        let command = match step {
            Step::Connect | Step::Hello => "hello",
            Step::SaslStart => "saslStart",
            Step::SaslContinue => "saslContinue",
        };
        let round_trip = self.network.round_trip(&mut self.random);
        match self.network.mode {
            NetworkMode::Up => {
                let effect = self.virtual_server.receive(command);
                let after = round_trip.saturating_add(effect.delay);
                self.later(after, Happening::Step { connection, step, outcome: effect.outcome });
            }
            NetworkMode::Refuse | NetworkMode::Reset => {
                self.later(round_trip, Happening::Step { connection, step, outcome: Outcome::CloseConnection });
            }
            NetworkMode::Hang => {}
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step { connection, step, outcome } => {
                if let Some(&phase) = self.establishing.get(&connection) {
                    self.end_step(connection, step, phase, outcome);
                }
            }
            Happening::Refused { connection } => {
                self.fail(connection, Fault::Network, "the connection was refused");
            }
            Happening::Refreshed { connection, outcome } => self.end_refresh(connection, outcome),
            Happening::TimedOut { connection } => {
                self.fail(connection, Fault::Timeout, "the server did not answer within connectTimeoutMS");
            }
        }
    }

    fn end_step(&mut self, connection: Handle, step: Step, phase: Phase, outcome: Outcome) {
        match outcome {
            Outcome::Proceed => {}
            Outcome::CloseConnection => {
                return self.fail(connection, Fault::Network, "the server closed the connection");
            }
            Outcome::Error { code, labels } => {
                let message = alloc::format!("the server answered with error {code}");
                let error = EstablishError::new(phase, Fault::Server { code: Some(code) }, message);
                return self.fail_with(connection, error.with_server_labels(labels.unwrap_or_default()));
            }
        }
        match step {
            Step::Connect => self.go_on(connection, Phase::Hello, Step::Hello),
            Step::Hello => {
                if self.pool().options().load_balanced {
                    let Some(service_id) = self.virtual_server.service_of(connection.id()) else {
                        // LB-6.
                        let message = "Driver attempted to initialize in load balancing mode, but the server does not \
                                       support this mode.";
                        return self.fail(connection, Fault::Other, message);
                    };
                    let description = (**self.server().description()).clone();
                    let misuse = self
                        .call(|topology, now| topology.handle_hello(now, connection, Some(service_id), description));
                    debug_assert_eq!(misuse, Ok(()));
                }
                if self.virtual_server.auth {
                    self.go_on(connection, Phase::Authenticate, Step::SaslStart);
                } else {
                    self.establish(connection);
                }
            }
            Step::SaslStart if self.is_refused(connection) => {
                let error = EstablishError::new(phase, Fault::Server { code: Some(18) }, "Authentication failed.");
                self.fail_with(connection, error);
            }
            Step::SaslStart => self.go_on(connection, Phase::Authenticate, Step::SaslContinue),
            Step::SaslContinue => self.establish(connection),
        }
    }

    /// Whether the server refuses the login of the connection's user.
    fn is_refused(&self, connection: Handle) -> bool {
        let user = self.topology.identity_of(connection);
        user.is_some_and(|user| self.virtual_server.refused.contains(&user))
    }

    fn go_on(&mut self, connection: Handle, phase: Phase, step: Step) {
        self.establishing.insert(connection, phase);
        self.send(connection, step);
    }

    fn establish(&mut self, connection: Handle) {
        self.establishing.remove(&connection);
        let refused = self.call(|topology, now| topology.handle_established(now, connection, ()));
        debug_assert_eq!(refused, Ok(()));
    }

    fn fail(&mut self, connection: Handle, fault: Fault, message: &str) {
        if let Some(&phase) = self.establishing.get(&connection) {
            self.fail_with(connection, EstablishError::new(phase, fault, message));
        }
    }

    fn fail_with(&mut self, connection: Handle, error: EstablishError) {
        self.establishing.remove(&connection);
        let misuse = self.call(|topology, now| topology.handle_establish_failed(now, connection, error));
        debug_assert_eq!(misuse, Ok(()));
    }

    /// Gives up an establishment, unless its end races the interruption and is reported all the same.
    fn interrupt(&mut self, connection: Handle) {
        if self.refreshing.remove(&connection) {
            return;
        }
        if !self.establishing.contains_key(&connection) {
            self.news.push_back(News::Interrupted { connection });
        } else if self.random.up_to(1) == 0 {
            self.establishing.remove(&connection);
        }
    }

    pub(super) fn later(&mut self, after: Duration, happening: Happening) {
        self.schedule.insert(&mut self.random, self.now + after, happening);
    }
}
