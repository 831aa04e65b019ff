//! The future of a check-out. Dropping it at any moment leaves the pool as if it had never asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::connection::Connection;
use crate::error::CheckOutError;
use crate::runtime::Runtime;
use crate::server::{Begun, Server};

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
    Waiting(usize),
    Done,
}

impl<'a, R: Runtime> CheckOut<'a, R> {
    pub(crate) fn new(server: &'a Arc<Server<R>>, limit: Option<Duration>) -> Self {
        Self { server, stage: Stage::Asking(limit) }
    }
}

impl<R: Runtime> Future for CheckOut<'_, R> {
    type Output = Result<Connection<R>, CheckOutError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match self.stage {
            Stage::Asking(limit) => match self.server.check_out(limit, cx) {
                Begun::Answered(answer) => answer,
                Begun::Waits(place) => {
                    self.stage = Stage::Waiting(place);
                    return Poll::Pending;
                }
            },
            Stage::Waiting(place) => match self.server.poll_check_out(place, cx) {
                Poll::Ready(answer) => answer,
                Poll::Pending => return Poll::Pending,
            },
            // It is polled again after its end, and has no further result.
            Stage::Done => return Poll::Pending,
        };
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
