//! How the operations of a test are carried out.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cmap_core::pool::{AffinityKey, Cause, Clear, Counts, IdentityId};
use cmap_core::topology;
use cmap_runtime::{CheckOut, CheckOutError, Connection, RotationError, Runtime, WarmUpError};

use super::control::{VirtualServer, number_at_server};
use super::session::Session;
use super::threads::Activity;
use crate::suites::cmap::engine::{ActualError, EVENT_TIMEOUT, users};
use crate::suites::cmap::format::{
    ConnectionName, EventType, ExpectedError, FailPoint, NewCredential, Operation, OperationError, WarmUpFailure,
};
use crate::suites::cmap::verdict;

/// How soon the pool's figures must be as asserted. A virtual clock stands still for that; here, what an operation or an
/// event leads to happens a little later.
const SOON: Duration = Duration::from_secs(5);

impl<R: Runtime> Session<R> {
    /// Carries out one operation, on `thread` or on the main thread. An error ends the thread.
    pub(super) async fn carry_out(
        self: &Arc<Self>,
        thread: Option<&str>,
        operation: &Operation,
    ) -> Result<(), ActualError> {
        let millis = |millis: u32| Duration::from_millis(millis.into());
        match operation {
            Operation::Start { target } => self.start(target),
            Operation::Wait { ms } => {
                let end = self.runtime.now() + millis(*ms);
                self.waiting(thread, self.runtime.sleep_until(end)).await;
                let late = self.runtime.now().saturating_duration_since(end);
                self.change(|stage| stage.standstill = stage.standstill.max(late));
            }
            Operation::WaitForThread { target } => {
                return self.waiting(thread, self.until(|stage| stage.threads.end_of(target))).await;
            }
            Operation::WaitForEvent { event, count, timeout } => {
                let timeout = timeout.map_or(EVENT_TIMEOUT, millis);
                return self.wait_for_event(thread, *event, *count, timeout).await;
            }
            Operation::CheckOut { label, timeout_ms, affinity, user, error } => {
                let user = user.as_ref().and_then(|user| self.users.get(user)).copied();
                let check_out = self.check_out(timeout_ms.map(millis), affinity.map(AffinityKey), user);
                let connection = self.connection(thread, check_out).await;
                return self.end_check_out(thread, connection, label.as_deref(), error.as_ref());
            }
            Operation::CheckIn { connection, error } => self.check_in(thread, connection, *error).await,
            Operation::Clear { interrupt_in_use_connections, service } => {
                self.clear(interrupt_in_use_connections.unwrap_or_default(), service.as_deref());
            }
            Operation::Close {} => self.pool.close(),
            Operation::Ready {} => self.pool.ready(),
            Operation::Resize { refused, .. } => self.resize(operation, refused.as_deref()),
            Operation::EndAffinity { key } => self.pool.end_affinity(AffinityKey(*key)),
            Operation::RenewCredential { to } => self.renew_credential(*to).await,
            Operation::ReplaceConnections { over_ms } => {
                self.pool.replace_connections(Duration::from_millis((*over_ms).into()));
            }
            Operation::WarmUp { connections, error } => {
                let ended = self.waiting(thread, self.pool.warm_up(*connections, EVENT_TIMEOUT)).await;
                self.end_warm_up(ended, *error);
            }
            Operation::Resume {} => self.pool.resume(),
            Operation::Cancel { target } => self.cancel(target).await,
            Operation::FailPoint { fail_point } => self.set_fail_point(fail_point).await,
            Operation::AssertCounts { total, available, pending, in_use, waiting } => {
                self.assert_counts([*total, *available, *pending, *in_use, *waiting]).await;
            }
            Operation::HangUp { connection, .. } => self.hang_up(connection),
            Operation::Network { mode, latency_ms } => match self.virtual_server() {
                Ok(server) => server.set_network(*mode, latency_ms.map(millis)),
                Err(problem) => self.violation(problem),
            },
        }
        Ok(())
    }

    fn resize(&self, operation: &Operation, refused: Option<&str>) {
        let resized = operation.limits().map(|limits| self.pool.resize(limits));
        let named = resized.and_then(Result::err).map(|error| error.option);
        if named != refused {
            self.violation(format!("the new limits should be refused for {refused:?}, and were for {named:?}"));
        }
    }

    fn end_warm_up(&self, ended: Result<(), WarmUpError>, expected: Option<WarmUpFailure>) {
        let failure = match &ended {
            Err(WarmUpError::Unreached(topology::WarmUpError::Pool(error))) => WarmUpFailure::of(&error.kind),
            _ => None,
        };
        if failure != expected || (ended.is_err() && failure.is_none()) {
            self.violation(format!("a warm-up should end with {expected:?}, and ended with {ended:?}"));
        }
    }

    async fn renew_credential(&self, to: Option<NewCredential>) {
        let credential = match to {
            None => self.pool.options().credential.clone(),
            Some(NewCredential::Nobody) => None,
            Some(NewCredential::Refused) => Some(users::mistyped()),
        };
        let is_refused = to == Some(NewCredential::Refused);
        match self.pool.set_credential(credential).await {
            Ok(()) if is_refused => self.violation("the credential should have been refused"),
            Err(RotationError::Refused { .. }) if is_refused => {}
            Err(error) => self.violation(format!("the credential should have been replaced: {error}")),
            Ok(()) => {}
        }
    }

    /// `work`, for which `thread` waits: the others go on meanwhile.
    async fn waiting<T>(&self, thread: Option<&str>, work: impl Future<Output = T>) -> T {
        let Some(thread) = thread else { return work.await };
        self.change(|stage| stage.threads.set_activity(thread, Activity::Waits));
        let output = work.await;
        self.change(|stage| stage.threads.set_activity(thread, Activity::Busy));
        output
    }

    async fn wait_for_event(
        &self,
        thread: Option<&str>,
        event: EventType,
        count: u32,
        timeout: Duration,
    ) -> Result<(), ActualError> {
        let wanted = usize::try_from(count).unwrap_or(usize::MAX);
        let happened = self.signal.until(|| (self.journal.count(event.name()) >= wanted).then_some(()));
        let in_time = self.waiting(thread, self.within(timeout, happened)).await;
        in_time.ok_or_else(|| {
            let seen = self.journal.count(event.name());
            let text = format!("waited in vain for {count} {}; there were {seen}", event.name());
            self.error("WaitForEventTimeout", text)
        })
    }

    fn end_check_out(
        &self,
        thread: Option<&str>,
        outcome: Option<Result<Connection<R>, CheckOutError>>,
        label: Option<&str>,
        expected: Option<&ExpectedError>,
    ) -> Result<(), ActualError> {
        let was_late = thread.is_some_and(|thread| {
            self.change(|stage| {
                let before = stage.threads.activity(thread);
                stage.threads.set_activity(thread, Activity::Busy);
                before == Activity::IsCancelled
            })
        });
        let error = match outcome {
            Some(Ok(connection)) => {
                if let Some(expected) = expected {
                    self.violation(format!("a check-out should have failed with {}", expected.name()));
                }
                self.keep(label, connection);
                None
            }
            Some(Err(error)) => Some(self.actual(&error)),
            None => Some(self.error("CancelledError", "The check-out was cancelled".into())),
        };
        if was_late && error.as_ref().is_none_or(|error| error.type_name != "CancelledError") {
            self.violation("a check-out had ended before it was cancelled");
        }
        match (error, expected) {
            (None, _) => Ok(()),
            (Some(error), None) => Err(error),
            (Some(error), Some(expected)) => {
                verdict::error_mismatch(expected, &error).into_iter().for_each(|mismatch| self.violation(mismatch));
                Ok(())
            }
        }
    }

    /// The check-out that an operation asks for, not begun yet.
    fn check_out(
        &self,
        limit: Option<Duration>,
        key: Option<AffinityKey>,
        user: Option<IdentityId>,
    ) -> CheckOut<'_, R> {
        let mut check_out = match limit {
            Some(limit) => self.pool.check_out_within(Some(limit)),
            None => self.pool.check_out(),
        };
        if let Some(key) = key {
            check_out = check_out.affinity(key);
        }
        match user {
            Some(user) => check_out.identity(user),
            None => check_out,
        }
    }

    /// Waits for a connection; `None` if that was cancelled, by dropping the future.
    async fn connection(
        &self,
        thread: Option<&str>,
        check_out: CheckOut<'_, R>,
    ) -> Option<Result<Connection<R>, CheckOutError>> {
        let mut check_out = pin!(check_out);
        let mut cancelled = pin!(self.until(|stage| {
            let activity = stage.threads.activity(thread?);
            (activity == Activity::IsCancelled).then_some(())
        }));
        let mut has_begun = false;
        poll_fn(|cx| {
            if let Poll::Ready(outcome) = check_out.as_mut().poll(cx) {
                return Poll::Ready(Some(outcome));
            }
            if let Some(thread) = thread
                && !std::mem::replace(&mut has_begun, true)
            {
                self.change(|stage| stage.threads.set_activity(thread, Activity::ChecksOut));
            }
            cancelled.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    /// Keeps a connection under its label; one that had the label before can be named no more.
    fn keep(&self, label: Option<&str>, connection: Connection<R>) {
        self.change(|stage| {
            stage.service = stage.service.or(connection.description().and_then(|server| server.service_id));
            if let Ok(number) = number_at_server(&connection) {
                stage.numbers_at_server.insert(connection.id().get(), number);
                label.into_iter().for_each(|label| {
                    stage.numbers_of_labels.insert(label.to_owned(), number);
                });
            }
            let nameless = match label {
                Some(label) => stage.labels.insert(label.to_owned(), connection),
                None => Some(connection),
            };
            stage.nameless.extend(nameless);
        });
    }

    async fn check_in(&self, thread: Option<&str>, label: &str, failed: Option<OperationError>) {
        let labelled = self.until(|stage| stage.labels.remove(label));
        let Some(mut connection) = self.waiting(thread, self.within(EVENT_TIMEOUT, labelled)).await else {
            return self.violation(format!("no connection is labelled {label}"));
        };
        if let Some(failed) = failed {
            let number = number_at_server(&connection);
            let command = match &self.control {
                Some(control) => control.let_fail(number, failed).await,
                None => Err("there is no way to let an operation fail".into()),
            };
            match command {
                // One that was interrupted fails without the server's help.
                Ok(command) if connection.run_command("admin", &command).await.is_ok() => {
                    self.violation(format!("an operation on {label} should have failed"));
                }
                Ok(_) => {}
                Err(problem) => self.violation(problem),
            }
        }
        drop(connection);
    }

    fn clear(&self, interrupt: bool, service: Option<&str>) {
        let cause = Cause::new("the test cleared the pool");
        let clear = match service.map(|name| self.journal.service_named(name).or(self.stage().service)) {
            None => Clear::pool(cause),
            Some(Some(id)) => Clear::service(id, cause),
            Some(None) => return self.violation("no connection has said yet which service it is of"),
        };
        if let Err(misuse) = self.pool.clear(if interrupt { clear.interrupting() } else { clear }) {
            self.violation(misuse);
        }
    }

    /// The server closes a connection. By its label while it is in use, and by its number in events, if it was in use before.
    fn hang_up(&self, connection: &ConnectionName) {
        let number = match connection {
            ConnectionName::Label(label) => self.stage().numbers_of_labels.get(label).copied(),
            ConnectionName::Id(id) => self.stage().numbers_at_server.get(&u64::from(*id)).copied(),
        };
        match (self.virtual_server(), number) {
            (Ok(server), Some(number)) => server.hang_up(number),
            (Err(problem), _) => self.violation(problem),
            (Ok(_), None) => self.violation(format!("the server's number of {connection:?} is not known")),
        }
    }

    fn virtual_server(&self) -> Result<&dyn VirtualServer, String> {
        self.control.as_ref().ok_or("there is no virtual server")?.virtual_server()
    }

    async fn cancel(&self, target: &str) {
        let waits = self.change(|stage| {
            let waits = stage.threads.activity(target) == Activity::ChecksOut;
            if waits {
                stage.threads.set_activity(target, Activity::IsCancelled);
            }
            waits
        });
        if !waits {
            return self.violation(format!("thread {target} does not wait for a check-out"));
        }
        self.until(|stage| (stage.threads.activity(target) != Activity::IsCancelled).then_some(())).await;
    }

    async fn set_fail_point(&self, fail_point: &FailPoint) {
        let set = match &self.control {
            Some(control) => control.configure(fail_point.command()).await,
            None => Err("there is no connection to set a fail point by".into()),
        };
        set.err().into_iter().for_each(|problem| self.violation(problem));
    }

    async fn assert_counts(&self, expected: [Option<u32>; 5]) {
        let differing = || {
            let counts = self.pool.stats().counts;
            let Counts { pending, available, in_use, waiting, .. } = counts;
            let actual = [counts.total(), available, pending, in_use, waiting];
            let names = ["total", "available", "pending", "inUse", "waiting"];
            let mut differing = names.into_iter().zip(expected).zip(actual).filter_map(|((name, expected), actual)| {
                let expected = expected.filter(|&expected| expected != actual)?;
                Some(format!("{name} should be {expected}, and is {actual} ({counts})"))
            });
            differing.next()
        };
        // Every change of a figure comes with an event.
        let as_expected = self.signal.until(|| differing().is_none().then_some(()));
        if self.within(SOON, as_expected).await.is_none() {
            differing().into_iter().for_each(|difference| self.violation(difference));
        }
    }

    fn actual(&self, error: &CheckOutError) -> ActualError {
        if let CheckOutError::Pool(error) = error {
            return (&**error).into();
        }
        self.error("another error", error.to_string())
    }

    fn error(&self, type_name: &str, message: String) -> ActualError {
        ActualError { type_name: type_name.into(), message, address: self.pool.address().to_string() }
    }
}
