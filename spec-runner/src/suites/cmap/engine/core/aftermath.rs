//! After a test: the pool is closed, everything is returned, and nothing may remain.
//!
//! An official case compares only the beginning of a run; by itself it would let a toy pass. These checks hold for every
//! pool after every test.

use core::time::Duration;

use cmap_core::pool::{Condition, Counts, Pool};
use cmap_core::topology::Topology;
use serde_json::Value;

use super::super::balance::imbalances;
use super::simulation::News;
use super::{MOST_MOVES, Session};

/// How much time establishments get to end by themselves before they are broken off.
const PATIENCE: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// Closes the pool, returns everything, waits for the rest, and notes what is left.
    pub(super) fn settle(&mut self) {
        self.simulation.call(Topology::close);
        for (connection, check_out) in std::mem::take(&mut self.held) {
            if let Err(refused) = self.simulation.check_in(check_out, connection, Condition::Usable) {
                self.violation(format!("the last check-in of connection {}: {refused}", connection.id()));
            }
        }
        let deadline = self.simulation.now() + PATIENCE;
        for _ in 0..MOST_MOVES {
            if self.simulation.pool().counts().pending == 0 {
                break;
            }
            match self.simulation.next_at().filter(|&at| at <= deadline) {
                Some(next) => self.simulation.wait_until(next),
                None => self.simulation.abandon_establishments(),
            }
            self.simulation.step();
        }
        self.look_at_what_is_left();
    }

    fn look_at_what_is_left(&mut self) {
        let stats = self.simulation.stats();
        let counts = stats.counts;
        let timeout = self.simulation.pools().find_map(Pool::poll_timeout);
        let invariants = self.simulation.pools().try_for_each(Pool::check_invariants);
        if counts != Counts::default() {
            self.violation(format!("after the end there are still {counts}"));
        }
        if let Err(broken) = invariants {
            self.violation(broken);
        }
        if let Some(timeout) = timeout {
            self.violation(format!("after the end the pool still wants to be called: {:?}", timeout.reason));
        }
        if stats.created != stats.closed.total() {
            self.violation(format!("{} connections were created, {} closed", stats.created, stats.closed.total()));
        }
        self.check_balance();
    }

    /// Whether every beginning among the events has its end.
    fn check_balance(&mut self) {
        let mut tail = Vec::new();
        while let Some(news) = self.simulation.poll_news() {
            if let News::Event(event) = news {
                tail.push(event);
            }
        }
        let told = |name: &str| {
            let earlier =
                self.run.events.iter().filter(|event| event.get("type").and_then(Value::as_str) == Some(name));
            earlier.count() + tail.iter().filter(|event| event.name() == name).count()
        };
        let imbalances = imbalances(told);
        self.run.violations.extend(imbalances);
    }
}
