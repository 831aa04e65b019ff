//! Servers that leave the topology, and what comes for them too late.

use cmap_core::pool::Handle;
use cmap_core::server::ServerId;
use cmap_core::topology::{Answer, Input};

use super::super::machine::Machine;
use super::super::oracle::{Broken, law};
use super::Driver;

impl<M: Machine> Driver<M> {
    /// A server has left the topology: its monitor ends.
    pub(super) fn lose_server(&mut self, server: ServerId) {
        let Some(member) = self.number(server) else { return };
        if let Some(known) = self.members.get_mut(member).filter(|known| **known == Some(server)) {
            *known = None;
        }
        self.oracle.server_left(server, member);
    }

    /// The last connection of a pool that was closed is gone, except those that the driver is still establishing.
    pub(super) fn forget_pool(&mut self, pool: ServerId) {
        self.oracle.pool_forgotten(pool);
    }

    /// Makes the call if the connection's pool was forgotten meanwhile: it is refused, and the driver closes the socket. Returns
    /// whether that was so.
    pub(super) fn is_for_nobody(&mut self, connection: Handle, input: Input) -> Result<bool, Broken> {
        if !self.oracle.is_forgotten(connection) {
            return Ok(false);
        }
        let answer = self.answer(input);
        self.drain()?;
        self.oracle.closed_by_driver(connection);
        let is_refused = matches!(answer, Answer::Misuse(..));
        law("what comes for a server that was forgotten is refused", is_refused, || format!("{answer:?}"))?;
        Ok(true)
    }
}
