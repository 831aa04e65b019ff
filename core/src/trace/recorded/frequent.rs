//! The frequent calls: check-outs, check-ins, and the polling of outputs.
//!
//! Recording after the call is cheaper: its result is known.

use alloc::string::ToString;

use super::Recorded;
use crate::pool::{CheckOutId, CheckOutRequest, CheckedIn, Condition, Delivery, Handle, Refused};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Criteria, Output};

impl<C> Recorded<C> {
    /// [`Topology::check_out`](crate::topology::Topology::check_out).
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out(
        &mut self,
        now: Instant,
        criteria: &Criteria,
        request: CheckOutRequest,
    ) -> (CheckOut, Option<Delivery<C>>) {
        if !criteria.is_default() {
            return self.check_out_for(now, criteria, request);
        }
        self.prepare(now);
        let (check_out, delivery) = self.machine.check_out(now, criteria, request);
        if let Some(tape) = &mut self.tape {
            match &delivery {
                Some(Delivery { check_out, connection, .. }) if self.machine.is_drained() => {
                    tape.record_served(&self.machine, now, &request, *check_out, *connection);
                }
                _ => {
                    let answer = Answer::CheckOut(check_out, delivery.as_ref().map(Delivery::snapshot));
                    tape.record_check_out(&self.machine, now, request, &answer);
                }
            }
        }
        (check_out, delivery)
    }

    /// [`Topology::check_in`](crate::topology::Topology::check_in).
    ///
    /// # Errors
    /// Those of the call.
    #[inline(always)]
    pub fn check_in(
        &mut self,
        now: Instant,
        check_out: CheckOutId,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        self.prepare(now);
        let checked_in = self.machine.check_in(now, check_out, connection, socket, condition);
        if let Some(tape) = &mut self.tape {
            match (&checked_in, condition) {
                (Ok(CheckedIn::Done), Condition::Usable) if self.machine.is_drained() => {
                    tape.record_returned(&self.machine, now, check_out, connection);
                }
                _ => {
                    let answer = match &checked_in {
                        Ok(CheckedIn::Done) => Answer::CheckedIn(None),
                        Ok(CheckedIn::Delivered(delivery)) => Answer::CheckedIn(Some(delivery.snapshot())),
                        Err(refused) => Answer::Misuse(refused.misuse, Some(())),
                    };
                    tape.record_check_in(&self.machine, now, (check_out, connection, condition), &answer);
                }
            }
        }
        checked_in
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
