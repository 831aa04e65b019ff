//! A connection keeps its own socket, and a socket is closed once.

use std::collections::BTreeSet;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, Cause, CheckOutId, CheckOutRequest, Clear, Condition, Delivery, Handle, Output, Pool};
use cmap_core::time::Instant;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A pool whose sockets have the numbers of their connections.
struct Driver {
    pool: Pool<u64>,
    now: Instant,
    pending: Vec<Handle>,
    in_use: Vec<(CheckOutId, Handle)>,
    closed: BTreeSet<u64>,
}

impl Driver {
    fn new() -> Self {
        let mut options = PoolOptions::default();
        options.max_pool_size = Some(4);
        options.min_pool_size = Some(1);
        options.max_idle_time = Some(Duration::from_secs(5));
        options.refresh_requirement = Some(Duration::from_secs(2));
        let now = Instant::ORIGIN;
        let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, now).unwrap();
        pool.ready(now);
        Self { pool, now, pending: Vec::new(), in_use: Vec::new(), closed: BTreeSet::new() }
    }

    fn step(&mut self, step: u8, which: Index) {
        let now = self.now;
        match step {
            0..=2 => {
                let (_, delivery) = self.pool.check_out(now, CheckOutRequest::default());
                self.take(delivery);
            }
            3..=4 if !self.pending.is_empty() => {
                let connection = self.pending.swap_remove(which.index(self.pending.len()));
                self.pool.handle_established(now, connection, connection.id().get()).unwrap();
            }
            5..=7 if !self.in_use.is_empty() => {
                let (check_out, connection) = self.in_use.swap_remove(which.index(self.in_use.len()));
                let condition = if step == 7 { Condition::Errored } else { Condition::Usable };
                let checked_in =
                    self.pool.check_in(now, check_out, connection, connection.id().get(), condition).unwrap();
                self.take(checked_in.delivery());
            }
            8 => {
                let clear = Clear::pool(Cause::new("cleared"));
                self.pool.clear(now, if which.index(2) == 0 { clear } else { clear.interrupting() }).unwrap();
                self.pool.ready(now);
            }
            _ => {
                self.now = now + Duration::from_millis(1 + which.index(3_000) as u64);
                self.pool.handle_timeout(self.now);
            }
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.pool.poll_output() {
            let Output::Action(action) = output else { continue };
            match action {
                Action::Connect { connection } => self.pending.push(connection),
                Action::Check { connection } => self.pool.handle_checked(self.now, connection, true).unwrap(),
                Action::Refresh { connection, socket, .. } => {
                    self.see(connection, socket);
                    self.pool.handle_refreshed(self.now, connection, socket).unwrap();
                }
                Action::Deliver { check_out, connection, socket } => {
                    self.take(Some(Delivery { check_out, connection, socket }));
                }
                Action::Close { connection, socket, .. } => {
                    self.see(connection, socket);
                    self.closed.insert(socket);
                }
                Action::Interrupt { connection } => self.pending.retain(|&pending| pending != connection),
                Action::Fail { .. } | Action::WarmedUp { .. } => {}
            }
        }
    }

    fn take(&mut self, delivery: Option<Delivery<u64>>) {
        let Some(Delivery { check_out, connection, socket }) = delivery else { return };
        self.see(connection, socket);
        self.in_use.push((check_out, connection));
    }

    fn see(&self, connection: Handle, socket: u64) {
        assert_eq!(socket, connection.id().get(), "a connection has another's socket");
        assert!(!self.closed.contains(&socket), "a socket is used after its end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_called_a_connection_comes_with_its_own_socket(
        steps in vec((0_u8..10, any::<Index>()), 0..200),
    ) {
        let mut driver = Driver::new();
        for (step, which) in steps {
            driver.step(step, which);
        }
    }
}
