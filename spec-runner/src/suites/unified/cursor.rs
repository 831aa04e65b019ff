//! Cursors of a test: those of its client, each with the session of its operation.

use alloc::rc::Rc;
use core::time::Duration;

use bson::Document;

use super::client::{Client, Cursor as _};
use super::commands::Held;
use super::failure::Failure;

/// A cursor of a client.
pub struct Cursor<C: Client> {
    cursor: C::Cursor,
    /// The test's session, if it is in one.
    session: Option<Held<C>>,
}

impl<C: Client> Cursor<C> {
    /// A cursor in the test's session, if it is in one.
    pub(super) fn new(cursor: C::Cursor, session: Option<&Held<C>>) -> Self {
        Self { cursor, session: session.map(Rc::clone) }
    }

    /// The next document, or none at the end.
    ///
    /// # Errors
    /// That of a getMore.
    pub async fn next(&mut self) -> Result<Option<Document>, Failure> {
        let mut taken = self.session.as_ref().and_then(|held| held.borrow_mut().take());
        let next = self.cursor.next(taken.as_mut()).await;
        give_back::<C>(self.session.as_ref(), taken);
        next
    }

    /// The next document, if it takes one getMore at most.
    ///
    /// # Errors
    /// That of the getMore.
    pub async fn next_if_any(&mut self) -> Result<Option<Document>, Failure> {
        let mut taken = self.session.as_ref().and_then(|held| held.borrow_mut().take());
        let next = self.cursor.next_if_any(taken.as_mut()).await;
        give_back::<C>(self.session.as_ref(), taken);
        next
    }

    /// All documents that are left. A cursor that fails is closed.
    ///
    /// # Errors
    /// That of a getMore.
    pub async fn all(mut self) -> Result<Vec<Document>, Failure> {
        let mut documents = Vec::new();
        loop {
            match self.next().await {
                Ok(Some(document)) => documents.push(document),
                Ok(None) => return Ok(documents),
                Err(failure) => {
                    self.close(None).await;
                    return Err(failure);
                }
            }
        }
    }

    /// Gives up the rest: within the limit of its operation, or this one.
    pub async fn close(self, timeout: Option<Duration>) {
        let Self { cursor, session: held } = self;
        let mut taken = held.as_ref().and_then(|held| held.borrow_mut().take());
        cursor.close(taken.as_mut(), timeout).await;
        give_back::<C>(held.as_ref(), taken);
    }
}

fn give_back<C: Client>(held: Option<&Held<C>>, session: Option<C::Session>) {
    if let (Some(held), Some(session)) = (held, session) {
        held.replace(Some(session));
    }
}
