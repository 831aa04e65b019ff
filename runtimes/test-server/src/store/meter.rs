//! The bytes that a store holds: taken from one meter, and given back when what they stand for is dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bson::{RawArray, RawBson, RawDocument, RawDocumentBuf};

use super::failure::{CommandFailure, code};

/// What a document in a collection takes beyond its own bytes.
const DOCUMENT_OVERHEAD: usize = 128;

/// The bytes in use, and how many there may be.
#[derive(Debug)]
pub(super) struct Meter {
    used: AtomicUsize,
    limit: usize,
}

/// Bytes in use until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    meter: Arc<Meter>,
    bytes: usize,
}

/// A document in memory. One of a collection counts as long as anything has it, be it a cursor.
#[derive(Debug)]
pub(super) struct Stored {
    document: RawDocumentBuf,
    _held: Option<Held>,
}

impl Meter {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    /// Fails if there is no room for so many more bytes.
    pub(super) fn check(&self, more: usize) -> Result<(), CommandFailure> {
        let used = self.used.load(Ordering::Relaxed);
        if more == 0 || used.saturating_add(more) <= self.limit {
            return Ok(());
        }
        let message = format!(
            "this test server holds {} bytes of documents at most: {used} are in use, and {more} more were needed",
            self.limit
        );
        Err(CommandFailure::new(code::OUT_OF_DISK_SPACE, message))
    }

    /// Takes bytes, whether there is room or not.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Held { meter: Arc::clone(self), bytes }
    }
}

impl Held {
    /// Takes other bytes instead.
    pub(super) fn resize(&mut self, bytes: usize) {
        self.meter.used.fetch_add(bytes, Ordering::Relaxed);
        self.meter.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.meter.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Stored {
    /// A document of a collection.
    pub(super) fn new(document: RawDocumentBuf, meter: &Arc<Meter>) -> Self {
        let held = meter.hold(Self::size(&document));
        Self { document, _held: Some(held) }
    }

    /// A document of a result.
    pub(super) fn computed(document: RawDocumentBuf) -> Self {
        Self { document, _held: None }
    }

    /// The bytes that a document takes.
    pub(super) fn size(document: &RawDocument) -> usize {
        document.as_bytes().len() + DOCUMENT_OVERHEAD
    }
}

impl Deref for Stored {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        &self.document
    }
}

/// About how many bytes a value takes.
pub(super) fn value_size(value: &RawBson) -> usize {
    let value = value.as_raw_bson_ref();
    let document = value.as_document().map(RawDocument::as_bytes);
    let bytes =
        document.or_else(|| value.as_array().map(RawArray::as_bytes)).or_else(|| value.as_str().map(str::as_bytes));
    size_of::<RawBson>() + bytes.or_else(|| value.as_binary().map(|binary| binary.bytes)).map_or(0, <[u8]>::len)
}
