//! Queries of a pool. Nothing here changes it.

use alloc::sync::Arc;

use super::connections::Stage;
use super::handle::{ConnectionId, Handle};
use super::stats::Totals;
use super::{ApiMisuse, CheckOutId, Counts, Generation, InUseBy, Pool, PoolState, ServiceId, Stats};
use crate::address::ServerAddress;
use crate::options::PoolOptions;
use crate::time::Instant;

impl<C> Pool<C> {
    /// The address of the pool's server.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    pub(crate) fn shared_address(&self) -> &Arc<ServerAddress> {
        &self.address
    }

    /// The options, as they were given.
    pub fn options(&self) -> &PoolOptions {
        &self.options
    }

    /// Paused, ready or closed.
    pub fn state(&self) -> PoolState {
        self.state
    }

    /// How often the pool was cleared. Load-balanced pools have a generation per service instead.
    pub fn generation(&self) -> Generation {
        self.generations.pool
    }

    /// How often a service's part of a load-balanced pool was cleared; `None` if it has no connections.
    pub fn generation_of(&self, service_id: ServiceId) -> Option<Generation> {
        self.generations.service(service_id).map(|service| service.generation)
    }

    /// The service of a connection, in load-balanced mode and after its hello.
    pub fn service_of(&self, connection: Handle) -> Option<ServiceId> {
        self.connections.slot(self.own(connection)?).service
    }

    /// Whether the connection is in use; false if it was closed since.
    ///
    /// # Errors
    /// The handle is another pool's, was never issued, or its connection is not in use.
    pub(crate) fn in_use(&self, connection: Handle) -> Result<bool, ApiMisuse> {
        match self.known(connection, ApiMisuse::NotInUse)? {
            None => Ok(false),
            Some(key) if matches!(self.connections.slot(key).stage, Stage::InUse { .. }) => Ok(true),
            Some(_) => Err(ApiMisuse::NotInUse),
        }
    }

    /// Whether the connection is being established; false if it was closed since.
    ///
    /// # Errors
    /// The handle is another pool's, was never issued, or its connection is established.
    pub(crate) fn is_pending(&self, connection: Handle) -> Result<bool, ApiMisuse> {
        self.pending(connection).map(|found| found.is_some())
    }

    /// The check-out for which a connection is being established. `None` if it is established, or none has to wait for it: another
    /// connection served its check-out, or it is one of minPoolSize.
    pub fn origin_of(&self, connection: Handle) -> Option<CheckOutId> {
        match self.connections.slot(self.own(connection)?).stage {
            Stage::Pending { origin, .. } => origin.map(|origin| self.wait_queue.id(origin)),
            Stage::Closed
            | Stage::Available { .. }
            | Stage::Checking { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => None,
        }
    }

    /// Whether a clear has made the connection stale (SDAM-4). A closed connection counts as stale.
    pub fn is_stale(&self, connection: Handle) -> bool {
        self.own(connection).is_none_or(|key| self.is_stale_at(key))
    }

    /// The handle of the connection with this number, if it has not been closed. Searches all connections.
    pub fn find(&self, connection_id: u64) -> Option<Handle> {
        let key = self.connections.search(ConnectionId(connection_id))?;
        Some(self.handle(key))
    }

    /// Lends the socket of a connection that is available or being checked.
    pub fn socket(&mut self, connection: Handle) -> Option<&mut C> {
        let key = self.own(connection)?;
        match &mut self.connections.slot_mut(key).stage {
            Stage::Available { socket, .. } | Stage::Checking { socket } => Some(socket),
            Stage::Closed | Stage::Pending { .. } | Stage::Refreshing { .. } | Stage::InUse { .. } => None,
        }
    }

    /// The current counts.
    pub fn counts(&self) -> Counts {
        Counts {
            pending: self.connections.pending,
            available: self.connections.available.len() + self.connections.checking + self.connections.refreshing,
            in_use: self.connections.in_use,
            waiting: self.waiting(),
        }
    }

    /// When time alone changes something for the check-outs that wait: the first of them times out, or a pause after an
    /// overload, or one for the limit of new connections, ends and a connection is created. Also, with a host timeout,
    /// what a use of the host brings about. `None` if none of this comes.
    #[inline]
    pub fn next_check_out_timeout(&self) -> Option<Instant> {
        if !self.is_restrained() && !self.has_host_timeout() && self.affinity.is_none() {
            return self.wait_queue.next_deadline();
        }
        self.next_timeout_of_waiters()
    }

    #[inline(never)]
    fn next_timeout_of_waiters(&self) -> Option<Instant> {
        let first = self.wait_queue.next_deadline();
        let look = self.host_timeout();
        // A check-out that uses the host again brings back its minimum pool size, too.
        let minimum = look.and_then(|_| self.maintenance_timeout());
        let others = self
            .creation_timeout()
            .into_iter()
            .chain(look)
            .chain(minimum)
            .chain(self.hold_timeout())
            .map(|timeout| timeout.at);
        first.into_iter().chain(others).min()
    }

    /// How long a connection that becomes available at `now` may stay so (maxIdleTimeMS, CMAP-3), or until when something
    /// happens to it or for it; `None` means forever.
    #[inline]
    pub fn idle_until(&self, now: Instant) -> Option<Instant> {
        let max_idle = self.limits.max_idle;
        let idle = (max_idle != u64::MAX).then(|| now.after(max_idle));
        if !self.attention.idle {
            return idle;
        }
        let hold = self.limits.hold_time().map(|time| now.after(time));
        let idle = idle.into_iter().chain(hold).min();
        if self.retirement.is_none() && self.refresh.is_none() {
            return idle;
        }
        // It may wait for its replacement.
        idle.into_iter().chain(self.poll_timeout().map(|timeout| timeout.at)).min()
    }

    /// Connections in use by their purpose (LB-16).
    pub fn in_use_by(&self) -> InUseBy {
        self.connections.in_use_by()
    }

    /// Counts, totals and high-water marks.
    pub fn stats(&self) -> Stats {
        let counts = self.counts();
        let Totals { high_water, high_water_total, established, closed, check_outs_failed, cancelled, cleared } =
            self.totals;
        let check_outs_started = self.wait_queue.started();
        let ended = check_outs_started.saturating_sub(counts.waiting.into());
        let checked_out = ended.saturating_sub(check_outs_failed.total());
        Stats {
            counts,
            high_water,
            high_water_total,
            created: self.connections.created(),
            established,
            closed,
            check_outs_started,
            checked_out,
            check_outs_failed,
            cancelled,
            checked_in: checked_out.saturating_sub(counts.in_use.into()),
            cleared,
        }
    }
}
