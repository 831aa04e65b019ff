//! What a client that is closed tells its servers: that its sessions have ended (SES-9).

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use bson::{RawArrayBuf, RawDocumentBuf, cstr};
use cmap_core::connection::Command;
use cmap_core::options::{ReadMode, ReadPreference};
use cmap_core::session::SessionId;
use cmap_core::topology::Criteria;

use crate::connection::{CheckOut, Connection};
use crate::driver::Driver;
use crate::operation::Context;
use crate::runtime::Runtime;
use crate::time::{Deadline, Limit, TimeLimit};

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection that was available when the client was closed, and the sessions that were free. Dropping it closes the client:
/// the connection comes back before the pools are closed, as the specification's log messages tell it.
pub(crate) struct LastWords<R: Runtime> {
    /// There until the end.
    connection: Option<Connection<R>>,
    /// As many together as one message may name.
    sessions: Vec<Vec<SessionId>>,
    driver: Arc<Driver<R>>,
}

impl<R: Runtime> LastWords<R> {
    /// Those of a client that is about to be closed. `None` if it has no sessions, or no connection is available.
    pub(crate) fn of(context: &Context<R>) -> Option<Self> {
        let Context { driver, sessions, .. } = context;
        if sessions.is_empty() {
            return None;
        }
        let selector = ReadPreference::new(ReadMode::PrimaryPreferred).into();
        let mut check_out = pin!(CheckOut::of(driver, Criteria { selector, ..Criteria::default() }, Limit::None));
        match check_out.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
            Poll::Ready(Ok(connection)) => {
                let driver = Arc::clone(driver);
                // Those that come back later belong to callers who know nothing of the end: nobody waits for them.
                let sessions = sessions.take_all_ids();
                Some(Self { connection: Some(connection), sessions, driver })
            }
            Poll::Ready(Err(_)) | Poll::Pending => None,
        }
    }

    /// Ends the sessions. Errors do not matter: sessions expire by themselves.
    pub(crate) async fn send(mut self) {
        let Some(connection) = &mut self.connection else { return };
        let runtime = self.driver.clock.runtime();
        let end = Deadline::within(runtime, PATIENCE);
        for sessions in &self.sessions {
            let mut ids = RawArrayBuf::new();
            sessions.iter().for_each(|id| ids.push(id.document()));
            let mut command = RawDocumentBuf::new();
            command.append(cstr!("endSessions"), ids);
            let limit = Some(TimeLimit::Caller(end.left(runtime)));
            if connection.exchange_as_it_is(&Command::new("admin", &command), limit, None).await.is_err() {
                return;
            }
        }
    }
}

impl<R: Runtime> Drop for LastWords<R> {
    fn drop(&mut self) {
        // It is checked in before the pools are closed.
        drop(self.connection.take());
        self.driver.close();
    }
}
