//! What the machine has done in tasks of the home runtime: pings on connections that have been idle for long, and lookups of the
//! SRV records of a client's connection string, which delay nothing else (DNS-14).
//!
//! A task holds the driver weakly. The pool learns the result of a ping exactly once, whatever happens to its task. A lookup ends with
//! the driver, or when the client is closed, and gives up after connectTimeoutMS.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::connection::{Command, Fault};
use cmap_core::pool::{Cause, Handle};
use cmap_core::server::OperationError;
use cmap_core::topology::{Answer, Input};
use cmap_core::wire::CommandReply;

use super::{Driver, Job};
use crate::error::{CommandErrorKind, RuntimeGone};
use crate::establish::Requester;
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::socket::abort::Abort;
use crate::socket::buffer_pool::SharedBufferPool;

/// The duty to report the end of a refresh, done when it is dropped.
struct Report<R: Runtime> {
    driver: Weak<Driver<R>>,
    connection: Handle,
    /// None if the runtime drops the task half-way.
    outcome: Option<Result<Box<Socket<R::Stream>>, OperationError>>,
}

/// Looks up the SRV records of `name`, and hands the answer to `driver`. There is no other lookup, because the machine asks again only
/// after an answer.
pub(super) fn look_up_srv<R: Runtime>(driver: &Arc<Driver<R>>, name: String, abort: Arc<Abort>) {
    let (settings, clock) = (Arc::clone(&driver.settings), driver.clock.clone());
    let until = clock.deadline(driver.settings.timeout);
    let (driver, home) = (Arc::downgrade(driver), clock.runtime().clone());
    home.spawn(async move {
        let lookup = clock.before(until, settings.names.srv(clock.runtime(), &name));
        let Ok(answer) = abort.during(lookup).await else { return };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer within connectTimeoutMS");
        let mut answer = answer.unwrap_or_else(|| Err(late()));
        if let (Ok(records), Some(filter)) = (&mut answer, &settings.srv_host_filter) {
            // A panic in it must not end the polling.
            records.retain(|record| catch_unwind(AssertUnwindSafe(|| filter(&record.host()))).unwrap_or(false));
        }
        if let Some(driver) = driver.upgrade() {
            driver.call(Input::Srv(answer.map_err(|error| Cause::of(&error))));
        }
    });
}

/// Refreshes a connection of `driver`.
pub(super) fn refresh<R: Runtime>(
    driver: &Arc<Driver<R>>,
    connection: Handle,
    socket: Box<Socket<R::Stream>>,
    timeout: Duration,
) {
    let mut report = Report { driver: Arc::downgrade(driver), connection, outcome: None };
    let clock = driver.clock.clone();
    let until = clock.now() + timeout;
    driver.clock.runtime().spawn(async move {
        let outcome = clock.before(Some(until), ping::<R>(socket)).await;
        report.outcome = Some(outcome.unwrap_or_else(|| {
            let text =
                format!("no answer within {timeout:?} on a connection that was idle; refreshTimeout allows more");
            Err(OperationError::new(Fault::Timeout, Cause::new(&text)))
        }));
        drop(report);
    });
}

/// Asks the server for a sign of life. Returns the socket, if it can be used further.
async fn ping<R: Runtime>(mut socket: Box<Socket<R::Stream>>) -> Result<Box<Socket<R::Stream>>, OperationError> {
    let abort = Arc::clone(&socket.abort);
    let unusable = |text| OperationError::new(Fault::Other, Cause::new(text));
    let exchanged = abort.during(exchange::<R>(&mut socket)).await;
    exchanged.map_err(|_| unusable("the connection was given up"))?.map_err(failure)?;
    if !socket.is_between_commands() {
        return Err(unusable("the server said more than it was asked"));
    }
    let reply = CommandReply::read(socket.reply().map_err(failure)?);
    OperationError::of_reply(&reply).map_or(Ok(socket), Err)
}

async fn exchange<R: Runtime>(socket: &mut Socket<R::Stream>) -> Result<(), CommandErrorKind> {
    // So little needs no spare memory of the client's.
    let buffers = SharedBufferPool::default();
    socket.prepare(&Command::new("admin", &rawdoc! { "ping": 1 }), &buffers)?;
    socket.send(&buffers).await.map_err(CommandErrorKind::Network)?;
    socket.receive::<R>(&buffers, || {}).await
}

fn failure(kind: CommandErrorKind) -> OperationError {
    OperationError::new(kind.fault().unwrap_or(Fault::Other), Cause::of(&kind))
}

impl<R: Runtime> Drop for Report<R> {
    fn drop(&mut self) {
        let (connection, outcome) = (self.connection, self.outcome.take());
        let Some(driver) = self.driver.upgrade() else {
            outcome.into_iter().flatten().for_each(|socket| socket.close());
            return;
        };
        // First, as for an establishment.
        if outcome.is_none() && !std::thread::panicking() {
            driver.handle_runtime_gone();
        }
        let outcome = outcome.unwrap_or_else(|| Err(OperationError::new(Fault::Other, Cause::of(&RuntimeGone))));
        driver.drive(|state, now, work| match outcome {
            Ok(socket) => {
                state.set_own_work(connection, false);
                // Refused only if the pool had not asked.
                let answer = state.machine.call(now, Input::Refreshed(connection), Some(socket));
                if let Answer::Misuse(_, socket) = answer {
                    work.jobs.extend(socket.map(Job::Close));
                }
            }
            Err(error) => {
                state.forget(connection);
                // It was reported once, so it is being refreshed, or has been forgotten.
                state.machine.call(now, Input::RefreshFailed(connection, error), None);
            }
        });
    }
}
