//! Who hears of events: handlers that are called, and subscriptions that are read.
//!
//! Events are queued under the endpoint's lock and told outside of it, by one thread at a time: in order, and never
//! from within a handler. A handler may call the client; what that causes is told when the handler has returned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cmap_core::address::ServerAddress;

use crate::event::Event;
use crate::subscription::{Subscription, Tape};

/// A user's handler of events. It is called on whatever thread made the event happen, so it must be quick. Its panics
/// are caught and go no further.
pub(crate) type Handler = Box<dyn Fn(&ServerAddress, &Event) + Send + Sync>;

/// Everybody who listens to an endpoint.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) handlers: Vec<Handler>,
    tapes: Mutex<Vec<Weak<Tape>>>,
}

/// Events that happened and were not told yet. Lives under the endpoint's lock.
#[derive(Default)]
pub(crate) struct Untold {
    pub(crate) events: Vec<Event>,
    /// Whether somebody is telling.
    pub(crate) being_told: bool,
}

impl Listeners {
    pub(crate) fn subscribe(&self, address: Arc<ServerAddress>, capacity: usize) -> Subscription {
        let tape = Arc::new(Tape::new(capacity));
        self.lock().push(Arc::downgrade(&tape));
        Subscription::new(address, tape)
    }

    /// Whether anybody listens; forgets subscriptions that were dropped.
    pub(crate) fn any(&self) -> bool {
        let mut tapes = self.lock();
        tapes.retain(|tape| tape.strong_count() > 0);
        #[cfg(feature = "tracing")]
        if crate::logging::is_enabled() {
            return true;
        }
        !self.handlers.is_empty() || !tapes.is_empty()
    }

    pub(crate) fn tell(&self, address: &ServerAddress, event: &Event) {
        #[cfg(feature = "tracing")]
        crate::logging::log(address, event);
        for handler in &self.handlers {
            // A handler that panicked is called again: what it observes is its own.
            let _ = catch_unwind(AssertUnwindSafe(|| handler(address, event)));
        }
        let tapes: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for tape in tapes {
            tape.record(event);
        }
    }

    /// Ends every subscription.
    pub(crate) fn end(&self) {
        let tapes: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for tape in tapes {
            tape.end();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Tape>>> {
        self.tapes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Untold {
    /// The events to tell, if nobody else tells.
    pub(crate) fn begin(&mut self) -> Option<Vec<Event>> {
        if self.events.is_empty() || self.being_told {
            return None;
        }
        self.being_told = true;
        Some(std::mem::take(&mut self.events))
    }

    /// More events for the one who tells, in exchange for the emptied buffer; `false` ends the telling.
    pub(crate) fn more(&mut self, told: &mut Vec<Event>) -> bool {
        std::mem::swap(&mut self.events, told);
        self.being_told = !told.is_empty();
        self.being_told
    }
}
