//! A topology of one unmonitored server in virtual time, driven as an adapter drives it with sockets and timers.
//!
//! The loop is: make calls; read [`Simulation::poll_news`] until it is empty; go on to [`Simulation::next_at`] by
//! [`Simulation::step`]. One seed decides every latency and the order of what happens at the same moment, since no order
//! is guaranteed in the real world: that is where the races are.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Phase;
use cmap_core::pool::{
    Action, ApiMisuse, CheckOutError, CheckOutId, CheckOutRequest, Condition, Delivery, Event, Handle, Output, Pool,
    Refused, Stats,
};
use cmap_core::random::Random;
use cmap_core::server::Server;
use cmap_core::time::Instant;
use cmap_core::topology::{self, CheckOut, Criteria, Topology, WarmUpError, WarmUpId};

use super::network::{Happening, Network, VirtualServer};

/// connectTimeoutMS, unless the test says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A pool, its server and the network between them.
pub(super) struct Simulation {
    /// Can be changed at any time.
    pub(super) network: Network,
    /// Can be changed at any time.
    pub(super) virtual_server: VirtualServer,
    /// The limit of every establishment that begins; zero = never (URI-12).
    pub(super) connect_timeout: Duration,
    topology: Topology<()>,
    now: Instant,
    pub(super) random: Random,
    /// What will happen, by its time. Chance orders what happens at the same moment.
    schedule: BTreeMap<(Instant, u64, u64), Happening>,
    scheduled: u64,
    /// What each establishment waits for.
    pub(super) establishing: BTreeMap<Handle, Phase>,
    pub(super) refreshing: BTreeSet<Handle>,
    /// The connections whose peer has hung up unnoticed.
    pub(super) hung_up: BTreeSet<Handle>,
    news: VecDeque<News>,
}

/// What the callers of a pool learn.
#[derive(Clone, Debug)]
pub(super) enum News {
    Event(Event),
    /// A check-out has ended.
    CheckedOut(CheckOutId, Result<Handle, Arc<CheckOutError>>),
    /// A warm-up has ended.
    WarmedUp(WarmUpId, Result<Vec<ServerAddress>, WarmUpError>),
}

impl Simulation {
    /// A simulation of `pool`, made at [`Instant::ORIGIN`], in which `seed` decides what chance decides.
    pub(super) fn new(pool: Pool<()>, network: Network, virtual_server: VirtualServer, seed: u64) -> Self {
        let mut simulation = Self {
            network,
            virtual_server,
            connect_timeout: CONNECT_TIMEOUT,
            topology: Topology::unmonitored(pool),
            now: Instant::ORIGIN,
            random: Random::new(seed),
            schedule: BTreeMap::new(),
            scheduled: 0,
            establishing: BTreeMap::new(),
            refreshing: BTreeSet::new(),
            hung_up: BTreeSet::new(),
            news: VecDeque::new(),
        };
        simulation.drain();
        simulation
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn topology(&self) -> &Topology<()> {
        &self.topology
    }

    pub(super) fn server(&self) -> &Server<()> {
        let (_, server) = self.topology.servers().next().unwrap_or_else(|| unreachable!("a simulation has one server"));
        server
    }

    /// The server's own pool.
    pub(super) fn pool(&self) -> &Pool<()> {
        self.server().pool()
    }

    /// The pools: the server's own, then those of its further users.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Pool<()>> {
        self.topology.pools().map(|(_, pool)| pool)
    }

    /// The counts of all pools together.
    pub(super) fn stats(&self) -> Stats {
        self.topology.stats()
    }

    /// Makes a call now, and carries out what comes of it.
    pub(super) fn call<R>(&mut self, call: impl FnOnce(&mut Topology<()>, Instant) -> R) -> R {
        let result = call(&mut self.topology, self.now);
        self.drain();
        result
    }

    /// [`Topology::check_out`].
    pub(super) fn check_out(&mut self, request: CheckOutRequest) -> CheckOutId {
        let (check_out, delivery) = self.call(|topology, now| topology.check_out(now, Criteria::WRITABLE, request));
        self.deliver(delivery);
        match check_out {
            CheckOut::Started(id) => id,
            CheckOut::Selecting(_) => unreachable!("the server is not monitored: nothing waits for it"),
        }
    }

    /// [`Topology::check_in`].
    pub(super) fn check_in(
        &mut self,
        check_out: CheckOutId,
        connection: Handle,
        condition: Condition,
    ) -> Result<(), Refused<()>> {
        let checked_in = self.call(|topology, now| topology.check_in(now, check_out, connection, (), condition))?;
        self.deliver(checked_in.delivery());
        Ok(())
    }

    /// The server closes a connection's socket. The client learns of it at once if it is `noticed`, otherwise when it
    /// checks the socket before the next use.
    pub(super) fn hang_up(&mut self, connection: Handle, noticed: bool) -> Result<(), ApiMisuse> {
        if noticed {
            return self.call(|topology, now| topology.handle_peer_closed(now, connection));
        }
        self.hung_up.insert(connection);
        Ok(())
    }

    /// The next news for the callers.
    pub(super) fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// The next moment at which anything happens.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.timer_at().into_iter().chain(self.network_at()).min()
    }

    /// Moves time to `now` without making anything happen.
    pub(super) fn wait_until(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Makes one event happen that is due now: chance decides whether the network or a timer goes first. Returns
    /// whether there was one.
    pub(super) fn step(&mut self) -> bool {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let (timer, network) = (is_due(self.timer_at()), is_due(self.network_at()));
        if timer && (!network || self.random.up_to(1) == 0) {
            self.call(Topology::handle_timeout);
        } else if network && let Some((_, happening)) = self.schedule.pop_first() {
            self.happen(happening);
        } else {
            return false;
        }
        true
    }

    pub(super) fn later(&mut self, after: Duration, happening: Happening) {
        self.scheduled += 1;
        self.schedule.insert((self.now + after, self.random.next_u64(), self.scheduled), happening);
    }

    fn timer_at(&self) -> Option<Instant> {
        self.topology.poll_timeout().map(|timeout| timeout.at)
    }

    fn network_at(&self) -> Option<Instant> {
        self.schedule.first_key_value().map(|(&(at, ..), _)| at)
    }

    /// Carries out the pool's actions, as an adapter would.
    fn drain(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            match output {
                topology::Output::Pool { output: Output::Event(event), .. } => self.news.push_back(News::Event(event)),
                topology::Output::Pool { output: Output::Action(action), .. } => self.act(action),
                topology::Output::WarmedUp { warm_up, result } => {
                    self.news.push_back(News::WarmedUp(warm_up, result));
                }
                // No monitor checks the server, so it has no selection, no events and no calls of a monitor.
                topology::Output::Selected { .. }
                | topology::Output::Reselecting { .. }
                | topology::Output::SelectionFailed { .. }
                | topology::Output::Selection(_)
                | topology::Output::ResolveSrv { .. }
                | topology::Output::Topology(_)
                | topology::Output::Server { .. }
                | topology::Output::Monitor { .. } => {}
            }
        }
    }

    fn act(&mut self, action: Action<()>) {
        match action {
            Action::Connect { connection } => self.connect(connection),
            Action::Check { connection } => {
                let alive = !self.hung_up.contains(&connection);
                let answered = self.topology.handle_checked(self.now, connection, alive);
                debug_assert_eq!(answered, Ok(()));
            }
            Action::Refresh { connection, socket: (), timeout } => self.refresh(connection, timeout),
            Action::Deliver { check_out, connection, socket: () } => {
                self.news.push_back(News::CheckedOut(check_out, Ok(connection)));
            }
            Action::Fail { check_out, error } => self.news.push_back(News::CheckedOut(check_out, Err(error))),
            Action::Close { connection, .. } => {
                self.hung_up.remove(&connection);
            }
            Action::Interrupt { connection } => self.interrupt(connection),
            // The topology takes it, and tells of its own.
            Action::WarmedUp { .. } => {}
        }
    }

    /// A call returned a connection at once.
    fn deliver(&mut self, delivery: Option<Delivery<()>>) {
        if let Some(Delivery { check_out, connection, socket: () }) = delivery {
            self.news.push_back(News::CheckedOut(check_out, Ok(connection)));
        }
    }
}
