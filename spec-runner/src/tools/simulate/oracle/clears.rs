//! Which failures clear pools, and which clear none (SDAM-4 to SDAM-15, LB-8 to LB-11): a table.
//!
//! | failure | without a load balancer | behind one |
//! |---|---|---|
//! | of a connection that is stale, or that its pool has given up | | |
//! | establishing: in connecting or in hello | | |
//! | establishing: an old credential is refused, or any while there are identities | | |
//! | establishing: another credential is refused | the pools of the server | |
//! | operation: network error | the pools of the server | its service |
//! | operation: time-out, overload | | |
//! | operation: no writable primary | | |
//! | operation: shutting down | the pools of the server | its service |
//! | check: any | the pools of the server | |

use cmap_core::pool::{Handle, ServiceId};
use cmap_core::server::ServerId;

use super::super::step::{Establishment, FaultKind};
use super::{Broken, Oracle, law};

/// What a call has to clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Clears {
    #[default]
    Nothing,
    /// The pools of a server, as far as they are ready.
    Server(ServerId),
    /// The part of a service in the pool at this place.
    Service { place: usize, service: ServiceId, is_seen: bool },
}

impl Oracle {
    // What the driver does.

    /// An operation on a connection has failed so.
    pub(in super::super) fn operation_failed(&mut self, connection: Handle, fault: FaultKind) {
        let Some(known) = self.connections.find(connection).filter(|known| !known.is_stale) else { return };
        let (place, service) = (known.pool, known.service);
        let clears = match fault {
            FaultKind::Network | FaultKind::ShuttingDown => true,
            FaultKind::NotWritablePrimary => false,
            FaultKind::Timeout | FaultKind::Overload => return,
        };
        match (&mut self.beliefs, self.pools.server_of(place)) {
            (Some(beliefs), Some(server)) if beliefs.knows(server) => {
                beliefs.disbelieve(server);
                if clears {
                    self.clears_server(server);
                }
            }
            (None, _) if clears && !self.pools.is_closed(place) => {
                let service = service.map(|service| Clears::Service { place, service, is_seen: false });
                self.clears = service.unwrap_or_default();
            }
            _ => {}
        }
    }

    /// An establishment has failed so.
    pub(super) fn weigh_establishment(&mut self, connection: Handle, end: Establishment) {
        self.has_failed_to_establish = true;
        let is_of_server = end == Establishment::Unauthorized && !self.identities.is_spared();
        let Some(known) = self.connections.find(connection).filter(|known| is_of_server && !known.is_stale) else {
            return;
        };
        let place = known.pool;
        if let (Some(beliefs), Some(server)) = (&mut self.beliefs, self.pools.server_of(place))
            && beliefs.knows(server)
        {
            beliefs.disbelieve(server);
            self.clears_server(server);
        }
    }

    /// The pools of a server have to be cleared. Those of identities that were removed are closed, and tell nothing of it; what they have
    /// left is stale all the same.
    fn clears_server(&mut self, server: ServerId) {
        self.clears = Clears::Server(server);
        let closed: Vec<_> =
            self.pools.at_server(server).filter(|(_, pool)| pool.is_closed).map(|(place, _)| place).collect();
        closed.into_iter().for_each(|place| self.connections.make_stale(place, None));
    }

    // What the machine does.

    pub(super) fn cleared(&mut self, place: usize, service: Option<ServiceId>) -> Result<(), Broken> {
        let is_lawful = match (&mut self.clears, service) {
            (Clears::Server(server), None) => self.pools.server_of(place) == Some(*server),
            (Clears::Service { place: known, service, is_seen }, Some(cleared)) => {
                *is_seen = true;
                *known == place && *service == cleared
            }
            _ => false,
        };
        law("only what blames a server clears its pools", is_lawful, || {
            format!("the pool at {place}, {service:?}, and not {:?}", self.clears)
        })
    }

    /// Judges whether a call has cleared what it had to.
    pub(super) fn judge_clears(&mut self) -> Result<(), Broken> {
        self.has_failed_to_establish = false;
        match std::mem::take(&mut self.clears) {
            Clears::Nothing => Ok(()),
            Clears::Server(server) => {
                let left = self.pools.at_server(server).find(|(_, pool)| pool.is_ready);
                law("what blames a server clears its pools", left.is_none(), || format!("{left:?}"))
            }
            Clears::Service { place, service, is_seen } => {
                law("what speaks against a service clears its part of the pool", is_seen, || {
                    format!("{service:?} in the pool at {place}")
                })
            }
        }
    }
}
