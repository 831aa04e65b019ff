//! The state of a running pool without its sockets, which a file can hold.

use alloc::sync::Arc;

use super::Pool;
use super::output::{Action, Delivery, Output};

impl<C> Pool<C> {
    /// A copy without the sockets. Given the same calls it has the same outputs.
    pub fn snapshot(&self) -> Pool<()> {
        Pool {
            id: self.id,
            address: Arc::clone(&self.address),
            options: self.options.clone(),
            limits: self.limits.clone(),
            state: self.state,
            paused_by: self.paused_by.clone(),
            paused_since: self.paused_since,
            now: self.now,
            last_maintenance: self.last_maintenance,
            population_failed: self.population_failed,
            admission: self.admission.clone(),
            retirement: self.retirement.clone(),
            affinity: self.affinity.clone(),
            refresh: self.refresh.clone(),
            suspects: self.suspects.clone(),
            random: self.random.clone(),
            generations: self.generations.clone(),
            outdated_until: self.outdated_until,
            connections: self.connections.snapshot(),
            wait_queue: self.wait_queue.clone(),
            outputs: self.outputs.iter().map(Output::snapshot).collect(),
            observed: self.observed,
            attention: self.attention,
            share: self.share,
            host_use: self.host_use,
            warm_ups: self.warm_ups.clone(),
            totals: self.totals,
            durations: self.durations.clone(),
        }
    }
}

impl<C> Output<C> {
    /// The output without its socket.
    pub fn snapshot(&self) -> Output<()> {
        match self {
            Self::Action(action) => Output::Action(action.snapshot()),
            Self::Event(event) => Output::Event(event.clone()),
        }
    }
}

impl<C> Action<C> {
    fn snapshot(&self) -> Action<()> {
        match self {
            Self::Connect { connection } => Action::Connect { connection: *connection },
            Self::Check { connection } => Action::Check { connection: *connection },
            Self::Refresh { connection, timeout, .. } => {
                Action::Refresh { connection: *connection, socket: (), timeout: *timeout }
            }
            Self::Deliver { check_out, connection, .. } => {
                Action::Deliver { check_out: *check_out, connection: *connection, socket: () }
            }
            Self::Fail { check_out, error } => Action::Fail { check_out: *check_out, error: Arc::clone(error) },
            Self::Close { connection, reason, .. } => {
                Action::Close { connection: *connection, socket: (), reason: *reason }
            }
            Self::Interrupt { connection } => Action::Interrupt { connection: *connection },
            Self::WarmedUp { warm_up, result } => Action::WarmedUp { warm_up: *warm_up, result: result.clone() },
        }
    }
}

impl<C> Delivery<C> {
    /// The delivery without its socket.
    pub fn snapshot(&self) -> Delivery<()> {
        Delivery { check_out: self.check_out, connection: self.connection, socket: () }
    }
}
