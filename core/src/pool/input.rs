//! The calls of a pool as data: what a trace records, a fuzzer generates and a simulation feeds.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{ApiMisuse, Cause};
use super::handle::Handle;
use super::wait_queue::{Cancellation, CheckOutId, CheckOutRequest};
use super::{AffinityKey, Output, Pool, Purpose, Refused, WarmUpId};
use crate::connection::EstablishError;
use crate::options::PoolLimits;
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
    /// [`Pool::retire_all`].
    RetireAll(Duration),
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

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Nothing.
    Done,
    /// [`Pool::check_out`]: the check-out it began.
    CheckOut(CheckOutId),
    /// [`Pool::cancel_check_out`]: the state in which it found the check-out.
    Cancellation(Cancellation),
    /// [`Pool::resize`]: the limits contradict each other; nothing has changed.
    Refused,
    /// [`Pool::warm_up`]: the warm-up it began.
    WarmUp(WarmUpId),
    /// [`Pool::cancel_warm_up`].
    WarmUpCancelled {
        /// Whether it had not ended.
        was_open: bool,
    },
}

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

impl Pool<()> {
    /// Makes the call that `input` describes. The same inputs always have the same outputs; a delivery that the call
    /// returns is the last of them.
    ///
    /// # Errors
    /// Those of the call.
    pub fn apply(&mut self, now: Instant, input: Input) -> Result<Answer, ApiMisuse> {
        let refused = |refused: Refused<()>| refused.misuse;
        match input {
            Input::CheckOut(request) => {
                let (check_out, delivery) = self.check_out(now, request);
                self.outputs.extend(delivery.map(Output::from));
                return Ok(Answer::CheckOut(check_out));
            }
            Input::CancelCheckOut(id) => return Ok(Answer::Cancellation(self.cancel_check_out(now, id))),
            Input::SetPurpose(check_out, connection, purpose) => self.set_purpose(check_out, connection, purpose)?,
            Input::CheckIn(check_out, connection, condition) => {
                let delivery = self.check_in(now, check_out, connection, (), condition).map_err(refused)?.delivery();
                self.outputs.extend(delivery.map(Output::from));
            }
            Input::Ready => self.ready(now),
            Input::Clear(clear) => self.clear(now, clear)?,
            Input::Close => self.close(now),
            Input::ResetAfterFork => self.reset_after_fork(now),
            Input::Hello(connection, service_id) => self.handle_hello(now, connection, service_id)?,
            Input::Established(connection) => self.handle_established(now, connection, ()).map_err(refused)?,
            Input::EstablishFailed(connection, error, reaction) => {
                self.handle_establish_failed(now, connection, error, reaction)?;
            }
            Input::Checked(connection, alive) => self.handle_checked(now, connection, alive)?,
            Input::Refreshed(connection) => self.handle_refreshed(now, connection, ()).map_err(refused)?,
            Input::RefreshFailed(connection) => self.handle_refresh_failed(now, connection)?,
            Input::PeerClosed(connection) => self.handle_peer_closed(now, connection)?,
            Input::Resize(limits) if self.resize(now, limits).is_err() => return Ok(Answer::Refused),
            Input::Resize(_) => {}
            Input::RetireAll(over) => self.retire_all(now, over),
            Input::EndAffinity(key) => self.end_affinity(now, key),
            Input::Resume => self.resume(now),
            Input::RenewCredential => self.renew_credential(now),
            Input::WarmUp(connections) => return Ok(Answer::WarmUp(self.warm_up(now, connections))),
            Input::CancelWarmUp(id) => {
                let was_open = self.cancel_warm_up(now, id).is_some();
                return Ok(Answer::WarmUpCancelled { was_open });
            }
            Input::Timeout => self.handle_timeout(now),
        }
        Ok(Answer::Done)
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

    /// The same clear, which also interrupts connections that are in use or pending.
    #[must_use]
    pub fn interrupting(self) -> Self {
        Self { interrupt_in_use_connections: true, ..self }
    }
}
