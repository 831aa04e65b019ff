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
    /// What the server is selected by, unless for writes: it says which reads the server may be sent.
    selector: Option<Arc<ServerSelector>>,
}

enum Stage {
    /// The longest wait.
    Asking(Option<Duration>),
    /// The end of the wait.
    AskingUntil(Instant),
    /// The same, for a server that meets the criteria.
    AskingFor(Box<Criteria>, Limit),
    Waiting(usize),
    /// The same, where the user chooses among suitable servers.
    WaitingFor {
        place: usize,
        criteria: Box<Criteria>,
        narrowed: Box<Narrowed>,
    },
    Done,
}

impl<'a, R: Runtime> CheckOut<'a, R> {
    #[inline]
    pub(crate) fn new(topology: &'a Arc<Topology<R>>, limit: Option<Duration>) -> Self {
        if topology.has_server_filter() {
            return Self::of(topology, Criteria::default(), limit.map_or(Limit::None, Limit::Within));
        }
        Self { topology, stage: Stage::Asking(limit), selector: None }
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
        Self { topology, stage, selector: None }
    }

    pub(crate) fn of(topology: &'a Arc<Topology<R>>, criteria: Criteria, limit: Limit) -> Self {
        let selector = (criteria.selector != ServerSelector::Writable).then(|| Arc::new(criteria.selector.clone()));
        Self { topology, stage: Stage::AskingFor(Box::new(criteria), limit), selector }
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
                Poll::Pending
            }
        }
    }

    #[inline(never)]
    fn poll_again(&mut self, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.stage {
            Stage::Waiting(place) => match self.topology.poll_check_out(place, cx) {
                Poll::Ready(answer) => self.end(answer),
                Poll::Pending => Poll::Pending,
            },
            Stage::AskingUntil(deadline) => match self.topology.check_out_until(deadline) {
                Ok(delivery) => self.end(Ok(delivery)),
                Err(unanswered) => self.follow(unanswered, cx),
            },
            Stage::AskingFor(ref criteria, limit) => {
                let topology = self.topology;
                let now = topology.clock().now();
                let deadline = match limit {
                    Limit::None => None,
                    Limit::Within(limit) => Some(now + limit),
                    Limit::Until(deadline) => deadline.at().map(|at| topology.clock().instant(at)),
                };
                let narrowed = topology.has_server_filter().then(|| topology.narrow(criteria));
                let wanted = narrowed.as_ref().map_or(&**criteria, |narrowed| &narrowed.criteria);
                match (topology.check_out_for(wanted, now, deadline), narrowed) {
                    (Ok(delivery), _) => self.end(Ok(delivery)),
                    (Err(unanswered), None) => self.follow(unanswered, cx),
                    (Err(unanswered), Some(narrowed)) => self.follow_narrowed(unanswered, narrowed, cx),
                }
            }
            Stage::WaitingFor { .. } => self.poll_narrowed(cx),
            // One that is polled after its end has no further result.
            Stage::Asking(_) | Stage::Done => Poll::Pending,
        }
    }

    /// Waits for a server among those that the user has chosen, and for the next choice.
    #[cold]
    fn follow_narrowed(
        &mut self,
        unanswered: Unanswered<'_, R>,
        narrowed: Narrowed,
        cx: &Context<'_>,
    ) -> Poll<<Self as Future>::Output> {
        let Stage::AskingFor(criteria, _) = &self.stage else { return self.follow(unanswered, cx) };
        let criteria = criteria.clone();
        match self.topology.follow_check_out(unanswered, cx) {
            Begun::Answered(answer) => self.end(answer),
            Begun::Waits(place) => {
                self.stage = Stage::WaitingFor { place, criteria, narrowed: Box::new(narrowed) };
                // The servers may have changed meanwhile.
                self.poll_narrowed(cx)
            }
        }
    }

    fn poll_narrowed(&mut self, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let topology = self.topology;
        loop {
            let Stage::WaitingFor { place, criteria, narrowed } = &mut self.stage else { return Poll::Pending };
            if let Poll::Ready(answer) = topology.poll_check_out(*place, cx) {
                return self.end(answer);
            }
            if topology.is_up_to_date(narrowed) {
                return Poll::Pending;
            }
            **narrowed = topology.narrow(criteria);
            topology.change_criteria(*place, narrowed);
        }
    }

    fn end(&mut self, answer: Answer<R::Stream>) -> Poll<<Self as Future>::Output> {
        self.stage = Stage::Done;
        let selector = self.selector.take();
        Poll::Ready(answer.map(|delivery| Connection::new(Arc::clone(self.topology), delivery).selected_by(selector)))
    }
}

impl<R: Runtime> Drop for CheckOut<'_, R> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Waiting(place) | Stage::WaitingFor { place, .. } = self.stage {
            self.topology.cancel_check_out(place);
        }
    }
}
