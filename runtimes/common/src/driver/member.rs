//! One server of the topology on this side of the sockets: how its connections are established, and its monitor.

use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Monitor;
use cmap_core::pool::IdentityId;
use cmap_core::server::ServerId;

use super::monitoring::Monitoring;
use crate::establish::{Establisher, Settings};
use crate::runtime::Runtime;

pub(crate) struct Member<R: Runtime> {
    pub(super) id: ServerId,
    pub(super) establisher: Arc<Establisher<R>>,
    /// None behind a load balancer (LB-3), and where the pool's owner has a monitor of their own.
    pub(super) monitoring: Option<Monitoring>,
}

impl<R: Runtime> Member<R> {
    pub(super) fn new(
        id: ServerId,
        address: Arc<ServerAddress>,
        settings: &Arc<Settings<R>>,
        monitor: Option<Monitor>,
    ) -> Arc<Self> {
        let establisher = Arc::new(Establisher::new(address, Arc::clone(settings), None));
        Arc::new(Self { id, establisher, monitoring: monitor.map(Monitoring::new) })
    }

    /// The pool of an identity at a server.
    pub(super) fn of_identity(
        id: ServerId,
        address: Arc<ServerAddress>,
        settings: &Arc<Settings<R>>,
        identity: Option<IdentityId>,
    ) -> Arc<Self> {
        let establisher = Arc::new(Establisher::new(address, Arc::clone(settings), identity));
        Arc::new(Self { id, establisher, monitoring: None })
    }

    pub(super) fn address(&self) -> &Arc<ServerAddress> {
        &self.establisher.address
    }
}
