//! A topology whose calls are recorded.
//!
//! It has every call of [`Topology`] that changes something. Each of them is recorded before it is made, and its answer
//! afterwards; the frequent ones, which `frequent` holds, are recorded when they have been made. Without a recorder a call is just
//! made. The questions are the topology's own, by `Deref`.

mod frequent;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Deref;
use core::time::Duration;

use super::history::History;
use super::tape::{Contents, RecorderOptions, Tape};
use crate::address::ServerAddress;
use crate::connection::EstablishError;
use crate::monitor::{Finding, HeartbeatEvent, ServerDescription};
use crate::options::{PoolLimits, PoolOptionsError};
use crate::pool::{
    AffinityKey, ApiMisuse, Cancellation, Cause, CheckOutId, CheckOutRequest, Clear, Delivery, Handle, IdentityId,
    PhaseTimes, Purpose, Refused,
};
use crate::server::{OperationError, ServerId};
use crate::service_id::ServiceId;
use crate::time::Instant;
use crate::topology::seed_list::SrvRecord;
use crate::topology::{
    Answer, CheckOut, Criteria, Input, SelectionDetail, SelectionId, Topology, WarmUpError, WarmUpId,
};

/// A topology, and the recorder of its calls, if there is one.
#[derive(Clone, Debug)]
pub struct Recorded<C> {
    machine: Topology<C>,
    tape: Option<Box<Tape>>,
    frozen: Option<Box<Frozen>>,
}

/// What was recorded until something led to the end of it.
#[derive(Clone, Debug)]
struct Frozen {
    contents: Contents,
    reason: String,
    is_told: bool,
}

impl<C> From<Topology<C>> for Recorded<C> {
    /// Without a recorder.
    fn from(machine: Topology<C>) -> Self {
        Self { machine, tape: None, frozen: None }
    }
}

impl<C> Deref for Recorded<C> {
    type Target = Topology<C>;

    #[inline]
    fn deref(&self) -> &Topology<C> {
        &self.machine
    }
}

impl<C> Recorded<C> {
    // The recorder.

    /// Records from now on, and forgets what was recorded before.
    pub fn start_recording(&mut self, options: RecorderOptions) {
        self.tape = Some(Box::new(Tape::new(options, &self.machine)));
        self.frozen = None;
    }

    /// Stops recording, and keeps what was recorded until here: it led to what `reason` tells. By itself this happens when a pool
    /// is found to contradict itself, for which each new segment looks.
    pub fn freeze(&mut self, reason: String) {
        if let Some(contents) = self.stop_recording() {
            self.frozen = Some(Box::new(Frozen { contents, reason, is_told: false }));
        }
    }

    /// Why recording was frozen, once.
    pub fn take_reason(&mut self) -> Option<String> {
        let frozen = self.frozen.as_mut().filter(|frozen| !frozen.is_told)?;
        frozen.is_told = true;
        Some(frozen.reason.clone())
    }

    /// Stops, and returns what was recorded.
    pub fn stop_recording(&mut self) -> Option<Contents> {
        self.tape.take().map(|tape| tape.contents(&self.machine))
    }

    /// Whether there is a recorder.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.tape.is_some()
    }

    /// What is recorded now, or was until recording was frozen. Copies at most one segment.
    pub fn recording(&self) -> Option<Contents> {
        let now = self.tape.as_ref().map(|tape| tape.contents(&self.machine));
        now.or_else(|| self.frozen.as_ref().map(|frozen| frozen.contents.clone()))
    }

    /// What a sparse recorder keeps now.
    pub(super) fn history(&self) -> Option<History> {
        self.tape.as_ref()?.contents(&self.machine).history()
    }

    /// The bytes that the recorder keeps.
    pub fn recorded_bytes(&self) -> usize {
        self.tape.as_ref().map_or(0, |tape| tape.bytes())
    }

    /// Records who made the last call, which began this check-out: the number of a text.
    #[inline]
    pub fn note_holder(&mut self, check_out: CheckOut, text: u32) {
        if let Some(tape) = &mut self.tape {
            tape.note_holder(check_out, text);
        }
    }

    /// Records that the task of a check-out that waited has taken its answer.
    pub fn note_taken(&mut self, now: Instant, check_out: CheckOut) {
        if let Some(tape) = &mut self.tape {
            tape.note_taken(&self.machine, now, check_out);
        }
    }

    // The others, in the order of `Input`.

    /// [`Topology::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.call(now, || Input::Timeout, |machine| machine.handle_timeout(now));
    }

    /// [`Topology::open`].
    pub fn open(&mut self, now: Instant) {
        self.call(now, || Input::Open, |machine| machine.open(now));
    }

    /// Criteria can be long: room is made for them before the call.
    #[inline(never)]
    fn check_out_for(
        &mut self,
        now: Instant,
        criteria: &Criteria,
        request: CheckOutRequest,
    ) -> (CheckOut, Option<Delivery<C>>) {
        let input = || Input::CheckOut(Box::new(criteria.clone()), request);
        self.make(now, input, |machine| machine.check_out(now, criteria, request), Answer::of_check_out)
    }

    /// [`Topology::change_criteria`].
    pub fn change_criteria(&mut self, now: Instant, selection: SelectionId, criteria: &Criteria) {
        let input = || Input::ChangeCriteria(selection, Box::new(criteria.clone()));
        self.call(now, input, |machine| machine.change_criteria(now, selection, criteria));
    }

    /// [`Topology::cancel_check_out`].
    #[must_use = "a delivered connection has to be checked in"]
    pub fn cancel_check_out(&mut self, now: Instant, check_out: CheckOut) -> Cancellation {
        let input = || Input::CancelCheckOut(check_out);
        let answer = |cancelled: &Cancellation| Answer::Cancellation(*cancelled);
        self.make(now, input, |machine| machine.cancel_check_out(now, check_out), answer)
    }

    /// [`Topology::set_purpose`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn set_purpose(
        &mut self,
        check_out: CheckOutId,
        connection: Handle,
        purpose: Purpose,
    ) -> Result<(), ApiMisuse> {
        let input = || Input::SetPurpose(check_out, connection, purpose);
        self.call(self.machine.now(), input, |machine| machine.set_purpose(check_out, connection, purpose))
    }

    /// [`Topology::handle_check`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_check(&mut self, now: Instant, server: ServerId, finding: Finding) -> Result<(), ApiMisuse> {
        self.record(now, || Input::Check(server, finding.clone()));
        let done = self.machine.handle_check(now, server, finding);
        self.answer(done)
    }

    /// [`Topology::handle_heartbeat`].
    pub fn handle_heartbeat(&mut self, now: Instant, server: ServerId, event: HeartbeatEvent) {
        self.record(now, || Input::Heartbeat(server, event.clone()));
        self.machine.handle_heartbeat(now, server, event);
        self.answer(());
    }

    /// [`Topology::handle_hello`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_hello(
        &mut self,
        now: Instant,
        connection: Handle,
        service_id: Option<ServiceId>,
        description: ServerDescription,
    ) -> Result<(), ApiMisuse> {
        self.record(now, || Input::Hello(connection, service_id, Box::new(description.clone())));
        let done = self.machine.handle_hello(now, connection, service_id, description);
        self.answer(done)
    }

    /// [`Topology::handle_established`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_established(&mut self, now: Instant, connection: Handle, socket: C) -> Result<(), Refused<C>> {
        let call = |machine: &mut Topology<C>| machine.handle_established(now, connection, socket);
        self.make(now, || Input::Established(connection), call, Answer::of_socket)
    }

    /// [`Topology::handle_establish_failed`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: EstablishError,
    ) -> Result<(), ApiMisuse> {
        self.record(now, || Input::EstablishFailed(connection, error.clone()));
        let done = self.machine.handle_establish_failed(now, connection, error);
        self.answer(done)
    }

    /// [`Topology::handle_refreshed`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_refreshed(&mut self, now: Instant, connection: Handle, socket: C) -> Result<(), Refused<C>> {
        let call = |machine: &mut Topology<C>| machine.handle_refreshed(now, connection, socket);
        self.make(now, || Input::Refreshed(connection), call, Answer::of_socket)
    }

    /// [`Topology::handle_refresh_failed`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_refresh_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: OperationError,
    ) -> Result<(), ApiMisuse> {
        self.record(now, || Input::RefreshFailed(connection, error.clone()));
        let done = self.machine.handle_refresh_failed(now, connection, error);
        self.answer(done)
    }

    /// [`Topology::handle_checked`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_checked(&mut self, now: Instant, connection: Handle, alive: bool) -> Result<(), ApiMisuse> {
        let input = || Input::Checked(connection, alive);
        self.call(now, input, |machine| machine.handle_checked(now, connection, alive))
    }

    /// [`Topology::handle_peer_closed`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_peer_closed(&mut self, now: Instant, connection: Handle) -> Result<(), ApiMisuse> {
        self.call(now, || Input::PeerClosed(connection), |machine| machine.handle_peer_closed(now, connection))
    }

    /// [`Topology::handle_operation_failed`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn handle_operation_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: OperationError,
    ) -> Result<(), ApiMisuse> {
        self.record(now, || Input::OperationFailed(connection, error.clone()));
        let done = self.machine.handle_operation_failed(now, connection, error);
        self.answer(done)
    }

    /// [`Topology::handle_srv`].
    pub fn handle_srv(&mut self, now: Instant, answer: Result<Vec<SrvRecord>, Cause>) {
        self.record(now, || Input::Srv(answer.clone()));
        self.machine.handle_srv(now, answer);
        self.answer(());
    }

    /// [`Topology::ready`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn ready(&mut self, now: Instant) -> Result<(), ApiMisuse> {
        self.call(now, || Input::Ready, |machine| machine.ready(now))
    }

    /// [`Topology::clear`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn clear(&mut self, now: Instant, clear: Clear) -> Result<(), ApiMisuse> {
        self.record(now, || Input::Clear(clear.clone()));
        let done = self.machine.clear(now, clear);
        self.answer(done)
    }

    /// [`Topology::resize`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn resize(&mut self, now: Instant, limits: impl Into<PoolLimits>) -> Result<(), PoolOptionsError> {
        let limits = limits.into();
        self.make(now, || Input::Resize(limits), |machine| machine.resize(now, limits), Answer::of_resize)
    }

    /// [`Topology::retire_all`].
    pub fn retire_all(&mut self, now: Instant, over: Duration) {
        self.call(now, || Input::RetireAll(over), |machine| machine.retire_all(now, over));
    }

    /// [`Topology::end_affinity`].
    pub fn end_affinity(&mut self, now: Instant, key: AffinityKey) {
        self.call(now, || Input::EndAffinity(key), |machine| machine.end_affinity(now, key));
    }

    /// [`Topology::resume`].
    pub fn resume(&mut self, now: Instant) {
        self.call(now, || Input::Resume, |machine| machine.resume(now));
    }

    /// [`Topology::add_identity`].
    pub fn add_identity(&mut self, now: Instant) -> IdentityId {
        let answer = |identity: &IdentityId| Answer::Identity(*identity);
        self.make(now, || Input::AddIdentity, |machine| machine.add_identity(now), answer)
    }

    /// [`Topology::remove_identity`].
    pub fn remove_identity(&mut self, now: Instant, identity: IdentityId) {
        self.call(now, || Input::RemoveIdentity(identity), |machine| machine.remove_identity(now, identity));
    }

    /// [`Topology::renew_credential`].
    pub fn renew_credential(&mut self, now: Instant) {
        self.call(now, || Input::RenewCredential(None), |machine| machine.renew_credential(now));
    }

    /// [`Topology::renew_credential_of`].
    pub fn renew_credential_of(&mut self, now: Instant, identity: IdentityId) {
        let input = || Input::RenewCredential(Some(identity));
        self.call(now, input, |machine| machine.renew_credential_of(now, identity));
    }

    /// [`Topology::warm_up`].
    pub fn warm_up(&mut self, now: Instant, criteria: &Criteria, connections: Option<u32>) -> WarmUpId {
        let input = || Input::WarmUp(Box::new(criteria.clone()), connections);
        let answer = |warm_up: &WarmUpId| Answer::WarmUp(*warm_up);
        self.make(now, input, |machine| machine.warm_up(now, criteria, connections), answer)
    }

    /// [`Topology::cancel_warm_up`].
    pub fn cancel_warm_up(&mut self, now: Instant, id: WarmUpId) -> Option<Result<Vec<ServerAddress>, WarmUpError>> {
        let answer = |ended: &Option<_>| Answer::WarmUpCancelled(ended.clone());
        self.make(now, || Input::CancelWarmUp(id), |machine| machine.cancel_warm_up(now, id), answer)
    }

    /// [`Topology::close`].
    pub fn close(&mut self, now: Instant) {
        self.call(now, || Input::Close, |machine| machine.close(now));
    }

    /// [`Topology::reset_after_fork`].
    pub fn reset_after_fork(&mut self, now: Instant) {
        self.call(now, || Input::ResetAfterFork, |machine| machine.reset_after_fork(now));
    }

    /// [`Topology::observe`]. Drivers ask for it again and again: what changes nothing is not recorded.
    pub fn observe(&mut self, on: bool) {
        if self.machine.observation().0 == on {
            return;
        }
        self.call(self.machine.now(), || Input::Observe(on), |machine| machine.observe(on));
    }

    /// [`Topology::observe_selections`]; the same as at [`observe`](Self::observe).
    pub fn observe_selections(&mut self, detail: SelectionDetail) {
        if self.machine.observation().1 == detail {
            return;
        }
        let input = || Input::ObserveSelections(detail);
        self.call(self.machine.now(), input, |machine| machine.observe_selections(detail));
    }

    /// [`Topology::record_durations`].
    pub fn record_durations(&mut self, on: bool) {
        self.call(self.machine.now(), || Input::RecordDurations(on), |machine| machine.record_durations(on));
    }

    /// [`Topology::note_phases`].
    pub fn note_phases(&mut self, times: &PhaseTimes) {
        self.call(self.machine.now(), || Input::Phases(*times), |machine| machine.note_phases(times));
    }

    // Recording a call.

    fn call<T: Copy + Into<Answer>>(
        &mut self,
        now: Instant,
        input: impl FnOnce() -> Input,
        call: impl FnOnce(&mut Topology<C>) -> T,
    ) -> T {
        self.make(now, input, call, |answer: &T| (*answer).into())
    }

    fn make<T>(
        &mut self,
        now: Instant,
        input: impl FnOnce() -> Input,
        call: impl FnOnce(&mut Topology<C>) -> T,
        answer: impl FnOnce(&T) -> Answer,
    ) -> T {
        self.record(now, input);
        let result = call(&mut self.machine);
        if let Some(tape) = &mut self.tape {
            tape.take_answer(&answer(&result));
        }
        result
    }

    fn record(&mut self, now: Instant, input: impl FnOnce() -> Input) {
        if self.tape.is_some() {
            self.prepare_now(now);
        }
        if let Some(tape) = &mut self.tape {
            tape.record(&self.machine, now, input());
        }
    }

    fn answer<T: Copy + Into<Answer>>(&mut self, result: T) -> T {
        if let Some(tape) = &mut self.tape {
            tape.take_answer(&result.into());
        }
        result
    }
}

impl Recorded<()> {
    /// [`Topology::apply`]: any call, as data.
    pub fn apply(&mut self, now: Instant, input: Input) -> Answer {
        self.record(now, || input.clone());
        let answer = self.machine.apply(now, input);
        if let Some(tape) = &mut self.tape {
            tape.take_answer(&answer);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::{Header, Replay, Trace};
    use super::*;
    use crate::options::PoolOptions;
    use crate::topology::TopologyOptions;

    #[test]
    fn recording_stops_before_a_state_that_contradicts_itself() {
        let options = TopologyOptions::of_seeds(vec![ServerAddress::tcp("a", 27017)]);
        let mut recorded: Recorded<()> = Topology::new(options, PoolOptions::default()).unwrap().into();
        recorded.start_recording(RecorderOptions { bytes: 0, ..RecorderOptions::default() });
        recorded.open(Instant::ORIGIN);
        recorded.machine.break_invariant();

        for millis in 0..2000 {
            recorded.handle_timeout(Instant::from_millis(millis));
        }

        assert!(!recorded.is_recording());
        assert!(recorded.take_reason().unwrap().contains("contradicts itself"));
        assert_eq!(recorded.take_reason(), None);
        let trace = Trace::read(&recorded.recording().unwrap().encode(&Header::default())).unwrap();
        assert!(Replay::new(&trace).unwrap().step().unwrap().is_some());
    }
}
