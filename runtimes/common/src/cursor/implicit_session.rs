//! Cursors of operations without a session of the user's own.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bson::{RawDocument, RawDocumentBuf};
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::batch::Batch;
use super::fetching::Fetching;
use super::server_cursor::{Left, ServerCursor, Until};
use super::time::Ends;
use super::typed::TypedCursor;
use crate::error::OperationError;
use crate::runtime::Runtime;

/// The documents that a command found. Made by [`Operation::cursor`](crate::Operation::cursor).
///
/// [`try_next`](Self::try_next) lends one document after the other, without a copy. As a [`Stream`] the cursor gives them away,
/// each with an allocation of its own; [`with_type`](Self::with_type) makes values of them. One batch is in memory.
///
/// - A future of `try_next` may be dropped at any time, as by a time-out of the caller's: no document is lost, and the next call
///   goes on where it stopped. The getMore goes on meanwhile, in a task of the client's runtime, and gives its connection back.
/// - After an error the cursor has ended, unless [`TimeoutMode::Iteration`](crate::TimeoutMode) says that the iteration alone had no
///   time left before anything was sent.
/// - A cursor that is dropped before its end is ended on the server by a task of the client's runtime; [`close`](Self::close)
///   waits for that. It keeps no client open: once the client is closed, further batches are errors.
///
/// ```
/// use cmap_runtime::bson::doc;
/// use cmap_runtime::core::topology::ServerSelector;
/// use cmap_runtime::{Client, Error, Runtime};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Order {
///     item: String,
///     count: u32,
/// }
///
/// async fn count_apples<R: Runtime>(client: &Client<R>) -> Result<u32, Error> {
///     let find = doc! { "find": "orders", "filter": { "item": "apple" } };
///     let cursor = client.operation(ServerSelector::Writable, ("shop", find)).cursor().await?;
///     let mut orders = cursor.with_type::<Order>();
///     let mut count = 0;
///     while let Some(order) = orders.try_next().await? {
///         count += order.count;
///     }
///     Ok(count)
/// }
/// ```
#[must_use = "a cursor that is dropped is ended on the server"]
pub struct Cursor<R: Runtime> {
    batch: Batch,
    stage: Stage<R>,
    /// The end of the iteration that has begun.
    iteration: Option<Ends>,
}

enum Stage<R: Runtime> {
    Open(Box<ServerCursor<R>>),
    GettingMore(Fetching<R>),
    /// It is ended when this is dropped.
    Failed {
        _cursor: Box<ServerCursor<R>>,
    },
    Exhausted,
}

impl<R: Runtime> Cursor<R> {
    pub(super) fn new(batch: Batch, left: Left<R>) -> Self {
        Self { batch, stage: left.into(), iteration: None }
    }

    /// The next document, or `None` at the end. The end of a tailable cursor does not come while the server has its collection:
    /// this waits for a document, for as long as an iteration may take.
    ///
    /// # Errors
    /// The getMore failed, or its batch cannot be read.
    pub async fn try_next(&mut self) -> Result<Option<&RawDocument>, OperationError> {
        // That of an earlier call, whose future was dropped, is over.
        self.iteration = None;
        let found = poll_fn(|cx| self.poll_advance(cx, Until::End)).await?;
        Ok(if found { self.batch.current() } else { None })
    }

    /// The next document if there is one by now: asks the server once at most. `None` at the end, and where a tailable cursor has
    /// no document at present; [`is_exhausted`](Self::is_exhausted) tells the two apart.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_if_any(&mut self) -> Result<Option<&RawDocument>, OperationError> {
        self.iteration = None;
        let found = poll_fn(|cx| self.poll_advance(cx, Until::EmptyBatch)).await?;
        Ok(if found { self.batch.current() } else { None })
    }

    /// Whether there is nothing more to read: the server has exhausted the cursor, or it has failed, and all documents at hand
    /// have been read.
    pub fn is_exhausted(&self) -> bool {
        let is_over = match self.stage {
            Stage::Failed { .. } | Stage::Exhausted => true,
            Stage::Open(_) | Stage::GettingMore(_) => false,
        };
        is_over && self.batch.is_empty()
    }

    /// The documents as values of this type.
    pub fn with_type<T: DeserializeOwned>(self) -> TypedCursor<R, T> {
        TypedCursor::new(self)
    }

    /// Ends the cursor, also on the server, and waits for its answer, for at most ten seconds.
    pub async fn close(self) {
        match self.stage {
            Stage::Open(cursor) | Stage::Failed { _cursor: cursor } => cursor.kill(None).await,
            // It is cut off, and ended where it is dropped.
            Stage::GettingMore(_) | Stage::Exhausted => {}
        }
    }

    /// What `read` makes of the next document; `None` at the end.
    pub(super) fn poll_document<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&RawDocument) -> T,
    ) -> Poll<Option<Result<T, OperationError>>> {
        self.poll_advance(cx, Until::End).map(|advanced| match advanced {
            Ok(true) => self.batch.current().map(|document| Ok(read(document))),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Goes on to the next document; returns whether there is one.
    fn poll_advance(&mut self, cx: &mut Context<'_>, until: Until) -> Poll<Result<bool, OperationError>> {
        let mut has_asked = false;
        loop {
            match self.batch.advance() {
                Ok(false) if has_asked && until == Until::EmptyBatch => return self.end(Ok(false)),
                Ok(false) => {}
                Ok(true) => return self.end(Ok(true)),
                Err(error) => {
                    self.batch = Batch::default();
                    self.stage = std::mem::replace(&mut self.stage, Stage::Exhausted).failed();
                    return self.end(Err(error.into()));
                }
            }
            let (batch, left) = match std::mem::replace(&mut self.stage, Stage::Exhausted) {
                Stage::Open(cursor) => {
                    let ends = *self.iteration.get_or_insert_with(|| cursor.time.iteration(&cursor.context));
                    let context = Arc::clone(&cursor.context);
                    match Fetching::begin(context, cursor.get_more(None, ends, has_asked), cx) {
                        Ok(fetched) => fetched,
                        Err(fetching) => {
                            self.stage = Stage::GettingMore(fetching);
                            return Poll::Pending;
                        }
                    }
                }
                Stage::GettingMore(fetching) => match fetching.poll(cx) {
                    Poll::Ready(fetched) => fetched,
                    Poll::Pending => {
                        self.stage = Stage::GettingMore(fetching);
                        return Poll::Pending;
                    }
                },
                over @ (Stage::Failed { .. } | Stage::Exhausted) => {
                    self.stage = over;
                    return self.end(Ok(false));
                }
            };
            self.stage = left.into();
            has_asked = true;
            match batch {
                Ok(batch) => self.batch = batch,
                Err(error) => return self.end(Err(error)),
            }
        }
    }

    fn end(&mut self, ended: Result<bool, OperationError>) -> Poll<Result<bool, OperationError>> {
        self.iteration = None;
        Poll::Ready(ended)
    }
}

impl<R: Runtime> Stage<R> {
    /// The batch cannot be read.
    fn failed(self) -> Self {
        match self {
            Self::Open(cursor) => Self::Failed { _cursor: cursor },
            Self::GettingMore(_) | Self::Failed { .. } | Self::Exhausted => self,
        }
    }
}

impl<R: Runtime> From<Left<R>> for Stage<R> {
    fn from(left: Left<R>) -> Self {
        match left {
            Left::Open(cursor) => Self::Open(cursor),
            Left::Failed(cursor) => Self::Failed { _cursor: cursor },
            Left::Exhausted => Self::Exhausted,
        }
    }
}

impl<R: Runtime> Stream for Cursor<R> {
    type Item = Result<RawDocumentBuf, OperationError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_document(cx, ToOwned::to_owned)
    }
}

impl<R: Runtime> fmt::Debug for Cursor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("is_exhausted", &self.is_exhausted()).finish_non_exhaustive()
    }
}
