//! What servers say, and how operations fail, as inputs of the machine.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::pool::Cause;
use cmap_core::server::{OperationError, ServerDescription, ServerType, StateChange};

use super::super::step::{Deployment, FaultKind};

/// What a server says of itself while it is no primary.
pub(super) fn describe(deployment: Deployment, member: usize) -> ServerDescription {
    let hosts = deployment.hosts();
    let server_type = match deployment {
        Deployment::Standalone => ServerType::Standalone,
        // A load balancer is not asked; what its services say is this.
        Deployment::Sharded | Deployment::LoadBalanced | Deployment::SeedList => ServerType::Mongos,
        Deployment::ReplicaSet => ServerType::RsSecondary,
    };
    let host = hosts.get(member).copied().unwrap_or_default();
    let mut description = ServerDescription::new(ServerAddress::tcp(host, 27017).into(), server_type);
    description.wire_versions = Some((0, 21));
    description.round_trip_time = Some(Duration::from_millis(1));
    if deployment.is_replica_set() {
        description.set_name = Some("rs".into());
        description.hosts = hosts.iter().map(|host| format!("{host}:27017")).collect();
        description.set_version = Some(1);
    }
    description
}

pub(super) fn operation_error(kind: FaultKind) -> OperationError {
    let fault = match kind {
        FaultKind::Network | FaultKind::Overload => Fault::Network,
        FaultKind::Timeout => Fault::Timeout,
        FaultKind::NotWritablePrimary | FaultKind::ShuttingDown => Fault::Server { code: Some(91) },
    };
    let mut error = OperationError::new(fault, Cause::new("the operation failed"));
    error.is_overload = kind == FaultKind::Overload;
    error.state_change = match kind {
        FaultKind::NotWritablePrimary => Some(StateChange::NotWritablePrimary),
        FaultKind::ShuttingDown => Some(StateChange::ShuttingDown),
        FaultKind::Network | FaultKind::Timeout | FaultKind::Overload => None,
    };
    error
}
