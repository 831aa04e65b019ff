//! Signs of life of connections that are idle for long.
//!
//! **Check**: before its delivery the driver looks, without waiting, whether the peer of a connection has hung up. That is done after the
//! time that `check_after_idle` says. It is also done for all connections that were available while the machine was suspended: a clock that
//! stood still meanwhile tells nothing of that time. Until the last of these suspects was checked, no check-out takes the fast path.
//!
//! **Refresh**: a connection that has been idle for long is used for a `ping`, so that neither its peer nor a device on the way
//! gives it up. The driver gets the socket and gives it back. Meanwhile the connection has a permit, as one that is being
//! established has: a refresh begins only where one is free and nobody waits. A waiter that comes later creates a connection as if
//! the permit were free, but a population leaves it alone.
//!
//! Check-outs and check-ins are not timed for a refresh. Each connection has one look ahead of it, at the earliest moment at
//! which it can be due as far as was known at the last look: one look per connection in each `refreshRequirement`.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::connections::{Perished, Stage};
use super::list::{Key, reach};
use super::output::{Action, Output};
use super::settle::Due;
use super::timer::{Timeout, TimeoutReason};
use super::{ApiMisuse, ConnectionClosedReason, ConnectionState, Handle, Pool, PoolState, Refused};
use crate::options::Limits;
use crate::time::Instant;

/// The looks that are ahead of a pool's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refresh {
    /// By slot; of a vacant one it means nothing.
    watches: Vec<Watch>,
    looks: BTreeSet<Look>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Watch {
    look_at: Instant,
    refreshed_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Look {
    at: Instant,
    key: Key,
}

impl Refresh {
    /// What a pool with these limits needs.
    pub(super) fn of(limits: &Limits) -> Option<Box<Self>> {
        (limits.refresh_requirement != u64::MAX).then(Box::default)
    }

    fn watch(&self, key: Key) -> Watch {
        self.watches.get(key as usize).copied().unwrap_or_default()
    }

    /// Watches a connection that has no look ahead of it.
    fn set(&mut self, key: Key, watch: Watch) {
        *reach(&mut self.watches, key, Watch::default()) = watch;
        self.looks.insert(Look { at: watch.look_at, key });
    }

    /// Looks later instead.
    fn put_off(&mut self, look: Look, look_at: Instant) {
        self.looks.remove(&look);
        self.set(look.key, Watch { look_at, ..self.watch(look.key) });
    }
}

impl<C> Pool<C> {
    /// The server has answered on a connection that was idle for long. It takes its old place among the available ones, as
    /// nobody has used it, or serves a waiter. One that has perished meanwhile, or whose pool was closed, is closed.
    ///
    /// # Errors
    /// The handle is another pool's, or of a connection that is not being refreshed; the socket comes back. The socket of
    /// an interrupted connection goes to [`Action::Close`].
    pub fn handle_refreshed(&mut self, now: Instant, connection: Handle, socket: C) -> Result<(), Refused<C>> {
        self.advance(now);
        let Some((key, socket)) = self.find_for(connection, ConnectionState::Refreshing, socket)? else {
            return Ok(());
        };
        if let Some(reason) = self.unusable(key) {
            self.discard(key, socket, reason);
        } else {
            self.connections.end_refresh(&mut self.generations, key, socket);
            self.note_available();
            self.note_return_from_check(key);
            self.watch_refreshed(key);
            self.return_to_keys(key);
        }
        self.settle(Due::Spare);
        Ok(())
    }

    /// The server has not answered on a connection that was idle for long: the connection is closed. Clear the pool before,
    /// if the error blames the server. Its socket is the driver's to close.
    ///
    /// # Errors
    /// The handle is another pool's, or of a connection that is not being refreshed. A connection that was closed since is
    /// ignored.
    pub fn handle_refresh_failed(&mut self, now: Instant, connection: Handle) -> Result<(), ApiMisuse> {
        self.advance(now);
        if let Some(key) = self.find_in(connection, ConnectionState::Refreshing)? {
            self.forget(key, self.unless_closed(ConnectionClosedReason::Error), None);
            self.settle(Due::Queue);
        }
        Ok(())
    }

    /// A connection was established, or refreshed: it is as fresh as can be.
    pub(super) fn watch_refreshed(&mut self, key: Key) {
        if let Some(refresh) = &mut self.refresh {
            let look_at = self.now.after(self.limits.refresh_requirement);
            refresh.set(key, Watch { look_at, refreshed_at: self.now });
        }
    }

    /// A connection leaves the pool.
    pub(super) fn end_watch(&mut self, key: Key) {
        if let Some(refresh) = &mut self.refresh {
            let at = refresh.watch(key).look_at;
            refresh.looks.remove(&Look { at, key });
        }
    }

    /// Refreshes the connections that are due, the one first that has been due for longest.
    pub(super) fn refresh_due(&mut self) {
        while self.may_refresh()
            && let Some(look) = self.next_look().filter(|look| look.at <= self.now)
        {
            let requirement = self.limits.refresh_requirement;
            let due = match self.fresh_since(look.key) {
                Some(fresh_since) => fresh_since.after(requirement),
                // In use, or about to be.
                None => self.now.after(requirement),
            };
            if due > look.at {
                self.refresh.iter_mut().for_each(|refresh| refresh.put_off(look, due));
            } else if let Some(reason) = self.perished(look.key) {
                self.close_connection(look.key, reason);
            } else {
                self.end_watch(look.key);
                self.end_suspicion(look.key);
                self.release(look.key);
                let connection = self.handle(look.key);
                let timeout = Duration::from_nanos(self.limits.refresh_timeout);
                let socket = self.connections.begin_refresh(&mut self.generations, look.key);
                let action = socket.map(|socket| Action::Refresh { connection, socket, timeout });
                self.outputs.extend(action.map(Output::Action));
            }
        }
    }

    /// When to look whether a connection has been idle for long enough.
    pub(super) fn refresh_timeout(&self) -> Option<Timeout> {
        let at = self.next_look().filter(|look| look.at != Instant::END && self.may_refresh())?.at;
        Some(Timeout { at: at.max(self.now), reason: TimeoutReason::Refresh })
    }

    /// Whether there is a permit for what no waiter needs.
    pub(super) fn has_permit_to_spare(&self) -> bool {
        self.connections.pending.saturating_add(self.connections.refreshing) < self.limits.max_connecting
    }

    /// Whether looks and connections agree.
    pub(super) fn check_refresh(&self) -> bool {
        let Some(refresh) = &self.refresh else { return self.connections.refreshing == 0 };
        let is_watched = |stage: &Stage<C>| stage.is_established() && !matches!(stage, Stage::Refreshing { .. });
        let slots = (0..).zip(&self.connections.slots).filter(|(_, slot)| is_watched(&slot.stage));
        let mut looks = slots.map(|(key, _)| Look { at: refresh.watch(key).look_at, key });
        let watched = looks.clone().count();
        watched == refresh.looks.len() && looks.all(|look| refresh.looks.contains(&look))
    }

    fn next_look(&self) -> Option<Look> {
        self.refresh.as_ref()?.looks.first().copied()
    }

    fn may_refresh(&self) -> bool {
        self.state == PoolState::Ready && self.wait_queue.len() == 0 && self.has_permit_to_spare()
    }

    /// Since when an available connection has shown no sign of life.
    pub(super) fn fresh_since(&self, key: Key) -> Option<Instant> {
        let since = self.unused_since(key)?;
        let refreshed_at = self.refresh.as_ref().map(|refresh| refresh.watch(key).refreshed_at);
        Some(refreshed_at.map_or(since, |refreshed_at| refreshed_at.max(since)))
    }

    /// The answer to [`Action::Check`]: a connection that is alive is delivered; a dead one is closed, and its waiter
    /// stays at the head of the queue.
    ///
    /// # Errors
    /// The handle is another pool's or of a connection that is not being checked. A connection that was closed since is
    /// ignored.
    pub fn handle_checked(&mut self, now: Instant, connection: Handle, alive: bool) -> Result<(), ApiMisuse> {
        self.advance(now);
        if let Some(key) = self.find_in(connection, ConnectionState::Checking)? {
            self.finish_check(key, alive);
        }
        Ok(())
    }

    /// The peer of a connection hung up (CMAP-11). An available connection is closed at once, one in use at its
    /// check-in; one that is being established or refreshed will fail on its own.
    ///
    /// # Errors
    /// The handle is another pool's or was never issued. A connection that was closed since is ignored.
    pub fn handle_peer_closed(&mut self, now: Instant, connection: Handle) -> Result<(), ApiMisuse> {
        self.advance(now);
        let Some(key) = self.known(connection, ApiMisuse::NotInUse)? else { return Ok(()) };
        match &mut self.connections.slot_mut(key).stage {
            Stage::Available { .. } => {
                self.close_connection(key, ConnectionClosedReason::Error);
                self.settle(Due::Queue);
            }
            Stage::Checking { .. } => self.finish_check(key, false),
            Stage::InUse { perished, .. } => {
                perished.get_or_insert(Perished::PeerClosed);
            }
            // What goes on at it will fail on its own.
            Stage::Closed | Stage::Pending { .. } | Stage::Refreshing { .. } => {}
        }
        Ok(())
    }

    /// The driver has checked a connection that was idle for long.
    fn finish_check(&mut self, key: Key, alive: bool) {
        let death = (!alive).then(|| self.unless_closed(ConnectionClosedReason::Error));
        match death.or_else(|| self.unusable(key)) {
            Some(reason) => self.close_connection(key, reason),
            // It counts as returned just now: the list of available connections stays in the order of their return.
            None => {
                let since = self.now;
                self.connections.convert(&mut self.generations, key, |socket| Stage::Available { since, socket });
                self.note_available();
                self.note_return_from_check(key);
                self.serve_sticky(key);
            }
        }
        self.settle(Due::Spare);
    }

    /// The process goes on after its machine was suspended: every connection that is available now is checked for life
    /// before its next delivery.
    pub fn resume(&mut self, now: Instant) {
        self.advance(now);
        let slots = (0..).zip(&self.connections.slots);
        let available = slots.filter(|(_, slot)| slot.is_available());
        self.suspects = available.map(|(key, _)| key).collect();
        self.renew_attention();
    }

    /// A connection is looked at, or closed.
    pub(super) fn end_suspicion(&mut self, key: Key) {
        if self.suspects.remove(&key) && self.suspects.is_empty() {
            self.renew_attention();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ServerAddress;
    use crate::options::{Affinity, PoolOptions, PoolSizes};
    use crate::pool::{AffinityKey, CheckOutRequest, Condition};

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Two connections that were used by a key each, and came back at 0 and 5 ms.
    fn pool(affinity: Affinity) -> Pool<()> {
        let options = PoolOptions {
            affinity: Some(affinity),
            refresh_requirement: Some(Duration::from_millis(20)),
            max_connecting: Some(1),
            ..PoolOptions::default()
        };
        let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, at(0)).unwrap();
        pool.observe(false);
        pool.ready(at(0));
        let in_use = [1, 2].map(|key| {
            let _ = pool.check_out(at(0), CheckOutRequest::default().affinity(AffinityKey(key)));
            let mut delivered = None;
            while let Some(output) = pool.poll_output() {
                if let Output::Action(Action::Connect { connection }) = output {
                    pool.handle_established(at(0), connection, ()).unwrap();
                } else if let Output::Action(Action::Deliver { connection, .. }) = output {
                    delivered = Some(connection);
                }
            }
            delivered.unwrap()
        });
        for (connection, returned_at) in in_use.into_iter().zip([0, 5]) {
            let _ = pool
                .check_in(
                    at(returned_at),
                    pool.use_of(connection).unwrap().check_out,
                    connection,
                    (),
                    Condition::Usable,
                )
                .unwrap();
        }
        pool
    }

    /// The next ping.
    fn refreshing(pool: &mut Pool<()>, now: Instant) -> Option<Handle> {
        pool.handle_timeout(now);
        assert_eq!(pool.check_invariants(), Ok(()));
        let actions = core::iter::from_fn(|| pool.poll_output());
        actions.into_iter().find_map(|output| match output {
            Output::Action(Action::Refresh { connection, .. }) => Some(connection),
            Output::Action(_) | Output::Event(_) => None,
        })
    }

    #[test]
    fn a_held_connection_is_refreshed_and_its_hold_goes_on() {
        let mut pool = pool(Affinity::Hold { time: Duration::from_millis(50), lend: false });

        let first = refreshing(&mut pool, at(20)).unwrap();
        pool.handle_refreshed(at(24), first, ()).unwrap();

        assert_eq!(pool.check_invariants(), Ok(()));
        assert!(pool.is_bound(AffinityKey(1)));
        pool.handle_timeout(at(50));
        assert_eq!((pool.is_bound(AffinityKey(1)), pool.is_bound(AffinityKey(2))), (false, true));
    }

    #[test]
    fn a_held_connection_that_comes_back_to_a_pool_that_shrank_is_closed() {
        let mut pool = pool(Affinity::Hold { time: Duration::from_millis(50), lend: false });
        let first = refreshing(&mut pool, at(20)).unwrap();
        let _ = pool.check_out(at(21), CheckOutRequest::default().affinity(AffinityKey(2)));
        let _ = pool.check_out(at(21), CheckOutRequest::default());
        pool.resize(at(22), PoolSizes::default().max_pool_size(1)).unwrap();

        pool.handle_refreshed(at(23), first, ()).unwrap();

        assert_eq!(pool.check_invariants(), Ok(()));
        assert_eq!((pool.counts().available, pool.counts().in_use, pool.counts().waiting), (0, 1, 1));
    }

    #[test]
    fn a_key_that_prefers_its_connection_takes_another_one_than_that_which_is_refreshed() {
        let mut pool = pool(Affinity::Prefer);
        let first = refreshing(&mut pool, at(20)).unwrap();

        let (_, delivery) = pool.check_out(at(21), CheckOutRequest::default().affinity(AffinityKey(1)));

        assert!(delivery.is_some_and(|delivery| delivery.connection != first));
    }

    #[test]
    fn a_key_that_requires_its_connection_gets_it_when_it_has_answered() {
        let mut pool = pool(Affinity::Require);
        let first = refreshing(&mut pool, at(20)).unwrap();
        let (sticky, delivery) = pool.check_out(at(21), CheckOutRequest::default().affinity(AffinityKey(1)));
        assert!(delivery.is_none());

        pool.handle_refreshed(at(22), first, ()).unwrap();

        let delivered = pool.poll_output();
        assert!(
            matches!(delivered, Some(Output::Action(Action::Deliver { check_out, connection, .. })) if check_out == sticky && connection == first)
        );
    }
}
