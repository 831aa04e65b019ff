//! Cursors whose documents become values.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use bson::RawDocument;
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::implicit_session::Cursor;
use crate::document::ParseError;
use crate::error::Error;
use crate::runtime::Runtime;
use crate::time::Limit;

/// A [`Cursor`] whose documents become values of type `T`. Made by [`Cursor::with_type`].
///
/// A document that does not fit is an [`Error::Parse`]; the cursor goes on behind it. After any other error it has ended.
#[must_use = "a cursor that is dropped is ended on the server"]
pub struct TypedCursor<R: Runtime, T> {
    cursor: Cursor<R>,
    of: PhantomData<fn() -> T>,
}

impl<R: Runtime, T: DeserializeOwned> TypedCursor<R, T> {
    pub(super) fn new(cursor: Cursor<R>) -> Self {
        Self { cursor, of: PhantomData }
    }

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
