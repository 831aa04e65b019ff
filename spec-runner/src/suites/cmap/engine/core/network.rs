//! What the network and the server do to connections that are being established or refreshed.
//!
//! Establishing takes the steps of the real protocol: connect, hello, and with authentication saslStart and
//! saslContinue. Each of them can be slow, fail or hang.

use core::time::Duration;

use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::pool::{Cause, ConnectionId, Handle, IdentityId, ServiceId};
use cmap_core::random::Random;
use cmap_core::server::OperationError;
use cmap_test_server::fail_command::{Effect, FailCommand, Fate};

use super::simulation::Simulation;
use crate::suites::cmap::format::NetworkMode;

/// The way to the server.
#[derive(Clone, Debug)]
pub(super) struct Network {
    /// How it treats new connections and what is sent on them.
    pub(super) mode: NetworkMode,
    /// The shortest time of a round trip.
    pub(super) latency: Duration,
    /// The most that chance adds to it.
    pub(super) jitter: Duration,
}

/// The server at the other end, reduced to what connections notice.
#[derive(Clone, Debug, Default)]
pub(super) struct VirtualServer {
    pub(super) fail_point: FailCommand,
    /// Whether clients authenticate.
    pub(super) auth: bool,
    /// The users beside that of the options whose logins it refuses.
    pub(super) refused: Vec<IdentityId>,
    /// The services behind it, if it is a load balancer; connections reach them in turn.
    pub(super) service_ids: Vec<ServiceId>,
    /// The application name that clients give.
    pub(super) app_name: Option<String>,
}

/// An event of a connection that is being established or refreshed.
pub(super) enum Happening {
    /// The step that was under way has ended.
    Step { connection: Handle, step: Step, fate: Fate },
    /// The connection was refused.
    Refused { connection: Handle },
    /// connectTimeoutMS is over.
    TimedOut { connection: Handle },
    /// A ping has ended, or has taken too long.
    Refreshed { connection: Handle, outcome: Result<(), OperationError> },
}

/// The steps of establishment.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Connect,
    Hello,
    SaslStart,
    SaslContinue,
}

impl Network {
    /// The time of one round trip.
    fn round_trip(&self, random: &mut Random) -> Duration {
        let jitter = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_add(Duration::from_nanos(random.up_to(jitter)))
    }
}

impl VirtualServer {
    /// The effect of the server's fail point on `command`.
    fn receive(&mut self, command: &str) -> Effect {
        self.fail_point.hit(command, self.app_name.as_deref())
    }

    /// The service that a connection reaches, in turn; none without a load balancer.
    fn service_of(&self, connection: ConnectionId) -> Option<ServiceId> {
        let count = self.service_ids.len() as u64;
        let turn = connection.get().checked_sub(1)?.checked_rem(count)?;
        self.service_ids.get(usize::try_from(turn).ok()?).copied()
    }
}

impl Simulation {
    /// Begins to establish a connection.
    pub(super) fn connect(&mut self, connection: Handle) {
        self.establishing.insert(connection, Phase::Connect);
        if self.connect_timeout > Duration::ZERO {
            self.later(self.connect_timeout, Happening::TimedOut { connection });
        }
        let round_trip = self.network.round_trip(&mut self.random);
        match self.network.mode {
            NetworkMode::Up | NetworkMode::Reset => {
                self.later(round_trip, Happening::Step { connection, step: Step::Connect, fate: Fate::Proceed });
            }
            NetworkMode::Refuse => self.later(round_trip, Happening::Refused { connection }),
            NetworkMode::Hang => {}
        }
    }

    /// Sends a ping on a connection that has been idle for long; its end comes later.
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
                let outcome = match effect.fate {
                    Fate::Proceed => Ok(()),
                    Fate::CloseConnection => lost(),
                    Fate::Error { code, .. } => {
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

    /// Gives up an establishment, unless its end races the interruption and is reported all the same. No operation of a
    /// test could be broken off.
    pub(super) fn interrupt(&mut self, connection: Handle) {
        let was_refreshing = self.refreshing.remove(&connection);
        if !was_refreshing && self.establishing.contains_key(&connection) && self.random.up_to(1) == 0 {
            self.establishing.remove(&connection);
        }
    }

    /// Gives up every establishment and every ping that is still going on, as an adapter does when its pool has been
    /// closed for long.
    pub(super) fn abandon_establishments(&mut self) {
        for (connection, phase) in std::mem::take(&mut self.establishing) {
            self.fail_with(connection, EstablishError::new(phase, Fault::Other, "the pool was closed"));
        }
        while let Some(&connection) = self.refreshing.first() {
            let closed = OperationError::new(Fault::Other, Cause::new("the pool was closed"));
            self.end_refresh(connection, Err(closed));
        }
    }

    pub(super) fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step { connection, step, fate } => {
                if let Some(&phase) = self.establishing.get(&connection) {
                    self.end_step(connection, step, phase, fate);
                }
            }
            Happening::Refused { connection } => self.fail(connection, Fault::Network, "the connection was refused"),
            Happening::Refreshed { connection, outcome } => self.end_refresh(connection, outcome),
            Happening::TimedOut { connection } => {
                self.fail(connection, Fault::Timeout, "the server did not answer within connectTimeoutMS");
            }
        }
    }

    fn end_step(&mut self, connection: Handle, step: Step, phase: Phase, fate: Fate) {
        match fate {
            Fate::Proceed => {}
            Fate::CloseConnection => {
                return self.fail(connection, Fault::Network, "the server closed the connection");
            }
            Fate::Error { code, labels } => {
                let message = format!("the server answered with error {code}");
                let error = EstablishError::new(phase, Fault::Server { code: Some(code) }, message);
                return self.fail_with(connection, error.with_server_labels(labels.unwrap_or_default()));
            }
        }
        match step {
            Step::Connect => self.send(connection, Phase::Hello, Step::Hello),
            Step::Hello => {
                if self.pool().options().load_balanced && !self.reach_service(connection) {
                    return;
                }
                if self.virtual_server.auth {
                    self.send(connection, Phase::Authenticate, Step::SaslStart);
                } else {
                    self.establish(connection);
                }
            }
            Step::SaslStart if self.is_refused(connection) => {
                let error = EstablishError::new(phase, Fault::Server { code: Some(18) }, "Authentication failed.");
                self.fail_with(connection, error);
            }
            Step::SaslStart => self.send(connection, Phase::Authenticate, Step::SaslContinue),
            Step::SaslContinue => self.establish(connection),
        }
    }

    /// Tells the service that a connection reached. Without one it fails, and the result is false (LB-6).
    fn reach_service(&mut self, connection: Handle) -> bool {
        let Some(service_id) = self.virtual_server.service_of(connection.id()) else {
            let message = "Driver attempted to initialize in load balancing mode, but the server does not support this \
                           mode.";
            self.fail(connection, Fault::Other, message);
            return false;
        };
        let description = (**self.server().description()).clone();
        let misuse = self.call(|topology, now| topology.handle_hello(now, connection, Some(service_id), description));
        debug_assert_eq!(misuse, Ok(()));
        true
    }

    /// Whether the server refuses the login of the connection's user.
    fn is_refused(&self, connection: Handle) -> bool {
        let user = self.topology().identity_of(connection);
        user.is_some_and(|user| self.virtual_server.refused.contains(&user))
    }

    /// Sends the command of `step`; its reply comes later, or never.
    fn send(&mut self, connection: Handle, phase: Phase, step: Step) {
        self.establishing.insert(connection, phase);
        let command = match step {
            Step::Connect | Step::Hello => "hello",
            Step::SaslStart => "saslStart",
            Step::SaslContinue => "saslContinue",
        };
        let round_trip = self.network.round_trip(&mut self.random);
        let (after, fate) = match self.network.mode {
            NetworkMode::Up => {
                let Effect { delay, fate, .. } = self.virtual_server.receive(command);
                (round_trip.saturating_add(delay), fate)
            }
            NetworkMode::Refuse | NetworkMode::Reset => (round_trip, Fate::CloseConnection),
            NetworkMode::Hang => return,
        };
        self.later(after, Happening::Step { connection, step, fate });
    }

    fn establish(&mut self, connection: Handle) {
        self.establishing.remove(&connection);
        let refused = self.call(|topology, now| topology.handle_established(now, connection, ()));
        debug_assert_eq!(refused, Ok(()));
    }

    fn fail(&mut self, connection: Handle, fault: Fault, message: &str) {
        if let Some(&phase) = self.establishing.get(&connection) {
            self.fail_with(connection, EstablishError::new(phase, fault, message));
        }
    }

    fn fail_with(&mut self, connection: Handle, error: EstablishError) {
        self.establishing.remove(&connection);
        let misuse = self.call(|topology, now| topology.handle_establish_failed(now, connection, error));
        debug_assert_eq!(misuse, Ok(()));
    }

    /// A ping has ended, if it is still of interest.
    fn end_refresh(&mut self, connection: Handle, outcome: Result<(), OperationError>) {
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
}
