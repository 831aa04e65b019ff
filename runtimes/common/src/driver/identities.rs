//! Identities on this side of the sockets: the credentials of users that share a client's limits.

use std::sync::Arc;

use cmap_core::connection::ConnectionOptions;
use cmap_core::options::{ConnectionStringError, Credential};
use cmap_core::pool::{Handle, IdentityId};
use cmap_core::time::Instant;
use cmap_core::topology::Input;

use super::Driver;
use crate::error::ClientError;
use crate::establish::{TokenCache, check_mechanism};
use crate::runtime::Runtime;

impl<R: Runtime> Driver<R> {
    /// Adds an identity with this credential, which its first connection will prove.
    pub(crate) fn add_identity(self: &Arc<Self>, credential: Credential) -> Result<IdentityId, ClientError> {
        credential.check().map_err(ConnectionStringError::from)?;
        check_mechanism(Some(&credential), self.settings.tokens.has_callback())?;
        Ok(self.drive(|state, now, _| {
            let identity = state.machine.add_identity(now);
            self.settings.set_identity(identity, Some(Arc::new(credential)));
            identity
        }))
    }

    /// Removes an identity, and its credential.
    pub(crate) fn remove_identity(self: &Arc<Self>, identity: IdentityId) {
        self.call(Input::RemoveIdentity(identity));
        self.settings.set_identity(identity, None);
    }

    /// How a connection logs in; `None` if its identity was removed.
    pub(crate) fn login_of(&self, connection: Handle) -> Option<Arc<ConnectionOptions>> {
        let identity = self.lock().machine.identity_of(connection);
        self.settings.options_of(identity)
    }

    /// The access tokens of connections with these options; `None` if they log in without.
    pub(crate) fn tokens_of(&self, options: &ConnectionOptions) -> Option<Arc<TokenCache>> {
        self.settings.tokens.of(options)
    }

    /// The end of what takes as long as establishing a connection, and begins now.
    pub(crate) fn connect_deadline(&self) -> Option<Instant> {
        self.clock.deadline(self.settings.timeout)
    }
}
