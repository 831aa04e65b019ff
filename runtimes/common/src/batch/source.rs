//! Values that become the items of a sequence, one after the other, and the `_id`s of those that are inserted.

use std::{fmt, io};

use bson::RawDocument;
use cmap_core::batch::{BatchError, Batches};
use serde::Serialize;

use crate::runtime::Runtime;

/// Appends the next item; `None` if there is none.
type Next<'a> = Box<dyn FnMut(&mut Vec<u8>) -> Option<Result<(), bson::error::Error>> + Send + 'a>;

/// A sequence: its name and its items.
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    next: Next<'a>,
}

impl<'a> Source<'a> {
    pub(super) fn new<I>(name: &'a str, values: I) -> Self
    where
        I: IntoIterator<Item: Serialize, IntoIter: Send + 'a>,
    {
        let mut values = values.into_iter();
        let next = move |bytes: &mut Vec<u8>| Some(bson::serialize_to_buffer(&values.next()?, bytes));
        Self { name, next: Box::new(next) }
    }

    /// Takes as many items as the next message may have.
    ///
    /// # Errors
    /// One of them cannot be sent.
    pub(super) fn fill<R: Runtime>(
        &mut self,
        batches: &mut Batches,
        ids: Option<&mut Ids>,
        runtime: &R,
    ) -> Result<(), BatchError> {
        let seconds = ids.is_some().then(|| runtime.unix_time().as_secs());
        let mut ids = ids.zip(seconds);
        while batches.wants_item() && batches.take(&mut self.next)? {
            if let Some((ids, seconds)) = &mut ids
                && batches.lacks_id()
            {
                batches.add_id(ids.next(*seconds));
            }
        }
        Ok(())
    }

    /// All items, the collections of a bulkWrite.
    ///
    /// # Errors
    /// One of them cannot be written as a document.
    pub(super) fn read_namespaces(&mut self, batches: &mut Batches) -> Result<(), BatchError> {
        let mut bytes = Vec::new();
        while let Some(written) = (self.next)(&mut bytes) {
            let namespace = written.and_then(|()| RawDocument::from_bytes(&bytes));
            batches.add_namespace(namespace)?;
            bytes.clear();
        }
        Ok(())
    }
}

/// Makes ObjectIds: the second, a number of the operation's own, and a counter.
pub(super) struct Ids {
    operation: [u8; 5],
    counter: u32,
}

impl Ids {
    /// # Errors
    /// The system has no random bits.
    pub(super) fn new<R: Runtime>(runtime: &R) -> io::Result<Self> {
        let mut random = [0; 8];
        runtime.fill_random(&mut random)?;
        let [a, b, c, d, e, x, y, z] = random;
        Ok(Self { operation: [a, b, c, d, e], counter: u32::from_be_bytes([0, x, y, z]) })
    }

    fn next(&mut self, seconds: u64) -> [u8; 12] {
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX).to_be_bytes();
        let [_, counter @ ..] = self.counter.to_be_bytes();
        self.counter = self.counter.wrapping_add(1);
        let mut id = [0; 12];
        let (time, rest) = id.split_at_mut(4);
        let (operation, count) = rest.split_at_mut(5);
        time.copy_from_slice(&seconds);
        operation.copy_from_slice(&self.operation);
        count.copy_from_slice(&counter);
        id
    }
}

// Items may be confidential.
impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}
