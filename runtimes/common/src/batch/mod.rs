//! Batches: writes of any number of items, by as many commands as they take.
//!
//! [`Operation::sequence`] makes a [`Batched`] of an operation. [`cmap_core::batch`] decides what goes into each message, and merges
//! the replies; here is what carries that out.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the operation with its sequences |
//! | `source` | values that become items, and their `_id`s |
//! | `run` | its batches, one after the other |

mod run;
mod source;

use cmap_core::batch::WriteResult;
use serde::Serialize;

use self::source::Source;
use crate::error::OperationError;
use crate::operation::Operation;
use crate::runtime::Runtime;

/// An operation whose items are in document sequences, and of any number. Made by [`Operation::sequence`].
#[must_use = "it does nothing before `run` is awaited"]
pub struct Batched<'a, R: Runtime, S> {
    operation: Operation<'a, R, S>,
    sources: Vec<Source<'a>>,
    makes_ids: bool,
}

impl<'a, R: Runtime, S> Operation<'a, R, S> {
    /// Adds what an insert, an update, a delete or a bulkWrite writes: `documents`, `updates`, `deletes`, or `ops` and then `nsInfo`. The
    /// values serialise as documents, and are of any number. The command has all else, and goes along with each batch of them.
    ///
    /// They are sent in as few messages as the server takes, one after the other: each by a connection of its own, with retries of its
    /// own, and within one limit of time. Values are taken as they are needed: those of one message are in memory, twice while that is
    /// sent.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::{Client, OperationError, Runtime};
    /// use serde::Serialize;
    ///
    /// #[derive(Serialize)]
    /// struct Item {
    ///     name: String,
    ///     price: u32,
    /// }
    ///
    /// /// Inserts items of any number. Returns how many are new, where `name` has a unique index.
    /// async fn import<R: Runtime>(
    ///     client: &Client<R>,
    ///     items: impl Iterator<Item = Item> + Send,
    /// ) -> Result<u64, OperationError> {
    ///     let insert = doc! { "insert": "items", "ordered": false };
    ///     match client.operation(("shop", insert)).sequence("documents", items).with_ids().run().await {
    ///         Ok(result) => Ok(result.inserted),
    ///         Err(error) if error.is_duplicate_key() => Ok(error.written().map_or(0, |result| result.inserted)),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// ```
    ///
    /// In a bulkWrite each item of `ops` begins with what it does and the place of its collection in `nsInfo`:
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::{Client, OperationError, Runtime};
    ///
    /// async fn move_order<R: Runtime>(client: &Client<R>, id: i32) -> Result<(), OperationError> {
    ///     let ops = [
    ///         doc! { "insert": 0, "document": { "_id": id, "paid": true } },
    ///         doc! { "delete": 1, "filter": { "_id": id }, "multi": false },
    ///     ];
    ///     let namespaces = [doc! { "ns": "shop.paid" }, doc! { "ns": "shop.orders" }];
    ///     let operation = client.operation(("admin", doc! { "bulkWrite": 1 }));
    ///     operation.sequence("ops", ops).sequence("nsInfo", namespaces).run().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn sequence<I>(self, name: &'a str, values: I) -> Batched<'a, R, S>
    where
        I: IntoIterator<Item: Serialize, IntoIter: Send + 'a>,
    {
        let sources = vec![Source::new(name, values)];
        Batched { operation: self, sources, makes_ids: false }
    }
}

impl<'a, R: Runtime, S> Batched<'a, R, S> {
    /// Adds another sequence, which bulkWrite needs: `nsInfo`, the collections. They are read before all items, and each batch has those
    /// that its items name.
    pub fn sequence<I>(mut self, name: &'a str, values: I) -> Self
    where
        I: IntoIterator<Item: Serialize, IntoIter: Send + 'a>,
    {
        self.sources.push(Source::new(name, values));
        self
    }

    /// Makes an ObjectId for each document to insert that has no `_id`, as its first field (BW-17). Without this the server makes one,
    /// and a document that its validator reads has it last.
    pub fn with_ids(mut self) -> Self {
        self.makes_ids = true;
        self
    }

    /// Runs the operation; returns what all batches have done together. With `w: 0` that is unknown.
    ///
    /// A future that is dropped half-way leaves the batches before the one that was under way carried out, and that one perhaps.
    ///
    /// # Errors
    /// [`Writes`](crate::OperationErrorKind::Writes): items failed, or the write concern was not satisfied. The first item that fails
    /// ends the operation, unless the command says `ordered: false`.
    ///
    /// [`Batch`](crate::OperationErrorKind::Batch): an item fits into no message, or cannot be written as a document, or there is none.
    ///
    /// All others are those of [`Operation::run`]. They end the operation, whether or not it is ordered;
    /// [`written`](OperationError::written) has what was done before.
    pub async fn run(self) -> Result<WriteResult, OperationError> {
        let Self { operation, sources, makes_ids } = self;
        run::run(operation, sources, makes_ids).await
    }
}
