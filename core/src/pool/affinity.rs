//! Affinity: a key keeps the connection that it had last.
//!
//! A key is bound to a connection when one is delivered to it, and stays so until the connection is closed, the key takes
//! another one, or somebody ends it. What that means is the option's choice: see [`Affinity`](crate::options::Affinity).
//!
//! Check-outs that wait for the connection of their key are *sticky*. They are not in the queue but in a list of that
//! connection, in which they have the same deadlines as others. A connection that is available, has keys, and belongs to a
//! pool that holds them is *held*. Nothing is noted for that when it comes back: the available connections are in the order of
//! their return, so the first of them that has keys is the next whose time ends. Those before it that have none are passed over
//! once, up to [`Holds::free`].

use super::Pool;
use super::connections::{Slot, Stage};
use super::event::ConnectionClosedReason;
use super::list::{Key, NIL};
use super::output::{Action, Output};
use super::settle::Due;
use super::sticky_keys::{AffinityKey, Pin, StickyKeys};
use super::timer::{Timeout, TimeoutReason};
use super::wait_queue::CheckOutRequest;
use crate::options::Affinity;
use crate::time::Instant;

/// The connection of a key, for a check-out that arrives.
enum Own {
    /// It can be delivered.
    Ready(Key),
    /// It was idle for so long that it has to be checked first.
    Unchecked(Key),
    /// Somebody has it, or it is being checked or refreshed.
    Busy(Key),
    /// It must not be used any more.
    Perished(Key, ConnectionClosedReason),
    None,
}

impl<C> Pool<C> {
    /// Lets the pool forget the connection of a key. Its check-outs that wait for it go on waiting for it. Nothing
    /// happens if the key has none.
    pub fn end_affinity(&mut self, now: Instant, key: AffinityKey) {
        self.advance(now);
        if let Some(affinity) = &mut self.affinity {
            affinity.unbind(key);
            self.settle(Due::Queue);
        }
    }

    /// Whether a connection is bound to the key.
    pub(crate) fn is_bound(&self, key: AffinityKey) -> bool {
        self.affinity.as_ref().is_some_and(|affinity| affinity.keys.contains_key(&key))
    }

    /// The check-outs that wait for the connection of their key.
    pub(super) fn sticky_waiters(&self) -> impl Iterator<Item = Key> {
        let pins = self.affinity.iter().flat_map(|affinity| &affinity.pins);
        pins.flat_map(|pin| self.wait_queue.members(&pin.waiters))
    }

    /// All check-outs that wait, for any connection or for the one of their key.
    pub(super) fn waiting(&self) -> u32 {
        self.wait_queue.len() + self.affinity.as_ref().map_or(0, |affinity| affinity.sticky)
    }

    /// Connections that are being checked for the queue: not those that a sticky check-out will get.
    pub(super) fn checks(&self) -> u32 {
        let checking = self.connections.checking;
        match &self.affinity {
            Some(affinity) if affinity.sticky > 0 && checking > 0 => checking - self.claimed(affinity),
            _ => checking,
        }
    }

    fn claimed(&self, affinity: &StickyKeys) -> u32 {
        let is_claimed =
            |(pin, slot): &(&Pin, &Slot<C>)| !pin.waiters.is_empty() && matches!(slot.stage, Stage::Checking { .. });
        let claimed = affinity.pins.iter().zip(&self.connections.slots).filter(is_claimed);
        claimed.fold(0, |number, _| number + 1)
    }

    /// Whether an available connection is held for its keys.
    pub(super) fn is_kept(&self, connection: Key) -> bool {
        self.holds() && self.affinity.as_ref().is_some_and(|affinity| affinity.has_keys(connection))
    }

    /// Available connections that any check-out may take.
    pub(super) fn free(&self) -> u32 {
        if self.next_hold().is_none() {
            return self.connections.available.len();
        }
        self.connections.least_recent_first(|key| !self.is_kept(key)).fold(0, |free, _| free + 1)
    }

    /// The one of them that was returned last.
    pub(super) fn most_recent_free(&self) -> Option<Key> {
        self.connections.most_recent_first(|key| !self.is_kept(key)).next()
    }

    /// Whether an arrival takes an available connection, however many wait: that of its key, or any, if those who wait want others.
    pub(super) fn can_serve_at_once(&mut self, request: &CheckOutRequest) -> bool {
        match self.own_of(request) {
            Own::Ready(_) => true,
            Own::Unchecked(_) | Own::Busy(_) => false,
            Own::Perished(..) | Own::None => {
                self.wait_queue.len() == 0 && self.next_usable().is_some_and(|key| self.is_usable(key))
            }
        }
    }

    /// Whether connections are held for their keys.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.limits.hold_time().is_some()
    }

    /// Whether a check-out waits for the connection of its key.
    pub(super) fn has_sticky_waiters(&self) -> bool {
        self.affinity.as_ref().is_some_and(|affinity| affinity.sticky > 0)
    }

    /// A check-out joins the queue, or those that wait for the connection of its key. One whose key's connection can be delivered gets it
    /// at once, however many wait.
    pub(super) fn arrive(&mut self, check_out: Key, request: CheckOutRequest) -> Due {
        match self.own_of(&request) {
            Own::Ready(connection) => self.deliver(connection, check_out),
            Own::Unchecked(connection) => {
                self.begin_check(connection);
                self.wait_for(connection, check_out, request);
            }
            Own::Busy(connection) => self.wait_for(connection, check_out, request),
            Own::Perished(connection, reason) => {
                self.close_connection(connection, reason);
                return self.join_queue(check_out, request);
            }
            Own::None => return self.join_queue(check_out, request),
        }
        Due::Queue
    }

    fn join_queue(&mut self, check_out: Key, request: CheckOutRequest) -> Due {
        if let Some(affinity) = &mut self.affinity {
            affinity.note_key(check_out, request.affinity);
        }
        self.wait_queue.enqueue(check_out, request.deadline, self.limits.wait_queue_timeout);
        Due::Arrival
    }

    /// The available connection for the head of the queue: that of its key, otherwise the least shared one for a key, and
    /// the next by the option `reuse` for all others.
    pub(super) fn next_for_head(&self) -> Option<Key> {
        let affinity = self.affinity.as_deref()?;
        let key = self.wait_queue.front().and_then(|head| affinity.key_of(head));
        let is_available = |&&own: &&Key| matches!(self.connections.slot(own).stage, Stage::Available { .. });
        match key {
            None => self.next_free(),
            Some(key) => {
                let own = affinity.keys.get(&key).filter(is_available);
                own.copied().or_else(|| affinity.least_shared(&self.connections, self.holds()))
            }
        }
    }

    /// The key of a check-out that waited, if it has one, is bound to the connection that it gets.
    pub(super) fn bind(&mut self, connection: Key, check_out: Key) {
        if let Some(affinity) = &mut self.affinity
            && let Some(key) = affinity.key_of(check_out)
        {
            affinity.bind(key, connection);
        }
    }

    /// Lends a held connection to the head of the queue, where nothing else serves it and none can be created. Returns
    /// whether anything has changed.
    pub(super) fn lend(&mut self) -> bool {
        let Some(Affinity::Hold { lend: true, .. }) = self.limits.affinity else { return false };
        let Some(head) = self.wait_queue.front() else { return false };
        if self.wait_queue.len() <= self.connections.pending + self.checks() {
            return false;
        }
        let Some(affinity) = &self.affinity else { return false };
        let Some(most_recent) = self.connections.most_recent_first(|key| affinity.has_keys(key)).next() else {
            return false;
        };
        if let Some(reason) = self.perished(most_recent) {
            self.close_connection(most_recent, reason);
        } else if self.needs_check(most_recent) {
            self.begin_check(most_recent);
        } else {
            self.leave_queue(head);
            self.deliver(most_recent, head);
        }
        true
    }

    /// A connection was checked in, or has passed its check, and is available: it goes to the first check-out that is sticky
    /// to it, or is held for its keys.
    pub(super) fn serve_sticky(&mut self, connection: Key) {
        let Some(affinity) = &self.affinity else { return };
        let Some(waiter) = affinity.first_sticky(connection) else { return };
        self.leave_sticky(waiter);
        self.bind(connection, waiter);
        self.deliver(connection, waiter);
    }

    /// A refreshed connection is available in its old place: it goes to the first check-out that is sticky to it, or is held
    /// for what is left of its time.
    pub(super) fn return_to_keys(&mut self, connection: Key) {
        let time = self.limits.hold_time();
        let since = self.available_since(connection);
        let end_of_hold = since.zip(time).map_or(Instant::END, |(since, time)| since.after(time));
        if let Some(affinity) = &mut self.affinity {
            // Its place may be in front of those that were passed over.
            affinity.holds.free = NIL;
            affinity.holds.until = affinity.holds.until.min(end_of_hold);
            self.serve_sticky(connection);
        }
    }

    /// A check-out that waits for the connection of its key does so no more.
    pub(super) fn leave_sticky(&mut self, check_out: Key) {
        if let Some(affinity) = &mut self.affinity
            && let Some(connection) = self.wait_queue.awaited(check_out)
            && let Some(pin) = affinity.pins.get_mut(connection as usize)
        {
            self.wait_queue.leave_list(&mut pin.waiters, check_out);
            affinity.sticky -= 1;
            self.renew_attention();
        }
    }

    /// A connection leaves the pool: its keys have none, and those who wait for it wait for any.
    pub(super) fn end_pins(&mut self, connection: Key) {
        self.send_to_queue(connection);
        self.release(connection);
        if let Some(affinity) = &mut self.affinity {
            affinity.unbind_all(connection);
        }
    }

    /// All who wait for the connection of their key wait for any: they are about to fail.
    pub(super) fn end_sticky_waits(&mut self) {
        let connections = self.affinity.as_ref().filter(|affinity| affinity.sticky > 0).map_or(0, |all| all.pins.len());
        for connection in (0..).take(connections) {
            self.send_to_queue(connection);
        }
    }

    /// at the end of the queue.
    fn send_to_queue(&mut self, connection: Key) {
        while let Some(waiter) = self.affinity.as_ref().and_then(|affinity| affinity.first_sticky(connection)) {
            self.leave_sticky(waiter);
            let deadline = self.wait_queue.own_deadline(waiter);
            self.wait_queue.enqueue(waiter, deadline, self.limits.wait_queue_timeout);
        }
    }

    /// Ends the holds whose time has passed.
    pub(super) fn end_holds(&mut self) {
        let Some(time) = self.limits.hold_time() else {
            self.affinity.iter_mut().for_each(|affinity| affinity.holds.until = Instant::END);
            return;
        };
        self.pass_free();
        let mut has_ended = false;
        while let Some((connection, _)) = self.next_hold().filter(|&(_, end)| end <= self.now)
            && let Some(affinity) = &mut self.affinity
        {
            affinity.unbind_all(connection);
            self.pass_free();
            has_ended = true;
        }
        let first = self.next_hold().map_or(Instant::END, |(_, end)| end);
        if let Some(affinity) = &mut self.affinity {
            affinity.holds.until = first.min(self.now.after(time));
        }
        if has_ended {
            self.settle(Due::Queue);
        }
    }

    fn pass_free(&mut self) {
        if let Some(affinity) = &mut self.affinity {
            affinity.pass_free(&self.connections);
        }
    }

    /// When the next hold ends.
    pub(super) fn hold_timeout(&self) -> Option<Timeout> {
        let (_, end) = self.next_hold().filter(|&(_, end)| end != Instant::END)?;
        Some(Timeout { at: end.max(self.now), reason: TimeoutReason::Hold })
    }

    /// Whether keys, connections and those who wait agree.
    pub(super) fn check_affinity(&self) -> Result<(), &'static str> {
        let Some(affinity) = &self.affinity else {
            return if self.limits.affinity.is_none() && self.wait_queue.sticky() == 0 {
                Ok(())
            } else {
                Err("a pool without affinity has what belongs to it")
            };
        };
        if self.limits.affinity.is_none() {
            return Err("a pool has affinity though the option is not set");
        }
        let pins = || (0..).zip(&affinity.pins);
        let bound: usize = pins().map(|(_, pin)| pin.keys.len()).sum();
        let is_bound = |(key, &connection): (&AffinityKey, &Key)| {
            let pin = affinity.pins.get(connection as usize);
            pin.is_some_and(|pin| pin.keys.contains(key))
        };
        if bound != affinity.keys.len() || !affinity.keys.iter().all(is_bound) {
            return Err("a key and its connection do not know each other");
        }
        let mut sticky = 0;
        for (connection, pin) in pins() {
            let stage = self.connections.slots.get(connection as usize).map(|slot| &slot.stage);
            let is_available = matches!(stage, Some(Stage::Available { .. }));
            let is_occupied =
                matches!(stage, Some(Stage::InUse { .. } | Stage::Checking { .. } | Stage::Refreshing { .. }));
            if !pin.keys.is_empty() && !is_available && !is_occupied {
                return Err("a key has a connection that is not established");
            }
            sticky += self.wait_queue.check_list(&pin.waiters, connection)?;
            if !pin.waiters.is_empty() && !is_occupied {
                return Err("a check-out waits for the connection of its key though nobody has it");
            }
        }
        if affinity.holds.free != NIL && !self.connections.is_available(affinity.holds.free) {
            return Err("a connection is passed over that is not available");
        }
        let first = self.connections.least_recent_first(|key| affinity.has_keys(key)).next();
        if self.holds() && first != affinity.first_held(&self.connections) {
            return Err("a held connection is passed over");
        }
        if self.next_hold().is_some_and(|(_, end)| end < affinity.holds.until) {
            return Err("a hold ends earlier than the first that is expected to");
        }
        if sticky != affinity.sticky as usize || sticky != self.wait_queue.sticky() {
            return Err("a check-out waits for no connection that is known");
        }
        Ok(())
    }

    fn own_of(&self, request: &CheckOutRequest) -> Own {
        let Some(key) = request.affinity else { return Own::None };
        let Some(&own) = self.affinity.as_ref().and_then(|affinity| affinity.keys.get(&key)) else { return Own::None };
        let slot = self.connections.slot(own);
        match slot.stage {
            Stage::Available { .. } => match self.perished(own) {
                Some(reason) => Own::Perished(own, reason),
                None if self.needs_check(own) => Own::Unchecked(own),
                None => Own::Ready(own),
            },
            _ if self.limits.affinity == Some(Affinity::Prefer) || self.is_stale_at(own) => Own::None,
            Stage::Checking { .. } | Stage::Refreshing { .. } | Stage::InUse { perished: None, .. } => Own::Busy(own),
            Stage::InUse { .. } | Stage::Closed | Stage::Pending { .. } => Own::None,
        }
    }

    /// A connection is about to be available no more.
    pub(super) fn release(&mut self, connection: Key) {
        if let Some(affinity) = &mut self.affinity {
            affinity.release(connection, &self.connections);
        }
    }

    /// A connection is checked before its delivery.
    pub(super) fn begin_check(&mut self, connection: Key) {
        self.release(connection);
        self.record_idle(connection);
        self.connections.begin_check(&mut self.generations, connection);
        self.end_suspicion(connection);
        let connection = self.handle(connection);
        self.outputs.push_back(Output::Action(Action::Check { connection }));
    }

    fn wait_for(&mut self, connection: Key, check_out: Key, request: CheckOutRequest) {
        let timeout = self.limits.wait_queue_timeout;
        if let Some(affinity) = &mut self.affinity {
            affinity.note_key(check_out, request.affinity);
            let pin = &mut affinity.pins[connection as usize];
            self.wait_queue.enqueue_for(connection, &mut pin.waiters, check_out, request.deadline, timeout);
            affinity.sticky += 1;
            self.renew_attention();
        }
        self.note_waiting();
    }

    fn next_hold(&self) -> Option<(Key, Instant)> {
        let time = self.limits.hold_time()?;
        let first = self.affinity.as_ref()?.first_held(&self.connections)?;
        Some((first, self.available_since(first)?.after(time)))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::time::Duration;

    use super::super::sticky_keys::MOST_KEYS;
    use super::*;
    use crate::address::ServerAddress;
    use crate::options::PoolOptions;
    use crate::pool::{Condition, Handle};

    const NOW: Instant = Instant::ORIGIN;
    const ONE: AffinityKey = AffinityKey(1);
    const TWO: AffinityKey = AffinityKey(2);

    fn pool(affinity: Affinity, max: u32) -> Pool<()> {
        let options = PoolOptions {
            max_pool_size: Some(max),
            max_connecting: Some(10),
            affinity: Some(affinity),
            ..PoolOptions::default()
        };
        let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
        pool.observe(false);
        pool.ready(NOW);
        pool
    }

    /// Asks at `now`, establishes what the pool asks for, and returns the deliveries, in the order of the check-outs' numbers.
    fn ask(pool: &mut Pool<()>, now: Instant, key: impl Into<Option<AffinityKey>>) -> Vec<Handle> {
        let request = CheckOutRequest { affinity: key.into(), ..CheckOutRequest::default() };
        let (_, delivery) = pool.check_out(now, request);
        let mut delivered: Vec<_> = delivery.into_iter().map(|delivery| delivery.connection).collect();
        delivered.extend(carry_out(pool, now));
        delivered
    }

    fn carry_out(pool: &mut Pool<()>, now: Instant) -> Vec<Handle> {
        let mut delivered = Vec::new();
        while let Some(output) = pool.poll_output() {
            match output {
                Output::Action(Action::Connect { connection }) => pool.handle_established(now, connection, ()).unwrap(),
                Output::Action(Action::Deliver { connection, .. }) => delivered.push(connection),
                Output::Action(_) | Output::Event(_) => {}
            }
        }
        assert_eq!(pool.check_invariants(), Ok(()));
        delivered
    }

    /// Gives a connection back; returns the one that is delivered in its place.
    fn give_back(pool: &mut Pool<()>, now: Instant, connection: Handle) -> Option<Handle> {
        let delivery = pool
            .check_in(now, pool.use_of(connection).unwrap().check_out, connection, (), Condition::Usable)
            .unwrap()
            .delivery();
        delivery.map(|delivery| delivery.connection).or_else(|| carry_out(pool, now).pop())
    }

    #[test]
    fn a_key_gets_its_connection_though_another_one_is_hotter() {
        let mut pool = pool(Affinity::Prefer, 2);
        let (first, second) = (ask(&mut pool, NOW, ONE)[0], ask(&mut pool, NOW, TWO)[0]);
        give_back(&mut pool, NOW, first);
        give_back(&mut pool, NOW, second);

        assert_eq!(ask(&mut pool, NOW, ONE), [first]);
    }

    #[test]
    fn a_key_that_prefers_takes_another_connection_and_keeps_that() {
        let mut pool = pool(Affinity::Prefer, 2);
        let first = ask(&mut pool, NOW, ONE)[0];

        let second = ask(&mut pool, NOW, ONE)[0];

        assert_ne!(first, second);
        give_back(&mut pool, NOW, second);
        give_back(&mut pool, NOW, first);
        assert_eq!(ask(&mut pool, NOW, ONE), [second]);
    }

    #[test]
    fn a_new_key_takes_the_least_shared_connection() {
        let mut pool = pool(Affinity::Prefer, 2);
        let (first, second) = (ask(&mut pool, NOW, ONE)[0], ask(&mut pool, NOW, None)[0]);
        give_back(&mut pool, NOW, second);
        give_back(&mut pool, NOW, first);

        assert_eq!(ask(&mut pool, NOW, TWO), [second]);
    }

    #[test]
    fn a_key_that_requires_its_connection_waits_for_it_and_goes_first() {
        let mut pool = pool(Affinity::Require, 2);
        let (first, _other) = (ask(&mut pool, NOW, ONE)[0], ask(&mut pool, NOW, None)[0]);
        ask(&mut pool, NOW, None);
        let (sticky, _) = pool.check_out(NOW, CheckOutRequest::default().affinity(ONE));
        assert_eq!(pool.counts().waiting, 2);

        let checked_in =
            pool.check_in(NOW, pool.use_of(first).unwrap().check_out, first, (), Condition::Usable).unwrap();

        assert_eq!(
            checked_in.delivery().map(|delivery| (delivery.check_out, delivery.connection)),
            Some((sticky, first))
        );
    }

    #[test]
    fn one_that_waits_joins_the_queue_if_its_connection_is_closed() {
        let mut pool = pool(Affinity::Require, 1);
        let first = ask(&mut pool, NOW, ONE)[0];
        assert_eq!(ask(&mut pool, NOW, ONE), []);

        let _ = pool.check_in(NOW, pool.use_of(first).unwrap().check_out, first, (), Condition::Errored).unwrap();

        let second = carry_out(&mut pool, NOW);
        assert_eq!((second.len(), pool.counts().waiting), (1, 0));
        assert_ne!(second, [first]);
    }

    #[test]
    fn a_held_connection_is_for_its_key_alone_until_its_time_is_over() {
        let mut pool = pool(Affinity::Hold { time: Duration::from_millis(10), lend: false }, 1);
        let first = ask(&mut pool, NOW, ONE)[0];
        give_back(&mut pool, NOW, first);
        assert_eq!(ask(&mut pool, NOW, TWO), []);
        let timeout = Timeout { at: Instant::from_millis(10), reason: TimeoutReason::Hold };
        assert_eq!((pool.poll_timeout(), pool.counts().available), (Some(timeout), 1));

        pool.handle_timeout(timeout.at);

        assert_eq!(carry_out(&mut pool, timeout.at), [first]);
        assert_eq!((pool.is_bound(ONE), pool.is_bound(TWO)), (false, true));
    }

    #[test]
    fn a_held_connection_is_lent_and_comes_back_to_its_key() {
        let mut pool = pool(Affinity::Hold { time: Duration::from_millis(10), lend: true }, 1);
        let first = ask(&mut pool, NOW, ONE)[0];
        give_back(&mut pool, NOW, first);

        assert_eq!(ask(&mut pool, NOW, None), [first]);

        ask(&mut pool, NOW, None);
        let (sticky, _) = pool.check_out(NOW, CheckOutRequest::default().affinity(ONE));
        let delivery =
            pool.check_in(NOW, pool.use_of(first).unwrap().check_out, first, (), Condition::Usable).unwrap().delivery();
        assert_eq!(delivery.map(|delivery| delivery.check_out), Some(sticky));
    }

    #[test]
    fn an_ended_key_lets_go_of_its_connection() {
        let mut pool = pool(Affinity::Hold { time: Duration::from_millis(10), lend: false }, 1);
        let first = ask(&mut pool, NOW, ONE)[0];
        give_back(&mut pool, NOW, first);
        ask(&mut pool, NOW, None);

        pool.end_affinity(NOW, ONE);

        assert_eq!(carry_out(&mut pool, NOW), [first]);
    }

    #[test]
    fn the_oldest_of_keys_that_nobody_ends_are_forgotten() {
        const KEYS: u64 = 10_000;
        let mut pool = pool(Affinity::Prefer, 1);
        for key in 0..KEYS {
            let connection = ask(&mut pool, NOW, AffinityKey(key))[0];
            give_back(&mut pool, NOW, connection);
        }

        assert_eq!(pool.affinity.as_ref().map(|affinity| affinity.keys.len()), Some(MOST_KEYS));
        assert!((KEYS - MOST_KEYS as u64..KEYS).all(|key| pool.is_bound(AffinityKey(key))));
    }
}
