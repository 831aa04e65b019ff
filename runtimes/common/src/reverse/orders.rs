//! The orders for the task of a socket.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::hand_over::Promise;
use super::shared::Connected;

/// Something to do with a socket.
pub(super) enum Order<S> {
    /// It is taken from the lot: demand so many more, start it, and hand it over.
    Start { demand: u16, promise: Promise<Connected<S>> },
    /// End it.
    Leave,
}

/// The orders for one socket. Once it was released, there are no more.
pub(super) struct Orders<S>(Mutex<Inbox<S>>);

struct Inbox<S> {
    orders: VecDeque<Order<S>>,
    reader: Option<Waker>,
}

impl<S> Default for Orders<S> {
    fn default() -> Self {
        Self(Mutex::new(Inbox { orders: VecDeque::new(), reader: None }))
    }
}

impl<S> Orders<S> {
    /// Returns the task to wake.
    pub(super) fn give(&self, order: Order<S>) -> Option<Waker> {
        let mut inbox = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.orders.push_back(order);
        inbox.reader.take()
    }

    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<Order<S>> {
        let mut inbox = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match inbox.orders.pop_front() {
            Some(order) => Poll::Ready(order),
            None => {
                inbox.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
