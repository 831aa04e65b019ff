//! What the oracle has seen of a client: connections, sockets, pools, and the check-outs that wait.
//!
//! There are few of each at a time. They are kept in vectors, and looked for from the end, where the latest ones are: a map costs more
//! than the machine that it judges.

use std::collections::VecDeque;
use std::time::Duration;

use cmap_core::pool::{CheckOutId, ConnectionId, Handle, IdentityId, ServiceId};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::CheckOut;

use super::step::Purpose;

/// serverSelectionTimeoutMS.
const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Available,
    Checking,
    Refreshing,
    InUse,
}

/// Connections that the pool has, or whose socket is open.
#[derive(Debug, Default)]
pub(super) struct Connections(Vec<Connection>);

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) handle: Handle,
    /// The place of its pool.
    pub(super) pool: usize,
    pub(super) state: State,
    /// The service that a load balancer chose for it.
    pub(super) service: Option<ServiceId>,
    /// Who logs in on it; `None` is the credential of the options.
    pub(super) identity: Option<IdentityId>,
    /// Its credential has been replaced since.
    pub(super) outdated: Option<Outdated>,
    /// Its pool was cleared since it was created.
    pub(super) is_stale: bool,
    /// It was returned as unusable, or its server hung it up.
    pub(super) is_broken: bool,
    /// The pool has it, and has not told that it was closed.
    pub(super) is_there: bool,
    /// The pool gave it up while it was being established or pinged.
    pub(super) is_given_up: bool,
    pub(super) has_socket: bool,
    pub(super) established_at: Instant,
    /// Since its last use.
    pub(super) available_since: Instant,
    /// When it answered last to a look or a ping.
    pub(super) answered_at: Option<Instant>,
    /// The check-outs that it has served.
    pub(super) uses: u32,
    /// It was available while the process was suspended, and nobody has looked at it since.
    pub(super) is_suspect: bool,
}

/// A connection whose credential has been replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outdated {
    /// It may serve one check-out yet.
    Unlent,
    /// A check-out has it, or has had it.
    Borrowed,
}

/// The pools, each at the place where it was first seen.
#[derive(Debug, Default)]
pub(super) struct Pools {
    known: Vec<(ServerId, Pool)>,
    /// The place that was asked for last: outputs of one pool come one after the other.
    last: usize,
    /// The places of those that have changed since they were judged.
    touched: Vec<usize>,
}

/// The pool of one server.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) is_ready: bool,
    /// Connections by state, in the order of the variants.
    counts: [u32; 5],
    /// The check-outs that wait, in the order in which they began here.
    pub(super) queue: VecDeque<CheckOutId>,
    /// Connections, and pending ones, after the last call.
    pub(super) before: (u32, u32),
    /// The same of all pools at its server.
    pub(super) before_together: (u32, u32),
    /// The server whose limits it shares, if it is an identity's.
    pub(super) of_server: Option<ServerId>,
    /// It has had an output. One that nobody has needed is never heard of.
    pub(super) is_told_of: bool,
    /// It was closed, or its server has left the topology.
    pub(super) is_closed: bool,
    /// Nothing is left of it.
    pub(super) is_forgotten: bool,
    /// Whether anything has changed since it was judged: otherwise it is as lawful as it was then.
    is_touched: bool,
}

/// The check-outs that wait, and their deadlines.
#[derive(Debug, Default)]
pub(super) struct Waiting(Vec<Waiter>);

/// A check-out that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) check_out: CheckOut,
    pub(super) purpose: Purpose,
    pub(super) began_at: Instant,
    /// Since when it waits in the queue of a pool.
    pub(super) queued_at: Option<Instant>,
    pub(super) deadline: Option<Instant>,
    /// Whose connection it wants.
    pub(super) identity: Option<IdentityId>,
}

impl Waiter {
    /// When it has no time left to find a server (SEL-17, CSOT-4).
    pub(super) fn end_of_selection(&self) -> Instant {
        let limit = self.began_at + SERVER_SELECTION_TIMEOUT;
        self.deadline.map_or(limit, |deadline| deadline.min(limit))
    }

    /// When it has to end, if it has to.
    pub(super) fn end(&self) -> Option<Instant> {
        let is_bounded = self.deadline.is_some() || matches!(self.check_out, CheckOut::Selecting(_));
        is_bounded.then(|| self.end_of_selection())
    }
}

impl Connections {
    /// Notes a new connection. Whether it is one.
    pub(super) fn create(&mut self, handle: Handle, pool: usize) -> bool {
        let is_new = self.find(handle).is_none();
        self.0.push(Connection {
            handle,
            pool,
            state: State::Pending,
            service: None,
            identity: None,
            outdated: None,
            is_stale: false,
            is_broken: false,
            is_there: true,
            is_given_up: false,
            has_socket: false,
            established_at: Instant::ORIGIN,
            available_since: Instant::ORIGIN,
            answered_at: None,
            uses: 0,
            is_suspect: false,
        });
        is_new
    }

    /// A connection that its pool has.
    pub(super) fn find(&mut self, handle: Handle) -> Option<&mut Connection> {
        self.0.iter_mut().rfind(|known| known.handle == handle && known.is_there)
    }

    /// The same, by what events call it.
    pub(super) fn find_by_id(&mut self, pool: usize, id: ConnectionId) -> Option<&mut Connection> {
        self.0.iter_mut().rfind(|known| known.pool == pool && known.handle.id() == id && known.is_there)
    }

    /// A connection, also one that its pool has given up.
    pub(super) fn find_any(&mut self, handle: Handle) -> Option<&mut Connection> {
        self.0.iter_mut().rfind(|known| known.handle == handle)
    }

    /// Forgets a connection if nothing is left of it.
    pub(super) fn forget_if_over(&mut self, handle: Handle) {
        let is_over = |known: &Connection| !known.is_there && !known.is_given_up && !known.has_socket;
        if let Some(place) = self.0.iter().rposition(|known| known.handle == handle)
            && self.0.get(place).is_some_and(is_over)
        {
            self.0.swap_remove(place);
        }
    }

    /// A pool was cleared, or one service's part of it.
    pub(super) fn make_stale(&mut self, pool: usize, service: Option<ServiceId>) {
        let is_meant = |known: &&mut Connection| known.pool == pool && (service.is_none() || known.service == service);
        self.0.iter_mut().filter(is_meant).for_each(|known| known.is_stale = true);
    }

    /// A credential was replaced. It does not matter to pools that are closed.
    pub(super) fn make_outdated(&mut self, identity: Option<IdentityId>, pools: &Pools) {
        let is_meant =
            |known: &&mut Connection| known.is_there && known.identity == identity && !pools.is_closed(known.pool);
        for known in self.0.iter_mut().filter(is_meant) {
            let is_borrowed = known.state == State::InUse || known.outdated == Some(Outdated::Borrowed);
            known.outdated = Some(if is_borrowed { Outdated::Borrowed } else { Outdated::Unlent });
        }
    }

    /// The process was suspended while some were available.
    pub(super) fn suspect_available(&mut self) {
        let available = |known: &&mut Connection| known.is_there && known.state == State::Available;
        self.0.iter_mut().filter(available).for_each(|known| known.is_suspect = true);
    }

    /// Those that pools have.
    pub(super) fn there(&self) -> impl Iterator<Item = &Connection> {
        self.0.iter().filter(|known| known.is_there)
    }

    /// Those that have a socket.
    pub(super) fn with_sockets(&self) -> impl Iterator<Item = &Connection> {
        self.0.iter().filter(|known| known.has_socket)
    }
}

impl Pools {
    /// The place of a server's pool.
    pub(super) fn place(&mut self, server: ServerId) -> usize {
        if self.known.get(self.last).is_none_or(|(known, _)| *known != server) {
            self.last = self.known.iter().rposition(|(known, _)| *known == server).unwrap_or_else(|| {
                self.known.push((server, Pool::default()));
                self.known.len() - 1
            });
        }
        self.last
    }

    /// The pool at a place, to change it.
    pub(super) fn at(&mut self, place: usize) -> Option<&mut Pool> {
        self.touch(place);
        self.judged(place)
    }

    fn touch(&mut self, place: usize) {
        if let Some((_, pool)) = self.known.get_mut(place)
            && !std::mem::replace(&mut pool.is_touched, true)
        {
            self.touched.push(place);
        }
    }

    /// The same, to judge it.
    pub(super) fn judged(&mut self, place: usize) -> Option<&mut Pool> {
        self.known.get_mut(place).map(|(_, pool)| pool)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.known.iter().map(|(_, pool)| pool)
    }

    /// Whether a pool has had an output.
    pub(super) fn is_told_of(&self, server: ServerId) -> bool {
        self.known.iter().any(|(known, pool)| *known == server && pool.is_told_of)
    }

    pub(super) fn is_forgotten(&self, place: usize) -> bool {
        self.known.get(place).is_some_and(|(_, pool)| pool.is_forgotten)
    }

    pub(super) fn is_closed(&self, place: usize) -> bool {
        self.known.get(place).is_some_and(|(_, pool)| pool.is_closed)
    }

    /// The pools at a server: its own, and those of identities.
    pub(super) fn at_server(&self, server: ServerId) -> impl Iterator<Item = (usize, &Pool)> {
        let is_there = move |(known, pool): &(ServerId, Pool)| *known == server || pool.of_server == Some(server);
        self.known.iter().enumerate().filter(move |(_, known)| is_there(known)).map(|(place, (_, pool))| (place, pool))
    }

    /// The places of the pools that have changed since the last time. [`all_judged`](Self::all_judged) takes them back.
    pub(super) fn take_touched(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.touched)
    }

    /// The pools at these places are as lawful as they are until they change again.
    pub(super) fn all_judged(&mut self, mut places: Vec<usize>) {
        for place in places.drain(..) {
            self.judged(place).into_iter().for_each(|pool| pool.is_touched = false);
        }
        self.touched = places;
    }

    /// The server that the pool at a place is of, or is an identity's at.
    pub(super) fn server_of(&self, place: usize) -> Option<ServerId> {
        self.known.get(place).map(|(server, pool)| pool.of_server.unwrap_or(*server))
    }

    /// Pools share limits from now on, and each has what it had alone.
    pub(super) fn begin_to_share(&mut self) {
        self.known.iter_mut().for_each(|(_, pool)| pool.before_together = pool.before);
    }

    pub(super) fn touch_all(&mut self) {
        for place in 0..self.known.len() {
            self.touch(place);
        }
    }

    /// Takes a check-out out of the queue that it is in.
    pub(super) fn leave_queues(&mut self, check_out: CheckOutId) {
        for place in 0..self.known.len() {
            let queued = self.known.get(place).and_then(|(_, pool)| pool.place_in_queue(check_out));
            if let Some(nth) = queued
                && let Some(pool) = self.at(place)
            {
                pool.queue.remove(nth);
            }
        }
    }

    /// A connection goes from one state to another.
    pub(super) fn change(&mut self, place: usize, from: Option<State>, to: Option<State>) {
        let Some(pool) = self.at(place) else { return };
        if let Some(from) = from {
            pool.counts[from as usize] = pool.counts[from as usize].saturating_sub(1);
        }
        if let Some(to) = to {
            pool.counts[to as usize] += 1;
        }
    }
}

impl Pool {
    fn place_in_queue(&self, check_out: CheckOutId) -> Option<usize> {
        self.queue.iter().position(|waiter| *waiter == check_out)
    }

    pub(super) fn number(&self, state: State) -> u32 {
        self.counts[state as usize]
    }

    /// Those that are not being established.
    pub(super) fn established(&self) -> u32 {
        self.total() - self.number(State::Pending)
    }

    pub(super) fn total(&self) -> u32 {
        self.counts.iter().sum()
    }
}

impl Waiting {
    pub(super) fn begin(&mut self, waiter: Waiter) {
        self.0.push(waiter);
    }

    /// What waited, if it did.
    pub(super) fn end(&mut self, check_out: CheckOut) -> Option<Waiter> {
        let place = self.0.iter().rposition(|known| known.check_out == check_out);
        place.map(|place| self.0.swap_remove(place))
    }

    /// It goes on by another name. Whether it waited.
    pub(super) fn rename(&mut self, from: CheckOut, to: CheckOut) -> bool {
        let known = self.0.iter_mut().rfind(|known| known.check_out == from);
        known.map(|known| (known.check_out, known.queued_at) = (to, None)).is_some()
    }

    pub(super) fn contains(&self, check_out: CheckOut) -> bool {
        self.0.iter().any(|known| known.check_out == check_out)
    }

    pub(super) fn find(&mut self, check_out: CheckOut) -> Option<&mut Waiter> {
        self.0.iter_mut().rfind(|known| known.check_out == check_out)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.0.iter()
    }

    /// Those of an identity.
    pub(super) fn of(&self, identity: IdentityId) -> impl Iterator<Item = &Waiter> {
        self.0.iter().filter(move |known| known.identity == Some(identity))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
