//! Identities: users who share the limits of a client, and credentials that are replaced.

use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::pool::Handle;
use cmap_core::server::ServerId;
use cmap_core::topology::{Answer, Input};

use super::super::machine::Machine;
use super::super::mark::Mark;
use super::super::oracle::Broken;
use super::super::step::Establishment;
use super::{Driver, nth_of};

impl<M: Machine> Driver<M> {
    /// How many identities there are, those included that were removed.
    pub(in super::super) fn identities(&self) -> usize {
        self.identities.len()
    }

    pub(super) fn add_identity(&mut self) -> Result<(), Broken> {
        // Connections of others may take the room of a warm-up for ever.
        self.may_stay_cold = true;
        if let Answer::Identity(identity) = self.answer(Input::AddIdentity) {
            self.identities.push(identity);
            self.oracle.identity_added();
        }
        self.drain()?;
        self.look()
    }

    pub(super) fn remove_identity(&mut self, nth: usize) -> Result<(), Broken> {
        let Some(identity) = nth_of(&self.identities, nth) else { return Ok(()) };
        self.oracle.identity_removed(identity);
        self.call(Input::RemoveIdentity(identity))?;
        self.oracle.after_removal(identity)
    }

    /// The proof of the new credential is the driver's: the machine hears of one that succeeded alone.
    pub(super) fn renew_credential(&mut self, identity: Option<usize>, is_proven: bool) -> Result<(), Broken> {
        let known = identity.and_then(|nth| nth_of(&self.identities, nth));
        if known.is_none() && identity.is_some() {
            return Ok(());
        }
        if !is_proven {
            self.oracle.marks.meet(Mark::CredentialUnproven);
            return Ok(());
        }
        self.oracle.credential_renewed(known);
        self.call(Input::RenewCredential(known))
    }

    /// The server refuses the credential of a connection.
    pub(super) fn end_refused(&mut self, connection: Handle) -> Result<(), Broken> {
        self.oracle.refused(connection);
        self.oracle.establish_failed(connection, Establishment::Unauthorized);
        let error = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(18) }, "it failed");
        let done = self.call(Input::EstablishFailed(connection, error));
        self.oracle.refusal_ended();
        done
    }

    /// Finds out whose pool it is that has its first output.
    pub(super) fn meet_pool(&mut self, pool: ServerId) {
        if self.number(pool).is_some() {
            return;
        }
        let server = self.machine.member_of(pool);
        if let Some(member) = self.number(server) {
            self.numbers.push((pool, member));
            self.oracle.pool_belongs_to(pool, server);
        }
    }
}
