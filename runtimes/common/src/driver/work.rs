//! Work that a call leaves for after the lock: spawning, waking, closing, delivering events.

use std::sync::Arc;
use std::task::Waker;

use cmap_core::pool::Handle;

use super::member::Member;
use super::refresh::Refresh;
use crate::establish::Origin;
use crate::events::AddressedEvent;
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::socket::abort::Abort;

/// Work to be done without the lock. Most calls leave at most one task to wake, and allocate nothing for it.
pub(crate) struct Work<R: Runtime> {
    pub(crate) wake: Option<Waker>,
    /// The timer has to come back earlier.
    pub(crate) rings_alarm: bool,
    pub(crate) more: Option<Box<MoreWork<R>>>,
}

/// A connection that is to be established.
pub(crate) struct Establishment<R: Runtime> {
    pub(crate) member: Arc<Member<R>>,
    pub(crate) connection: Handle,
    pub(crate) origin: Origin,
    pub(crate) abort: Arc<Abort>,
}

/// Work that is rarely left.
pub(crate) struct MoreWork<R: Runtime> {
    pub(crate) establish: Vec<Establishment<R>>,
    pub(super) refresh: Vec<Refresh<R>>,
    pub(crate) close: Vec<Box<Socket<R::Stream>>>,
    pub(crate) wake: Vec<Waker>,
    /// Servers that have left: their monitors are closed.
    pub(crate) end: Vec<Arc<Member<R>>>,
    /// The name whose SRV records to look up, unless the lookup is aborted.
    pub(crate) srv_lookup: Option<(String, Arc<Abort>)>,
    pub(crate) deliver: Option<Vec<AddressedEvent>>,
}

impl<R: Runtime> Work<R> {
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
    pub(crate) fn more(&mut self) -> &mut MoreWork<R> {
        self.more.get_or_insert_with(|| {
            Box::new(MoreWork {
                establish: Vec::new(),
                refresh: Vec::new(),
                close: Vec::new(),
                wake: Vec::new(),
                end: Vec::new(),
                srv_lookup: None,
                deliver: None,
            })
        })
    }
}
