//! What the tasks of a listener share: its sockets and the dialers that wait for one, under one mutex.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use cmap_core::address::ServerAddress;
use cmap_core::reverse::{BootId, IdleTunnels, NotParked, Refusal, SocketId, StartFailure, Taken, Tokens, TurnedAway};
use cmap_core::time::Instant;
use rustls::ServerConfig;

use super::hand_over::{self, Claim, Promise};
use super::orders::{Order, Orders};
use super::teller::Teller;
use crate::runtime::Runtime;
use crate::socket::transport::Transport;
use crate::time::Clock;
use crate::tls::TlsStream;

/// A socket that an agent has opened, under the listener's TLS.
pub(super) type DialedStream<S> = Box<TlsStream<Transport<S>>>;

/// A socket that leads to its member, or why it does not.
pub(super) type Connected<S> = Result<DialedStream<S>, StartFailure>;

/// A socket that was accepted, and the orders for it.
pub(super) type Admitted<S> = (SocketId, Arc<Orders<S>>);

pub(super) struct Shared<R: Runtime> {
    pub(super) clock: Clock<R>,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) tokens: Tokens,
    pub(super) trusts_certificates: bool,
    pub(super) keep_alive: Duration,
    pub(super) wanted: u16,
    pub(super) teller: Teller,
    /// Where the listener listens.
    pub(super) address: SocketAddr,
    pub(super) state: Mutex<State<R::Stream>>,
    /// The task that accepts.
    pub(super) acceptor: AtomicWaker,
}

pub(super) struct State<S> {
    tunnels: IdleTunnels,
    last_socket: u64,
    /// Those that are accepted, and not connections yet.
    sockets: BTreeMap<SocketId, Arc<Orders<S>>>,
    /// The dialers that wait for a socket, in the order of arrival.
    waiting: BTreeMap<ServerAddress, VecDeque<Promise<Connected<S>>>>,
    is_closed: bool,
}

/// The listener was closed.
pub(super) struct Closed;

/// The place of a dialer among those that wait.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    /// Behind those that came before.
    Last,
    /// It had its turn, and the socket failed.
    First,
}

impl<S> State<S> {
    pub(super) fn new(tunnels: IdleTunnels) -> Self {
        let (sockets, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { tunnels, last_socket: 0, sockets, waiting, is_closed: false }
    }

    /// Gives the sockets of `member` to the dialers that wait for them.
    fn serve(&mut self, now: Instant, member: &ServerAddress, wakers: &mut Vec<Waker>) {
        let Some(queue) = self.waiting.get_mut(member) else { return };
        queue.retain(|promise| !promise.is_unwanted());
        while !queue.is_empty() {
            let waiting = u16::try_from(queue.len()).unwrap_or(u16::MAX);
            let Some(Taken { socket, demand }) = self.tunnels.take(now, member, waiting) else { return };
            if let Some(orders) = self.sockets.get(&socket)
                && let Some(promise) = queue.pop_front()
            {
                wakers.extend(orders.give(Order::Start { demand, promise }));
            }
        }
        self.waiting.remove(member);
    }

    /// Forgets the dialers of `member` that wait no longer. A member whose agents never come is never served, so nothing else would.
    fn forget_the_unwanted(&mut self, member: &ServerAddress) {
        let Some(queue) = self.waiting.get_mut(member) else { return };
        queue.retain(|promise| !promise.is_unwanted());
        if queue.is_empty() {
            self.waiting.remove(member);
        }
    }
}

impl<R: Runtime> Shared<R> {
    /// A socket was accepted.
    ///
    /// # Errors
    /// It is to be closed.
    pub(super) fn admit(&self, from: SocketAddr) -> Result<Admitted<R::Stream>, TurnedAway> {
        let now = self.clock.now();
        let mut state = self.lock();
        let socket = SocketId(state.last_socket + 1);
        let gives_way = state.tunnels.accept(now, socket, counted(from))?;
        state.last_socket = socket.0;
        let orders = Arc::new(Orders::default());
        let gives_way = gives_way.and_then(|oldest| state.sockets.get(&oldest));
        let waker = gives_way.and_then(|oldest| oldest.give(Order::Leave));
        if state.is_closed {
            // It was accepted just before.
            let _ = orders.give(Order::Leave);
        }
        state.sockets.insert(socket, Arc::clone(&orders));
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok((socket, orders))
    }

    /// An agent has proven that it speaks for `member`. A dialer that waits may get the socket at once: orders come after this.
    ///
    /// # Errors
    /// It is to be refused.
    pub(super) fn park(
        &self,
        socket: SocketId,
        from: SocketAddr,
        member: &ServerAddress,
        boot: BootId,
    ) -> Result<(), Refusal> {
        let now = self.clock.now();
        let mut wakers = Vec::new();
        let mut state = self.lock();
        let leaving = state.tunnels.park(now, socket, counted(from), member.clone(), boot)?;
        for orders in leaving.iter().filter_map(|socket| state.sockets.get(socket)) {
            wakers.extend(orders.give(Order::Leave));
        }
        state.serve(now, member, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// A socket is parked no longer: it has become a connection, or has ended. There are no more orders for it.
    pub(super) fn release(&self, socket: SocketId, member: &ServerAddress) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.tunnels.remove(now, member, socket);
        state.sockets.remove(&socket);
    }

    /// A socket was not parked.
    pub(super) fn dismiss(&self, socket: SocketId, from: SocketAddr, ended: NotParked) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.tunnels.end_greeting(now, socket, counted(from), ended);
        state.sockets.remove(&socket);
    }

    /// Waits for a socket of `member`; before all others, if it is its `turn`.
    ///
    /// # Errors
    /// The listener was closed.
    pub(super) fn want(&self, member: &ServerAddress, turn: Turn) -> Result<Claim<Connected<R::Stream>>, Closed> {
        let now = self.clock.now();
        let (promise, claim) = hand_over::pair();
        let mut wakers = Vec::new();
        let mut state = self.lock();
        if state.is_closed {
            return Err(Closed);
        }
        state.tunnels.ask_for(now, member);
        let waiting = state.waiting.entry(member.clone()).or_default();
        match turn {
            Turn::Last => waiting.push_back(promise),
            Turn::First => waiting.push_front(promise),
        }
        state.serve(now, member, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(claim)
    }

    /// A dialer of `member` waits no longer.
    pub(super) fn forget_the_unwanted(&self, member: &ServerAddress) {
        self.lock().forget_the_unwanted(member);
    }

    /// The members for which agents have spoken, and how many sockets are parked for each.
    pub(super) fn members(&self) -> Vec<(ServerAddress, usize)> {
        self.lock().tunnels.members().map(|(member, parked)| (member.clone(), parked)).collect()
    }

    /// Sockets that are accepted and not parked yet.
    pub(super) fn greeting(&self) -> u32 {
        self.lock().tunnels.greeting()
    }

    /// Ends it: a message tells agents, dialers that wait get nothing, and no socket is accepted any more.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        let wakers: Vec<_> = state.sockets.values().filter_map(|orders| orders.give(Order::Leave)).collect();
        drop(state);
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
        self.acceptor.wake();
    }

    /// Ends when the listener was closed. For the task that accepts.
    pub(super) fn poll_closed(&self, cx: &Context<'_>) -> Poll<()> {
        self.acceptor.register(cx.waker());
        if self.lock().is_closed { Poll::Ready(()) } else { Poll::Pending }
    }

    fn lock(&self) -> MutexGuard<'_, State<R::Stream>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address by which failures are counted: of IPv6 the network, since a host has 2^64 addresses as a rule.
fn counted(from: SocketAddr) -> IpAddr {
    match from.ip().to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip @ IpAddr::V4(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    use cmap_core::reverse::IdleTunnelOptions;

    use super::*;

    #[test]
    fn dialers_of_members_without_agents_are_forgotten_once_they_wait_no_longer() {
        let mut state = State::<()>::new(IdleTunnels::new(IdleTunnelOptions::default(), 1));
        let names: [ServerAddress; 2] = ["a.example".parse().unwrap(), "b.example".parse().unwrap()];
        let claims: Vec<_> = [0, 1, 1]
            .map(|nth: usize| {
                let (promise, claim) = hand_over::pair();
                state.waiting.entry(names[nth].clone()).or_default().push_back(promise);
                claim
            })
            .into();

        drop(claims.into_iter().take(2).collect::<Vec<_>>());
        names.iter().for_each(|name| state.forget_the_unwanted(name));

        assert!(state.waiting.is_empty());
    }

    #[test]
    fn failures_are_counted_by_address_or_by_a_network_of_ipv6() {
        let counted = |from: &str| counted(from.parse().unwrap()).to_string();

        assert_eq!(counted("192.0.2.7:1"), "192.0.2.7");
        assert_eq!(counted("[::ffff:192.0.2.7]:1"), "192.0.2.7");
        assert_eq!(counted("[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1:2::");
    }
}
