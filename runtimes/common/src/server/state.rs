//! The state under a server's mutex: the core's machine, and its counterparts on this side of the sockets.
//!
//! Every call follows the driving rule: the machine is called, its outputs are drained, and the driver is woken if the
//! next timeout has become earlier. Work that needs no lock is noted as [`Work`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use cmap_core::pool::{self, Action, CheckedIn, Condition, ConnectionId, Handle, Refused};
use cmap_core::server::{CheckOut, Output, Server as Machine};
use cmap_core::time::Instant;
use futures_io::{AsyncRead, AsyncWrite};
use slab::Slab;

use super::deadlines::Deadlines;
use super::waiters::Waiters;
use super::work::Work;
use crate::error::{CheckOutError, RuntimeGone};
use crate::events::{Event, EventQueue};
use crate::socket::Socket;
use crate::socket::abort::{Abort, AbortReason};

pub(crate) struct State<S> {
    pub(crate) machine: Machine<Box<Socket<S>>>,
    pub(crate) waiters: Waiters<Answer<S>>,
    /// Every connection from the start of its establishment until it is closed.
    pub(crate) activities: BTreeMap<ConnectionId, Activity>,
    pub(crate) deadlines: Deadlines,
    pub(crate) events: EventQueue,
    /// The wakers of the tasks that wait for the last connection of a closed pool.
    pub(crate) closing: Slab<Waker>,
    /// The time at which the driver comes back.
    armed: Option<Instant>,
    pub(crate) runtime_gone: bool,
    is_alive: fn(&mut Socket<S>) -> bool,
}

/// The present work at a connection, and how to abort it.
pub(crate) struct Activity {
    pub(crate) abort: Arc<Abort>,
    pub(crate) is_established: bool,
}

/// The result of a check-out.
pub(crate) type Answer<S> = Result<Delivery<S>, CheckOutError>;

/// A connection on its way to its caller.
pub(crate) type Delivery<S> = pool::Delivery<Box<Socket<S>>>;

/// What a check-in led to.
pub(super) type CheckInResult<S> = Result<CheckedIn<Box<Socket<S>>>, Refused<Box<Socket<S>>>>;

impl<S: AsyncRead + AsyncWrite + Unpin> State<S> {
    pub(crate) fn new(machine: Machine<Box<Socket<S>>>, is_alive: fn(&mut Socket<S>) -> bool) -> Self {
        Self {
            machine,
            waiters: Waiters::new(),
            activities: BTreeMap::new(),
            deadlines: Deadlines::default(),
            events: EventQueue::default(),
            closing: Slab::new(),
            armed: None,
            runtime_gone: false,
            is_alive,
        }
    }

    /// Carries out the machine's outputs. The answer to the check-out `own`, if it is there already, is returned; other
    /// answers go to their waiters.
    pub(crate) fn drain(&mut self, now: Instant, own: Option<CheckOut>, work: &mut Work<S>) -> Option<Answer<S>> {
        let mut own_answer = None;
        while let Some(output) = self.machine.poll_output() {
            let (check_out, answer) = match output {
                Output::Pool(pool::Output::Action(Action::Deliver { check_out, connection, socket })) => {
                    (CheckOut::Started(check_out), Ok(Delivery { check_out, connection, socket }))
                }
                Output::Pool(pool::Output::Action(Action::Fail { check_out, error })) => {
                    (CheckOut::Started(check_out), Err(error.into()))
                }
                Output::SelectionFailed { selection, error } => (CheckOut::Selecting(selection), Err(error.into())),
                Output::Pool(_) | Output::Selected { .. } | Output::Event(_) | Output::Monitor(_) => {
                    self.act(now, output, work);
                    continue;
                }
            };
            if own == Some(check_out) {
                own_answer = Some(answer);
            } else {
                self.answer(now, check_out, answer, work);
            }
        }
        work.rings_alarm |= self.rearm();
        if let Some(events) = self.events.begin() {
            work.more().deliver = Some(events);
        }
        if !self.closing.is_empty() && self.machine.pool().counts().total() == 0 {
            work.more().wake.extend(self.closing.drain());
        }
        own_answer
    }

    fn answer(&mut self, now: Instant, check_out: CheckOut, answer: Answer<S>, work: &mut Work<S>) {
        match self.waiters.answer(check_out, answer) {
            Ok(waker) => work.wake(waker),
            // A waiter that leaves cancels its check-out under the same lock, so none is missing here. If one were, the
            // connection would not be lost.
            Err(Ok(Delivery { connection, socket, .. })) => {
                self.check_in(now, connection, socket, Condition::Usable, work);
            }
            Err(Err(_)) => {}
        }
    }

    fn act(&mut self, now: Instant, output: Output<Box<Socket<S>>>, work: &mut Work<S>) {
        match output {
            Output::Pool(pool::Output::Event(event)) => self.events.push(Event::Pool(event)),
            Output::Event(event) => self.events.push(Event::Server(event)),
            Output::Pool(pool::Output::Action(action)) => self.act_for_pool(now, action, work),
            Output::Monitor(call) => work.more().monitor_calls.push(call),
            Output::Selected { selection, check_out } => self.waiters.select(selection, check_out),
            Output::SelectionFailed { .. } => {}
        }
    }

    #[cold]
    fn act_for_pool(&mut self, now: Instant, action: Action<Box<Socket<S>>>, work: &mut Work<S>) {
        match action {
            // There is no task left to establish it. The pool has no more use for it either, so it stays pending.
            Action::Connect { .. } if self.runtime_gone => {}
            Action::Connect { connection } => {
                let abort = Arc::new(Abort::default());
                let activity = Activity { abort: Arc::clone(&abort), is_established: false };
                self.activities.insert(connection.id(), activity);
                work.more().establish.push((connection, abort));
            }
            Action::Check { connection } => {
                let is_alive = self.is_alive;
                let alive = self.machine.socket(connection).is_some_and(|socket| is_alive(socket));
                // Refused only if the pool had not asked.
                let _ = self.machine.handle_checked(now, connection, alive);
            }
            Action::Close { connection, socket, .. } => {
                self.activities.remove(&connection.id());
                work.more().close.push(socket);
            }
            Action::Interrupt { connection } => {
                let activity = self.activities.get(&connection.id());
                work.wake_all(activity.and_then(|activity| activity.abort.abort(AbortReason::Interrupted)));
            }
            Action::Deliver { .. } | Action::Fail { .. } => {}
        }
    }

    /// Gives a connection back. One that the pool refuses is another's or was given back before, and is closed.
    pub(crate) fn check_in(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: Box<Socket<S>>,
        condition: Condition,
        work: &mut Work<S>,
    ) {
        let checked_in = self.machine.check_in(now, connection, socket, condition);
        self.follow_check_in(now, checked_in, work);
    }

    /// Hands over what a check-in delivered.
    pub(crate) fn follow_check_in(&mut self, now: Instant, checked_in: CheckInResult<S>, work: &mut Work<S>) {
        match checked_in {
            Ok(CheckedIn::Done) => {}
            Ok(CheckedIn::Delivered(delivery)) => {
                self.answer(now, CheckOut::Started(delivery.check_out), Ok(delivery), work);
            }
            Err(refused) => work.more().close.push(refused.socket),
        }
    }

    /// Aborts an establishment, or the operation on a connection in use. Returns the tasks to wake.
    pub(crate) fn abort_all(&mut self, established: bool, reason: AbortReason) -> Vec<Waker> {
        let activities = self.activities.values().filter(|activity| activity.is_established == established);
        activities.filter_map(|activity| activity.abort.abort(reason)).collect()
    }

    /// Tells every waiter that the runtime is gone, and gives up its check-out. Returns the tasks to wake.
    pub(crate) fn end_of_runtime(&mut self, now: Instant) -> Vec<Waker> {
        self.runtime_gone = true;
        let mut wake = self.abort_all(true, AbortReason::RuntimeGone);
        wake.append(&mut self.abort_all(false, AbortReason::RuntimeGone));
        for (check_out, waker) in self.waiters.answer_all(|| Err(RuntimeGone.into())) {
            // It waited, and no outputs were drained since: there is no delivery to lose.
            let _ = self.machine.cancel_check_out(now, check_out);
            wake.push(waker);
        }
        wake.extend(self.closing.drain());
        wake
    }

    /// Asks the machine when to come back; returns whether the driver would come later.
    #[inline]
    pub(crate) fn rearm(&mut self) -> bool {
        self.machine.poll_timeout().is_some_and(|timeout| self.arm(timeout.at))
    }

    /// Whether the driver comes back before `time`, or `time` is never.
    #[inline]
    pub(crate) fn driver_comes_before(&self, time: Option<Instant>) -> bool {
        time.is_none_or(|time| self.armed.is_some_and(|armed| armed <= time))
    }

    /// Makes the driver come back at `next`; returns whether it would come later.
    #[inline]
    pub(crate) fn arm(&mut self, next: Instant) -> bool {
        let is_earlier = self.armed.is_none_or(|armed| next < armed);
        if is_earlier {
            self.armed = Some(next);
        }
        is_earlier
    }

    /// Run by the driver before it sleeps. Returns when it has to wake.
    pub(crate) fn arm_driver(&mut self) -> Option<Instant> {
        let machine = self.machine.poll_timeout().map(|timeout| timeout.at);
        self.armed = machine.into_iter().chain(self.deadlines.first()).min();
        self.armed
    }
}
