//! The ends of what the driver does with connections by itself: establishments and pings.

use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::pool::{Cause, Handle, ServiceId};
use cmap_core::server::OperationError;
use cmap_core::topology::Input;

use super::super::machine::Machine;
use super::super::oracle::Broken;
use super::super::step::{Deployment, Establishment, FaultKind};
use super::inputs::describe;
use super::{Driver, take};

impl<M: Machine> Driver<M> {
    pub(super) fn end_refresh(&mut self, nth: usize, is_alive: bool) -> Result<(), Broken> {
        let Some(connection) = take(&mut self.refreshing, nth) else { return Ok(()) };
        if self.is_for_nobody(connection, Input::Refreshed(connection))? {
            return Ok(());
        }
        if is_alive {
            self.oracle.refreshed(connection);
            return self.call(Input::Refreshed(connection));
        }
        self.oracle.operation_failed(connection, FaultKind::Network);
        self.oracle.refresh_failed(connection);
        let error = OperationError::new(Fault::Network, Cause::new("the ping failed"));
        self.call(Input::RefreshFailed(connection, error))
    }

    pub(super) fn end_establishment(&mut self, nth: usize, end: Establishment) -> Result<(), Broken> {
        let Some(connection) = take(&mut self.pending, nth) else { return Ok(()) };
        if self.is_for_nobody(connection, Input::Established(connection))? {
            return Ok(());
        }
        let (phase, fault) = match end {
            Establishment::Done => return self.end_well(connection, 0),
            Establishment::DoneBy(service) => return self.end_well(connection, service),
            Establishment::Refused => (Phase::Connect, Fault::Network),
            Establishment::HungUp => (Phase::Hello, Fault::Network),
            Establishment::TimedOut => (Phase::Hello, Fault::Timeout),
            Establishment::Unauthorized => return self.end_refused(connection),
        };
        self.oracle.establish_failed(connection, end);
        self.call(Input::EstablishFailed(connection, EstablishError::new(phase, fault, "it failed")))
    }

    fn end_well(&mut self, connection: Handle, service: u8) -> Result<(), Broken> {
        if self.deployment != Deployment::LoadBalanced {
            self.oracle.established(connection, None);
            return self.call(Input::Established(connection));
        }
        let service = ServiceId([service; 12]);
        let hello = Box::new(describe(self.deployment, 0));
        self.call(Input::Hello(connection, Some(service), hello))?;
        self.oracle.established(connection, Some(service));
        self.call(Input::Established(connection))
    }
}
