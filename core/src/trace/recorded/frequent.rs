//! The frequent calls: check-outs, check-ins, and the polling of outputs.
//!
//! Recording after the call is cheaper: its result is known. Where nobody records, the machine's own fast path is open, which looks for
//! no recorder.

use alloc::string::ToString;

use super::Recorded;
use crate::pool::{CheckOutId, CheckOutRequest, CheckedIn, Condition, Delivery, EndedUse, Handle, Refused};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Output};

impl<C> Recorded<C> {
    /// [`Topology::check_out`](crate::topology::Topology::check_out).
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out(&mut self, now: Instant, request: CheckOutRequest) -> (CheckOut, Option<Delivery<C>>) {
        self.prepare(now);
        if let Some(delivery) = self.machine.check_out_fast(self.machine.is_drained(), now, request) {
            if let Some(tape) = &mut self.tape {
                tape.record_served(&self.machine, now, &request, delivery.check_out, delivery.connection);
            }
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
        if let Some(tape) = &mut self.tape {
            let connection = delivery.as_ref().map(|delivery| delivery.connection);
            tape.record_check_out(&self.machine, now, request, &Answer::CheckOut(check_out, connection));
        }
        check_out
    }

    /// [`Topology::check_out_available`](crate::topology::Topology::check_out_available). It looks for no recorder: where there is
    /// one, the fast path is closed.
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out_available(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        self.machine.check_out_available(now, request)
    }

    /// [`Topology::close_fast_path`](crate::topology::Topology::close_fast_path), which is the driver's affair.
    pub fn close_fast_path(&mut self) {
        self.machine.close_fast_path();
    }

    /// [`Topology::check_out_waiting`](crate::topology::Topology::check_out_waiting), which looks for no recorder either.
    #[inline]
    pub fn check_out_waiting(
        &mut self,
        now: Instant,
        request: CheckOutRequest,
    ) -> Option<(CheckOutId, Option<Instant>)> {
        self.machine.check_out_waiting(now, request)
    }

    /// [`Topology::check_out_at_once`](crate::topology::Topology::check_out_at_once).
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out_at_once(&mut self, now: Instant, request: &CheckOutRequest) -> Option<Delivery<C>> {
        self.prepare(now);
        let delivery = self.machine.check_out_at_once(now, request)?;
        if let Some(tape) = &mut self.tape {
            tape.record_served(&self.machine, now, request, delivery.check_out, delivery.connection);
        }
        Some(delivery)
    }

    /// [`Topology::check_out_hottest`](crate::topology::Topology::check_out_hottest).
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out_hottest(&mut self, now: Instant, request: &CheckOutRequest) -> Option<Delivery<C>> {
        self.prepare(now);
        let delivery = self.machine.check_out_hottest(now, request)?;
        if let Some(tape) = &mut self.tape {
            tape.record_served(&self.machine, now, request, delivery.check_out, delivery.connection);
        }
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
        self.prepare(now);
        let is_open = self.machine.is_drained();
        match self.machine.check_in_fast(is_open, now, connection, socket, condition) {
            Ok(_) => {
                if let Some(tape) = &mut self.tape {
                    tape.record_returned(&self.machine, now, connection, condition);
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
        if let Some(tape) = &mut self.tape {
            let answer = Answer::of_check_in(&checked_in);
            tape.record_check_in(&self.machine, now, connection, condition, &answer);
        }
        checked_in
    }

    /// [`Topology::check_in_available`](crate::topology::Topology::check_in_available), which looks for no recorder: where there is
    /// one, the fast path is closed.
    ///
    /// # Errors
    /// Those of the call.
    #[inline(always)]
    pub fn check_in_available(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<Option<Instant>, C> {
        self.machine.check_in_available(now, connection, socket, condition)
    }

    /// [`Topology::check_in_to_waiter`](crate::topology::Topology::check_in_to_waiter), which looks for no recorder either.
    ///
    /// # Errors
    /// Those of the call.
    #[inline]
    pub fn check_in_to_waiter(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<Delivery<C>, C> {
        self.machine.check_in_to_waiter(now, connection, socket, condition)
    }

    /// [`Topology::check_in_at_once`](crate::topology::Topology::check_in_at_once).
    ///
    /// # Errors
    /// Those of the call.
    #[inline(always)]
    pub fn check_in_at_once(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(EndedUse, Option<Instant>), C> {
        self.prepare(now);
        let returned = self.machine.check_in_at_once(now, connection, socket, condition)?;
        if let Some(tape) = &mut self.tape {
            tape.record_returned(&self.machine, now, connection, condition);
        }
        Ok(returned)
    }

    #[inline(always)]
    fn prepare(&mut self, now: Instant) {
        if self.tape.as_ref().is_some_and(|tape| tape.is_due()) {
            self.prepare_now(now);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn prepare_now(&mut self, now: Instant) {
        if let Some(tape) = &mut self.tape
            && let Err(broken) = tape.prepare(&self.machine, now)
        {
            self.freeze(broken.to_string());
        }
    }

    /// [`Topology::poll_output`](crate::topology::Topology::poll_output).
    #[must_use = "an action that is not carried out is lost"]
    #[inline(always)]
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        if self.machine.is_drained() {
            return self.machine.poll_output();
        }
        self.poll_queued()
    }

    #[inline(never)]
    fn poll_queued(&mut self) -> Option<Output<C>> {
        let output = self.machine.poll_output()?;
        if let Some(tape) = &mut self.tape {
            tape.take_output(&self.machine, &output);
        }
        Some(output)
    }

    /// [`Topology::socket`](crate::topology::Topology::socket), which changes nothing but the socket.
    pub fn socket(&mut self, connection: Handle) -> Option<&mut C> {
        self.machine.socket(connection)
    }
}
