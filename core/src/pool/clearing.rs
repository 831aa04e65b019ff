//! Clear, close, interrupt: what happens to connections and waiters when the server, or the pool, is gone.

use super::connections::Stage;
use super::error::{Cause, CheckOutErrorKind, WarmUpErrorKind};
use super::output::{Action, Event, Output};
use super::settle::Due;
use super::state::{PoolCall, PoolState};
use super::{ApiMisuse, Clear, ConnectionClosedReason, Pool, Purpose};
use crate::service_id::ServiceId;
use crate::time::Instant;

impl<C> Pool<C> {
    /// The server answers: check-outs are served from now on (CMAP-18). Does nothing unless the pool is paused.
    pub fn ready(&mut self, now: Instant) {
        self.advance(now);
        if let Some(state) = self.state.after(PoolCall::Ready) {
            self.state = state;
            self.renew_attention();
            // The first population after ready waits for no interval.
            self.last_maintenance = None;
            self.population_failed = false;
            self.emit(|| Event::PoolReady);
        }
    }

    /// Makes all connections stale (CMAP-37 to CMAP-43), or those of one service (LB-8).
    ///
    /// Without a service the pool is paused and every waiter fails at once, unless its profile is an edition that only raises
    /// the generation. A pool that is paused already only raises
    /// its generation; a closed one, and a service without connections, stay as they are.
    ///
    /// # Errors
    /// A service was named for a pool that is not load-balanced, or none for one that is.
    pub fn clear(&mut self, now: Instant, clear: Clear) -> Result<(), ApiMisuse> {
        self.advance(now);
        match (self.limits.load_balanced, clear.service_id) {
            (true, None) => return Err(ApiMisuse::ClearWithoutService),
            (false, Some(_)) => return Err(ApiMisuse::ClearWithService),
            (true, Some(_)) | (false, None) => {}
        }
        // Interruption came with a later edition.
        let interrupts = clear.interrupt_in_use_connections && self.limits.profile.pauses();
        let clear = Clear { interrupt_in_use_connections: interrupts, ..clear };
        if self.raise_generation(&clear) {
            if clear.interrupt_in_use_connections {
                self.interrupt(clear.service_id, &clear.cause);
            }
            self.settle(Due::Queue);
        }
        Ok(())
    }

    /// Closes the pool (CMAP-20): closes the available connections and fails every waiter. Connections in use or
    /// pending are closed when they come back.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        if let Some(state) = self.state.after(PoolCall::Close) {
            self.state = state;
            self.renew_attention();
            while let Some(key) = self.connections.available.front() {
                self.close_connection(key, ConnectionClosedReason::PoolClosed);
            }
            self.emit(|| Event::PoolClosed);
            self.settle(Due::Queue);
        }
    }

    /// Call this in a process that was forked: its copies of the connections belong to the parent (FORK-1, FORK-2).
    ///
    /// Clears the pool, or every service, closes the available connections, interrupts and forgets all others, and fails
    /// every check-out that waits, and every warm-up: the callers of all these are in the parent. One that checks in a
    /// connection in this process gets the socket back. Close the sockets without a word to the server. A closed pool
    /// forgets the connections that it has left.
    pub fn reset_after_fork(&mut self, now: Instant) {
        self.advance(now);
        self.abandon_all(&Cause::new("the process was forked"));
    }

    /// Raises the generation and pauses the pool (CMAP-37), or raises that of one service (LB-8). Returns whether
    /// there was anything to clear.
    pub(super) fn raise_generation(&mut self, clear: &Clear) -> bool {
        if self.state == PoolState::Closed {
            return false;
        }
        let is_visible = match clear.service_id {
            None => {
                self.generations.pool = self.generations.pool.next();
                match self.state.after(PoolCall::Clear) {
                    // that edition does not pause, so there is something to tell each time.
                    Some(_) if !self.limits.profile.pauses() => true,
                    Some(paused) => {
                        self.state = paused;
                        self.renew_attention();
                        self.paused_by = clear.cause.clone();
                        self.paused_since = self.now;
                        true
                    }
                    // Paused already: no event (CMAP-38).
                    None => false,
                }
            }
            Some(id) => {
                let Some(service) = self.generations.services.get_mut(&id) else { return false };
                service.generation = service.generation.next();
                if !service.available.is_empty() {
                    self.generations.to_prune.insert(id);
                }
                true
            }
        };
        if is_visible {
            self.totals.cleared = self.totals.cleared.saturating_add(1);
            let interrupt_in_use_connections = clear.interrupt_in_use_connections;
            self.emit(|| Event::PoolCleared { service_id: clear.service_id, interrupt_in_use_connections });
        }
        true
    }

    /// Makes the connections stale that a closed pool has left, as a clear does in one that is open.
    pub(crate) fn outdate_if_closed(&mut self) {
        if self.state == PoolState::Closed {
            self.generations.pool = self.generations.pool.next();
        }
    }

    /// Interrupts every connection of the pool or of one service (CMAP-40 to CMAP-42). Pending connections are closed
    /// here; connections in use are closed when they are checked in.
    ///
    /// The waiter that a pending connection was created for fails with it. Outside load-balanced mode all waiters are
    /// about to.
    pub(super) fn interrupt(&mut self, service: Option<ServiceId>, cause: &Cause) {
        let reason = self.unless_closed(ConnectionClosedReason::Stale);
        let mut from = 0;
        while let Some(key) = self.connections.next_occupied(&self.generations, service, from) {
            from = key;
            let connection = self.handle(key);
            match self.connections.slot(key).stage {
                Stage::InUse { .. } => {
                    self.connections.mark_interrupted(&mut self.generations, key);
                    self.outputs.push_back(Output::Action(Action::Interrupt { connection }));
                }
                // The driver closes the socket of a connection that is refreshed, or reports it: then it is closed here.
                Stage::Pending { .. } | Stage::Refreshing { .. } => {
                    let origin = self.set_origin(key, None);
                    self.forget(key, reason, None);
                    self.outputs.push_back(Output::Action(Action::Interrupt { connection }));
                    if let Some(origin) = origin {
                        self.wait_queue.set_pending(origin, None);
                        if self.limits.load_balanced {
                            self.fail(origin, CheckOutErrorKind::PoolCleared { cause: cause.clone() });
                        }
                    }
                }
                Stage::Checking { .. } | Stage::Available { .. } | Stage::Closed => {
                    self.close_connection(key, reason);
                }
            }
        }
    }

    /// Fails every waiter of a pool that is not ready (CMAP-39), and every warm-up.
    pub(super) fn evict_waiters(&mut self) {
        if let Some(kind) = self.refusal() {
            self.fail_waiters(&kind);
        }
        if let Some(kind) = self.refusal_of_warm_ups() {
            self.fail_warm_ups(&kind);
        }
    }

    fn fail_waiters(&mut self, kind: &CheckOutErrorKind) {
        self.end_sticky_waits();
        self.wait_queue.lift_deadlines();
        while let Some(waiter) = self.wait_queue.front() {
            self.fail(waiter, kind.clone());
        }
    }

    /// Makes all connections stale, closes the available ones and interrupts the rest.
    fn abandon_all(&mut self, cause: &Cause) {
        let clear = Clear::pool(cause.clone()).interrupting();
        if self.limits.load_balanced {
            let services: alloc::vec::Vec<_> = self.generations.services.keys().copied().collect();
            for id in services {
                self.raise_generation(&Clear { service_id: Some(id), ..clear.clone() });
                self.interrupt(Some(id), cause);
            }
        } else {
            self.raise_generation(&clear);
        }
        self.interrupt(None, cause);
        self.abandon_in_use();
        self.prune();
        // Behind a load balancer and in profile 1.1 the pool stays ready, where `settle` fails no waiter.
        if self.state == PoolState::Ready {
            self.fail_waiters(&CheckOutErrorKind::PoolCleared { cause: cause.clone() });
            self.fail_warm_ups(&WarmUpErrorKind::PoolCleared { cause: cause.clone() });
        }
        self.settle(Due::Queue);
    }

    /// Gives up the connections in use, whose users exist in the parent process only: they count as checked in and
    /// closed.
    fn abandon_in_use(&mut self) {
        let reason = self.unless_closed(ConnectionClosedReason::Stale);
        for key in (0..).take(self.connections.slots.len()) {
            if let Stage::InUse { check_out, .. } = self.connections.slot(key).stage {
                let connection_id = self.connections.slot(key).id;
                self.wait_queue.finish(check_out);
                self.connections.set_purpose(key, Purpose::Other);
                self.emit(|| Event::ConnectionCheckedIn { connection_id });
                self.forget(key, reason, None);
            }
        }
    }
}
