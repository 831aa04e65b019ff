//! The future of a check-out. Dropping it at any moment leaves the pool as if it had never asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cmap_core::time::Instant;

use crate::connection::Connection;
use crate::deadline::Limit;
use crate::error::CheckOutError;
use crate::runtime::Runtime;
use crate::server::{Answer, Begun, Server, Unanswered};

/// Waits for a connection. Made by [`Client::check_out`](crate::Client::check_out) and
/// [`Pool::check_out`](crate::Pool::check_out). The check-out starts when the future is first polled, and so does its time.
#[must_use = "nothing is asked for before the future is awaited"]
pub struct CheckOut<'a, R: Runtime> {
    server: &'a Arc<Server<R>>,
    stage: Stage,
}

enum Stage {
    /// The longest wait.
    Asking(Option<Duration>),
    /// The end of the wait.
    AskingUntil(Instant),
    Waiting(usize),
    Done,
}

impl<'a, R: Runtime> CheckOut<'a, R> {
    pub(crate) fn new(server: &'a Arc<Server<R>>, limit: Option<Duration>) -> Self {
        Self { server, stage: Stage::Asking(limit) }
    }

    pub(crate) fn within(server: &'a Arc<Server<R>>, limit: Limit) -> Self {
        let stage = match limit {
            Limit::None => Stage::Asking(None),
            Limit::Within(limit) => Stage::Asking(Some(limit)),
            Limit::Until(deadline) => match deadline.at() {
                Some(at) => Stage::AskingUntil(server.clock().instant(at)),
                None => Stage::Asking(None),
            },
        };
        Self { server, stage }
    }
}

impl<R: Runtime> Future for CheckOut<'_, R> {
    type Output = Result<Connection<R>, CheckOutError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::Asking(limit) = self.stage {
            match self.server.check_out(limit) {
                Ok(delivery) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(Connection::new(Arc::clone(self.server), delivery)));
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
    fn follow(&mut self, unanswered: Unanswered<'_, R::Stream>, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.server.follow_check_out(unanswered, cx) {
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
            Stage::Waiting(place) => match self.server.poll_check_out(place, cx) {
                Poll::Ready(answer) => self.end(answer),
                Poll::Pending => Poll::Pending,
            },
            Stage::AskingUntil(deadline) => match self.server.check_out_until(deadline) {
                Ok(delivery) => self.end(Ok(delivery)),
                Err(unanswered) => self.follow(unanswered, cx),
            },
            // One that is polled after its end has no further result.
            Stage::Asking(_) | Stage::Done => Poll::Pending,
        }
    }

    fn end(&mut self, answer: Answer<R::Stream>) -> Poll<<Self as Future>::Output> {
        self.stage = Stage::Done;
        Poll::Ready(answer.map(|delivery| Connection::new(Arc::clone(self.server), delivery)))
    }
}

impl<R: Runtime> Drop for CheckOut<'_, R> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Waiting(place) = self.stage {
            self.server.cancel_check_out(place);
        }
    }
}
