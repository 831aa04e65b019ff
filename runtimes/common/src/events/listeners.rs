//! The listeners of events: handlers that are called, and subscriptions that are read.
//!
//! Users' code runs here; no lock is held while it does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cmap_core::address::ServerAddress;
use cmap_core::topology::SelectionDetail;

use super::event::Event;
use super::subscription::{Subscription, Tape};
use crate::runtime::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A user's handler of events. It is called on the thread that caused the event, or in a task of the runtime, so it
/// must be quick. Its panics are caught and go no further.
pub(crate) type Handler = Box<dyn Fn(&ServerAddress, &Event) + Send + Sync>;

/// All listeners of a client.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) handlers: Vec<Handler>,
    /// Whether handlers and subscriptions get events of every selection of a server.
    pub(crate) selections: bool,
    #[cfg(feature = "tracing")]
    log: super::logging::Log,
    tapes: Mutex<Vec<Weak<Tape>>>,
}

impl Listeners {
    pub(crate) fn subscribe(&self, capacity: usize) -> Subscription {
        let tape = Arc::new(Tape::new(capacity));
        self.lock().push(Arc::downgrade(&tape));
        Subscription::new(tape)
    }

    /// Whether events are logged and the records are read, as far as can be known now.
    pub(crate) fn are_logged(&self) -> bool {
        #[cfg(feature = "tracing")]
        return self.log.is_read();
        #[cfg(not(feature = "tracing"))]
        return false;
    }

    /// Which selections of servers somebody wants to know of, as far as can be known now.
    pub(crate) fn selection_detail(&self) -> SelectionDetail {
        if self.selections {
            return SelectionDetail::All;
        }
        #[cfg(feature = "tracing")]
        return self.log.selection_detail();
        #[cfg(not(feature = "tracing"))]
        return SelectionDetail::None;
    }

    /// Whether there are listeners besides the log; forgets subscriptions that were dropped.
    pub(crate) fn any(&self) -> bool {
        let mut tapes = self.lock();
        tapes.retain(|tape| tape.strong_count() > 0);
        !self.handlers.is_empty() || !tapes.is_empty()
    }

    /// Whether a dropped subscription still counts as a listener.
    pub(crate) fn has_lost_one(&self) -> bool {
        self.lock().iter().any(|tape| tape.strong_count() == 0)
    }

    pub(crate) fn tell(&self, address: &Arc<ServerAddress>, event: &Event) {
        // A handler that panicked is called again: any state it broke is its own.
        #[cfg(feature = "tracing")]
        let _ = catch_unwind(AssertUnwindSafe(|| self.log.record(address, event)));
        if matches!(event, Event::Selection(_)) && !self.selections {
            return;
        }
        for handler in &self.handlers {
            let _ = catch_unwind(AssertUnwindSafe(|| handler(address, event)));
        }
        let tapes: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for tape in tapes {
            // This wakes the reader, by a waker that may run any code.
            let _ = catch_unwind(AssertUnwindSafe(|| tape.record(address, event)));
        }
    }

    /// Ends every subscription.
    pub(crate) fn end(&self) {
        let tapes: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for tape in tapes {
            tape.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Tape>>> {
        self.tapes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
