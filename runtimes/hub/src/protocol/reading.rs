//! Reading a command where its contents decide whether it is allowed: what cannot be read is an error, and never the end of
//! the reading or a gap in it. So is a field that is there twice, of which the server might take the other one.
//!
//! The bytes of a request were checked when it came ([`Request::read`](super::Request::read)), so that clients see none of these errors
//! for a text that is not UTF-8. The types here make a check fail all the same if that should ever be missed.

use bson::{RawArray, RawBsonRef, RawDocument};

use super::names;
use super::refusal::Refusal;

/// The fields of a document.
pub(super) fn fields(document: &RawDocument) -> impl Iterator<Item = Result<(&str, RawBsonRef<'_>), Refusal>> {
    document.iter().map(|field| match field {
        Ok((name, value)) => Ok((name.as_str(), value)),
        Err(error) => Err(Refusal::invalid_bson(&error)),
    })
}

/// The values of an array.
pub(super) fn values(array: &RawArray) -> impl Iterator<Item = Result<RawBsonRef<'_>, Refusal>> {
    array.into_iter().map(|value| value.map_err(|error| Refusal::invalid_bson(&error)))
}

/// A field's value, if the document has it.
///
/// # Errors
/// It has it twice, or cannot be read.
pub(super) fn field<'d>(document: &'d RawDocument, name: &str) -> Result<Option<RawBsonRef<'d>>, Refusal> {
    let mut found = None;
    for element in document.iter_elements() {
        let element = element.map_err(|error| Refusal::invalid_bson(&error))?;
        if element.key().as_str() != name {
            continue;
        }
        let value = element.value().map_err(|error| Refusal::invalid_bson(&error))?;
        if found.replace(value).is_some() {
            return Err(there_twice(name));
        }
    }
    Ok(found)
}

/// A document has a field twice, of which the server might take the other one.
pub(super) fn there_twice(name: &str) -> Refusal {
    let message = format!("the field {} is there twice; send it once", names::shown(name));
    Refusal::new(9, "FailedToParse", message)
}

/// A field's text, if the document has it, and it is one: another type is for the server to refuse.
///
/// # Errors
/// It has it twice, or cannot be read.
pub(super) fn text<'d>(document: &'d RawDocument, name: &str) -> Result<Option<&'d str>, Refusal> {
    Ok(field(document, name)?.and_then(RawBsonRef::as_str))
}

/// A field's array, if the document has it, and it is one.
///
/// # Errors
/// It has it twice, or cannot be read.
pub(super) fn array<'d>(document: &'d RawDocument, name: &str) -> Result<Option<&'d RawArray>, Refusal> {
    Ok(field(document, name)?.and_then(RawBsonRef::as_array))
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;

    /// The document with the byte 0xff in place of each question mark.
    fn damaged(document: &RawDocument) -> RawDocumentBuf {
        let bytes = document.as_bytes().iter().map(|byte| if *byte == b'?' { 0xff } else { *byte });
        RawDocumentBuf::from_bytes(bytes.collect()).unwrap()
    }

    #[test]
    fn a_reader_meets_an_error_where_a_text_is_not_utf8_x_133() {
        let document = damaged(&rawdoc! { "as": "?", "list": ["?"], "from": "secret" });

        let codes: Vec<_> = fields(&document).map(|field| field.map_or_else(|error| error.code, |_| 0)).collect();
        assert_eq!(codes, [22, 0, 0]);
        assert_eq!(field(&document, "as").unwrap_err().code, 22);
        assert_eq!(text(&document, "from").unwrap(), Some("secret"));
        let list = array(&document, "list").unwrap().unwrap();
        assert_eq!(values(list).next().unwrap().unwrap_err().code, 22);
    }

    #[test]
    fn a_field_that_is_there_twice_is_neither_of_the_two_x_133() {
        let twice = rawdoc! { "from": "orders", "from": "secret" };

        assert_eq!(field(&twice, "from").unwrap_err().message, "the field from is there twice; send it once");
        assert_eq!(field(&twice, "to").unwrap(), None);
    }
}
