//! The frequent calls: check-outs, check-ins, and the polling of outputs.
//!
//! They are recorded when they have been made, which costs less than before: what they returned is at hand.

use alloc::string::ToString;

use super::super::words;
use super::Recorded;
use crate::pool::{CheckOutId, CheckOutRequest, CheckedIn, Condition, Delivery, Handle, Refused};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Output};

impl<C> Recorded<C> {
    /// [`Topology::check_out`](crate::topology::Topology::check_out).
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out(&mut self, now: Instant, request: CheckOutRequest) -> (CheckOut, Option<Delivery<C>>) {
        self.prepare();
        if let Some(delivery) = self.machine.check_out_available(now, request) {
            self.record_served(now, &request, delivery.check_out, delivery.connection);
            return (CheckOut::Started(delivery.check_out), Some(delivery));
        }
        let mut delivery = None;
        let check_out = self.begin_check_out(now, request, &mut delivery);
        (check_out, delivery)
    }

    #[inline(never)]
    fn begin_check_out(
        &mut self,
        now: Instant,
        request: CheckOutRequest,
        delivery: &mut Option<Delivery<C>>,
    ) -> CheckOut {
        let check_out = self.machine.begin_check_out(now, request, delivery);
        if let Some(recorder) = &mut self.recorder {
            let connection = delivery.as_ref().map(|delivery| delivery.connection);
            recorder.record_check_out(&self.machine, now, request, &Answer::CheckOut(check_out, connection));
        }
        check_out
    }

    /// [`Topology::check_out_at_once`](crate::topology::Topology::check_out_at_once).
    #[inline(always)]
    pub fn check_out_at_once(&mut self, now: Instant, request: &CheckOutRequest) -> Option<Delivery<C>> {
        self.prepare();
        let delivery = self.machine.check_out_at_once(now, request)?;
        self.record_served(now, request, delivery.check_out, delivery.connection);
        Some(delivery)
    }

    /// [`Topology::check_in`](crate::topology::Topology::check_in).
    ///
    /// # Errors
    /// Those of the call.
    #[inline(always)]
    pub fn check_in(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        self.prepare();
        match self.machine.check_in_available(now, connection, socket, condition) {
            Ok(()) => {
                if let Some(recorder) = &mut self.recorder
                    && !recorder.record_returned(now, connection)
                {
                    recorder.record_check_in(&self.machine, now, connection, condition, &Answer::CheckedIn(None));
                }
                Ok(CheckedIn::Done)
            }
            Err(socket) => self.begin_check_in(now, connection, socket, condition),
        }
    }

    #[inline(never)]
    fn begin_check_in(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        let checked_in = self.machine.begin_check_in(now, connection, socket, condition);
        if let Some(recorder) = &mut self.recorder {
            let answer = Answer::of_check_in(&checked_in);
            recorder.record_check_in(&self.machine, now, connection, condition, &answer);
        }
        checked_in
    }

    #[inline(always)]
    fn prepare(&mut self) {
        if self.recorder.as_ref().is_some_and(|recorder| recorder.is_due()) {
            self.prepare_now();
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn prepare_now(&mut self) {
        if let Some(recorder) = &mut self.recorder
            && let Err(broken) = recorder.prepare(&self.machine)
        {
            self.freeze(broken.to_string());
        }
    }

    #[inline(always)]
    fn record_served(&mut self, now: Instant, request: &CheckOutRequest, check_out: CheckOutId, connection: Handle) {
        let Some(recorder) = &mut self.recorder else { return };
        let is_recorded = request.affinity.is_none()
            && request.identity.is_none()
            && recorder.record_served(
                now,
                request.deadline,
                check_out.sequence,
                connection.id(),
                words::place_of(connection),
            );
        if !is_recorded {
            let answer = Answer::CheckOut(CheckOut::Started(check_out), Some(connection));
            recorder.record_check_out(&self.machine, now, *request, &answer);
        }
    }

    /// [`Topology::poll_output`](crate::topology::Topology::poll_output).
    #[must_use = "an action that is not carried out is lost"]
    #[inline(always)]
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        if self.recorder.is_some() && !self.machine.is_drained() {
            return self.poll_and_record();
        }
        self.machine.poll_output()
    }

    #[inline(never)]
    fn poll_and_record(&mut self) -> Option<Output<C>> {
        let output = self.machine.poll_output()?;
        if let Some(recorder) = &mut self.recorder {
            recorder.take_output(&output);
        }
        Some(output)
    }

    /// [`Topology::socket`](crate::topology::Topology::socket), which changes nothing but the socket.
    pub fn socket(&mut self, connection: Handle) -> Option<&mut C> {
        self.machine.socket(connection)
    }
}
