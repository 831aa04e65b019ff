//! Credentials: a new one, proven by one connection and only then used by all, and those of identities, users that share a
//! client's limits.
//!
//! Where the password was changed at the server first, logins with the old one are refused, and a refused login makes its server
//! unknown (SDAM-8). So the new one is also proven to a server that is unknown for that reason. Logins that are refused during a
//! rotation wait for its outcome: once the new credential is in use, they say nothing against the server.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use cmap_core::connection::{ConnectionOptions, EstablishError};
use cmap_core::options::{ConnectionStringError, Credential, ReadMode, ReadPreference};
use cmap_core::pool::{Cause, Handle, IdentityId};
use cmap_core::server::{ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Input, TopologyType};

use super::Driver;
use super::member::Member;
use super::state::State;
use crate::error::{ClientError, RotationError, RuntimeGone};
use crate::establish::check_mechanism;
use crate::runtime::Runtime;
use crate::runtime::slot::Slot;
use crate::socket::abort::{Abort, AbortReason};

/// Logins that a server refused.
#[derive(Default)]
pub(super) struct RefusedLogins {
    /// The rotations under way.
    rotations: u32,
    /// Their proofs; those, too, that have ended.
    pub(super) proofs: Vec<Weak<Abort>>,
    /// Those that wait for the end of a rotation.
    pub(super) held: Vec<(Handle, EstablishError)>,
    /// The server that refused one last, and its error.
    last_refusal: Option<(ServerId, Cause)>,
}

/// A rotation under way. Dropping it ends it.
struct Rotation<'a, R: Runtime>(&'a Arc<Driver<R>>);

/// A proof under way, in a task of the home runtime. Dropping it gives it up.
struct Proof(Arc<Abort>);

impl<R: Runtime> Driver<R> {
    /// Replaces the credential: first it is proven by one connection to a server that answers, for which this waits for at most
    /// `patience`. If the proof fails, nothing changes.
    pub(crate) async fn set_credential(
        self: Arc<Self>,
        credential: Option<Credential>,
        patience: Duration,
    ) -> Result<(), RotationError> {
        if let Some(credential) = &credential {
            credential.check()?;
        }
        let options = self.settings.options_with(credential.map(Arc::new));
        self.check_login(&options)?;
        let proven = options.credential.clone();
        self.lock().refused_logins.rotations += 1;
        let _rotation = Rotation(&self);
        let member = self.answering_member(patience).await?;
        if let Err(error) = self.prove(member, options).await {
            proven.iter().for_each(|refused| self.settings.forget(refused));
            return Err(error);
        }
        // First, so that no connection is established with the old one after those of the old one retire.
        let former = self.settings.replace_credential(proven);
        self.call(Input::RenewCredential(None));
        former.iter().for_each(|former| self.settings.forget(former));
        Ok(())
    }

    /// Proves `options` by a connection of their own, until the client is closed.
    async fn prove(&self, member: Arc<Member<R>>, options: ConnectionOptions) -> Result<(), RotationError> {
        let (slot, filler) = Slot::empty();
        let proof = Proof(Arc::default());
        let abort = Arc::clone(&proof.0);
        {
            let mut state = self.lock();
            if state.machine.is_closed() {
                return Err(RotationError::Closed);
            }
            let proofs = &mut state.refused_logins.proofs;
            proofs.retain(|other| other.strong_count() > 0);
            proofs.push(Arc::downgrade(&abort));
        }
        self.clock.runtime().spawn(async move {
            let proven = member.establisher.prove(options, abort).await;
            filler.fill(proven.map_err(|error| (Arc::clone(member.address()), error)));
        });
        let proven = poll_fn(|cx| slot.poll(cx)).await?;
        if self.lock().machine.is_closed() {
            return Err(RotationError::Closed);
        }
        proven.map_err(|(address, error)| RotationError::Refused { address, error })
    }

    /// Connections whose credential has been replaced since.
    pub(crate) fn outdated_connections(&self) -> u32 {
        self.lock().machine.outdated()
    }

    /// Adds an identity with this credential, which its first connection will prove.
    pub(crate) fn add_identity(self: &Arc<Self>, credential: Credential) -> Result<IdentityId, ClientError> {
        credential.check().map_err(ConnectionStringError::from)?;
        let credential = Some(Arc::new(credential));
        self.check_login(&self.settings.options_with(credential.clone()))?;
        Ok(self.drive(|state, now, _| {
            let identity = state.machine.add_identity(now);
            self.settings.set_identity(identity, credential);
            identity
        }))
    }

    /// Refuses a login that cannot be carried out. A mechanism of the user's own carries out every login.
    fn check_login(&self, options: &ConnectionOptions) -> Result<(), ClientError> {
        match options.mechanism {
            Some(_) => Ok(()),
            None => check_mechanism(options.credential.as_deref(), self.settings.tokens.has_callback()),
        }
    }

    /// Removes an identity, its credential, its keys and its access token, unless another one has the same user.
    pub(crate) fn remove_identity(self: &Arc<Self>, identity: IdentityId) {
        self.call(Input::RemoveIdentity(identity));
        let removed = self.settings.set_identity(identity, None);
        removed.iter().for_each(|removed| self.settings.forget(removed));
    }

    /// How a connection that was established with `credential` logs in again: as the same user, with the newest secret of that
    /// user. `None` if its identity was removed.
    pub(crate) fn login_of(
        &self,
        connection: Handle,
        credential: Option<&Arc<Credential>>,
    ) -> Option<Arc<ConnectionOptions>> {
        let identity = self.lock().machine.identity_of(connection);
        let newest = self.settings.options_of(identity)?;
        let is_same = match (credential, &newest.credential) {
            (Some(own), Some(newest)) => have_one_user(own, newest),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        Some(if is_same { newest } else { Arc::new(self.settings.options_with(credential.cloned())) })
    }

    /// A server to prove a credential to, as soon as one answers.
    async fn answering_member(self: &Arc<Self>, patience: Duration) -> Result<Arc<Member<R>>, RotationError> {
        let nearest = Criteria { selector: ReadPreference::new(ReadMode::Nearest).into(), ..Criteria::default() };
        let begun_at = self.clock.now();
        loop {
            {
                let state = self.lock();
                if state.runtime_gone {
                    return Err(RuntimeGone.into());
                }
                if state.machine.is_closed() {
                    return Err(RotationError::Closed);
                }
                if let Some(member) = state.answering_member() {
                    return Ok(Arc::clone(member));
                }
            }
            let left = patience.saturating_sub(self.clock.now().saturating_since(begun_at));
            if left.is_zero() {
                return Err(RotationError::NoServer { patience });
            }
            // A warm-up to no connections is the wait for a server. However it ends, the next look finds out why.
            let _ = Arc::clone(self).warm_up(nearest.clone(), Some(0), Some(left)).await;
        }
    }
}

impl<R: Runtime> State<R> {
    /// A connection could not be established. A refused login waits for the end of the rotation that is under way.
    pub(super) fn handle_establish_failed(&mut self, now: Instant, connection: Handle, error: EstablishError) {
        let may_wait = self.refused_logins.rotations > 0 && !self.machine.is_closed() && !self.runtime_gone;
        if may_wait && self.is_refusal(connection, &error) {
            self.refused_logins.held.push((connection, error));
        } else {
            self.fail_establishment(now, connection, error);
        }
    }

    /// Tells the machine of the refused logins that waited.
    pub(super) fn report_refused(&mut self, now: Instant) {
        for (connection, error) in std::mem::take(&mut self.refused_logins.held) {
            self.fail_establishment(now, connection, error);
        }
    }

    fn fail_establishment(&mut self, now: Instant, connection: Handle, error: EstablishError) {
        if self.is_refusal(connection, &error) {
            let server = self.machine.server_of(connection);
            self.refused_logins.last_refusal = server.map(|server| (server, Cause::of(&error)));
        }
        self.forget(connection);
        // It was reported once, so it is pending, or has been forgotten.
        self.machine.call(now, Input::EstablishFailed(connection, error), None);
    }

    /// Whether a server has refused the credential that rotations replace.
    fn is_refusal(&self, connection: Handle, error: &EstablishError) -> bool {
        error.is_about_the_credential() && self.machine.identity_of(connection).is_none()
    }

    /// The server to prove a credential to: one where users are changed; else the last one that refused the old credential, because it
    /// knows of the change; else a secondary or a router, which may learn of it later; else, where the client is connected to one server
    /// directly, that one, of whatever kind (TOP-46).
    fn answering_member(&self) -> Option<&Arc<Member<R>>> {
        if self.monitor_options.is_none() {
            return self.members.values().next();
        }
        let of_type = |is_it: fn(ServerType) -> bool| {
            let mut members = self.machine.servers().filter(|(_, server)| !server.has_left());
            members.find(|(_, server)| is_it(server.description().server_type)).map(|(id, _)| id)
        };
        let is_direct = self.machine.description().topology_type == TopologyType::Single;
        let best = of_type(changes_users)
            .or_else(|| self.refuser())
            .or_else(|| of_type(ServerType::is_data_bearing))
            .or_else(|| of_type(|server_type| server_type != ServerType::Unknown).filter(|_| is_direct))?;
        self.members.get(&best)
    }

    /// The server that refused a login last, if it is unknown for that: it answers all the same.
    fn refuser(&self) -> Option<ServerId> {
        let (id, cause) = self.refused_logins.last_refusal.as_ref()?;
        let server = self.machine.server(*id).filter(|server| !server.has_left())?;
        (server.description().error.as_ref() == Some(cause)).then_some(*id)
    }
}

/// Whether both are credentials of one user.
fn have_one_user(one: &Credential, other: &Credential) -> bool {
    (&one.username, &one.source, one.mechanism, one.token_environment())
        == (&other.username, &other.source, other.mechanism, other.token_environment())
}

/// Whether users are changed at a server of this type, so that it knows their passwords first.
fn changes_users(server_type: ServerType) -> bool {
    server_type.is_data_bearing() && !matches!(server_type, ServerType::RsSecondary | ServerType::Mongos)
}

impl<R: Runtime> Drop for Rotation<'_, R> {
    fn drop(&mut self) {
        self.0.drive(|state, now, _| {
            state.refused_logins.rotations -= 1;
            if state.refused_logins.rotations == 0 {
                state.report_refused(now);
            }
        });
    }
}

impl Drop for Proof {
    fn drop(&mut self) {
        self.0.abort(AbortReason::Closed).into_iter().for_each(Waker::wake);
    }
}
