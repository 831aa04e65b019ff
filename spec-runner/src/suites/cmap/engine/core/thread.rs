//! The virtual threads of a test: their queues, what they wait for, and how operations are carried out.

use core::time::Duration;
use std::collections::VecDeque;

use cmap_core::connection::Fault;
use cmap_core::pool::{
    AffinityKey, Cancellation, Cause, CheckOutId, CheckOutRequest, Clear, Condition, Counts, Handle,
};
use cmap_core::server::OperationError;
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Topology, WarmUpId};

use super::super::{ActualError, EVENT_TIMEOUT};
use super::{Session, setup};
use crate::suites::cmap::format::{
    self, ConnectionName, EventType, ExpectedError, NewCredential, Operation, Step, WarmUpFailure,
};
use crate::suites::cmap::verdict;

/// One thread.
pub(super) struct Thread<'a> {
    steps: VecDeque<&'a Step>,
    pub(super) wait: Option<Wait<'a>>,
    /// The error that ended it.
    pub(super) error: Option<ActualError>,
    has_failed: bool,
    is_started: bool,
}

/// The condition that a thread waits for.
pub(super) enum Wait<'a> {
    /// A moment.
    Time { until: Instant },
    /// Events.
    Event { event: EventType, count: u32, until: Instant },
    /// The end of another thread.
    Thread { target: &'a str },
    /// The end of a warm-up.
    WarmUp { id: WarmUpId, expected: Option<WarmUpFailure> },
    /// The end of a check-out.
    CheckOut { id: CheckOutId, label: Option<&'a str>, expected: Option<&'a ExpectedError> },
}

impl<'a> Thread<'a> {
    pub(super) fn new(steps: impl Iterator<Item = &'a Step>) -> Self {
        Self { steps: steps.collect(), wait: None, error: None, has_failed: false, is_started: true }
    }

    fn unstarted() -> Self {
        Self { is_started: false, ..Self::new([].into_iter()) }
    }

    /// Whether it can carry out an operation now.
    pub(super) fn is_at_work(&self) -> bool {
        self.is_started && !self.has_failed && self.wait.is_none() && !self.steps.is_empty()
    }

    /// Whether it has carried out all its operations, or failed.
    pub(super) fn is_done(&self) -> bool {
        self.is_started && (self.has_failed || (self.wait.is_none() && self.steps.is_empty()))
    }

    fn fail(&mut self, error: ActualError) {
        self.error = Some(error);
        self.has_failed = true;
    }
}

impl Wait<'_> {
    /// The moment at which the wait ends on its own.
    pub(super) fn until(&self) -> Option<Instant> {
        match self {
            Self::Time { until } | Self::Event { until, .. } => Some(*until),
            Self::Thread { .. } | Self::WarmUp { .. } | Self::CheckOut { .. } => None,
        }
    }
}

impl<'a> Session<'a> {
    /// Lets `thread` carry out its next operation, or pass it to the thread that it is for.
    pub(super) fn carry_out_next(&mut self, thread: &'a str) {
        let Some(step) = self.threads.get_mut(thread).and_then(|thread| thread.steps.pop_front()) else { return };
        match step.thread.as_deref().filter(|&target| target != thread) {
            // A thread that is not started yet begins with it when it is.
            Some(target) => self.threads.entry(target).or_insert_with(Thread::unstarted).steps.push_back(step),
            None => {
                let wait = self.carry_out(&step.operation);
                if let Some(thread) = self.threads.get_mut(thread) {
                    thread.wait = wait;
                }
                self.read_news();
            }
        }
    }

    /// The condition of `thread` holds, or will not hold any more.
    pub(super) fn go_on(&mut self, thread: &'a str) {
        let Some(wait) = self.threads.get_mut(thread).and_then(|thread| thread.wait.take()) else { return };
        match wait {
            Wait::Time { .. } => {}
            Wait::Event { event, count, .. } => {
                let seen = self.occurrences(event);
                if seen < count {
                    let error = ActualError {
                        type_name: "WaitForEventTimeout".into(),
                        message: format!("waited in vain for {count} {}; there were {seen}", event.name()),
                        address: self.simulation.pool().address().to_string(),
                    };
                    self.fail_thread(thread, error);
                }
            }
            Wait::Thread { target } => {
                let error = self.threads.get(target).and_then(|target| target.error.clone());
                if let Some(error) = error {
                    self.fail_thread(thread, error);
                }
            }
            Wait::WarmUp { id, expected } => {
                let failure = self.warmed.remove(&id).flatten();
                if failure != expected {
                    self.violation(format!("a warm-up should end with {expected:?}, and ended with {failure:?}"));
                }
            }
            Wait::CheckOut { id, label, expected } => match self.ended.remove(&id) {
                Some(Ok(connection)) => self.end_check_out(label, expected, (id, connection)),
                Some(Err(error)) => self.fail_check_out(thread, expected, (&*error).into()),
                None => {}
            },
        }
    }

    fn carry_out(&mut self, operation: &'a Operation) -> Option<Wait<'a>> {
        let now = self.simulation.now();
        let after = |millis: u32| now + Duration::from_millis(millis.into());
        match operation {
            Operation::Start { target } => {
                self.threads.entry(target).or_insert_with(Thread::unstarted).is_started = true;
            }
            Operation::Wait { ms } => return Some(Wait::Time { until: after(*ms) }),
            Operation::WaitForThread { target } => return Some(Wait::Thread { target }),
            Operation::WaitForEvent { event, count, timeout } => {
                let until = timeout.map_or(now + EVENT_TIMEOUT, after);
                return Some(Wait::Event { event: *event, count: *count, until });
            }
            Operation::CheckOut { label, timeout_ms, affinity, user, error } => {
                let mut request = timeout_ms.map(after).map_or_else(CheckOutRequest::default, CheckOutRequest::until);
                request.affinity = affinity.map(AffinityKey);
                request.identity = user.as_deref().and_then(|user| self.users.get(user)).copied();
                let id = self.simulation.check_out(request);
                return Some(Wait::CheckOut { id, label: label.as_deref(), expected: error.as_ref() });
            }
            Operation::CheckIn { connection, error } => self.check_in(connection, *error),
            Operation::Clear { interrupt_in_use_connections, service } => {
                self.clear(interrupt_in_use_connections.unwrap_or_default(), service.as_deref());
            }
            Operation::Close {} => self.simulation.call(Topology::close),
            Operation::Ready {} => {
                if let Err(misuse) = self.simulation.call(Topology::ready) {
                    self.violation(misuse);
                }
            }
            Operation::Resize { refused, .. } => {
                let limits = operation.limits();
                let resized = limits.map(|limits| self.simulation.call(|topology, now| topology.resize(now, limits)));
                let named = resized.and_then(Result::err).map(|error| error.option);
                if named != refused.as_deref() {
                    self.violation(format!("the new limits should be refused for {refused:?}, and were for {named:?}"));
                }
            }
            Operation::EndAffinity { key } => {
                self.simulation.call(|topology, now| topology.end_affinity(now, AffinityKey(*key)));
            }
            // The machine does not hear of a credential that was refused.
            Operation::RenewCredential { to: Some(NewCredential::Refused) } => {}
            Operation::RenewCredential { to: Some(NewCredential::Nobody) | None } => {
                self.simulation.call(|topology, now| topology.renew_credential(now, None));
            }
            Operation::ReplaceConnections { over_ms } => {
                let over = Duration::from_millis((*over_ms).into());
                self.simulation.call(|topology, now| topology.replace_connections(now, over));
            }
            Operation::WarmUp { connections, error } => {
                let id =
                    self.simulation.call(|topology, now| topology.warm_up(now, &Criteria::default(), *connections));
                return Some(Wait::WarmUp { id, expected: *error });
            }
            Operation::Resume {} => self.simulation.call(Topology::resume),
            Operation::Cancel { target } => self.cancel(target),
            Operation::HangUp { connection, noticed } => self.hang_up(connection, *noticed),
            Operation::Network { mode, latency_ms } => {
                self.simulation.network.mode = *mode;
                if let Some(millis) = latency_ms {
                    self.simulation.network.latency = Duration::from_millis((*millis).into());
                }
            }
            Operation::FailPoint { fail_point } => {
                self.simulation.virtual_server.fail_point = fail_point.sets().clone();
            }
            Operation::AssertCounts { total, available, pending, in_use, waiting } => {
                self.assert_counts([*total, *available, *pending, *in_use, *waiting]);
            }
        }
        None
    }

    fn check_in(&mut self, label: &str, failed: Option<format::OperationError>) {
        let Some(&(check_out, connection)) = self.labels.get(label) else {
            return self.violation(format!("no connection is labelled {label} yet"));
        };
        let condition = match failed {
            None | Some(format::OperationError::Other) => Condition::Usable,
            Some(format::OperationError::Network | format::OperationError::Timeout) => Condition::Errored,
        };
        if let Some(failed) = failed {
            let fault = match failed {
                format::OperationError::Network => Fault::Network,
                format::OperationError::Timeout => Fault::Timeout,
                format::OperationError::Other => Fault::Server { code: None },
            };
            let error = OperationError::new(fault, Cause::new("the operation failed"));
            if let Err(misuse) =
                self.simulation.call(|topology, now| topology.handle_operation_failed(now, connection, error))
            {
                self.violation(format!("a failed operation on {label}: {misuse}"));
            }
        }
        match self.simulation.check_in(check_out, connection, condition) {
            Ok(()) => {
                self.held.remove(&connection);
            }
            Err(refused) => self.violation(format!("check-in of {label}: {refused}")),
        }
    }

    fn clear(&mut self, interrupt: bool, service: Option<&str>) {
        let cause = Cause::new("the test cleared the pool");
        let clear = match service {
            None => Clear::pool(cause),
            Some(name) => match setup::service_named(&self.case.server, name) {
                Some(id) => Clear::service(id, cause),
                None => return self.violation(format!("no service is called {name}")),
            },
        };
        let clear = if interrupt { clear.interrupting() } else { clear };
        if let Err(misuse) = self.simulation.call(|topology, now| topology.clear(now, clear)) {
            self.violation(misuse);
        }
    }

    fn cancel(&mut self, target: &'a str) {
        let Some(Wait::CheckOut { id, .. }) = self.threads.get(target).and_then(|thread| thread.wait.as_ref()) else {
            return self.violation(format!("thread {target} does not wait for a check-out"));
        };
        let id = *id;
        let cancelled = self.simulation.call(|topology, now| topology.cancel_check_out(now, CheckOut::Started(id)));
        if cancelled != Cancellation::Cancelled {
            return self.violation(format!("the check-out of thread {target} had ended before it was cancelled"));
        }
        let Some(thread) = self.threads.get_mut(target) else { return };
        if let Some(Wait::CheckOut { expected, .. }) = thread.wait.take() {
            let error = ActualError {
                type_name: "CancelledError".into(),
                message: "The check-out was cancelled".into(),
                address: self.simulation.pool().address().to_string(),
            };
            self.fail_check_out(target, expected, error);
        }
    }

    fn hang_up(&mut self, name: &ConnectionName, noticed: bool) {
        let found = match name {
            ConnectionName::Label(label) => self.labels.get(label.as_str()).map(|&(_, connection)| connection),
            ConnectionName::Id(id) => self.simulation.pool().find(u64::from(*id)),
        };
        match found {
            None => self.violation(format!("there is no connection {name:?} to hang up")),
            Some(connection) => {
                if let Err(misuse) = self.simulation.hang_up(connection, noticed) {
                    self.violation(misuse);
                }
            }
        }
    }

    fn assert_counts(&mut self, expected: [Option<u32>; 5]) {
        let counts = self.simulation.stats().counts;
        let Counts { pending, available, in_use, waiting, .. } = counts;
        let actual = [counts.total(), available, pending, in_use, waiting];
        for ((name, expected), actual) in
            ["total", "available", "pending", "inUse", "waiting"].into_iter().zip(expected).zip(actual)
        {
            if expected.is_some_and(|expected| expected != actual) {
                let expected = expected.unwrap_or_default();
                self.violation(format!("{name} should be {expected}, and is {actual} ({counts})"));
            }
        }
    }

    fn end_check_out(
        &mut self,
        label: Option<&'a str>,
        expected: Option<&ExpectedError>,
        delivered: (CheckOutId, Handle),
    ) {
        if let Some(label) = label {
            self.labels.insert(label, delivered);
        }
        if let Some(expected) = expected {
            self.violation(format!("a check-out should have failed with {}", expected.name()));
        }
    }

    fn fail_check_out(&mut self, thread: &str, expected: Option<&ExpectedError>, error: ActualError) {
        match expected {
            Some(expected) => {
                if let Some(mismatch) = verdict::error_mismatch(expected, &error) {
                    self.violation(mismatch);
                }
            }
            None => self.fail_thread(thread, error),
        }
    }

    fn fail_thread(&mut self, thread: &str, error: ActualError) {
        if let Some(thread) = self.threads.get_mut(thread) {
            thread.fail(error);
        }
    }
}
