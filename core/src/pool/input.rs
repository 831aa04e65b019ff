//! The calls of a pool as data: what a trace records, a fuzzer generates and a simulation feeds.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    AffinityKey, ApiMisuse, Cancellation, Cause, CheckOutId, CheckOutRequest, Delivery, Handle, Pool, Purpose, Refused,
    WarmUpError, WarmUpId,
};
use crate::connection::EstablishError;
use crate::options::{PoolLimits, PoolOptionsError};
use crate::service_id::ServiceId;
use crate::time::Instant;

/// One call of a [`Pool`], without the sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Input {
    /// [`Pool::check_out`].
    CheckOut(CheckOutRequest),
    /// [`Pool::cancel_check_out`].
    CancelCheckOut(CheckOutId),
    /// [`Pool::set_purpose`].
    SetPurpose(CheckOutId, Handle, Purpose),
    /// [`Pool::check_in`].
    CheckIn(CheckOutId, Handle, Condition),
    /// [`Pool::ready`].
    Ready,
    /// [`Pool::clear`].
    Clear(Clear),
    /// [`Pool::close`].
    Close,
    /// [`Pool::reset_after_fork`].
    ResetAfterFork,
    /// [`Pool::handle_hello`].
    Hello(Handle, ServiceId),
    /// [`Pool::handle_established`].
    Established(Handle),
    /// [`Pool::handle_establish_failed`].
    EstablishFailed(Handle, EstablishError, Reaction),
    /// [`Pool::handle_checked`]; whether the connection is alive.
    Checked(Handle, bool),
    /// [`Pool::handle_refreshed`].
    Refreshed(Handle),
    /// [`Pool::handle_refresh_failed`].
    RefreshFailed(Handle),
    /// [`Pool::handle_peer_closed`].
    PeerClosed(Handle),
    /// [`Pool::resize`].
    Resize(PoolLimits),
    /// [`Pool::replace_connections`].
    ReplaceConnections(Duration),
    /// [`Pool::end_affinity`].
    EndAffinity(AffinityKey),
    /// [`Pool::resume`].
    Resume,
    /// [`Pool::renew_credential`].
    RenewCredential,
    /// [`Pool::warm_up`]; how many connections.
    WarmUp(Option<u32>),
    /// [`Pool::cancel_warm_up`].
    CancelWarmUp(WarmUpId),
    /// [`Pool::handle_timeout`].
    Timeout,
}

/// What a call of a [`Pool`] returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Answer<C> {
    /// Nothing.
    Done,
    /// The check-out that it began, and the connection that it delivered at once.
    CheckOut(CheckOutId, Option<Delivery<C>>),
    /// The delivery to the next waiter of the connection that was checked in, if it was made at once.
    CheckedIn(Option<Delivery<C>>),
    /// The state in which it found a check-out.
    Cancellation(Cancellation),
    /// The warm-up that it began.
    WarmUp(WarmUpId),
    /// How far the warm-up came that it gave up; `None` if that had ended.
    WarmUpCancelled(Option<WarmUpError>),
    /// The call made no sense, and nothing has changed: the mistake, and the socket that was handed over.
    Misuse(ApiMisuse, Option<C>),
    /// The new limits contradict each other, and nothing has changed.
    LimitsRefused(PoolOptionsError),
}

/// The call made no sense: the mistake, and the socket that was handed over.
pub(crate) struct Misuse<C>(pub(crate) ApiMisuse, pub(crate) Option<C>);

/// Which connections to make stale, whether to interrupt those at work, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Clear {
    /// The service whose connections are meant; needed in load-balanced mode, an error elsewhere (LB-8).
    pub service_id: Option<ServiceId>,
    /// Whether connections in use and pending ones are interrupted too (CMAP-40 to CMAP-42).
    pub interrupt_in_use_connections: bool,
    /// The error that caused it; the errors of evicted check-outs repeat it (CMAP-55).
    pub cause: Cause,
}

/// The condition in which a connection comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Its last reply has been read to the end.
    Usable,
    /// A network error or timeout, a broken reply or an operation cut off half-way: it must not be used again (CMAP-11).
    Errored,
}

/// What the failure of an establishment means for the pool; the rules of SDAM decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reaction {
    /// Nothing but the connection is lost.
    KeepPool,
    /// The pool is cleared; in load-balanced mode the connection's service, where that is known (LB-9, LB-10).
    ClearPool,
}

impl<C> Pool<C> {
    /// Makes the call that `input` describes, with the connection's socket where the call takes one. Equal inputs always have
    /// equal answers and outputs. A connection that the call delivers at once stands in the answer, and not among the outputs.
    ///
    /// A socket that the call does not take is dropped.
    pub fn call(&mut self, now: Instant, input: Input, socket: Option<C>) -> Answer<C> {
        self.try_call(now, input, socket).unwrap_or_else(|Misuse(misuse, socket)| Answer::Misuse(misuse, socket))
    }

    fn try_call(&mut self, now: Instant, input: Input, socket: Option<C>) -> Result<Answer<C>, Misuse<C>> {
        let socket = socket.ok_or(Misuse(ApiMisuse::SocketMissing, None));
        match input {
            Input::CheckOut(request) => {
                let (check_out, delivery) = self.check_out(now, request);
                return Ok(Answer::CheckOut(check_out, delivery));
            }
            Input::CheckIn(check_out, connection, condition) => {
                let checked_in = self.check_in(now, check_out, connection, socket?, condition)?;
                return Ok(Answer::CheckedIn(checked_in.delivery()));
            }
            Input::CancelCheckOut(id) => return Ok(Answer::Cancellation(self.cancel_check_out(now, id))),
            Input::SetPurpose(check_out, connection, purpose) => self.set_purpose(check_out, connection, purpose)?,
            Input::Ready => self.ready(now),
            Input::Clear(clear) => self.clear(now, clear)?,
            Input::Close => self.close(now),
            Input::ResetAfterFork => self.reset_after_fork(now),
            Input::Hello(connection, service_id) => self.handle_hello(now, connection, service_id)?,
            Input::Established(connection) => self.handle_established(now, connection, socket?)?,
            Input::EstablishFailed(connection, error, reaction) => {
                self.handle_establish_failed(now, connection, error, reaction)?;
            }
            Input::Checked(connection, is_alive) => self.handle_checked(now, connection, is_alive)?,
            Input::Refreshed(connection) => self.handle_refreshed(now, connection, socket?)?,
            Input::RefreshFailed(connection) => self.handle_refresh_failed(now, connection)?,
            Input::PeerClosed(connection) => self.handle_peer_closed(now, connection)?,
            Input::Resize(limits) => {
                return Ok(self.resize(now, limits).map_or_else(Answer::LimitsRefused, |()| Answer::Done));
            }
            Input::ReplaceConnections(over) => self.replace_connections(now, over),
            Input::EndAffinity(key) => self.end_affinity(now, key),
            Input::Resume => self.resume(now),
            Input::RenewCredential => self.renew_credential(now),
            Input::WarmUp(connections) => return Ok(Answer::WarmUp(self.warm_up(now, connections))),
            Input::CancelWarmUp(id) => return Ok(Answer::WarmUpCancelled(self.cancel_warm_up(now, id))),
            Input::Timeout => self.handle_timeout(now),
        }
        Ok(Answer::Done)
    }
}

impl<C> From<ApiMisuse> for Misuse<C> {
    fn from(misuse: ApiMisuse) -> Self {
        Self(misuse, None)
    }
}

impl<C> From<Refused<C>> for Misuse<C> {
    fn from(Refused { misuse, socket }: Refused<C>) -> Self {
        Self(misuse, Some(socket))
    }
}

impl Clear {
    /// Clears the whole pool because of `cause`, and interrupts nothing.
    pub fn pool(cause: Cause) -> Self {
        Self { service_id: None, interrupt_in_use_connections: false, cause }
    }

    /// Clears one service's part of a load-balanced pool because of `cause`.
    pub fn service(service_id: ServiceId, cause: Cause) -> Self {
        Self { service_id: Some(service_id), interrupt_in_use_connections: false, cause }
    }

    /// Makes the clear interrupt connections that are in use or pending, too.
    #[must_use]
    pub fn interrupting(self) -> Self {
        Self { interrupt_in_use_connections: true, ..self }
    }
}
