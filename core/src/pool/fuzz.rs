//! One fuzz target: the input is a script of calls, and the pool must keep its promises to the caller.
//!
//! The property test predicts every output by a reference model. This target checks only what always holds, so it runs
//! millions of scripts in a minute.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::{
    Action, AffinityKey, Cancellation, Cause, CheckOutId, CheckOutRequest, Clear, Condition, ConnectionId, Delivery,
    Handle, Output, Pool, Reaction, ServiceId, WarmUpId,
};
use crate::address::ServerAddress;
use crate::connection::{EstablishError, Fault, Phase};
use crate::options::{Affinity, PoolLimits, PoolOptions, PoolSizes, Profile, QueueDepth, Reuse, WaitOrder};
use crate::time::Instant;

/// A pool, and everything its driver holds.
struct Driver {
    pool: Pool<u64>,
    now: Instant,
    waiting: BTreeSet<CheckOutId>,
    in_use: BTreeMap<ConnectionId, (Handle, u64)>,
    pending: Vec<Handle>,
    checking: Vec<Handle>,
    warming: BTreeSet<WarmUpId>,
    refreshing: Vec<(Handle, u64)>,
    sockets: u64,
    closed: BTreeSet<u64>,
}

/// Runs one script. The first bytes choose the pool's options, each pair that follows is a call and its argument.
///
/// # Panics
///
/// If a property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let Some((&[size, least, connecting, timeout], script)) = data.split_first_chunk() else { return };
    let options = PoolOptions {
        max_pool_size: Some(u32::from(size % 4)),
        min_pool_size: Some(u32::from(least % 3)),
        max_connecting: Some(u32::from(connecting % 3) + 1),
        wait_queue_timeout: (timeout % 2 == 1).then(|| Duration::from_millis(timeout.into())),
        max_idle_time: (timeout % 3 == 1).then(|| Duration::from_secs(2)),
        host_timeout: (timeout % 5 == 1).then(|| Duration::from_secs(5)),
        load_balanced: timeout >= 128,
        max_wait_queue_depth: (size >= 192).then(|| QueueDepth::Waiters(u32::from(size % 8) + 1)),
        wait_order: (least >= 128 && timeout / 16 % 8 != 7).then_some(WaitOrder::Deadline),
        reuse: [None, Some(Reuse::FirstIn), Some(Reuse::Random), None][usize::from(connecting / 64)],
        max_new_connections_per_second: (connecting >= 192).then_some(100),
        affinity: match timeout / 16 % 8 {
            1 => Some(Affinity::Prefer),
            3 => Some(Affinity::Require),
            5 | 7 => Some(Affinity::Hold { time: Duration::from_millis(500), lend: timeout / 16 % 8 == 7 }),
            _ => None,
        },
        refresh_requirement: (timeout % 7 == 1).then(|| Duration::from_secs(1)),
        // Not with a load balancer, which that edition does not know.
        profile: if timeout < 128 && timeout % 11 == 1 { Profile::Cmap1_1 } else { Profile::Current },
        ..PoolOptions::default()
    };
    let Ok(pool) = Pool::new(ServerAddress::tcp("db.example", 27017), options, Instant::ORIGIN) else { return };
    let mut driver = Driver {
        pool,
        now: Instant::ORIGIN,
        waiting: BTreeSet::new(),
        in_use: BTreeMap::new(),
        pending: Vec::new(),
        checking: Vec::new(),
        warming: BTreeSet::new(),
        refreshing: Vec::new(),
        sockets: 0,
        closed: BTreeSet::new(),
    };
    for call in script.chunks_exact(2).take(1000) {
        driver.call(call[0] % 16, call[1]);
        driver.drain();
    }
    driver.finish();
}

impl Driver {
    fn call(&mut self, call: u8, argument: u8) {
        let now = self.now;
        let service = ServiceId([argument % 2; 12]);
        match call {
            0..=2 => {
                let deadline = (argument >= 192).then(|| now + Duration::from_millis(argument.into()));
                let affinity = (!argument.is_multiple_of(3)).then_some(AffinityKey((argument % 8).into()));
                let request = CheckOutRequest { deadline, affinity, ..CheckOutRequest::default() };
                let (id, delivery) = self.pool.check_out(now, request);
                assert!(self.waiting.insert(id), "a check-out's id was used before");
                self.take(delivery);
            }
            3 => {
                let Some(&id) = nth(self.waiting.iter(), argument) else { return };
                let met = self.pool.cancel_check_out(now, id);
                assert_eq!(met, Cancellation::Cancelled, "a check-out that waits can be cancelled");
                self.waiting.remove(&id);
            }
            4..=6 => {
                let Some(&(handle, socket)) = nth(self.in_use.values(), argument) else { return };
                self.in_use.remove(&handle.id());
                let condition = if argument < 64 { Condition::Errored } else { Condition::Usable };
                // After a fork no caller is expected to return a connection: then the socket comes back.
                match self.pool.check_in(now, handle, socket, condition) {
                    Ok(checked_in) => self.take(checked_in.delivery()),
                    Err(refused) => assert_eq!(refused.socket, socket, "another socket came back"),
                }
            }
            7 | 8 => {
                let Some(handle) = take(&mut self.pending, argument) else { return };
                if self.pool.options().load_balanced {
                    let _ = self.pool.handle_hello(now, handle, service);
                }
                self.sockets += 1;
                let established = self.pool.handle_established(now, handle, self.sockets);
                assert!(established.is_ok(), "a pending connection cannot be established: {established:?}");
            }
            9 => {
                let Some(handle) = take(&mut self.pending, argument) else { return };
                let error = EstablishError::new(Phase::Authenticate, Fault::Other, "refused");
                let reaction = if argument.is_multiple_of(2) { Reaction::KeepPool } else { Reaction::ClearPool };
                let failed = self.pool.handle_establish_failed(now, handle, error, reaction);
                assert_eq!(failed, Ok(()), "a pending connection cannot fail");
            }
            10 => {
                let Some(handle) = take(&mut self.checking, argument) else { return };
                // It may have been closed, which makes its handle void.
                let _ = self.pool.handle_checked(now, handle, argument.is_multiple_of(2));
            }
            11 => self.pool.ready(now),
            12 => {
                let cause = Cause::new("cleared");
                let balanced = self.pool.options().load_balanced;
                let clear = if balanced { Clear::service(service, cause) } else { Clear::pool(cause) };
                let clear = if argument >= 128 { clear.interrupting() } else { clear };
                assert_eq!(self.pool.clear(now, clear), Ok(()));
            }
            13 => {
                self.now = now + Duration::from_millis(u64::from(argument) * 10);
                self.pool.handle_timeout(self.now);
            }
            14 => {
                let Some(&(handle, _)) = nth(self.in_use.values(), argument) else { return };
                let _ = self.pool.handle_peer_closed(now, handle);
            }
            _ if argument == 0 => self.pool.close(now),
            _ if argument == 1 => self.pool.reset_after_fork(now),
            _ if argument == 2 => self.pool.resume(now),
            _ if (128..160).contains(&argument) => self.end_refresh(argument),
            // Limits that contradict each other are refused.
            _ if argument < 32 => {
                let _ = self.pool.resize(now, limits(argument));
            }
            _ if argument < 40 => self.pool.end_affinity(now, AffinityKey((argument % 8).into())),
            _ if argument < 48 => {
                let warm_up = self.pool.warm_up(now, Some((argument % 4).into()));
                self.warming.insert(warm_up);
            }
            _ if argument < 52 => {
                if let Some(&warm_up) = nth(self.warming.iter(), argument)
                    && self.pool.cancel_warm_up(now, warm_up).is_some()
                {
                    self.warming.remove(&warm_up);
                }
            }
            _ => self.pool.handle_timeout(now),
        }
    }

    /// A ping has ended, well or not.
    fn end_refresh(&mut self, argument: u8) {
        let Some((handle, socket)) = take(&mut self.refreshing, argument) else { return };
        if argument.is_multiple_of(2) {
            let refreshed = self.pool.handle_refreshed(self.now, handle, socket);
            assert!(refreshed.is_ok(), "a connection that is refreshed does not come back: {refreshed:?}");
        } else {
            assert_eq!(self.pool.handle_refresh_failed(self.now, handle), Ok(()), "its failure is not taken");
        }
    }

    /// Carries out the outputs, comes back when the pool asks for it, and checks the invariants.
    fn drain(&mut self) {
        self.carry_out();
        if self.pool.poll_timeout().is_some_and(|timeout| timeout.at <= self.now) {
            self.pool.handle_timeout(self.now);
            self.carry_out();
        }
        assert!(self.pool.poll_timeout().is_none_or(|timeout| timeout.at > self.now), "a timer spins");
        assert_eq!(self.pool.check_invariants(), Ok(()));
        let counts = self.pool.counts();
        assert_eq!(counts.waiting as usize, self.waiting.len(), "a check-out was lost");
        assert_eq!(counts.pending as usize, self.pending.len(), "an establishment was lost");
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.pool.poll_output() {
            let Output::Action(action) = output else { continue };
            match action {
                Action::Connect { connection } => self.pending.push(connection),
                Action::Check { connection } => self.checking.push(connection),
                Action::Refresh { connection, socket, .. } => self.refreshing.push((connection, socket)),
                Action::Deliver { check_out, connection, socket } => {
                    self.take(Some(Delivery { check_out, connection, socket }));
                }
                Action::Fail { check_out, .. } => {
                    assert!(self.waiting.remove(&check_out), "a check-out fails that does not wait");
                }
                Action::Close { socket, .. } => {
                    assert!(self.closed.insert(socket), "a socket is closed twice");
                }
                Action::Interrupt { connection } => self.pending.retain(|&pending| pending != connection),
                Action::WarmedUp { warm_up, .. } => {
                    assert!(self.warming.remove(&warm_up), "a warm-up ends that was not begun, or twice");
                }
            }
        }
    }

    /// A caller gets its connection.
    fn take(&mut self, delivery: Option<Delivery<u64>>) {
        let Some(Delivery { check_out, connection, socket }) = delivery else { return };
        assert!(self.waiting.remove(&check_out), "a check-out is served that does not wait");
        assert!(!self.closed.contains(&socket), "a closed socket is delivered");
        assert!(!self.pool.is_stale(connection), "a stale connection is delivered");
        let other = self.in_use.insert(connection.id(), (connection, socket));
        assert_eq!(other, None, "a connection is delivered twice");
    }

    /// In the end every connection comes back, and nothing is left.
    fn finish(&mut self) {
        self.pool.close(self.now);
        self.drain();
        for handle in core::mem::take(&mut self.pending) {
            let error = EstablishError::new(Phase::Connect, Fault::Network, "the end");
            let failed = self.pool.handle_establish_failed(self.now, handle, error, Reaction::KeepPool);
            assert_eq!(failed, Ok(()));
        }
        for handle in core::mem::take(&mut self.checking) {
            let _ = self.pool.handle_checked(self.now, handle, true);
        }
        while !self.refreshing.is_empty() {
            self.end_refresh(2);
        }
        for (_, (handle, socket)) in core::mem::take(&mut self.in_use) {
            let _ = self.pool.check_in(self.now, handle, socket, Condition::Usable);
        }
        self.drain();
        let counts = self.pool.counts();
        assert!(self.warming.is_empty(), "a warm-up was lost");
        let left = (counts.pending, counts.available, counts.in_use, counts.waiting);
        assert_eq!(left, (0, 0, 0, 0), "something is left");
        assert_eq!(self.pool.poll_timeout(), None, "a closed pool waits for nothing");
    }
}

fn nth<T>(mut of: impl ExactSizeIterator<Item = T>, argument: u8) -> Option<T> {
    let length = of.len();
    if length == 0 { None } else { of.nth(usize::from(argument) % length) }
}

fn take<T>(from: &mut Vec<T>, argument: u8) -> Option<T> {
    if from.is_empty() { None } else { Some(from.swap_remove(usize::from(argument) % from.len())) }
}

/// A size, and in half of the cases the queue's depth or the rate of new connections, or no such limit.
fn limits(argument: u8) -> PoolLimits {
    let limits = PoolLimits::from(PoolSizes::default().max_pool_size(u32::from(argument % 4)));
    match argument / 4 % 8 {
        0 => limits.max_wait_queue_depth(QueueDepth::Waiters(1)),
        1 => limits.max_wait_queue_depth(None),
        2 => limits.max_new_connections_per_second(20),
        3 => limits.max_new_connections_per_second(None),
        _ => limits,
    }
}
