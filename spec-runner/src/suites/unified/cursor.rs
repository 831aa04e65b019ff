//! Cursors: the documents of a reply, and the commands that get more of them.
//!
//! Behind a load balancer a cursor keeps its connection until the server has no more for it, or until it is closed: only
//! the server behind that connection knows the cursor (LB-13, LB-14). Elsewhere each command takes a connection of its own.

use alloc::collections::VecDeque;

use bson::{Document, doc};
use cmap_core::address::ServerAddress;
use cmap_core::topology::ServerSelector;

use super::client::{Client, Connection};
use super::commands::{Caller, Sending, Session};
use super::failure::Failure;

/// A cursor of a client.
pub struct Cursor<C: Client> {
    caller: Caller<C>,
    session: Session<C>,
    /// The server that made it (PIN-1).
    address: ServerAddress,
    pinned: Option<C::Connection>,
    database: String,
    collection: String,
    /// 0 when the server has no more.
    id: i64,
    /// The fields of its getMores.
    further: Document,
    documents: VecDeque<Document>,
    broken: bool,
}

impl<C: Client> Cursor<C> {
    /// The cursor of the reply to `command`, which came over `connection`. Its further commands are in the same
    /// `session`.
    ///
    /// # Errors
    /// The reply has no cursor.
    pub fn new(
        caller: &Caller<C>,
        session: Session<C>,
        command: &Document,
        reply: &Document,
        mut connection: C::Connection,
    ) -> Result<Self, Failure> {
        let cursor = reply.get_document("cursor").map_err(|_| Failure::client("the reply has no cursor"))?;
        let namespace = cursor.get_str("ns").unwrap_or_default();
        let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        let options = command.get_document("cursor").unwrap_or(command);
        let mut further = Document::new();
        further.extend(options.get("batchSize").map(|size| ("batchSize".to_owned(), size.clone())));
        further.extend(command.get("comment").map(|comment| ("comment".to_owned(), comment.clone())));
        let (id, address) = (id(cursor), connection.address());
        if caller.pins_cursors() {
            connection.keep_for_cursor();
        }
        Ok(Self {
            pinned: (caller.pins_cursors() && id != 0).then_some(connection),
            address,
            caller: caller.clone(),
            session,
            database: database.to_owned(),
            collection: collection.to_owned(),
            id,
            further,
            documents: batch(cursor, "firstBatch"),
            broken: false,
        })
    }

    /// Sets the fields of its getMores.
    pub fn set_further(&mut self, further: Document) {
        self.further = further;
    }

    /// The next document, if there is one.
    ///
    /// # Errors
    /// That of a getMore.
    pub async fn next(&mut self) -> Result<Option<Document>, Failure> {
        while self.documents.is_empty() && self.id != 0 {
            self.get_more().await?;
        }
        Ok(self.documents.pop_front())
    }

    /// Gives up the rest. The server's answer does not matter.
    pub async fn close(&mut self) {
        let connection = self.pinned.take();
        if self.id == 0 || self.broken && self.caller.pins_cursors() {
            return;
        }
        let command = doc! { "killCursors": &self.collection, "cursors": [self.id] };
        self.id = 0;
        match connection {
            Some(mut connection) => {
                let _ = self.caller.run_on(&mut connection, &self.database, &command, &self.session).await;
            }
            None => {
                let _ = self.caller.run(&self.database, &command, self.sending(), &self.session).await;
            }
        }
    }

    /// To the server that made it, with the retries of its own commands.
    fn sending(&self) -> Sending {
        Sending { selector: ServerSelector::AnyOf([self.address.clone()].into()), is_once: false }
    }

    async fn get_more(&mut self) -> Result<(), Failure> {
        let mut command = doc! { "getMore": self.id, "collection": &self.collection };
        command.extend(self.further.clone());
        let reply = match &mut self.pinned {
            Some(connection) => self.caller.run_on(connection, &self.database, &command, &self.session).await,
            None => {
                let sending = self.sending();
                let ran = self.caller.run(&self.database, &command, sending, &self.session).await;
                ran.map(|(reply, _)| reply)
            }
        };
        let reply = reply.inspect_err(|failure| self.broken |= failure.is_network())?;
        let cursor = reply.get_document("cursor").map_err(|_| Failure::client("the reply has no cursor"))?;
        self.id = id(cursor);
        self.documents.extend(batch(cursor, "nextBatch"));
        if self.id == 0 {
            self.pinned = None;
        }
        Ok(())
    }
}

fn id(cursor: &Document) -> i64 {
    cursor.get_i64("id").or_else(|_| cursor.get_i32("id").map(i64::from)).unwrap_or_default()
}

fn batch(cursor: &Document, name: &str) -> VecDeque<Document> {
    let documents = cursor.get_array(name).map(Vec::as_slice).unwrap_or_default();
    documents.iter().filter_map(|document| document.as_document().cloned()).collect()
}
