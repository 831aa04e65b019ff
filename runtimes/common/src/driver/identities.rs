//! Identities on this side of the sockets: the credentials of users that share a client's limits.

use std::sync::Arc;

use cmap_core::options::{ConnectionStringError, Credential};
use cmap_core::pool::IdentityId;
use cmap_core::topology::Input;

use super::Driver;
use crate::error::ClientError;
use crate::establish::check_mechanism;
use crate::runtime::Runtime;

impl<R: Runtime> Driver<R> {
    /// Adds an identity with this credential, which its first connection will prove.
    pub(crate) fn add_identity(self: &Arc<Self>, credential: Credential) -> Result<IdentityId, ClientError> {
        credential.check().map_err(ConnectionStringError::from)?;
        check_mechanism(Some(&credential))?;
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
}
