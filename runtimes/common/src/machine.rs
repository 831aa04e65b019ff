//! What an endpoint's mutex guards: the core's machine, and what goes with it on this side of the sockets.
//!
//! Every call follows the driving rule: the machine is called, then its outputs are drained. What needs no lock
//! (spawning, waking, closing, telling) is put down as [`Errands`] and done by the caller when the lock is free again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use cmap_core::monitor::{self, Monitor};
use cmap_core::pool::{self, Action, Condition, ConnectionId, Handle, Pool};
use cmap_core::server::{self, CheckOut, Output, Server};
use cmap_core::time::Instant;
use futures_io::{AsyncRead, AsyncWrite};
use slab::Slab;

use crate::cutoff::{Cut, Cutoff};
use crate::error::{CheckOutError, RuntimeGone};
use crate::event::Event;
use crate::link::Link;
use crate::socket::Socket;
use crate::telling::Untold;
use crate::waiters::Waiters;

pub(crate) struct Machine<S> {
    pub(crate) core: server::Endpoint<Box<Socket<S>>>,
    pub(crate) waiters: Waiters<Answer<S>>,
    /// Every connection that is being established or was, until it is closed.
    pub(crate) known: BTreeMap<ConnectionId, Known>,
    pub(crate) deadlines: Deadlines,
    /// The monitor's sockets.
    pub(crate) links: BTreeMap<monitor::Socket, Arc<Link>>,
    pub(crate) untold: Untold,
    /// The wakers of those who wait for the last connection of a closed pool.
    pub(crate) closing: Slab<Waker>,
    /// When the driver comes back.
    pub(crate) armed: Option<Instant>,
    pub(crate) runtime_gone: bool,
    is_alive: fn(&mut Socket<S>) -> bool,
}

/// How to cut off what goes on at a connection.
pub(crate) struct Known {
    pub(crate) cutoff: Arc<Cutoff>,
    pub(crate) is_established: bool,
}

/// When what is under way is cut off, the earliest first. One timer, the driver's, serves them all, and commands need
/// none of their own, which only their home runtime could run.
#[derive(Default)]
pub(crate) struct Deadlines {
    cutoffs: BTreeMap<Deadline, Arc<Cutoff>>,
    last_number: u64,
}

/// An entry among [`Deadlines`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    at: Instant,
    number: u64,
}

/// How a check-out ends.
pub(crate) type Answer<S> = Result<Delivery<S>, CheckOutError>;

/// A connection on its way to whoever asked for it.
pub(crate) type Delivery<S> = pool::Delivery<Box<Socket<S>>>;

/// What is left to do when the lock is free. Most calls leave at most one to wake, and allocate nothing for it.
pub(crate) struct Errands<S> {
    pub(crate) wake: Option<Waker>,
    /// The driver has to come back earlier.
    pub(crate) alarm: bool,
    pub(crate) more: Option<Box<MoreErrands<S>>>,
}

/// What is rarely left to do.
pub(crate) struct MoreErrands<S> {
    pub(crate) establish: Vec<(Handle, Arc<Cutoff>)>,
    pub(crate) close: Vec<Box<Socket<S>>>,
    pub(crate) link: Vec<(monitor::Socket, Arc<Link>)>,
    pub(crate) wake: Vec<Waker>,
    pub(crate) tell: Option<Vec<Event>>,
}

/// Who may have got an earlier deadline by a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
    /// The pool alone: somebody asked for a connection, or gave one back.
    Pool,
    All,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Machine<S> {
    pub(crate) fn new(core: server::Endpoint<Box<Socket<S>>>, is_alive: fn(&mut Socket<S>) -> bool) -> Self {
        Self {
            core,
            waiters: Waiters::new(),
            known: BTreeMap::new(),
            deadlines: Deadlines::default(),
            links: BTreeMap::new(),
            untold: Untold::default(),
            closing: Slab::new(),
            armed: None,
            runtime_gone: false,
            is_alive,
        }
    }

    pub(crate) fn server(&mut self) -> &mut Server<Box<Socket<S>>> {
        self.core.server_mut()
    }

    pub(crate) fn pool(&mut self) -> &mut Pool<Box<Socket<S>>> {
        self.core.server_mut().pool_mut()
    }

    /// The monitor, to report on its sockets; there is none behind a load balancer.
    pub(crate) fn monitor(&mut self) -> Option<&mut Monitor> {
        self.core.monitor_mut()
    }

    /// Whether nothing came of the check-in at `now`: no output, and no deadline before the driver comes back.
    #[inline]
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        let server = self.core.server();
        let is_awaited = |until| self.armed.is_some_and(|armed| armed <= until);
        server.is_drained() && server.pool().idle_until(now).is_none_or(is_awaited)
    }

    /// Has the driver come back when the first check-out that waits has to end; returns whether it has to be called for
    /// that. Enough where nothing came of a check-out but that it waits.
    pub(crate) fn await_check_outs(&mut self) -> bool {
        let until = self.core.server().pool().waits_until();
        until.is_some_and(|until| self.arm(until))
    }

    /// Carries out what the machine asks for. The answer to the check-out `own`, if there is one already, is returned;
    /// other answers go to those who wait.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        own: Option<CheckOut>,
        touched: Touched,
    ) -> (Option<Answer<S>>, Errands<S>) {
        let mut errands = Errands::new();
        let mut own_answer = None;
        while let Some(output) = self.core.poll_output() {
            let (check_out, answer) = match output {
                Output::Pool(pool::Output::Action(Action::Deliver { check_out, connection, socket })) => {
                    (CheckOut::Started(check_out), Ok(Delivery { check_out, connection, socket }))
                }
                Output::Pool(pool::Output::Action(Action::Fail { check_out, error })) => {
                    (CheckOut::Started(check_out), Err(error.into()))
                }
                Output::SelectionFailed { selection, error } => (CheckOut::Selecting(selection), Err(error.into())),
                Output::Pool(_) | Output::Selected { .. } | Output::Event(_) | Output::Monitor(_) => {
                    self.act(now, output, &mut errands);
                    continue;
                }
            };
            if own == Some(check_out) {
                own_answer = Some(answer);
            } else {
                self.answer(now, check_out, answer, &mut errands);
            }
        }
        self.look_ahead(touched, &mut errands);
        (own_answer, errands)
    }

    fn answer(&mut self, now: Instant, check_out: CheckOut, answer: Answer<S>, errands: &mut Errands<S>) {
        match self.waiters.answer(check_out, answer) {
            Ok(waker) => errands.wake(waker),
            // Whoever leaves cancels the check-out under the same lock, so nobody is missing here. Were it otherwise,
            // the connection would not be lost.
            Err(Ok(Delivery { connection, socket, .. })) => {
                self.check_in(now, connection, socket, Condition::Usable, errands);
            }
            Err(Err(_)) => {}
        }
    }

    fn act(&mut self, now: Instant, output: Output<Box<Socket<S>>, monitor::Action>, errands: &mut Errands<S>) {
        match output {
            Output::Pool(pool::Output::Event(event)) => self.untold.push(Event::Pool(event)),
            Output::Event(event) => self.untold.push(Event::Server(event)),
            Output::Pool(pool::Output::Action(action)) => self.act_for_pool(now, action, errands),
            Output::Monitor(action) => self.act_for_monitor(action, errands),
            Output::Selected { selection, check_out } => self.waiters.select(selection, check_out),
            Output::SelectionFailed { .. } => {}
        }
    }

    #[cold]
    fn act_for_pool(&mut self, now: Instant, action: Action<Box<Socket<S>>>, errands: &mut Errands<S>) {
        match action {
            // Nobody is left who could establish it. The pool has no more use for it either, so it stays pending.
            Action::Connect { .. } if self.runtime_gone => {}
            Action::Connect { connection } => {
                let cutoff = Arc::new(Cutoff::default());
                let known = Known { cutoff: Arc::clone(&cutoff), is_established: false };
                self.known.insert(connection.id(), known);
                errands.more().establish.push((connection, cutoff));
            }
            Action::Check { connection } => {
                let is_alive = self.is_alive;
                let alive = self.pool().socket(connection).is_some_and(|socket| is_alive(socket));
                // Refused only if nobody had asked.
                let _ = self.pool().handle_checked(now, connection, alive);
            }
            Action::Close { connection, socket, .. } => {
                self.known.remove(&connection.id());
                errands.more().close.push(socket);
            }
            Action::Interrupt { connection } => {
                let known = self.known.get(&connection.id());
                errands.wake_all(known.and_then(|known| known.cutoff.cut(Cut::Interrupted)));
            }
            Action::Deliver { .. } | Action::Fail { .. } => {}
        }
    }

    #[cold]
    fn act_for_monitor(&mut self, action: monitor::Action, errands: &mut Errands<S>) {
        match action {
            monitor::Action::Connect(socket) => {
                let link = Arc::new(Link::default());
                self.links.insert(socket, Arc::clone(&link));
                errands.more().link.push((socket, link));
            }
            monitor::Action::Send(socket) => {
                let mut bytes = Vec::new();
                if let Some(monitor) = self.core.monitor_mut() {
                    monitor.write_to(socket, &mut bytes);
                }
                errands.wake_all(self.links.get(&socket).and_then(|link| link.send(&bytes)));
            }
            monitor::Action::Close(socket) => {
                errands.wake_all(self.links.remove(&socket).and_then(|link| link.close()));
            }
        }
    }

    /// Gives a connection back. One that the pool refuses is another's or was given back before, and is closed.
    pub(crate) fn check_in(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: Box<Socket<S>>,
        condition: Condition,
        errands: &mut Errands<S>,
    ) {
        if let Err(refused) = self.pool().check_in(now, connection, socket, condition) {
            errands.more().close.push(refused.socket);
        }
    }

    /// Cuts off what is being established, or what is in use.
    pub(crate) fn cut_all(&mut self, established: bool, cut: Cut) -> Vec<Waker> {
        let known = self.known.values().filter(|known| known.is_established == established);
        known.filter_map(|known| known.cutoff.cut(cut)).collect()
    }

    /// Tells everybody who waits that the runtime is gone, and gives up their check-outs.
    pub(crate) fn end_of_runtime(&mut self, now: Instant) -> Vec<Waker> {
        self.runtime_gone = true;
        let mut wake = self.cut_all(true, Cut::RuntimeGone);
        wake.append(&mut self.cut_all(false, Cut::RuntimeGone));
        for (check_out, waker) in self.waiters.answer_all(|| Err(RuntimeGone.into())) {
            // It waited, and nothing was drained since: there is no delivery to lose.
            let _ = self.server().cancel_check_out(now, check_out);
            wake.push(waker);
        }
        wake.extend(self.closing.drain());
        wake
    }

    /// When to come back.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let core = self.core.poll_timeout().map(|timeout| timeout.at);
        match (core, self.deadlines.first()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Has the driver come back at `next`, if it would come later; returns whether it has to be called for that.
    pub(crate) fn arm(&mut self, next: Instant) -> bool {
        let is_earlier = self.armed.is_none_or(|armed| next < armed);
        if is_earlier {
            self.armed = Some(next);
        }
        is_earlier
    }

    fn look_ahead(&mut self, touched: Touched, errands: &mut Errands<S>) {
        let next = match touched {
            Touched::Pool => self.core.server().poll_timeout().map(|timeout| timeout.at),
            Touched::All => self.next_deadline(),
        };
        if let Some(next) = next {
            errands.alarm |= self.arm(next);
        }
        if let Some(events) = self.untold.begin() {
            errands.more().tell = Some(events);
        }
        if !self.closing.is_empty() && self.core.server().pool().counts().total() == 0 {
            errands.more().wake.extend(self.closing.drain());
        }
    }
}

impl Deadlines {
    pub(crate) fn insert(&mut self, at: Instant, cutoff: Arc<Cutoff>) -> Deadline {
        self.last_number = self.last_number.wrapping_add(1);
        let deadline = Deadline { at, number: self.last_number };
        self.cutoffs.insert(deadline, cutoff);
        deadline
    }

    pub(crate) fn remove(&mut self, deadline: Deadline) {
        self.cutoffs.remove(&deadline);
    }

    /// Cuts off everything whose time is up; returns whom to wake.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Waker> {
        let mut wake = Vec::new();
        while let Some(entry) = self.cutoffs.first_entry()
            && entry.key().at <= now
        {
            wake.extend(entry.remove().cut(Cut::TimedOut));
        }
        wake
    }

    fn first(&self) -> Option<Instant> {
        self.cutoffs.keys().next().map(|deadline| deadline.at)
    }
}

impl<S> Errands<S> {
    pub(crate) fn new() -> Self {
        Self { wake: None, alarm: false, more: None }
    }

    pub(crate) fn wake(&mut self, waker: Waker) {
        match self.wake {
            None => self.wake = Some(waker),
            Some(_) => self.more().wake.push(waker),
        }
    }

    pub(crate) fn wake_all(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        wakers.into_iter().for_each(|waker| self.wake(waker));
    }

    #[cold]
    pub(crate) fn more(&mut self) -> &mut MoreErrands<S> {
        self.more.get_or_insert_with(|| {
            Box::new(MoreErrands {
                establish: Vec::new(),
                close: Vec::new(),
                link: Vec::new(),
                wake: Vec::new(),
                tell: None,
            })
        })
    }
}
