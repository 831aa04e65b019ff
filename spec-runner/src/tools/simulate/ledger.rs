//! What the oracle has seen of a client: connections, sockets, pools, and the check-outs that wait.
//!
//! There are few of each at a time. They are kept in vectors, and looked for from the end, where the latest ones are: a map costs more
//! than the machine that it judges.

use std::collections::VecDeque;

use cmap_core::pool::{CheckOutId, ConnectionId, Handle, ServiceId};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::CheckOut;

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
    /// Its pool was cleared since it was created.
    pub(super) is_stale: bool,
    /// It was returned as unusable, or its server hung it up.
    pub(super) is_broken: bool,
    /// The pool has it, and has not told that it was closed.
    pub(super) is_there: bool,
    /// The pool gave it up while it was being established or pinged.
    pub(super) is_given_up: bool,
    pub(super) has_socket: bool,
}

/// The pools, each at the place where it was first seen.
#[derive(Debug, Default)]
pub(super) struct Pools(Vec<(ServerId, Pool)>);

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
    /// Whether anything has changed since it was judged: otherwise it is as lawful as it was then.
    pub(super) is_touched: bool,
}

/// The check-outs that wait, and their deadlines.
#[derive(Debug, Default)]
pub(super) struct Waiting(Vec<(CheckOut, Option<Instant>)>);

impl Connections {
    /// Notes a new connection. Whether it is one.
    pub(super) fn create(&mut self, handle: Handle, pool: usize) -> bool {
        let is_new = self.find(handle).is_none();
        self.0.push(Connection {
            handle,
            pool,
            state: State::Pending,
            service: None,
            is_stale: false,
            is_broken: false,
            is_there: true,
            is_given_up: false,
            has_socket: false,
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
        self.0.iter().position(|(known, _)| *known == server).unwrap_or_else(|| {
            self.0.push((server, Pool::default()));
            self.0.len() - 1
        })
    }

    /// The pool at a place, to change it.
    pub(super) fn at(&mut self, place: usize) -> Option<&mut Pool> {
        let (_, pool) = self.0.get_mut(place)?;
        pool.is_touched = true;
        Some(pool)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.0.iter().map(|(_, pool)| pool)
    }

    /// Those that have changed since the last time.
    pub(super) fn touched(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.0.iter_mut().filter_map(|(_, pool)| std::mem::take(&mut pool.is_touched).then_some(pool))
    }

    pub(super) fn touch_all(&mut self) {
        self.0.iter_mut().for_each(|(_, pool)| pool.is_touched = true);
    }

    /// Takes a check-out out of the queue that it is in.
    pub(super) fn leave_queues(&mut self, check_out: CheckOutId) {
        for (_, pool) in &mut self.0 {
            if let Some(place) = pool.queue.iter().position(|waiter| *waiter == check_out) {
                pool.queue.remove(place);
                pool.is_touched = true;
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
    pub(super) fn begin(&mut self, check_out: CheckOut, deadline: Option<Instant>) {
        self.0.push((check_out, deadline));
    }

    /// Whether it waited.
    pub(super) fn end(&mut self, check_out: CheckOut) -> bool {
        let place = self.0.iter().rposition(|(known, _)| *known == check_out);
        place.map(|place| self.0.swap_remove(place)).is_some()
    }

    /// It goes on by another name. Whether it waited.
    pub(super) fn rename(&mut self, from: CheckOut, to: CheckOut) -> bool {
        let known = self.0.iter_mut().rfind(|(known, _)| *known == from);
        known.map(|(known, _)| *known = to).is_some()
    }

    pub(super) fn contains(&self, check_out: CheckOut) -> bool {
        self.0.iter().any(|(known, _)| *known == check_out)
    }

    /// One whose deadline has passed.
    pub(super) fn overdue(&self, now: Instant) -> Option<&(CheckOut, Option<Instant>)> {
        self.0.iter().find(|(_, deadline)| deadline.is_some_and(|deadline| deadline <= now))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
