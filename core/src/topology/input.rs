//! The calls of a topology as data: what a trace records, a simulation feeds and a fuzzer generates.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::seed_list::SrvRecord;
use super::{CheckOut, Criteria, SelectionDetail, SelectionId, Topology, WarmUpError, WarmUpId};
use crate::address::ServerAddress;
use crate::connection::EstablishError;
use crate::monitor::{Finding, HeartbeatEvent, ServerDescription};
use crate::options::{PoolLimits, PoolOptionsError};
use crate::pool::{
    AffinityKey, ApiMisuse, Cancellation, Cause, CheckOutId, CheckOutRequest, Clear, Condition, Delivery, Handle,
    IdentityId, Misuse, PhaseTimes, Purpose,
};
use crate::server::{OperationError, ServerId};
use crate::service_id::ServiceId;
use crate::time::Instant;

/// One call of a [`Topology`], without the sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Input {
    /// [`Topology::check_out`].
    CheckOut(Box<Criteria>, CheckOutRequest),
    /// [`Topology::check_in`].
    CheckIn(CheckOutId, Handle, Condition),
    /// [`Topology::handle_timeout`].
    Timeout,
    /// [`Topology::open`].
    Open,
    /// [`Topology::change_criteria`].
    ChangeCriteria(SelectionId, Box<Criteria>),
    /// [`Topology::cancel_check_out`].
    CancelCheckOut(CheckOut),
    /// [`Topology::set_purpose`].
    SetPurpose(CheckOutId, Handle, Purpose),
    /// [`Topology::handle_check`].
    Check(ServerId, Finding),
    /// [`Topology::handle_heartbeat`].
    Heartbeat(ServerId, HeartbeatEvent),
    /// [`Topology::handle_hello`].
    Hello(Handle, Option<ServiceId>, Box<ServerDescription>),
    /// [`Topology::handle_established`].
    Established(Handle),
    /// [`Topology::handle_establish_failed`].
    EstablishFailed(Handle, EstablishError),
    /// [`Topology::handle_refreshed`].
    Refreshed(Handle),
    /// [`Topology::handle_refresh_failed`].
    RefreshFailed(Handle, OperationError),
    /// [`Topology::handle_checked`]; whether the connection is alive.
    Checked(Handle, bool),
    /// [`Topology::handle_peer_closed`].
    PeerClosed(Handle),
    /// [`Topology::handle_operation_failed`].
    OperationFailed(Handle, OperationError),
    /// [`Topology::handle_srv`].
    Srv(Result<Vec<SrvRecord>, Cause>),
    /// [`Topology::ready`].
    Ready,
    /// [`Topology::clear`].
    Clear(Clear),
    /// [`Topology::resize`].
    Resize(PoolLimits),
    /// [`Topology::replace_connections`].
    ReplaceConnections(Duration),
    /// [`Topology::end_affinity`].
    EndAffinity(AffinityKey),
    /// [`Topology::resume`].
    Resume,
    /// [`Topology::add_identity`].
    AddIdentity,
    /// [`Topology::remove_identity`].
    RemoveIdentity(IdentityId),
    /// [`Topology::renew_credential`].
    RenewCredential(Option<IdentityId>),
    /// [`Topology::warm_up`]; how many connections.
    WarmUp(Box<Criteria>, Option<u32>),
    /// [`Topology::cancel_warm_up`].
    CancelWarmUp(WarmUpId),
    /// [`Topology::close`].
    Close,
    /// [`Topology::reset_after_fork`].
    ResetAfterFork,
    /// [`Topology::observe`].
    Observe(bool),
    /// [`Topology::observe_selections`].
    ObserveSelections(SelectionDetail),
    /// [`Topology::record_durations`].
    RecordDurations(bool),
    /// [`Topology::note_phases`].
    Phases(PhaseTimes),
}

/// What a call of a [`Topology`](super::Topology) returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Answer<C> {
    /// Nothing.
    Done,
    /// The check-out that it began, and the connection that it delivered at once.
    CheckOut(CheckOut, Option<Delivery<C>>),
    /// The delivery to the next waiter of the connection that was checked in, if it was made at once.
    CheckedIn(Option<Delivery<C>>),
    /// The state in which it found a check-out.
    Cancellation(Cancellation),
    /// The identity that it added.
    Identity(IdentityId),
    /// The warm-up that it began.
    WarmUp(WarmUpId),
    /// The servers that the warm-up has made warm that it ended, or what one of them lacked.
    WarmUpCancelled(Option<Result<Vec<ServerAddress>, WarmUpError>>),
    /// The call made no sense, and nothing has changed: the mistake, and the socket that was handed over.
    Misuse(ApiMisuse, Option<C>),
    /// The new limits contradict each other, and nothing has changed.
    LimitsRefused(PoolOptionsError),
}

impl<C> Topology<C> {
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
            Input::CheckOut(criteria, request) => {
                let (check_out, delivery) = self.check_out(now, &criteria, request);
                return Ok(Answer::CheckOut(check_out, delivery));
            }
            Input::CheckIn(check_out, connection, condition) => {
                let checked_in = self.check_in(now, check_out, connection, socket?, condition)?;
                return Ok(Answer::CheckedIn(checked_in.delivery()));
            }
            Input::Open => self.open(now),
            Input::ChangeCriteria(selection, criteria) => self.change_criteria(now, selection, &criteria),
            Input::CancelCheckOut(check_out) => return Ok(Answer::Cancellation(self.cancel_check_out(now, check_out))),
            Input::SetPurpose(check_out, connection, purpose) => self.set_purpose(check_out, connection, purpose)?,
            Input::Check(server, finding) => self.handle_check(now, server, finding)?,
            Input::Heartbeat(server, event) => self.handle_heartbeat(now, server, event),
            Input::Hello(connection, service_id, description) => {
                self.handle_hello(now, connection, service_id, *description)?;
            }
            Input::Established(connection) => self.handle_established(now, connection, socket?)?,
            Input::EstablishFailed(connection, error) => self.handle_establish_failed(now, connection, error)?,
            Input::Refreshed(connection) => self.handle_refreshed(now, connection, socket?)?,
            Input::RefreshFailed(connection, error) => self.handle_refresh_failed(now, connection, error)?,
            Input::Checked(connection, is_alive) => self.handle_checked(now, connection, is_alive)?,
            Input::PeerClosed(connection) => self.handle_peer_closed(now, connection)?,
            Input::OperationFailed(connection, error) => self.handle_operation_failed(now, connection, error)?,
            Input::Srv(answer) => self.handle_srv(now, answer),
            Input::Ready => self.ready(now)?,
            Input::Clear(clear) => self.clear(now, clear)?,
            Input::Resize(limits) => {
                return Ok(self.resize(now, limits).map_or_else(Answer::LimitsRefused, |()| Answer::Done));
            }
            Input::ReplaceConnections(over) => self.replace_connections(now, over),
            Input::EndAffinity(key) => self.end_affinity(now, key),
            Input::Resume => self.resume(now),
            Input::AddIdentity => return Ok(Answer::Identity(self.add_identity(now))),
            Input::RemoveIdentity(identity) => self.remove_identity(now, identity),
            Input::RenewCredential(identity) => self.renew_credential(now, identity),
            Input::WarmUp(criteria, connections) => {
                return Ok(Answer::WarmUp(self.warm_up(now, &criteria, connections)));
            }
            Input::CancelWarmUp(id) => return Ok(Answer::WarmUpCancelled(self.cancel_warm_up(now, id))),
            Input::Close => self.close(now),
            Input::ResetAfterFork => self.reset_after_fork(now),
            Input::Timeout => self.handle_timeout(now),
            Input::Observe(on) => self.observe(on),
            Input::ObserveSelections(detail) => self.observe_selections(detail),
            Input::RecordDurations(on) => self.record_durations(on),
            Input::Phases(times) => self.note_phases(&times),
        }
        Ok(Answer::Done)
    }
}

impl<C> Answer<C> {
    /// Whether the call made sense.
    ///
    /// # Errors
    /// It made none.
    pub fn done(self) -> Result<(), ApiMisuse> {
        if let Self::Misuse(misuse, _) = self { Err(misuse) } else { Ok(()) }
    }

    /// The answer without its socket.
    pub fn snapshot(&self) -> Answer<()> {
        let without_socket = |delivery: &Option<Delivery<C>>| delivery.as_ref().map(Delivery::snapshot);
        match self {
            Self::Done => Answer::Done,
            Self::CheckOut(check_out, delivery) => Answer::CheckOut(*check_out, without_socket(delivery)),
            Self::CheckedIn(delivery) => Answer::CheckedIn(without_socket(delivery)),
            Self::Cancellation(cancellation) => Answer::Cancellation(*cancellation),
            Self::Identity(identity) => Answer::Identity(*identity),
            Self::WarmUp(id) => Answer::WarmUp(*id),
            Self::WarmUpCancelled(ended) => Answer::WarmUpCancelled(ended.clone()),
            Self::Misuse(misuse, socket) => Answer::Misuse(*misuse, socket.as_ref().map(|_| ())),
            Self::LimitsRefused(error) => Answer::LimitsRefused(error.clone()),
        }
    }
}
