//! The cursors that users hold: of operations without a session of the user's own, of those whose documents become values, and of
//! operations in a user's session, which each step is given.

use std::any::type_name;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bson::{RawDocument, RawDocumentBuf};
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::fetching::Fetching;
use super::reader::{Reader, Until};
use crate::document::ParseError;
use crate::error::{Error, OperationError};
use crate::runtime::Runtime;
use crate::session::Session;
use crate::time::Limit;

/// The documents that a command found. Made by [`Operation::cursor`](crate::Operation::cursor), or the changes of a change stream, made
/// by [`Operation::watch`](crate::Operation::watch).
///
/// [`try_next`](Self::try_next) lends one document after the other, without a copy. As a [`Stream`] the cursor gives them away,
/// each with an allocation of its own; [`with_type`](Self::with_type) makes values of them. One batch is in memory.
///
/// - A future of `try_next` may be dropped at any time, as by a time-out of the caller's: no document is lost, and the next call
///   goes on where it stopped. The getMore goes on meanwhile, in a task of the client's runtime, and gives its connection back.
/// - After an error the cursor has ended, unless [`TimeoutMode::Iteration`](crate::TimeoutMode) says that the iteration alone had no
///   time left before anything was sent. A change stream goes on after errors that pass, and after any time-out:
///   [`is_exhausted`](Self::is_exhausted) says whether it has ended.
/// - A cursor that is dropped before its end is ended on the server by a task of the client's runtime; [`close`](Self::close)
///   waits for that. It keeps no client open: once the client is closed, further batches are errors.
///
/// ```
/// use cmap_runtime::bson::doc;
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
///     let cursor = client.operation(("shop", find)).cursor().await?;
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
    reader: Reader<R>,
    /// The getMore that it waits for.
    fetching: Option<Fetching<R>>,
}

impl<R: Runtime> Cursor<R> {
    pub(super) fn new(reader: Reader<R>) -> Self {
        Self { reader, fetching: None }
    }

    /// The next document, or `None` at the end. The end of a tailable cursor does not come while the server has its collection:
    /// this waits for a document, for as long as an iteration may take.
    ///
    /// # Errors
    /// The getMore failed, or its batch cannot be read.
    pub async fn try_next(&mut self) -> Result<Option<&RawDocument>, OperationError> {
        self.next(Until::End).await
    }

    /// The next document if there is one by now: asks the server once at most. `None` at the end, and where a tailable cursor has
    /// no document at present; [`is_exhausted`](Self::is_exhausted) tells the two apart.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_if_any(&mut self) -> Result<Option<&RawDocument>, OperationError> {
        self.next(Until::EmptyBatch).await
    }

    async fn next(&mut self, until: Until) -> Result<Option<&RawDocument>, OperationError> {
        // The iteration of an earlier call, whose future was dropped, is over.
        self.reader.begin();
        poll_fn(|cx| self.poll_advance(cx, until)).await?;
        Ok(self.reader.current())
    }

    /// The place behind the last document of a change stream, also of one that has ended: pass it as `startAfter` or `resumeAfter` to go
    /// on there with another stream. After a batch without documents it is the place that the server has looked at. `None` for any
    /// other cursor, and before the first document or empty batch of a stream that began without a token.
    pub fn resume_token(&self) -> Option<&RawDocument> {
        self.reader.resume_token()
    }

    /// Whether there is nothing more to read: the server has exhausted the cursor, or it has failed, and all documents at hand
    /// have been read.
    pub fn is_exhausted(&self) -> bool {
        self.fetching.is_none() && self.reader.is_exhausted()
    }

    /// The documents as values of this type.
    pub fn with_type<T: DeserializeOwned>(self) -> TypedCursor<R, T> {
        TypedCursor { cursor: self, of: PhantomData }
    }

    /// Ends the cursor, also on the server, and waits for its answer: for as long as its operation had, ten seconds at most.
    pub async fn close(self) {
        self.end(None).await;
    }

    /// Ends the cursor as [`close`](Self::close), and waits within a [`Duration`](std::time::Duration) or before a
    /// [`Deadline`](crate::Deadline), ten seconds at most (CSOT-23).
    pub async fn close_within(self, limit: impl Into<Limit>) {
        self.end(Some(limit.into())).await;
    }

    async fn end(self, limit: Option<Limit>) {
        let Self { reader, fetching } = self;
        if let Some(fetching) = fetching {
            // The cursor is with its getMore.
            fetching.cut_off(reader.limit_of_close(limit)).await;
        }
        reader.close(None, limit).await;
    }

    /// What `read` makes of the next document; `None` at the end.
    fn poll_document<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&RawDocument) -> T,
    ) -> Poll<Option<Result<T, OperationError>>> {
        self.poll_advance(cx, Until::End).map(|ended| {
            self.reader.begin();
            ended.map(|()| self.reader.current().map(read)).transpose()
        })
    }

    /// Goes on to the next document, or to where there is none.
    fn poll_advance(&mut self, cx: &mut Context<'_>, until: Until) -> Poll<Result<(), OperationError>> {
        loop {
            let polled = match self.fetching.take() {
                Some(fetching) => fetching.poll(cx),
                None => {
                    let Some(fetch) = self.reader.step(until, None)? else { return Poll::Ready(Ok(())) };
                    Fetching::begin(Arc::clone(&self.reader.context), fetch.run(None), cx)
                }
            };
            match polled {
                Ok(fetched) => self.reader.take_over(fetched)?,
                Err(fetching) => {
                    self.fetching = Some(fetching);
                    return Poll::Pending;
                }
            }
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

/// A [`Cursor`] whose documents become values of type `T`. Made by [`Cursor::with_type`].
///
/// A document that does not fit is an [`Error::Parse`]; the cursor goes on behind it. After any other error it has ended.
#[must_use = "a cursor that is dropped is ended on the server"]
pub struct TypedCursor<R: Runtime, T> {
    cursor: Cursor<R>,
    of: PhantomData<fn() -> T>,
}

impl<R: Runtime, T: DeserializeOwned> TypedCursor<R, T> {
    /// The next value, or `None` at the end, as [`Cursor::try_next`].
    ///
    /// # Errors
    /// The getMore failed, or the document does not fit.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error> {
        self.cursor.try_next().await?.map(value).transpose()
    }

    /// The next value if there is one by now, as [`Cursor::next_if_any`].
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_if_any(&mut self) -> Result<Option<T>, Error> {
        self.cursor.next_if_any().await?.map(value).transpose()
    }

    /// The place behind the last value of a change stream; `None` if it is not known, and of any other cursor.
    pub fn resume_token(&self) -> Option<&RawDocument> {
        self.cursor.resume_token()
    }

    /// Whether there is nothing more to read: the server has exhausted the cursor, or it has failed, and all values at hand
    /// have been read.
    pub fn is_exhausted(&self) -> bool {
        self.cursor.is_exhausted()
    }

    /// Ends the cursor, also on the server, and waits for its answer: for as long as its operation had, ten seconds at most.
    pub async fn close(self) {
        self.cursor.close().await;
    }

    /// Ends the cursor, as [`Cursor::close_within`].
    pub async fn close_within(self, limit: impl Into<Limit>) {
        self.cursor.close_within(limit).await;
    }
}

fn value<T: DeserializeOwned>(document: &RawDocument) -> Result<T, Error> {
    let parsed = bson::deserialize_from_slice(document.as_bytes());
    parsed.map_err(|problem| ParseError { expected: type_name::<T>(), problem }.into())
}

impl<R: Runtime, T: DeserializeOwned> Stream for TypedCursor<R, T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.cursor.poll_document(cx, value).map(|item| {
            let read = item?;
            Some(read.map_err(Error::from).and_then(|value| value))
        })
    }
}

impl<R: Runtime, T> fmt::Debug for TypedCursor<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedCursor").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// The documents that a command in a user's session found. Made by
/// [`Operation::cursor`](crate::Operation::cursor) after [`in_session`](crate::Operation::in_session).
///
/// Each step is given the session, which is free for other operations in between. As with a [`Cursor`](crate::Cursor), one batch
/// is in memory, and a cursor that is dropped early is ended on the server. Other than there, a future of
/// [`try_next`](Self::try_next) that is dropped half-way ends the cursor, because the session goes with it; a change stream goes on with
/// another one.
#[must_use = "a cursor that is dropped is ended on the server"]
pub struct SessionCursor<R: Runtime> {
    reader: Reader<R>,
}

impl<R: Runtime> SessionCursor<R> {
    pub(super) fn new(reader: Reader<R>) -> Self {
        Self { reader }
    }

    /// The next document, or `None` at the end. `session` is that in which the cursor was made. The end of a tailable cursor does
    /// not come while the server has its collection: this waits for a document, for as long as an iteration may take.
    ///
    /// # Errors
    /// The getMore failed, its batch cannot be read, it is another session, or an earlier getMore was dropped half-way.
    pub async fn try_next(&mut self, session: &mut Session<R>) -> Result<Option<&RawDocument>, OperationError> {
        self.reader.next(Some(session), Until::End).await
    }

    /// The next document if there is one by now: asks the server once at most. As
    /// [`Cursor::next_if_any`](crate::Cursor::next_if_any).
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_if_any(&mut self, session: &mut Session<R>) -> Result<Option<&RawDocument>, OperationError> {
        self.reader.next(Some(session), Until::EmptyBatch).await
    }

    /// The place behind the last document of a change stream, also of one that has ended: pass it as `startAfter` or `resumeAfter` to go
    /// on there with another stream. `None` for any other cursor, and before the first document or empty batch of a stream that began
    /// without a token.
    pub fn resume_token(&self) -> Option<&RawDocument> {
        self.reader.resume_token()
    }

    /// Whether there is nothing more to read: the server has exhausted the cursor, or it has failed, and all documents at hand
    /// have been read.
    pub fn is_exhausted(&self) -> bool {
        self.reader.is_exhausted()
    }

    /// Ends the cursor, also on the server, and waits for its answer: for as long as its operation had, ten seconds at most. `session` is
    /// that in which the cursor was made; with another one the cursor is ended as if it were dropped.
    pub async fn close(self, session: &mut Session<R>) {
        self.end(session, None).await;
    }

    /// Ends the cursor as [`close`](Self::close), and waits within a [`Duration`](std::time::Duration) or before a
    /// [`Deadline`](crate::Deadline), ten seconds at most (CSOT-23).
    pub async fn close_within(self, session: &mut Session<R>, limit: impl Into<Limit>) {
        self.end(session, Some(limit.into())).await;
    }

    async fn end(self, session: &mut Session<R>, limit: Option<Limit>) {
        if self.reader.is_of(session) {
            self.reader.close(Some(session), limit).await;
        }
    }
}

impl<R: Runtime> fmt::Debug for SessionCursor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCursor").field("is_exhausted", &self.is_exhausted()).finish_non_exhaustive()
    }
}
