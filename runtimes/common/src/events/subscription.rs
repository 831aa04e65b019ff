//! Events as a stream: bounded, so that a slow reader costs no memory, with a count of the events missed.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use cmap_core::address::ServerAddress;
use futures_core::Stream;

use super::event::Event;
use crate::runtime::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The events of a client from a moment on. Ends when the client is closed and no handle to it or its connections is
/// left.
#[derive(Debug)]
pub struct Subscription {
    tape: Arc<Tape>,
}

/// An item of a [`Subscription`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// An event.
    Event {
        /// The event.
        event: Event,
        /// The server that it is about; of an event of the topology, the first host of the connection string.
        server: Arc<ServerAddress>,
    },
    /// The number of events that were overwritten at this place, because they were not read in time.
    Lost(u64),
}

/// The newest unread events.
#[derive(Debug)]
pub(crate) struct Tape {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    notices: VecDeque<Notice>,
    /// How many events were lost before the first of `notices`.
    lost: u64,
    ended: bool,
    reader: Option<Waker>,
}

impl Subscription {
    pub(crate) fn new(tape: Arc<Tape>) -> Self {
        Self { tape }
    }

    /// The next notice, if there is one already.
    pub fn try_next(&mut self) -> Option<Notice> {
        self.tape.lock().next()
    }

    /// Waits for the next notice; `None` at the end.
    pub async fn next(&mut self) -> Option<Notice> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Subscription {
    type Item = Notice;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Notice>> {
        let mut state = self.tape.lock();
        match state.next() {
            Some(notice) => Poll::Ready(Some(notice)),
            None if state.ended => Poll::Ready(None),
            None => {
                let before = state.reader.replace(cx.waker().clone());
                drop(state);
                // The last waker of a task drops its future, which may own connections.
                drop(before);
                Poll::Pending
            }
        }
    }
}

impl Tape {
    /// Keeps up to `capacity` events, and at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default() }
    }

    pub(crate) fn record(&self, server: &Arc<ServerAddress>, event: &Event) {
        let notice = match event {
            Event::Lost(count) => Notice::Lost(*count),
            Event::Pool(_)
            | Event::Server(_)
            | Event::Topology(_)
            | Event::Selection(_)
            | Event::Command(_)
            | Event::PossibleLeak(_) => Notice::Event { event: event.clone(), server: Arc::clone(server) },
        };
        let reader = {
            let mut state = self.lock();
            if state.notices.len() == self.capacity {
                state.lose_oldest();
            }
            state.notices.push_back(notice);
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    pub(crate) fn end(&self) {
        let reader = {
            let mut state = self.lock();
            state.ended = true;
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The oldest notice.
    fn next(&mut self) -> Option<Notice> {
        match std::mem::take(&mut self.lost) {
            0 => self.notices.pop_front(),
            lost => Some(Notice::Lost(lost)),
        }
    }

    /// Makes room for a newer notice.
    fn lose_oldest(&mut self) {
        let lost = match self.notices.pop_front() {
            Some(Notice::Lost(count)) => count,
            Some(Notice::Event { .. }) => 1,
            None => 0,
        };
        self.lost = self.lost.saturating_add(lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::PoolEvent;

    #[test]
    fn a_slow_reader_learns_how_much_it_missed() {
        let tape = Arc::new(Tape::new(2));
        let server = Arc::new(ServerAddress::tcp("db", 1));
        let mut subscription = Subscription::new(Arc::clone(&tape));
        for _ in 0..3 {
            tape.record(&server, &Event::Pool(PoolEvent::PoolReady));
        }
        tape.record(&server, &Event::Pool(PoolEvent::PoolClosed));

        let read: Vec<_> = std::iter::from_fn(|| subscription.try_next()).collect();

        let kept = [PoolEvent::PoolReady, PoolEvent::PoolClosed]
            .map(|event| Notice::Event { event: Event::Pool(event), server: Arc::clone(&server) });
        assert_eq!(read, [&[Notice::Lost(2)][..], &kept].concat());
    }
}
