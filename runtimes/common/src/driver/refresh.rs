//! Pings on connections that have been idle for long, each in a task of its own in the home runtime.
//!
//! The task holds the driver weakly. The pool learns the result exactly once, whatever happens to the task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bson::rawdoc;
use cmap_core::connection::{Command, Fault};
use cmap_core::pool::{Cause, Handle};
use cmap_core::server::OperationError;
use cmap_core::topology::{Answer, Input};
use cmap_core::wire::CommandReply;

use super::Driver;
use crate::error::{CommandErrorKind, RuntimeGone};
use crate::establish::Requester;
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::socket::buffer_pool::SharedBufferPool;

/// A connection that is to be refreshed.
pub(super) struct Refresh<R: Runtime> {
    pub(super) connection: Handle,
    pub(super) socket: Box<Socket<R::Stream>>,
    pub(super) timeout: Duration,
}

/// The duty to report the end of a refresh.
struct Report<R: Runtime> {
    driver: Weak<Driver<R>>,
    connection: Handle,
    done: bool,
}

/// Refreshes a connection of `driver`.
pub(super) fn begin<R: Runtime>(driver: &Arc<Driver<R>>, refresh: Refresh<R>) {
    let Refresh { connection, socket, timeout } = refresh;
    let report = Report { driver: Arc::downgrade(driver), connection, done: false };
    let clock = driver.clock.clone();
    let until = clock.now() + timeout;
    driver.clock.runtime().spawn(async move {
        let outcome = within(timeout, clock.sleep_until(until), ping::<R>(socket)).await;
        report.end(outcome);
    });
}

/// `work`, unless `timer` ends before.
async fn within<T>(
    timeout: Duration,
    timer: impl Future<Output = ()>,
    work: impl Future<Output = Result<T, OperationError>>,
) -> Result<T, OperationError> {
    let (mut timer, mut work) = (pin!(timer), pin!(work));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Pending => timer.as_mut().poll(cx).map(|()| {
            let text =
                format!("no answer within {timeout:?} on a connection that was idle; refreshTimeout allows more");
            Err(OperationError::new(Fault::Timeout, Cause::new(&text)))
        }),
        ready => ready,
    })
    .await
}

/// Asks the server for a sign of life. Returns the socket, if it can be used further.
async fn ping<R: Runtime>(mut socket: Box<Socket<R::Stream>>) -> Result<Box<Socket<R::Stream>>, OperationError> {
    let abort = Arc::clone(&socket.abort);
    let outcome = abort.during(exchange::<R>(&mut socket)).await;
    match outcome {
        Ok(Ok(())) if socket.is_between_commands() => match socket.reply().map(CommandReply::read) {
            Ok(reply) => OperationError::of_reply(&reply).map_or(Ok(()), Err),
            Err(kind) => Err(failure(&kind)),
        },
        Ok(Ok(())) => Err(OperationError::new(Fault::Other, Cause::new("the server said more than it was asked"))),
        Ok(Err(kind)) => Err(failure(&kind)),
        Err(_) => Err(OperationError::new(Fault::Other, Cause::new("the connection was given up"))),
    }?;
    Ok(socket)
}

async fn exchange<R: Runtime>(socket: &mut Socket<R::Stream>) -> Result<(), CommandErrorKind> {
    // So little needs no spare memory of the client's.
    let buffers = SharedBufferPool::default();
    socket.prepare(&Command::new("admin", &rawdoc! { "ping": 1 }), &buffers)?;
    socket.send(&buffers).await.map_err(CommandErrorKind::Network)?;
    socket.receive::<R>(&buffers, || {}).await
}

fn failure(kind: &CommandErrorKind) -> OperationError {
    OperationError::new(kind.fault().unwrap_or(Fault::Other), Cause::of(kind))
}

impl<R: Runtime> Report<R> {
    fn end(mut self, outcome: Result<Box<Socket<R::Stream>>, OperationError>) {
        self.done = true;
        match (self.driver.upgrade(), outcome) {
            (Some(driver), Ok(socket)) => driver.handle_refreshed(self.connection, socket),
            (Some(driver), Err(error)) => driver.handle_refresh_failed(self.connection, error),
            (None, Ok(socket)) => socket.close(),
            (None, Err(_)) => {}
        }
    }
}

impl<R: Runtime> Drop for Report<R> {
    fn drop(&mut self) {
        if !self.done
            && let Some(driver) = self.driver.upgrade()
        {
            // First, as for an establishment.
            if !std::thread::panicking() {
                driver.handle_runtime_gone();
            }
            driver.handle_refresh_failed(self.connection, OperationError::new(Fault::Other, Cause::of(&RuntimeGone)));
        }
    }
}

impl<R: Runtime> Driver<R> {
    fn handle_refreshed(self: &Arc<Self>, connection: Handle, socket: Box<Socket<R::Stream>>) {
        self.drive(|state, now, work| {
            state.set_own_work(connection, false);
            // Refused only if the pool had not asked.
            let answer = state.machine.call(now, Input::Refreshed(connection), Some(socket));
            if let Answer::Misuse(_, socket) = answer {
                work.more().close.extend(socket);
            }
        });
    }

    fn handle_refresh_failed(self: &Arc<Self>, connection: Handle, error: OperationError) {
        self.drive(|state, now, _| {
            state.place(connection).map(|place| state.activities.remove(&place));
            // It was reported once, so it is being refreshed, or has been forgotten.
            state.machine.call(now, Input::RefreshFailed(connection, error), None);
        });
    }
}
