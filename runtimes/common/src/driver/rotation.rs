//! A new credential: proven by one connection, and only then used by all.
//!
//! Where the password was changed at the server first, logins with the old one are refused, and a refused login makes its server
//! unknown (SDAM-8). So the new one is also proven to a server that is unknown for that reason. Logins that are refused during a
//! rotation wait for its outcome: once the new credential is in use, they say nothing against the server.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use cmap_core::connection::{ConnectionOptions, EstablishError};
use cmap_core::options::{Credential, ReadMode, ReadPreference};
use cmap_core::pool::{Cause, Handle};
use cmap_core::server::{ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Input};

use super::Driver;
use super::member::Member;
use super::state::State;
use crate::error::{RotationError, RuntimeGone};
use crate::establish::check_mechanism;
use crate::runtime::Runtime;
use crate::socket::abort::{Abort, AbortReason};

/// A rotation under way. Dropping it ends it.
struct Rotation<'a, R: Runtime>(&'a Arc<Driver<R>>);

/// A proof under way, in a task of the home runtime. Dropping it gives it up.
struct Proof {
    outcome: Arc<Outcome>,
    abort: Arc<Abort>,
}

/// Where the task of a proof leaves its result.
#[derive(Default)]
struct Outcome {
    result: Mutex<Option<Result<(), RotationError>>>,
    waker: AtomicWaker,
}

/// The duty to leave a result, even if the runtime drops the task half-way.
struct Leave(Arc<Outcome>);

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
        if options.mechanism.is_none() {
            check_mechanism(options.credential.as_deref(), self.settings.tokens.has_callback())?;
        }
        let proven = options.credential.clone();
        let _rotation = Rotation::begin(&self);
        let member = self.answering_member(patience).await?;
        Proof::begin(member, self.clock.runtime(), options).result().await?;
        // First, so that no connection is established with the old one after those of the old one retire.
        self.settings.replace_credential(proven);
        self.call(Input::RenewCredential(None));
        Ok(())
    }

    /// Connections whose credential has been replaced since.
    pub(crate) fn outdated_connections(&self) -> u32 {
        self.lock().machine.outdated()
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
        self.place(connection).map(|place| self.activities.remove(&place));
        // It was reported once, so it is pending, or has been forgotten.
        self.machine.call(now, Input::EstablishFailed(connection, error), None);
    }

    /// Whether a server has refused the credential that rotations replace.
    fn is_refusal(&self, connection: Handle, error: &EstablishError) -> bool {
        error.is_about_the_credential() && self.machine.identity_of(connection).is_none()
    }

    /// The server to prove a credential to: one where users are changed; else the last one that refused the old credential, because it
    /// knows of the change; else a secondary or a router, which may learn of it later.
    fn answering_member(&self) -> Option<&Arc<Member<R>>> {
        if self.has_own_monitor() {
            return self.members.values().next();
        }
        let of_type = |is_it: fn(ServerType) -> bool| {
            let mut members = self.machine.servers().filter(|(_, server)| !server.has_left());
            members.find(|(_, server)| is_it(server.description().server_type)).map(|(id, _)| id)
        };
        let best =
            of_type(changes_users).or_else(|| self.refuser()).or_else(|| of_type(ServerType::is_data_bearing))?;
        self.members.get(&best)
    }

    /// The server that refused a login last, if it is unknown for that: it answers all the same.
    fn refuser(&self) -> Option<ServerId> {
        let (id, cause) = self.refused_logins.last_refusal.as_ref()?;
        let server = self.machine.server(*id).filter(|server| !server.has_left())?;
        (server.description().error.as_ref() == Some(cause)).then_some(*id)
    }
}

/// Whether users are changed at a server of this type, so that it knows their passwords first.
fn changes_users(server_type: ServerType) -> bool {
    server_type.is_data_bearing() && !matches!(server_type, ServerType::RsSecondary | ServerType::Mongos)
}

impl<'a, R: Runtime> Rotation<'a, R> {
    fn begin(driver: &'a Arc<Driver<R>>) -> Self {
        driver.lock().refused_logins.rotations += 1;
        Self(driver)
    }
}

impl<R: Runtime> Drop for Rotation<'_, R> {
    fn drop(&mut self) {
        self.0.drive(|state, now, _| {
            state.refused_logins.rotations -= 1;
            state.report_refused(now);
        });
    }
}

impl Proof {
    fn begin<R: Runtime>(member: Arc<Member<R>>, runtime: &R, options: ConnectionOptions) -> Self {
        let proof = Self { outcome: Arc::default(), abort: Arc::default() };
        let (leave, abort) = (Leave(Arc::clone(&proof.outcome)), Arc::clone(&proof.abort));
        runtime.spawn(async move {
            let proven = member.establisher.prove(options, abort).await;
            let refused =
                |error: EstablishError| RotationError::Refused { address: Arc::clone(member.address()), error };
            leave.set(proven.map_err(refused));
        });
        proof
    }

    async fn result(&self) -> Result<(), RotationError> {
        std::future::poll_fn(|cx| {
            self.outcome.waker.register(cx.waker());
            self.outcome.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Outcome {
    fn take(&self) -> Option<Result<(), RotationError>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Leave {
    fn set(&self, result: Result<(), RotationError>) {
        let mut place = self.0.result.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            *place = Some(result);
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.set(Err(RuntimeGone.into()));
        self.0.waker.wake();
    }
}

impl Drop for Proof {
    fn drop(&mut self) {
        self.abort.abort(AbortReason::Closed).into_iter().for_each(Waker::wake);
    }
}
