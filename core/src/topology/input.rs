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
    AffinityKey, ApiMisuse, Cancellation, Cause, CheckOutId, CheckOutRequest, CheckedIn, Clear, Condition, Delivery,
    Handle, IdentityId, PhaseTimes, Purpose, Refused,
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
    /// [`Topology::retire_all`].
    RetireAll(Duration),
    /// [`Topology::end_affinity`].
    EndAffinity(AffinityKey),
    /// [`Topology::resume`].
    Resume,
    /// [`Topology::add_identity`].
    AddIdentity,
    /// [`Topology::remove_identity`].
    RemoveIdentity(IdentityId),
    /// [`Topology::renew_credential`]; of an identity, [`Topology::renew_credential_of`].
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

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Answer {
    /// Nothing.
    Done,
    /// The check-out that it began, and the connection that it delivered at once.
    CheckOut(CheckOut, Option<Handle>),
    /// The waiter to which a check-in delivered its connection, and that connection.
    CheckedIn(Option<(CheckOutId, Handle)>),
    /// The state in which it found a check-out.
    Cancellation(Cancellation),
    /// The identity that it added.
    Identity(IdentityId),
    /// The warm-up that it began.
    WarmUp(WarmUpId),
    /// The servers that the warm-up has made warm that it ended, or what one of them lacked.
    WarmUpCancelled(Option<Result<Vec<ServerAddress>, WarmUpError>>),
    /// The call made no sense, and nothing has changed.
    Misuse(ApiMisuse),
    /// The new limits contradict each other, and nothing has changed.
    Refused,
}

impl Topology<()> {
    /// Makes the call that `input` describes. The same inputs always have the same answers and outputs. A connection that the
    /// call delivers at once is named in the answer, and not among the outputs.
    pub fn apply(&mut self, now: Instant, input: Input) -> Answer {
        match input {
            Input::Open => self.open(now),
            Input::CheckIn(check_out, connection, condition) => {
                return Answer::of_check_in(&self.check_in(now, check_out, connection, (), condition));
            }
            Input::CheckOut(criteria, request) => {
                return Answer::of_check_out(&self.check_out(now, &criteria, request));
            }
            Input::ChangeCriteria(selection, criteria) => self.change_criteria(now, selection, &criteria),
            Input::CancelCheckOut(check_out) => return Answer::Cancellation(self.cancel_check_out(now, check_out)),
            Input::SetPurpose(check_out, connection, purpose) => {
                return self.set_purpose(check_out, connection, purpose).into();
            }
            Input::Check(server, finding) => return self.handle_check(now, server, finding).into(),
            Input::Heartbeat(server, event) => self.handle_heartbeat(now, server, event),
            Input::Hello(connection, service_id, description) => {
                return self.handle_hello(now, connection, service_id, *description).into();
            }
            Input::Established(connection) => return Answer::of_socket(&self.handle_established(now, connection, ())),
            Input::EstablishFailed(connection, error) => {
                return self.handle_establish_failed(now, connection, error).into();
            }
            Input::Refreshed(connection) => return Answer::of_socket(&self.handle_refreshed(now, connection, ())),
            Input::RefreshFailed(connection, error) => {
                return self.handle_refresh_failed(now, connection, error).into();
            }
            Input::Checked(connection, is_alive) => return self.handle_checked(now, connection, is_alive).into(),
            Input::PeerClosed(connection) => return self.handle_peer_closed(now, connection).into(),
            Input::OperationFailed(connection, error) => {
                return self.handle_operation_failed(now, connection, error).into();
            }
            Input::Srv(answer) => self.handle_srv(now, answer),
            Input::Ready => return self.ready(now).into(),
            Input::Clear(clear) => return self.clear(now, clear).into(),
            Input::Resize(limits) => return Answer::of_resize(&self.resize(now, limits)),
            Input::RetireAll(over) => self.retire_all(now, over),
            Input::EndAffinity(key) => self.end_affinity(now, key),
            Input::Resume => self.resume(now),
            Input::AddIdentity => return Answer::Identity(self.add_identity(now)),
            Input::RemoveIdentity(identity) => self.remove_identity(now, identity),
            Input::RenewCredential(None) => self.renew_credential(now),
            Input::RenewCredential(Some(identity)) => self.renew_credential_of(now, identity),
            Input::WarmUp(criteria, connections) => return Answer::WarmUp(self.warm_up(now, &criteria, connections)),
            Input::CancelWarmUp(id) => return Answer::WarmUpCancelled(self.cancel_warm_up(now, id)),
            Input::Close => self.close(now),
            Input::ResetAfterFork => self.reset_after_fork(now),
            Input::Timeout => self.handle_timeout(now),
            Input::Observe(on) => self.observe(on),
            Input::ObserveSelections(detail) => self.observe_selections(detail),
            Input::RecordDurations(on) => self.record_durations(on),
            Input::Phases(times) => self.note_phases(&times),
        }
        Answer::Done
    }
}

impl Answer {
    /// What [`Topology::check_out`] returned.
    #[inline]
    pub fn of_check_out<C>((check_out, delivery): &(CheckOut, Option<Delivery<C>>)) -> Self {
        Self::CheckOut(*check_out, delivery.as_ref().map(|delivery| delivery.connection))
    }

    /// What [`Topology::check_in`] returned.
    #[inline]
    pub fn of_check_in<C>(checked_in: &Result<CheckedIn<C>, Refused<C>>) -> Self {
        match checked_in {
            Ok(CheckedIn::Done) => Self::CheckedIn(None),
            Ok(CheckedIn::Delivered(delivery)) => Self::CheckedIn(Some((delivery.check_out, delivery.connection))),
            Err(refused) => Self::Misuse(refused.misuse),
        }
    }

    /// What a call returned that takes a socket.
    pub fn of_socket<C>(taken: &Result<(), Refused<C>>) -> Self {
        taken.as_ref().map_or_else(|refused| Self::Misuse(refused.misuse), |()| Self::Done)
    }

    /// What [`Topology::resize`] returned.
    pub fn of_resize(resized: &Result<(), PoolOptionsError>) -> Self {
        if resized.is_ok() { Self::Done } else { Self::Refused }
    }
}

impl From<()> for Answer {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Result<(), ApiMisuse>> for Answer {
    fn from(done: Result<(), ApiMisuse>) -> Self {
        done.map_or_else(Self::Misuse, |()| Self::Done)
    }
}
