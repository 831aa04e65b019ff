//! Generations: which connections a clear has made stale.
//!
//! A pool has one generation; clearing raises it, and every connection of an older one is stale (CMAP-11, CMAP-37).
//! Behind a load balancer each service has a generation of its own, known for as long as it has connections (LB-7). A
//! connection there belongs to the pool's generation until its hello names the service.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::list::{List, OF_SERVICE};
use crate::service_id::ServiceId;

/// How often a pool, or one service's part of it, was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub(crate) u64);

/// The pool's generation, and those of its services.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Generations {
    pub(crate) pool: Generation,
    pub(crate) services: BTreeMap<ServiceId, Service>,
    /// Services that were cleared and may still have available connections to prune.
    pub(crate) to_prune: BTreeSet<ServiceId>,
}

/// One service's part of a load-balanced pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) generation: Generation,
    /// Its connections since their hello; at 0 the service is forgotten (LB-7).
    pub(crate) connections: u32,
    pub(crate) available: List<OF_SERVICE>,
    /// Its connections that are pending, being checked or in use, and have not been interrupted.
    pub(crate) occupied: List<OF_SERVICE>,
}

impl Generations {
    /// Whether a connection of `generation`, and of `service` if that is known, is stale (CMAP-11, LB-7).
    #[inline]
    pub(crate) fn is_stale(&self, generation: Generation, service: Option<&ServiceId>) -> bool {
        generation != service.map_or(self.pool, |id| self.current_of(id))
    }

    /// The generation of connections that are established now and belong to service `id`. Out of line, since most pools
    /// have no services.
    #[cold]
    fn current_of(&self, id: &ServiceId) -> Generation {
        self.services.get(id).map_or(self.pool, |service| service.generation)
    }

    /// Counts one more connection of a service, which may be new; returns the service's generation.
    pub(crate) fn join(&mut self, id: ServiceId) -> Generation {
        let service = self.services.entry(id).or_default();
        service.connections += 1;
        service.generation
    }

    /// Counts one connection of a service less, and forgets the service with its last connection.
    pub(crate) fn leave(&mut self, id: ServiceId) {
        let Some(service) = self.services.get_mut(&id) else { return };
        service.connections -= 1;
        if service.connections == 0 {
            self.services.remove(&id);
            self.to_prune.remove(&id);
        }
    }
}

impl Generation {
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0
    }
}
