//! The future of a check-out. Dropping it at any moment leaves the client as if it had never asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, ServerSelector};

use crate::connection::Connection;
use crate::deadline::Limit;
use crate::error::CheckOutError;
use crate::runtime::Runtime;
use crate::topology::{Answer, Begun, Narrowed, Topology, Unanswered};

/// Waits for a connection. Made by [`Client::check_out`](crate::Client::check_out) and
/// [`Pool::check_out`](crate::Pool::check_out). The check-out starts when the future is first polled, and so does its time.
#[must_use = "nothing is asked for before the future is awaited"]
pub struct CheckOut<'a, R: Runtime> {
    topology: &'a Arc<Topology<R>>,
    stage: Stage,
    /// What is wanted of the server, unless any that takes writes will do.
    wanted: Option<Box<Wanted>>,
}

/// Plain data, so that the short way drops nothing.
#[derive(Clone, Copy)]
enum Stage {
    /// The longest wait.
    Asking(Option<Duration>),
    /// The end of the wait.
    AskingUntil(Instant),
    /// The same, for a server that is wanted.
    AskingFor(Limit),
    Waiting(usize),
    Done,
}

struct Wanted {
    criteria: Criteria,
    /// What the user left of it, where the user chooses among suitable servers.
    narrowed: Option<Narrowed>,
}

impl<'a, R: Runtime> CheckOut<'a, R> {
    #[inline]
    pub(crate) fn new(topology: &'a Arc<Topology<R>>, limit: Option<Duration>) -> Self {
        Self { topology, stage: Stage::Asking(limit), wanted: None }
    }

    pub(crate) fn within(topology: &'a Arc<Topology<R>>, limit: Limit) -> Self {
        if topology.has_server_filter() {
            return Self::of(topology, Criteria::default(), limit);
        }
        let stage = match limit {
            Limit::None => Stage::Asking(None),
            Limit::Within(limit) => Stage::Asking(Some(limit)),
            Limit::Until(deadline) => match deadline.at() {
                Some(at) => Stage::AskingUntil(topology.clock().instant(at)),
                None => Stage::Asking(None),
            },
        };
        Self { topology, stage, wanted: None }
    }

    #[inline(never)]
    pub(crate) fn of(topology: &'a Arc<Topology<R>>, criteria: Criteria, limit: Limit) -> Self {
        Self { topology, stage: Stage::AskingFor(limit), wanted: Some(Box::new(Wanted { criteria, narrowed: None })) }
    }
}

impl<R: Runtime> Future for CheckOut<'_, R> {
    type Output = Result<Connection<R>, CheckOutError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::Asking(limit) = self.stage {
            match self.topology.check_out(limit) {
                Ok(delivery) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(Connection::new(Arc::clone(self.topology), delivery)));
                }
                Err(unanswered) => return self.follow(unanswered, cx),
            }
        }
        self.poll_again(cx)
    }
}

impl<R: Runtime> CheckOut<'_, R> {
    /// Out of line, as all that follows where no connection is available.
    #[inline(never)]
    fn follow(&mut self, unanswered: Unanswered<'_, R>, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.topology.follow_check_out(unanswered, cx) {
            Begun::Answered(answer) => self.end(answer),
            Begun::Waits(place) => {
                self.stage = Stage::Waiting(place);
                // The servers may have changed since the user has chosen among them.
                if self.is_narrowed() { self.poll_waiting(place, cx) } else { Poll::Pending }
            }
            Begun::Unasked => {
                let limit = match self.stage {
                    Stage::Asking(Some(limit)) => Limit::Within(limit),
                    Stage::AskingFor(limit) => limit,
                    Stage::Asking(None) | Stage::AskingUntil(_) | Stage::Waiting(_) | Stage::Done => Limit::None,
                };
                *self = Self::of(self.topology, Criteria::default(), limit);
                self.poll_again(cx)
            }
        }
    }

    #[inline(never)]
    fn poll_again(&mut self, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.stage {
            Stage::Waiting(place) => self.poll_waiting(place, cx),
            Stage::AskingUntil(deadline) => match self.topology.check_out_until(deadline) {
                Ok(delivery) => self.end(Ok(delivery)),
                Err(unanswered) => self.follow(unanswered, cx),
            },
            Stage::AskingFor(limit) => self.ask_for(limit, cx),
            // One that is polled after its end has no further result.
            Stage::Asking(_) | Stage::Done => Poll::Pending,
        }
    }

    fn ask_for(&mut self, limit: Limit, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let topology = self.topology;
        let Some(wanted) = &mut self.wanted else { return Poll::Pending };
        let now = topology.clock().now();
        let deadline = match limit {
            Limit::None => None,
            Limit::Within(limit) => Some(now + limit),
            Limit::Until(deadline) => deadline.at().map(|at| topology.clock().instant(at)),
        };
        // Nothing is chosen for an operation that keeps to its server (PIN-1).
        let is_pinned = matches!(wanted.criteria.selector, ServerSelector::Pinned(_));
        wanted.narrowed = (topology.has_server_filter() && !is_pinned).then(|| topology.narrow(&wanted.criteria));
        let criteria = wanted.narrowed.as_ref().map_or(&wanted.criteria, |narrowed| &narrowed.criteria);
        match topology.check_out_for(criteria, now, deadline) {
            Ok(delivery) => self.end(Ok(delivery)),
            Err(unanswered) => self.follow(unanswered, cx),
        }
    }

    /// Looks for the answer. Where the user chooses among suitable servers, and these have changed, the user chooses anew.
    fn poll_waiting(&mut self, place: usize, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let topology = self.topology;
        loop {
            if let Poll::Ready(answer) = topology.poll_check_out(place, cx) {
                return self.end(answer);
            }
            let Some(Wanted { criteria, narrowed: Some(narrowed) }) = self.wanted.as_deref_mut() else {
                return Poll::Pending;
            };
            if topology.is_up_to_date(narrowed) {
                return Poll::Pending;
            }
            *narrowed = topology.narrow(criteria);
            topology.change_criteria(place, narrowed);
        }
    }

    fn is_narrowed(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.narrowed.is_some())
    }

    fn end(&mut self, answer: Answer<R::Stream>) -> Poll<<Self as Future>::Output> {
        self.stage = Stage::Done;
        let selector = self.wanted.take().map(|wanted| wanted.criteria.selector);
        Poll::Ready(answer.map(|delivery| Connection::new(Arc::clone(self.topology), delivery).selected_by(selector)))
    }
}

impl<R: Runtime> Drop for CheckOut<'_, R> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Waiting(place) = self.stage {
            self.topology.cancel_check_out(place);
        }
    }
}
