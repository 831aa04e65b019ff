//! What a client that is closed tells its servers: that its sessions have ended (SES-9).

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bson::{RawArrayBuf, RawDocumentBuf, cstr};
use cmap_core::connection::Command;
use cmap_core::options::{ReadMode, ReadPreference};

use super::sessions::Sessions;
use crate::client::Client;
use crate::command_limit::TimeLimit;
use crate::connection::Connection;
use crate::runtime::Runtime;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection that was available when the client was closed, and the sessions to end.
pub(crate) struct LastWords<R: Runtime> {
    connection: Connection<R>,
    sessions: Arc<Sessions>,
}

impl<R: Runtime> LastWords<R> {
    /// Those of a client that is about to be closed. `None` if it has no sessions, or no connection is available.
    pub(crate) fn of(client: &Client<R>) -> Option<Self> {
        let sessions = Arc::clone(client.sessions());
        if sessions.is_empty() {
            return None;
        }
        let preference = ReadPreference::new(ReadMode::PrimaryPreferred);
        let mut check_out = pin!(client.check_out_for(preference));
        match check_out.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(connection)) => Some(Self { connection, sessions }),
            Poll::Ready(Err(_)) | Poll::Pending => None,
        }
    }

    /// Ends the sessions. What comes of it does not matter: sessions expire by themselves.
    pub(crate) async fn send(mut self) {
        loop {
            let mut ids = RawArrayBuf::new();
            self.sessions.take_ids().into_iter().for_each(|id| ids.push(id.document()));
            if ids.is_empty() {
                return;
            }
            let mut end = RawDocumentBuf::new();
            end.append(cstr!("endSessions"), ids);
            let limit = Some(TimeLimit::Caller(PATIENCE));
            if self.connection.exchange_as_it_is(&Command::new("admin", &end), limit).await.is_err() {
                return;
            }
        }
    }
}
