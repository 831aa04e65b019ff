//! Cursors of a simulation, as the threads of a test hold them.

use core::time::Duration;

use bson::{Document, RawDocument};
use cmap_sim::{OperationError, Session, SessionCursor};

use super::connection::{limit, of_operation};
use crate::suites::unified::client::Cursor;
use crate::suites::unified::failure::Failure;

/// A cursor of the public client, with a session of its own or in one of the test's.
pub enum SimCursor {
    /// With a session of its own.
    Implicit(cmap_sim::Cursor),
    /// In a session of the test's.
    InSession(SessionCursor),
}

impl Cursor for SimCursor {
    type Session = Session;

    async fn next(&mut self, session: Option<&mut Session>) -> Result<Option<Document>, Failure> {
        match (self, session) {
            (Self::Implicit(cursor), _) => document(cursor.try_next().await),
            (Self::InSession(cursor), Some(session)) => document(cursor.try_next(session).await),
            (Self::InSession(_), None) => Err(Failure::client("the session of the cursor has ended")),
        }
    }

    async fn next_if_any(&mut self, session: Option<&mut Session>) -> Result<Option<Document>, Failure> {
        match (self, session) {
            (Self::Implicit(cursor), _) => document(cursor.next_if_any().await),
            (Self::InSession(cursor), Some(session)) => document(cursor.next_if_any(session).await),
            (Self::InSession(_), None) => Err(Failure::client("the session of the cursor has ended")),
        }
    }

    async fn close(self, session: Option<&mut Session>, timeout: Option<Duration>) {
        match (self, session, timeout.map(limit)) {
            (Self::Implicit(cursor), _, None) => cursor.close().await,
            (Self::Implicit(cursor), _, Some(limit)) => cursor.close_within(limit).await,
            (Self::InSession(cursor), Some(session), None) => cursor.close(session).await,
            (Self::InSession(cursor), Some(session), Some(limit)) => cursor.close_within(session, limit).await,
            (Self::InSession(cursor), None, _) => drop(cursor),
        }
    }
}

fn document(read: Result<Option<&RawDocument>, OperationError>) -> Result<Option<Document>, Failure> {
    let document = read.map_err(|error| of_operation(&error))?.map(Document::try_from).transpose();
    document.map_err(|error| Failure::client(error.to_string()))
}
