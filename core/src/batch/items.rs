//! The items of a sequence that have been taken and are not done, encoded one behind the other as a message has them.

use alloc::vec::Vec;
use core::ops::Range;

use bson::RawDocument;

use crate::wire::Limits;
use crate::wire::document::elements;

/// For how many bytes room is made before they are there.
const MOST: usize = Limits::DEFAULT.max_message_size as usize;

/// Encoded documents.
#[derive(Debug, Default)]
pub(super) struct Items {
    bytes: Vec<u8>,
    /// Where the first one begins that is not done.
    start: usize,
    /// Where the last one begins.
    last: usize,
    /// How many are not done.
    count: usize,
}

impl Items {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The length of all that are not done.
    pub(super) fn length(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Appends what `next` appends, unless it says that there is none; whether that is a document.
    ///
    /// # Errors
    /// That of `next`. Then nothing is appended.
    pub(super) fn append<E>(
        &mut self,
        next: impl FnOnce(&mut Vec<u8>) -> Option<Result<(), E>>,
    ) -> Option<Result<bool, E>> {
        self.drop_done();
        self.make_room();
        let last = self.bytes.len();
        let written = next(&mut self.bytes);
        let is_document = self.bytes.get(last..).is_some_and(|bytes| RawDocument::from_bytes(bytes).is_ok());
        if is_document && matches!(written, Some(Ok(()))) {
            self.last = last;
            self.count += 1;
            return Some(Ok(true));
        }
        self.bytes.truncate(last);
        written.map(|written| written.map(|()| false))
    }

    /// Takes the last one back.
    pub(super) fn take_back(&mut self) {
        self.bytes.truncate(self.last);
        self.count -= 1;
    }

    /// Frees what the items take that are done, where that is more than what is left.
    fn drop_done(&mut self) {
        if self.start > 0 && self.start >= self.length() {
            self.bytes.drain(..self.start);
            self.last = self.last.saturating_sub(self.start);
            self.start = 0;
        }
    }

    /// Makes room for another one as long as the last, without room for more than a message.
    fn make_room(&mut self) {
        let (length, item) = (self.bytes.len(), self.bytes.len() - self.last.min(self.bytes.len()));
        if self.bytes.capacity() - length < item {
            let wanted = length.saturating_mul(2).min(MOST).max(length + 2 * item);
            self.bytes.reserve_exact(wanted - length);
        }
    }

    /// The first ones, as long as this together.
    pub(super) fn first(&self, length: usize) -> &[u8] {
        self.bytes.get(self.start..self.start + length).unwrap_or_default()
    }

    /// The first ones are done: as many, as long as this together.
    pub(super) fn finish(&mut self, count: usize, length: usize) {
        self.start = (self.start + length).min(self.bytes.len());
        self.count = self.count.saturating_sub(count);
    }

    /// The item behind as many bytes of those that are not done.
    pub(super) fn at(&self, behind: usize) -> Option<&RawDocument> {
        let rest = self.bytes.get(self.start + behind..)?;
        let length = usize::try_from(i32::from_le_bytes(*rest.first_chunk()?)).ok()?;
        RawDocument::from_bytes(rest.get(..length)?).ok()
    }

    pub(super) fn last(&self) -> Option<&RawDocument> {
        RawDocument::from_bytes(self.bytes.get(self.last..)?).ok()
    }

    /// Puts a number in the place of the one that the first field of an item has, in the type that it has there. The item is the one
    /// behind as many bytes.
    pub(super) fn renumber(&mut self, behind: usize, number: i32) {
        let start = self.start + behind;
        let Some((tag, place)) = self.at(behind).and_then(first_value) else { return };
        let Some(bytes) = self.bytes.get_mut(start + place.start..start + place.end) else { return };
        match tag {
            INT32 => bytes.copy_from_slice(&number.to_le_bytes()),
            INT64 => bytes.copy_from_slice(&i64::from(number).to_le_bytes()),
            DOUBLE => bytes.copy_from_slice(&f64::from(number).to_le_bytes()),
            _ => {}
        }
    }

    /// Gives the last one an `_id` as its first field (BW-17): itself, or the document in its field of this name.
    pub(super) fn add_id(&mut self, within: Option<&str>, id: [u8; 12]) {
        let Some(last) = self.last() else { return };
        let inner = match within {
            None => 0,
            Some(name) => match place_of_document(last, name) {
                Some(inner) => inner,
                None => return,
            },
        };
        let mut field = [0; ID_FIELD];
        field[0] = OBJECT_ID;
        field[1..5].copy_from_slice(b"_id\0");
        field[5..].copy_from_slice(&id);
        let start = self.last;
        let at = start + inner + size_of::<i32>();
        self.bytes.splice(at..at, field);
        for length in if inner == 0 { Vec::from([start]) } else { Vec::from([start, start + inner]) } {
            lengthen(&mut self.bytes, length);
        }
    }
}

/// The types of BSON that a place may have, and that of an ObjectId.
const DOUBLE: u8 = 0x01;
const OBJECT_ID: u8 = 0x07;
const INT32: u8 = 0x10;
const INT64: u8 = 0x12;

/// The length of a field `_id`.
const ID_FIELD: usize = 1 + 4 + 12;

/// The type of a document's first value, and where it is.
fn first_value(document: &RawDocument) -> Option<(u8, Range<usize>)> {
    let first = elements(document).next()?.ok()?;
    let start = size_of::<i32>() + 1 + first.name.len() + 1;
    Some((first.tag, start..start + first.value.len()))
}

/// Where the field of this name begins, if it is a document.
fn place_of_document(document: &RawDocument, name: &str) -> Option<usize> {
    for element in elements(document) {
        let element = element.ok()?;
        if element.name == name.as_bytes() {
            let inner = element.document()?;
            return Some(inner.as_bytes().as_ptr().addr() - document.as_bytes().as_ptr().addr());
        }
    }
    None
}

/// The document that begins there has become longer by a field `_id`.
fn lengthen(bytes: &mut [u8], at: usize) {
    let Some(length) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) else { return };
    let longer = i32::from_le_bytes(*length).saturating_add(i32::try_from(ID_FIELD).unwrap_or(i32::MAX));
    *length = longer.to_le_bytes();
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;

    /// An item of these bytes.
    fn writing(item: &[u8]) -> impl FnOnce(&mut Vec<u8>) -> Option<Result<(), ()>> {
        |bytes| {
            bytes.extend_from_slice(item);
            Some(Ok(()))
        }
    }

    /// An item that fails when it has written a byte.
    fn failing(bytes: &mut Vec<u8>) -> Option<Result<(), ()>> {
        bytes.push(1);
        Some(Err(()))
    }

    fn items(documents: &[RawDocumentBuf]) -> Items {
        let mut items = Items::default();
        for document in documents {
            assert_eq!(items.append(writing(document.as_bytes())), Some(Ok(true)));
        }
        items
    }

    #[test]
    fn an_id_is_the_first_field_bw_17() {
        let mut items = items(&[rawdoc! { "a": 1 }, rawdoc! { "b": "x" }]);

        items.add_id(None, [7; 12]);

        let id = bson::oid::ObjectId::from_bytes([7; 12]);
        assert_eq!(items.last(), Some(&*rawdoc! { "_id": id, "b": "x" }));
        assert_eq!(items.at(0), Some(&*rawdoc! { "a": 1 }));
    }

    #[test]
    fn an_id_goes_into_the_document_that_a_bulk_write_inserts_bw_17() {
        let mut items = items(&[rawdoc! { "insert": 0, "document": { "a": 1 }, "c": true }]);

        items.add_id(Some("document"), [7; 12]);

        let id = bson::oid::ObjectId::from_bytes([7; 12]);
        assert_eq!(items.last(), Some(&*rawdoc! { "insert": 0, "document": { "_id": id, "a": 1 }, "c": true }));
    }

    #[test]
    fn a_number_keeps_its_type() {
        let mut items =
            items(&[rawdoc! { "insert": 5, "x": 1 }, rawdoc! { "update": 5_i64 }, rawdoc! { "delete": 5.0 }]);

        let mut behind = 0;
        for expected in [rawdoc! { "insert": 2, "x": 1 }, rawdoc! { "update": 2_i64 }, rawdoc! { "delete": 2.0 }] {
            items.renumber(behind, 2);
            assert_eq!(items.at(behind), Some(&*expected));
            behind += expected.as_bytes().len();
        }
    }

    #[test]
    fn what_is_no_document_is_not_appended() {
        let mut items = Items::default();

        assert_eq!(items.append(writing(&[5, 0, 0, 0])), Some(Ok(false)));
        assert_eq!(items.append(failing), Some(Err(())));
        assert_eq!((items.count(), items.length()), (0, 0));
    }

    #[test]
    fn what_is_done_is_freed_once_it_is_more_than_what_is_left() {
        let mut items = items(&[rawdoc! { "n": 1 }, rawdoc! { "n": 2 }, rawdoc! { "n": 3 }]);
        let length = rawdoc! { "n": 1 }.as_bytes().len();

        items.finish(2, 2 * length);
        assert_eq!(items.append(writing(rawdoc! { "n": 4 }.as_bytes())), Some(Ok(true)));

        assert_eq!((items.count(), items.length(), items.bytes.len()), (2, 2 * length, 2 * length));
        assert_eq!(items.at(0), Some(&*rawdoc! { "n": 3 }));
    }
}
