//! A new credential: proven by one connection, and only then used by all.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use cmap_core::connection::{ConnectionOptions, EstablishError};
use cmap_core::options::Credential;
use cmap_core::server::{Server, ServerType};

use super::Topology;
use super::member::Member;
use crate::builder::check_mechanism;
use crate::error::{RotationError, RuntimeGone};
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::socket::abort::{Abort, AbortReason};

/// How often servers are looked at while none is known.
const LOOK: Duration = Duration::from_millis(50);

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

impl<R: Runtime> Topology<R> {
    /// Replaces the credential: first it is proven by one connection to a known server, for which this waits for at most
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
            check_mechanism(options.credential.as_deref())?;
        }
        let proven = options.credential.clone();
        let member = self.known_member(patience).await?;
        Proof::begin(member, self.clock.runtime(), options).result().await?;
        // First, so that no connection is established with the old one after those of the old one retire.
        self.settings.replace_credential(proven);
        self.drive(|machine, now| machine.renew_credential(now));
        Ok(())
    }

    /// Connections whose credential has been replaced since.
    pub(crate) fn outdated_connections(&self) -> u32 {
        self.lock().machine.outdated()
    }

    /// A server to prove a credential to, as soon as one is known.
    async fn known_member(self: &Arc<Self>, patience: Duration) -> Result<Arc<Member<R>>, RotationError> {
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
                let suits = |server: &Server<Box<Socket<R::Stream>>>| {
                    !server.has_left() && suits(server.description().server_type)
                };
                let known = state.machine.servers().find(|(_, server)| suits(server)).map(|(id, _)| id);
                let only = state.members.values().find(|_| state.has_own_monitor());
                if let Some(member) = known.and_then(|id| state.members.get(&id)).or(only) {
                    return Ok(Arc::clone(member));
                }
            }
            if self.clock.now().saturating_since(begun_at) >= patience {
                return Err(RotationError::NoServer { patience });
            }
            let end = Arc::new(Abort::default());
            let limit = self.limit(Some(LOOK), &end);
            // It ends by its limit, or with the runtime, which the next look finds.
            let _ = end.during(std::future::pending::<()>()).await;
            drop(limit);
        }
    }
}

/// Whether a server of this type has users.
fn suits(server_type: ServerType) -> bool {
    server_type.is_data_bearing()
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
