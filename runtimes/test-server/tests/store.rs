//! The store of the test server, command by command, against MongoDB's documented and observed behaviour.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test fails by panicking"
)]

use bson::{Bson, Document, RawDocument, RawDocumentBuf, Regex, doc};
use cmap_test_server::store::{CommandFailure, Store, StoreCommand, StoreLimits};

#[path = "store/aggregate.rs"]
mod aggregate;
#[path = "store/bulk_write.rs"]
mod bulk_write;
#[path = "store/catalog.rs"]
mod catalog;
#[path = "store/change_streams/mod.rs"]
mod change_streams;
#[path = "store/cursors.rs"]
mod cursors;
#[path = "store/delete.rs"]
mod delete;
#[path = "store/find.rs"]
mod find;
#[path = "store/find_and_modify.rs"]
mod find_and_modify;
#[path = "store/hints.rs"]
mod hints;
#[path = "store/hostile.rs"]
mod hostile;
#[path = "store/indexes.rs"]
mod indexes;
#[path = "store/insert.rs"]
mod insert;
#[path = "store/limits.rs"]
mod limits;
#[path = "store/opened.rs"]
mod opened;
#[path = "store/properties.rs"]
mod properties;
#[path = "store/query.rs"]
mod query;
#[path = "store/unsupported.rs"]
mod unsupported;
#[path = "store/unwind.rs"]
mod unwind;
#[path = "store/update.rs"]
mod update;
#[path = "store/variables.rs"]
mod variables;
#[path = "store/views.rs"]
mod views;

/// A store, and the database `test` in it.
#[derive(Default)]
struct Server {
    store: Store,
}

impl Server {
    /// A store whose collection `pets` has these documents.
    fn with_pets<const N: usize>(pets: [Document; N]) -> Self {
        let mut server = Self::default();
        let inserted = server.ok(doc! { "insert": "pets", "documents": pets.to_vec() });
        assert_eq!(inserted, doc! { "n": N as i32 });
        server
    }

    fn run_in(&mut self, database: &str, body: &RawDocument) -> Result<RawDocumentBuf, CommandFailure> {
        let name = cmap_core::wire::document::command_name(body).unwrap();
        self.store.run(&StoreCommand { name, database, body }).expect("it is a command of the store")
    }

    fn run(&mut self, command: &Document) -> Result<Document, CommandFailure> {
        let body = RawDocumentBuf::try_from(command).unwrap();
        self.run_in("test", &body).map(|reply| Document::try_from(reply).unwrap())
    }

    /// The reply to a command that succeeds.
    fn ok(&mut self, command: Document) -> Document {
        self.run(&command).unwrap_or_else(|failure| panic!("{command}: {failure}"))
    }

    /// The reply of the database `admin`.
    fn ok_in_admin(&mut self, command: Document) -> Document {
        let body = RawDocumentBuf::try_from(&command).unwrap();
        Document::try_from(self.run_in("admin", &body).unwrap()).unwrap()
    }

    /// The code, its name and the sentence of a command that fails.
    fn fails(&mut self, command: Document) -> (i32, &'static str, String) {
        match self.run(&command) {
            Ok(reply) => panic!("{command}: {reply}"),
            Err(failure) => (failure.code, failure.code_name, failure.message),
        }
    }

    /// The code of a command that fails.
    fn code(&mut self, command: Document) -> i32 {
        self.fails(command).0
    }

    /// The documents that find returns in one batch.
    fn find(&mut self, mut command: Document) -> Vec<Document> {
        command.insert("singleBatch", true);
        batch(&self.ok(command))
    }

    /// All pets.
    fn pets(&mut self) -> Vec<Document> {
        self.find(doc! { "find": "pets" })
    }

    /// The `_id`s of the pets that match.
    fn ids(&mut self, filter: Document) -> Vec<i32> {
        ids(&self.find(doc! { "find": "pets", "filter": filter }))
    }
}

/// The documents of a reply with a cursor.
fn batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

/// The id of a reply with a cursor; zero if it is exhausted.
fn cursor_id(reply: &Document) -> i64 {
    reply.get_document("cursor").unwrap().get_i64("id").unwrap()
}

fn ids(documents: &[Document]) -> Vec<i32> {
    documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

/// The code and the index of each write error.
fn write_errors(reply: &Document) -> Vec<(i32, i32)> {
    let errors = reply.get_array("writeErrors").map_or(&[][..], |errors| errors);
    let one = |error: &Bson| {
        let error = error.as_document().unwrap();
        (error.get_i32("code").unwrap(), error.get_i32("index").unwrap())
    };
    errors.iter().map(one).collect()
}

fn regex(pattern: &str, options: &str) -> Regex {
    Regex { pattern: pattern.try_into().unwrap(), options: options.try_into().unwrap() }
}
