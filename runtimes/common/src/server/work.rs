//! Work that a call leaves for after the lock: spawning, waking, closing, delivering events.

use std::sync::Arc;
use std::task::Waker;

use cmap_core::monitor;
use cmap_core::pool::Handle;

use crate::events::Event;
use crate::socket::Socket;
use crate::socket::abort::Abort;

/// Work to be done without the lock. Most calls leave at most one task to wake, and allocate nothing for it.
pub(crate) struct Work<S> {
    pub(crate) wake: Option<Waker>,
    /// The driver has to come back earlier.
    pub(crate) rings_alarm: bool,
    pub(crate) more: Option<Box<MoreWork<S>>>,
}

/// Work that is rarely left.
pub(crate) struct MoreWork<S> {
    pub(crate) establish: Vec<(Handle, Arc<Abort>)>,
    pub(crate) close: Vec<Box<Socket<S>>>,
    pub(crate) wake: Vec<Waker>,
    /// Calls of the monitor, for the driver to make.
    pub(crate) monitor_calls: Vec<monitor::Call>,
    pub(crate) deliver: Option<Vec<Event>>,
}

impl<S> Work<S> {
    pub(crate) fn none() -> Self {
        Self { wake: None, rings_alarm: false, more: None }
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
    pub(crate) fn more(&mut self) -> &mut MoreWork<S> {
        self.more.get_or_insert_with(|| {
            Box::new(MoreWork {
                establish: Vec::new(),
                close: Vec::new(),
                wake: Vec::new(),
                monitor_calls: Vec::new(),
                deliver: None,
            })
        })
    }
}
