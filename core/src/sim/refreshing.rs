//! The pings on connections that have been idle for long, in virtual time.

use alloc::format;
use core::time::Duration;

use super::fail_point::Outcome;
use super::network::NetworkMode;
use super::simulation::{Happening, Simulation};
use crate::connection::Fault;
use crate::pool::{Cause, Handle};
use crate::server::OperationError;

impl Simulation {
    /// Sends a ping; its end comes later.
    pub(super) fn refresh(&mut self, connection: Handle, timeout: Duration) {
        self.refreshing.insert(connection);
        let too_late =
            OperationError::new(Fault::Timeout, Cause::new("the server did not answer within refreshTimeout"));
        self.later(timeout, Happening::Refreshed { connection, outcome: Err(too_late) });
        let round_trip = self.network.round_trip(&mut self.random);
        let lost = || Err(OperationError::new(Fault::Network, Cause::new("the connection was lost")));
        let (after, outcome) = match self.network.mode {
            NetworkMode::Up if self.hung_up.contains(&connection) => (round_trip, lost()),
            NetworkMode::Up => {
                let effect = self.virtual_server.receive("ping");
                let outcome = match effect.outcome {
                    Outcome::Proceed => Ok(()),
                    Outcome::CloseConnection => lost(),
                    Outcome::Error { code, .. } => {
                        let cause = Cause::new(&format!("the server answered with error {code}"));
                        Err(OperationError::new(Fault::Server { code: Some(code) }, cause))
                    }
                };
                (round_trip.saturating_add(effect.delay), outcome)
            }
            NetworkMode::Refuse | NetworkMode::Reset => (round_trip, lost()),
            NetworkMode::Hang => return,
        };
        self.later(after, Happening::Refreshed { connection, outcome });
    }

    /// A ping has ended, if it is still of interest.
    pub(super) fn end_refresh(&mut self, connection: Handle, outcome: Result<(), OperationError>) {
        if !self.refreshing.remove(&connection) {
            return;
        }
        match outcome {
            Ok(()) => {
                let refused = self.call(|topology, now| topology.handle_refreshed(now, connection, ()));
                debug_assert_eq!(refused, Ok(()));
            }
            Err(error) => {
                let misuse = self.call(|topology, now| topology.handle_refresh_failed(now, connection, error));
                debug_assert_eq!(misuse, Ok(()));
            }
        }
    }

    /// Gives up every ping, as an adapter does when its pool is closed.
    pub(super) fn abandon_refreshes(&mut self) {
        while let Some(&connection) = self.refreshing.first() {
            self.end_refresh(connection, Err(OperationError::new(Fault::Other, Cause::new("the pool was closed"))));
        }
    }
}
